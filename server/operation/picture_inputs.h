/* picture_inputs.h - the inputs of a request, gathered one by one, whichever API they came by: pictures as files or as
 * pixels, or texts. Files are looked at here, and decoded by whoever preprocesses the job (server/request/workers.h):
 * it is the job's work. */
#ifndef SERVER_OPERATION_PICTURE_INPUTS_H
#define SERVER_OPERATION_PICTURE_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/engine.h"
#include "engine/picture.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"
#include "server/request/request.h"

struct hosted_model;

enum { PICTURE_PARAM_MAX = 64 };

/* A picture, first as a file, and then as its model wants it; or a text. */
struct picture_input {
    const uint8_t *file; /* of the request's body; NULL: there is none */
    size_t file_bytes;
    uint64_t bytes_max;                 /* that decoding it takes, as its header promises */
    char param[PICTURE_PARAM_MAX];      /* empty: it is the only one */
    uint32_t whole_width, whole_height; /* sides of the upright picture; 0 for a text */
    uint8_t *pixels; /* [height, width, 3]; for a text its bytes [width], with height 1; malloc'd. NULL: yet to come */
    uint32_t height, width;
    uint32_t classes;      /* of a classifier */
    struct engine_map map; /* as for engine_batch_want_map, into the job's memory; no layers: no map is wanted */
    size_t map_values;     /* of all maps */
};

/* Input i has its pixels, as the model is to see them: what else the job needs of it. Sets how much the work keeps. */
typedef enum status picture_fill(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                                 struct error *err);

struct picture_inputs {
    struct picture_input list[CLASSIFY_INPUTS_MAX]; /* [count], of one model, of any sizes */
    uint32_t count;
    struct request *request;
    picture_fill *fill;
    char *size; /* at which the model is to see pictures (picture_fit_choose); NULL: the trained one */
    struct picture_options options; /* of decoding them; `longer` may be set before files are added */
    uint64_t pixels;                /* of all files, as their headers say */
    uint64_t fitted;                /* of all that are preprocessed */
    uint64_t decode_most;           /* bytes of the file that takes most */
};

/* ---- HTTP threads ----------------------------------------------------------------------------------------------- */

/* For the inputs of the request's job, which is begun and has its model; *r is the job's, zeroed. `size` is copied.
 * Errors: ERR_NOMEM. */
enum status picture_inputs_init(struct picture_inputs *r, struct request *x, picture_fill *fill, const char *size,
                                struct error *err);

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

/* Of a job that is done: the inputs are not needed any more. Any thread, with the last reference too. */
void picture_inputs_drop(struct picture_inputs *r);

#endif
