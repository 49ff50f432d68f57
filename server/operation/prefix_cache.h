/* prefix_cache.h - a cache of the states of streams that were fed beginnings of prompts, within a limit of memory; the
 * least recently used is evicted first. A beginning, which is an owner and bytes, is known by its hash alone: SHA-256
 * with a salt that nobody knows, so that no two are ever taken for each other.
 * Engine thread only, except for create and free. All memory is allocated by prefix_cache_create and counts towards the
 * limit; what was never used of it is not resident. */
#ifndef SERVER_OPERATION_PREFIX_CACHE_H
#define SERVER_OPERATION_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/core/client_id.h"

struct prefix_cache;

/* Of a beginning. It is hashed piece by piece: other pieces give another hash. */
struct prefix_hash {
    uint8_t bytes[32];
};

struct prefix_cache_use {
    uint64_t bytes; /* taken by what is kept, including all overhead */
    uint64_t states;
    uint64_t evicted; /* states, since creation */
};

/* Create a cache of at most `bytes`, for states of at most state_bytes_max. *ret is set only on OK; it is NULL if that
 * is too little for any state. Errors: ERR_NOMEM. */
enum status prefix_cache_create(struct prefix_cache **ret, uint64_t bytes, size_t state_bytes_max, struct error *err);
void prefix_cache_free(struct prefix_cache *c); /* NULL is a no-op */
struct prefix_cache_use prefix_cache_use(const struct prefix_cache *c);

/* Begin the hash of a beginning, with no bytes yet, and add bytes to it. */
void prefix_cache_hash_begin(const struct prefix_cache *c, const struct client_id *owner, struct prefix_hash *h);
void prefix_cache_hash_add(struct prefix_hash *h, const uint8_t *bytes, size_t size);

/* How many states of `state_bytes` there is room for. */
size_t prefix_cache_room(const struct prefix_cache *c, size_t state_bytes);

/* The buffer for a state on its way in or out: [state_bytes_max]. */
uint8_t *prefix_cache_state(struct prefix_cache *c);

/* Is there a state of the beginning with this hash? */
bool prefix_cache_has(const struct prefix_cache *c, const struct prefix_hash *h);
/* Copy that to prefix_cache_state, and have it be the most recently used one; returns its size. It is there. */
size_t prefix_cache_get(struct prefix_cache *c, const struct prefix_hash *h);
/* Keep what is in prefix_cache_state [state_bytes] for a beginning that has no state yet; others are evicted as needed.
 * False, and nothing has changed, if there can never be room for it. */
bool prefix_cache_put(struct prefix_cache *c, const struct prefix_hash *h, size_t state_bytes);

#endif
