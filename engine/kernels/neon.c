/* neon.c - the fp32 product of every arm64 processor (fmla). The plain form is portable_gemm.c's, which GCC 12
 * compiles to up to a third more instructions; the rest of the table is plain C for four lanes, the baseline's. */
#include <arm_neon.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void sum_f32(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                          size_t rows, size_t vecs)
{
    float32x4_t sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = vdupq_n_f32(0.0f);
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    for (size_t i = 0; i < k; i++) {
        panel_ahead(p, i);
        float32x4_t weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], w[v] + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            float one;
            memcpy(&one, x + r * stride + i * sizeof one, sizeof one);
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vfmaq_n_f32(sum[r * vecs + v], weight[v], one);
        }
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        lanes_store(acc + i / vecs * ld + i % vecs * WIDTH, (lanes)sum[i]);
}

TILE_PRODUCT(product_f32_neon, sum_f32, k * 4)

extern const struct kernels kernels_neon;
const struct kernels kernels_neon =
    KERNEL_TABLE("neon", product_f32_neon, KERNEL(product_bf16), false, KERNEL(product_int8), false);
