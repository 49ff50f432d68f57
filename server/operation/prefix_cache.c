/* prefix_cache.c - see prefix_cache.h.
 *
 * Memory is divided into chunks of one size, so that it is never fragmented, whatever sizes come and go. A kept state
 * lies in a chain of chunks and is numbered by its first one. Chains and the free chunks are linked by `next`.
 *
 * Invariants: a kept state is in one bucket and once in the list in order of use; `used` chunks are in chains of kept
 * states, all others are free. */
#include "server/operation/prefix_cache.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#include "config/limits.h"

_Static_assert(sizeof(struct prefix_hash) == SHA256_DIGEST_SIZE, "a hash is a SHA-256");

_Static_assert(sizeof(struct client_id) == 1 + CLIENT_ID_BYTES, "an owner is hashed as its bytes: all have a meaning");

#define NONE UINT32_MAX

struct kept {
    struct prefix_hash hash;
    size_t state_bytes; /* 1 and more */
    LIST_ENTRY(kept) in_bucket;
    TAILQ_ENTRY(kept) by_use;
};
LIST_HEAD(bucket, kept);

struct prefix_cache {
    uint8_t salt[16]; /* so that nobody can choose which bucket their prompts fall into */
    uint8_t *state;   /* [state_bytes_max] */
    size_t state_bytes_max;
    uint32_t chunk_count, used;
    uint8_t *chunks;        /* [chunk_count, PREFIX_CHUNK_BYTES] */
    uint32_t *next;         /* [chunk_count] */
    struct kept *kept;      /* [chunk_count], by first chunk */
    struct bucket *buckets; /* [bucket_count], a power of two; empty where all bytes are zero */
    uint32_t bucket_count;
    uint32_t free;
    TAILQ_HEAD(, kept) by_use; /* the least recently used first */
    uint64_t states, evicted;
};

/* Bytes of a chunk and of all that goes with it; there are at most as many buckets as chunks. */
enum { PER_CHUNK = PREFIX_CHUNK_BYTES + sizeof(uint32_t) + sizeof(struct kept) + sizeof(struct bucket) };

/* ---- life ------------------------------------------------------------------------------------------------------ */

static bool take_memory(struct prefix_cache *c)
{
    c->state = malloc(c->state_bytes_max);
    c->chunks = malloc((size_t)c->chunk_count * PREFIX_CHUNK_BYTES);
    c->next = malloc(c->chunk_count * sizeof *c->next);
    c->kept = malloc(c->chunk_count * sizeof *c->kept);
    c->buckets = calloc(c->bucket_count, sizeof *c->buckets);
    return c->state != NULL && c->chunks != NULL && c->next != NULL && c->kept != NULL && c->buckets != NULL;
}

enum status prefix_cache_create(struct prefix_cache **ret, uint64_t bytes, size_t state_bytes_max, struct error *err)
{
    const uint64_t fixed = sizeof(struct prefix_cache) + state_bytes_max;
    const uint64_t count = bytes > fixed ? (bytes - fixed) / PER_CHUNK : 0;
    if (count == 0) {
        *ret = NULL;
        return OK;
    }
    struct prefix_cache *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->state_bytes_max = state_bytes_max;
        c->chunk_count = count < NONE ? (uint32_t)count : NONE - 1;
        for (c->bucket_count = 1; c->bucket_count <= c->chunk_count / 2;)
            c->bucket_count *= 2;
    }
    if (c == NULL || !take_memory(c) || getrandom(c->salt, sizeof c->salt, 0) != (ssize_t)sizeof c->salt) {
        prefix_cache_free(c);
        return error_set(err, ERR_NOMEM, "no memory for a cache of %llu bytes for states of prompts",
                         (unsigned long long)bytes);
    }
    for (uint32_t i = 0; i < c->chunk_count; i++)
        c->next[i] = i + 1 < c->chunk_count ? i + 1 : NONE;
    c->free = 0;
    TAILQ_INIT(&c->by_use);
    *ret = c;
    return OK;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (c == NULL)
        return;
    free(c->buckets);
    free(c->kept);
    free(c->next);
    free(c->chunks);
    free(c->state);
    free(c);
}

struct prefix_cache_use prefix_cache_use(const struct prefix_cache *c)
{
    return (struct prefix_cache_use){
        .bytes = (uint64_t)c->used * PER_CHUNK, .states = c->states, .evicted = c->evicted};
}

uint8_t *prefix_cache_state(struct prefix_cache *c)
{
    return c->state;
}

/* ---- hashes ---------------------------------------------------------------------------------------------------- */

void prefix_cache_hash_begin(const struct prefix_cache *c, const struct client_id *owner, struct prefix_hash *h)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, sizeof c->salt, c->salt);
    sha256_update(&sha, sizeof *owner, (const uint8_t *)owner);
    sha256_digest(&sha, sizeof h->bytes, h->bytes);
}

void prefix_cache_hash_add(struct prefix_hash *h, const uint8_t *bytes, size_t size)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, sizeof h->bytes, h->bytes);
    sha256_update(&sha, size, bytes);
    sha256_digest(&sha, sizeof h->bytes, h->bytes);
}

static struct bucket *bucket_of(const struct prefix_cache *c, const struct prefix_hash *h)
{
    uint64_t number;
    memcpy(&number, h->bytes, sizeof number);
    return &c->buckets[number & (c->bucket_count - 1)];
}

/* ---- chains ---------------------------------------------------------------------------------------------------- */

static uint32_t chunks_for(const struct prefix_cache *c, size_t state_bytes)
{
    const size_t count = (state_bytes + PREFIX_CHUNK_BYTES - 1) / PREFIX_CHUNK_BYTES;
    assert(state_bytes > 0 && state_bytes <= c->state_bytes_max && count <= NONE);
    return (uint32_t)count;
}

size_t prefix_cache_room(const struct prefix_cache *c, size_t state_bytes)
{
    return c->chunk_count / chunks_for(c, state_bytes);
}

/* The piece of a state that is in a chunk of its chain, `at` bytes on in it. */
static uint8_t *piece_of(const struct prefix_cache *c, uint32_t chunk, size_t at, size_t state_bytes, size_t *size)
{
    *size = state_bytes - at < PREFIX_CHUNK_BYTES ? state_bytes - at : PREFIX_CHUNK_BYTES;
    return c->chunks + (size_t)chunk * PREFIX_CHUNK_BYTES;
}

/* Its chain becomes the first of the free chunks. */
static void evict_oldest(struct prefix_cache *c)
{
    struct kept *k = TAILQ_FIRST(&c->by_use);
    assert(k != NULL);
    LIST_REMOVE(k, in_bucket);
    TAILQ_REMOVE(&c->by_use, k, by_use);
    const uint32_t first = (uint32_t)(k - c->kept), count = chunks_for(c, k->state_bytes);
    uint32_t last = first;
    for (uint32_t n = 1; n < count; n++)
        last = c->next[last];
    c->next[last] = c->free;
    c->free = first;
    c->used -= count;
    c->states--;
    c->evicted++;
}

/* ---- what is kept ---------------------------------------------------------------------------------------------- */

/* NULL: there is none. */
static struct kept *prefix_cache_find(const struct prefix_cache *c, const struct prefix_hash *h)
{
    struct kept *k;
    LIST_FOREACH(k, bucket_of(c, h), in_bucket)
    if (memcmp(k->hash.bytes, h->bytes, sizeof h->bytes) == 0)
        break;
    return k;
}

bool prefix_cache_has(const struct prefix_cache *c, const struct prefix_hash *h)
{
    return prefix_cache_find(c, h) != NULL;
}

size_t prefix_cache_get(struct prefix_cache *c, const struct prefix_hash *h)
{
    struct kept *k = prefix_cache_find(c, h);
    assert(k != NULL);
    TAILQ_REMOVE(&c->by_use, k, by_use);
    TAILQ_INSERT_TAIL(&c->by_use, k, by_use);
    uint32_t chunk = (uint32_t)(k - c->kept);
    for (size_t at = 0, n; at < k->state_bytes; at += n, chunk = c->next[chunk]) {
        const uint8_t *piece = piece_of(c, chunk, at, k->state_bytes, &n);
        memcpy(c->state + at, piece, n);
    }
    return k->state_bytes;
}

bool prefix_cache_put(struct prefix_cache *c, const struct prefix_hash *h, size_t state_bytes)
{
    const uint32_t count = chunks_for(c, state_bytes);
    if (count > c->chunk_count)
        return false;
    while (c->chunk_count - c->used < count)
        evict_oldest(c);
    struct kept *k = &c->kept[c->free];
    for (size_t at = 0, n; at < state_bytes; at += n, c->free = c->next[c->free]) {
        uint8_t *piece = piece_of(c, c->free, at, state_bytes, &n);
        memcpy(piece, c->state + at, n);
    }
    c->used += count;
    c->states++;
    k->hash = *h;
    k->state_bytes = state_bytes;
    LIST_INSERT_HEAD(bucket_of(c, h), k, in_bucket);
    TAILQ_INSERT_TAIL(&c->by_use, k, by_use);
    return true;
}
