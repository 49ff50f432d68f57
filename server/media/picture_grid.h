/* picture_grid.h - several small pictures of one size as one: in a grid as square as possible, row by row, with a white
 * line of one pixel between them, each pixel made a square. Any thread; no state. */
#ifndef SERVER_MEDIA_PICTURE_GRID_H
#define SERVER_MEDIA_PICTURE_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/picture.h"

struct picture_grid {
    uint32_t columns, scale; /* a pixel's side */
    uint32_t width, height;  /* of the whole, in pixels */
};

/* size: {height, width} of each of the n >= 1 pictures. */
struct picture_grid picture_grid_lay_out(uint32_t n, const uint32_t size[2], uint32_t scale);

/* Paint the pictures, picture i [H, W, 3] at pixels + i * 3 * H * W. *ret is set only on OK: picture_clear it. Errors:
 * ERR_NOMEM. */
enum status picture_grid_paint(struct picture *ret, const struct picture_grid *g, uint32_t n, const uint8_t *pixels,
                               const uint32_t size[2], struct error *err);

#endif
