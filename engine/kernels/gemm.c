/* gemm.c - packed matrix products over OpenBLAS; see gemm.h. */
#include "engine/kernels/gemm.h"

#include <assert.h>
#include <cblas.h>
#include <string.h>

static uint32_t chunk_width(const struct gemm *g, uint32_t column)
{
    return g->n - column < GEMM_CHUNK ? g->n - column : GEMM_CHUNK;
}

void gemm_pack(struct gemm *g, uint32_t column, const float *weight, const float *bias, uint32_t out, uint32_t in)
{
    assert(in == g->k && column + out <= g->n);
    for (uint32_t o = 0; o < out; o++) {
        const uint32_t at = column + o, first = at / GEMM_CHUNK * GEMM_CHUNK, width = chunk_width(g, first);
        float *chunk = g->packed + (size_t)first * g->k;
        for (uint32_t i = 0; i < in; i++)
            chunk[(size_t)i * width + (at - first)] = weight[(size_t)o * in + i];
        g->bias[at] = bias == NULL ? 0.0f : bias[o];
    }
}

/* acc [rows, GEMM_CHUNK] = x [rows, k] times one chunk. */
static void tile_product(float *acc, const struct gemm *g, uint32_t column, const float *x, size_t ldx, uint32_t rows)
{
    const uint32_t width = chunk_width(g, column);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)width, (blasint)g->k, 1.0f, x,
                (blasint)ldx, g->packed + (size_t)column * g->k, (blasint)width, 0.0f, acc, GEMM_CHUNK);
}

void gemm_run(const struct kernels *kn, const struct gemm *g, uint32_t tile_rows, float *y, size_t ldy, const float *x,
              size_t ldx, size_t rows, enum epilogue kind)
{
    /* Chunks outermost: a thread's consecutive tasks share one chunk of the weights in its cache. */
    const long tiles = (long)((rows + tile_rows - 1) / tile_rows), chunks = (g->n + GEMM_CHUNK - 1) / GEMM_CHUNK;
#pragma omp for schedule(static)
    for (long task = 0; task < tiles * chunks; task++) {
        float acc[GEMM_ROWS_MAX * GEMM_CHUNK] __attribute__((aligned(64)));
        const uint32_t column = (uint32_t)(task / tiles) * GEMM_CHUNK;
        const size_t row = (size_t)(task % tiles) * tile_rows;
        tile_product(acc, g, column, x + row * ldx, ldx, tile_rows);
        kn->epilogue(y + row * ldy + column, ldy, acc, GEMM_CHUNK, g->bias + column,
                     rows - row < tile_rows ? rows - row : tile_rows, chunk_width(g, column), kind);
    }
}

size_t gemm_scratch_floats(uint32_t k)
{
    return (size_t)k * (GEMM_ROWS_MAX + 1); /* and a spare row */
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
    float first[GEMM_ROWS_MAX * GEMM_CHUNK], moved[GEMM_ROWS_MAX * GEMM_CHUNK];
    float *last = x + (size_t)rows * g->k; /* the spare row */
    for (uint32_t column = 0; column < g->n; column += GEMM_CHUNK) {
        const uint32_t width = chunk_width(g, column);
        if (column > 0 && width == GEMM_CHUNK)
            continue; /* same shape as the first chunk */
        fill(x, (size_t)rows * g->k);
        tile_product(first, g, column, x, g->k, rows);
        for (uint32_t by = 1; by < rows; by++) {
            rotate(x, rows, g->k, last);
            tile_product(moved, g, column, x, g->k, rows);
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
    for (uint32_t rows = GEMM_ROWS_MAX; rows > 1; rows /= 2) {
        size_t fine = 0;
        while (fine < n && rows_keep_bits(list[fine], rows, scratch))
            fine++;
        if (fine == n)
            return rows;
    }
    return 1;
}

void gemm_product(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                  size_t lda, const float *b, size_t ldb, float *c, size_t ldc)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
                (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, 0.0f, c, (blasint)ldc);
}

const char *gemm_library(void)
{
    return openblas_get_config();
}

void gemm_setup(void)
{
    openblas_set_num_threads(1);
}
