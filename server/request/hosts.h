/* hosts.h - for which hosts this daemon answers. A page in a browser may ask servers that its user can reach and its
 * maker cannot, this daemon on the loopback interface among them, as soon as the maker's own name is made to point at
 * the server's address ("DNS rebinding"): to the browser both are then one site. The requests still say the maker's
 * name, in Host. An address, or localhost, cannot be made to point elsewhere, so only other names need to be known
 * here. Any thread; constant once initialised. */
#ifndef SERVER_REQUEST_HOSTS_H
#define SERVER_REQUEST_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/limits.h"
#include "config/status.h"

/* A host without its port, such that equal hosts have equal texts: names in lower case and without a dot at the end,
 * addresses as inet_ntop writes them, IPv6 in brackets and without a zone. */
struct host {
    char name[HOST_NAME_BYTES_MAX + 1];
    bool is_address;
};

/* From HOST or HOST:PORT, [size] bytes, as in a Host header. False: it is not such a thing. */
bool host_read(struct host *ret, const char *text, size_t size);
/* The size of the scheme, http:// or https://, that a URL begins with; 0: of none. */
size_t host_scheme(const char *url);
/* From an Origin, http://HOST or http://HOST:PORT, also https. False: it is not such a thing; "null" is none. */
bool host_read_origin(struct host *ret, const char *origin);

struct hosts {
    const char *list;    /* the setting; borrowed */
    struct host machine; /* the machine's name; empty: it has none */
    bool any;
};

/* From the setting hosts; `machine` is the machine's own name, for the item auto. Errors: ERR_CONFIG, naming the item
 * that is wrong. */
enum status hosts_init(struct hosts *ret, const char *list, const char *machine, struct error *err);

/* Does the setting name that host? An item * names none. */
bool hosts_name(const struct hosts *h, const struct host *host);
/* Are requests for that host answered? Those that hosts_name says, addresses, localhost and names below it. */
bool hosts_serve(const struct hosts *h, const struct host *host);

#endif
