/* inference_reply.h - the answer to an Open Inference Protocol request: a JSON head followed by the tensors that are
 * wanted as binary. HTTP threads; no state. */
#ifndef SERVER_API_INFERENCE_REPLY_H
#define SERVER_API_INFERENCE_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/request/request.h"

/* `failed`: memory lacked for what does not go into the JSON, which json_print finds out by itself. */
struct inference_reply {
    json_t *outputs;
    FILE *binary; /* into bytes */
    char *bytes;
    size_t size;
    bool failed;
};

void inference_reply_begin(struct inference_reply *r);
/* Add an output: numbers [rows, columns]; or texts, [rows] or, with columns > 0, [rows, columns]. */
void inference_reply_add_numbers(struct inference_reply *r, const char *name, bool binary, const float *values,
                                 size_t rows, size_t columns);
struct inference_text {
    const char *text; /* valid UTF-8, for JSON */
    size_t text_size;
    const void *bytes; /* the exact bytes, for binary */
    size_t size;
};
void inference_reply_add_texts(struct inference_reply *r, const char *name, bool binary,
                               const struct inference_text *texts, size_t rows, size_t columns);
/* Answer and clear. id may be NULL. Returns OK. */
enum status inference_reply_send(struct inference_reply *r, struct request *x, const char *model, const char *version,
                                 const char *id);

#endif
