/* generate_describe.h - parts of what POST /generate says of a text, as JSON, whole or in events. HTTP threads; no
 * state. */
#ifndef SERVER_API_GENERATE_DESCRIBE_H
#define SERVER_API_GENERATE_DESCRIBE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "server/api/text_reader.h"

struct job;

/* Of a finished job: how many bytes there were. NULL for want of memory, as of all that follow. */
json_t *generate_describe_usage(const struct job *j);
/* The state that its request asked for, in base64; null if there is none (struct generate_job's has_saved). */
json_t *generate_describe_state(const struct job *j);
/* Append the log probabilities of a piece's bytes to `list`, `numbers` of each. 0, or another number for want of
 * memory. */
int generate_append_logprobs(json_t *list, const struct text_piece *p, size_t numbers);

#endif
