/* reply.h - the service that an exchange is part of, and answers: JSON, and errors in the words of the request's API.
 * HTTP threads; an exchange is answered once. */
#ifndef SERVER_API_REPLY_H
#define SERVER_API_REPLY_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "config/settings.h"
#include "config/status.h"
#include "server/http/http.h"

struct auth;
struct batcher;
struct loader;
struct queue;
struct registry;
struct reload;
struct job;
struct sessions;

/* Constant while requests are served, but for what is atomic. An exchange's `app`. */
struct service {
    const struct settings *settings;
    struct batcher *batcher;
    struct queue *queue; /* the batcher's */
    struct registry *registry;
    struct loader *loader;
    struct reload *reload;
    struct sessions *sessions;
    atomic_bool draining; /* /readyz says so */
    struct auth *keys;    /* NULL: none are asked for */
};

const struct service *api_service(const struct exchange *x);

/* {"error": {"message", "type", "param", "code"}}, empty ones null. NULL for want of memory. */
json_t *api_error(const struct error *err);

/* Answer with a JSON value, which is taken; NULL stands for want of memory. */
void api_reply_json(struct exchange *x, unsigned status, json_t *value);
/* Answer with an error; 503 with Retry-After. */
void api_refuse(struct exchange *x, const struct error *err);
/* Answer with the error that a job ended with. */
void api_refuse_job(struct exchange *x, const struct job *j);

/* Is the body declared as `type`, whatever the parameters? */
bool api_has_type(const struct exchange *x, const char *type);
/* Is nothing said of the body's type? curl says application/x-www-form-urlencoded of a body when it is told nothing,
 * and no endpoint takes forms, so that counts as nothing. */
bool api_has_no_type(const struct exchange *x);

/* Numbers of a JSON text: enough digits for a float32, or for a time in microseconds. */
#define API_JSON_FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(9))

#endif
