/* stream_prefix.c - see stream_prefix.h. */
#include "server/operation/stream_prefix.h"

#include <stdlib.h>

#include "config/settings.h"
#include "engine/engine.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/operation/prefix_cache.h"
#include "server/operation/stream_slot.h"

#define MIB (UINT64_C(1) << 20)

/* What concerns the prompt of one slot. */
struct stream_prefix {
    size_t spacing; /* states are kept at multiples of it; 0: no more of this prompt */
    size_t from;    /* where in what the slot is given the part that it is fed begins */
    size_t size;    /* of that part */
    size_t hashed;  /* how much of it is hashed */
    struct prefix_hash hash;
};

struct stream_prefixes {
    struct stream_prefix *slots; /* [streams_max] */
    struct prefix_cache *cache;
    const struct stream_model *model;
    size_t every;                      /* bytes between states, at least */
    const struct hosted_model *hosted; /* for its label in the metrics */
    struct prefix_cache_use reported;  /* what the metrics say */
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status stream_prefixes_create(struct stream_prefixes **ret, const struct hosted_model *model,
                                   const struct stream_model *m, const struct settings *s, struct error *err)
{
    const struct model *served = model->model;
    const size_t most = engine_info(m->engine)->stream_bytes;
    struct prefix_cache *cache = NULL;
    *ret = NULL;
    if (s->prefix_cache_mb == 0 || served->config.task != TASK_TEXT_GENERATION)
        return OK;
    const enum status st = prefix_cache_create(&cache, s->prefix_cache_mb * MIB, most, err);
    if (st != OK)
        return st;
    if (cache == NULL) {
        log_info("model %s: no states of prompts are kept: a state takes %zu bytes, and prefix_cache_mb is %u",
                 served->name, most, s->prefix_cache_mb);
        return OK;
    }
    struct stream_prefixes *p = calloc(1, sizeof *p);
    if (p != NULL)
        p->slots = calloc(s->streams_max, sizeof *p->slots);
    if (p == NULL || p->slots == NULL) {
        free(p);
        prefix_cache_free(cache);
        return error_set(err, ERR_NOMEM, "%s: no memory for states of prompts", served->name);
    }
    p->cache = cache;
    p->model = m;
    p->every = s->prefix_cache_bytes;
    p->hosted = model;
    *ret = p;
    return OK;
}

/* Update the metrics to `now`. */
static void stream_prefix_tell(struct stream_prefixes *p, struct prefix_cache_use now)
{
    metrics_gauge_add(METRIC_PREFIX_BYTES, p->hosted->metrics_label, (int64_t)(now.bytes - p->reported.bytes));
    metrics_counter_add(METRIC_PREFIX_EVICTIONS, p->hosted->metrics_label, now.evicted - p->reported.evicted);
    p->reported = now;
}

void stream_prefixes_free(struct stream_prefixes *p)
{
    if (p == NULL)
        return;
    stream_prefix_tell(p, (struct prefix_cache_use){.evicted = p->reported.evicted});
    prefix_cache_free(p->cache);
    free(p->slots);
    free(p);
}

/* ---- a slot's prompt ------------------------------------------------------------------------------------------- */

static struct stream_prefix *part_of(const struct stream_prefixes *p, const struct stream_slot *s)
{
    return &p->slots[s->index];
}

/* How much of the prompt has been fed; -1 before the start embedding has. */
static int64_t fed_of(const struct stream_prefix *x, const struct stream_slot *s)
{
    return (int64_t)(s->at - x->from) - (int64_t)(s->window.length - s->window.fed);
}

/* The states of one prompt take at most a fraction of the room: those of a longer prompt lie farther apart, at places
 * where a shorter one that it begins with has states too. */
static size_t spacing_of(const struct stream_prefixes *p, size_t size)
{
    const uint32_t position = (uint32_t)size + p->model->starts;
    const size_t state_bytes = engine_stream_saved_bytes(p->model->engine, position);
    const size_t most = prefix_cache_room(p->cache, state_bytes) / PREFIX_SHARE_OF_PROMPT;
    size_t spacing = p->every;
    while (size / spacing > (most > 1 ? most : 1))
        spacing *= 2;
    return spacing;
}

/* The longest beginning that has a state and leaves something to feed, and its hash; 0: none. Hashing the longest
 * possible prompt, a mebibyte, takes some milliseconds; feeding it, half a minute. */
static size_t look_up(const struct stream_prefixes *p, const struct stream_slot *s, struct prefix_hash *ret)
{
    const struct stream_prefix *x = part_of(p, s);
    struct prefix_hash hash = x->hash;
    size_t longest = 0;
    for (size_t size = p->every; size < x->size; size += p->every) {
        prefix_cache_hash_add(&hash, s->given + x->from + size - p->every, p->every);
        if (prefix_cache_has(p->cache, &hash)) {
            longest = size;
            *ret = hash;
        }
    }
    return longest;
}

size_t stream_prefix_begin(struct stream_prefixes *p, struct stream_slot *s)
{
    struct prefix_hash hash;
    if (p == NULL)
        return 0;
    struct stream_prefix *x = part_of(p, s);
    *x = (struct stream_prefix){.spacing = 0};
    if (s->follows || s->state_owner == NULL)
        return 0;
    x->from = s->at - (s->window.length - p->model->starts);
    x->size = s->given_count - x->from;
    if (x->size < p->every)
        return 0;
    x->spacing = spacing_of(p, x->size);
    prefix_cache_hash_begin(p->cache, s->state_owner, &x->hash);
    if (s->every || x->size == p->every) /* logits of every byte are wanted; or no beginning is short enough */
        return 0;
    const size_t known = look_up(p, s, &hash);
    metrics_counter_add(known > 0 ? METRIC_PREFIX_HITS : METRIC_PREFIX_MISSES, p->hosted->metrics_label, 1);
    if (known == 0)
        return 0;
    (void)prefix_cache_get(p->cache, &hash);
    stream_slot_skip(s, x->from, known, prefix_cache_state(p->cache));
    x->hash = hash;
    x->hashed = known;
    metrics_counter_add(METRIC_PREFIX_SKIPPED, p->hosted->metrics_label, known);
    return known;
}

void stream_prefix_forget(struct stream_prefixes *p, const struct stream_slot *s)
{
    if (p != NULL)
        part_of(p, s)->spacing = 0;
}

uint32_t stream_prefix_take(const struct stream_prefixes *p, const struct stream_slot *s, uint32_t take)
{
    if (p == NULL || part_of(p, s)->spacing == 0)
        return take;
    const struct stream_prefix *x = part_of(p, s);
    const int64_t spacing = (int64_t)x->spacing, left = spacing - fed_of(x, s) % spacing;
    return take < left ? take : (uint32_t)left;
}

void stream_prefix_keep(struct stream_prefixes *p, struct stream_slot *s)
{
    if (p == NULL || part_of(p, s)->spacing == 0)
        return;
    struct stream_prefix *x = part_of(p, s);
    const size_t fed = (size_t)fed_of(x, s);
    if (fed > 0 && fed % x->spacing == 0) {
        for (; x->hashed < fed; x->hashed += p->every)
            prefix_cache_hash_add(&x->hash, s->given + x->from + x->hashed, p->every);
        if (!prefix_cache_has(p->cache, &x->hash)) {
            const uint32_t position = engine_stream_position(p->model->engine, s->window.stream);
            engine_stream_save(p->model->engine, s->window.stream, prefix_cache_state(p->cache));
            (void)prefix_cache_put(p->cache, &x->hash, engine_stream_saved_bytes(p->model->engine, position));
            stream_prefix_tell(p, prefix_cache_use(p->cache));
        }
    }
    if (fed == x->size)
        x->spacing = 0;
}
