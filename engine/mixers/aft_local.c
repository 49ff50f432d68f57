/* aft_local.c - AFT-local (Zhai et al. 2021, section 3.2), causal, in recurrent form. The state of a stream is of fixed
 * size: the sums of what has left the window and a ring of the window's own terms. Prefill runs the same step over the
 * rows of a part, channels in parallel: it costs O(window * dim) a byte beside the O(dim^2) of the projections, and
 * makes both forms agree bit for bit. */
#include <math.h>

#include "engine/mixer.h"

#define TASK_GROUPS 2 /* lanes of channels for one thread at a time */

static uint32_t span_of(const struct engine_core *e)
{
    const struct model_config *c = e->config;
    return c->mixer.window < c->context ? c->mixer.window : c->context;
}

static void plan(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw)
{
    workspace_note(w, &b->band, (uint64_t)e->config->context * bw->span, sizeof *b->band);
}

static void pack(struct block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const size_t n = (size_t)e->config->context * bw->span;
    b->exact = block_needs_exact(bw->band, n, e->config->mixer.global);
    for (size_t i = 0; i < n; i++)
        b->band[i] = b->exact ? bw->band[i] : (float)exp((double)bw->band[i]);
}

static size_t layer_floats(const struct engine_core *e)
{
    return e->dims.channels / LANES * local_state_floats(span_of(e));
}

static void mix_streams(const struct engine_core *e, uint32_t layer, const struct activations *a,
                        const struct stream_pass *pass)
{
    const struct model_config *c = e->config;
    const struct dims *d = &e->dims;
    const uint32_t span = span_of(e);
    const size_t groups = d->channels / LANES, slices = (groups + TASK_GROUPS - 1) / TASK_GROUPS;
    const struct block *b = &e->blocks[layer];
    const struct kernels *kn = e->kernels;
    const size_t layer_size = layer_floats(e);
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->part_count * slices; task++) {
        const struct stream_part *part = &pass->parts[task / slices];
        const size_t group = task % slices * TASK_GROUPS, at = group * LANES;
        const size_t count = groups - group < TASK_GROUPS ? groups - group : TASK_GROUPS;
        float *state = part->state + layer * layer_size + group * local_state_floats(span);
        for (uint32_t i = 0; i < part->count; i++) {
            const size_t row = part->first + i;
            const uint32_t t = part->position + i;
            const float *q = a->qkv + row * d->qkv + at, *k = q + d->channels, *v = k + d->keys;
            float *y = a->h + row * d->channels + at;
            const float *bias = b->band + (size_t)t * span;
            if (b->exact)
                kn->local_exact(y, q, k, v, state, bias, span, t, count, c->mixer.query_gate, c->mixer.global);
            else
                kn->local_factored(y, q, k, v, state, bias, span, t, count, c->mixer.query_gate);
        }
    }
}

const struct mixer mixer_aft_local = {
    .type = MIXER_AFT_LOCAL,
    .task = TASK_TEXT_GENERATION,
    .plan = plan,
    .pack = pack,
    .layer_floats = layer_floats,
    .mix_streams = mix_streams,
};
