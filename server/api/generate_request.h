/* generate_request.h - the JSON body of POST /generate -> checked values. HTTP threads; no state. */
#ifndef SERVER_API_GENERATE_REQUEST_H
#define SERVER_API_GENERATE_REQUEST_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/fields/fields.h"
#include "server/operation/generate.h"

struct settings;

/* Those of generate_request_parse, .._parse_session and .._read_query. */
extern const struct field_list generate_fields, session_fields, generate_query;

/* The fields by which bytes are drawn, but for the seed; JSON is borrowed. */
struct sampler_fields {
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty; /* NAN: not given */
    int64_t top_k;                                                                             /* -1: not given */
    enum field_switch utf8;
    const json_t *logit_bias, *allowed_bytes;
};

struct generate_request {
    char model[MODEL_REF_MAX + 1]; /* in registry_acquire's form; empty: none was named */
    struct generate_input in;      /* in.prompt is owned until a job takes it; in.stream stays false */
    enum field_switch stream;
    bool echo, bytes_base64, return_state;
    uint32_t timeout_ms; /* 0: not given */
    uint8_t *state;      /* [state_size]: a blob to continue from, unchecked; NULL: none */
    size_t state_size;
    char session[HTTP_SEGMENT_MAX];     /* the one to continue; empty: none */
    char offset[STREAM_OFFSET_MAX + 1]; /* "from": the id of the event that the stream goes on after; empty: none */
    struct sampler_fields sampler;      /* in.sampler's options that were given; a state has its own for the others. The
                                    * JSON is the request's */
    bool is_seeded;                     /* its seed was given too */
};

/* Every field is looked up in one table; an unknown one, or one of the wrong kind or out of range, is ERR_ARGUMENT
 * naming the field, what it was and what was expected. Absent fields get their defaults; the seed is drawn at random.
 * *ret is set only on OK; clear with generate_request_clear. Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status generate_request_parse(struct generate_request *ret, const uint8_t *body, size_t size,
                                   const struct settings *s, struct error *err);
/* The same for an object that is already parsed, of one of the lists of fields above. */
enum status generate_request_read(struct generate_request *ret, const struct field_list *list, json_t *object,
                                  const struct settings *s, struct error *err);
/* The query of GET /generate, whose answer is a stream. A prompt must be there, though it may be empty, so that no mere
 * look at the path has anything computed. */
enum status generate_request_read_query(struct generate_request *ret, json_t *query, const struct settings *s,
                                        struct error *err);
/* A header names the session too (NULL: it does not). Errors: ERR_ARGUMENT (param "X-Session-ID": the body names
 * another; and what the fields must be with a session). */
enum status generate_request_name_session(struct generate_request *r, const char *id, struct error *err);
/* The body of POST /v1/sessions: how a text begins. The prompt is only fed (max_tokens 0), and the state after it
 * kept. */
enum status generate_request_parse_session(struct generate_request *ret, const uint8_t *body, size_t size,
                                           const struct settings *s, struct error *err);
/* Check what one job may be asked for in total, with n texts for each prompt: at most GENERATE_SAMPLES_MAX texts of
 * GENERATE_TOKENS_MAX bytes together, and GENERATE_LOGPROBS_MAX log probabilities, those of the prompts included if
 * they are reported.
 * Errors: ERR_ARGUMENT (param "n", "max_tokens", "logprobs"). */
enum status generate_request_check(const struct generate_input *in, struct error *err);
void generate_request_clear(struct generate_request *r); /* zeroed is fine */

/* FIELD_OTHER: stop strings, into a struct stop_set. */
bool generate_read_stops(const json_t *value, void *to);
#define GENERATE_STOPS_EXPECTED                                                                                \
    "a string, or a list of at most " FIELD_DIGITS(GENERATE_STOPS_MAX) " strings, each of 1 to " FIELD_DIGITS( \
        GENERATE_STOP_BYTES_MAX) " bytes"
/* context_overflow */
enum context_overflow { OVERFLOW_SHIFT, OVERFLOW_STOP, OVERFLOW_REFUSE };
/* logit_bias and allowed_bytes, into a const json_t *. */
bool generate_read_bias(const json_t *value, void *to);
#define GENERATE_BIAS_EXPECTED                                                      \
    "an object of bytes, \"0\" to \"255\", each with a number from -" FIELD_DIGITS( \
        SAMPLER_BIAS_MAX) " to " FIELD_DIGITS(SAMPLER_BIAS_MAX)
bool generate_read_allowed(const json_t *value, void *to);
#define GENERATE_ALLOWED_EXPECTED "a string of at least one character, or a list of at least one byte (0 to 255)"
/* None of them. */
#define SAMPLER_FIELDS_UNSAID                                                                                      \
    {                                                                                                              \
        (double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN, -1, FIELD_ABSENT, NULL, NULL \
    }
/* Set those of the options that they give. */
void generate_set_sampler(struct sampler_options *o, const struct sampler_fields *f);
/* Errors: ERR_ARGUMENT (param "allowed_bytes"): nothing could be drawn. */
enum status generate_check_sampler(const struct sampler_options *o, struct error *err);
/* priority, a word or a number, into an int32_t. */
bool generate_read_priority(const json_t *value, void *to);
#define GENERATE_PRIORITY_EXPECTED                                                                                    \
    "\"low\", \"normal\" or \"high\", or a whole number from -" FIELD_DIGITS(QUEUE_PRIORITY_MAX) " to " FIELD_DIGITS( \
        QUEUE_PRIORITY_MAX)
_Static_assert(QUEUE_PRIORITY_MIN + QUEUE_PRIORITY_MAX == 0 && BYTE_VALUES == UINT8_MAX + 1,
               "what is expected, in words");

/* Rows that the tables of all requests for texts have, X(name, kind, member, ...), where `sampler` is a struct
 * sampler_fields: how bytes are drawn, which ones, and what is for the job. */
#define GENERATE_SAMPLER_FIELDS(X)                                                                         \
    X("top_k", FIELD_INTEGER, sampler.top_k, FIELD_RANGE(0, BYTE_VALUES))                                  \
    X("min_p", FIELD_NUMBER, sampler.min_p, FIELD_RANGE(0, 1))                                             \
    X("repetition_penalty", FIELD_NUMBER, sampler.repetition_penalty, FIELD_RANGE(0, SAMPLER_PENALTY_MAX), \
      .exclusive = true)                                                                                   \
    X("presence_penalty", FIELD_NUMBER, sampler.presence_penalty,                                          \
      FIELD_RANGE(-SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX))                                                \
    X("frequency_penalty", FIELD_NUMBER, sampler.frequency_penalty,                                        \
      FIELD_RANGE(-SAMPLER_OFFSET_MAX, SAMPLER_OFFSET_MAX))                                                \
    X("utf8", FIELD_SWITCH, sampler.utf8, FIELD_RANGE(0, 0))
#define GENERATE_BYTE_FIELDS(X)                                                                                  \
    X("logit_bias", FIELD_OTHER, sampler.logit_bias, .read = generate_read_bias, .what = GENERATE_BIAS_EXPECTED) \
    X("allowed_bytes", FIELD_OTHER, sampler.allowed_bytes, .read = generate_read_allowed,                        \
      .what = GENERATE_ALLOWED_EXPECTED)
#define GENERATE_JOB_FIELDS(X)                                                                               \
    X("priority", FIELD_OTHER, priority, .read = generate_read_priority, .what = GENERATE_PRIORITY_EXPECTED) \
    X("timeout_ms", FIELD_INTEGER, timeout_ms, FIELD_RANGE(1, UINT32_MAX),                                   \
      .max_setting = offsetof(struct settings, timeout_ms_max))                                              \
    X("context_overflow", FIELD_WORD, overflow, .words = {"shift", "stop", "refuse"},                        \
      .what = "\"shift\", \"stop\" or \"refuse\"")

#endif
