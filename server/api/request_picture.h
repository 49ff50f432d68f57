/* request_picture.h - the pictures of a request: what they are declared as, and the work of decoding them, which is the
 * job's. HTTP threads, but for request_picture_decode. */
#ifndef SERVER_API_REQUEST_PICTURE_H
#define SERVER_API_REQUEST_PICTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/image.h"
#include "server/api/request_type.h"
#include "server/http/http.h"
#include "server/job/workers.h"
#include "server/media/picture.h"
#include "server/request/classify_request.h"
#include "server/request/fields.h"
#include "server/request/multipart.h"

/* Make a job of what is to be classified; its files lie in the body, which becomes the job's too, and their pixels are
 * charged. Takes `r` in any case. Errors: ERR_NOMEM. */
enum status request_picture_job(struct exchange *x, struct classify_request *r, struct job **ret, struct error *err);

enum { REQUEST_PICTURE_TYPE_MAX = MULTIPART_NAME_MAX };
_Static_assert((int)REQUEST_PICTURE_TYPE_MAX >= (int)MEDIA_TYPE_MAX, "a header's type has room");

/* The one picture of a request, to be decoded by the job's `prepare`. */
struct request_picture {
    struct http_kept_body *body; /* freed once it is decoded; NULL: there is none */
    const uint8_t *bytes;        /* in it */
    size_t size;
    struct picture_wish wish; /* its stop asks the job */
    uint32_t width, height;   /* of the upright picture, once it is decoded */
};
/* Where it lies: the body, or the part of a form. */
struct request_picture_file {
    const uint8_t *bytes;
    size_t size;                         /* 0: there is none */
    char type[REQUEST_PICTURE_TYPE_MAX]; /* declared; "": none is */
};
/* Find it. The form's other parts are added to the query's parameters, of that list. Errors: ERR_ARGUMENT (a part that
 * is not known or given twice), ERR_NOMEM. */
enum status request_picture_find(struct request_picture_file *ret, struct exchange *x, const struct field_list *list,
                                 struct error *err);
bool request_picture_is_part(const struct multipart_part *part);
/* Check what it is declared as, take the body over and charge its pixels; *ns and *bytes: what decoding it takes.
 * *ret is set only on OK: request_picture_clear. Errors: ERR_ARGUMENT (there is none), ERR_MEDIA_TYPE, ERR_NOMEM. */
enum status request_picture_take(struct request_picture *ret, struct exchange *x, const struct request_picture_file *f,
                                 uint32_t shorter, uint32_t longer, uint64_t *ns, uint64_t *bytes, struct error *err);
/* Decode it for the job, and drop the body. Any thread, once; *ret is set only on OK: picture_clear. Errors: those of
 * picture_decode. */
enum status request_picture_decode(struct picture *ret, struct request_picture *p, struct job *j, struct error *err);
void request_picture_clear(struct request_picture *p);

/* The same for a picture that a model of `c` sees at its trained size. Taking it adds what that costs to the work. The
 * result is malloc'd, [size[0], size[1], 3], set only on OK. */
enum status request_picture_take_trained(struct request_picture *ret, struct exchange *x,
                                         const struct request_picture_file *f, const struct model_config *c,
                                         struct job_work *k, struct error *err);
enum status request_picture_trained(uint8_t **ret, struct request_picture *p, struct job *j, struct error *err);

/* Pictures in JSON: strings in base64, or data URIs. */

/* As the `read` and `what` of the field "images" (fields.h): `to` is a const json_t *, borrowed from the JSON. */
bool request_images_read(const json_t *value, void *to);
#define REQUEST_IMAGES_EXPECTED \
    "a list of 1 to " FIELD_DIGITS(CLASSIFY_INPUTS_MAX) " strings: each a picture in base64, or as a data URI"
/* Add the pictures of a value that request_images_read has accepted. Their bytes replace those of the request's body,
 * which must be kept as long as they are needed. Errors: ERR_ARGUMENT; as classify_request_add_file. */
enum status request_images_add(struct exchange *x, struct classify_request *r, const json_t *images, struct error *err);

#endif
