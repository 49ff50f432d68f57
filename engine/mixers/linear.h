/* linear.h - attention without softmax, y = alpha q k^T v, whose products may be taken in either order: what sima and
 * simple-attention do after their own scaling. */
#ifndef ENGINE_MIXERS_LINEAR_H
#define ENGINE_MIXERS_LINEAR_H

#include "engine/block/mixer.h"

/* One head of one sequence, in a block's activations. */
struct linear_head {
    float *q, *k, *v; /* [tokens, width] at stride; v is q where the value is the query */
    float *y;         /* [tokens, width] at y_stride */
    size_t tokens, width;
    size_t stride, y_stride;
    float *scratch; /* of the thread: linear_scratch_floats */
};

/* As in struct mixer: the larger of both orders' intermediate products, followed by `more` floats for the mixer's own
 * use, for each thread. */
void linear_plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint32_t tokens,
                         size_t more);
size_t linear_scratch_floats(size_t tokens, size_t width);
uint64_t linear_macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass);
/* Task `task` of sequences * heads. */
struct linear_head linear_head_at(const struct engine_core *e, const struct activations *a,
                                  const struct mixer_scratch *s, const struct sequence_pass *pass, size_t task);
/* q (k^T v) or (q k^T) v, whichever takes fewer multiplications. */
void linear_attention(const struct linear_head *x, float alpha);

#endif
