/* body.h - a request's body while it arrives: bounded by itself, and together with those of all other requests. Small
 * bodies have memory of their own that large ones cannot take. The rest is a quota (quota.h): when it is full, who asks
 * for more gets it from uploads of clients that have more, of which the slowest is cut off.
 *
 * One thread for each struct body; what is shared by all of them, and what was received, may be used by any. */
#ifndef SERVER_REQUEST_BODY_H
#define SERVER_REQUEST_BODY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/core/client_id.h"
#include "server/http/quota.h"

struct body;

/* The memory of all bodies together. */
struct bodies {
    struct quota quota;          /* of bytes, for what is not small */
    _Atomic uint64_t small;      /* bytes of small bodies */
    uint64_t small_most;         /* of them */
    size_t size_max;             /* of a body */
    void (*cut)(struct body *b); /* that is yet to be whole: it is to be dropped soon, on its own thread */
};

/* Initialise it with zeros. */
struct body {
    uint8_t *bytes; /* NULL when empty */
    size_t size, capacity;
    _Atomic uint64_t received; /* kept or not; any thread may look */
    enum status status;        /* ERR_TOO_LARGE, ERR_NOMEM: the bytes were dropped */
    /* body.c's own */
    struct bodies *all;       /* once it has a share */
    size_t small;             /* bytes of it that count as small */
    struct quota_share share; /* the others */
    uint64_t begun_ns;        /* when it came to have others */
    atomic_bool is_whole;
};

/* `most` bytes in all, but room for at least one body of size_max. `cut` is called by any thread, under the quota's
 * lock. Once all bodies are dropped, quota_clear ends it. */
void bodies_init(struct bodies *all, uint64_t most, size_t size_max, void (*cut)(struct body *b));

/* Add what has arrived. Beyond size_max, or when there is no room for it as that client's, all of it is dropped and
 * later pieces are only counted. */
void body_append(struct body *b, const char *data, size_t size, struct bodies *all, const struct client_id *client);
/* Nothing more will come: from now on it is not cut. */
void body_complete(struct body *b);
/* Free the bytes; the counts stay. */
void body_drop(struct body *b, struct bodies *all);
/* Why nothing is kept, for the client. b->status is not OK. */
void body_error(const struct body *b, size_t size_max, struct error *err);

#endif
