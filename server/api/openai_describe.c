/* openai_describe.c - see openai_describe.h. Shapes are those of OpenAI's reference, with every field that its clients
 * may read. */
#include "server/api/openai_describe.h"

#include <math.h>
#include <stdio.h>

#include "config/json_memory.h"
#include "server/core/text.h"

enum { TOKEN_MAX = 16 };

/* What a chat has in place of "text". */
static json_t *describe_message(enum openai_part part, const char *text, size_t size)
{
    switch (part) {
    case OPENAI_WHOLE:
    case OPENAI_BEGIN:
        return json_pack("{s:{s:s, s:o, s:n}}", part == OPENAI_WHOLE ? "message" : "delta", "role", "assistant",
                         "content", json_stringn(text, size), "refusal");
    case OPENAI_PIECE:
        return json_pack("{s:{s:o}}", "delta", "content", json_stringn(text, size));
    case OPENAI_END:
        break;
    }
    return json_pack("{s:{}}", "delta");
}

json_t *openai_describe_choice(bool is_chat, enum openai_part part, const char *text, size_t size, uint32_t index,
                               json_t *told, const char *finish)
{
    json_t *choice =
        is_chat ? describe_message(part, text, size) : json_pack("{s:o}", "text", json_stringn(text, size));
    json_put(choice, "index", json_integer(index));
    json_put(choice, "logprobs", told != NULL ? json_incref(told) : json_null());
    json_put(choice, "finish_reason", finish != NULL ? json_string(finish) : json_null());
    return choice;
}

/* ---- log probabilities ------------------------------------------------------------------------------------------ */

/* A byte's string: its character where that is ASCII, else bytes:\xNN, so that all 256 differ. */
static size_t name_token(char out[TOKEN_MAX], uint8_t byte)
{
    if (byte >= 0x80)
        return (size_t)snprintf(out, TOKEN_MAX, "bytes:\\x%02x", byte);
    out[0] = (char)byte;
    return 1;
}

json_t *openai_create_told(bool is_chat, bool likeliest)
{
    if (is_chat)
        return json_pack("{s:[], s:n}", "content", "refusal");
    return json_pack("{s:[], s:[], s:o, s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     likeliest ? json_array() : json_null(), "text_offset");
}

static int set_token(json_t *to, uint8_t byte, float logprob)
{
    char token[TOKEN_MAX];
    const size_t size = name_token(token, byte);
    return json_object_setn_new_nocheck(to, token, size, json_real((double)logprob));
}

/* The likeliest bytes, and the one that was chosen. */
static json_t *describe_top(const float *logprobs, const uint8_t *likeliest, size_t numbers, uint8_t byte)
{
    json_t *top = json_object();
    int failed = 0;
    for (size_t k = 1; k < numbers; k++)
        failed |= set_token(top, likeliest[k - 1], logprobs[k]);
    failed |= set_token(top, byte, logprobs[0]);
    return json_unless(failed != 0, top);
}

static void tell_completion(json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    json_t *tokens = json_object_get(told, "tokens"), *token_logprobs = json_object_get(told, "token_logprobs"),
           *top_logprobs = json_object_get(told, "top_logprobs"), *text_offset = json_object_get(told, "text_offset");
    size_t left = 0; /* bytes of the character that the next byte belongs to */
    for (size_t i = 0; i < p->size; i++) {
        char token[TOKEN_MAX];
        const size_t size = name_token(token, p->bytes[i]);
        const float *logprobs = p->logprobs + i * numbers;
        const bool known = !isnan(logprobs[0]);
        json_append(tokens, json_stringn_nocheck(token, size));
        json_append(token_logprobs, known ? json_real((double)logprobs[0]) : json_null());
        json_append(text_offset, json_integer(*characters));
        if (numbers > 1)
            json_append(top_logprobs,
                        known ? describe_top(logprobs, p->likeliest + i * (numbers - 1), numbers, p->bytes[i])
                              : json_null());
        left = left > 0 ? left : utf8_first(p->bytes + i, p->size - i);
        *characters += --left == 0;
    }
}

static json_t *describe_token(uint8_t byte, float logprob)
{
    char token[TOKEN_MAX];
    const size_t size = name_token(token, byte);
    return json_pack("{s:o, s:f, s:[i]}", "token", json_stringn_nocheck(token, size), "logprob", (double)logprob,
                     "bytes", (int)byte);
}

static void tell_chat(json_t *told, const struct text_piece *p, size_t numbers)
{
    json_t *content = json_object_get(told, "content");
    for (size_t i = 0; i < p->size; i++) {
        const float *logprobs = p->logprobs + i * numbers;
        json_t *token = describe_token(p->bytes[i], logprobs[0]), *top = json_array();
        for (size_t k = 1; k < numbers; k++)
            json_append(top, describe_token(p->likeliest[i * (numbers - 1) + k - 1], logprobs[k]));
        json_put(token, "top_logprobs", top);
        json_append(content, token);
    }
}

void openai_tell(bool is_chat, json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    if (is_chat)
        tell_chat(told, p, numbers);
    else
        tell_completion(told, p, numbers, characters);
}
