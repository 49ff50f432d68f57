/* sima.c - SimA (Koohpayegani & Pirsiavash 2022): attention without softmax; each channel of q and k is divided by its
 * l1 norm over the tokens, or in the paper's ablations by its l2 norm, or by none. Both norms of a channel multiply the
 * same terms, so k takes them both. */
#include <math.h>

#include "engine/mixers/linear.h"
#include "engine/pass/token_sums.h"

#define NORM_MIN 1e-12f /* of a channel that is 0 at every token */

static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    (void)rows;
    linear_plan_scratch(s, w, e, tokens, 2 * (size_t)(e->dims.dim / e->config->mixer.heads));
}

/* [columns] of x [tokens] at `stride`. */
static void take_norms(float *out, const float *x, size_t tokens, size_t stride, size_t columns, enum mixer_norm norm)
{
    if (norm == NORM_L1)
        token_size_sums(out, x, tokens, stride, columns);
    else
        token_square_sums(out, x, tokens, stride, columns);
    for (size_t c = 0; c < columns; c++)
        out[c] = fmaxf(norm == NORM_L1 ? out[c] : sqrtf(out[c]), NORM_MIN);
}

static void scale_keys(const struct linear_head *x, enum mixer_norm norm)
{
    float *norm_q = x->scratch + linear_scratch_floats(x->tokens, x->width), *norm_k = norm_q + x->width;
    if (norm == NORM_NONE)
        return;
    take_norms(norm_q, x->q, x->tokens, x->stride, x->width, norm);
    take_norms(norm_k, x->k, x->tokens, x->stride, x->width, norm);
    for (size_t c = 0; c < x->width; c++)
        norm_k[c] = 1.0f / norm_q[c] / norm_k[c];
    for (size_t t = 0; t < x->tokens; t++)
        for (size_t c = 0; c < x->width; c++)
            x->k[t * x->stride + c] *= norm_k[c];
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    (void)layer;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * e->config->mixer.heads; task++) {
        const struct linear_head x = linear_head_at(e, a, s, pass, task);
        scale_keys(&x, e->config->mixer.norm);
        linear_attention(&x, 1.0f);
    }
}

/* Of the keys only: the queries' norms are the same for all tokens. */
static float key_norm(const struct engine_core *e, const float *k, size_t tokens, size_t stride)
{
    float norm = 1.0f;
    if (e->config->mixer.norm != NORM_NONE)
        take_norms(&norm, k, tokens, stride, 1, e->config->mixer.norm);
    return norm;
}

MIXER(sima) = {
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = linear_macs,
    .key_norm = key_norm,
};
