/* drawing.h - a model's figures as pictures: maps laid over their pictures, and sheets of tiles. Any thread;
 * no state. */
#ifndef SERVER_MEDIA_DRAWING_H
#define SERVER_MEDIA_DRAWING_H

#include "config/status.h"
#include "engine/engine.h"
#include "engine/picture.h"

/* Colour the part `box` of a picture, turned grey, by map [down, across], values >= 0: from violet for 0 through red to
 * yellow for the map's largest, and linearly between the cells' centres. What lies outside the box stays as it is but
 * darker, behind a thin frame. */
void draw_map(struct picture *onto, const struct picture_box *box, const float *map, uint32_t down, uint32_t across);

/* Tiles side by side, a block of rows for each layer, in it a tile for each head: of position biases, as
 * engine_biases_read has them, or of maps. Biases, exp(w) - 1, are red for more than without a bias, blue for less and
 * white for no difference; maps as draw_map has them. Each tile has its own scale: those of heads differ by orders
 * of magnitude. */
struct sheet {
    const struct engine *engine;         /* whose biases; NULL: maps */
    const float *maps;                   /* [layers, heads, down, across] */
    uint32_t layer, layers, head, heads; /* of biases */
    uint32_t down, across;               /* cells of a tile */
};
/* The side on which it has two pixels for each cell: EXPLAIN_SIDE_DEFAULT or more, up to EXPLAIN_SIDE_MAX. */
uint32_t draw_sheet_side(const struct sheet *s);
/* No side of the picture is longer than `side`. picture_clear *ret, which is set only on OK. Errors: ERR_ARGUMENT
 * ("side": not one pixel for each tile), ERR_NOMEM. */
enum status draw_sheet(struct picture *ret, const struct sheet *s, uint32_t side, struct error *err);

/* A table of counts [n, n] as a square of at most `side` pixels, or of n: each count a cell, from white for none to
 * black for all of its row, by the root of the share, so that few can be seen. picture_clear *ret, which is set only on
 * OK. Errors: ERR_NOMEM. */
enum status draw_table_of_counts(struct picture *ret, const uint32_t *counts, uint32_t n, uint32_t side,
                                 struct error *err);

#endif
