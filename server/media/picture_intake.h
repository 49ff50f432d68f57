/* picture_intake.h - a picture on its way to a model: what its file will take, before any work is spent on it, and what
 * the model sees of it. Any thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_INTAKE_H
#define SERVER_MEDIA_PICTURE_INTAKE_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/picture.h"
#include "server/media/picture.h"
#include "server/media/picture_cost.h"
#include "server/media/picture_fit.h"

struct engine;
struct model;

/* For whom: pictures of all that are shown to a model at that size (picture_fit_choose; NULL: the trained one). */
struct picture_audience {
    const struct model *model;
    const struct engine *engine;
    const char *size;
    uint32_t longer; /* as of struct picture_options */
};

/* Look at a file. `declared`: a media type that it must agree with, which `name` has declared; NULL: none. *fitted: the
 * pixels that the model will see; 0: it will be refused. Errors: ERR_MEDIA_TYPE. */
enum status picture_look(struct picture_cost *ret, uint64_t *fitted, const struct picture_audience *for_whom,
                         const uint8_t *bytes, size_t size, const char *declared, const char *name, struct error *err);

/* Decode it, by options whose sides are set here, into *whole (picture_clear it), and choose how it is shown. Errors:
 * as picture_decode and picture_fit_choose. *whole is set only on OK. */
enum status picture_take_in(struct picture *whole, struct picture_fit *fit, const struct picture_audience *for_whom,
                            const uint8_t *bytes, size_t size, struct picture_options options, struct error *err);

#endif
