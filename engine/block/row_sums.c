/* row_sums.c - see row_sums.h. */
#include "engine/block/row_sums.h"

#include <math.h>
#include <stdbool.h>

enum { SUMMED_ROWS = 32, SUMMED_COLUMNS = 64 }; /* columns at a time, whose sums stay in the nearest cache */

static inline float term(float x, const float *weight, size_t t, bool of_sizes)
{
    return of_sizes ? fabsf(x) : weight != NULL ? weight[t] * x : x;
}

/* n <= SUMMED_COLUMNS columns. */
static inline void sum_columns(float *out, const float *x, const float *weight, size_t rows, size_t stride, size_t n,
                               bool of_sizes)
{
    double sums[SUMMED_COLUMNS] = {0};
    for (size_t begin = 0; begin < rows; begin += SUMMED_ROWS) {
        const size_t end = rows - begin < SUMMED_ROWS ? rows : begin + SUMMED_ROWS;
        float part[SUMMED_COLUMNS] = {0};
        for (size_t t = begin; t < end; t++)
            for (size_t c = 0; c < n; c++)
                part[c] += term(x[t * stride + c], weight, t, of_sizes);
        for (size_t c = 0; c < n; c++)
            sums[c] += (double)part[c];
    }
    for (size_t c = 0; c < n; c++)
        out[c] = (float)sums[c];
}

static inline void sum_rows(float *out, const float *x, const float *weight, size_t rows, size_t stride, size_t columns,
                            bool of_sizes)
{
    for (size_t c = 0; c < columns; c += SUMMED_COLUMNS)
        sum_columns(out + c, x + c, weight, rows, stride, columns - c < SUMMED_COLUMNS ? columns - c : SUMMED_COLUMNS,
                    of_sizes);
}

void row_sums(float *out, const float *x, const float *weight, size_t rows, size_t stride, size_t columns)
{
    if (weight != NULL)
        sum_rows(out, x, weight, rows, stride, columns, false);
    else
        sum_rows(out, x, NULL, rows, stride, columns, false);
}

void row_sums_of_sizes(float *out, const float *x, size_t rows, size_t stride, size_t columns)
{
    sum_rows(out, x, NULL, rows, stride, columns, true);
}
