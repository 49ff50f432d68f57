/* simd_gemm.c - products of packed weights and rows, fp32, bf16 and int8, by plain vector C, and the conversion of
 * rows to the latter two. What they compute is described in kernels.h, how chunks and rows are laid out in gemm.c. */
#include <math.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

/* ---- fp32 ------------------------------------------------------------------------------------------------------- */

LANES_INLINE void add_f32(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        sum[v] = lanes_fma((lanes)x, (lanes)w[v], sum[v]);
}

TILE_PRODUCT(KERNEL(product_f32), add_f32, TILE_FLOAT, 1)

/* ---- bf16 ------------------------------------------------------------------------------------------------------- */

LANES_INLINE void add_bf16(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++) {
        sum[v] = lanes_fma(lower_bf16(x), lower_bf16(w[v]), sum[v]);
        sum[v] = lanes_fma(upper_bf16(x), upper_bf16(w[v]), sum[v]);
    }
}

TILE_PRODUCT(KERNEL(product_bf16), add_bf16, TILE_FLOAT, 2)

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

/* ---- int8 ------------------------------------------------------------------------------------------------------- */

LANES_INLINE void add_int8(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
#pragma GCC unroll 4
        for (int byte = 0; byte < 4; byte++)
            sum[v] = (lanes)((ilanes)sum[v] + (w[v] << (24 - 8 * byte) >> 24) * (x >> 8 * byte & 0xff));
}

TILE_PRODUCT(KERNEL(product_int8), add_int8, TILE_INT8, 4)

/* x / scale + 128, or 64; for a NaN, anything. */
LANES_INLINE void store_int8(uint8_t *row, lanes x, float inverse, int zero)
{
    const byte_lanes value = __builtin_convertvector(lanes_to_whole(x * inverse) + zero, byte_lanes);
    memcpy(row, &value, sizeof value);
}

/* How large the numbers are, as the bits of floats, whose order that is: a NaN or an infinity is above all others. */
LANES_INLINE ilanes size_bits(lanes x)
{
    return (ilanes)x & 0x7fffffff;
}

/* Where a number is no finite one, neither is the scale: what overflowed upstream must be seen at the end. most: the
 * largest whole number, 127 or 63. */
LANES_INLINE void to_whole_row(uint8_t *row, const float *x, size_t k, int most)
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
    const float inverse = bits > 0 ? (float)most / top : 1.0f;
    const float scale = bits >= infinity ? NAN : bits > 0 ? top / (float)most : 1.0f;
    memcpy(row, &scale, sizeof scale);
    row += PRODUCT_ROW_HEAD;
    for (i = 0; i + WIDTH <= k; i += WIDTH)
        store_int8(row + i, lanes_load(x + i), inverse, most + 1);
    if (i < k)
        store_int8(row + i, lanes_load_some(x + i, k - i), inverse, most + 1);
}

void KERNEL(to_row_int8)(uint8_t *row, const float *x, size_t k)
{
    to_whole_row(row, x, k, 127);
}

void KERNEL(to_row_int7)(uint8_t *row, const float *x, size_t k)
{
    to_whole_row(row, x, k, 63);
}
