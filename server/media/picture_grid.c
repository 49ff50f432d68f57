/* picture_grid.c - see picture_grid.h. */
#include "server/media/picture_grid.h"

#include <stdlib.h>
#include <string.h>

struct picture_grid picture_grid_lay_out(uint32_t n, const uint32_t size[2], uint32_t scale)
{
    uint32_t columns = 1;
    while (columns * columns < n)
        columns++;
    const uint32_t lines = (n + columns - 1) / columns;
    return (struct picture_grid){
        .columns = columns,
        .scale = scale,
        .width = (columns * (size[1] + 1) - 1) * scale,
        .height = (lines * (size[0] + 1) - 1) * scale,
    };
}

static void paint_one(struct picture *to, const struct picture_grid *g, uint32_t cell, const uint8_t *pixels,
                      const uint32_t size[2])
{
    const size_t left = (size_t)(cell % g->columns) * (size[1] + 1), top = (size_t)(cell / g->columns) * (size[0] + 1);
    for (size_t y = 0; y < (size_t)size[0] * g->scale; y++) {
        uint8_t *line = to->pixels + 3 * ((top * g->scale + y) * to->width + left * g->scale);
        for (size_t x = 0; x < (size_t)size[1] * g->scale; x++)
            memcpy(line + 3 * x, pixels + 3 * (y / g->scale * size[1] + x / g->scale), 3);
    }
}

enum status picture_grid_paint(struct picture *ret, const struct picture_grid *g, uint32_t n, const uint8_t *pixels,
                               const uint32_t size[2], struct error *err)
{
    struct picture picture = {
        .pixels = malloc((size_t)3 * g->width * g->height), .width = g->width, .height = g->height};
    if (picture.pixels == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the picture; try again later");
    memset(picture.pixels, UINT8_MAX, (size_t)3 * g->width * g->height);
    for (uint32_t i = 0; i < n; i++)
        paint_one(&picture, g, i, pixels + (size_t)i * 3 * size[0] * size[1], size);
    *ret = picture;
    return OK;
}
