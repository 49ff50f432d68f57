/* tensor.c - the element types of safetensors: names, sizes, and their exact widening to float32.
 * Files are little-endian; loads go through memcpy and le16toh/le32toh, so that alignment and the host's byte order
 * do not matter. Any thread; no state. */
#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "weights/safetensors.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [DTYPE_F32] = {"F32", 4},
    [DTYPE_F16] = {"F16", 2},
    [DTYPE_BF16] = {"BF16", 2},
    [DTYPE_U8] = {"U8", 1},
};

const char *dtype_name(enum dtype dtype)
{
    assert((size_t)dtype < sizeof dtypes / sizeof dtypes[0]);
    return dtypes[dtype].name;
}

size_t dtype_bytes(enum dtype dtype)
{
    assert((size_t)dtype < sizeof dtypes / sizeof dtypes[0]);
    return dtypes[dtype].bytes;
}

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static float float_of_half(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1Fu;
    const uint32_t fraction = h & 0x3FFu;

    if (exponent == 0) { /* zero and subnormals: fraction * 2^-24, which float32 holds exactly */
        const float size = (float)fraction * 0x1p-24f;
        return sign != 0 ? -size : size;
    }
    if (exponent == 0x1F) /* infinity and NaN */
        return float_of_bits(sign | 0x7F800000u | fraction << 13);
    return float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t x;

    memcpy(&x, p, sizeof x);
    return le16toh(x);
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t x;

    memcpy(&x, p, sizeof x);
    return le32toh(x);
}

enum status tensor_to_f32(const struct tensor *t, float *out, struct error *err)
{
    switch (t->dtype) {
    case DTYPE_F32:
        for (uint64_t i = 0; i < t->elements; i++)
            out[i] = float_of_bits(load_u32(t->data + 4 * i));
        break;
    case DTYPE_F16:
        for (uint64_t i = 0; i < t->elements; i++)
            out[i] = float_of_half(load_u16(t->data + 2 * i));
        break;
    case DTYPE_BF16: /* the upper half of a float32 */
        for (uint64_t i = 0; i < t->elements; i++)
            out[i] = float_of_bits((uint32_t)load_u16(t->data + 2 * i) << 16);
        break;
    case DTYPE_U8:
        return error_set_param(err, ERR_FORMAT, t->name, "tensor \"%s\" has dtype %s, expected F32, F16 or BF16",
                               t->name, dtype_name(t->dtype));
    }
    for (uint64_t i = 0; i < t->elements; i++) {
        if (!isfinite(out[i]))
            return error_set_param(err, ERR_FORMAT, t->name,
                                   "tensor \"%s\" holds %s at element %" PRIu64 ", expected finite numbers", t->name,
                                   isnan(out[i]) ? "a NaN" : "an infinity", i);
    }
    return OK;
}
