/* neon.c - the fp32 product of every arm64 processor (fmla). The plain form is simd_gemm.c's, which GCC 12
 * compiles to up to a third more instructions; the rest of the table is plain C for four lanes, the baseline's. By the
 * instruction itself, here and in neon_*.c: around intrinsics GCC 12 moves sums and rows between registers. */
#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void add_f32(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("fmla %0.4s, %1.4s, %2.s[0]" : "+w"(sum[v]) : "w"(w[v]), "w"(x));
}

TILE_PRODUCT(product_f32_neon, add_f32, TILE_FLOAT, 1)

extern const struct kernels kernels_neon;
const struct kernels kernels_neon =
    KERNEL_TABLE("neon", product_f32_neon, KERNEL(product_bf16), false, KERNEL(product_int8), false);
