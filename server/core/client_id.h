/* client_id.h - who is behind a request, for all that is shared out among clients: places in the queue and in lanes,
 * sessions, bodies, connections. A client is a key or, where no key is given, an address: IPv6 addresses count by their
 * first 64 bits, since whoever has one commonly has all of those; all who come through Unix sockets are one client.
 * A plain value, compared in full: nobody can be made to share with another. */
#ifndef SERVER_CORE_CLIENT_ID_H
#define SERVER_CORE_CLIENT_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum client_kind { CLIENT_UNKNOWN, CLIENT_IPV4, CLIENT_IPV6, CLIENT_UNIX, CLIENT_KEY };

enum { CLIENT_ID_BYTES = 16 };

/* Zeroed: unknown, which is one client. */
struct client_id {
    uint8_t kind;                   /* enum client_kind */
    uint8_t bytes[CLIENT_ID_BYTES]; /* of the address, or of the key's hash; what is not used is zero */
};

static inline bool client_id_is_same(const struct client_id *a, const struct client_id *b)
{
    return a->kind == b->kind && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

#endif
