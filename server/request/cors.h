/* cors.h - which pages of other origins a browser may allow to call this daemon (the Fetch standard, 3.2). Any
 * thread. */
#ifndef SERVER_REQUEST_CORS_H
#define SERVER_REQUEST_CORS_H

#include <stdbool.h>

#include "config/status.h"

#define CORS_OFF "off"

/* The headers that a page's script may read of an answer, those that it may send besides the ones always allowed, and
 * how many seconds a browser may remember that. */
#define CORS_EXPOSED                                                                                         \
    "X-Request-Id, X-Session-ID, traceparent, Server-Timing, Retry-After, X-Should-Retry, X-Seed, X-Model, " \
    "X-Prompt-Tokens-Dropped, X-Explain-Prediction"
#define CORS_ALLOWED \
    "*, Authorization, Content-Type, Last-Event-ID, X-API-Key, X-Request-Id, X-Session-ID, traceparent, tracestate"
#define CORS_MAX_AGE_S "600"

/* Is the setting cors_origins "off", "*" or a comma-separated list of origins? Errors: ERR_CONFIG. */
enum status cors_check(const char *origins, struct error *err);
/* The value of Access-Control-Allow-Origin for this Origin (NULL: the request has none): "*" or the origin itself,
 * which is borrowed; NULL: the header is left out. */
const char *cors_answer(const char *origins, const char *origin);
/* Does the answer depend on the Origin? Caches must be told. */
bool cors_varies(const char *origins);

#endif
