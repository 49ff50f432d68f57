/* picture.h - pixels as decoded -> pixels as the model wants them: Pillow's antialiased resize of the shorter side and
 * centre crop, bit for bit (its fixed-point filter arithmetic), so that accuracy measured in Python holds here.
 * Of a reduced picture everything is as of the one that it stands for, except that there are fewer pixels to filter.
 * Any thread; no state. */
#ifndef ENGINE_PICTURE_H
#define ENGINE_PICTURE_H

#include <stdint.h>

#include "config/status.h"
#include "weights/model_config.h"

/* An 8-bit RGB picture, rows top to bottom without padding: pixels [height, width, 3]. One that was decoded to fewer
 * pixels than its file has stands for that whole picture: 1 / `reduced` of each side, rounded up. */
struct picture {
    uint8_t *pixels; /* owned; NULL when empty */
    uint32_t width, height;
    uint32_t reduced;                   /* 2, 4 or 8; 0: it is whole */
    uint32_t whole_width, whole_height; /* of a reduced one, else 0 */
};

/* The sides of the picture that this is, or stands for. */
static inline uint32_t picture_whole_width(const struct picture *p)
{
    return p->reduced != 0 ? p->whole_width : p->width;
}

static inline uint32_t picture_whole_height(const struct picture *p)
{
    return p->reduced != 0 ? p->whole_height : p->height;
}

void picture_clear(struct picture *p); /* frees; zeroed is fine */

/* Resize the shorter side of `in` to resize_to (the longer truncated to a whole number, at least 1), crop the centre
 * to `width` x `height` (offset rounded half to even; what lies outside is black) into out [height, width, 3].
 * Errors: ERR_NOMEM. */
enum status picture_prepare(uint8_t *out, uint32_t width, uint32_t height, const struct picture *in, uint32_t resize_to,
                            enum interpolation how, struct error *err);

/* A part of a picture, in pixels of it; it may reach outside. */
struct picture_box {
    double left, top, width, height;
};

/* The part of the whole picture that picture_prepare shows: the crop, before the resizing. */
struct picture_box picture_crop_box(const struct picture *of, uint32_t resize_to, uint32_t width, uint32_t height);

/* Resize the whole picture to width x height, each side by itself, into out [height, width, 3]. Errors: ERR_NOMEM. */
enum status picture_resize(uint8_t *out, uint32_t width, uint32_t height, const struct picture *in,
                           enum interpolation how, struct error *err);

#endif
