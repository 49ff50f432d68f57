/* fold.h - the maths that depends on weights alone, done once at load and in double: the re-parameterised kernel of
 * AFT-conv and the band of position biases of AFT-local. Any thread; no state. */
#ifndef WEIGHTS_FOLD_H
#define WEIGHTS_FOLD_H

#include <stdint.h>

#include "config/status.h"
#include "weights/model_types.h"

/* The tensors of one block that are folded and then no longer needed; NULL where the file has none. */
struct fold_source {
    const float *conv_weight;           /* [heads, kh, kw] */
    const float *conv_gain, *conv_bias; /* [heads] */
    const float *pos_u, *pos_v;         /* [T, factors] */
    const float *pos_bias;              /* [T, T] */
    uint32_t factors;                   /* d' */
    uint32_t block;                     /* its number, for messages */
};

/* Floats that the folded form of one block takes: of the kernel, the band or the matrix of biases, or 0. */
uint64_t fold_floats(const struct model_config *c);

/* Fold `s` into out [fold_floats] and let `b` point there:
 * aft-conv, eq. 8 of the DAFT paper: w = gain * (r - mean r) / std r + bias for each head, std with n - 1; or w = r.
 * aft-full and aft-local, eq. 7 of Zhai et al. 2021: w(t, t') = u_t . v_t', or pos_bias[t][t']; causal, kept for
 * 0 <= t - t' < span; else for all of [T, T], with what model_types.h says beyond aft-local's window.
 * Errors: ERR_FORMAT naming the tensor: a form that is incomplete or given twice, a gain on a kernel without spread,
 * a bias outside -POSITION_BIAS_MAX..POSITION_BIAS_MAX; ERR_NOMEM. */
enum status fold_block(struct block_weights *b, float *out, const struct fold_source *s, const struct model_config *c,
                       struct error *err);

#endif
