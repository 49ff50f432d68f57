/* request_picture.h - the pictures of a request: where they are, and the body that has them, which the job keeps until
 * they are decoded. HTTP threads. */
#ifndef SERVER_OPERATION_REQUEST_PICTURE_H
#define SERVER_OPERATION_REQUEST_PICTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/picture.h"
#include "server/fields/fields.h"
#include "server/fields/multipart.h"
#include "server/media/picture.h"
#include "server/operation/picture_inputs.h"
#include "server/request/request.h"
#include "server/request/request_head.h"

enum { REQUEST_FILES_MAX = CLASSIFY_INPUTS_MAX + 1 }; /* one more than are accepted */

/* Find the files of pictures: the body, unless it is empty, whose name is empty; or parts of a form, of which so many
 * are looked at, with or without empty ones (an input of a page that was left as it was). The form's other parts,
 * fields of that list, are added to `object`. Errors: ERR_ARGUMENT (a part that is not known, or not a part),
 * ERR_NOMEM. */
enum status request_picture_find(struct multipart_part *files, size_t max, bool with_empty, size_t *count,
                                 struct request *x, const struct field_list *list, json_t *object, struct error *err);
/* The same where there may be one, of size 0 if there is none. The other parts are added to the query's parameters. */
enum status request_picture_find_one(struct multipart_part *ret, struct request *x, const struct field_list *list,
                                     struct error *err);

/* Add that file to inputs that have no other. Errors: as picture_inputs_add_file; ERR_ARGUMENT: there is none. */
enum status request_picture_add(struct picture_inputs *r, const struct multipart_part *file, struct error *err);

/* Pictures in JSON: strings in base64, or data URIs. */

/* As the `read` and `what` of the field "images" (fields.h): `to` is a const json_t *, borrowed from the JSON. */
bool request_pictures_read(const json_t *value, void *to);
#define REQUEST_PICTURES_EXPECTED \
    "a list of 1 to " FIELD_DIGITS(CLASSIFY_INPUTS_MAX) " strings: each a picture in base64, or as a data URI"
/* Add the pictures of a value that request_pictures_read has accepted. Their bytes replace those of the request's body.
 * Errors: ERR_ARGUMENT; as picture_inputs_add_file. */
enum status request_pictures_add(struct picture_inputs *r, const json_t *images, struct error *err);

#endif
