/* cors.h - which pages of other origins a browser may let ask this daemon (the Fetch standard, 3.2). Any thread. */
#ifndef SERVER_HTTP_CORS_H
#define SERVER_HTTP_CORS_H

#include <stdbool.h>

#include "config/status.h"

#define CORS_OFF "off"

/* What a page's script may read of an answer, and send beside what it always may. */
#define CORS_EXPOSED "X-Request-Id, Server-Timing, Retry-After, X-Seed, X-Explain-Prediction"
#define CORS_ALLOWED "Authorization, Content-Type, X-API-Key, X-Request-Id"
#define CORS_MAX_AGE_S "600"

/* Is the setting cors_origins "off", "*" or a list of origins with commas between them? Errors: ERR_CONFIG. */
enum status cors_check(const char *origins, struct error *err);
/* What Access-Control-Allow-Origin says to this Origin (NULL: the request has none): "*" or the origin itself, which is
 * borrowed; NULL: nothing. */
const char *cors_answer(const char *origins, const char *origin);
/* Does the answer depend on who asks? Caches must know. */
bool cors_varies(const char *origins);

#endif
