/* avx2_vnni.c - the int8 product where a processor without AVX-512 adds up quads of bytes (AVX-VNNI's vpdpbusd): rows
 * have 8 bits again. The plain form is simd_gemm.c's; sums are whole numbers, so both agree to the bit. */
#include <immintrin.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum[v]) : "x"(x), "x"(w[v]));
}

TILE_PRODUCT(product_int8_avx2_vnni, add_int8, TILE_INT8, 4)

extern const struct kernels kernels_avx2_vnni;
const struct kernels kernels_avx2_vnni =
    KERNEL_TABLE("avxvnni", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx2_vnni, true);
