/* request_bytes.h - bytes that a request gives as a text, or in base64 where they are not valid text. HTTP threads; no
 * state. */
#ifndef SERVER_FIELDS_REQUEST_BYTES_H
#define SERVER_FIELDS_REQUEST_BYTES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

/* RFC 4648's base64, padded, without line breaks, `in` ending with a NUL; false if it is something else. out [*size],
 * at least in_size; *size becomes the number of bytes decoded. */
bool request_base64_decode(const char *in, size_t in_size, uint8_t *out, size_t *size);

/* The field `name` (`text`, a string) or NAME_base64 (`base64`, a string), each NULL if it is not given: *ret is
 * malloc'd, *size bytes, at most `max`. NULL and 0 if neither is given, or it is empty. Set only on OK.
 * Errors: ERR_ARGUMENT, ERR_NOMEM. */
enum status request_bytes_read(uint8_t **ret, size_t *size, const char *name, const json_t *text, const json_t *base64,
                               size_t max, struct error *err);

#endif
