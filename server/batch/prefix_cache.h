/* prefix_cache.h - states of streams that were fed beginnings of prompts, kept within a bound of memory; the least
 * recently used goes first. A beginning is an owner's name and bytes: both are compared themselves, a hash only finds
 * them, so no two are ever taken for each other.
 * The engine's thread alone, but for create and free. All memory is taken by prefix_cache_create, the bound being that
 * of all of it; what was never used of it is not resident. */
#ifndef SERVER_BATCH_PREFIX_CACHE_H
#define SERVER_BATCH_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct prefix_cache;

/* Found by this. It is made piece by piece: a beginning that was hashed in other pieces is another. */
struct prefix_hash {
    uint8_t bytes[32];
};

struct prefix {
    const char *owner;
    const uint8_t *bytes; /* [size] */
    size_t size;
    struct prefix_hash hash; /* of both */
};

struct prefix_cache_use {
    uint64_t bytes; /* of what is kept, with all that keeping it takes */
    uint64_t states;
    uint64_t evicted; /* states, ever */
};

/* Of at most `bytes`, for states of at most state_bytes_max. *ret is set only on OK; it is NULL where that is too
 * little for any state. Errors: ERR_NOMEM. */
enum status prefix_cache_create(struct prefix_cache **ret, uint64_t bytes, size_t state_bytes_max, struct error *err);
void prefix_cache_free(struct prefix_cache *c); /* NULL is a no-op */
struct prefix_cache_use prefix_cache_use(const struct prefix_cache *c);

/* The hash of no byte at all, and of so many more. */
void prefix_cache_hash_begin(const struct prefix_cache *c, const char *owner, struct prefix_hash *h);
void prefix_cache_hash_add(struct prefix_hash *h, const uint8_t *bytes, size_t size);

/* How many states of that size, of beginnings of that size, there is room for. */
size_t prefix_cache_room(const struct prefix_cache *c, const char *owner, size_t size, size_t state_bytes);

/* Where a state lies on its way in and out: [state_bytes_max]. */
uint8_t *prefix_cache_state(struct prefix_cache *c);

/* Is there one with this hash? */
bool prefix_cache_may_have(const struct prefix_cache *c, const struct prefix_hash *h);
/* Is there a state of this beginning? Then it is now the most recently used one. */
bool prefix_cache_has(struct prefix_cache *c, const struct prefix *p);
/* The same, and the state is brought to prefix_cache_state. */
bool prefix_cache_get(struct prefix_cache *c, const struct prefix *p, size_t *state_bytes);
/* Keep what lies at prefix_cache_state [state_bytes] for a beginning that there is no state of. Others go where they
 * must. False, and nothing has changed, if there will never be room for it. */
bool prefix_cache_put(struct prefix_cache *c, const struct prefix *p, size_t state_bytes);

#endif
