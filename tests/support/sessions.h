/* sessions.h - /v1/sessions of the daemon under test, and texts in them. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_SESSIONS_H
#define TESTS_SUPPORT_SESSIONS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/client.h"

#define TEST_SESSION_ID_BYTES 33

/* METHOD /v1/sessions[/ID[WHAT]] with a body; id and what may be NULL. `key` (NULL: none) is sent. */
struct session_call {
    const char *method, *id, *what;
    const char *type; /* of the body */
    const void *body; /* NULL: none */
    size_t size;
    const char *key;
};
void session_call(const struct daemon *d, const struct session_call *c, struct reply *ret);
/* The same with a JSON body, which is taken. */
void session_call_json(const struct daemon *d, const char *method, const char *id, const char *what, json_t *body,
                       struct reply *ret);

/* A new one; `fields` are taken. */
void session_create(const struct daemon *d, json_t *fields, char id[TEST_SESSION_ID_BYTES]);
/* `count` forks. */
void session_fork(const struct daemon *d, const char *id, size_t count, char ids[][TEST_SESSION_ID_BYTES]);
/* Its JSON; json_decref it. */
json_t *session_get(const struct daemon *d, const char *id);
/* Its state; reply_clear it. */
void session_state(const struct daemon *d, const char *id, struct reply *ret);
/* Replace its state. */
void session_put(const struct daemon *d, const char *id, const void *state, size_t size);

/* POST /generate with `fields`, which are taken and get bytes_base64 added, and with a session unless that is NULL; the
 * answer must be 200. Appends the text's bytes to out [*size]; the answer is for json_decref. */
json_t *session_generate(const struct daemon *d, const char *id, json_t *fields, uint8_t *out, size_t *size);
/* The same if an answer is not certain. */
void session_try(const struct daemon *d, const char *id, json_t *fields, struct reply *ret);

#endif
