/* portable_attention.c - a query and every token that it sees, one by one: softmax attention and AFT taken exactly.
 * Engine threads only. */
#include <math.h>

#include "engine/kernels/portable.h"

void KERNEL(softmax)(float *x, size_t n)
{
    const size_t padded = lanes_padded(n);
    for (size_t i = n; i < padded; i++)
        x[i] = -INFINITY;
    lanes most = lanes_load(x), sums = {0};
    for (size_t i = WIDTH; i < padded; i += WIDTH)
        most = lanes_max(most, lanes_load(x + i));
    float top = most[0];
    for (int i = 1; i < WIDTH; i++)
        top = fmaxf(top, most[i]);
    for (size_t i = 0; i < padded; i += WIDTH) {
        const lanes e = lanes_exp(lanes_load(x + i) - top);
        sums += e;
        lanes_store(x + i, e);
    }
    const float scale = 1.0f / lanes_sum(sums);
    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(x + i, lanes_load(x + i) * scale);
}

void KERNEL(aft_exact)(float *y, const float *q, const float *k, const float *v, const float *bias, size_t tokens,
                       size_t stride, size_t channels, bool gate)
{
    for (size_t c = 0; c < channels; c += WIDTH) {
        lanes top = lanes_load(k + c) + bias[0], den = {0}, num = {0};
        for (size_t s = 1; s < tokens; s++)
            top = lanes_max(top, lanes_load(k + s * stride + c) + bias[s]);
        for (size_t s = 0; s < tokens; s++) {
            const lanes e = lanes_exp(lanes_load(k + s * stride + c) + bias[s] - top);
            den += e;
            num += e * lanes_load(v + s * stride + c);
        }
        lanes_store(y + c, gated_mean(q + c, num, den, gate));
    }
}

/* Heads may be narrower than a register, or no whole number of them: the rest goes one by one. */
static float dot(const float *a, const float *b, size_t n)
{
    const size_t whole = n / WIDTH * WIDTH;
    lanes acc = {0};
    for (size_t i = 0; i < whole; i += WIDTH)
        acc += lanes_load(a + i) * lanes_load(b + i);
    float sum = lanes_sum(acc);
    for (size_t i = whole; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void KERNEL(attend)(float *y, const float *q, const float *k, const float *v, size_t count, size_t width, size_t stride,
                    float scale, float *scores)
{
    for (size_t s = 0; s < count; s++)
        scores[s] = scale * dot(q, k + s * stride, width);
    KERNEL(softmax)(scores, count);
    const size_t whole = width / WIDTH * WIDTH;
    for (size_t c = 0; c < whole; c += WIDTH) {
        lanes sum = {0};
        for (size_t s = 0; s < count; s++)
            sum += scores[s] * lanes_load(v + s * stride + c);
        lanes_store(y + c, sum);
    }
    for (size_t c = whole; c < width; c++) {
        float sum = 0.0f;
        for (size_t s = 0; s < count; s++)
            sum += scores[s] * v[s * stride + c];
        y[c] = sum;
    }
}
