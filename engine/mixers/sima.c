/* sima.c - SimA (Koohpayegani & Pirsiavash 2022): attention without softmax; each channel of q and k is divided by its
 * l1 norm over the tokens. Both norms of a channel multiply the same terms, so k takes them both. */
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

static void scale_keys(const struct linear_head *x)
{
    float *norm_q = x->scratch + linear_scratch_floats(x->tokens, x->width), *norm_k = norm_q + x->width;
    token_size_sums(norm_q, x->q, x->tokens, x->stride, x->width);
    token_size_sums(norm_k, x->k, x->tokens, x->stride, x->width);
    for (size_t c = 0; c < x->width; c++)
        norm_k[c] = 1.0f / fmaxf(norm_q[c], NORM_MIN) / fmaxf(norm_k[c], NORM_MIN);
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
        scale_keys(&x);
        linear_attention(&x, 1.0f);
    }
}

/* Of the keys only: the queries' norms are the same for all tokens. */
static float key_norm(const float *k, size_t tokens, size_t stride)
{
    float sum;
    token_size_sums(&sum, k, tokens, stride, 1);
    return fmaxf(sum, NORM_MIN);
}

MIXER(sima) = {
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = linear_macs,
    .key_norm = key_norm,
};
