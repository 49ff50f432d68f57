/* prefix_cache.c - see prefix_cache.h.
 *
 * Memory is divided into chunks of one size, so that it is never fragmented, whatever sizes come and go. A kept entry,
 * its owner, the beginning's bytes and its state one after the other, lies in a chain of chunks and is numbered by its
 * first chunk. Chains and the free chunks are linked by `next`.
 *
 * Invariants: a kept entry is in one bucket and once in the list in order of use; `used` chunks are in chains of kept
 * entries, all others are free. */
#include "server/batch/prefix_cache.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "config/limits.h"

_Static_assert(sizeof(struct prefix_hash) == SHA256_DIGEST_SIZE, "a hash is a SHA-256");

/* An owner is compared and hashed as its bytes. */
enum { OWNER_BYTES = sizeof(struct client_id) };
_Static_assert(OWNER_BYTES == 1 + CLIENT_ID_BYTES, "there are none without a meaning");

#define NONE UINT32_MAX

struct kept {
    uint64_t hash; /* the first bytes of the whole hash */
    size_t state_bytes;
    uint32_t key_bytes;    /* owner and beginning */
    uint32_t in_bucket;    /* the next entry in the bucket */
    uint32_t older, newer; /* in order of use */
};

struct prefix_cache {
    uint8_t salt[16]; /* so that nobody can choose which bucket their prompts fall into */
    uint8_t *state;   /* [state_bytes_max] */
    size_t state_bytes_max;
    uint32_t chunk_count, used;
    uint8_t *chunks;   /* [chunk_count, PREFIX_CHUNK_BYTES] */
    uint32_t *next;    /* [chunk_count] */
    struct kept *kept; /* [chunk_count], by first chunk */
    uint32_t *buckets; /* [bucket_count], a power of two */
    uint32_t bucket_count;
    uint32_t free;
    uint32_t oldest, newest;
    uint64_t states, evicted;
};

/* Bytes of a chunk and of all that goes with it; there are at most as many buckets as chunks. */
enum { PER_CHUNK = PREFIX_CHUNK_BYTES + sizeof(uint32_t) + sizeof(struct kept) + sizeof(uint32_t) };

/* ---- life ------------------------------------------------------------------------------------------------------ */

static bool take_memory(struct prefix_cache *c)
{
    c->state = malloc(c->state_bytes_max);
    c->chunks = malloc((size_t)c->chunk_count * PREFIX_CHUNK_BYTES);
    c->next = malloc(c->chunk_count * sizeof *c->next);
    c->kept = malloc(c->chunk_count * sizeof *c->kept);
    c->buckets = malloc(c->bucket_count * sizeof *c->buckets);
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
    for (uint32_t i = 0; i < c->bucket_count; i++)
        c->buckets[i] = NONE;
    c->free = 0;
    c->oldest = c->newest = NONE;
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
    sha256_update(&sha, OWNER_BYTES, (const uint8_t *)owner);
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

static uint64_t short_hash(const struct prefix_hash *h)
{
    uint64_t hash;
    memcpy(&hash, h->bytes, sizeof hash);
    return hash;
}

static uint32_t *bucket_of(const struct prefix_cache *c, uint64_t hash)
{
    return &c->buckets[hash & (c->bucket_count - 1)];
}

/* ---- chains ---------------------------------------------------------------------------------------------------- */

/* A position in a chain. */
struct place {
    uint32_t chunk;
    size_t at;
};

/* The contiguous bytes from a place on, at most `most`; moves the place past them. */
static uint8_t *walk(const struct prefix_cache *c, struct place *p, size_t most, size_t *size)
{
    if (p->at == PREFIX_CHUNK_BYTES)
        *p = (struct place){.chunk = c->next[p->chunk]};
    uint8_t *piece = c->chunks + (size_t)p->chunk * PREFIX_CHUNK_BYTES + p->at;
    const size_t left = PREFIX_CHUNK_BYTES - p->at;
    *size = most < left ? most : left;
    p->at += *size;
    return piece;
}

static void write_bytes(struct prefix_cache *c, struct place *p, const uint8_t *from, size_t size)
{
    for (size_t n; size > 0; from += n, size -= n) {
        uint8_t *piece = walk(c, p, size, &n);
        memcpy(piece, from, n);
    }
}

static void read_bytes(const struct prefix_cache *c, struct place *p, uint8_t *to, size_t size)
{
    for (size_t n; size > 0; to += n, size -= n) {
        const uint8_t *piece = walk(c, p, size, &n);
        memcpy(to, piece, n);
    }
}

static bool is_same(const struct prefix_cache *c, struct place *p, const uint8_t *as, size_t size)
{
    for (size_t n; size > 0; as += n, size -= n) {
        const uint8_t *piece = walk(c, p, size, &n);
        if (memcmp(piece, as, n) != 0)
            return false;
    }
    return true;
}

static uint64_t chunks_for(size_t key_bytes, size_t state_bytes)
{
    return ((uint64_t)key_bytes + state_bytes + PREFIX_CHUNK_BYTES - 1) / PREFIX_CHUNK_BYTES;
}

size_t prefix_cache_room(const struct prefix_cache *c, size_t size, size_t state_bytes)
{
    return c->chunk_count / chunks_for(OWNER_BYTES + size, state_bytes);
}

/* ---- by use ---------------------------------------------------------------------------------------------------- */

static void unlink_use(struct prefix_cache *c, uint32_t i)
{
    const struct kept *k = &c->kept[i];
    *(k->older != NONE ? &c->kept[k->older].newer : &c->oldest) = k->newer;
    *(k->newer != NONE ? &c->kept[k->newer].older : &c->newest) = k->older;
}

static void link_newest(struct prefix_cache *c, uint32_t i)
{
    c->kept[i].older = c->newest;
    c->kept[i].newer = NONE;
    *(c->newest != NONE ? &c->kept[c->newest].newer : &c->oldest) = i;
    c->newest = i;
}

static void evict_oldest(struct prefix_cache *c)
{
    const uint32_t i = c->oldest;
    const struct kept *k = &c->kept[i];
    uint32_t *link = bucket_of(c, k->hash), last = i;
    assert(i != NONE);
    while (*link != i)
        link = &c->kept[*link].in_bucket;
    *link = k->in_bucket;
    unlink_use(c, i);
    const uint32_t count = (uint32_t)chunks_for(k->key_bytes, k->state_bytes);
    for (uint32_t n = 1; n < count; n++)
        last = c->next[last];
    c->next[last] = c->free;
    c->free = i;
    c->used -= count;
    c->states--;
    c->evicted++;
}

/* ---- what is kept ---------------------------------------------------------------------------------------------- */

bool prefix_cache_may_have(const struct prefix_cache *c, const struct prefix_hash *h)
{
    const uint64_t hash = short_hash(h);
    uint32_t i = *bucket_of(c, hash);
    while (i != NONE && c->kept[i].hash != hash)
        i = c->kept[i].in_bucket;
    return i != NONE;
}

/* Find the entry of a beginning; *state: where its state begins. NONE: there is none. */
static uint32_t find(const struct prefix_cache *c, const struct prefix *p, struct place *state)
{
    const uint64_t hash = short_hash(&p->hash);
    for (uint32_t i = *bucket_of(c, hash); i != NONE; i = c->kept[i].in_bucket) {
        const struct kept *k = &c->kept[i];
        *state = (struct place){.chunk = i};
        if (k->hash == hash && k->key_bytes == OWNER_BYTES + p->size &&
            is_same(c, state, (const uint8_t *)p->owner, OWNER_BYTES) && is_same(c, state, p->bytes, p->size))
            return i;
    }
    return NONE;
}

bool prefix_cache_has(struct prefix_cache *c, const struct prefix *p)
{
    struct place state;
    const uint32_t i = find(c, p, &state);
    if (i == NONE)
        return false;
    unlink_use(c, i);
    link_newest(c, i);
    return true;
}

bool prefix_cache_get(struct prefix_cache *c, const struct prefix *p, size_t *state_bytes)
{
    struct place state;
    const uint32_t i = find(c, p, &state);
    if (i == NONE)
        return false;
    unlink_use(c, i);
    link_newest(c, i);
    *state_bytes = c->kept[i].state_bytes;
    read_bytes(c, &state, c->state, *state_bytes);
    return true;
}

bool prefix_cache_put(struct prefix_cache *c, const struct prefix *p, size_t state_bytes)
{
    const size_t key_bytes = OWNER_BYTES + p->size;
    const uint64_t count = chunks_for(key_bytes, state_bytes);
    assert(state_bytes <= c->state_bytes_max && key_bytes <= UINT32_MAX);
    if (count > c->chunk_count)
        return false;
    while (c->chunk_count - c->used < count)
        evict_oldest(c);
    const uint32_t i = c->free;
    const uint64_t hash = short_hash(&p->hash);
    struct place place = {.chunk = i};
    write_bytes(c, &place, (const uint8_t *)p->owner, OWNER_BYTES);
    write_bytes(c, &place, p->bytes, p->size);
    write_bytes(c, &place, c->state, state_bytes);
    c->free = c->next[place.chunk];
    c->used += (uint32_t)count;
    c->states++;
    c->kept[i] = (struct kept){
        .hash = hash, .state_bytes = state_bytes, .key_bytes = (uint32_t)key_bytes, .in_bucket = *bucket_of(c, hash)};
    *bucket_of(c, hash) = i;
    link_newest(c, i);
    return true;
}
