/* body.c - see body.h. */
#include "server/request/body.h"

#include <stdlib.h>
#include <string.h>

#include "config/limits.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"

enum { FIRST_BYTES = 4096 }; /* a JSON body fits; a picture doubles it a few times */

#define RATE_GRACE_NS (CLOCK_NS_PER_S / 10) /* what has just begun has no rate yet */

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static struct body *body_of(const struct quota_share *p)
{
    return (struct body *)(void *)((char *)p - offsetof(struct body, share));
}

/* The slowest goes first. */
static struct quota_view body_look_at(const struct quota_share *p, uint64_t now_ns)
{
    struct body *b = body_of(p);
    if (atomic_load_explicit(&b->is_whole, memory_order_relaxed))
        return (struct quota_view){.ease = QUOTA_STAYS};
    const double seconds = (double)(now_ns - b->begun_ns + RATE_GRACE_NS) / (double)CLOCK_NS_PER_S;
    const double rate = (double)atomic_load_explicit(&b->received, memory_order_relaxed) / seconds;
    return (struct quota_view){.ease = QUOTA_BUSY, .order = UINT64_MAX - (uint64_t)rate};
}

static void end(struct quota_share *p)
{
    struct body *b = body_of(p);
    metrics_counter_add(METRIC_UPLOADS_CUT, 0, 1);
    b->all->cut(b);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void bodies_init(struct bodies *all, uint64_t most, size_t size_max, void (*cut)(struct body *b))
{
    const uint64_t small = most / BODIES_SMALL_PART, ending = larger(most / BODIES_ENDING_PART, size_max);
    const uint64_t large = most > small + ending ? larger(most - small - ending, size_max) : size_max;
    const struct quota_rules rules = {.most = large,
                                      .most_of_client = larger(large - large / BODIES_KEPT_PART, size_max),
                                      .ending_most = ending,
                                      .view = body_look_at,
                                      .end = end};
    *all = (struct bodies){.small_most = small, .size_max = size_max, .cut = cut};
    quota_init(&all->quota, &rules);
}

/* ---- one -------------------------------------------------------------------------------------------------------- */

static bool take_small(struct body *b, size_t capacity, struct bodies *all)
{
    const uint64_t more = capacity - b->small;
    if (capacity > BODY_SMALL_BYTES || b->share.owner != NULL)
        return false;
    if (atomic_fetch_add(&all->small, more) + more > all->small_most) {
        (void)atomic_fetch_sub(&all->small, more);
        return false;
    }
    b->small = capacity;
    return true;
}

static void give_small(struct body *b, struct bodies *all)
{
    (void)atomic_fetch_sub(&all->small, b->small);
    b->small = 0;
}

/* Once it is large, all of it counts as such. */
static bool take_large(struct body *b, size_t capacity, struct bodies *all, const struct client_id *client)
{
    if (b->share.owner == NULL) {
        b->all = all;
        b->begun_ns = clock_now_ns();
    }
    if (quota_take(&all->quota, &b->share, client, capacity - b->share.units) != QUOTA_FITS)
        return false;
    give_small(b, all);
    return true;
}

/* Grow by doubling: room for what has arrived, never for what a header promises. */
static bool grow(struct body *b, size_t needed, struct bodies *all, const struct client_id *client)
{
    if (needed <= b->capacity)
        return true;
    size_t capacity = b->capacity < FIRST_BYTES ? FIRST_BYTES : 2 * b->capacity;
    capacity = capacity < needed ? needed : capacity > all->size_max ? all->size_max : capacity;
    uint8_t *grown = NULL;
    if (take_small(b, capacity, all) || take_large(b, capacity, all, client))
        grown = realloc(b->bytes, capacity);
    if (grown == NULL)
        return false;
    metrics_gauge_add(METRIC_BODY_BYTES, 0, (int64_t)(capacity - b->capacity));
    b->bytes = grown;
    b->capacity = capacity;
    return true;
}

void body_append(struct body *b, const char *data, size_t size, struct bodies *all, const struct client_id *client)
{
    b->received += size;
    if (b->status != OK)
        return;
    if (b->received > all->size_max)
        b->status = ERR_TOO_LARGE;
    else if (!grow(b, b->size + size, all, client))
        b->status = ERR_NOMEM;
    if (b->status != OK) {
        body_drop(b, all);
        return;
    }
    memcpy(b->bytes + b->size, data, size);
    b->size += size;
}

void body_complete(struct body *b)
{
    atomic_store_explicit(&b->is_whole, true, memory_order_relaxed);
}

void body_drop(struct body *b, struct bodies *all)
{
    free(b->bytes);
    if (b->capacity > 0)
        metrics_gauge_add(METRIC_BODY_BYTES, 0, -(int64_t)b->capacity);
    b->bytes = NULL;
    b->size = b->capacity = 0;
    if (b->small > 0)
        give_small(b, all);
    quota_release(&all->quota, &b->share);
}

void body_error(const struct body *b, size_t size_max, struct error *err)
{
    if (b->status == ERR_TOO_LARGE)
        (void)error_set(err, ERR_TOO_LARGE, "the body has %llu bytes; at most %zu are allowed",
                        (unsigned long long)b->received, size_max);
    else
        (void)error_set(err, b->status, "out of memory for the body; try again later");
}
