/* neon_dotprod.c - the int8 product of arm64 processors that add up quads of bytes (FEAT_DotProd, sdot): four steps of
 * k in one instruction, rows and weights signed. The plain form is simd_gemm.c's; sums are whole numbers, so both
 * agree to the bit. */
#include <arm_neon.h>

#include "engine/kernels/simd.h"
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

LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("sdot %0.4s, %1.16b, %2.4b[0]" : "+w"(sum[v]) : "w"(w[v]), "w"(x));
}

TILE_PRODUCT(product_int8_neon_dotprod, add_int8, TILE_INT8_SIGNED, 4)

extern const struct kernels kernels_neon_dotprod;
const struct kernels kernels_neon_dotprod =
    KERNEL_TABLE_ROWS("neondotprod", product_f32_neon, KERNEL(product_bf16), false, product_int8_neon_dotprod, true,
                      KERNEL(to_row_bf16), to_row_int8_neon_dotprod);
