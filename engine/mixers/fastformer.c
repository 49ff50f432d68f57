/* fastformer.c - Fastformer's additive attention (Wu et al. 2021, eq. 2 to 6): by head, a global query is the mean of
 * the queries weighted by softmax(w_q . q / sqrt(d / h)), a global key that of p = (global query * k) by w_k; a
 * token's output is global key * v, projected, plus its query. */
#include <math.h>

#include "engine/mixers/attention.h"
#include "engine/mixers/linear.h"
#include "engine/pass/token_sums.h"

enum { QUERY_SCORE, KEY_SCORE, SCORES }; /* its own tensors */

struct scores {
    float *of[SCORES]; /* [dim], divided by sqrt(d / h) */
};

static void plan(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw)
{
    struct scores *s = b->mixing;
    (void)bw;
    for (size_t i = 0; i < SCORES; i++)
        workspace_note(w, &s->of[i], e->dims.dim, sizeof *s->of[i]);
}

static void pack(struct block *b, const struct engine_core *e, const struct block_weights *bw)
{
    const struct scores *s = b->mixing;
    const double scale = 1.0 / sqrt((double)e->dims.dim / e->config->mixer.heads);
    for (size_t i = 0; i < SCORES; i++)
        for (size_t c = 0; c < e->dims.dim; c++)
            s->of[i][c] = (float)((double)bw->own[i][c] * scale);
}

/* For each thread: weights of the tokens, then two vectors of a head's width. */
static void plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                         uint32_t tokens)
{
    (void)rows;
    s->thread_floats = lanes_padded(tokens) + 2 * (size_t)(e->dims.dim / e->config->mixer.heads);
    workspace_note(w, &s->threads, (uint64_t)s->thread_floats * e->threads, sizeof *s->threads);
}

/* mean [width] = sum_t softmax_t(score . x_t) x_t for x [tokens, width] at `stride`. */
static void weighted_mean(float *mean, const float *x, const float *score, const struct linear_head *h)
{
    float *weights = h->scratch;
    for (size_t t = 0; t < h->tokens; t++) {
        float sum = 0.0f;
        for (size_t c = 0; c < h->width; c++)
            sum += score[c] * x[t * h->stride + c];
        weights[t] = sum;
    }
    KERNEL(softmax)(weights, h->tokens);
    token_weighted_sums(mean, weights, x, h->tokens, h->stride, h->width);
}

static void mix_head(const struct linear_head *h, const float *query_score, const float *key_score, float *residual)
{
    float *query = h->scratch + lanes_padded(h->tokens), *key = query + h->width;
    weighted_mean(query, h->q, query_score, h);
    for (size_t t = 0; t < h->tokens; t++) /* p, in the place of the keys */
        for (size_t c = 0; c < h->width; c++)
            h->k[t * h->stride + c] *= query[c];
    weighted_mean(key, h->k, key_score, h);
    for (size_t t = 0; t < h->tokens; t++)
        for (size_t c = 0; c < h->width; c++) {
            h->y[t * h->y_stride + c] = key[c] * h->v[t * h->stride + c];
            residual[t * h->y_stride + c] += h->q[t * h->stride + c];
        }
}

static void mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                          const struct mixer_scratch *s, const struct sequence_pass *pass)
{
    const struct scores *scores = e->blocks[layer].mixing;
#pragma omp for schedule(dynamic)
    for (size_t task = 0; task < pass->sequences * e->config->mixer.heads; task++) {
        const struct linear_head h = linear_head_at(e, a, s, pass, task);
        const size_t column = task % e->config->mixer.heads * h.width;
        mix_head(&h, scores->of[QUERY_SCORE] + column, scores->of[KEY_SCORE] + column, a->x + (h.y - a->h));
    }
}

/* Twice the scores and their mean, p, and the output. */
static uint64_t macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass)
{
    (void)b;
    return 6 * (uint64_t)pass->sequences * pass->tokens * e->dims.dim;
}

MIXER(fastformer) = {
    .block_bytes = sizeof(struct scores),
    .plan = plan,
    .pack = pack,
    .plan_scratch = plan_scratch,
    .mix_sequences = mix_sequences,
    .macs = macs,
};
