/* proxies.c - see proxies.h. */
#include "server/http/proxies.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "config/list.h"

enum { V4_BITS = 32, V6_BITS = 128, V6_CLIENT_BITS = 64, MAPPED_BYTES = 12, PORT_DIGITS_MAX = 5 };

/* ---- addresses -------------------------------------------------------------------------------------------------- */

static struct in6_addr mapped(const struct in_addr *v4)
{
    struct in6_addr ret = {.s6_addr = {[MAPPED_BYTES - 2] = 0xff, [MAPPED_BYTES - 1] = 0xff}};
    memcpy(ret.s6_addr + MAPPED_BYTES, v4, sizeof *v4);
    return ret;
}

static bool parse_address(struct in6_addr *ret, const char *text)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, text, &v4) != 1)
        return inet_pton(AF_INET6, text, ret) == 1;
    *ret = mapped(&v4);
    return true;
}

void proxies_address_of(struct proxies_address *ret, const struct sockaddr *from)
{
    *ret = (struct proxies_address){.family = AF_UNSPEC};
    if (from == NULL)
        return;
    if (from->sa_family == AF_INET)
        ret->ip = mapped(&((const struct sockaddr_in *)(const void *)from)->sin_addr);
    else if (from->sa_family == AF_INET6)
        ret->ip = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    ret->family = from->sa_family == AF_INET ? AF_INET6 : from->sa_family;
}

void proxies_print_address(const struct proxies_address *a, char out[INET6_ADDRSTRLEN])
{
    if (a->family != AF_INET6)
        (void)snprintf(out, INET6_ADDRSTRLEN, "%s", a->family == AF_UNIX ? "unix" : "unknown");
    else if (IN6_IS_ADDR_V4MAPPED(&a->ip))
        (void)inet_ntop(AF_INET, a->ip.s6_addr + MAPPED_BYTES, out, INET6_ADDRSTRLEN);
    else
        (void)inet_ntop(AF_INET6, &a->ip, out, INET6_ADDRSTRLEN);
}

struct client_id proxies_client_id(const struct proxies_address *a)
{
    struct client_id id = {.kind = a->family == AF_UNIX ? CLIENT_UNIX : CLIENT_UNKNOWN};
    if (a->family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->ip)) {
        id.kind = CLIENT_IPV4;
        memcpy(id.bytes, a->ip.s6_addr + MAPPED_BYTES, V4_BITS / 8);
    } else if (a->family == AF_INET6) {
        id.kind = CLIENT_IPV6;
        memcpy(id.bytes, a->ip.s6_addr, V6_CLIENT_BITS / 8);
    }
    return id;
}

/* ---- the setting ------------------------------------------------------------------------------------------------ */

static bool has_bits_beyond(const struct in6_addr *a, unsigned bits)
{
    for (unsigned i = bits; i < V6_BITS; i++)
        if ((a->s6_addr[i / 8] >> (7 - i % 8) & 1) != 0)
            return true;
    return false;
}

/* An address, or the first one of a network with the number of its bits. */
static bool parse_network(struct proxies_network *ret, const struct list_item *item)
{
    char text[INET6_ADDRSTRLEN + sizeof "/128"];
    if (item->size >= sizeof text)
        return false;
    (void)snprintf(text, sizeof text, "%.*s", (int)item->size, item->text);
    char *slash = strchr(text, '/');
    if (slash != NULL)
        *slash++ = '\0';
    if (!parse_address(&ret->first, text))
        return false;
    const unsigned width = strchr(text, ':') != NULL ? V6_BITS : V4_BITS;
    const size_t digits = slash != NULL ? strspn(slash, "0123456789") : 0;
    if (slash != NULL && (digits == 0 || digits > 3 || slash[digits] != '\0'))
        return false;
    const unsigned bits = slash != NULL ? (unsigned)strtoul(slash, NULL, 10) : width;
    ret->bits = V6_BITS - width + bits;
    return bits <= width && !has_bits_beyond(&ret->first, ret->bits);
}

enum status proxies_parse(struct proxies *ret, const char *text, struct error *err)
{
    struct proxies p = {.count = 0};
    struct list_item item;
    for (const char *at = strcmp(text, PROXIES_OFF) == 0 ? NULL : text; list_next(&at, &item);) {
        struct proxies_network n;
        if (list_item_is(&item, PROXIES_UNIX)) {
            p.trusts_unix = true;
            continue;
        }
        if (!parse_network(&n, &item))
            return error_set_param(
                err, ERR_CONFIG, "trusted_proxies",
                "trusted_proxies: \"%.*s\": expected an address, or a network by its first one, such "
                "as 192.0.2.1, 10.0.0.0/8 or 2001:db8::/32; " PROXIES_UNIX "; or " PROXIES_OFF " alone",
                (int)(item.size < 80 ? item.size : 80), item.text);
        if (p.count == TRUSTED_PROXIES_MAX)
            return error_set_param(err, ERR_CONFIG, "trusted_proxies",
                                   "trusted_proxies: expected at most %d addresses and networks", TRUSTED_PROXIES_MAX);
        p.networks[p.count++] = n;
    }
    *ret = p;
    return OK;
}

/* The network ::/0 is that of all IPv6 addresses; the others are mapped into it, and no part of it. */
static bool is_in(const struct in6_addr *a, const struct proxies_network *n)
{
    const unsigned whole = n->bits / 8, rest = n->bits % 8;
    return IN6_IS_ADDR_V4MAPPED(a) == IN6_IS_ADDR_V4MAPPED(&n->first) && memcmp(a, &n->first, whole) == 0 &&
           (rest == 0 || (a->s6_addr[whole] ^ n->first.s6_addr[whole]) >> (8 - rest) == 0);
}

bool proxies_trust(const struct proxies *p, const struct proxies_address *a)
{
    if (a->family == AF_UNIX)
        return p->trusts_unix;
    for (size_t i = 0; i < p->count && a->family == AF_INET6; i++)
        if (is_in(&a->ip, &p->networks[i]))
            return true;
    return false;
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

/* 192.0.2.1, 192.0.2.1:80, [2001:db8::1], [2001:db8::1]:80 or 2001:db8::1; proxies write all of these. */
static bool parse_node(struct proxies_address *ret, const struct list_item *item)
{
    char text[INET6_ADDRSTRLEN + sizeof "[]:65535"];
    if (item->size == 0 || item->size >= sizeof text)
        return false;
    (void)snprintf(text, sizeof text, "%.*s", (int)item->size, item->text);
    char *colon = strrchr(text, ':');
    if (colon != NULL && (colon == strchr(text, ':') || colon[-1] == ']')) {
        const size_t digits = strspn(colon + 1, "0123456789");
        if (digits == 0 || digits > PORT_DIGITS_MAX || colon[1 + digits] != '\0')
            return false;
        *colon = '\0';
    }
    ret->family = AF_INET6;
    const size_t size = strlen(text);
    if (text[0] != '[' || text[size - 1] != ']')
        return parse_address(&ret->ip, text);
    text[size - 1] = '\0';
    return inet_pton(AF_INET6, text + 1, &ret->ip) == 1;
}

void proxies_read_forwarded(const struct proxies *p, struct proxies_address *named, const char *value)
{
    struct proxies_address last = {.family = AF_UNSPEC}, next;
    /* From right to left, as whatever stands left of the first that is not trusted was written by a client, at length
     * perhaps. */
    for (const char *begin = value + strlen(value);; begin--) {
        struct list_item item;
        while (begin > value && begin[-1] != ',')
            begin--;
        (void)list_next(&(const char *){begin}, &item);
        const bool is_node = parse_node(&next, &item);
        if (is_node)
            last = next;
        if (!is_node || !proxies_trust(p, &next)) {
            *named = last;
            return;
        }
        if (begin == value)
            break;
    }
    if (named->family == AF_UNSPEC)
        *named = last;
}
