/* attention.h - the inner loops of mixers that weigh tokens by a softmax, compiled for each instruction set. As those
 * of kernels.h. */
#ifndef ENGINE_MIXERS_ATTENTION_H
#define ENGINE_MIXERS_ATTENTION_H

#include "engine/kernels/simd.h"

#define ATTEND_ROWS_MAX 64

/* Where channel c of position s's key stands in a head's keys, [blocks, width, LANES]: scores of LANES positions are
 * then added up lane by lane. */
static inline size_t attend_key(size_t s, size_t c, size_t width)
{
    return (s / LANES * width + c) * LANES + s % LANES;
}

/* Softmax attention of 1 .. ATTEND_ROWS_MAX consecutive queries of one head, of which query r sees the keys and
 * values of count + r positions: y_r = sum_s softmax_s(scale q_r . k_s) v_s, count > 0.
 * y, q [rows, width] at their strides; rest [rows, width] at y's: scratch, what y's sums lose. keys: by blocks of
 * LANES positions, attend_key; only the blocks with a position that is seen are read. values [positions, width],
 * read up to LANES floats beyond the last one seen.
 * In one pass, relative to the largest score so far. A row's bits do not depend on which rows are beside it. */
void KERNEL(attend)(float *y, float *rest, size_t y_stride, const float *q, size_t q_stride, size_t rows,
                    const float *keys, const float *values, size_t count, size_t width, float scale);

#endif
