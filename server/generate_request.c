/* generate_request.c - see generate_request.h.
 * The table FIELDS says for each field what kind it is and in which range; a value that passes is stored by its kind.
 * What the kinds do not cover (the two ways to give a prompt) is done afterwards. */
#include "server/generate_request.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/request_json.h"
#include "weights/json.h"

enum kind { KIND_TEXT, KIND_INTEGER, KIND_NUMBER, KIND_SWITCH, KIND_OVERFLOW, KIND_STOPS };

/* What was read, before it becomes a request. Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *prompt, *prompt_base64;
    int64_t max_tokens, top_k, seed, timeout_ms; /* seed -1: not given */
    double temperature, top_p, min_p, repetition_penalty;
    bool stream, says_stream, shift;
    struct stop_set stops;
};

struct field {
    const char *name;
    size_t offset;   /* in struct fields */
    double min, max; /* of a text: its bytes */
    enum kind kind;
    bool exclusive; /* min itself is not allowed */
};

/* The only list of fields:  name  in struct fields  kind  min  max  min excluded
 * The upper ends of max_tokens and timeout_ms are settings (field_max). */
#define FIELDS(X)                                                                                         \
    X("model", model, KIND_TEXT, 1, MODEL_NAME_MAX, false)                                                \
    X("prompt", prompt, KIND_TEXT, 0, GENERATE_PROMPT_MAX, false)                                         \
    X("prompt_base64", prompt_base64, KIND_TEXT, 0, BASE64_ENCODE_RAW_LENGTH(GENERATE_PROMPT_MAX), false) \
    X("max_tokens", max_tokens, KIND_INTEGER, 1, GENERATE_TOKENS_MAX, false)                              \
    X("temperature", temperature, KIND_NUMBER, 0, 100, false)                                             \
    X("top_k", top_k, KIND_INTEGER, 0, BYTE_VALUES, false)                                                \
    X("top_p", top_p, KIND_NUMBER, 0, 1, true)                                                            \
    X("min_p", min_p, KIND_NUMBER, 0, 1, false)                                                           \
    X("repetition_penalty", repetition_penalty, KIND_NUMBER, 0, 100, true)                                \
    X("seed", seed, KIND_INTEGER, 0, SEED_MAX, false)                                                     \
    X("stop", stops, KIND_STOPS, 1, GENERATE_STOP_BYTES_MAX, false)                                       \
    X("stream", stream, KIND_SWITCH, 0, 1, false)                                                         \
    X("timeout_ms", timeout_ms, KIND_INTEGER, 1, UINT32_MAX, false)                                       \
    X("context_overflow", shift, KIND_OVERFLOW, 0, 1, false)

static const struct field fields_table[] = {
#define X(name, member, kind, min, max, exclusive) \
    {name, offsetof(struct fields, member), (double)(min), (double)(max), kind, exclusive},
    FIELDS(X)
#undef X
};
enum { FIELD_COUNT = sizeof fields_table / sizeof fields_table[0] };

/* ---- kinds ----------------------------------------------------------------------------------------------------- */

static double field_max(const struct field *f, const struct settings *s)
{
    if (f->offset == offsetof(struct fields, max_tokens))
        return s->max_tokens_max;
    if (f->offset == offsetof(struct fields, timeout_ms))
        return s->timeout_ms_max;
    return f->max;
}

/* What is accepted, for a person. */
static void describe_field(const struct field *f, const struct settings *s, char *out, size_t size)
{
    const double max = field_max(f, s);
    switch (f->kind) {
    case KIND_TEXT:
        (void)snprintf(out, size, "a string of %.0f to %.0f bytes", f->min, max);
        break;
    case KIND_INTEGER:
        (void)snprintf(out, size, "a whole number from %.0f to %.0f", f->min, max);
        break;
    case KIND_NUMBER:
        (void)snprintf(out, size, f->exclusive ? "a number above %g and at most %g" : "a number from %g to %g", f->min,
                       max);
        break;
    case KIND_SWITCH:
        (void)snprintf(out, size, "true or false");
        break;
    case KIND_OVERFLOW:
        (void)snprintf(out, size, "\"stop\" or \"shift\"");
        break;
    case KIND_STOPS:
        (void)snprintf(out, size, "a string, or a list of at most %d strings, each of %.0f to %.0f bytes",
                       GENERATE_STOPS_MAX, f->min, max);
        break;
    }
}

static bool read_text(const struct field *f, const json_t *value, void *to)
{
    const size_t size = json_string_length(value); /* 0 of what is no string */
    if (!json_is_string(value) || (double)size < f->min || (double)size > f->max)
        return false;
    *(const json_t **)to = value;
    return true;
}

static bool read_integer(const struct field *f, const json_t *value, double max, void *to)
{
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || (double)number < f->min || (double)number > max)
        return false;
    *(int64_t *)to = number;
    return true;
}

static bool read_number(const struct field *f, const json_t *value, double max, void *to)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= f->min && number <= max) || (f->exclusive && number == f->min))
        return false;
    *(double *)to = number;
    return true;
}

static bool read_stops(const json_t *value, struct stop_set *to)
{
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

static bool read_overflow(const json_t *value, bool *shift)
{
    const char *word = json_is_string(value) ? json_string_value(value) : "";
    *shift = strcmp(word, "shift") == 0;
    return *shift || strcmp(word, "stop") == 0;
}

static bool read_field(const struct field *f, const struct settings *s, const json_t *value, struct fields *to)
{
    void *at = (char *)to + f->offset;
    switch (f->kind) {
    case KIND_TEXT:
        return read_text(f, value, at);
    case KIND_INTEGER:
        return read_integer(f, value, field_max(f, s), at);
    case KIND_NUMBER:
        return read_number(f, value, field_max(f, s), at);
    case KIND_SWITCH:
        to->stream = json_is_true(value);
        to->says_stream = true;
        return json_is_boolean(value);
    case KIND_OVERFLOW:
        return read_overflow(value, at);
    case KIND_STOPS:
        return read_stops(value, at);
    }
    return false;
}

/* ---- the object ------------------------------------------------------------------------------------------------ */

static enum status refuse_name(const char *name, struct error *err)
{
    char names[ERROR_MESSAGE_MAX / 2] = "";
    size_t used = 0;
    for (size_t i = 0; i < FIELD_COUNT && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", fields_table[i].name);
    return error_set_param(err, ERR_ARGUMENT, json_quote(name).text, "there is no field \"%s\" here; expected: %s",
                           json_quote(name).text, names);
}

static enum status read_fields(json_t *object, const struct settings *s, struct fields *to, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const struct field *f = NULL;
        for (size_t i = 0; i < FIELD_COUNT && f == NULL; i++)
            if (strcmp(fields_table[i].name, name) == 0)
                f = &fields_table[i];
        if (f == NULL)
            return refuse_name(name, err);
        if (!read_field(f, s, value, to)) {
            char expected[ERROR_MESSAGE_MAX / 2];
            describe_field(f, s, expected, sizeof expected);
            return error_set_param(err, ERR_ARGUMENT, name, "\"%s\" is %s; expected %s", name,
                                   json_describe(value).text, expected);
        }
    }
    return OK;
}

/* ---- the prompt ------------------------------------------------------------------------------------------------ */

static bool decode_base64(const json_t *text, uint8_t *out, size_t *size)
{
    struct base64_decode_ctx base64;
    const char *in = json_string_value(text);
    const size_t in_size = json_string_length(text);
    if (in_size % 4 != 0 || memchr(in, '\0', in_size) != NULL || strpbrk(in, " \t\r\n\v\f") != NULL)
        return false; /* the library skips spaces; RFC 4648 has none */
    base64_decode_init(&base64);
    return base64_decode_update(&base64, size, out, in_size, in) == 1 && base64_decode_final(&base64) == 1;
}

static enum status read_prompt(const struct fields *f, struct generate_input *in, struct error *err)
{
    const json_t *text = f->prompt != NULL ? f->prompt : f->prompt_base64;
    if (f->prompt != NULL && f->prompt_base64 != NULL)
        return error_set_param(err, ERR_ARGUMENT, "prompt_base64",
                               "\"prompt\" and \"prompt_base64\" are both given; expected one of them");
    if (text == NULL || json_string_length(text) == 0)
        return OK;
    const size_t size = json_string_length(text);
    uint8_t *prompt = malloc(size);
    if (prompt == NULL)
        return error_set(err, ERR_NOMEM, "there is no memory for the prompt at the moment");
    if (text == f->prompt) {
        memcpy(prompt, json_string_value(text), size);
        in->prompt_bytes = size;
    } else if (!decode_base64(text, prompt, &in->prompt_bytes) || in->prompt_bytes > GENERATE_PROMPT_MAX) {
        free(prompt);
        return error_set_param(
            err, ERR_ARGUMENT, "prompt_base64",
            "\"prompt_base64\" is not base64 of at most %d bytes; expected RFC 4648's, padded, without "
            "line breaks",
            GENERATE_PROMPT_MAX);
    }
    in->prompt = prompt;
    return OK;
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

static uint64_t draw_seed(void)
{
    uint64_t seed = 0;
    (void)!getrandom(&seed, sizeof seed, 0); /* cannot fail once the kernel has started; then 0 is a seed too */
    return seed & SEED_MAX;
}

/* A positive number stays positive as a float32. */
static float positive(double value)
{
    return fmaxf((float)value, FLT_MIN);
}

static enum status build(struct generate_request *r, const struct fields *f, struct error *err)
{
    const char *model = f->model != NULL ? json_string_value(f->model) : "";
    if (f->model != NULL && strlen(model) != json_string_length(f->model))
        return error_set_param(err, ERR_ARGUMENT, "model", "\"model\" has a NUL; expected the name of a model");
    (void)snprintf(r->model, sizeof r->model, "%s", model);
    r->says_stream = f->says_stream;
    r->stream = f->stream;
    r->timeout_ms = (uint32_t)f->timeout_ms;
    r->in.max_tokens = (uint32_t)f->max_tokens;
    r->in.shift = f->shift;
    r->in.stops = f->stops;
    r->in.sampler = (struct sampler_options){
        .seed = f->seed >= 0 ? (uint64_t)f->seed : draw_seed(),
        .temperature = (float)f->temperature,
        .top_k = (uint32_t)f->top_k,
        .top_p = positive(f->top_p),
        .min_p = (float)f->min_p,
        .repetition_penalty = positive(f->repetition_penalty),
    };
    return read_prompt(f, &r->in, err);
}

enum status generate_request_parse(struct generate_request *ret, const uint8_t *body, size_t size,
                                   const struct settings *s, struct error *err)
{
    struct sampler_options defaults;
    struct generate_request r = {0};
    json_t *object = NULL;
    enum status st = request_json_parse(&object, body, size, err);
    if (st != OK)
        return st;
    sampler_options_default(&defaults);
    struct fields f = {
        .max_tokens = s->max_tokens,
        .timeout_ms = s->timeout_ms,
        .seed = -1,
        .top_k = defaults.top_k,
        .temperature = (double)defaults.temperature,
        .top_p = (double)defaults.top_p,
        .min_p = (double)defaults.min_p,
        .repetition_penalty = (double)defaults.repetition_penalty,
    };
    st = read_fields(object, s, &f, err);
    if (st == OK)
        st = build(&r, &f, err);
    json_decref(object);
    if (st != OK)
        return st;
    *ret = r;
    return OK;
}

void generate_request_clear(struct generate_request *r)
{
    free(r->in.prompt);
    *r = (struct generate_request){0};
}
