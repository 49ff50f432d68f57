/* simple_attention.c - the simple attention of Simpletron: q k^T v / sqrt(T), or without that factor, without softmax
 * and without a projection after it. */
#include <math.h>

#include "engine/mixers/linear.h"

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    (void)rows;
    linear_plan_scratch(s, w, e, tokens, 0);
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    (void)layer;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * e->config->mixer.heads; task++) {
        const struct linear_head x = linear_head_at(e, a, s, pass, task);
        linear_attention(&x, e->config->mixer.scale ? 1.0f / sqrtf((float)x.tokens) : 1.0f);
    }
}

MIXER(simple_attention) = {
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = linear_macs,
};
