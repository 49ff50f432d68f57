/* classify_request.h - the inputs that a request wants classified, gathered one by one, whichever API it came by:
 * pictures as files or as pixels, or texts. HTTP threads; no state of its own. */
#ifndef SERVER_REQUEST_CLASSIFY_REQUEST_H
#define SERVER_REQUEST_CLASSIFY_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "engine/image.h"
#include "server/kinds/classify.h"

struct hosted_model;

/* Zeroed, except what is set before the first input; end with classify_request_clear. */
struct classify_request {
    struct hosted_model *model; /* borrowed */
    const char *size;           /* at which the model sees pictures (picture_fit_choose); NULL: the trained size */
    uint32_t count;
    struct classify_input inputs[CLASSIFY_INPUTS_MAX];
    struct classify_side {
        uint32_t width, height; /* of the upright picture; 0 for a text */
    } sides[CLASSIFY_INPUTS_MAX];
    uint64_t decoded, fitted; /* pixels of all pictures */
};

/* Add a picture file, resized to what the model is to see. `declared`: a media type that it must agree with, NULL or ""
 * for none. `param` names the input and is put before messages; NULL where there is only one. Errors: ERR_ARGUMENT (too
 * many, `size`), ERR_MEDIA_TYPE, ERR_PICTURE (also: too many pixels in all), ERR_NOMEM. */
enum status classify_request_add_file(struct classify_request *r, const uint8_t *bytes, size_t size,
                                      const char *declared, const char *param, struct error *err);
/* Add pixels [height, width, 3] as the model is to see them, malloc'd; taken on OK. Errors: ERR_ARGUMENT (too many). */
enum status classify_request_add_pixels(struct classify_request *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                        const char *param, struct error *err);
/* Add a text, which is copied: at most as many bytes as the model takes. Errors: ERR_ARGUMENT (its length,
 * too many), ERR_NOMEM. */
enum status classify_request_add_text(struct classify_request *r, const char *bytes, size_t size, const char *param,
                                      struct error *err);

/* Make a job of all inputs, at least one; the job takes them over. Errors: ERR_NOMEM. */
enum status classify_request_job(struct job **ret, struct classify_request *r, struct error *err);
void classify_request_clear(struct classify_request *r);

#endif
