/* proxies.h - who a request came from, where proxies stand before the daemon: which of them are believed, and what
 * their headers X-Forwarded-For say. Any thread; no state. */
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

/* An IPv4 address is mapped into IPv6: one address, one form. */
struct proxies_address {
    sa_family_t family; /* AF_INET6, AF_UNIX; AF_UNSPEC: not known */
    struct in6_addr ip;
};

struct proxies_network {
    struct in6_addr first;
    unsigned bits; /* of it that count */
};

struct proxies {
    bool trusts_unix;
    size_t count;
    struct proxies_network networks[TRUSTED_PROXIES_MAX];
};

/* The setting trusted_proxies: off, or addresses, networks such as 10.0.0.0/8, and unix, separated by commas. *ret is
 * set only on OK. Errors: ERR_CONFIG, naming the setting. */
enum status proxies_parse(struct proxies *ret, const char *text, struct error *err);
bool proxies_trust(const struct proxies *p, const struct proxies_address *a);

/* Of a connection; NULL is AF_UNSPEC. */
void proxies_address_of(struct proxies_address *ret, const struct sockaddr *from);
/* As text: "192.0.2.1", "2001:db8::1", "unix", "unknown". */
void proxies_print_address(const struct proxies_address *a, char out[INET6_ADDRSTRLEN]);
/* As a client among others. */
struct client_id proxies_client_id(const struct proxies_address *a);

/* Whom the headers X-Forwarded-For of a request from a trusted peer name as its client. Call with the value of each, in
 * the order of the request, and with *named AF_UNSPEC at first; if it is so at the end, the peer is the client. Each
 * proxy appends who called it, so that from right to left what a trusted one has added is believed, up to the first
 * address that is not trusted, or to what is no address. */
void proxies_read_forwarded(const struct proxies *p, struct proxies_address *named, const char *value);

#endif
