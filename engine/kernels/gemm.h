/* gemm.h - y = act(x W^T + b) for weights that were packed once: the products of the whole engine.
 *
 * A row's bits depend on the row, the weights, the instruction set and the precision alone: each sum runs over k in one
 * order, whatever the number of rows or threads. A tile of rows by chunks of columns stays in registers while k goes by
 * (kernels.h's `product`). OpenBLAS's sgemm, which gives equal rows equal bits for some numbers of rows alone, is for
 * products of activations (gemm_blas.c).
 *
 * Precisions (PRODUCTS in kernels.h): fp32; bf16 weights and rows with fp32 sums; int8 weights by output channel and
 * rows by row, both symmetric, with sums of integers. */
#ifndef ENGINE_KERNELS_GEMM_H
#define ENGINE_KERNELS_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/core/workspace.h"
#include "engine/kernels/kernels.h"

#define GEMM_ROWS_MAX 12 /* rows of a tile */
#define GEMM_CHUNK 32    /* columns of a chunk */
#define GEMM_BLOCK 108   /* rows that one thread takes through several products: they stay in its cache */

/* One weight matrix [n, k], columns padded to LANES, as chunks of GEMM_CHUNK columns (the last may be half as wide),
 * each in the layout of its precision (gemm.c); bias [n], zero where there is none. Pointers into the engine's
 * memory. */
struct gemm {
    uint8_t *packed;
    float *bias;
    uint32_t n, k;
    enum precision precision;
};

/* Rows converted to a precision other than fp32: by all threads into `shared`, or by each for itself. */
struct gemm_rows {
    uint8_t *shared; /* [rows and GEMM_ROWS_MAX - 1 more, bytes] */
    uint8_t *own;    /* [threads, GEMM_BLOCK, bytes] */
    size_t bytes;    /* of the longest row */
};

/* Note the memory of a matrix [n, k]. */
void gemm_plan(struct gemm *g, struct workspace *w, enum precision precision, uint32_t n, uint32_t k);
size_t gemm_packed_bytes(enum precision precision, uint32_t n, uint32_t k);
/* Bytes of one row of k numbers, a multiple of 64. */
size_t gemm_row_bytes(enum precision precision, uint32_t k);

/* Put a matrix weight [out, in] and bias [out] (or NULL) into columns [column, column + out) of *g, whose memory is set
 * and zeroed; out may be less than a padded segment's width. in == g->k. */
void gemm_pack(struct gemm *g, uint32_t column, const float *weight, const float *bias, uint32_t out, uint32_t in);

/* What the products of an engine share. */
struct gemm_context {
    const struct kernels *kernels;
    uint32_t threads;
    struct gemm_rows rows;
};

/* y[r] (op)= x[r] W^T + b for r < rows: x [rows, ldx], y [rows, ldy], of which the columns up to g->n are written. All
 * threads of the team call it with equal arguments (an orphaned work-sharing loop, a barrier at its end); outside a
 * team it runs on the caller. */
void gemm_run(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, const float *x, size_t ldx,
              size_t rows, enum epilogue kind);

/* Memory that its thread will read after some products: they prefetch it, as far as they get, while they multiply,
 * which leaves the memory idle (AMX does not, and fetches nothing of it). */
struct fetch {
    const float *const *regions; /* [count], `bytes` each */
    size_t count, bytes;
    size_t done; /* bytes of the first one already fetched; 0 at first */
};

/* The same by the calling thread alone, for up to GEMM_BLOCK rows, and no barrier. fetch: NULL, or advanced. */
void gemm_run_alone(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, const float *x,
                    size_t ldx, size_t rows, enum epilogue kind, struct fetch *fetch);

/* ---- OpenBLAS, gemm_blas.c -------------------------------------------------------------------------------------- */

/* c [m, n] = alpha a op(b), row-major, op transposing where asked: a is [m, k], b [k, n] or [n, k]; rows at lda, ldb,
 * ldc. On the caller alone. Bits depend on the shape and the operands only. */
void gemm_product(bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                  const float *b, size_t ldb, float *c, size_t ldc);

/* The same of tokens, c = alpha op(a) b with a [m, k] or [k, m]: what comes late in k is not lost in what came before,
 * however many they are. */
void gemm_sum_tokens(bool transpose_a, size_t m, size_t n, size_t k, float alpha, const float *a, size_t lda,
                     const float *b, size_t ldb, float *c, size_t ldc);

/* What the library says about itself. */
const char *gemm_library(void);
/* Make the library run each call on its caller alone. Call it before any product; calling it again has no effect. */
void gemm_setup(void);

#endif
