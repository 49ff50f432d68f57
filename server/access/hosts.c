/* hosts.c - see hosts.h. The list is read item by item each time that it is asked: it is short. */
#include "server/access/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/list.h"

enum { LABEL_MAX = 63, PORT_DIGITS_MAX = 5, PORT_MAX = 65535, ADDRESS_BYTES = 128 };

/* ---- one host ---------------------------------------------------------------------------------------------------- */

/* IPv6 between brackets. A zone, as in fe80::1%eth0, says which interface of the sender leads there, nothing more. */
static bool read_ipv6(struct host *ret, const char *text, size_t size)
{
    char address[ADDRESS_BYTES], canonical[INET6_ADDRSTRLEN];
    struct in6_addr bytes;
    if (size < 2 || text[size - 1] != ']' || size >= sizeof address)
        return false;
    (void)snprintf(address, sizeof address, "%.*s", (int)(size - 2), text + 1);
    address[strcspn(address, "%")] = '\0';
    if (inet_pton(AF_INET6, address, &bytes) != 1 || inet_ntop(AF_INET6, &bytes, canonical, sizeof canonical) == NULL)
        return false;
    (void)snprintf(ret->name, sizeof ret->name, "[%s]", canonical);
    ret->is_address = true;
    return true;
}

/* Labels of letters, digits, hyphens and, as in the names of containers, underscores. */
static bool is_name(const char *name)
{
    for (size_t label = 0;; name++) {
        if (*name == '.' || *name == '\0') {
            if (label == 0 || label > LABEL_MAX)
                return false;
            if (*name == '\0')
                return true;
            label = 0;
        } else if (isalnum((unsigned char)*name) || *name == '-' || *name == '_') {
            label++;
        } else {
            return false;
        }
    }
}

/* Without a port. */
static bool read_host(struct host *ret, const char *text, size_t size)
{
    struct host h = {.is_address = false};
    struct in_addr bytes;
    if (size > 0 && text[0] == '[') {
        if (!read_ipv6(&h, text, size))
            return false;
        *ret = h;
        return true;
    }
    if (size > 0 && text[size - 1] == '.') /* the root, which is meant in any case */
        size--;
    if (size == 0 || size > HOST_NAME_BYTES_MAX || memchr(text, '\0', size) != NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        h.name[i] = (char)tolower((unsigned char)text[i]);
    if (!is_name(h.name))
        return false;
    h.is_address = inet_pton(AF_INET, h.name, &bytes) == 1;
    *ret = h;
    return true;
}

/* Nothing, or a colon and a port, which RFC 3986 lets be empty. */
static bool is_port(const char *text, size_t size)
{
    uint32_t port = 0;
    if (size == 0)
        return true;
    if (text[0] != ':' || size > 1 + PORT_DIGITS_MAX)
        return false;
    for (size_t i = 1; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    return port <= PORT_MAX;
}

bool host_read(struct host *ret, const char *text, size_t size)
{
    const char *bracket = size > 0 && text[0] == '[' ? memchr(text, ']', size) : NULL;
    const char *colon = memchr(text, ':', size);
    const size_t name = bracket != NULL ? (size_t)(bracket + 1 - text) : colon != NULL ? (size_t)(colon - text) : size;
    return is_port(text + name, size - name) && read_host(ret, text, name);
}

bool host_read_origin(struct host *ret, const char *origin)
{
    const size_t scheme = strncasecmp(origin, "http://", 7) == 0 ? 7 : strncasecmp(origin, "https://", 8) == 0 ? 8 : 0;
    return scheme != 0 && host_read(ret, origin + scheme, strlen(origin + scheme));
}

/* ---- the setting ------------------------------------------------------------------------------------------------- */

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

/* What other machines may call this one: as it is, without its domain, and in that of multicast DNS. */
static void find_own(struct host own[3], const char *machine)
{
    char name[HOST_NAME_BYTES_MAX + sizeof ".local"];
    if (!read_host(&own[0], machine, strlen(machine)) || own[0].is_address) {
        own[0].name[0] = '\0'; /* it has no name that a client could use */
        return;
    }
    const int label = (int)strcspn(own[0].name, ".");
    (void)read_host(&own[1], own[0].name, (size_t)label);
    (void)snprintf(name, sizeof name, "%.*s.local", label, own[0].name);
    (void)read_host(&own[2], name, strlen(name));
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
    find_own(h.own, machine);
    *ret = h;
    return OK;
}

/* Is `name` below the domain? */
static bool is_below(const char *name, const char *domain)
{
    const size_t size = strlen(name), end = strlen(domain);
    return size > end + 1 && name[size - end - 1] == '.' && strcmp(name + size - end, domain) == 0;
}

static bool is_own(const struct hosts *h, const char *name)
{
    for (size_t i = 0; i < sizeof h->own / sizeof h->own[0]; i++)
        if (h->own[i].name[0] != '\0' && strcmp(h->own[i].name, name) == 0)
            return true;
    return false;
}

/* An item * is the name of nothing. */
static bool item_names(const struct hosts *h, const struct list_item *item, const struct host *host)
{
    struct host named;
    if (list_item_is(item, "auto"))
        return is_own(h, host->name);
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
