/* inference_inputs.h - the input tensor of an Open Inference Protocol request as what a job takes: pictures, texts,
 * prompts. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_INPUTS_H
#define SERVER_API_INFERENCE_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "server/api/inference_tensor.h"
#include "server/operation/generate.h"
#include "server/operation/picture_inputs.h"

/* Errors of all: ERR_ARGUMENT, ERR_NOMEM. */

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
