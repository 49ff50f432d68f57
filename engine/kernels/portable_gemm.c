/* portable_gemm.c - products of packed weights and rows, fp32, bf16 and int8, by plain vector C, and the conversion of
 * rows to the latter two. What they compute is described in kernels.h, how chunks and rows are laid out in gemm.c. */
#include <math.h>

#include "engine/kernels/portable.h"
#include "engine/kernels/tiles.h"

/* ---- fp32 -------------------------------------------------------------------------------------------------------- */

LANES_INLINE void sum_f32(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                          size_t rows, size_t vecs)
{
    lanes sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = lanes_set(0.0f);
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    struct steps steps = steps_at(x, stride, rows);
    for (size_t i = 0; i < k; i++) {
        panel_ahead(p, i);
        lanes weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], w[v] + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            float one;
            memcpy(&one, steps_row(&steps, r), sizeof one);
            const lanes value = lanes_set(one);
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = lanes_fma(value, weight[v], sum[r * vecs + v]);
        }
        steps_next(&steps, rows, sizeof(float));
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        lanes_store(acc + i / vecs * ld + i % vecs * WIDTH, sum[i]);
}

TILE_PRODUCT(KERNEL(product_f32), sum_f32, k * 4)

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

LANES_INLINE void sum_bf16(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    lanes sum[TILE_SUMS];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = lanes_set(0.0f);
    struct steps steps = steps_at(x, stride, rows);
    for (size_t i = 0; i < (k + 1) / 2; i++) {
        panel_ahead(p, i);
        ilanes weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], panel_at(p, v) + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const ilanes pair = load_same(steps_row(&steps, r));
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++) {
                lanes *to = &sum[r * vecs + v];
                *to = lanes_fma(lower_bf16(pair), lower_bf16(weight[v]), *to);
                *to = lanes_fma(upper_bf16(pair), upper_bf16(weight[v]), *to);
            }
        }
        steps_next(&steps, rows, 4);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        lanes_store(acc + i / vecs * ld + i % vecs * WIDTH, sum[i]);
}

TILE_PRODUCT(KERNEL(product_bf16), sum_bf16, (k + 1) / 2 * 4)

typedef uint16_t half_lanes __attribute__((vector_size(2 * WIDTH)));
typedef uint8_t byte_lanes __attribute__((vector_size(WIDTH)));

LANES_INLINE void store_bf16(uint8_t *row, lanes x)
{
    const half_lanes value = __builtin_convertvector(lanes_to_bf16(x), half_lanes);
    memcpy(row, &value, sizeof value);
}

void KERNEL(to_row_bf16)(uint8_t *row, const float *x, size_t k)
{
    size_t i = 0;
    for (; i + WIDTH <= k; i += WIDTH)
        store_bf16(row + 2 * i, lanes_load(x + i));
    if (i < k)
        store_bf16(row + 2 * i, lanes_load_some(x + i, k - i));
}

/* ---- int8 -------------------------------------------------------------------------------------------------------- */

LANES_INLINE void sum_int8(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
                           size_t rows, size_t vecs)
{
    const size_t quads = (k + 3) / 4;
    ilanes sum[TILE_SUMS];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        sum[i] = (ilanes){0};
    for (size_t i = 0; i < quads; i++) {
        panel_ahead(p, i);
        ilanes weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], panel_at(p, v) + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++) {
            const ilanes quad = load_same(x + r * stride + PRODUCT_ROW_HEAD + 4 * i);
#pragma GCC unroll 8
            for (size_t v = 0; v < vecs; v++)
#pragma GCC unroll 4
                for (int byte = 0; byte < 4; byte++)
                    sum[r * vecs + v] += (weight[v] << (24 - 8 * byte) >> 24) * (quad >> 8 * byte & 0xff);
        }
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        finish_int8(acc + i / vecs * ld + i % vecs * WIDTH, sum[i], panel_at(p, i % vecs) + quads * p->step, p->step,
                    x + i / vecs * stride);
}

TILE_PRODUCT(KERNEL(product_int8), sum_int8, ((k + 3) / 4 * 4 + 8))

/* x / scale + 128; for a NaN, anything. */
LANES_INLINE void store_int8(uint8_t *row, lanes x, float inverse)
{
    const byte_lanes value = __builtin_convertvector(lanes_to_whole(x * inverse) + 128, byte_lanes);
    memcpy(row, &value, sizeof value);
}

/* How large the numbers are, as the bits of floats, whose order that is: a NaN or an infinity is above all others. */
LANES_INLINE ilanes size_bits(lanes x)
{
    return (ilanes)x & 0x7fffffff;
}

/* Where a number is no finite one, neither is the scale: what overflowed upstream must be seen at the end. */
void KERNEL(to_row_int8)(uint8_t *row, const float *x, size_t k)
{
    const int32_t infinity = 0x7f800000;
    ilanes even = {0}, odd = {0}; /* two, so that one does not wait for the other */
    size_t i = 0;
    for (; i + (size_t)2 * WIDTH <= k; i += (size_t)2 * WIDTH) {
        even = ilanes_max(even, size_bits(lanes_load(x + i)));
        odd = ilanes_max(odd, size_bits(lanes_load(x + i + WIDTH)));
    }
    for (; i < k; i += WIDTH)
        even = ilanes_max(even, size_bits(lanes_load_some(x + i, k - i)));
    const int32_t bits = ilanes_top(ilanes_max(even, odd));
    float top;
    memcpy(&top, &bits, sizeof top);
    const float inverse = bits > 0 ? 127.0f / top : 1.0f;
    const float scale = bits >= infinity ? NAN : bits > 0 ? top / 127.0f : 1.0f;
    memcpy(row, &scale, sizeof scale);
    row += PRODUCT_ROW_HEAD;
    for (i = 0; i + WIDTH <= k; i += WIDTH)
        store_int8(row + i, lanes_load(x + i), inverse);
    if (i < k)
        store_int8(row + i, lanes_load_some(x + i, k - i), inverse);
}
