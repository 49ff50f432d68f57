/* neon_bf16.c - the bf16 product of arm64 processors that multiply pairs of bf16 (FEAT_BF16, bfdot): two steps of k in
 * one instruction, which rounds in its own way, and always in the order of k. The plain form is simd_gemm.c's. */
#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void add_bf16(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("bfdot %0.4s, %1.8h, %2.2h[0]" : "+w"(sum[v]) : "w"(w[v]), "w"(x));
}

TILE_PRODUCT(product_bf16_neon_bf16, add_bf16, TILE_FLOAT, 2)

extern const struct kernels kernels_neon_bf16;
const struct kernels kernels_neon_bf16 =
    KERNEL_TABLE_ROWS("neonbf16", product_f32_neon, product_bf16_neon_bf16, true, product_int8_neon_dotprod, true,
                      KERNEL(to_row_bf16), to_row_int8_neon_dotprod);
