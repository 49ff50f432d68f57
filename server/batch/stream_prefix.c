/* stream_prefix.c - see stream_prefix.h. */
#include "server/batch/stream_prefix.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/engine.h"
#include "server/batch/stream_slot.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/job/job.h"
#include "server/models/hosted_model.h"

#define MIB (UINT64_C(1) << 20)

struct stream_prefixes {
    struct prefix_cache *cache;
    const struct stream_model *model;
    size_t every;                      /* bytes */
    const struct hosted_model *hosted; /* for its label in the metrics */
    struct prefix_cache_use told;      /* the metrics */
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
        log_info("model %s: no states of prompts are kept: a state has %zu bytes, prefix_cache_mb is %u", served->name,
                 most, s->prefix_cache_mb);
        return OK;
    }
    struct stream_prefixes *p = calloc(1, sizeof *p);
    if (p == NULL) {
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

/* Bring the metrics to what there is. */
static void tell(struct stream_prefixes *p, struct prefix_cache_use now)
{
    metrics_gauge_add(METRIC_PREFIX_BYTES, p->hosted->metrics_label, (int64_t)(now.bytes - p->told.bytes));
    metrics_counter_add(METRIC_PREFIX_EVICTIONS, p->hosted->metrics_label, now.evicted - p->told.evicted);
    p->told = now;
}

void stream_prefixes_free(struct stream_prefixes *p)
{
    if (p == NULL)
        return;
    tell(p, (struct prefix_cache_use){.evicted = p->told.evicted});
    prefix_cache_free(p->cache);
    free(p);
}

/* ---- a slot's prompt ------------------------------------------------------------------------------------------- */

static uint32_t start_of(const struct stream_model *m)
{
    return m->starts ? 1 : 0;
}

/* How much of the prompt is fed; -1 before the start embedding is. */
static int64_t fed_of(const struct stream_slot *s)
{
    return (int64_t)(s->at - s->prefix.from) - (int64_t)(s->length - s->fed);
}

static struct prefix prefix_of(const struct stream_slot *s, size_t size, const struct prefix_hash *hash)
{
    return (struct prefix){
        .owner = s->job->prefix_owner, .bytes = s->given + s->prefix.from, .size = size, .hash = *hash};
}

/* States of one prompt take a fraction of the room at most: those of a longer one lie farther apart, where a shorter
 * one that it begins with has some as well. */
static size_t spacing_of(const struct stream_prefixes *p, const char *owner, size_t size)
{
    const uint32_t position = (uint32_t)size + start_of(p->model);
    const size_t state_bytes = engine_stream_saved_bytes(p->model->engine, position);
    const size_t most = prefix_cache_room(p->cache, owner, size, state_bytes) / PREFIX_SHARE_OF_PROMPT;
    size_t spacing = p->every;
    while (size / spacing > (most > 1 ? most : 1))
        spacing *= 2;
    return spacing;
}

/* The longest beginning that a state is there of, and that leaves something to feed; 0: none. Hashing the longest
 * prompt that there is, a mebibyte, takes some milliseconds; feeding it, half a minute. */
static size_t look_up(struct stream_prefixes *p, const struct stream_slot *s, struct prefix_hash *ret)
{
    const struct stream_prefix *x = &s->prefix;
    struct prefix_hash hash = x->hash;
    size_t longest = 0, state_bytes;
    for (size_t size = p->every; size < x->size; size += p->every) {
        prefix_cache_hash_add(&hash, s->given + x->from + size - p->every, p->every);
        if (prefix_cache_may_have(p->cache, &hash)) {
            longest = size;
            *ret = hash;
        }
    }
    if (longest == 0)
        return 0;
    const struct prefix found = prefix_of(s, longest, ret);
    return prefix_cache_get(p->cache, &found, &state_bytes) ? longest : 0;
}

void stream_prefix_begin(struct stream_prefixes *p, struct stream_slot *s)
{
    struct stream_prefix *x = &s->prefix;
    struct job *j = s->job;
    struct prefix_hash hash;
    *x = (struct stream_prefix){.spacing = 0};
    if (p == NULL || s->follows || j->kind != JOB_GENERATE || !j->keeps_prefixes || j->in.text.from.position > 0)
        return;
    x->from = s->at - (s->length - start_of(p->model));
    x->size = s->given_count - x->from;
    if (x->size < p->every)
        return;
    x->spacing = spacing_of(p, j->prefix_owner, x->size);
    prefix_cache_hash_begin(p->cache, j->prefix_owner, &x->hash);
    if (s->tells || x->size == p->every) /* logits of every byte are wanted; or there is none to begin behind */
        return;
    const size_t known = look_up(p, s, &hash);
    metrics_counter_add(known > 0 ? METRIC_PREFIX_HITS : METRIC_PREFIX_MISSES, p->hosted->metrics_label, 1);
    if (known == 0)
        return;
    stream_slot_skip(p->model, s, x->from, known, prefix_cache_state(p->cache));
    x->hash = hash;
    x->hashed = known;
    metrics_counter_add(METRIC_PREFIX_SKIPPED, p->hosted->metrics_label, known);
    if (s->sample % j->in.text.n == 0)
        job_note_cached(j, (uint32_t)known);
}

uint32_t stream_prefix_take(const struct stream_slot *s, uint32_t take)
{
    const int64_t spacing = (int64_t)s->prefix.spacing;
    if (spacing == 0)
        return take;
    const int64_t left = spacing - fed_of(s) % spacing;
    return take < left ? take : (uint32_t)left;
}

void stream_prefix_keep(struct stream_prefixes *p, struct stream_slot *s)
{
    struct stream_prefix *x = &s->prefix;
    if (x->spacing == 0)
        return;
    const size_t fed = (size_t)fed_of(s);
    if (fed > 0 && fed % x->spacing == 0) {
        for (; x->hashed < fed; x->hashed += p->every)
            prefix_cache_hash_add(&x->hash, s->given + x->from + x->hashed, p->every);
        const struct prefix prefix = prefix_of(s, fed, &x->hash);
        if (!prefix_cache_has(p->cache, &prefix)) {
            const uint32_t position = engine_stream_position(p->model->engine, s->index);
            engine_stream_save(p->model->engine, s->index, prefix_cache_state(p->cache));
            (void)prefix_cache_put(p->cache, &prefix, engine_stream_saved_bytes(p->model->engine, position));
            tell(p, prefix_cache_use(p->cache));
        }
    }
    if (fed == x->size)
        x->spacing = 0;
}
