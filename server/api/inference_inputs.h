/* inference_inputs.h - the input tensor of an Open Inference Protocol request as what a job takes: pictures, texts,
 * prompts. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_INPUTS_H
#define SERVER_API_INFERENCE_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/api/inference_request.h"
#include "server/operation/generate.h"
#include "server/operation/picture_inputs.h"

/* The elements of a BYTES tensor, one after the other: *at is 0 before the first. In JSON they are strings. *bytes is
 * borrowed; from JSON it ends with a NUL. Errors: ERR_ARGUMENT: the tensor is malformed. */
enum status inference_next_bytes(const struct inference_tensor *t, size_t *at, const uint8_t **bytes, size_t *size,
                                 struct error *err);
/* All numbers of an FP32 or UINT8 tensor, [elements], as bytes: the numbers, which must lie in 0..255, are rounded.
 * Errors: ERR_ARGUMENT, also where all lie in 0..1 and not all are whole. */
enum status inference_read_pixels(uint8_t *out, const struct inference_tensor *t, struct error *err);

/* Errors of these: ERR_ARGUMENT, ERR_NOMEM. */

/* Add each element of a BYTES tensor: a text, or a picture's file, in JSON as base64. `room`: the body, whose text is
 * the JSON's by now; decoded files are put there. Errors: those of picture_inputs_add_file too. */
enum status inference_add_elements(struct picture_inputs *r, const struct inference_tensor *t, bool is_text,
                                   uint8_t *room, struct error *err);
/* Add each picture of a tensor of pixels, which must have the model's height and width. */
enum status inference_add_pixels(struct picture_inputs *r, uint32_t height, uint32_t width,
                                 const struct inference_tensor *t, struct error *err);
/* Each element of a BYTES tensor is a prompt. in->prompt is malloc'd, also where an error follows. */
enum status inference_read_prompts(struct generate_input *in, const struct inference_tensor *t, struct error *err);

#endif
