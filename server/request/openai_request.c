/* openai_request.c - see openai_request.h. */
#include "server/request/openai_request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/request/generate_request.h"
#include "server/request/prompts.h"
#include "server/request/request_json.h"

/* What was read, before it becomes a request. Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *user, *suffix, *prompt, *logit_bias, *allowed_bytes;
    int64_t max_tokens, n, best_of, logprobs, seed, top_k, timeout_ms; /* best_of 0, logprobs -1: not given */
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    enum field_switch stream, echo, utf8;
    bool include_usage, seeded, shift;
    int32_t priority;
    struct stop_set stops;
};

/* ---- other fields ---------------------------------------------------------------------------------------------- */

static bool read_seed(const json_t *value, void *arg)
{
    struct fields *f = (struct fields *)(void *)((char *)arg - offsetof(struct fields, seed));
    f->seed = json_integer_value(value);
    f->seeded = true;
    return json_is_integer(value);
}

static void expect_seed(char *out, size_t size)
{
    (void)snprintf(out, size, "a whole number");
}

static bool read_stream_options(const json_t *value, void *arg)
{
    bool *include_usage = arg;
    const char *name;
    json_t *option;
    json_object_foreach((json_t *)value, name, option)
    {
        const bool usage = strcmp(name, "include_usage") == 0;
        if (!(usage || strcmp(name, "include_obfuscation") == 0) || !(json_is_boolean(option) || json_is_null(option)))
            return false;
        if (usage)
            *include_usage = json_is_true(option);
    }
    return json_is_object(value);
}

static void expect_stream_options(char *out, size_t size)
{
    (void)snprintf(out, size, "an object with \"include_usage\", true or false");
}

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_WISH_MAX)},
    {"prompt", FIELD_OTHER, AT(prompt), .read = prompts_read, .expected = prompts_expect},
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(0, GENERATE_TOKENS_MAX), .max_set = field_max_tokens},
    {"n", FIELD_INTEGER, AT(n), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"best_of", FIELD_INTEGER, AT(best_of), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"temperature", FIELD_NUMBER, AT(temperature), FIELD_RANGE(0, SAMPLER_TEMPERATURE_MAX)},
    {"top_p", FIELD_NUMBER, AT(top_p), FIELD_RANGE(0, 1)},
    {"top_k", FIELD_INTEGER, AT(top_k), FIELD_RANGE(0, BYTE_VALUES)},
    {"min_p", FIELD_NUMBER, AT(min_p), FIELD_RANGE(0, 1)},
    {"repetition_penalty", FIELD_NUMBER, AT(repetition_penalty), FIELD_RANGE(0, SAMPLER_PENALTY_MAX),
     .exclusive = true},
    {"presence_penalty", FIELD_NUMBER, AT(presence_penalty), FIELD_RANGE(-SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX)},
    {"frequency_penalty", FIELD_NUMBER, AT(frequency_penalty), FIELD_RANGE(-SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX)},
    {"logit_bias", FIELD_OTHER, AT(logit_bias), .read = generate_read_bias, .expected = generate_expect_bias},
    {"allowed_bytes", FIELD_OTHER, AT(allowed_bytes), .read = generate_read_allowed,
     .expected = generate_expect_allowed},
    {"utf8", FIELD_SWITCH, AT(utf8), FIELD_RANGE(0, 0)},
    {"seed", FIELD_OTHER, AT(seed), .read = read_seed, .expected = expect_seed},
    {"stop", FIELD_OTHER, AT(stops), .read = generate_read_stops, .expected = generate_expect_stops},
    {"logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"echo", FIELD_SWITCH, AT(echo), FIELD_RANGE(0, 0)},
    {"stream", FIELD_SWITCH, AT(stream), FIELD_RANGE(0, 0)},
    {"stream_options", FIELD_OTHER, AT(include_usage), .read = read_stream_options, .expected = expect_stream_options},
    {"context_overflow", FIELD_OTHER, AT(shift), .read = generate_read_overflow, .expected = generate_expect_overflow},
    {"priority", FIELD_OTHER, AT(priority), .read = generate_read_priority, .expected = generate_expect_priority},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX), .max_set = field_max_timeout},
    {"suffix", FIELD_TEXT, AT(suffix), FIELD_RANGE(0, GENERATE_PROMPT_MAX)},
    {"user", FIELD_TEXT, AT(user), FIELD_RANGE(0, OPENAI_USER_MAX)},
};
#undef AT
enum { FIELD_COUNT = sizeof table / sizeof table[0] };
const struct field_list openai_fields = {table, FIELD_COUNT};

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* What one field alone does not show, and what is understood but not supported. */
static enum status check(const struct fields *f, struct error *err)
{
    const long long best_of = f->best_of, n = f->n;
    if (best_of != 0 && best_of < n)
        return error_set_param(err, ERR_ARGUMENT, "best_of",
                               "\"best_of\" is %lld and \"n\" is %lld; expected at least as many to choose from",
                               best_of, n);
    if (best_of > n && f->stream == FIELD_TRUE)
        return error_set_param(
            err, ERR_ARGUMENT, "best_of",
            "\"best_of\" is %lld with \"stream\": true; expected %lld, as \"n\": which texts are best "
            "shows when all are written",
            best_of, n);
    if (json_string_length(f->suffix) > 0)
        return error_set_param(err, ERR_ARGUMENT, "suffix",
                               "\"suffix\" is not empty; expected null: the models only continue texts");
    if (f->include_usage && f->stream != FIELD_TRUE)
        return error_set_param(
            err, ERR_ARGUMENT, "stream_options",
            "\"stream_options\" is given for an answer that is not streamed; expected \"stream\": true");
    return OK;
}

static enum status copy_prompts(struct generate_input *in, const json_t *prompt, struct error *err)
{
    struct prompts p;
    if (prompt == NULL) { /* the model's own beginning */
        in->prompt_count = 1;
        return OK;
    }
    const enum status st = prompts_copy(&p, prompt, err);
    if (st != OK)
        return st;
    in->prompt = p.bytes;
    in->prompt_bytes = p.size;
    in->prompt_count = p.count;
    memcpy(in->ends, p.ends, sizeof p.ends);
    return OK;
}

/* What choosing adds to generate_request_check, which does not know of it. */
static enum status check_best_of(const struct openai_request *r, struct error *err)
{
    const struct generate_input *in = &r->in;
    const uint64_t samples = (uint64_t)in->prompt_count * in->n;
    const uint64_t echoed = in->prompt_logprobs ? in->prompt_bytes : 0, bytes = samples * in->max_tokens + echoed;
    if (in->n == r->returned)
        return OK;
    if (samples > GENERATE_SAMPLES_MAX)
        return error_set_param(err, ERR_ARGUMENT, "best_of",
                               "%u prompts with \"best_of\" %u are %llu texts; expected at most %d", in->prompt_count,
                               in->n, (unsigned long long)samples, GENERATE_SAMPLES_MAX);
    if (r->logprobs == 0 && bytes > GENERATE_LOGPROBS_MAX)
        return error_set_param(err, ERR_ARGUMENT, "best_of",
                               "%llu texts of \"max_tokens\" %u to choose from and %llu bytes of prompts to echo are "
                               "%llu bytes; expected at most %d",
                               (unsigned long long)samples, in->max_tokens, (unsigned long long)echoed,
                               (unsigned long long)bytes, GENERATE_LOGPROBS_MAX);
    return OK;
}

static enum status build(struct openai_request *r, const struct fields *f, struct error *err)
{
    struct generate_input *in = &r->in;
    (void)snprintf(r->model, sizeof r->model, "%s", f->model != NULL ? json_string_value(f->model) : "");
    r->echo = f->echo == FIELD_TRUE;
    r->include_usage = f->include_usage;
    r->returned = (uint32_t)f->n;
    r->logprobs = (uint32_t)(f->logprobs + 1);
    in->n = f->best_of > f->n ? (uint32_t)f->best_of : r->returned;
    in->max_tokens = (uint32_t)f->max_tokens;
    in->logprobs = in->n > r->returned && r->logprobs == 0 ? 1 : r->logprobs; /* what is chosen by */
    in->prompt_logprobs = r->echo && in->logprobs > 0;
    in->stream = f->stream == FIELD_TRUE;
    in->stops = f->stops;
    in->shift = f->shift;
    in->priority = f->priority;
    r->timeout_ms = (uint32_t)f->timeout_ms;
    struct sampler_options *o = &in->sampler;
    sampler_options_default(o);
    o->seed = f->seeded ? (uint64_t)f->seed & SEED_MAX : request_draw_seed();
    o->temperature = (float)f->temperature;
    o->top_k = (uint32_t)f->top_k;
    o->top_p = request_positive(f->top_p);
    o->min_p = (float)f->min_p;
    o->repetition_penalty = request_positive(f->repetition_penalty);
    o->presence_penalty = (float)f->presence_penalty;
    o->frequency_penalty = (float)f->frequency_penalty;
    o->utf8 = f->utf8 == FIELD_TRUE;
    if (f->logit_bias != NULL)
        generate_set_bias(o, f->logit_bias);
    if (f->allowed_bytes != NULL)
        generate_set_allowed(o, f->allowed_bytes);
    enum status st = generate_check_sampler(o, err);
    if (st == OK)
        st = copy_prompts(in, f->prompt, err);
    if (st == OK)
        st = check_best_of(r, err);
    return st == OK ? generate_request_check(in, err) : st;
}

enum status openai_request_parse(struct openai_request *ret, const uint8_t *body, size_t size, const struct settings *s,
                                 struct error *err)
{
    const int64_t most = s->max_tokens_max;
    struct sampler_options defaults;
    struct openai_request r = {0};
    json_t *object = NULL;
    enum status st = request_json_parse_bytes(&object, body, size, err);
    if (st != OK)
        return st;
    sampler_options_default(&defaults);
    struct fields f = {
        .max_tokens = most < OPENAI_TOKENS_DEFAULT ? most : OPENAI_TOKENS_DEFAULT,
        .timeout_ms = s->timeout_ms,
        .n = 1,
        .logprobs = -1,
        .shift = true,
        .top_k = defaults.top_k,
        .temperature = (double)defaults.temperature,
        .top_p = (double)defaults.top_p,
        .min_p = (double)defaults.min_p,
        .repetition_penalty = (double)defaults.repetition_penalty,
    };
    st = fields_read(table, FIELD_COUNT, object, s, &f, err);
    if (st == OK)
        st = check(&f, err);
    if (st == OK)
        st = build(&r, &f, err);
    json_decref(object);
    if (st != OK) {
        openai_request_clear(&r);
        return st;
    }
    *ret = r;
    return OK;
}

void openai_request_clear(struct openai_request *r)
{
    free(r->in.prompt);
    *r = (struct openai_request){0};
}
