/* picture_inputs.h - the inputs of a request, gathered one by one, whichever API they came by: pictures as files or as
 * pixels, or texts. Files are looked at here, and decoded by whoever prepares the job (server/request/workers.h): it is
 * the job's work. */
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
#include "server/request/request.h"

struct hosted_model;

/* Sides of the upright picture; 0 for a text. */
struct picture_side {
    uint32_t width, height;
};

/* What `prepare` makes of a file. */
struct picture_seen {
    uint8_t *pixels; /* [fit.height, fit.width, 3], as the model is to see them; malloc'd */
    struct picture_fit fit;
    const struct picture *picture;
};
/* Give the job what was made of file i, whose pixels are taken on OK, and set how much the work keeps. */
typedef enum status picture_inputs_fill(struct job *j, uint32_t i, const struct picture_seen *seen, struct error *err);

enum { PICTURE_PARAM_MAX = 64 };

/* A picture that is to be decoded. */
struct picture_file {
    const uint8_t *bytes; /* of the body; NULL: the input is something else, and complete */
    size_t size;
    uint64_t bytes_max;            /* as its header promises */
    char param[PICTURE_PARAM_MAX]; /* empty: it is the only one */
};

struct picture_inputs {
    struct request *request;
    const struct hosted_model *model;
    picture_inputs_fill *fill;
    char *size;      /* at which the model is to see pictures (picture_fit_choose); NULL: the trained one */
    uint32_t longer; /* as of struct picture_wish */
    uint32_t count;
    struct picture_side sides[CLASSIFY_INPUTS_MAX];
    struct picture_file files[CLASSIFY_INPUTS_MAX];
    uint64_t pixels;      /* of all files, as their headers say */
    uint64_t fitted;      /* of all that are prepared */
    uint64_t decode_most; /* bytes of the file that takes most */
};

/* ---- HTTP threads ------------------------------------------------------------------------------------------------ */

/* For the inputs of the request's job, which is begun and has its model. `fill`: NULL for a job that classifies. `size`
 * is copied. Errors: ERR_NOMEM. */
enum status picture_inputs_create(struct picture_inputs **ret, struct request *x, picture_inputs_fill *fill,
                                  const char *size, struct error *err);

/* Add a picture file of the body, to be decoded and resized to what the model is to see.
 * `declared`: a media type that it must agree with, NULL or "" for none. `param` names the input and is put before
 * messages; NULL where there is only one. Errors: ERR_ARGUMENT (too many), ERR_MEDIA_TYPE, ERR_PICTURE (too many pixels
 * in all); later, of the job: ERR_ARGUMENT (`size`), ERR_MEDIA_TYPE, ERR_PICTURE, ERR_NOMEM. */
enum status picture_inputs_add_file(struct picture_inputs *r, const uint8_t *bytes, size_t size, const char *declared,
                                    const char *param, struct error *err);
/* Add pixels [height, width, 3] as the model is to see them, malloc'd; taken on OK. Errors: ERR_ARGUMENT (too many). */
enum status picture_inputs_add_pixels(struct picture_inputs *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                      const char *param, struct error *err);
/* Add a text, which is copied: at most as many bytes as the model takes. Errors: ERR_ARGUMENT (its length,
 * too many), ERR_NOMEM. */
enum status picture_inputs_add_text(struct picture_inputs *r, const char *bytes, size_t size, const char *param,
                                    struct error *err);

/* All inputs of a job that classifies are there. `pooled`: as of classify_make_room. Errors: ERR_NOMEM. */
enum status picture_inputs_make_job(struct picture_inputs *r, bool pooled, struct error *err);

/* Of a job that is done: what its answer says of input i; and that its inputs are not needed any more. */
struct picture_side picture_inputs_side(const struct job *j, uint32_t i);
void picture_inputs_done(struct job *j);

#endif
