/* simd_rows.c - around a matrix product: layer norm before it, bias and activation after it. Engine threads. */
#include <math.h>

#include "engine/kernels/simd.h"

/* Sums of d and of d^2, d = x - mean - shift: plainly over SUM_BLOCK registers, then over what those add up to. Even
 * and odd registers are added up apart, because each sum waits for itself. */
struct moments {
    float sum, squares;
};

LANES_INLINE void add_moments(lanes *sum, lanes *squares, lanes x, float mean, float shift)
{
    const lanes d = x - mean - shift;
    *sum += d;
    *squares = lanes_fma(d, d, *squares);
}

LANES_INLINE struct moments moments_of(const float *x, size_t dim, float mean, float shift)
{
    const size_t whole = dim / WIDTH * WIDTH;
    lanes sums = {0}, squares = {0};
    for (size_t begin = 0; begin < whole; begin += SUM_BLOCK * WIDTH) {
        const size_t end = whole - begin < SUM_BLOCK * WIDTH ? whole : begin + SUM_BLOCK * WIDTH;
        lanes sum[2] = {{0}, {0}}, square[2] = {{0}, {0}};
        size_t i = begin;
        for (; i + WIDTH < end; i += (size_t)2 * WIDTH) {
            add_moments(&sum[0], &square[0], lanes_load(x + i), mean, shift);
            add_moments(&sum[1], &square[1], lanes_load(x + i + WIDTH), mean, shift);
        }
        if (i < end)
            add_moments(&sum[0], &square[0], lanes_load(x + i), mean, shift);
        sums += sum[0] + sum[1];
        squares += square[0] + square[1];
    }
    struct moments m = {lanes_sum(sums), lanes_sum(squares)};
    for (size_t i = whole; i < dim; i++) {
        const float d = x[i] - mean - shift;
        m.sum += d;
        m.squares = lane_fma(d, d, m.squares);
    }
    return m;
}

/* The mean itself is rounded, and where all of x lies close together that is no small part of what x differs by: how
 * far it is off shows in the differences, whose own mean is then taken as well. */
void KERNEL(norm)(float *y, const float *x, const float *weight, const float *bias, size_t dim, float eps)
{
    const size_t whole = dim / WIDTH * WIDTH, padded = lanes_padded(dim);
    lanes even = {0}, odd = {0};
    size_t at = 0;
    for (; at + WIDTH < whole; at += (size_t)2 * WIDTH) {
        even += lanes_load(x + at);
        odd += lanes_load(x + at + WIDTH);
    }
    if (at < whole)
        even += lanes_load(x + at);
    float sum = lanes_sum(even + odd);
    for (size_t i = whole; i < dim; i++)
        sum += x[i];
    const float mean = sum / (float)dim;

    const struct moments m = moments_of(x, dim, mean, 0.0f);
    const float shift = m.sum / (float)dim, off = m.sum * shift;
    float squares = m.squares - off;
    if (off > 0x1p-8f * m.squares) /* little may be left */
        squares = moments_of(x, dim, mean, shift).squares;
    const float scale = 1.0f / sqrtf(squares / (float)dim + eps);

    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(
            y + i, lanes_fma(lanes_load(weight + i), (lanes_load(x + i) - mean - shift) * scale, lanes_load(bias + i)));
}

#define EPILOGUE_LOOP(expression)                                                \
    for (size_t r = 0; r < rows; r++)                                            \
        for (size_t c = 0; c < cols; c += WIDTH) {                               \
            const lanes x = lanes_load(acc + r * ld + c) + lanes_load(bias + c); \
            float *to = y + r * stride + c;                                      \
            lanes_store(to, expression);                                         \
        }

void KERNEL(epilogue)(float *y, size_t stride, const float *acc, size_t ld, const float *bias, size_t rows, size_t cols,
                      enum epilogue kind)
{
    switch (kind) {
    case EPILOGUE_BIAS:
        EPILOGUE_LOOP(x)
        return;
    case EPILOGUE_GELU:
        EPILOGUE_LOOP(lanes_gelu(x))
        return;
    case EPILOGUE_GELU_TANH:
        EPILOGUE_LOOP(lanes_gelu_tanh(x))
        return;
    case EPILOGUE_RELU:
        EPILOGUE_LOOP(lanes_relu(x))
        return;
    case EPILOGUE_ADD:
        EPILOGUE_LOOP(lanes_load(to) + x)
        return;
    }
}
