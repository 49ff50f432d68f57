/* row_sums.h - sums of many rows, column by column, that keep float32's accuracy however many there are: of up to
 * SUMMED_ROWS rows plainly, and of those sums in double precision. What is off is then at most some 2^-20 of the terms'
 * sizes, whatever the number of rows; a plain sum of n equal terms is off by up to n 2^-25 of itself. Any thread; no
 * state. */
#ifndef ENGINE_BLOCK_ROW_SUMS_H
#define ENGINE_BLOCK_ROW_SUMS_H

#include <stddef.h>

/* out[c] = sum_t weight[t] x[t, c] for x [rows, columns] at `stride` floats; weight [rows], or NULL: all 1. */
void row_sums(float *out, const float *x, const float *weight, size_t rows, size_t stride, size_t columns);
/* out[c] = sum_t |x[t, c]|. */
void row_sums_of_sizes(float *out, const float *x, size_t rows, size_t stride, size_t columns);

#endif
