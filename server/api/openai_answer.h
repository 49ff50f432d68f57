/* openai_answer.h - the texts of a job as OpenAI's endpoints answer them, whole or in chunks. A form says in which
 * shape: /v1/completions and /v1/chat/completions have one each. HTTP threads. */
#ifndef SERVER_API_OPENAI_ANSWER_H
#define SERVER_API_OPENAI_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/api/text_reader.h"
#include "server/http/http.h"
#include "server/request/openai_request.h"

struct hosted_model;
struct job;

/* What a choice carries: a whole text; in a stream its beginning, without text, a piece of it, or its end. */
enum openai_part { OPENAI_WHOLE, OPENAI_BEGIN, OPENAI_PIECE, OPENAI_END };

struct openai_form {
    const char *id;            /* what an answer's id begins with */
    const char *whole, *chunk; /* its "object", and that of a chunk */
    bool begins;               /* each text of a stream has a chunk before its first piece */
    /* A choice with a text [size] of valid UTF-8, to which index, logprobs and finish_reason are added. NULL for want
     * of memory. */
    json_t *(*choice)(enum openai_part part, const char *text, size_t size);
    /* An object for the log probabilities of a text, with those of the likeliest bytes or without. NULL for want of
     * memory. */
    json_t *(*create_told)(bool likeliest);
    /* Append a piece's bytes to it; p->logprobs has `numbers` > 0 of each. *characters: the number of characters in the
     * text before the piece; becomes that after it. False for want of memory. */
    bool (*tell)(json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters);
};

/* A byte's string: its character where that is ASCII, else bytes:\xNN, so that all 256 differ. */
#define OPENAI_TOKEN_MAX 16
size_t openai_name_token(char out[OPENAI_TOKEN_MAX], uint8_t byte);

/* Make the job of a request that has its prompt, which the job takes, and remember how to answer it. Errors:
 * ERR_NOMEM; *ret may be set despite it. */
enum status openai_answer_prepare(struct exchange *x, const struct openai_form *form, struct openai_request *r,
                                  struct hosted_model *e, struct job **ret, struct error *err);
/* What to go on with once that job is ready. */
http_handler openai_answer_whole, openai_answer_stream;

#endif
