/* aft_conv.c - AFT-conv (Zhai et al. 2021, eq. 6; DAFT eq. 8): every position weighs every other with exp(k + w), w
 * depending on the offset inside a kh x kw window and 0 beyond it. Keys belong to heads, values to channels: the
 * denominators are sums of e over [tokens, heads], the numerators of e*v over [tokens, channels], both by one kernel,
 * for LANES columns at a time: those of a picture's tokens stay in a thread's own cache. Fully convolutional: any
 * grid. */
#include <math.h>

#include "engine/mixers/aft.h"

static size_t taps_of(const struct engine_core *e)
{
    return (size_t)e->config->mixer.kernel[0] * e->config->mixer.kernel[1];
}

/* Does exp(w) round to another number than exp(0)? */
static bool counts(float w)
{
    return fabsf(w) > 0x1p-25f;
}

/* Causal: see struct aft_block. Without the global sum nothing is beyond the kernel. */
static uint32_t count_lags(const struct engine_core *e, const struct block_weights *bw)
{
    const uint32_t taps = (uint32_t)taps_of(e), heads = e->config->mixer.heads;
    uint32_t lags = e->config->mixer.global ? 1 : taps;
    for (size_t h = 0; h < heads; h++)
        for (uint32_t lag = lags; lag < taps; lag++)
            if (counts(bw->biases[h * taps + taps - 1 - lag]))
                lags = lag + 1;
    return lags;
}

/* ---- few taps --------------------------------------------------------------------------------------------------- */

/* In kernels of one tap a head (AFT's appendix; aft-train --one-tap) nearly all are exp(0), and indexing is enough. */
enum { FEW_SHARE = 4 }; /* of this part of the taps or less */

/* The taps that count for the LANES columns from `column` on, where heads are `width` columns wide: their number, and,
 * unless list is NULL, they themselves, as conv_sums has it. */
static size_t taps_that_count(uint32_t *list, const struct engine_core *e, const struct block_weights *bw,
                              size_t column, size_t width)
{
    const size_t taps = taps_of(e), heads = e->config->mixer.heads, kw = e->config->mixer.kernel[1];
    size_t n = 0;
    for (size_t j = 0; j < taps; j++) {
        bool any = false;
        for (size_t h = column / width; h < heads && h <= (column + LANES - 1) / width; h++)
            any = any || counts(bw->biases[h * taps + j]);
        if (any && list != NULL)
            list[n + 1] = CONV_TAP(j / kw, j % kw);
        n += any;
    }
    if (list != NULL)
        list[0] = (uint32_t)n;
    return n;
}

/* Do few taps count, for any LANES heads and any LANES channels? */
static bool few_count(const struct engine_core *e, const struct block_weights *bw)
{
    const size_t heads = e->config->mixer.heads, taps = taps_of(e), width = e->dims.dim / heads;
    for (size_t i = 0; i < heads * taps; i++)
        if (bw->biases[i] < FEW_LEAST)
            return false;
    for (size_t c = 0; c < e->dims.channels; c += LANES)
        if (taps_that_count(NULL, e, bw, c, width) > taps / FEW_SHARE)
            return false;
    for (size_t h = 0; h < e->dims.keys; h += LANES)
        if (taps_that_count(NULL, e, bw, h, 1) > taps / FEW_SHARE)
            return false;
    return true;
}

static void plan_few(struct aft_block *b, struct workspace *w, const struct engine_core *e,
                     const struct block_weights *bw)
{
    if (b->exact || !few_count(e, bw))
        return;
    b->few_stride = taps_of(e) / FEW_SHARE + 1;
    workspace_note(w, &b->head_few, e->dims.keys / LANES * b->few_stride, sizeof *b->head_few);
    workspace_note(w, &b->channel_few, e->dims.channels / LANES * b->few_stride, sizeof *b->channel_few);
}

static void pack_few(const struct aft_block *b, const struct engine_core *e, const struct block_weights *bw)
{
    if (b->head_few == NULL)
        return;
    for (size_t h = 0; h < e->dims.keys; h += LANES)
        (void)taps_that_count(b->head_few + h / LANES * b->few_stride, e, bw, h, 1);
    for (size_t c = 0; c < e->dims.channels; c += LANES)
        (void)taps_that_count(b->channel_few + c / LANES * b->few_stride, e, bw, c,
                              e->dims.dim / e->config->mixer.heads);
}

static const uint32_t *few_of(const struct aft_block *b, const uint32_t *few, size_t group)
{
    return few == NULL ? NULL : few + group * b->few_stride;
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

static void plan(struct block *block, struct workspace *w, const struct engine_core *e, const struct block_weights *bw)
{
    struct aft_block *b = block->mixing;
    const uint64_t taps = taps_of(e);
    const bool causal = model_config_causal(e->config);
    b->exact = aft_needs_exact(bw->biases, (size_t)taps * e->config->mixer.heads, e->config->mixer.global);
    workspace_note(w, &b->head_taps, causal ? 0 : taps * e->dims.keys, sizeof *b->head_taps);
    workspace_note(w, &b->channel_taps, b->exact && !causal ? 0 : taps * e->dims.channels, sizeof *b->channel_taps);
    b->span = causal ? count_lags(e, bw) : 0;
    if (!causal)
        plan_few(b, w, e, bw);
}

/* Row j of column c in tiles [columns / LANES, rows, LANES]. */
static float *tile_at(float *tiles, size_t rows, size_t j, size_t c)
{
    return tiles + (c / LANES * rows + j) * LANES + c % LANES;
}

/* Tap j of a causal kernel is lag taps - 1 - j. */
static void pack_lags(const struct aft_block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const size_t taps = taps_of(e), heads = e->config->mixer.heads, width = e->dims.dim / heads;
    for (size_t i = 0; i < taps * heads; i++) {
        const size_t lag = i / heads, h = i % heads;
        const float w = bw->biases[h * taps + taps - 1 - lag], tap = b->exact ? w : (float)exp((double)w);
        for (size_t c = h * width; c < (h + 1) * width; c++)
            b->channel_taps[lag * e->dims.channels + c] = tap;
    }
}

static void pack(struct block *block, const struct engine_core *e, const struct block_weights *bw)
{
    const struct aft_block *b = block->mixing;
    const size_t taps = taps_of(e);
    if (model_config_causal(e->config)) {
        pack_lags(b, e, bw);
        return;
    }
    pack_few(b, e, bw);
    for (size_t j = 0; j < taps; j++) {
        for (size_t h = 0; h < e->config->mixer.heads; h++) {
            const float w = bw->biases[h * taps + j];
            if (b->exact)
                b->head_taps[j * e->dims.keys + h] = w;
            else
                *tile_at(b->head_taps, taps, j, h) = (float)exp((double)w);
        }
        if (!b->exact)
            for (size_t c = 0; c < e->dims.channels; c++)
                *tile_at(b->channel_taps, taps, j, c) = *tile_at(b->head_taps, taps, j, e->head_of[c]);
    }
}

/* ---- biases to look at ------------------------------------------------------------------------------------------ */

static struct engine_biases biases_shape(const struct engine_core *e)
{
    const struct mixer_config *m = &e->config->mixer;
    return (struct engine_biases){
        .layers = e->config->depth, .heads = m->heads, .height = m->kernel[0], .width = m->kernel[1]};
}

/* Tap j of a head, wherever `pack` has put it. */
static float packed_tap(const struct engine_core *e, const struct aft_block *b, size_t head, size_t j)
{
    const size_t taps = taps_of(e), channel = head * (e->dims.dim / e->config->mixer.heads);
    if (model_config_causal(e->config))
        return b->channel_taps[(taps - 1 - j) * e->dims.channels + channel];
    return b->exact ? b->head_taps[j * e->dims.keys + head] : *tile_at(b->head_taps, taps, j, head);
}

static void read_biases(const struct engine_core *e, uint32_t layer, uint32_t head, float *out)
{
    const struct aft_block *b = e->blocks[layer].mixing;
    for (size_t j = 0; j < taps_of(e); j++)
        out[j] = aft_surplus(b, packed_tap(e, b, head, j));
}

/* ---- mixing ----------------------------------------------------------------------------------------------------- */

/* Does each channel have a key of its own? Then no other channel matters on the way from keys to means. */
static bool own_keys(const struct engine_core *e)
{
    return e->config->mixer.heads == e->dims.dim;
}

enum { TILE_E, TILE_DEN, TILE_EV, TILE_NUM, TILES };

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    if (!own_keys(e)) {
        workspace_note(w, &s->rows[SCRATCH_E], rows * e->dims.keys, sizeof *s->rows[0]);
        workspace_note(w, &s->rows[SCRATCH_DEN], rows * e->dims.keys, sizeof *s->rows[0]);
    }
    /* Of all grids of n tokens, n rows of one token need the most. The other use is one position's weights. */
    const uint64_t tiles = (uint64_t)TILES * tokens * LANES + conv_scratch_floats(tokens, 1);
    const uint64_t weights = ((uint64_t)tokens + 1) * e->dims.keys;
    s->thread_floats = (size_t)(tiles > weights ? tiles : weights);
    workspace_note(w, &s->threads, s->thread_floats * e->threads, sizeof *s->threads);
}

/* `a` begins with the picture's rows. */
static void mix_position(const struct engine_core *e, const struct aft_block *b, const struct activations *a,
                         const struct mixer_scratch *s, const struct conv_shape *shape, size_t position)
{
    const float *q = a->qkv, *k = q + e->dims.channels, *v = k + e->dims.keys;
    KERNEL(conv_exact)
    (a->h, q, k, v, b->head_taps, e->head_of, shape, position, e->config->mixer.query_gate, e->config->mixer.global,
     mixer_thread_scratch(s));
}

static void mix_exact(const struct engine_core *e, const struct aft_block *b, const struct activations *a,
                      const struct mixer_scratch *s, const struct sequence_pass *pass, const struct conv_shape *shape)
{
    const size_t tokens = pass->tokens;
#pragma omp for schedule(static)
    for (size_t row = 0; row < pass->sequences * tokens; row++) {
        const struct activations picture = activations_from(a, &e->dims, row / tokens * tokens);
        mix_position(e, b, &picture, s, shape, row % tokens);
    }
}

/* What the mixing of one picture needs; qkv, y and, unless each channel has its own key, e and den are the
 * picture's. */
struct conv_picture {
    const struct engine_core *core;
    const struct aft_block *block;
    struct conv_shape shape;
    const float *qkv;
    float *e, *den, *y;
};

static float *thread_tile(const struct mixer_scratch *s, size_t tokens, size_t tile)
{
    return mixer_thread_scratch(s) + tile * tokens * LANES;
}

/* LANES heads: keys to e, e to den. */
static void mix_heads(const struct conv_picture *p, const struct mixer_scratch *s, size_t group)
{
    const struct conv_shape *shape = &p->shape;
    const size_t tokens = (size_t)shape->height * shape->width, taps = (size_t)shape->kh * shape->kw * LANES;
    float *keys = p->e + group * shape->group;
    KERNEL(conv_keys)(keys, p->qkv + p->core->dims.channels + group * LANES, shape);
    KERNEL(conv_sums)
    (p->den + group * shape->group, keys, p->block->head_taps + group * taps,
     few_of(p->block, p->block->head_few, group), shape, thread_tile(s, tokens, TILES));
}

/* LANES channels, whose heads are done. */
static void mix_channels(const struct conv_picture *p, const struct mixer_scratch *s, size_t group)
{
    const struct engine_core *e = p->core;
    const struct conv_shape *shape = &p->shape;
    const size_t tokens = (size_t)shape->height * shape->width, taps = (size_t)shape->kh * shape->kw * LANES;
    const size_t channel = group * LANES;
    const uint32_t *head_of = e->head_of + channel;
    float *ev = thread_tile(s, tokens, TILE_EV), *num = thread_tile(s, tokens, TILE_NUM);
    KERNEL(conv_values)(ev, p->e, p->qkv + e->dims.channels + e->dims.keys + channel, head_of, shape);
    KERNEL(conv_sums)
    (num, ev, p->block->channel_taps + group * taps, few_of(p->block, p->block->channel_few, group), shape,
     thread_tile(s, tokens, TILES));
    KERNEL(conv_finish)(p->y + channel, p->qkv + channel, num, p->den, head_of, shape, e->config->mixer.query_gate);
}

/* With keys of their own, LANES channels are finished before the next are begun: one tile serves all of them. */
static void mix_own(struct conv_picture p, const struct mixer_scratch *s, size_t group)
{
    const size_t tokens = (size_t)p.shape.height * p.shape.width;
    struct conv_picture own = p;
    own.shape.group = 0;
    own.e = thread_tile(s, tokens, TILE_E);
    own.den = thread_tile(s, tokens, TILE_DEN);
    mix_heads(&own, s, group);
    mix_channels(&own, s, group);
}

static struct conv_picture picture_of(const struct engine_core *e, const struct aft_block *b,
                                      const struct activations *a, const struct mixer_scratch *s,
                                      const struct conv_shape *shape, size_t i)
{
    const size_t first = i * shape->height * shape->width;
    const size_t keys = own_keys(e) ? 0 : first * e->dims.keys;
    return (struct conv_picture){.core = e,
                                 .block = b,
                                 .shape = *shape,
                                 .qkv = a->qkv + first * e->dims.qkv,
                                 .e = s->rows[SCRATCH_E] + keys,
                                 .den = s->rows[SCRATCH_DEN] + keys,
                                 .y = a->h + first * e->dims.channels};
}

static void mix_factored(const struct engine_core *e, const struct aft_block *b, const struct activations *a,
                         const struct mixer_scratch *s, const struct sequence_pass *pass,
                         const struct conv_shape *shape)
{
    const size_t head_groups = e->dims.keys / LANES, channel_groups = e->dims.channels / LANES;
    const bool own = own_keys(e);
    if (!own)
#pragma omp for schedule(dynamic)
        for (size_t task = 0; task < pass->sequences * head_groups; task++) {
            const struct conv_picture p = picture_of(e, b, a, s, shape, task / head_groups);
            mix_heads(&p, s, task % head_groups);
        }
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * channel_groups; task++) {
        const struct conv_picture p = picture_of(e, b, a, s, shape, task / channel_groups);
        if (own)
            mix_own(p, s, task % channel_groups);
        else
            mix_channels(&p, s, task % channel_groups);
    }
}

static struct conv_shape shape_of(const struct engine_core *e, const struct sequence_pass *pass)
{
    const struct mixer_config *m = &e->config->mixer;
    return (struct conv_shape){
        .height = pass->height,
        .width = pass->width,
        .kh = m->kernel[0],
        .kw = m->kernel[1],
        .heads = e->dims.keys,
        .channels = e->dims.channels,
        .stride = e->dims.qkv,
        .token = LANES,
        .group = (size_t)pass->tokens * LANES,
    };
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const struct conv_shape shape = shape_of(e, pass);
    const struct aft_block *b = e->blocks[layer].mixing;
    (b->exact ? mix_exact : mix_factored)(e, b, a, s, pass, &shape);
}

static void mix_alone(const struct engine_core *e, uint32_t layer, const struct activations *a,
                      const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const struct conv_shape shape = shape_of(e, pass);
    const struct aft_block *b = e->blocks[layer].mixing;
    if (b->exact) {
        for (size_t p = 0; p < pass->tokens; p++)
            mix_position(e, b, a, s, &shape, p);
        return;
    }
    const bool own = own_keys(e);
    struct conv_picture p = picture_of(e, b, a, s, &shape, 0);
    if (!own) {
        const size_t mine = team_thread() * pass->tokens * e->dims.keys;
        p.e += mine;
        p.den += mine;
        for (size_t group = 0; group < e->dims.keys / LANES; group++)
            mix_heads(&p, s, group);
    }
    for (size_t group = 0; group < e->dims.channels / LANES; group++)
        if (own)
            mix_own(p, s, group);
        else
            mix_channels(&p, s, group);
}

/* e v, then the windows: of channels for the numerator, of heads for the denominator. */
static uint64_t macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass)
{
    if (pass == NULL)
        return KERNEL(aft_step_macs)(e, b);
    const uint32_t *kernel = e->config->mixer.kernel, dim = e->dims.dim;
    const uint64_t down = kernel[0] < pass->height ? kernel[0] : pass->height;
    const uint64_t across = kernel[1] < pass->width ? kernel[1] : pass->width;
    return (uint64_t)pass->sequences * pass->tokens * (dim + down * across * (dim + e->config->mixer.heads));
}

MIXER(aft_conv) = {
    .block_bytes = sizeof(struct aft_block),
    .plan = plan,
    .pack = pack,
    AFT_STREAMS,
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .mix_alone = mix_alone,
    .macs = macs,
    .biases_shape = biases_shape,
    .read_biases = read_biases,
};
