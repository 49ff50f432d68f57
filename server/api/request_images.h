/* request_images.h - pictures in a request's JSON: strings in base64, or data URIs. HTTP threads; no state. */
#ifndef SERVER_API_REQUEST_IMAGES_H
#define SERVER_API_REQUEST_IMAGES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"
#include "server/http/http.h"
#include "server/request/classify_request.h"
#include "server/request/fields.h"

/* As the `read` and `what` of the field "images" (fields.h): `to` is a const json_t *, borrowed from the JSON. */
bool request_images_read(const json_t *value, void *to);
#define REQUEST_IMAGES_EXPECTED \
    "a list of 1 to " FIELD_DIGITS(CLASSIFY_INPUTS_MAX) " strings: each a picture in base64, or as a data URI"
/* Add the pictures of a value that request_images_read has accepted. Their bytes replace those of the request's body,
 * which must be kept as long as they are needed. Errors: ERR_ARGUMENT; as classify_request_add_file. */
enum status request_images_add(struct exchange *x, struct classify_request *r, const json_t *images, struct error *err);

#endif
