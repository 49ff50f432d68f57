/* inference_tensor.h - an input tensor of an Open Inference Protocol request, as JSON or as raw bytes, and what is in
 * it. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_TENSOR_H
#define SERVER_API_INFERENCE_TENSOR_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

enum { INFERENCE_RANK_MAX = 4 };

#define INFERENCE_TYPES(X)      \
    X(INFERENCE_BYTES, "BYTES") \
    X(INFERENCE_FP32, "FP32")   \
    X(INFERENCE_UINT8, "UINT8")
#define X(constant, word) constant,
enum inference_type { INFERENCE_TYPES(X) };
#undef X

/* Borrowed from the request. */
struct inference_tensor {
    const char *name;
    enum inference_type type;
    uint32_t rank;
    uint64_t shape[INFERENCE_RANK_MAX], elements;
    const uint8_t *raw; /* [raw_size], little-endian; BYTES: each element after its length. NULL: in data */
    size_t raw_size;
    const json_t *data; /* a list, or lists of lists */
};

/* The elements of a BYTES tensor, one after the other: *at is 0 before the first. In JSON they are strings. *bytes is
 * borrowed; from JSON it ends with a NUL. Errors: ERR_ARGUMENT: the tensor is malformed. */
enum status inference_next_bytes(const struct inference_tensor *t, size_t *at, const uint8_t **bytes, size_t *size,
                                 struct error *err);
/* All numbers of an FP32 or UINT8 tensor, [elements], as bytes: the numbers, which must lie in 0..255, are rounded.
 * Errors: ERR_ARGUMENT, also where all lie in 0..1 and not all are whole. */
enum status inference_read_pixels(uint8_t *out, const struct inference_tensor *t, struct error *err);

#endif
