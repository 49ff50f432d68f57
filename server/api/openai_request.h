/* openai_request.h - the JSON bodies of OpenAI's POST /v1/completions and /v1/chat/completions -> checked values. HTTP
 * threads; no state. */
#ifndef SERVER_API_OPENAI_REQUEST_H
#define SERVER_API_OPENAI_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/api/chat_messages.h"
#include "server/fields/fields.h"
#include "server/operation/generate.h"

struct settings;

extern const struct field_list openai_fields, chat_fields; /* openai_request_parse's, and those of a chat */

struct openai_request {
    char model[MODEL_REF_MAX + 1]; /* in registry_acquire's form; empty: none was named */
    struct generate_input in;      /* in.prompt is owned until a job takes it; in.n is best_of */
    uint32_t returned;             /* n: of the in.n texts of a prompt, the best */
    uint32_t logprobs;             /* as in.logprobs, of those that are told */
    bool echo, include_usage;
    uint32_t timeout_ms;           /* 0: not given */
    struct chat_messages messages; /* of a chat: in.prompt is to be made of them, by the model's template */
};

/* Like generate_request_parse: a field of the wrong kind or out of range, or one that asks for what this server does
 * not support, is ERR_ARGUMENT naming it; null is the same as leaving a field out. In a chat's
 * in.prompt is empty. *ret is set only on OK; clear with openai_request_clear. Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status openai_request_parse(struct openai_request *ret, bool is_chat, const uint8_t *body, size_t size,
                                 const struct settings *s, struct error *err);
void openai_request_clear(struct openai_request *r); /* zeroed is fine */

#endif
