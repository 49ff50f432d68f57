/* request_type.h - the declared type of a request's body: its Content-Type and Content-Encoding. HTTP threads; no
 * state. */
#ifndef SERVER_API_REQUEST_TYPE_H
#define SERVER_API_REQUEST_TYPE_H

#include <stdbool.h>

#include "server/http/http.h"

enum { MEDIA_TYPE_MAX = 64 }; /* with its NUL; no type that is accepted is longer */

/* Is the body declared as `type`, whatever its parameters? */
bool request_type_is(const struct exchange *x, const char *type);
/* Is the body's type not declared? curl sends application/x-www-form-urlencoded unless it is told otherwise, and no
 * endpoint takes such forms, so that counts as undeclared. */
bool request_type_is_unsaid(const struct exchange *x);
/* The declared media type without its parameters; false where there is none, or it is too long. */
bool request_type_read(const struct exchange *x, char out[MEDIA_TYPE_MAX]);

/* May the body be read as it is? Compressed ones are not read; then the answer is sent. */
bool request_type_check_encoding(struct exchange *x);

/* For the table of routes: refuse a request whose body is declared as something else, before it is read. A body
 * may be undeclared. */
http_handler request_type_any, request_type_json, request_type_bytes;

#endif
