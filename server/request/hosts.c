/* hosts.c - see hosts.h. The list is read item by item each time that it is asked: it is short. */
#include "server/request/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/list.h"

enum { PORT_DIGITS_MAX = 5, PORT_MAX = 65535 };

/* ---- one host --------------------------------------------------------------------------------------------------- */

/* IPv6 between brackets. A zone, as in fe80::1%eth0, says which interface of the sender leads there, nothing more. */
static bool read_ipv6(struct host *h)
{
    char canonical[INET6_ADDRSTRLEN];
    struct in6_addr bytes;
    char *address = h->name + 1, *end = strchr(address, ']');
    if (end == NULL || end[1] != '\0')
        return false;
    *end = '\0';
    address[strcspn(address, "%")] = '\0';
    if (inet_pton(AF_INET6, address, &bytes) != 1 || inet_ntop(AF_INET6, &bytes, canonical, sizeof canonical) == NULL)
        return false;
    (void)snprintf(h->name, sizeof h->name, "[%s]", canonical);
    return true;
}

/* Labels, none of them empty, of letters, digits, hyphens and, as in the names of containers, underscores. */
static bool is_name(const char *name)
{
    const size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.");
    return size > 0 && name[size] == '\0' && name[0] != '.' && name[size - 1] != '.' && strstr(name, "..") == NULL;
}

/* Without a port. */
static bool read_host(struct host *ret, const char *text, size_t size)
{
    struct host h = {.is_address = false};
    struct in_addr bytes;
    if (size > 0 && text[size - 1] == '.') /* the root, which is meant in any case */
        size--;
    if (size > HOST_NAME_BYTES_MAX || memchr(text, '\0', size) != NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        h.name[i] = (char)tolower((unsigned char)text[i]);
    h.is_address = h.name[0] == '[' ? read_ipv6(&h) : inet_pton(AF_INET, h.name, &bytes) == 1;
    if (!h.is_address && !is_name(h.name))
        return false;
    *ret = h;
    return true;
}

/* Nothing, or a colon and a port, which RFC 3986 lets be empty. */
static bool is_port(const char *text, size_t size)
{
    uint32_t port = 0;
    for (size_t i = 1; i < size; i++) {
        if (i > PORT_DIGITS_MAX || !isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    return size == 0 || (text[0] == ':' && port <= PORT_MAX);
}

bool host_read(struct host *ret, const char *text, size_t size)
{
    const char *bracket = size > 0 && text[0] == '[' ? memchr(text, ']', size) : NULL;
    const char *colon = memchr(text, ':', size);
    const size_t name = bracket != NULL ? (size_t)(bracket + 1 - text) : colon != NULL ? (size_t)(colon - text) : size;
    return is_port(text + name, size - name) && read_host(ret, text, name);
}

size_t host_scheme(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
}

bool host_read_origin(struct host *ret, const char *origin)
{
    const size_t scheme = host_scheme(origin);
    return scheme != 0 && host_read(ret, origin + scheme, strlen(origin + scheme));
}

/* ---- the setting ------------------------------------------------------------------------------------------------ */

/* An item *.NAME, which stands for all names below NAME. */
static bool read_below(struct host *ret, const struct list_item *item)
{
    return item->size > 2 && memcmp(item->text, "*.", 2) == 0 && read_host(ret, item->text + 2, item->size - 2) &&
           !ret->is_address;
}

/* "off" would be read as the name of a host, which nobody means. */
static enum status check_item(const struct list_item *item, struct error *err)
{
    struct host h;
    if (list_item_is(item, "auto") || list_item_is(item, "*") ||
        (!list_item_is(item, "off") && (read_host(&h, item->text, item->size) || read_below(&h, item))))
        return OK;
    return error_set_param(err, ERR_CONFIG, "hosts",
                           "hosts has \"%.*s\"; expected the name of a host without a port, *.NAME for all names below "
                           "one, auto for this machine's own name, or * for any, in a list separated by commas",
                           (int)(item->size < 256 ? item->size : 256), item->text);
}

enum status hosts_init(struct hosts *ret, const char *list, const char *machine, struct error *err)
{
    struct hosts h = {.list = list};
    struct list_item item;
    for (const char *at = list; list_next(&at, &item);) {
        const enum status st = check_item(&item, err);
        if (st != OK)
            return st;
        h.any = h.any || list_item_is(&item, "*");
    }
    if (!read_host(&h.machine, machine, strlen(machine)) || h.machine.is_address)
        h.machine.name[0] = '\0'; /* it has no name that a client could use */
    *ret = h;
    return OK;
}

/* Is `name` below the domain? */
static bool is_below(const char *name, const char *domain)
{
    const size_t size = strlen(name), end = strlen(domain);
    return size > end + 1 && name[size - end - 1] == '.' && strcmp(name + size - end, domain) == 0;
}

/* What other machines may call this one: as it is, without its domain, and in that of multicast DNS. */
static bool is_machine(const char *machine, const char *name)
{
    const size_t label = strcspn(machine, ".");
    return label > 0 && (strcmp(name, machine) == 0 || (strncmp(name, machine, label) == 0 &&
                                                        (name[label] == '\0' || strcmp(name + label, ".local") == 0)));
}

/* An item * is the name of nothing. */
static bool item_names(const struct hosts *h, const struct list_item *item, const struct host *host)
{
    struct host named;
    if (list_item_is(item, "auto"))
        return is_machine(h->machine.name, host->name);
    if (read_below(&named, item))
        return is_below(host->name, named.name);
    return read_host(&named, item->text, item->size) && strcmp(named.name, host->name) == 0;
}

bool hosts_name(const struct hosts *h, const struct host *host)
{
    struct list_item item;
    for (const char *at = h->list; list_next(&at, &item);)
        if (item_names(h, &item, host))
            return true;
    return false;
}

bool hosts_serve(const struct hosts *h, const struct host *host)
{
    return h->any || host->is_address || strcmp(host->name, "localhost") == 0 || is_below(host->name, "localhost") ||
           hosts_name(h, host);
}
