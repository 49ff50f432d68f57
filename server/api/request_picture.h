/* request_picture.h - the pictures of a request: what they are declared as, and the work of decoding them, which is the
 * job's. HTTP threads, but for request_picture_decode. */
#ifndef SERVER_API_REQUEST_PICTURE_H
#define SERVER_API_REQUEST_PICTURE_H

#include "engine/image.h"
#include "server/http/http.h"
#include "server/job/workers.h"
#include "server/media/picture.h"
#include "server/request/classify_request.h"

/* For the table of routes: refuse a request whose body is declared as something else, before it is read. */
http_handler request_picture_type;
/* The same where other types are accepted too; `or_else` lists them at the message's end: ", or ...". */
void request_picture_check_type(struct exchange *x, const char *or_else);

/* Make a job of what is to be classified; its files lie in the body, which becomes the job's too, and their pixels are
 * charged. Takes `r` in any case. Errors: ERR_NOMEM. */
enum status request_picture_job(struct exchange *x, struct classify_request *r, struct job **ret, struct error *err);

/* A picture that is the whole body of a request, to be decoded by the job's `prepare`. */
struct request_picture {
    struct http_kept_body *body; /* freed once it is decoded; NULL: there is none */
    const uint8_t *bytes;        /* in it */
    size_t size;
    struct picture_wish wish; /* its stop asks the job */
    uint32_t width, height;   /* of the upright picture, once it is decoded */
};
/* Check what the body is declared as, take it over and charge its pixels; *ns and *bytes: what decoding it takes.
 * *ret is set only on OK: request_picture_clear. Errors: ERR_ARGUMENT (an empty body), ERR_MEDIA_TYPE, ERR_NOMEM. */
enum status request_picture_take(struct request_picture *ret, struct exchange *x, uint32_t shorter, uint32_t longer,
                                 uint64_t *ns, uint64_t *bytes, struct error *err);
/* Decode it for the job, and drop the body. Any thread, once; *ret is set only on OK: picture_clear. Errors: those of
 * picture_decode_as. */
enum status request_picture_decode(struct picture *ret, struct request_picture *p, struct job *j, struct error *err);
void request_picture_clear(struct request_picture *p);

/* The same for a picture that a model of `c` sees at its trained size. Taking it adds what that costs to the work. The
 * result is malloc'd, [size[0], size[1], 3], set only on OK. */
enum status request_picture_take_trained(struct request_picture *ret, struct exchange *x, const struct model_config *c,
                                         struct job_work *k, struct error *err);
enum status request_picture_trained(uint8_t **ret, struct request_picture *p, struct job *j, struct error *err);

#endif
