/* openai_describe.h - a text of a job as OpenAI's endpoints describe it, in the shape of /v1/completions or, with
 * is_chat, of /v1/chat/completions. HTTP threads; no state. */
#ifndef SERVER_API_OPENAI_DESCRIBE_H
#define SERVER_API_OPENAI_DESCRIBE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/operation/text_reader.h"

/* What a choice carries: a whole text; in a stream its beginning, without text, a piece of it, or its end. */
enum openai_part { OPENAI_WHOLE, OPENAI_BEGIN, OPENAI_PIECE, OPENAI_END };

/* A choice with a text [size] of valid UTF-8. told: NULL: no log probabilities; finish: NULL while the text goes on.
 * NULL for want of memory, as of what follows. */
json_t *openai_describe_choice(bool is_chat, enum openai_part part, const char *text, size_t size, uint32_t index,
                               json_t *told, const char *finish);
/* An object for the log probabilities of a text, with those of the likeliest bytes or without. */
json_t *openai_create_told(bool is_chat, bool likeliest);
/* Append a piece's bytes to it; p->logprobs has `numbers` > 0 of each. *characters: the number of characters in the
 * text before the piece; becomes that after it. */
void openai_tell(bool is_chat, json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters);

#endif
