/* body.h - a request's body while it arrives: bounded by itself, and together with those of all other requests.
 * One thread for each struct body; the total, and what was received, are atomic. */
#ifndef SERVER_HTTP_BODY_H
#define SERVER_HTTP_BODY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

/* Initialise it with zeros. */
struct body {
    uint8_t *bytes; /* NULL when empty */
    size_t size, capacity;
    _Atomic uint64_t received; /* kept or not; any thread may look */
    enum status status;        /* ERR_TOO_LARGE, ERR_NOMEM: the bytes were dropped */
};

/* Add what has arrived. Beyond size_max, or when all bodies together would exceed HTTP_BODIES_BYTES_MAX, all of it is
 * dropped and later pieces are only counted. *total is the memory of all bodies. */
void body_append(struct body *b, const char *data, size_t size, size_t size_max, _Atomic uint64_t *total);
/* Free the bytes; the counts stay. */
void body_drop(struct body *b, _Atomic uint64_t *total);
/* Why nothing is kept, for the client. b->status is not OK. */
void body_error(const struct body *b, size_t size_max, struct error *err);

#endif
