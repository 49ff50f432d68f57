/* neon_bf16.c - the bf16 product of arm64 processors that multiply pairs of bf16 (FEAT_BF16, bfdot): two steps of k in
 * one instruction, which rounds in its own way, and always in the order of k. The plain form is portable_gemm.c's. */
#include <arm_neon.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void sum_bf16(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
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
    for (size_t i = 0; i < (k + 1) / 2; i++) {
        panel_ahead(p, i);
        bfloat16x8_t weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], w[v] + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + r * stride + 4 * i, sizeof two);
            const bfloat16x4_t pair = vreinterpret_bf16_s32(vset_lane_s32(two, vdup_n_s32(0), 0));
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vbfdotq_lane_f32(sum[r * vecs + v], weight[v], pair, 0);
        }
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        lanes_store(acc + i / vecs * ld + i % vecs * WIDTH, (lanes)sum[i]);
}

TILE_PRODUCT(product_bf16_neon_bf16, sum_bf16, (k + 1) / 2 * 4)

extern const struct kernels kernels_neon_bf16;
const struct kernels kernels_neon_bf16 =
    KERNEL_TABLE_ROWS("neonbf16", product_f32_neon, product_bf16_neon_bf16, true, product_int8_neon_dotprod, true,
                      KERNEL(to_row_bf16), to_row_int8_neon_dotprod);
