/* classify_request.h - the inputs that a request wants classified, gathered one by one, whichever API it came by:
 * pictures as files or as pixels, or texts. Files are looked at here, and decoded by whoever prepares the job
 * (server/job/workers.h): it is the job's work. */
#ifndef SERVER_REQUEST_CLASSIFY_REQUEST_H
#define SERVER_REQUEST_CLASSIFY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/image.h"
#include "server/job/workers.h"
#include "server/kinds/classify.h"

struct hosted_model;

/* Sides of the upright picture; 0 for a text. */
struct classify_side {
    uint32_t width, height;
};

struct classify_request;

/* ---- HTTP threads ------------------------------------------------------------------------------------------------ */

/* For inputs of a model, which outlives the request or its job. `size`, at which the model is to see pictures
 * (picture_fit_choose), is copied; NULL: the trained size. NULL: no memory. */
struct classify_request *classify_request_create(struct hosted_model *model, const char *size);
void classify_request_free(struct classify_request *r); /* NULL is a no-op */

uint32_t classify_request_count(const struct classify_request *r);

/* Add a picture file, to be decoded and resized to what the model is to see; the bytes are borrowed until then.
 * `declared`: a media type that it must agree with, NULL or "" for none. `param` names the input and is put before
 * messages; NULL where there is only one. Errors: ERR_ARGUMENT (too many), ERR_MEDIA_TYPE, ERR_PICTURE (too many pixels
 * in all); later, of the job: ERR_ARGUMENT (`size`), ERR_MEDIA_TYPE, ERR_PICTURE, ERR_NOMEM. */
enum status classify_request_add_file(struct classify_request *r, const uint8_t *bytes, size_t size,
                                      const char *declared, const char *param, struct error *err);
/* Add pixels [height, width, 3] as the model is to see them, malloc'd; taken on OK. Errors: ERR_ARGUMENT (too many). */
enum status classify_request_add_pixels(struct classify_request *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                        const char *param, struct error *err);
/* Add a text, which is copied: at most as many bytes as the model takes. Errors: ERR_ARGUMENT (its length,
 * too many), ERR_NOMEM. */
enum status classify_request_add_text(struct classify_request *r, const char *bytes, size_t size, const char *param,
                                      struct error *err);

/* What the files' bytes lie in: `drop` is called with it once they are decoded, or with the request. */
void classify_request_keep(struct classify_request *r, void *kept, void (*drop)(void *kept));
/* Are there files to decode? And how many pixels they have together, as their headers say. */
bool classify_request_has_files(const struct classify_request *r);
uint64_t classify_request_pixels(const struct classify_request *r);

/* Make a job of all inputs, at least one; the request becomes its work. Errors: ERR_NOMEM: it is still the
 * caller's. */
enum status classify_request_job(struct job **ret, struct classify_request *r, struct error *err);

/* Of a finished job: the sides of input i; and its pixels are no longer needed. */
struct classify_side classify_request_side(const struct job *j, uint32_t i);
void classify_request_done(struct job *j);

#endif
