/* openai_request.c - see openai_request.h. */
#include "server/api/openai_request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/api/generate_request.h"
#include "server/api/prompts.h"
#include "server/fields/request_json.h"

/* What was read, before it becomes a request. Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *suffix, *prompt, *messages;
    struct sampler_fields sampler;
    int64_t n, best_of, logprobs, seed, timeout_ms; /* best_of and timeout_ms 0, logprobs -1: not given */
    int64_t max_tokens, max_completion_tokens;      /* 0: not given to a chat */
    enum field_switch stream, echo, tells_logprobs;
    bool include_usage, seeded;
    enum context_overflow overflow;
    int32_t priority;
    struct stop_set stops;
    const json_t *ignored; /* what is understood and not done is taken where it asks for nothing */
    int ignored_word;
    enum field_switch ignored_switch;
};

/* ---- other fields ---------------------------------------------------------------------------------------------- */

static bool read_seed(const json_t *value, void *arg)
{
    struct fields *f = (struct fields *)(void *)((char *)arg - offsetof(struct fields, seed));
    f->seed = json_integer_value(value);
    f->seeded = true;
    return json_is_integer(value);
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

/* ---- what a chat alone has ------------------------------------------------------------------------------------- */

#define CHAT_STOPS_EXPECTED                                                                                \
    "a string, or a list of at most " FIELD_DIGITS(CHAT_STOPS_MAX) " strings, each of 1 to " FIELD_DIGITS( \
        GENERATE_STOP_BYTES_MAX) " bytes"
static bool read_chat_stops(const json_t *value, void *arg)
{
    const struct stop_set *to = arg;
    return generate_read_stops(value, arg) && to->count <= CHAT_STOPS_MAX;
}

static bool is_text_format(const json_t *value, void *to)
{
    const json_t *type = json_object_get(value, "type");
    (void)to;
    return json_object_size(value) == 1 && json_is_string(type) && strcmp(json_string_value(type), "text") == 0;
}

static bool is_text_alone(const json_t *value, void *to)
{
    const json_t *first = json_array_get(value, 0);
    (void)to;
    return json_array_size(value) == 1 && json_is_string(first) && strcmp(json_string_value(first), "text") == 0;
}

static bool is_false(const json_t *value, void *to)
{
    (void)to;
    return json_is_false(value);
}

/* ---- the tables ------------------------------------------------------------------------------------------------- */

_Static_assert(CHAT_STOPS_MAX + MODEL_CHAT_STOPS_MAX <= GENERATE_STOPS_MAX, "a chat's stop strings have room");

#define AT(member) .offset = offsetof(struct fields, member)
#define ROW(name, kind, member, ...) {name, kind, AT(member), __VA_ARGS__},
#define NOT_DONE(name, read_it, expected_it)                        \
    {                                                               \
        name, FIELD_OTHER, .read = (read_it), .what = (expected_it) \
    }
/* The fields that both APIs have, but for the model, which comes first: errors list them in this order. What OpenAI's
 * clients add of their own accord and means nothing here comes last. */
#define COMMON(X)                                                                                    \
    X("n", FIELD_INTEGER, n, FIELD_RANGE(1, GENERATE_SAMPLES_MAX))                                   \
    X("temperature", FIELD_NUMBER, sampler.temperature, FIELD_RANGE(0, SAMPLER_TEMPERATURE_MAX))     \
    X("top_p", FIELD_NUMBER, sampler.top_p, FIELD_RANGE(0, 1))                                       \
    GENERATE_SAMPLER_FIELDS(X)                                                                       \
    GENERATE_BYTE_FIELDS(X)                                                                          \
    X("seed", FIELD_OTHER, seed, .read = read_seed, .what = "a whole number from -2^63 to 2^63 - 1") \
    X("stream", FIELD_SWITCH, stream, FIELD_RANGE(0, 0))                                             \
    X("stream_options", FIELD_OTHER, include_usage, .read = read_stream_options,                     \
      .what = "an object with \"include_usage\", true or false")                                     \
    GENERATE_JOB_FIELDS(X)                                                                           \
    X("user", FIELD_TEXT, ignored, FIELD_RANGE(0, OPENAI_USER_MAX))
#define MODEL                                                         \
    {                                                                 \
        "model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX) \
    }
#define IGNORED                                                                             \
    {"metadata", FIELD_OBJECT, AT(ignored), .what = "null or an object, which is ignored"}, \
        NOT_DONE("store", is_false, "null or false: nothing is stored here"),               \
        {"service_tier", FIELD_WORD, AT(ignored_word), .words = {"auto", "default"},        \
         .what = "null, \"auto\" or \"default\": there are no others here"},                \
        {"safety_identifier", FIELD_TEXT, AT(ignored), FIELD_RANGE(0, OPENAI_USER_MAX)},    \
    {                                                                                       \
        "prompt_cache_key", FIELD_TEXT, AT(ignored), FIELD_RANGE(0, OPENAI_USER_MAX)        \
    }
static const struct field table[] = {
    MODEL,
    {"prompt", FIELD_OTHER, AT(prompt), .read = prompts_read, .what = PROMPTS_EXPECTED},
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(0, GENERATE_TOKENS_MAX),
     .max_setting = offsetof(struct settings, max_tokens_max)},
    {"best_of", FIELD_INTEGER, AT(best_of), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"stop", FIELD_OTHER, AT(stops), .read = generate_read_stops, .what = GENERATE_STOPS_EXPECTED},
    {"logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"echo", FIELD_SWITCH, AT(echo), FIELD_RANGE(0, 0)},
    {"suffix", FIELD_TEXT, AT(suffix), FIELD_RANGE(0, GENERATE_PROMPT_MAX)},
    COMMON(ROW) IGNORED};
static const struct field chat_table[] = {
    MODEL,
    {"messages", FIELD_LIST, .required = true, AT(messages), FIELD_RANGE(1, CHAT_MESSAGES_MAX),
     .what = CHAT_MESSAGES_EXPECTED},
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(1, GENERATE_TOKENS_MAX),
     .max_setting = offsetof(struct settings, max_tokens_max)},
    {"max_completion_tokens", FIELD_INTEGER, AT(max_completion_tokens), FIELD_RANGE(1, GENERATE_TOKENS_MAX),
     .max_setting = offsetof(struct settings, max_tokens_max)},
    {"stop", FIELD_OTHER, AT(stops), .read = read_chat_stops, .what = CHAT_STOPS_EXPECTED},
    {"logprobs", FIELD_SWITCH, AT(tells_logprobs), FIELD_RANGE(0, 0)},
    {"top_logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"tools", FIELD_LIST, AT(ignored), .what = "null or an empty list: no tools are called here, the answer is text"},
    {"tool_choice", FIELD_WORD, AT(ignored_word), .words = {"none", "auto"}, /* where there are none, that is none */
     .what = "null, \"none\" or \"auto\": no tools are called here"},
    {"functions", FIELD_LIST, AT(ignored),
     .what = "null or an empty list: no functions are called here, the answer is text"},
    {"function_call", FIELD_WORD, AT(ignored_word), .words = {"none", "auto"},
     .what = "null, \"none\" or \"auto\": no functions are called here"},
    NOT_DONE("response_format", is_text_format, "null or {\"type\": \"text\"}: answers are held to no other form"),
    NOT_DONE("modalities", is_text_alone, "null or [\"text\"]: the answer is text"),
    {"audio", FIELD_WORD, AT(ignored_word), .what = "null: the answer is text"},
    {"parallel_tool_calls", FIELD_SWITCH, AT(ignored_switch), FIELD_RANGE(0, 0)},
    COMMON(ROW) IGNORED};
#undef MODEL
#undef IGNORED
#undef NOT_DONE
#undef COMMON
#undef ROW
#undef AT
const struct field_list openai_fields = FIELDS_OF(table);
const struct field_list chat_fields = FIELDS_OF(chat_table);

/* ---- the request ----------------------------------------------------------------------------------------------- */

static enum status check_stream(const struct fields *f, struct error *err)
{
    if (f->include_usage && f->stream != FIELD_TRUE)
        return error_set_param(
            err, ERR_ARGUMENT, "stream_options",
            "\"stream_options\" is given for an answer that is not streamed; expected \"stream\": true");
    return OK;
}

/* What one field alone does not show, and what is understood but not supported. */
static enum status check_completion(const struct fields *f, struct error *err)
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
    return OK;
}

/* The same of a chat; f->max_tokens becomes what was asked for by either name, or `otherwise`. */
static enum status check_chat(struct fields *f, int64_t otherwise, struct error *err)
{
    const long long older = f->max_tokens, newer = f->max_completion_tokens, top = f->logprobs;
    if (older != 0 && newer != 0 && older != newer)
        return error_set_param(err, ERR_ARGUMENT, "max_tokens",
                               "\"max_tokens\" is %lld and \"max_completion_tokens\" is %lld; expected one of them: "
                               "they are two names of the same",
                               older, newer);
    if (top >= 0 && f->tells_logprobs != FIELD_TRUE)
        return error_set_param(err, ERR_ARGUMENT, "top_logprobs",
                               "\"top_logprobs\" is %lld without \"logprobs\"; expected \"logprobs\": true", top);
    f->max_tokens = newer != 0 ? newer : older != 0 ? older : otherwise;
    if (top < 0 && f->tells_logprobs == FIELD_TRUE)
        f->logprobs = 0;
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
    in->shift = f->overflow == OVERFLOW_SHIFT;
    in->refuses = f->overflow == OVERFLOW_REFUSE;
    in->priority = f->priority;
    r->timeout_ms = (uint32_t)f->timeout_ms;
    sampler_options_default(&in->sampler);
    generate_set_sampler(&in->sampler, &f->sampler);
    in->sampler.seed = f->seeded ? (uint64_t)f->seed : request_draw_seed();
    return generate_check_sampler(&in->sampler, err);
}

static enum status build_completion(struct openai_request *r, const struct fields *f, struct error *err)
{
    enum status st = build(r, f, err);
    if (st == OK)
        st = copy_prompts(&r->in, f->prompt, err);
    if (st == OK)
        st = check_best_of(r, err);
    return st == OK ? generate_request_check(&r->in, err) : st;
}

static enum status build_chat(struct openai_request *r, const struct fields *f, struct error *err)
{
    enum status st = build(r, f, err);
    r->in.prompt_count = 1;
    if (st == OK)
        st = generate_request_check(&r->in, err);
    return st == OK ? chat_messages_read(&r->messages, f->messages, err) : st;
}

static enum status read_object(struct openai_request *r, bool is_chat, json_t *object, const struct settings *s,
                               struct error *err)
{
    const int64_t most = s->max_tokens_max;
    const struct field_list *list = is_chat ? &chat_fields : &openai_fields;
    struct fields f = {
        .max_tokens = is_chat                        ? 0
                      : most < OPENAI_TOKENS_DEFAULT ? most
                                                     : OPENAI_TOKENS_DEFAULT,
        .n = 1,
        .logprobs = -1,
        .sampler = SAMPLER_FIELDS_UNSAID,
    };
    enum status st = fields_read(list, object, s, &f, err);
    if (st == OK)
        st = is_chat ? check_chat(&f, s->max_tokens, err) : check_completion(&f, err);
    if (st == OK)
        st = check_stream(&f, err);
    if (st == OK)
        st = is_chat ? build_chat(r, &f, err) : build_completion(r, &f, err);
    return st;
}

enum status openai_request_parse(struct openai_request *ret, bool is_chat, const uint8_t *body, size_t size,
                                 const struct settings *s, struct error *err)
{
    struct openai_request r = {0};
    json_t *object = NULL;
    enum status st = request_json_parse_bytes(&object, body, size, err);
    if (st == OK)
        st = read_object(&r, is_chat, object, s, err);
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
    chat_messages_clear(&r->messages);
    *r = (struct openai_request){0};
}
