/* gemm_blas.c - what runs on OpenBLAS: fp32 tiles where there is no tuned product of our own, and products of two
 * activations. See gemm.h. */
#include <assert.h>
#include <cblas.h>
#include <pthread.h>
#include <string.h>

#include "engine/kernels/gemm.h"

void gemm_blas_tile(float *acc, const struct gemm *g, uint32_t column, const float *x, size_t ldx, uint32_t rows)
{
    const uint32_t width = g->n - column < GEMM_CHUNK ? g->n - column : GEMM_CHUNK;
    assert(g->precision == PRECISION_F32);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)width, (blasint)g->k, 1.0f, x,
                (blasint)ldx, (const float *)(const void *)g->packed + (size_t)column * g->k, (blasint)width, 0.0f, acc,
                GEMM_CHUNK);
}

size_t gemm_scratch_floats(uint32_t k)
{
    return (size_t)k * (GEMM_BLAS_ROWS + 1); /* and a spare row */
}

/* Numbers in -1..1 without a pattern (a linear congruential generator's upper bits). */
static void fill(float *x, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-31f;
    }
}

/* Move every row of x [rows, k] down by one place, the last to the top. */
static void rotate(float *x, uint32_t rows, uint32_t k, float *last)
{
    memcpy(last, x + (size_t)(rows - 1) * k, k * sizeof *x);
    memmove(x + k, x, (size_t)(rows - 1) * k * sizeof *x);
    memcpy(x, last, k * sizeof *x);
}

static int rows_keep_bits(const struct gemm *g, uint32_t rows, float *x)
{
    float first[GEMM_BLAS_ROWS * GEMM_CHUNK], moved[GEMM_BLAS_ROWS * GEMM_CHUNK];
    float *last = x + (size_t)rows * g->k; /* the spare row */
    for (uint32_t column = 0; column < g->n; column += GEMM_CHUNK) {
        const uint32_t width = g->n - column < GEMM_CHUNK ? g->n - column : GEMM_CHUNK;
        if (column > 0 && width == GEMM_CHUNK)
            continue; /* same shape as the first chunk */
        fill(x, (size_t)rows * g->k);
        gemm_blas_tile(first, g, column, x, g->k, rows);
        for (uint32_t by = 1; by < rows; by++) {
            rotate(x, rows, g->k, last);
            gemm_blas_tile(moved, g, column, x, g->k, rows);
            for (uint32_t r = 0; r < rows; r++)
                if (memcmp(first + (size_t)r * GEMM_CHUNK, moved + (size_t)((r + by) % rows) * GEMM_CHUNK,
                           width * sizeof *first) != 0)
                    return 0;
        }
    }
    return 1;
}

uint32_t gemm_choose_rows(const struct gemm *const *list, size_t n, float *scratch)
{
    for (uint32_t rows = GEMM_BLAS_ROWS; rows > 1; rows /= 2) {
        size_t fine = 0;
        while (fine < n && rows_keep_bits(list[fine], rows, scratch))
            fine++;
        if (fine == n)
            return rows;
    }
    return 1;
}

void gemm_product(bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                  const float *b, size_t ldb, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n,
                (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, 0.0f, c, (blasint)ldc);
}

/* Tokens that are added up plainly, and plain sums that are; where there are more, of a block of the result at a time,
 * the rest is added up in double. With 32 plain sums, 1,023 equal tokens came out 1.2e-6 off; with 8, half of that. */
enum { PART = 32, GROUP = 8 * PART, BLOCK = 64 };

/* c [m, n] = a b over k <= GROUP tokens. */
static void sum_parts(bool transpose_a, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                      const float *b, size_t ldb, float *c, size_t ldc)
{
    for (size_t t = 0; t < k; t += PART)
        cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n,
                    (blasint)(k - t < PART ? k - t : PART), alpha, a + t * (transpose_a ? lda : 1), (blasint)lda,
                    b + t * ldb, (blasint)ldb, t == 0 ? 0.0f : 1.0f, c, (blasint)ldc);
}

/* The same over any number of them; m, n <= BLOCK. */
static void sum_groups(bool transpose_a, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                       const float *b, size_t ldb, float *c, size_t ldc)
{
    double sum[BLOCK * BLOCK];
    float group[BLOCK * BLOCK];
    for (size_t t = 0; t < k; t += GROUP) {
        sum_parts(transpose_a, m, n, k - t < GROUP ? k - t : GROUP, alpha, a + t * (transpose_a ? lda : 1), lda,
                  b + t * ldb, ldb, group, n);
        if (t == 0)
            memset(sum, 0, m * n * sizeof *sum);
#pragma omp simd
        for (size_t i = 0; i < m * n; i++)
            sum[i] += (double)group[i];
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            c[i * ldc + j] = (float)sum[i * n + j];
}

void gemm_sum_tokens(bool transpose_a, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                     const float *b, size_t ldb, float *c, size_t ldc)
{
    const size_t columns = k <= GROUP ? n : BLOCK;
    for (size_t i = 0; i < m; i += BLOCK)
        for (size_t j = 0; j < n; j += columns)
            (k <= GROUP ? sum_parts
                        : sum_groups)(transpose_a, m - i < BLOCK ? m - i : BLOCK, n - j < columns ? n - j : columns, k,
                                      alpha, a + i * (transpose_a ? 1 : lda), lda, b + j, ldb, c + i * ldc + j, ldc);
}

const char *gemm_library(void)
{
    return openblas_get_config();
}

static void set_up_library(void)
{
    openblas_set_num_threads(1);
}

void gemm_setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, set_up_library);
}
