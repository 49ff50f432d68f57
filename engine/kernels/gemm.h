/* gemm.h - y = act(x W^T + b) for packed weights: the only place that knows which matrix product runs underneath
 * (OpenBLAS's sgemm, one thread a call).
 *
 * A product is cut into tiles of `rows` rows by GEMM_CHUNK columns and every tile is one sgemm of that fixed M, padded
 * with whatever the buffers hold, so that a row's bits do not depend on how many rows there are. sgemm gives equal rows
 * equal bits only for some M (on a Zen 5 core M = 4 and 8 do, at M = 16 ten rows of sixteen differ by their position):
 * gemm_choose_rows tries them on this machine's library with the very shapes in use. */
#ifndef ENGINE_KERNELS_GEMM_H
#define ENGINE_KERNELS_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

#define GEMM_ROWS_MAX 8 /* buffers hold a multiple of this many rows */
#define GEMM_CHUNK 32   /* columns of a task: fine enough to share one tile among threads */

/* One weight matrix [n, k], columns padded to LANES, as chunks of GEMM_CHUNK columns (the last may be narrower), each
 * [k, width] row-major; bias [n], zero where there is none. Pointers into the engine's memory. */
struct gemm {
    float *packed, *bias;
    uint32_t n, k;
};

static inline size_t gemm_packed_floats(uint32_t n, uint32_t k)
{
    return (size_t)n * k;
}

/* Put a matrix weight [out, in] and bias [out] (or NULL) into columns [column, column + out) of *g, whose memory is set
 * and zeroed; out may be less than a padded segment's width. in == g->k. */
void gemm_pack(struct gemm *g, uint32_t column, const float *weight, const float *bias, uint32_t out, uint32_t in);

/* The largest M <= GEMM_ROWS_MAX at which a row's bits do not depend on its place or its neighbours, for each of the
 * matrices. 1 always qualifies. Deterministic data. scratch: gemm_scratch_floats(the largest k). */
uint32_t gemm_choose_rows(const struct gemm *const *list, size_t n, float *scratch);
size_t gemm_scratch_floats(uint32_t k);

/* y[r] (op)= x[r] W^T + b for r < rows: x [rows, ldx], y [rows, ldy], both readable and x finite up to a multiple of
 * GEMM_ROWS_MAX rows; y's columns up to g->n are written for r < rows only. All threads of the team call it with equal
 * arguments (an orphaned work-sharing loop, a barrier at its end); outside a team it runs on the caller. */
void gemm_run(const struct kernels *kn, const struct gemm *g, uint32_t tile_rows, float *y, size_t ldy, const float *x,
              size_t ldx, size_t rows, enum epilogue kind);

/* c [m, n] = alpha op(a) op(b), row-major, op transposing where asked: a is [m, k] or [k, m], b [k, n] or [n, k]; rows
 * at lda, ldb, ldc. On the caller alone. Bits depend on the shape and the operands only. */
void gemm_product(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, float alpha, const float *a,
                  size_t lda, const float *b, size_t ldb, float *c, size_t ldc);

/* What the library says of itself. */
const char *gemm_library(void);
/* Make the library run each call on its caller alone. Once, before any product. */
void gemm_setup(void);

#endif
