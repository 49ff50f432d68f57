/* avx2_int8.c - the int8 product of AVX2, whose vpmaddubsw multiplies bytes, rows unsigned and weights signed, and adds
 * up pairs in 16 bits. Two products of 127 by 127 fit in there and two of 255 by 127 do not: rows have 7 bits. On the
 * models that ship, that costs 0.0006 bits per byte and no picture in a thousand; widened to 16 bits (vpmaddwd) rows of
 * 8 take a third as long again. The plain form is simd_gemm.c's. */
#include <immintrin.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++) {
        const __m256i pairs = _mm256_maddubs_epi16((__m256i)x, (__m256i)w[v]);
        sum[v] = (lanes)_mm256_add_epi32((__m256i)sum[v], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
}

TILE_PRODUCT(product_int8_avx2_int8, add_int8, TILE_INT7, 4)

extern const struct kernels kernels_avx2_int8;
const struct kernels kernels_avx2_int8 =
    KERNEL_TABLE_ROWS("avx2", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx2_int8, true,
                      KERNEL(to_row_bf16), KERNEL(to_row_int7));
