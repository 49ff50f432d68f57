/* avx2_int8.c - the int8 product of AVX2: bytes are widened to 16 bits and added up in pairs (vpmaddwd), even and odd
 * ones apart, so that nothing saturates as vpmaddubsw would. The plain form is simd_gemm.c's; sums are whole
 * numbers, so both agree to the bit. */
#include <immintrin.h>

#include "engine/kernels/simd.h"

#define TILE_VECS_LEAST 2 /* so that weights, once widened, are for as many rows as can be */
#include "engine/kernels/tiles.h"

/* The compiler widens each weight once for all rows of a tile. */
LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
    const __m256i x_even = _mm256_and_si256((__m256i)x, _mm256_set1_epi16(0xff)),
                  x_odd = _mm256_srli_epi16((__m256i)x, 8);
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++) {
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16((__m256i)w[v], 8), 8);
        const __m256i odd = _mm256_srai_epi16((__m256i)w[v], 8);
        const __m256i pairs = _mm256_add_epi32(_mm256_madd_epi16(x_even, even), _mm256_madd_epi16(x_odd, odd));
        sum[v] = (lanes)_mm256_add_epi32((__m256i)sum[v], pairs);
    }
}

TILE_PRODUCT(product_int8_avx2_int8, add_int8, TILE_INT8, 4)

extern const struct kernels kernels_avx2_int8;
const struct kernels kernels_avx2_int8 =
    KERNEL_TABLE("avx2", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx2_int8, true);
