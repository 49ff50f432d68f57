/* openai_chat.c - OpenAI's POST /v1/chat/completions, for models that have a chat_template: it makes a prompt of the
 * messages, and the rest is as for /v1/completions. HTTP threads. */
#include "server/api/route_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/openai_answer.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/service.h"
#include "server/models/hosted_model.h"
#include "weights/chat_template.h"

enum { NUMBER_MORE_BYTES = 40 }; /* of a log probability as JSON, beyond those in /v1/completions */

/* ---- the shape of answers --------------------------------------------------------------------------------------- */

static json_t *describe_choice(enum openai_part part, const char *text, size_t size)
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

static json_t *create_told(bool likeliest)
{
    (void)likeliest;
    return json_pack("{s:[], s:n}", "content", "refusal");
}

static json_t *describe_token(uint8_t byte, float logprob)
{
    char token[OPENAI_TOKEN_MAX];
    const size_t size = openai_name_token(token, byte);
    return json_pack("{s:o, s:f, s:[i]}", "token", json_stringn_nocheck(token, size), "logprob", (double)logprob,
                     "bytes", (int)byte);
}

static bool tell(json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    json_t *content = json_object_get(told, "content");
    int failed = 0;
    (void)characters;
    for (size_t i = 0; i < p->size && failed == 0; i++) {
        const float *logprobs = p->logprobs + i * numbers;
        json_t *token = describe_token(p->bytes[i], logprobs[0]), *top = json_array();
        for (size_t k = 1; k < numbers; k++)
            failed |= json_array_append_new(top, describe_token(p->likeliest[i * (numbers - 1) + k - 1], logprobs[k]));
        failed |= json_object_set_new(token, "top_logprobs", top);
        failed |= json_array_append_new(content, token);
    }
    return failed == 0;
}

static const struct openai_form form = {
    .id = "chatcmpl-",
    .whole = "chat.completion",
    .chunk = "chat.completion.chunk",
    .begins = true,
    .choice = describe_choice,
    .create_told = create_told,
    .tell = tell,
};

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* Make the prompt of the messages, as the model was taught to read them. */
static enum status write_prompt(struct openai_request *r, const struct hosted_model *e, struct error *err)
{
    const struct chat_template *t = &e->model->config.chat;
    struct generate_input *in = &r->in;
    if (!chat_template_exists(t))
        return error_set_param(
            err, ERR_NOT_FOUND, "model",
            "the model \"%s\" continues a text; it has no chat_template, and so answers no messages: "
            "POST the text to /v1/completions or /generate",
            e->model->name);
    const size_t size = chat_template_write(t, r->messages.list, r->messages.count, NULL);
    if (size > GENERATE_PROMPT_MAX)
        return error_set_param(err, ERR_ARGUMENT, "messages",
                               "the \"messages\" are a prompt of %zu bytes by the chat_template of \"%s\"; expected at "
                               "most %d",
                               size, e->model->name, GENERATE_PROMPT_MAX);
    in->prompt = malloc(size);
    if (in->prompt == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the prompt; try again later");
    in->prompt_bytes = chat_template_write(t, r->messages.list, r->messages.count, in->prompt);
    in->ends[0] = in->prompt_bytes;
    for (uint32_t i = 0; i < t->stop_count; i++) {
        const bool fits = stop_set_add(&in->stops, t->stops[i], strlen(t->stops[i]));
        assert(fits);
        (void)fits;
    }
    return OK;
}

void api_openai_chat(struct exchange *x)
{
    const struct settings *s = service_of(x)->settings;
    struct openai_request r = {0};
    struct hosted_model *e;
    struct error err;
    struct job *j = NULL;
    if (request_job_refuse_if_full(x))
        return;
    enum status st = openai_request_parse_chat(&r, x->body.bytes, x->body.size, s, &err);
    if (st == OK)
        st = request_model_acquire(x, r.model[0] != '\0' ? r.model : NULL, TASK_TEXT_GENERATION, &e, &err);
    if (st == OK)
        st = write_prompt(&r, e, &err);
    if (st == OK)
        st = openai_answer_prepare(x, &form, &r, e, &j, &err);
    if (st == OK && !r.in.stream)
        j->answer_bytes += (size_t)r.in.n * r.in.max_tokens * r.in.logprobs * NUMBER_MORE_BYTES;
    request_job_submit_or_refuse(x, st, &err, j, r.timeout_ms,
                                 r.in.stream ? openai_answer_stream : openai_answer_whole);
    openai_request_clear(&r);
}
