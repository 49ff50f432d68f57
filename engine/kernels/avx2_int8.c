/* avx2_int8.c - the int8 product of AVX2: bytes are widened to 16 bits and added up in pairs (vpmaddwd), even and odd
 * ones apart, so that nothing saturates as vpmaddubsw would. The plain form is portable_gemm.c's; sums are whole
 * numbers, so both agree to the bit. */
#include <immintrin.h>

#include "engine/kernels/portable.h"

#define TILE_VECS_LEAST 2 /* so that weights, once widened, are for as many rows as can be */
#include "engine/kernels/tiles.h"

LANES_INLINE void sum_int8(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    const size_t quads = (k + 3) / 4;
    __m256i sum[TILE_SUMS];
#pragma GCC unroll 12
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = _mm256_setzero_si256();
    for (size_t i = 0; i < quads; i++) {
        panel_ahead(p, i);
        __m256i even[TILE_VECS_MAX], odd[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++) {
            const __m256i weight = _mm256_loadu_si256((const __m256i *)(const void *)(panel_at(p, v) + i * p->step));
            even[v] = _mm256_srai_epi16(_mm256_slli_epi16(weight, 8), 8);
            odd[v] = _mm256_srai_epi16(weight, 8);
        }
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const __m256i quad = (__m256i)load_same(x + r * stride + PRODUCT_ROW_HEAD + 4 * i);
            const __m256i x_even = _mm256_and_si256(quad, _mm256_set1_epi16(0xff)), x_odd = _mm256_srli_epi16(quad, 8);
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++) {
                const __m256i pairs =
                    _mm256_add_epi32(_mm256_madd_epi16(x_even, even[v]), _mm256_madd_epi16(x_odd, odd[v]));
                sum[r * vecs + v] = _mm256_add_epi32(sum[r * vecs + v], pairs);
            }
        }
    }
#pragma GCC unroll 12
    for (size_t i = 0; i < rows * vecs; i++)
        finish_int8(acc + i / vecs * ld + i % vecs * WIDTH, (ilanes)sum[i], panel_at(p, i % vecs) + quads * p->step,
                    p->step, x + i / vecs * stride);
}

TILE_PRODUCT(product_int8_avx2_int8, sum_int8, ((k + 3) / 4 * 4 + 8))

extern const struct kernels kernels_avx2_int8;
const struct kernels kernels_avx2_int8 =
    KERNEL_TABLE("avx2", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx2_int8, true);
