/* store_redis_link.h - one connection to a Redis server: a command goes out, its reply comes back, each within a time
 * limit that holds for the whole of it. hiredis makes the commands and reads the replies; sockets are our own, because
 * hiredis bounds single reads only and ends the process where it has no memory to connect.
 *
 * What failed, told apart for those who decide what to do next: ERR_TIMEOUT: the time is over; ERR_IO: there is no
 * connection, or it broke; ERR_UNAVAILABLE: the server says that it can serve nobody now; ERR_FORMAT: what came is no
 * reply of such a server, or not one that was asked for; ERR_CONFIG: the server does not let us in; ERR_NOMEM: there is
 * no memory, or no descriptor. After each of them the connection is of no use any more. Messages go on after "the
 * session store": "does not answer in time".
 *
 * A connection belongs to one thread at a time; no other state. */
#ifndef SERVER_SESSION_STORE_REDIS_LINK_H
#define SERVER_SESSION_STORE_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/session/store_redis_url.h"

/* Where a name leads to. */
struct redis_places {
    struct sockaddr_storage at[STORE_PLACES_MAX];
    socklen_t sizes[STORE_PLACES_MAX];
    size_t count; /* at least 1 */
};

/* Looks the name up, which may take as long as the resolver lets it. Errors: ERR_IO, ERR_NOMEM. */
enum status redis_places_find(struct redis_places *ret, const struct redis_address *a, struct error *err);

struct redis_link {
    int fd; /* -1: none */
};

/* Connect to the first of the places that accepts, say who we are and choose the database. */
enum status redis_link_open(struct redis_link *ret, const struct redis_places *places, const struct redis_address *a,
                            const struct redis_password *password, uint64_t deadline_ns, struct error *err);
void redis_link_close(struct redis_link *l); /* one that is not open is a no-op */
/* Has the server closed it, or sent what nobody asked for, while it was idle? */
bool redis_link_is_stale(const struct redis_link *l);

enum redis_reply_type {
    REDIS_TEXT,
    REDIS_FAILURE, /* the server's error, its first word in capitals: "NOSCRIPT No matching script." */
    REDIS_OTHER    /* a number, or nothing */
};
struct redis_reply {
    enum redis_reply_type type;
    const char *text; /* [size], unless OTHER, with a NUL behind it */
    size_t size;
    void *whole; /* what it lies in */
};
void redis_reply_clear(struct redis_reply *r); /* zeroed is fine; zeroes it */

/* Send args [count], of sizes [count] bytes, and read what comes back, at most about bytes_max. *ret is set only on
 * OK, also if the server says that it failed: redis_reply_clear. */
enum status redis_link_ask(struct redis_link *l, const char *const args[], const size_t sizes[], size_t count,
                           size_t bytes_max, uint64_t deadline_ns, struct redis_reply *ret, struct error *err);

/* Is it an error of a server that cannot serve anybody now: it starts, has become a replica, cannot write, is full of
 * connections? */
bool redis_reply_is_away(const struct redis_reply *r);

#endif
