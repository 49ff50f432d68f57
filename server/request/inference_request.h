/* inference_request.h - the body of an Open Inference Protocol request: a JSON head followed by the tensors that the
 * head says are binary. HTTP threads; no state. */
#ifndef SERVER_REQUEST_INFERENCE_REQUEST_H
#define SERVER_REQUEST_INFERENCE_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"

enum { INFERENCE_TENSORS_MAX = 4, INFERENCE_RANK_MAX = 4 }; /* a model has one input and three outputs */

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

struct inference_wish {
    const char *name;
    bool binary;
    uint32_t classification; /* this many of the most probable labels instead of numbers; 0: numbers */
};

struct inference_request {
    json_t *head;
    const char *id;     /* NULL: none */
    json_t *parameters; /* for the model, without the protocol's own; owned by the request */
    uint32_t timeout_ms;
    struct inference_tensor inputs[INFERENCE_TENSORS_MAX];
    uint32_t input_count;
    struct inference_wish outputs[INFERENCE_TENSORS_MAX];
    uint32_t output_count; /* 0: all of them */
    bool binary_outputs;   /* the default for outputs that do not say */
};

/* head_length: the value of Inference-Header-Content-Length; NULL: the body is JSON alone. The body is borrowed. *ret
 * is set only on OK: inference_request_clear. Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status inference_request_parse(struct inference_request *ret, const uint8_t *body, size_t size,
                                    const char *head_length, const struct settings *s, struct error *err);
void inference_request_clear(struct inference_request *r);

/* The elements of a BYTES tensor, one after the other: *at is 0 before the first. In JSON they are strings. *bytes is
 * borrowed; from JSON it ends with a NUL. Errors: ERR_ARGUMENT: the tensor is malformed. */
enum status inference_next_bytes(const struct inference_tensor *t, size_t *at, const uint8_t **bytes, size_t *size,
                                 struct error *err);
/* All numbers of an FP32 or UINT8 tensor, [elements], as bytes: the numbers, which must lie in 0..255, are rounded.
 * Errors: ERR_ARGUMENT. */
enum status inference_read_pixels(uint8_t *out, const struct inference_tensor *t, struct error *err);

#endif
