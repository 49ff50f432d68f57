/* inference_request.h - the body of an Open Inference Protocol request: a JSON head followed by the tensors that the
 * head says are binary. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_REQUEST_H
#define SERVER_API_INFERENCE_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
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

struct settings;

#define INFERENCE_TENSORS_MAX 4 /* a model has one input and two outputs */

struct inference_output {
    const char *name;
    bool binary;
    uint32_t classification; /* this many of the most probable labels instead of numbers; 0: numbers */
};

struct inference_request {
    json_t *head;
    const char *id;      /* NULL: none */
    json_t *parameters;  /* for the model, without the protocol's own; owned by the request */
    uint32_t timeout_ms; /* 0: not given */
    int64_t priority;    /* 0: the default; from 1 on, lower is more urgent */
    struct inference_tensor inputs[INFERENCE_TENSORS_MAX];
    uint32_t input_count;
    struct inference_output outputs[INFERENCE_TENSORS_MAX];
    uint32_t output_count; /* 0: all of them */
    bool binary_outputs;   /* the default for outputs that do not say */
};

/* head_length: the value of Inference-Header-Content-Length; NULL: the body is JSON alone. The body is borrowed. *ret
 * is set only on OK: inference_request_clear. Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status inference_request_parse(struct inference_request *ret, const uint8_t *body, size_t size,
                                    const char *head_length, const struct settings *s, struct error *err);
void inference_request_clear(struct inference_request *r);

#endif
