/* avx512_bf16.c - the bf16 product where the processor multiplies pairs of bf16 (vdpbf16ps): two steps of k in one
 * instruction; and rows for it (vcvtne2ps2bf16). The plain forms are simd_gemm.c's. */
#include <immintrin.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

/* By the instruction itself: GCC 12 copies each sum twice around the intrinsic. */
LANES_INLINE void add_bf16(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum[v]) : "v"(x), "v"(w[v]));
}

TILE_PRODUCT(product_bf16_avx512_bf16, add_bf16, TILE_FLOAT, 2)

/* Numbers below float32's normal range become 0, which the product takes them for anyway. */
void to_row_bf16_avx512_bf16(uint8_t *row, const float *x, size_t k)
{
    size_t i = 0;
    for (; i + (size_t)2 * WIDTH <= k; i += (size_t)2 * WIDTH) {
        const __m512bh pairs = _mm512_cvtne2ps_pbh(lanes_load(x + i + WIDTH), lanes_load(x + i));
        memcpy(row + 2 * i, &pairs, sizeof pairs);
    }
    for (; i < k; i += WIDTH) {
        const __m256bh half = _mm512_cvtneps_pbh(lanes_load_some(x + i, k - i));
        memcpy(row + 2 * i, &half, sizeof half);
    }
}

extern const struct kernels kernels_avx512_bf16;
const struct kernels kernels_avx512_bf16 =
    KERNEL_TABLE_ROWS("avx512bf16", KERNEL(product_f32), product_bf16_avx512_bf16, true, product_int8_avx512_vnni, true,
                      to_row_bf16_avx512_bf16, KERNEL(to_row_int8));
