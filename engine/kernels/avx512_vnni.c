/* avx512_vnni.c - the int8 product where the processor adds up quads of bytes (vpdpbusd): four steps of k in one
 * instruction, rows unsigned, weights signed. The plain form is portable_gemm.c's; sums are whole numbers, so both
 * agree to the bit. */
#include <immintrin.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

/* By the instruction itself: GCC 12 copies each sum twice around the intrinsic, and spills some of 24. */
LANES_INLINE void add_quads(__m512i *sum, __m512i x, __m512i w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(w));
}

LANES_INLINE void sum_int8(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    const size_t quads = (k + 3) / 4;
    __m512i sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    struct steps steps = steps_at(x + PRODUCT_ROW_HEAD, stride, rows);
    for (size_t i = 0; i < quads; i++) {
        panel_ahead(p, i);
        __m512i weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            weight[v] = _mm512_loadu_si512(w[v] + i * p->step);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const __m512i quad = (__m512i)load_same(steps_row(&steps, r));
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                add_quads(&sum[r * vecs + v], quad, weight[v]);
        }
        steps_next(&steps, rows, 4);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        finish_int8(acc + i / vecs * ld + i % vecs * WIDTH, (ilanes)sum[i], panel_at(p, i % vecs) + quads * p->step,
                    p->step, x + i / vecs * stride);
}

TILE_PRODUCT(product_int8_avx512_vnni, sum_int8, ((k + 3) / 4 * 4 + 8))

extern const struct kernels kernels_avx512_vnni;
const struct kernels kernels_avx512_vnni =
    KERNEL_TABLE("avx512vnni", KERNEL(product_f32), KERNEL(product_bf16), false, product_int8_avx512_vnni, true);
