/* proxies.h - who a request came from, where proxies stand before the daemon: which of them are believed, and what
 * their headers X-Forwarded-For and Forwarded (RFC 7239) say. Any thread; no state. */
#ifndef SERVER_HTTP_PROXIES_H
#define SERVER_HTTP_PROXIES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/core/client_id.h"

struct sockaddr;

#define PROXIES_OFF "off"
#define PROXIES_UNIX "unix"

/* An IPv4 address, also one that came mapped into IPv6, is of the family AF_INET: one address, one form. */
struct proxies_address {
    sa_family_t family; /* AF_INET, AF_INET6, AF_UNIX; AF_UNSPEC: not known */
    uint8_t bytes[16];  /* AF_INET: the first 4 */
};

struct proxies {
    bool trusts_unix;
    size_t count;
    struct {
        struct proxies_address address;
        unsigned bits; /* of it that count */
    } networks[TRUSTED_PROXIES_MAX];
};

/* The setting trusted_proxies: off, or addresses, networks such as 10.0.0.0/8, and unix, separated by commas. *ret is
 * set only on OK. Errors: ERR_CONFIG, naming the setting. */
enum status proxies_parse(struct proxies *ret, const char *text, struct error *err);
/* Is anybody trusted at all? */
bool proxies_are_on(const struct proxies *p);
bool proxies_trust(const struct proxies *p, const struct proxies_address *a);

/* Of a connection; NULL is AF_UNSPEC. */
void proxies_address_of(struct proxies_address *ret, const struct sockaddr *from);
/* As text: "192.0.2.1", "2001:db8::1", "unix", "unknown". */
void proxies_print_address(const struct proxies_address *a, char out[INET6_ADDRSTRLEN]);
/* As a client among others. */
struct client_id proxies_client_id(const struct proxies_address *a);

/* The values of one header, in the order of the request; the first are left out if there are more. */
struct proxies_header {
    const char *values[FORWARDED_HEADERS_MAX];
    size_t count;
};

/* Replace *client, which is the connection's peer, by the address that the trusted proxies on the way say they were
 * called from: from right to left, what a trusted one has added is believed, up to the first address that is not
 * trusted, or to what is no address. With both headers, of which a proxy may set one and pass the other on from
 * anybody, only if they agree. */
void proxies_find_client(const struct proxies *p, struct proxies_address *client,
                         const struct proxies_header *x_forwarded_for, const struct proxies_header *forwarded);

#endif
