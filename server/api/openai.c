/* openai.c - OpenAI's POST /v1/completions. HTTP threads. */
#include "server/api/route_table.h"

#include <math.h>

#include "config/json_memory.h"
#include "server/api/openai_answer.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/service.h"
#include "server/core/text.h"

/* ---- the shape of answers --------------------------------------------------------------------------------------- */

static json_t *describe_choice(enum openai_part part, const char *text, size_t size)
{
    (void)part;
    return json_pack("{s:o}", "text", json_stringn(text, size));
}

static json_t *create_told(bool likeliest)
{
    return json_pack("{s:[], s:[], s:o, s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     likeliest ? json_array() : json_null(), "text_offset");
}

static int set_token(json_t *to, uint8_t byte, float logprob)
{
    char token[OPENAI_TOKEN_MAX];
    const size_t size = openai_name_token(token, byte);
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

static bool tell(json_t *told, const struct text_piece *p, size_t numbers, json_int_t *characters)
{
    json_t *tokens = json_object_get(told, "tokens"), *token_logprobs = json_object_get(told, "token_logprobs"),
           *top_logprobs = json_object_get(told, "top_logprobs"), *text_offset = json_object_get(told, "text_offset");
    size_t left = 0; /* bytes of the character that the next byte belongs to */
    int failed = 0;
    for (size_t i = 0; i < p->size && failed == 0; i++) {
        char token[OPENAI_TOKEN_MAX];
        const size_t size = openai_name_token(token, p->bytes[i]);
        const float *logprobs = p->logprobs + i * numbers;
        const bool known = !isnan(logprobs[0]);
        failed |= json_array_append_new(tokens, json_stringn_nocheck(token, size));
        failed |= json_array_append_new(token_logprobs, known ? json_real((double)logprobs[0]) : json_null());
        failed |= json_array_append_new(text_offset, json_integer(*characters));
        if (numbers > 1)
            failed |= json_array_append_new(
                top_logprobs,
                known ? describe_top(logprobs, p->likeliest + i * (numbers - 1), numbers, p->bytes[i]) : json_null());
        left = left > 0 ? left : utf8_first(p->bytes + i, p->size - i);
        *characters += --left == 0;
    }
    return failed == 0;
}

static const struct openai_form form = {
    .id = "cmpl-",
    .whole = "text_completion",
    .chunk = "text_completion",
    .choice = describe_choice,
    .create_told = create_told,
    .tell = tell,
};

/* ---- the request ------------------------------------------------------------------------------------------------ */

void api_openai_completions(struct exchange *x)
{
    const struct settings *s = service_of(x)->settings;
    struct openai_request r = {0};
    struct hosted_model *e;
    struct error err;
    struct job *j = NULL;
    if (request_job_refuse_if_full(x))
        return;
    enum status st = openai_request_parse(&r, x->body.bytes, x->body.size, s, &err);
    if (st == OK)
        st = request_model_acquire(x, r.model[0] != '\0' ? r.model : NULL, TASK_TEXT_GENERATION, &e, &err);
    if (st == OK)
        st = openai_answer_prepare(x, &form, &r, e, &j, &err);
    request_job_submit_or_refuse(x, st, &err, j, r.timeout_ms,
                                 r.in.stream ? openai_answer_stream : openai_answer_whole);
    openai_request_clear(&r);
}
