/* avx512_bf16.c - the bf16 product where the processor multiplies pairs of bf16 (vdpbf16ps): two steps of k in one
 * instruction; and rows for it (vcvtne2ps2bf16). The plain forms are portable_gemm.c's. */
#include <immintrin.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

/* By the instruction itself: GCC 12 copies each sum twice around the intrinsic. */
LANES_INLINE void add_pairs(__m512 *sum, __m512i x, __m512i w)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(w));
}

LANES_INLINE void sum_bf16(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    __m512 sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    struct steps steps = steps_at(x, stride, rows);
    for (size_t i = 0; i < (k + 1) / 2; i++) {
        panel_ahead(p, i);
        __m512i weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            weight[v] = _mm512_loadu_si512(w[v] + i * p->step);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const __m512i pair = (__m512i)load_same(steps_row(&steps, r));
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                add_pairs(&sum[r * vecs + v], pair, weight[v]);
        }
        steps_next(&steps, rows, 4);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        _mm512_storeu_ps(acc + i / vecs * ld + i % vecs * WIDTH, sum[i]);
}

TILE_PRODUCT(product_bf16_avx512_bf16, sum_bf16, (k + 1) / 2 * 4)

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
