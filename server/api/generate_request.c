/* generate_request.c - see generate_request.h. */
#include "server/api/generate_request.h"

#include <jansson.h>
#include <math.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/fields/request_bytes.h"
#include "server/fields/request_json.h"

/* What was read, before it becomes a request. Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *prompt, *prompt_base64;
    struct sampler_fields sampler;
    int64_t max_tokens, seed, timeout_ms; /* seed -1, timeout_ms 0: not given */
    int64_t n, logprobs;                  /* logprobs -1: not given */
    enum field_switch stream, echo, bytes_base64, return_state, moves;
    const json_t *state, *session, *from;
    const json_t *stop; /* one stop string, instead of `stops` */
    enum context_overflow overflow;
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

static const struct {
    const char *word;
    int32_t priority;
} priorities[] = {
#define X(word, priority) {word, priority},
    QUEUE_PRIORITY_WORDS(X)
#undef X
};

bool generate_read_priority(const json_t *value, void *arg)
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

/* The byte that a key of logit_bias names; BYTE_VALUES: none. */
static size_t byte_of(const char *key)
{
    char *end;
    const unsigned long byte = strtoul(key, &end, 10);
    const bool is_number = key[0] >= '0' && key[0] <= '9' && (key[0] != '0' || key[1] == '\0') && *end == '\0';
    return is_number && byte < BYTE_VALUES ? byte : BYTE_VALUES;
}

bool generate_read_bias(const json_t *value, void *arg)
{
    const char *key;
    json_t *bias;
    *(const json_t **)arg = value;
    json_object_foreach((json_t *)value, key, bias)
    {
        const double number = json_number_value(bias);
        if (byte_of(key) == BYTE_VALUES || !json_is_number(bias) || !(fabs(number) <= SAMPLER_BIAS_MAX))
            return false;
    }
    return json_is_object(value);
}

bool generate_read_allowed(const json_t *value, void *arg)
{
    size_t i;
    json_t *byte;
    *(const json_t **)arg = value;
    json_array_foreach(value, i, byte)
    {
        if (!json_is_integer(byte) || json_integer_value(byte) < 0 || json_integer_value(byte) >= BYTE_VALUES)
            return false;
    }
    return json_is_string(value) ? json_string_length(value) > 0 : json_array_size(value) > 0;
}

static void set_bias(struct sampler_options *o, const json_t *value)
{
    const char *key;
    json_t *bias;
    memset(o->bias, 0, sizeof o->bias);
    o->is_biased = false;
    json_object_foreach((json_t *)value, key, bias)
    {
        const float number = (float)json_number_value(bias);
        o->bias[byte_of(key)] = number;
        o->is_biased |= number != 0.0f;
    }
}

static void allow(struct sampler_options *o, uint8_t byte)
{
    o->allowed[byte / 8] |= (uint8_t)(1U << byte % 8);
}

static void set_allowed(struct sampler_options *o, const json_t *value)
{
    const char *text = json_string_value(value);
    size_t i;
    json_t *byte;
    memset(o->allowed, 0, sizeof o->allowed);
    for (i = 0; i < json_string_length(value); i++)
        allow(o, (uint8_t)text[i]);
    json_array_foreach(value, i, byte) allow(o, (uint8_t)json_integer_value(byte));
}

/* NAN: not given. */
static float or_else(double value, float otherwise)
{
    return isnan(value) ? otherwise : (float)value;
}

void generate_set_sampler(struct sampler_options *o, const struct sampler_fields *f)
{
    o->temperature = or_else(f->temperature, o->temperature);
    o->top_k = f->top_k >= 0 ? (uint32_t)f->top_k : o->top_k;
    o->top_p = request_positive((double)or_else(f->top_p, o->top_p));
    o->min_p = or_else(f->min_p, o->min_p);
    o->repetition_penalty = request_positive((double)or_else(f->repetition_penalty, o->repetition_penalty));
    o->presence_penalty = or_else(f->presence_penalty, o->presence_penalty);
    o->frequency_penalty = or_else(f->frequency_penalty, o->frequency_penalty);
    o->utf8 = f->utf8 == FIELD_TRUE || (f->utf8 == FIELD_ABSENT && o->utf8);
    if (f->logit_bias != NULL)
        set_bias(o, f->logit_bias);
    if (f->allowed_bytes != NULL)
        set_allowed(o, f->allowed_bytes);
}

enum status generate_check_sampler(const struct sampler_options *o, struct error *err)
{
    if (sampler_can_draw(o))
        return OK;
    return error_set_param(err, ERR_ARGUMENT, "allowed_bytes",
                           "no character of UTF-8 can be made of \"allowed_bytes\", and \"utf8\" is true; expected "
                           "bytes of which one can");
}

#define AT(member) .offset = offsetof(struct fields, member)
#define ROW(name, kind, member, ...) {name, kind, AT(member), __VA_ARGS__},
/* Of these a text can be begun with in a query too. The commonest come first, which is how errors list them. */
#define PROMPT(X)                                                        \
    X("prompt", FIELD_TEXT, prompt, FIELD_RANGE(0, GENERATE_PROMPT_MAX)) \
    X("model", FIELD_NAME, model, FIELD_RANGE(1, MODEL_REF_MAX))
#define COMMON(X)                                                                                                \
    X("temperature", FIELD_NUMBER, sampler.temperature, FIELD_RANGE(0, SAMPLER_TEMPERATURE_MAX))                 \
    X("seed", FIELD_INTEGER, seed, FIELD_RANGE(0, SEED_MAX))                                                     \
    X("top_p", FIELD_NUMBER, sampler.top_p, FIELD_RANGE(0, 1), .exclusive = true)                                \
    GENERATE_SAMPLER_FIELDS(X)                                                                                   \
    X("prompt_base64", FIELD_TEXT, prompt_base64, FIELD_RANGE(0, BASE64_ENCODE_RAW_LENGTH(GENERATE_PROMPT_MAX))) \
    GENERATE_JOB_FIELDS(X)
/* The fields that say how a text begins and how its bytes are drawn. */
#define BEGINNING(X)        \
    COMMON(X)               \
    GENERATE_BYTE_FIELDS(X) \
    X("state", FIELD_TEXT, state, FIELD_RANGE(1, BASE64_ENCODE_RAW_LENGTH(STATE_BYTES_MAX)))
static const struct field table[] = {
    PROMPT(ROW){"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(1, GENERATE_TOKENS_MAX),
                .max_setting = offsetof(struct settings, max_tokens_max)},
    {"stop", FIELD_OTHER, AT(stops), .read = generate_read_stops, .what = GENERATE_STOPS_EXPECTED},
    {"stream", FIELD_SWITCH, AT(stream), FIELD_RANGE(0, 0)},
    BEGINNING(ROW){"n", FIELD_INTEGER, AT(n), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"echo", FIELD_SWITCH, AT(echo), FIELD_RANGE(0, 0)},
    {"bytes_base64", FIELD_SWITCH, AT(bytes_base64), FIELD_RANGE(0, 0)},
    {"return_state", FIELD_SWITCH, AT(return_state), FIELD_RANGE(0, 0)},
    {"session", FIELD_NAME, AT(session), FIELD_RANGE(1, HTTP_SEGMENT_MAX - 1)},
    {"from", FIELD_NAME, AT(from), FIELD_RANGE(1, STREAM_OFFSET_MAX)},
    {"moves", FIELD_SWITCH, AT(moves), FIELD_RANGE(0, 0)},
};
static const struct field session_table[] = {PROMPT(ROW) BEGINNING(ROW)};
/* No lists and objects, which a query has no usual form for; and no sessions and states, which URLs must not show. */
static const struct field query_table[] = {
    PROMPT(ROW){"max_tokens", FIELD_INTEGER, AT(max_tokens), FIELD_RANGE(1, GENERATE_TOKENS_MAX),
                .max_setting = offsetof(struct settings, max_tokens_max)},
    COMMON(ROW){"stop", FIELD_TEXT, AT(stop), FIELD_RANGE(1, GENERATE_STOP_BYTES_MAX)},
    {"allowed_bytes", FIELD_TEXT, AT(sampler.allowed_bytes), FIELD_RANGE(1, HTTP_URL_MAX)},
    {"n", FIELD_INTEGER, AT(n), FIELD_RANGE(1, GENERATE_SAMPLES_MAX)},
    {"logprobs", FIELD_INTEGER, AT(logprobs), FIELD_RANGE(0, GENERATE_LIKELIEST_MAX)},
    {"echo", FIELD_SWITCH, AT(echo), FIELD_RANGE(0, 0)},
    {"bytes_base64", FIELD_SWITCH, AT(bytes_base64), FIELD_RANGE(0, 0)},
    {"from", FIELD_NAME, AT(from), FIELD_RANGE(1, STREAM_OFFSET_MAX)},
    {"moves", FIELD_SWITCH, AT(moves), FIELD_RANGE(0, 0)},
};
#undef PROMPT
#undef COMMON
#undef BEGINNING
#undef ROW
#undef AT
const struct field_list generate_fields = FIELDS_OF(table);
const struct field_list session_fields = FIELDS_OF(session_table);
const struct field_list generate_query = FIELDS_OF(query_table);

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
                               "\"logprobs\" %u for all bytes asked for are %llu numbers; expected at most %d: ask for "
                               "fewer bytes or alternatives",
                               in->logprobs - 1, (unsigned long long)numbers, GENERATE_LOGPROBS_MAX);
    return OK;
}

static void build_sampler(struct generate_request *r, const struct fields *f)
{
    r->sampler = f->sampler;
    (void)json_incref((json_t *)r->sampler.logit_bias);
    (void)json_incref((json_t *)r->sampler.allowed_bytes);
    r->is_seeded = f->seed >= 0;
    sampler_options_default(&r->in.sampler);
    generate_set_sampler(&r->in.sampler, &r->sampler);
    r->in.sampler.seed = r->is_seeded ? (uint64_t)f->seed : request_draw_seed();
}

static enum status read_state(struct generate_request *r, const struct fields *f, struct error *err)
{
    const size_t size = json_string_length(f->state);
    if (f->state == NULL)
        return OK;
    r->state = malloc(size + 1);
    if (r->state == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the state; try again later");
    if (!request_base64_decode(json_string_value(f->state), size, r->state, &r->state_size))
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "\"state\" is not base64; expected RFC 4648's, padded, without line breaks");
    return OK;
}

/* A state is that of one text, and does not tell where the prompt in it began; the same holds for a session's. */
static enum status check_state(const struct generate_request *r, struct error *err)
{
    if (r->session[0] != '\0' && r->state != NULL)
        return error_set_param(
            err, ERR_ARGUMENT, "session",
            "\"session\" and \"state\" are both given; expected one of them: a session has its own state");
    if (r->session[0] != '\0' && r->in.n > 1)
        return error_set_param(err, ERR_ARGUMENT, "n",
                               "\"n\" is %u with \"session\"; expected 1: a session is one text; fork it for more",
                               r->in.n);
    if (r->in.resumable && r->in.n > 1)
        return error_set_param(err, ERR_ARGUMENT, "moves",
                               "\"n\" is %u with \"moves\"; expected 1: several texts cannot go on elsewhere", r->in.n);
    if (r->return_state && r->in.n > 1)
        return error_set_param(err, ERR_ARGUMENT, "return_state",
                               "\"n\" is %u with \"return_state\"; expected 1: a state is that of one text", r->in.n);
    if ((r->state != NULL || r->session[0] != '\0') && r->echo)
        return error_set_param(
            err, ERR_ARGUMENT, "echo",
            "\"echo\" is true with \"%s\"; expected false: a state does not contain the text it was made from",
            r->state != NULL ? "state" : "session");
    return OK;
}

enum status generate_request_name_session(struct generate_request *r, const char *id, struct error *err)
{
    if (id == NULL || strcmp(id, r->session) == 0)
        return OK;
    if (r->session[0] != '\0')
        return error_set_param(err, ERR_ARGUMENT, "X-Session-ID",
                               "the header X-Session-ID is \"%s\" and \"session\" is \"%s\"; expected the same",
                               json_quote(id).text, json_quote(r->session).text);
    if (id[0] == '\0' || strlen(id) >= sizeof r->session)
        return error_set_param(err, ERR_ARGUMENT, "X-Session-ID",
                               "the header X-Session-ID has %zu bytes; expected a session's id, 1 to %zu", strlen(id),
                               sizeof r->session - 1);
    (void)snprintf(r->session, sizeof r->session, "%s", id);
    r->in.saves = true;
    return check_state(r, err);
}

static enum status build(struct generate_request *r, const struct fields *f, struct error *err)
{
    const char *model = f->model != NULL ? json_string_value(f->model) : "";
    const char *session = f->session != NULL ? json_string_value(f->session) : "";
    (void)snprintf(r->model, sizeof r->model, "%s", model);
    (void)snprintf(r->session, sizeof r->session, "%s", session);
    (void)snprintf(r->offset, sizeof r->offset, "%s", f->from != NULL ? json_string_value(f->from) : "");
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
    r->in.shift = f->overflow == OVERFLOW_SHIFT;
    r->in.refuses = f->overflow == OVERFLOW_REFUSE;
    r->in.stops = f->stops;
    if (f->stop != NULL)
        (void)stop_set_add(&r->in.stops, json_string_value(f->stop), json_string_length(f->stop));
    r->return_state = f->return_state == FIELD_TRUE;
    r->in.resumable = f->moves == FIELD_TRUE;
    r->in.saves = r->return_state || r->session[0] != '\0';
    build_sampler(r, f);
    enum status st = request_bytes_read(&r->in.prompt, &r->in.prompt_bytes, "prompt", f->prompt, f->prompt_base64,
                                        GENERATE_PROMPT_MAX, err);
    r->in.ends[0] = r->in.prompt_bytes;
    if (st == OK)
        st = read_state(r, f, err);
    if (st == OK)
        st = check_state(r, err);
    if (st == OK)
        st = generate_check_sampler(&r->in.sampler, err);
    return st == OK ? generate_request_check(&r->in, err) : st;
}

enum status generate_request_read(struct generate_request *ret, const struct field_list *list, json_t *object,
                                  const struct settings *s, struct error *err)
{
    struct generate_request r = {0};
    struct fields f = {
        .max_tokens = s->max_tokens,
        .seed = -1,
        .n = 1,
        .logprobs = -1,
        .sampler = SAMPLER_FIELDS_UNSAID,
    };
    enum status st = fields_read(list, object, s, &f, err);
    if (st == OK)
        st = build(&r, &f, err);
    if (st != OK) {
        generate_request_clear(&r);
        return st;
    }
    *ret = r;
    return OK;
}

static enum status parse(struct generate_request *ret, const struct field_list *list, const uint8_t *body, size_t size,
                         const struct settings *s, struct error *err)
{
    json_t *object = NULL;
    enum status st = request_json_parse(&object, body, size, err);
    if (st == OK)
        st = generate_request_read(ret, list, object, s, err);
    json_decref(object);
    return st;
}

enum status generate_request_parse(struct generate_request *ret, const uint8_t *body, size_t size,
                                   const struct settings *s, struct error *err)
{
    return parse(ret, &generate_fields, body, size, s, err);
}

enum status generate_request_read_query(struct generate_request *ret, json_t *query, const struct settings *s,
                                        struct error *err)
{
    if (json_object_get(query, "prompt") == NULL && json_object_get(query, "prompt_base64") == NULL)
        return error_set_param(err, ERR_ARGUMENT, "prompt",
                               "\"prompt\" is missing; expected the text to continue, which may be empty");
    const enum status st = generate_request_read(ret, &generate_query, query, s, err);
    if (st == OK)
        ret->stream = FIELD_TRUE;
    return st;
}

enum status generate_request_parse_session(struct generate_request *ret, const uint8_t *body, size_t size,
                                           const struct settings *s, struct error *err)
{
    const enum status st = parse(ret, &session_fields, body, size, s, err);
    if (st != OK)
        return st;
    ret->in.max_tokens = 0;
    ret->in.saves = true;
    if (ret->state == NULL || ret->in.prompt_bytes == 0)
        return OK;
    generate_request_clear(ret);
    return error_set_param(
        err, ERR_ARGUMENT, "prompt",
        "\"prompt\" and \"state\" are both given; expected one of them: a state already includes its prompt");
}

void generate_request_clear(struct generate_request *r)
{
    free(r->in.prompt);
    free(r->state);
    stream_snapshot_clear(&r->in.from);
    json_decref((json_t *)r->sampler.logit_bias);
    json_decref((json_t *)r->sampler.allowed_bytes);
    *r = (struct generate_request){0};
}
