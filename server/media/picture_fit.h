/* picture_fit.h - which size a picture is shown to a model at: the trained one, its own, or one that was asked for.
 * For /classify, /explain and their verbs of aft. Any thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_FIT_H
#define SERVER_MEDIA_PICTURE_FIT_H

#include "config/status.h"
#include "engine/engine.h"
#include "engine/picture.h"

/* As picture_prepare takes it: the shorter side becomes resize_to, the centre is cropped. */
struct picture_fit {
    uint32_t resize_to, height, width;
};

/* `size` is what a client or user wrote; NULL: the trained size. "native": every pixel as it is, each side cut to a
 * multiple of the patch, at least one patch. "HxW", multiples of the patch: resized and cropped as for the trained
 * size, in proportion. Only for models whose positions are not learnt for one size, and for as many patches as the
 * engine was opened for. *ret is set only on OK. Errors: ERR_ARGUMENT ("size"), saying what was expected. */
enum status picture_fit_choose(struct picture_fit *ret, const char *size, const struct picture *p,
                               const struct model *m, const struct engine *e, struct error *err);

/* What decoding a picture for that size must leave of it: the length that its shorter side becomes, or
 * PICTURE_SIDE_MAX: all pixels. `size` is as above, and need not be one that picture_fit_choose takes. */
uint32_t picture_fit_shorter(const char *size, const struct model_config *c);

/* The picture as the model wants it: *ret is malloc'd, [height, width, 3]; set only on OK. Errors: ERR_NOMEM. */
enum status picture_fit_apply(uint8_t **ret, const struct picture_fit *f, const struct picture *p,
                              const struct model_config *c, struct error *err);

#endif
