/* linear.h - attention without softmax, y = alpha q k^T v, whose products may be taken in either order: what sima and
 * simple-attention do after their own scaling. */
#ifndef ENGINE_MIXERS_LINEAR_H
#define ENGINE_MIXERS_LINEAR_H

#include "engine/kernels/simd.h"
#include "engine/pass/mixer.h"

/* One head of one sequence, in a block's activations. */
struct linear_head {
    float *q, *k, *v; /* [tokens, width] at stride; v is q where the value is the query */
    float *y;         /* [tokens, width] at y_stride */
    size_t tokens, width;
    size_t stride, y_stride;
    float *scratch; /* of the thread: linear_scratch_floats */
};

static inline size_t linear_scratch_floats(size_t tokens, size_t width)
{
    const size_t side = tokens < width ? tokens : width;
    return side * side;
}

/* As in struct mixer: the larger of both orders' intermediate products, followed by `more` floats for the mixer's own
 * use, for each thread. */
static inline void linear_plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e,
                                       uint32_t tokens, size_t more)
{
    s->thread_floats = linear_scratch_floats(tokens, e->dims.dim / e->config->mixer.heads) + more;
    workspace_note(w, &s->threads, (uint64_t)s->thread_floats * e->threads, sizeof *s->threads);
}

static inline uint64_t linear_macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass)
{
    (void)b;
    const uint64_t tokens = pass->tokens, width = e->dims.dim / e->config->mixer.heads;
    return 2 * pass->sequences * tokens * e->dims.dim * (tokens < width ? tokens : width);
}

/* Task `task` of sequences * heads. */
static inline struct linear_head linear_head_at(const struct engine_core *e, const struct activations *a,
                                                const struct mixer_scratch *s, const struct sequence_pass *pass,
                                                size_t task)
{
    const size_t heads = e->config->mixer.heads, width = e->dims.dim / heads;
    const size_t first = task / heads * pass->tokens, column = task % heads * width;
    float *q = a->qkv + first * e->dims.qkv + column;
    return (struct linear_head){
        .q = q,
        .k = q + e->dims.channels,
        .v = e->config->mixer.share_value_query ? q : q + e->dims.channels + e->dims.keys,
        .y = a->h + first * e->dims.channels + column,
        .tokens = pass->tokens,
        .width = width,
        .stride = e->dims.qkv,
        .y_stride = e->dims.channels,
        .scratch = mixer_thread_scratch(s),
    };
}

/* q (k^T v) or (q k^T) v, whichever takes fewer multiplications. */
static inline void linear_attention(const struct linear_head *x, float alpha)
{
    const size_t n = x->tokens, c = x->width;
    if (c <= n) {
        gemm_sum_tokens(true, c, c, n, alpha, x->k, x->stride, x->v, x->stride, x->scratch, c);
        gemm_product(false, n, c, c, 1.0f, x->q, x->stride, x->scratch, c, x->y, x->y_stride);
    } else {
        gemm_product(true, n, n, c, alpha, x->q, x->stride, x->k, x->stride, x->scratch, n);
        gemm_sum_tokens(false, n, c, n, 1.0f, x->scratch, n, x->v, x->stride, x->y, x->y_stride);
    }
}

#endif
