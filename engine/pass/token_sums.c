/* token_sums.c - see token_sums.h. */
#include "engine/pass/token_sums.h"

#include <math.h>

enum { COLUMNS = 64 }; /* at a time: their sums stay near, and whole cache lines are read */

enum what { AS_THEY_ARE, SIZES, SQUARES };

/* Constants once inlined: what, whether there are weights. */
static inline __attribute__((always_inline)) void add_up(float *out, const float *weights, const float *x,
                                                         enum what what, size_t tokens, size_t stride, size_t n)
{
    for (size_t begin = 0; begin < n; begin += COLUMNS) {
        const size_t columns = n - begin < COLUMNS ? n - begin : COLUMNS;
        double sum[COLUMNS] = {0.0};
        for (size_t t = 0; t < tokens; t++) {
            const float *row = x + t * stride + begin;
            const double weight = weights != NULL ? (double)weights[t] : 1.0;
            for (size_t c = 0; c < columns; c++) {
                const double value = (double)(what == SIZES ? fabsf(row[c]) : row[c]);
                sum[c] += what == SQUARES ? value * value : weight * value;
            }
        }
        for (size_t c = 0; c < columns; c++)
            out[begin + c] = (float)sum[c];
    }
}

void token_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n)
{
    add_up(out, NULL, x, AS_THEY_ARE, tokens, stride, n);
}

void token_sums_add(double *sums, const float *x, size_t tokens, size_t stride, size_t n)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t c = 0; c < n; c++)
            sums[c] += (double)x[t * stride + c];
}

void token_size_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n)
{
    add_up(out, NULL, x, SIZES, tokens, stride, n);
}

void token_square_sums(float *out, const float *x, size_t tokens, size_t stride, size_t n)
{
    add_up(out, NULL, x, SQUARES, tokens, stride, n);
}

void token_weighted_sums(float *out, const float *weights, const float *x, size_t tokens, size_t stride, size_t n)
{
    add_up(out, weights, x, AS_THEY_ARE, tokens, stride, n);
}
