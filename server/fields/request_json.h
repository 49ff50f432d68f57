/* request_json.h - a request's body as a JSON object, with limits on what the parser gets. */
#ifndef SERVER_FIELDS_REQUEST_JSON_H
#define SERVER_FIELDS_REQUEST_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

/* *ret is set only on OK: json_decref. Errors: ERR_ARGUMENT: an empty body, not JSON, not an object, a duplicate
 * key, too deep or too many values. */
enum status request_json_parse(json_t **ret, const uint8_t *body, size_t size, struct error *err);
/* The same with up to JSON_BYTES_VALUES_MAX values: where bytes may be given as numbers. */
enum status request_json_parse_bytes(json_t **ret, const uint8_t *body, size_t size, struct error *err);

#endif
