/* request_inputs.h - the inputs of a request, gathered one by one, whichever API they came by: pictures as files or as
 * pixels, or texts. Files are looked at here, and decoded by whoever prepares the job (server/request/workers.h): it is the
 * job's work. */
#ifndef SERVER_OPERATION_PICTURE_INPUTS_H
#define SERVER_OPERATION_PICTURE_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/image.h"
#include "server/media/picture_fit.h"
#include "server/operation/classify.h"
#include "server/request/workers.h"

struct hosted_model;

/* Sides of the upright picture; 0 for a text. */
struct request_side {
    uint32_t width, height;
};

/* What `prepare` makes of a file. */
struct request_seen {
    uint8_t *pixels; /* [fit.height, fit.width, 3], as the model is to see them; malloc'd */
    struct picture_fit fit;
    const struct picture *picture;
};
/* Give the job what was made of file i, whose pixels are taken on OK, and set how much the work keeps. */
typedef enum status request_inputs_fill(struct job *j, uint32_t i, const struct request_seen *seen, struct error *err);

enum { REQUEST_PARAM_MAX = 64 };

/* A picture that is to be decoded. */
struct request_file {
    const uint8_t *bytes; /* borrowed; NULL: the input is something else, and complete */
    size_t size;
    uint64_t bytes_max;            /* as its header promises */
    char param[REQUEST_PARAM_MAX]; /* empty: it is the only one */
};

/* Begins the struct of whoever adds to it what more its job's work needs. */
struct request_inputs {
    struct job_work work; /* first */
    struct hosted_model *model;
    request_inputs_fill *fill;
    char *size;      /* NULL: the trained one */
    uint32_t longer; /* as of struct picture_wish */
    uint32_t count;
    struct classify_input inputs[CLASSIFY_INPUTS_MAX]; /* pixels are owned until there is a job */
    struct request_side sides[CLASSIFY_INPUTS_MAX];
    struct request_file files[CLASSIFY_INPUTS_MAX];
    uint64_t pixels;      /* of all files, as their headers say */
    uint64_t fitted;      /* of all that are prepared */
    uint64_t decode_most; /* bytes of the file that takes most */
    void *kept; /* what the files' bytes lie in: `drop` is called with it once they are decoded, or at the end */
    void (*drop)(void *kept);
};

/* ---- HTTP threads ------------------------------------------------------------------------------------------------ */

/* For inputs of a model, which outlives the request or its job; work.free is the caller's. `size`, at which the model
 * is to see pictures (picture_fit_choose), is copied; NULL: the trained size. Errors: ERR_NOMEM. */
enum status request_inputs_init(struct request_inputs *r, struct hosted_model *model, request_inputs_fill *fill,
                                const char *size, struct error *err);
void request_inputs_clear(struct request_inputs *r); /* zeroed is fine */

/* Inputs to classify. NULL: ERR_NOMEM. */
struct request_inputs *request_inputs_create(struct hosted_model *model, const char *size, struct error *err);
void request_inputs_free(struct request_inputs *r); /* NULL is a no-op */

/* Add a picture file, to be decoded and resized to what the model is to see; the bytes are borrowed until then.
 * `declared`: a media type that it must agree with, NULL or "" for none. `param` names the input and is put before
 * messages; NULL where there is only one. Errors: ERR_ARGUMENT (too many), ERR_MEDIA_TYPE, ERR_PICTURE (too many pixels
 * in all); later, of the job: ERR_ARGUMENT (`size`), ERR_MEDIA_TYPE, ERR_PICTURE, ERR_NOMEM. */
enum status request_inputs_add_file(struct request_inputs *r, const uint8_t *bytes, size_t size, const char *declared,
                                    const char *param, struct error *err);
/* Add pixels [height, width, 3] as the model is to see them, malloc'd; taken on OK. Errors: ERR_ARGUMENT (too many). */
enum status request_inputs_add_pixels(struct request_inputs *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                      const char *param, struct error *err);
/* Add a text, which is copied: at most as many bytes as the model takes. Errors: ERR_ARGUMENT (its length,
 * too many), ERR_NOMEM. */
enum status request_inputs_add_text(struct request_inputs *r, const char *bytes, size_t size, const char *param,
                                    struct error *err);

/* Make a job that classifies all inputs, at least one, and becomes their owner. Errors: ERR_NOMEM: they are still the
 * caller's. */
enum status request_inputs_job(struct job **ret, struct request_inputs *r, struct error *err);

/* Of a finished job: the sides of input i; and its pixels are no longer needed. */
struct request_side request_inputs_side(const struct job *j, uint32_t i);
void request_inputs_done(struct job *j);

#endif
