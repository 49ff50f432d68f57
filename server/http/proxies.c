/* proxies.c - see proxies.h. Headers are read from their end, where the nearest proxy writes: what a client has put
 * before that cannot change how it is read. */
#include "server/http/proxies.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* ---- addresses --------------------------------------------------------------------------------------------------- */

enum { V4_BITS = 32, V6_BITS = 128, V6_CLIENT_BITS = 64, MAPPED_BYTES = 12 };

static unsigned bits_of(const struct proxies_address *a)
{
    return a->family == AF_INET ? V4_BITS : V6_BITS;
}

static void set_v6(struct proxies_address *ret, const struct in6_addr *from)
{
    memset(ret, 0, sizeof *ret);
    if (IN6_IS_ADDR_V4MAPPED(from)) {
        ret->family = AF_INET;
        memcpy(ret->bytes, from->s6_addr + MAPPED_BYTES, sizeof(struct in_addr));
    } else {
        ret->family = AF_INET6;
        memcpy(ret->bytes, from->s6_addr, sizeof *from);
    }
}

/* `text` is not NUL-terminated. */
static bool parse_address(struct proxies_address *ret, const char *text, size_t size)
{
    char copy[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (size >= sizeof copy || memchr(text, '\0', size) != NULL)
        return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (inet_pton(AF_INET, copy, &v4) == 1) {
        *ret = (struct proxies_address){.family = AF_INET};
        memcpy(ret->bytes, &v4, sizeof v4);
        return true;
    }
    if (inet_pton(AF_INET6, copy, &v6) != 1)
        return false;
    set_v6(ret, &v6);
    return true;
}

void proxies_address_of(struct proxies_address *ret, const struct sockaddr *from)
{
    memset(ret, 0, sizeof *ret);
    ret->family = AF_UNSPEC;
    if (from == NULL)
        return;
    if (from->sa_family == AF_INET6) {
        set_v6(ret, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr);
    } else if (from->sa_family == AF_INET) {
        ret->family = AF_INET;
        memcpy(ret->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, sizeof(struct in_addr));
    } else if (from->sa_family == AF_UNIX) {
        ret->family = AF_UNIX;
    }
}

void proxies_print_address(const struct proxies_address *a, char out[INET6_ADDRSTRLEN])
{
    if (a->family == AF_INET || a->family == AF_INET6)
        (void)inet_ntop(a->family, a->bytes, out, INET6_ADDRSTRLEN);
    else
        (void)snprintf(out, INET6_ADDRSTRLEN, "%s", a->family == AF_UNIX ? "unix" : "unknown");
}

struct client_id proxies_client_id(const struct proxies_address *a)
{
    struct client_id id = {.kind = CLIENT_UNKNOWN};
    if (a->family == AF_INET) {
        id.kind = CLIENT_IPV4;
        memcpy(id.bytes, a->bytes, V4_BITS / 8);
    } else if (a->family == AF_INET6) {
        id.kind = CLIENT_IPV6;
        memcpy(id.bytes, a->bytes, V6_CLIENT_BITS / 8);
    } else if (a->family == AF_UNIX) {
        id.kind = CLIENT_UNIX;
    }
    return id;
}

static bool is_same(const struct proxies_address *a, const struct proxies_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* Do the first `bits` agree? */
static bool is_in(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    const unsigned rest = bits % 8;
    if (memcmp(a, b, bits / 8) != 0)
        return false;
    return rest == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - rest) == 0;
}

/* ---- the setting ------------------------------------------------------------------------------------------------- */

static void trim(const char **text, size_t *size)
{
    while (*size > 0 && (**text == ' ' || **text == '\t')) {
        ++*text;
        --*size;
    }
    while (*size > 0 && ((*text)[*size - 1] == ' ' || (*text)[*size - 1] == '\t'))
        --*size;
}

static bool parse_bits(unsigned *ret, const char *text, size_t size, unsigned max)
{
    unsigned value = 0;
    if (size == 0 || size > 3)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    *ret = value;
    return value <= max;
}

static bool has_bits_beyond(const struct proxies_address *a, unsigned bits)
{
    for (unsigned i = bits; i < bits_of(a); i++)
        if ((a->bytes[i / 8] >> (7 - i % 8) & 1) != 0)
            return true;
    return false;
}

static enum status add_network(struct proxies *p, const char *text, size_t size, struct error *err)
{
    const char *slash = memchr(text, '/', size);
    const size_t address_size = slash != NULL ? (size_t)(slash - text) : size;
    const int shown = (int)(size < 80 ? size : 80);
    struct proxies_address a;
    unsigned bits = 0;
    bool fine = parse_address(&a, text, address_size);
    /* One mapped into IPv6 counts the bits of that. */
    const unsigned ahead = fine && a.family == AF_INET && memchr(text, ':', address_size) != NULL ? 96 : 0;
    if (fine && slash != NULL)
        fine = parse_bits(&bits, slash + 1, size - address_size - 1, ahead + bits_of(&a)) && bits >= ahead;
    else if (fine)
        bits = ahead + bits_of(&a);
    if (!fine)
        return error_set_param(err, ERR_CONFIG, "trusted_proxies",
                               "trusted_proxies: \"%.*s\": expected an address or a network such as 192.0.2.1, "
                               "10.0.0.0/8 or 2001:db8::/32; " PROXIES_UNIX "; or " PROXIES_OFF " alone",
                               shown, text);
    if (has_bits_beyond(&a, bits - ahead))
        return error_set_param(err, ERR_CONFIG, "trusted_proxies",
                               "trusted_proxies: \"%.*s\": expected a network's first address: there are bits beyond "
                               "the first %u",
                               shown, text, bits);
    if (p->count == TRUSTED_PROXIES_MAX)
        return error_set_param(err, ERR_CONFIG, "trusted_proxies",
                               "trusted_proxies: expected at most %d addresses and networks", TRUSTED_PROXIES_MAX);
    p->networks[p->count].address = a;
    p->networks[p->count++].bits = bits - ahead;
    return OK;
}

enum status proxies_parse(struct proxies *ret, const char *text, struct error *err)
{
    struct proxies p = {.count = 0};
    enum status st = OK;
    const bool is_off = strcmp(text, PROXIES_OFF) == 0;
    for (const char *at = is_off ? NULL : text; st == OK && at != NULL;) {
        size_t size = strcspn(at, ",");
        const char *next = at[size] == ',' ? at + size + 1 : NULL;
        trim(&at, &size);
        if (size == strlen(PROXIES_UNIX) && strncmp(at, PROXIES_UNIX, size) == 0)
            p.trusts_unix = true;
        else
            st = add_network(&p, at, size, err);
        at = next;
    }
    if (st == OK)
        *ret = p;
    return st;
}

bool proxies_are_on(const struct proxies *p)
{
    return p->trusts_unix || p->count > 0;
}

bool proxies_trust(const struct proxies *p, const struct proxies_address *a)
{
    if (a->family == AF_UNIX)
        return p->trusts_unix;
    for (size_t i = 0; i < p->count; i++)
        if (a->family == p->networks[i].address.family &&
            is_in(a->bytes, p->networks[i].address.bytes, p->networks[i].bits))
            return true;
    return false;
}

/* ---- headers ----------------------------------------------------------------------------------------------------- */

/* 192.0.2.1, 192.0.2.1:80, [2001:db8::1], [2001:db8::1]:80 or 2001:db8::1; proxies write all of these. */
static bool parse_node(struct proxies_address *ret, const char *text, size_t size)
{
    const char *end = text + size, *port = NULL;
    if (size > 0 && text[0] == '[') {
        const char *bracket = memchr(text, ']', size);
        if (bracket == NULL || (bracket + 1 < end && bracket[1] != ':') ||
            memchr(text, ':', (size_t)(bracket - text)) == NULL)
            return false;
        port = bracket + 1 < end ? bracket + 2 : NULL;
        text++;
        size = (size_t)(bracket - text);
    } else {
        const char *colon = memchr(text, ':', size);
        if (colon != NULL && memchr(colon + 1, ':', (size_t)(end - colon - 1)) == NULL) {
            port = colon + 1;
            size = (size_t)(colon - text);
        }
    }
    if (port != NULL && (port == end || end - port > 5))
        return false;
    for (const char *c = port; c != NULL && c < end; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    return parse_address(ret, text, size);
}

static bool is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)text[i]) && (text[i] == '\0' || strchr("!#$%&'*+-.^_`|~", text[i]) == NULL))
            return false;
    return size > 0;
}

/* A value that is a token or in quotes; no proxy needs a backslash there. */
static bool unquote(const char **text, size_t *size)
{
    if (*size == 0 || **text != '"')
        return is_token(*text, *size);
    if (*size < 2 || (*text)[*size - 1] != '"')
        return false;
    ++*text;
    *size -= 2;
    return memchr(*text, '"', *size) == NULL && memchr(*text, '\\', *size) == NULL;
}

/* How much of `text` comes before its last `mark` that is not in quotes; `size` if there is none. */
static size_t before_last(const char *text, size_t size, char mark)
{
    bool in_quotes = false;
    for (size_t i = size; i > 0; i--) {
        if (text[i - 1] == '"')
            in_quotes = !in_quotes;
        else if (text[i - 1] == mark && !in_quotes)
            return i - 1;
    }
    return size;
}

/* for=192.0.2.60;proto=http;by=203.0.113.43, exactly one `for` among pairs of any kind (RFC 7239, 4). */
static bool parse_forwarded(struct proxies_address *ret, const char *text, size_t size)
{
    bool found = false;
    for (bool more = true; more;) {
        const size_t before = before_last(text, size, ';');
        more = before < size;
        const char *pair = more ? text + before + 1 : text;
        size_t pair_size = (size_t)(text + size - pair);
        size = before;
        trim(&pair, &pair_size);
        const char *equals = memchr(pair, '=', pair_size);
        if (pair_size == 0)
            continue;
        if (equals == NULL || !is_token(pair, (size_t)(equals - pair)))
            return false;
        const char *value = equals + 1;
        size_t value_size = (size_t)(pair + pair_size - value);
        if (!unquote(&value, &value_size))
            return false;
        if (equals - pair != 3 || strncasecmp(pair, "for", 3) != 0)
            continue;
        if (found || !parse_node(ret, value, value_size))
            return false;
        found = true;
    }
    return found;
}

typedef bool node_parser(struct proxies_address *ret, const char *text, size_t size);

/* See proxies_find_client, for one header. */
static void walk(const struct proxies *p, struct proxies_address *client, const struct proxies_header *h,
                 node_parser *parse)
{
    for (size_t i = h->count; i > 0; i--) {
        const char *text = h->values[i - 1];
        size_t size = strlen(text);
        for (bool more = true; more;) {
            struct proxies_address next;
            const size_t before = before_last(text, size, ',');
            more = before < size;
            const char *element = more ? text + before + 1 : text;
            size_t element_size = (size_t)(text + size - element);
            size = before;
            trim(&element, &element_size);
            if (!proxies_trust(p, client) || !parse(&next, element, element_size))
                return;
            *client = next;
        }
    }
}

void proxies_find_client(const struct proxies *p, struct proxies_address *client,
                         const struct proxies_header *x_forwarded_for, const struct proxies_header *forwarded)
{
    struct proxies_address by_x = *client, by_standard = *client;
    walk(p, &by_x, x_forwarded_for, parse_node);
    walk(p, &by_standard, forwarded, parse_forwarded);
    if (forwarded->count == 0)
        *client = by_x;
    else if (x_forwarded_for->count == 0 || is_same(&by_x, &by_standard))
        *client = by_standard;
}
