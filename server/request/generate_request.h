/* generate_request.h - the JSON body of POST /generate -> checked values. HTTP threads; no state. */
#ifndef SERVER_REQUEST_GENERATE_REQUEST_H
#define SERVER_REQUEST_GENERATE_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"
#include "server/kinds/generate.h"
#include "server/request/fields.h"

extern const struct field_list generate_fields, session_fields; /* of generate_request_parse, and .._parse_session */

struct generate_request {
    char model[MODEL_WISH_MAX + 1]; /* as registry_acquire_for takes it; empty: none was named */
    struct generate_input in;       /* in.prompt is owned until it is given to a job; in.stream is left false */
    enum field_switch stream;
    bool echo, bytes_base64, return_state;
    uint32_t timeout_ms;
    uint8_t *state; /* [state_size]: a blob to go on from, unchecked; NULL: none */
    size_t state_size;
    char session[HTTP_SEGMENT_MAX]; /* the one to go on with; empty: none */
    struct {
        bool seed, temperature, top_k, top_p, min_p, repetition_penalty;
    } said; /* of in.sampler; a state has its own of what was not */
};

/* Every field is looked up in one table; one that is not in it, or is not of its kind or range, is ERR_ARGUMENT naming
 * the field, what it was and what was expected. What is left out gets its default; a seed is drawn.
 * *ret is set only on OK; clear with generate_request_clear. Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status generate_request_parse(struct generate_request *ret, const uint8_t *body, size_t size,
                                   const struct settings *s, struct error *err);
/* The same of an object that was parsed already. */
enum status generate_request_read(struct generate_request *ret, json_t *object, const struct settings *s,
                                  struct error *err);
/* The body of POST /v1/sessions: how a text begins. The prompt is only looked at (max_tokens 0), and the state behind
 * it kept. */
enum status generate_request_parse_session(struct generate_request *ret, const uint8_t *body, size_t size,
                                           const struct settings *s, struct error *err);
/* What a job may be asked for in all, of n texts of each prompt: at most GENERATE_SAMPLES_MAX texts with together
 * GENERATE_TOKENS_MAX bytes, and GENERATE_LOGPROBS_MAX numbers of their bytes and, if they are told, the prompts'.
 * Errors: ERR_ARGUMENT (param "n", "max_tokens", "logprobs"). */
enum status generate_request_check(const struct generate_input *in, struct error *err);
void generate_request_clear(struct generate_request *r); /* zeroed is fine */

/* FIELD_OTHER: stop strings, into a struct stop_set. */
bool generate_read_stops(const json_t *value, void *to);
void generate_expect_stops(char *out, size_t size);

#endif
