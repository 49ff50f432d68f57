/* attention.c - softmax attention (Vaswani et al. 2017), softmax(q k^T / sqrt(d/h)) v: the baseline. Over sequences a
 * task is some rows of one head, so that scores take little memory at any length. A stream's state is all of its keys
 * and values up to T; prefill and steps agree bit for bit. */
#include <math.h>
#include <string.h>

#include "engine/mixers/attention.h"
#include "engine/pass/mixer.h"

#define TASK_ROWS 64

/* A head of a stream: values [T, width], padded to LANES, then keys in blocks (attend_key). In this order, so that what
 * is read beyond the last value is the same head's. */
static size_t value_floats(const struct engine_core *e)
{
    return lanes_padded((size_t)e->config->context * (e->dims.dim / e->config->mixer.heads));
}

static size_t head_floats(const struct engine_core *e)
{
    return value_floats(e) + lanes_padded(e->config->context) * (e->dims.dim / e->config->mixer.heads);
}

static size_t layer_floats(const struct engine_core *e)
{
    return e->config->mixer.heads * head_floats(e);
}

/* The rows of one part for one head: their keys and values join the cache, then each attends to the positions up to
 * itself. */
static void mix_part(const struct engine_core *e, const struct activations *a, const struct stream_part *part,
                     size_t head, float *values)
{
    const struct dims *d = &e->dims;
    const size_t width = d->dim / e->config->mixer.heads, at = head * width, first = part->first;
    const float *q = a->qkv + first * d->qkv + at, *k = q + d->channels, *v = k + d->keys;
    float *keys = values + value_floats(e), *y = a->h + first * d->channels + at;
    float *rest = a->mlp + (y - a->h); /* the MLP runs later, and has no fewer columns */
    for (size_t i = 0; i < part->count; i++) {
        const size_t t = part->position + i;
        memcpy(values + t * width, v + i * d->qkv, width * sizeof *values);
        for (size_t c = 0; c < width; c++)
            keys[attend_key(t, c, width)] = k[i * d->qkv + c];
    }
    for (size_t i = 0; i < part->count; i += ATTEND_ROWS_MAX) {
        const size_t rows = part->count - i < ATTEND_ROWS_MAX ? part->count - i : ATTEND_ROWS_MAX;
        KERNEL(attend)
        (y + i * d->channels, rest + i * d->channels, d->channels, q + i * d->qkv, d->qkv, rows, keys, values,
         part->position + i + 1, width, 1.0f / sqrtf((float)width));
    }
}

static void mix_streams(const struct engine_core *e, uint32_t layer, const struct activations *a,
                        const struct stream_pass *pass)
{
    const size_t heads = e->config->mixer.heads;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->part_count * heads; task++) {
        const struct stream_part *part = &pass->parts[task / heads];
        const size_t head = task % heads;
        mix_part(e, a, part, head, part->state + layer * layer_floats(e) + head * head_floats(e));
    }
}

/* Of the last block of keys, only the lanes that hold one: the others may hold another stream's. */
static void walk_state(const struct engine_core *e, uint32_t layer, float *state, uint32_t position,
                       struct state_walk *w)
{
    const size_t width = e->dims.dim / e->config->mixer.heads, whole = (size_t)position / LANES * LANES;
    (void)layer;
    for (size_t head = 0; head < e->config->mixer.heads; head++) {
        float *values = state + head * head_floats(e), *keys = values + value_floats(e);
        state_walk_over(w, values, (size_t)position * width, false);
        state_walk_over(w, keys, whole * width, false);
        for (size_t c = 0; c < width && whole < position; c++)
            state_walk_over(w, keys + attend_key(whole, c, width), position - whole, false);
    }
}

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    (void)rows;
    s->thread_floats = (size_t)(tokens < TASK_ROWS ? tokens : TASK_ROWS) * lanes_padded(tokens);
    workspace_note(w, &s->threads, (uint64_t)s->thread_floats * e->threads, sizeof *s->threads);
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const size_t heads = e->config->mixer.heads, width = e->dims.dim / heads, tokens = pass->tokens;
    const size_t slices = (tokens + TASK_ROWS - 1) / TASK_ROWS, ld = lanes_padded(tokens), stride = e->dims.qkv;
    const float scale = 1.0f / sqrtf((float)width);
    (void)layer;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * heads * slices; task++) {
        const size_t sequence = task / (heads * slices), head = task / slices % heads;
        const size_t first = task % slices * TASK_ROWS, n = tokens - first < TASK_ROWS ? tokens - first : TASK_ROWS;
        const float *q = a->qkv + sequence * tokens * stride + head * width, *k = q + e->dims.channels;
        const float *v = k + e->dims.keys;
        float *scores = mixer_thread_scratch(s);
        gemm_product(true, n, tokens, width, scale, q + first * stride, stride, k, stride, scores, ld);
        for (size_t t = 0; t < n; t++)
            KERNEL(softmax)(scores + t * ld, tokens);
        gemm_sum_tokens(false, n, width, tokens, 1.0f, scores, ld, v, stride,
                        a->h + (sequence * tokens + first) * e->dims.channels + head * width, e->dims.channels);
    }
}

/* Scores, and the mean that they weigh. */
static uint64_t macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass)
{
    (void)b;
    if (pass == NULL)
        return 2 * (uint64_t)e->config->context * e->dims.dim;
    return 2 * (uint64_t)pass->sequences * pass->tokens * pass->tokens * e->dims.dim;
}

MIXER(attention) = {
    .layer_floats = layer_floats,
    .mix_streams = mix_streams,
    .walk_state = walk_state,
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = macs,
};
