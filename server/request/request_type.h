/* request_type.h - the declared type of a request's body: its Content-Type and Content-Encoding. HTTP threads; no
 * state. */
#ifndef SERVER_REQUEST_REQUEST_TYPE_H
#define SERVER_REQUEST_REQUEST_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/request/request.h"

enum { MEDIA_TYPE_MAX = 64 }; /* with its NUL; no type that is accepted is longer */

/* Is the body declared as `type`, whatever its parameters? */
bool request_type_is(const struct request *x, const char *type);
/* Is the body's type not declared? curl sends application/x-www-form-urlencoded unless it is told otherwise, and no
 * endpoint takes such forms, so that counts as undeclared. */
bool request_type_is_unsaid(const struct request *x);
/* The declared media type without its parameters; false where there is none, or it is too long. */
bool request_type_read(const struct request *x, char out[MEDIA_TYPE_MAX]);

/* May the body be read as it is? Compressed ones are not read. Errors: ERR_MEDIA_TYPE. */
enum status request_type_check_encoding(const struct request *x, struct error *err);

/* Types that a route reads: any, or some of these. */
enum { TYPE_ANY = 0, TYPE_JSON = 1, TYPE_BYTES = 2, TYPE_PICTURE = 4, TYPE_FORM = 8 };
/* Is the body declared as one of them, or not at all? Errors: ERR_MEDIA_TYPE. */
enum status request_type_check(const struct request *x, unsigned types, struct error *err);
/* Has a body at most so many bytes? Errors: ERR_TOO_LARGE. */
enum status request_type_check_size(uint64_t bytes, size_t most, struct error *err);

#endif
