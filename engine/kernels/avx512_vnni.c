/* avx512_vnni.c - the int8 product where the processor adds up quads of bytes (vpdpbusd): four steps of k in one
 * instruction, rows unsigned, weights signed. The plain form is simd_gemm.c's; sums are whole numbers, so both
 * agree to the bit. */
#include <immintrin.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

/* By the instruction itself: GCC 12 copies each sum twice around the intrinsic, and spills some of 24. */
LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum[v]) : "v"(x), "v"(w[v]));
}

TILE_PRODUCT(product_int8_avx512_vnni, add_int8, TILE_INT8, 4)

extern const struct kernels kernels_avx512_vnni;
const struct kernels kernels_avx512_vnni =
    KERNEL_TABLE("avx512vnni", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx512_vnni, true);
