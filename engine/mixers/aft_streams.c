/* aft_streams.c - see aft.h; the causal form, which is recurrent. The state of a stream is of fixed size: the sums of
 * what has left the window and a ring of the window's own terms. The window is all of T for aft-full, the position
 * itself for aft-simple, for aft-conv the kernel up to its last tap that counts: a block's span. Prefill runs the same
 * steps over the rows of a part, some at once, channels in parallel: it costs O(window * dim) a byte beside the
 * O(dim^2) of the projections, and both forms agree bit for bit. */
#include "engine/mixers/aft.h"

#define TASK_GROUPS 4 /* lanes of channels for one thread at a time */
#define HALF_SPAN 8   /* from this span on rings are of bf16, unless the products are of float32 */

static const float no_bias[1] = {1.0f}; /* exp(0) */

/* Are the ring's terms bf16? They are read at every step, and with many streams are most of what is read; each is
 * rounded only once, and is one of many in its sum. */
static bool half_ring(const struct block *b)
{
    const struct aft_block *own = b->mixing;
    return b->qkv.precision != PRECISION_F32 && !own->exact && own->span >= HALF_SPAN;
}

static size_t group_floats(const struct block *b)
{
    return local_state_floats(((const struct aft_block *)b->mixing)->span, half_ring(b));
}

/* Each layer has as much room as the largest needs. */
size_t KERNEL(aft_layer_floats)(const struct engine_core *e)
{
    size_t largest = 0;
    for (uint32_t i = 0; i < e->config->depth; i++) {
        const size_t floats = group_floats(&e->blocks[i]);
        largest = floats > largest ? floats : largest;
    }
    return e->dims.channels / LANES * largest;
}

/* e v, then the ring's terms of numerator and denominator. */
uint64_t KERNEL(aft_step_macs)(const struct engine_core *e, const struct block *b)
{
    return (uint64_t)e->dims.dim * (1 + 2 * (uint64_t)((const struct aft_block *)b->mixing)->span);
}

/* The biases of a query at position t, their stride by channel, and the distance to those of the next position. */
static const float *biases_at(const struct engine_core *e, const struct aft_block *b, uint32_t t, size_t *stride,
                              size_t *next)
{
    const bool conv = b->channel_taps != NULL;
    *stride = conv ? e->dims.channels : 0;
    *next = conv || b->biases == NULL ? 0 : b->span;
    if (conv)
        return b->channel_taps;
    return b->biases == NULL ? no_bias : b->biases + t * *next;
}

/* The keys of n channels from `at` of some rows, and their stride: those of the rows, or of the channels' heads. */
static const float *keys_at(const struct engine_core *e, bool by_head, const float *k, size_t at, size_t n, size_t rows,
                            float heads[LOCAL_ROWS][TASK_GROUPS * LANES], size_t *stride)
{
    *stride = by_head ? (size_t)TASK_GROUPS * LANES : e->dims.qkv;
    if (!by_head)
        return k + at;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < n; c++)
            heads[r][c] = k[r * e->dims.qkv + e->head_of[at + c]];
    return heads[0];
}

/* What the mixing of one layer needs. */
struct layer_pass {
    const struct engine_core *core;
    const struct aft_block *block;
    const struct activations *a;
    const struct stream_pass *pass;
    size_t state; /* floats before this layer's part of a state */
    size_t group_floats, slices;
    bool half, by_head; /* the keys are the heads' */
};

static struct layer_pass layer_pass_of(const struct engine_core *e, uint32_t layer, const struct activations *a,
                                       const struct stream_pass *pass)
{
    const struct block *b = &e->blocks[layer];
    return (struct layer_pass){
        .core = e,
        .block = b->mixing,
        .a = a,
        .pass = pass,
        .state = layer * KERNEL(aft_layer_floats)(e),
        .group_floats = group_floats(b),
        .slices = (e->dims.channels / LANES + TASK_GROUPS - 1) / TASK_GROUPS,
        .half = half_ring(b),
        .by_head = e->head_keys,
    };
}

/* A task is TASK_GROUPS of one part: its state. */
static float *task_state(const struct layer_pass *l, size_t task)
{
    return l->pass->parts[task / l->slices].state + l->state + task % l->slices * TASK_GROUPS * l->group_floats;
}

/* All rows of the part, several at once where possible. */
static void mix_task(const struct layer_pass *l, size_t task)
{
    const struct engine_core *e = l->core;
    const struct dims *d = &e->dims;
    const struct stream_part *part = &l->pass->parts[task / l->slices];
    const size_t group = task % l->slices * TASK_GROUPS, at = group * LANES, left = d->channels / LANES - group;
    const size_t next = task + 1 < l->pass->part_count * l->slices ? task + 1 : task;
    const uint32_t at_once = !l->block->exact && l->block->span >= LOCAL_ROWS ? LOCAL_ROWS : 1;
    float *state = task_state(l, task);
    struct local_step step = {.span = l->block->span,
                              .groups = left < TASK_GROUPS ? left : TASK_GROUPS,
                              .gate = e->config->mixer.query_gate,
                              .global = e->config->mixer.global,
                              .half = l->half,
                              .next = task_state(l, next)};
    for (uint32_t i = 0, n; i < part->count; i += n) {
        float heads[LOCAL_ROWS][TASK_GROUPS * LANES];
        n = part->count - i < at_once ? 1 : at_once;
        const size_t row = part->first + i;
        const float *q = l->a->qkv + row * d->qkv, *k = q + d->channels, *v = k + d->keys;
        struct local_rows rows = {.y = l->a->h + row * d->channels + at,
                                  .q = q + at,
                                  .v = v + at,
                                  .y_stride = d->channels,
                                  .q_stride = d->qkv,
                                  .v_stride = d->qkv};
        step.t = part->position + i;
        step.weights = biases_at(e, l->block, step.t, &step.stride, &rows.weights_stride);
        if (step.stride != 0)
            step.weights += at;
        rows.k = keys_at(e, l->by_head, k, at, step.groups * LANES, n, heads, &rows.k_stride);
        if (n > 1)
            KERNEL(local_factored_rows)(&rows, state, &step);
        else if (l->block->exact)
            KERNEL(local_exact)(rows.y, rows.q, rows.k, rows.v, state, &step);
        else
            KERNEL(local_factored)(rows.y, rows.q, rows.k, rows.v, state, &step);
    }
}

void KERNEL(aft_mix_streams)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                             const struct stream_pass *pass)
{
    const struct layer_pass l = layer_pass_of(e, layer, a, pass);
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->part_count * l.slices; task++)
        mix_task(&l, task);
}

void KERNEL(aft_mix_parts)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                           const struct stream_pass *pass)
{
    const struct layer_pass l = layer_pass_of(e, layer, a, pass);
    for (size_t task = 0; task < pass->part_count * l.slices; task++)
        mix_task(&l, task);
}

/* Walks over what was written to each group's ring since the start; in the exact form, over no sums before something
 * has left it. */
void KERNEL(aft_walk_state)(const struct engine_core *e, uint32_t layer, float *state, uint32_t position,
                            struct state_walk *w)
{
    const struct block *b = &e->blocks[layer];
    const struct aft_block *own = b->mixing;
    const uint32_t span = own->span, terms = position < span ? position : span;
    const bool half = half_ring(b);
    const bool has_sums = !own->exact || (e->config->mixer.global && position > span);
    const size_t floats = group_floats(b), sums = local_state_floats(0, half);
    for (size_t group = 0; group < e->dims.channels / LANES; group++) {
        float *at = state + group * floats;
        if (has_sums)
            state_walk_over(w, at, sums, false);
        state_walk_over(w, at + sums, local_state_floats(terms, half) - sums, half);
    }
}
