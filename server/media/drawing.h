/* drawing.h - a model's figures as pictures: maps laid over their pictures, and tiles of position biases. Any thread;
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

/* Position biases, exp(w) - 1: a row of tiles for each layer, in it a tile for each head, or of one layer or head alone
 * (DRAW_ALL_LAYERS, ENGINE_ALL_HEADS: all). Red is more than without a bias, blue less, white no difference; each tile
 * has its own scale, from minus to plus its largest value, because those of heads differ by orders of magnitude. No
 * side of the picture is longer than `side`. The engine must have biases. picture_clear *ret, which is set only on OK.
 * Errors: ERR_ARGUMENT ("side": not one pixel for each tile), ERR_NOMEM. */
#define DRAW_ALL_LAYERS UINT32_MAX
enum status draw_biases(struct picture *ret, const struct engine *e, uint32_t layer, uint32_t head, uint32_t side,
                        struct error *err);

/* A table of counts [n, n] as a square of at most `side` pixels, or of n: each count a cell, from white for none to
 * black for all of its row, by the root of the share, so that few can be seen. picture_clear *ret, which is set only on
 * OK. Errors: ERR_NOMEM. */
enum status draw_table_of_counts(struct picture *ret, const uint32_t *counts, uint32_t n, uint32_t side,
                                 struct error *err);

#endif
