/* aft_streams.c - see aft.h; the causal form, which is recurrent. The state of a stream is of fixed size: the sums of
 * what has left the window and a ring of the window's own terms. The window is all of T for aft-full, the position
 * itself for aft-simple, for aft-conv the kernel up to its last tap that counts. Prefill runs the same step over the
 * rows of a part, channels in parallel: it costs O(window * dim) a byte beside the O(dim^2) of the projections, and
 * makes both forms agree bit for bit. */
#include "engine/mixers/aft.h"

#define TASK_GROUPS 2 /* lanes of channels for one thread at a time */

static const float no_bias[1] = {1.0f}; /* exp(0) */

static uint32_t span_of(const struct engine_core *e, const struct block *b)
{
    const struct model_config *c = e->config;
    switch (c->mixer.type) {
    case MIXER_AFT_FULL:
        return c->context;
    case MIXER_AFT_LOCAL:
        return c->mixer.window < c->context ? c->mixer.window : c->context;
    case MIXER_AFT_CONV:
        return b->lags;
    default:
        return 1;
    }
}

/* Each layer has room for the longest of their spans. */
size_t aft_layer_floats(const struct engine_core *e)
{
    uint32_t longest = 1;
    for (uint32_t i = 0; i < e->config->depth; i++)
        longest = span_of(e, &e->blocks[i]) > longest ? span_of(e, &e->blocks[i]) : longest;
    return e->dims.channels / LANES * local_state_floats(longest);
}

/* e v, then the ring's terms of numerator and denominator. */
uint64_t aft_step_macs(const struct engine_core *e, const struct block *b)
{
    return (uint64_t)e->dims.dim * (1 + 2 * (uint64_t)span_of(e, b));
}

/* The biases of a query at position t, and their stride by channel. */
static const float *biases_at(const struct engine_core *e, const struct block *b, uint32_t t, size_t *stride)
{
    const bool conv = e->config->mixer.type == MIXER_AFT_CONV;
    *stride = conv ? e->dims.channels : 0;
    if (conv)
        return b->channel_taps;
    return b->biases == NULL ? no_bias : b->biases + (size_t)t * span_of(e, b);
}

/* The keys of n channels from `at`: those of the row, or of the channels' heads. */
static const float *keys_at(const struct engine_core *e, const float *k, size_t at, size_t n, float *heads)
{
    if (e->config->mixer.type != MIXER_AFT_CONV)
        return k + at;
    for (size_t c = 0; c < n; c++)
        heads[c] = k[e->head_of[at + c]];
    return heads;
}

void aft_mix_streams(const struct engine_core *e, uint32_t layer, const struct activations *a,
                     const struct stream_pass *pass)
{
    const struct mixer_config *m = &e->config->mixer;
    const struct dims *d = &e->dims;
    const struct block *b = &e->blocks[layer];
    const uint32_t span = span_of(e, b);
    const size_t groups = d->channels / LANES, slices = (groups + TASK_GROUPS - 1) / TASK_GROUPS;
    const struct kernels *kn = e->kernels;
    const size_t layer_size = aft_layer_floats(e);
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->part_count * slices; task++) {
        const struct stream_part *part = &pass->parts[task / slices];
        const size_t group = task % slices * TASK_GROUPS, at = group * LANES;
        const size_t count = groups - group < TASK_GROUPS ? groups - group : TASK_GROUPS;
        float *state = part->state + layer * layer_size + group * local_state_floats(span);
        for (uint32_t i = 0; i < part->count; i++) {
            float heads[TASK_GROUPS * LANES];
            const size_t row = part->first + i;
            const uint32_t t = part->position + i;
            const float *q = a->qkv + row * d->qkv, *k = q + d->channels, *v = k + d->keys;
            float *y = a->h + row * d->channels + at;
            size_t stride;
            const float *bias = biases_at(e, b, t, &stride);
            if (stride != 0)
                bias += at;
            k = keys_at(e, k, at, count * LANES, heads);
            if (b->exact)
                kn->local_exact(y, q + at, k, v + at, state, bias, stride, span, t, count, m->query_gate, m->global);
            else
                kn->local_factored(y, q + at, k, v + at, state, bias, stride, span, t, count, m->query_gate);
        }
    }
}
