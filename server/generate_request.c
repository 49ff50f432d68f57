/* generate_request.c - see generate_request.h. */
#include "server/generate_request.h"

#include <jansson.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/field_lists.h"
#include "server/request_bytes.h"
#include "server/request_json.h"

/* What was read, before it becomes a request. Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *prompt, *prompt_base64;
    int64_t max_tokens, top_k, seed, timeout_ms; /* seed -1: not given */
    int64_t n, logprobs;                         /* logprobs -1: not given */
    double temperature, top_p, min_p, repetition_penalty;
    enum field_switch stream, echo, bytes_base64;
    bool shift;
    int32_t priority;
    struct stop_set stops;
};

bool generate_read_stops(const json_t *value, void *arg)
{
    struct stop_set *to = arg;
    if (json_is_string(value))
        return stop_set_add(to, json_string_value(value), json_string_length(value));
    if (!json_is_array(value))
        return false;
    size_t i;
    json_t *each;
    json_array_foreach(value, i, each)
    {
        if (!json_is_string(each) || !stop_set_add(to, json_string_value(each), json_string_length(each)))
            return false;
    }
    return true;
}

void generate_expect_stops(char *out, size_t size)
{
    (void)snprintf(out, size, "a string, or a list of at most %d strings, each of 1 to %d bytes", GENERATE_STOPS_MAX,
                   GENERATE_STOP_BYTES_MAX);
}

static bool read_overflow(const json_t *value, void *arg)
{
    bool *shift = arg;
    const char *word = json_is_string(value) ? json_string_value(value) : "";
    *shift = strcmp(word, "shift") == 0;
    return *shift || strcmp(word, "stop") == 0;
}

static void expect_overflow(char *out, size_t size)
{
    (void)snprintf(out, size, "\"stop\" or \"shift\"");
}

static const struct {
    const char *word;
    int32_t priority;
} priorities[] = {{"low", QUEUE_PRIORITY_MIN}, {"normal", 0}, {"high", QUEUE_PRIORITY_MAX}};

static bool read_priority(const json_t *value, void *arg)
{
    int32_t *to = arg;
    const json_int_t number = json_integer_value(value);
    if (json_is_integer(value) && number >= QUEUE_PRIORITY_MIN && number <= QUEUE_PRIORITY_MAX) {
        *to = (int32_t)number;
        return true;
    }
    for (size_t i = 0; i < sizeof priorities / sizeof priorities[0] && json_is_string(value); i++)
        if (strcmp(json_string_value(value), priorities[i].word) == 0) {
            *to = priorities[i].priority;
            return true;
        }
    return false;
}

static void expect_priority(char *out, size_t size)
{
    (void)snprintf(out, size, "\"low\", \"normal\" or \"high\", or a whole number from %d to %d", QUEUE_PRIORITY_MIN,
                   QUEUE_PRIORITY_MAX);
}

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_NAME_MAX)},
    {"prompt", FIELD_TEXT, AT(prompt), FIELD_RANGE(0, GENERATE_PROMPT_MAX)},
    {"prompt_base64", FIELD_TEXT, AT(prompt_base64), FIELD_RANGE(0, BASE64_ENCODE_RAW_LENGTH(GENERATE_PROMPT_MAX))},
    {"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(1, GENERATE_TOKENS_MAX), .max_set = field_max_tokens},
    {"temperature", FIELD_NUMBER, AT(temperature), FIELD_RANGE(0, SAMPLER_TEMPERATURE_MAX)},
    {"top_k", FIELD_INTEGER, AT(top_k), FIELD_RANGE(0, BYTE_VALUES)},
    {"top_p", FIELD_NUMBER, AT(top_p), FIELD_RANGE(0, 1), .exclusive = true},
    {"min_p", FIELD_NUMBER, AT(min_p), FIELD_RANGE(0, 1)},
    {"repetition_penalty", FIELD_NUMBER, AT(repetition_penalty), FIELD_RANGE(0, SAMPLER_PENALTY_MAX),
     .exclusive = true},
    {"seed", FIELD_INTEGER, AT(seed), FIELD_RANGE(0, SEED_MAX)},
    {"stop", FIELD_OTHER, AT(stops), .read = generate_read_stops, .expected = generate_expect_stops},
    {"n", FIELD_INTEGER, AT(n), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"echo", FIELD_SWITCH, AT(echo), FIELD_RANGE(0, 0)},
    {"bytes_base64", FIELD_SWITCH, AT(bytes_base64), FIELD_RANGE(0, 0)},
    {"stream", FIELD_SWITCH, AT(stream), FIELD_RANGE(0, 0)},
    {"priority", FIELD_OTHER, AT(priority), .read = read_priority, .expected = expect_priority},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX), .max_set = field_max_timeout},
    {"context_overflow", FIELD_OTHER, AT(shift), .read = read_overflow, .expected = expect_overflow},
};
#undef AT
enum { FIELD_COUNT = sizeof table / sizeof table[0] };
const struct field_list generate_fields = {table, FIELD_COUNT};

/* ---- the request ----------------------------------------------------------------------------------------------- */

enum status generate_request_check(const struct generate_input *in, struct error *err)
{
    const uint64_t samples = (uint64_t)in->prompt_count * in->n, tokens = samples * in->max_tokens,
                   numbers = in->logprobs * (tokens + (in->prompt_logprobs ? in->prompt_bytes : 0));
    if (samples > GENERATE_SAMPLES_MAX)
        return error_set_param(err, ERR_ARGUMENT, "n", "%u prompts with \"n\" %u are %llu texts; expected at most %d",
                               in->prompt_count, in->n, (unsigned long long)samples, GENERATE_SAMPLES_MAX);
    if (tokens > GENERATE_TOKENS_MAX)
        return error_set_param(
            err, ERR_ARGUMENT, "max_tokens", "%llu texts of \"max_tokens\" %u are %llu bytes; expected at most %d",
            (unsigned long long)samples, in->max_tokens, (unsigned long long)tokens, GENERATE_TOKENS_MAX);
    if (numbers > GENERATE_LOGPROBS_MAX)
        return error_set_param(err, ERR_ARGUMENT, "logprobs",
                               "\"logprobs\" %u of all bytes asked for are %llu numbers; expected at most %d: fewer "
                               "bytes or alternatives",
                               in->logprobs - 1, (unsigned long long)numbers, GENERATE_LOGPROBS_MAX);
    return OK;
}

static enum status build(struct generate_request *r, const struct fields *f, struct error *err)
{
    const char *model = f->model != NULL ? json_string_value(f->model) : "";
    (void)snprintf(r->model, sizeof r->model, "%s", model);
    r->stream = f->stream;
    r->timeout_ms = (uint32_t)f->timeout_ms;
    r->echo = f->echo == FIELD_TRUE;
    r->bytes_base64 = f->bytes_base64 == FIELD_TRUE;
    r->in.priority = f->priority;
    r->in.prompt_count = 1;
    r->in.n = (uint32_t)f->n;
    r->in.logprobs = (uint32_t)(f->logprobs + 1);
    r->in.prompt_logprobs = r->echo && f->logprobs >= 0;
    r->in.max_tokens = (uint32_t)f->max_tokens;
    r->in.shift = f->shift;
    r->in.stops = f->stops;
    r->in.sampler = (struct sampler_options){
        .seed = f->seed >= 0 ? (uint64_t)f->seed : request_draw_seed(),
        .temperature = (float)f->temperature,
        .top_k = (uint32_t)f->top_k,
        .top_p = request_positive(f->top_p),
        .min_p = (float)f->min_p,
        .repetition_penalty = request_positive(f->repetition_penalty),
    };
    const enum status st = request_bytes_read(&r->in.prompt, &r->in.prompt_bytes, "prompt", f->prompt, f->prompt_base64,
                                              GENERATE_PROMPT_MAX, err);
    r->in.ends[0] = r->in.prompt_bytes;
    return st == OK ? generate_request_check(&r->in, err) : st;
}

enum status generate_request_parse(struct generate_request *ret, const uint8_t *body, size_t size,
                                   const struct settings *s, struct error *err)
{
    json_t *object = NULL;
    enum status st = request_json_parse(&object, body, size, err);
    if (st == OK)
        st = generate_request_read(ret, object, s, err);
    json_decref(object);
    return st;
}

enum status generate_request_read(struct generate_request *ret, json_t *object, const struct settings *s,
                                  struct error *err)
{
    struct sampler_options defaults;
    struct generate_request r = {0};
    sampler_options_default(&defaults);
    struct fields f = {
        .max_tokens = s->max_tokens,
        .timeout_ms = s->timeout_ms,
        .seed = -1,
        .n = 1,
        .logprobs = -1,
        .top_k = defaults.top_k,
        .temperature = (double)defaults.temperature,
        .top_p = (double)defaults.top_p,
        .min_p = (double)defaults.min_p,
        .repetition_penalty = (double)defaults.repetition_penalty,
    };
    enum status st = fields_read(table, FIELD_COUNT, object, s, &f, err);
    if (st == OK)
        st = build(&r, &f, err);
    if (st != OK) {
        generate_request_clear(&r);
        return st;
    }
    *ret = r;
    return OK;
}

void generate_request_clear(struct generate_request *r)
{
    free(r->in.prompt);
    *r = (struct generate_request){0};
}
