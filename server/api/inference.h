/* inference.h - what the files of the Open Inference Protocol share: names of tensors, and how a path names a
 * model. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_H
#define SERVER_API_INFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/request.h"
#include "weights/model_config.h"

struct hosted_model;

/* Inputs of a picture classifier: files, or numbers from 0 to 255 at the trained size, [n, height, width, 3] or
 * [n, 3, height, width]; exactly one of the two. */
#define INFERENCE_IMAGE "image"
#define INFERENCE_PIXELS "pixels"
/* Input of a text classifier, and output of a generator. */
#define INFERENCE_TEXT "text"
/* Input of a generator. */
#define INFERENCE_PROMPT "prompt"

#define INFERENCE_LOGITS "logits"
#define INFERENCE_PROBABILITIES "probabilities"
#define INFERENCE_FINISH_REASON "finish_reason"

enum { INFERENCE_INPUTS_MAX = 2, INFERENCE_OUTPUTS = 2, INFERENCE_VERSION_MAX = 16 };

/* What a request gives, and what an answer has. */
struct inference_tensor_info {
    const char *name;
    bool is_bytes; /* else FP32 */
    uint32_t rank;
    int shape[4]; /* the first is n, which may be any: -1 */
};
/* Returns how many there are; 0: the protocol does not serve such models. */
size_t inference_inputs(struct inference_tensor_info out[INFERENCE_INPUTS_MAX], const struct model_config *c);
size_t inference_outputs(struct inference_tensor_info out[INFERENCE_OUTPUTS], const struct model_config *c);
/* [INFERENCE_OUTPUTS]; NULL: the protocol does not serve such models. */
const char *const *inference_output_names(enum model_task task);

/* The model that the path names, which the request then holds (request_model_acquire). Errors: also ERR_NOT_FOUND, it
 * is not there in that version. */
enum status inference_model(struct hosted_model **ret, struct request *x, struct error *err);
/* A model without versions, 0, has version 1. */
void inference_version(char out[INFERENCE_VERSION_MAX], uint32_t version);

#endif
