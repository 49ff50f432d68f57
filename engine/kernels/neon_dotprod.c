/* neon_dotprod.c - the int8 product of arm64 processors that add up quads of bytes (FEAT_DotProd, sdot): four steps of
 * k in one instruction, rows and weights signed. The plain form is portable_gemm.c's; sums are whole numbers, so both
 * agree to the bit. */
#include <arm_neon.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

/* Signed: the values without the 128 that other products want. Rows have room for whole registers. */
void to_row_int8_neon_dotprod(uint8_t *row, const float *x, size_t k)
{
    KERNEL(to_row_int8)(row, x, k);
    for (size_t i = 0; i < k; i += sizeof(uint8x16_t)) {
        uint8_t *values = row + PRODUCT_ROW_HEAD + i;
        vst1q_u8(values, veorq_u8(vld1q_u8(values), vdupq_n_u8(0x80)));
    }
}

LANES_INLINE void sum_int8(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    const size_t quads = (k + 3) / 4;
    int32x4_t sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
    /* The sums begin with what finish_int8 subtracts for the 128. */
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        memcpy(&sum[i], panel_at(p, i % vecs) + (quads + 1) * p->step, sizeof sum[i]);
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    for (size_t i = 0; i < quads; i++) {
        panel_ahead(p, i);
        int8x16_t weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], w[v] + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * stride + PRODUCT_ROW_HEAD + 4 * i, sizeof four);
            const int8x8_t quad = vreinterpret_s8_s32(vset_lane_s32(four, vdup_n_s32(0), 0));
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = vdotq_lane_s32(sum[r * vecs + v], weight[v], quad, 0);
        }
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        finish_int8(acc + i / vecs * ld + i % vecs * WIDTH, (ilanes)sum[i], panel_at(p, i % vecs) + quads * p->step,
                    p->step, x + i / vecs * stride);
}

TILE_PRODUCT(product_int8_neon_dotprod, sum_int8, ((k + 3) / 4 * 4 + 8))

extern const struct kernels kernels_neon_dotprod;
const struct kernels kernels_neon_dotprod =
    KERNEL_TABLE_ROWS("neondotprod", product_f32_neon, KERNEL(product_bf16), false, product_int8_neon_dotprod, true,
                      KERNEL(to_row_bf16), to_row_int8_neon_dotprod);
