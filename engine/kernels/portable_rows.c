/* portable_rows.c - around a matrix product: layer norm before it, bias and activation after it. Engine threads. */
#include <math.h>

#include "engine/kernels/portable.h"

void KERNEL(norm)(float *y, const float *x, const float *weight, const float *bias, size_t dim, float eps)
{
    const size_t whole = dim / WIDTH * WIDTH, padded = lanes_padded(dim);
    lanes acc = {0};
    for (size_t i = 0; i < whole; i += WIDTH)
        acc += lanes_load(x + i);
    float sum = lanes_sum(acc);
    for (size_t i = whole; i < dim; i++)
        sum += x[i];
    const float mean = sum / (float)dim;

    acc = lanes_set(0.0f);
    for (size_t i = 0; i < whole; i += WIDTH) {
        const lanes d = lanes_load(x + i) - mean;
        acc += d * d;
    }
    float squares = lanes_sum(acc);
    for (size_t i = whole; i < dim; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(squares / (float)dim + eps);

    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(y + i, lanes_load(weight + i) * ((lanes_load(x + i) - mean) * scale) + lanes_load(bias + i));
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
