/* tensor.c - the element types of safetensors: names, sizes, and their exact widening to float32.
 * Files are little-endian; loads go through memcpy and le16toh/le32toh, so that alignment and the host's byte order
 * do not matter. Any thread; no state. */
#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "config/file.h"
#include "weights/safetensors.h"

#define PIECE_BYTES 32768 /* that are read at a time, on the stack */

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

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. Moved to where a float32 has them, exponent and
 * fraction are a number 2^112 too small, also a subnormal one. */
static uint32_t bits_of_half(uint16_t h)
{
    const float size = float_of_bits((uint32_t)(h & 0x7FFFu) << 13) * 0x1p112f;
    uint32_t bits;

    memcpy(&bits, &size, sizeof bits);
    return bits | (uint32_t)(h & 0x8000u) << 16 | ((h & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u);
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

/* What the elements are as float32, and whether all are finite. Plain loops without a way out, which the compiler makes
 * vector code of. */
#define WIDEN(name, size, bits)                                                       \
    static bool name(float *restrict out, const uint8_t *restrict data, size_t count) \
    {                                                                                 \
        uint32_t others = 0;                                                          \
        for (size_t i = 0; i < count; i++) {                                          \
            const uint8_t *p = data + (size)*i;                                       \
            const uint32_t b = (bits);                                                \
            others |= (b & 0x7F800000u) == 0x7F800000u;                               \
            out[i] = float_of_bits(b);                                                \
        }                                                                             \
        return others == 0;                                                           \
    }
WIDEN(widen_f32, 4, load_u32(p))
WIDEN(widen_f16, 2, bits_of_half(load_u16(p)))
WIDEN(widen_bf16, 2, (uint32_t)load_u16(p) << 16) /* the upper half of a float32 */
#undef WIDEN

static bool (*const widen[])(float *restrict out, const uint8_t *restrict data, size_t count) = {
    [DTYPE_F32] = widen_f32, [DTYPE_F16] = widen_f16, [DTYPE_BF16] = widen_bf16, [DTYPE_U8] = NULL};

static enum status refuse_element(const struct tensor *t, uint64_t first, const float *of, struct error *err)
{
    size_t i = 0;
    while (isfinite(of[i]))
        i++;
    return error_set_param(err, ERR_FORMAT, t->name,
                           "tensor \"%s\" holds %s at element %" PRIu64 ", expected finite numbers", t->name,
                           isnan(of[i]) ? "a NaN" : "an infinity", first + i);
}

enum status tensor_to_f32(const struct tensor *t, uint64_t first, uint64_t count, float *out, struct error *err)
{
    uint8_t piece[PIECE_BYTES];
    const uint64_t size = dtype_bytes(t->dtype);

    assert(first <= t->elements && count <= t->elements - first);
    if (widen[t->dtype] == NULL)
        return error_set_param(err, ERR_FORMAT, t->name, "tensor \"%s\" has dtype %s, expected F32, F16 or BF16",
                               t->name, dtype_name(t->dtype));
    for (uint64_t done = 0; done < count;) {
        const uint64_t left = count - done, n = left < PIECE_BYTES / size ? left : PIECE_BYTES / size;
        const uint64_t at = (first + done) * size;
        if (t->data == NULL) {
            const enum status st = file_read_at(t->file, t->begin + at, piece, (size_t)(n * size), err);
            if (st != OK)
                return st;
        }
        if (!widen[t->dtype](out + done, t->data == NULL ? piece : t->data + at, (size_t)n))
            return refuse_element(t, first + done, out + done, err);
        done += n;
    }
    return OK;
}
