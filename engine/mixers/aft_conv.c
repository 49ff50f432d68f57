/* aft_conv.c - AFT-conv (Zhai et al. 2021, eq. 6; DAFT eq. 8): every position weighs every other with exp(k + w), w
 * depending on the offset inside a kh x kw window and 0 beyond it. Keys belong to heads, values to channels: the
 * denominators are sums of e over [tokens, heads], the numerators of e*v over [tokens, channels], both by one kernel.
 * Fully convolutional: any grid. */
#include <math.h>

#include "engine/mixers/aft.h"

static size_t taps_of(const struct engine_core *e)
{
    return (size_t)e->config->mixer.kernel[0] * e->config->mixer.kernel[1];
}

static void plan(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw)
{
    const uint64_t taps = taps_of(e);
    const bool causal = model_config_causal(e->config);
    b->exact = block_needs_exact(bw->conv, (size_t)taps * e->config->mixer.heads, e->config->mixer.global);
    workspace_note(w, &b->head_taps, causal ? 0 : taps * e->dims.keys, sizeof *b->head_taps);
    workspace_note(w, &b->channel_taps, b->exact && !causal ? 0 : taps * e->dims.channels, sizeof *b->channel_taps);
}

/* Tap j of a causal kernel is lag taps - 1 - j. */
static void pack_lags(struct block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const size_t taps = taps_of(e);
    for (size_t lag = 0; lag < taps; lag++)
        for (size_t c = 0; c < e->dims.dim; c++) {
            const float w = bw->conv[e->head_of[c] * taps + taps - 1 - lag];
            b->channel_taps[lag * e->dims.channels + c] = b->exact ? w : (float)exp((double)w);
        }
}

static void pack(struct block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const size_t taps = taps_of(e);
    if (model_config_causal(e->config)) {
        pack_lags(b, e, bw);
        return;
    }
    for (size_t j = 0; j < taps; j++) {
        for (size_t h = 0; h < e->config->mixer.heads; h++) {
            const float w = bw->conv[h * taps + j];
            b->head_taps[j * e->dims.keys + h] = b->exact ? w : (float)exp((double)w);
        }
        if (!b->exact)
            for (size_t c = 0; c < e->dims.channels; c++)
                b->channel_taps[j * e->dims.channels + c] = b->head_taps[j * e->dims.keys + e->head_of[c]];
    }
}

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    workspace_note(w, &s->e, rows * e->dims.keys, sizeof *s->e);
    workspace_note(w, &s->den, rows * e->dims.keys, sizeof *s->den);
    workspace_note(w, &s->ev, rows * e->dims.channels, sizeof *s->ev);
    workspace_note(w, &s->num, rows * e->dims.channels, sizeof *s->num);
    /* A grid of n tokens has at most n rows. One position's weights are the other use. */
    const uint64_t prefix = conv_scratch_floats(tokens, tokens);
    const uint64_t weights = ((uint64_t)tokens + 1) * e->dims.keys;
    s->thread_floats = (size_t)(prefix > weights ? prefix : weights);
    workspace_note(w, &s->threads, s->thread_floats * e->threads, sizeof *s->threads);
}

static void mix_exact(const struct engine_core *e, const struct block *b, const struct activations *a,
                      const struct mixer_scratch *s, const struct sequence_pass *pass, const struct conv_shape *shape)
{
    const size_t tokens = pass->tokens;
#pragma omp for schedule(static)
    for (size_t row = 0; row < pass->sequences * tokens; row++) {
        const size_t picture = row / tokens;
        const float *q = a->qkv + picture * tokens * e->dims.qkv, *k = q + e->dims.channels, *v = k + e->dims.keys;
        e->kernels->conv_exact(a->h + picture * tokens * e->dims.channels, q, k, v, b->head_taps, e->head_of, shape,
                               row % tokens, e->config->mixer.query_gate, e->config->mixer.global,
                               mixer_thread_scratch(s));
    }
}

/* One task is one picture's LANES columns: first all of its heads (keys to e, e to den), then all of its channels. */
static void mix_factored(const struct engine_core *e, const struct block *b, const struct activations *a,
                         const struct mixer_scratch *s, const struct sequence_pass *pass,
                         const struct conv_shape *shape)
{
    const size_t tokens = pass->tokens;
    const size_t head_groups = e->dims.keys / LANES, channel_groups = e->dims.channels / LANES;
    const struct kernels *kn = e->kernels;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * head_groups; task++) {
        const size_t first = task / head_groups * tokens, head = task % head_groups * LANES;
        const float *k = a->qkv + first * e->dims.qkv + e->dims.channels;
        float *keys = s->e + first * e->dims.keys;
        kn->conv_keys(keys, k, shape, head);
        kn->conv_sums(s->den + first * e->dims.keys, keys, b->head_taps, shape, e->dims.keys, head,
                      mixer_thread_scratch(s));
    }
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * channel_groups; task++) {
        const size_t first = task / channel_groups * tokens, channel = task % channel_groups * LANES;
        const float *q = a->qkv + first * e->dims.qkv, *v = q + e->dims.channels + e->dims.keys;
        const float *keys = s->e + first * e->dims.keys, *den = s->den + first * e->dims.keys;
        float *ev = s->ev + first * e->dims.channels, *num = s->num + first * e->dims.channels;
        kn->conv_values(ev, keys, v, e->head_of, shape, channel);
        kn->conv_sums(num, ev, b->channel_taps, shape, e->dims.channels, channel, mixer_thread_scratch(s));
        kn->conv_finish(a->h + first * e->dims.channels, q, num, den, e->head_of, shape, channel,
                        e->config->mixer.query_gate);
    }
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const struct mixer_config *m = &e->config->mixer;
    const struct conv_shape shape = {
        .height = pass->height,
        .width = pass->width,
        .kh = m->kernel[0],
        .kw = m->kernel[1],
        .heads = e->dims.keys,
        .channels = e->dims.channels,
        .stride = e->dims.qkv,
    };
    const struct block *b = &e->blocks[layer];
    (b->exact ? mix_exact : mix_factored)(e, b, a, s, pass, &shape);
}

const struct mixer mixer_aft_conv = {
    .type = MIXER_AFT_CONV,
    .plan = plan,
    .pack = pack,
    .layer_floats = aft_layer_floats,
    .mix_streams = aft_mix_streams,
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
};
