/* request_type.h - what a request's body is declared as: its Content-Type. HTTP threads; no state. */
#ifndef SERVER_API_REQUEST_TYPE_H
#define SERVER_API_REQUEST_TYPE_H

#include <stdbool.h>

#include "server/http/http.h"

enum { MEDIA_TYPE_MAX = 64 }; /* with its NUL; longer ones are none that are read */

/* Is the body declared as `type`, whatever the parameters? */
bool request_type_is(const struct exchange *x, const char *type);
/* Is nothing said of the body's type? curl says application/x-www-form-urlencoded of a body when it is told nothing,
 * and no endpoint takes forms, so that counts as nothing. */
bool request_type_is_unsaid(const struct exchange *x);
/* The declared media type without its parameters; false where there is none, or it is too long. */
bool request_type_read(const struct exchange *x, char out[MEDIA_TYPE_MAX]);

/* For the table of routes: refuse a request whose body is declared as something else, before it is read. Of a body
 * nothing may be said. */
http_handler request_type_any, request_type_json, request_type_bytes;

#endif
