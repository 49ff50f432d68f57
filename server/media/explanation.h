/* explanation.h - what can be shown of a model: the views, and a request for one, checked against the model. For
 * POST /explain and aft explain. Any thread; no state. */
#ifndef SERVER_MEDIA_EXPLANATION_H
#define SERVER_MEDIA_EXPLANATION_H

#include "config/status.h"
#include "engine/engine.h"
#include "engine/picture.h"
#include "server/media/drawing.h"
#include "weights/model.h"

/* keys: AFT's weights exp(k - max k) of a picture's patches; tokens, queries: the size of their keys or queries, where
 * those are vectors; biases: the learnt position biases. */
#define EXPLAIN_VIEWS(X)          \
    X(EXPLAIN_KEYS, "keys")       \
    X(EXPLAIN_TOKENS, "tokens")   \
    X(EXPLAIN_QUERIES, "queries") \
    X(EXPLAIN_BIASES, "biases")
#define X(constant, word) constant,
enum explain_view { EXPLAIN_VIEWS(X) };
#undef X
const char *explain_view_word(enum explain_view view);

/* As a client or user wrote it; NULL where nothing was said. */
struct explain_request {
    const char *view, *layer, *head, *row, *side;
};

struct explanation {
    enum explain_view view;
    uint32_t layer, layers; /* from `layer` on */
    uint32_t head, heads;   /* likewise; heads 0: all together. Of biases by position: patches */
    uint32_t side;          /* pixels of the longer side of what is drawn */
};

/* Does a request ask for the view that needs no picture, and accepts models of any task? */
bool explain_wants_biases(const struct explain_request *r);

/* Does it show several maps side by side, or biases, and not one map laid over its picture? */
bool explain_is_sheet(const struct explanation *x);

/* Fill in what was not said: keys or tokens, as the model has them; the last layer and all heads together, for biases
 * each layer and head; EXPLAIN_SIDE_DEFAULT, of biases more if that is less than two pixels a cell. *ret is set only
 * on OK. Errors: ERR_ARGUMENT naming the parameter, its value and what was expected. */
enum status explain_resolve(struct explanation *ret, const struct explain_request *r, const struct model *m,
                            const struct engine *e, struct error *err);

/* The maps that it wants of a picture of so many patches, without their memory, and how many values they have. Errors:
 * ERR_ARGUMENT (more than EXPLAIN_VALUES_MAX). */
enum status explain_maps(struct engine_map *ret, size_t *values, const struct explanation *x, size_t patches,
                         struct error *err);

/* The sheet of position biases. */
struct sheet explain_biases(const struct explanation *x, const struct engine *e);

/* Draw maps [layers, heads, down, across] as explain_maps wants them: a single one over its picture's backdrop and box,
 * several as a sheet, for which *onto is made. picture_clear *onto. Errors: those of draw_sheet. */
enum status explain_draw(struct picture *onto, const struct picture_box *box, const struct explanation *x,
                         const float *maps, uint32_t down, uint32_t across, struct error *err);

/* The picture as it is drawn on, with its longer side `side`; `box`, a part of the whole picture, is scaled likewise.
 * picture_clear *ret, which is set only on OK. Errors: ERR_NOMEM. */
enum status explain_backdrop(struct picture *ret, struct picture_box *box, const struct picture *p, uint32_t side,
                             struct error *err);

#endif
