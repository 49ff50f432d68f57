/* explanation.c - see explanation.h. */
#include "server/media/explanation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/digits.h"
#include "config/json.h"
#include "server/media/drawing.h"

#define X(constant, word) word,
static const char *const words[] = {EXPLAIN_VIEWS(X)};
#undef X
enum { VIEW_COUNT = sizeof words / sizeof words[0] };

const char *explain_view_word(enum explain_view view)
{
    return words[view];
}

bool explain_wants_biases(const struct explain_request *r)
{
    return r->view != NULL && strcmp(r->view, words[EXPLAIN_BIASES]) == 0;
}

static bool has_view(const struct model_config *c, const struct engine *e, enum explain_view view)
{
    if (view == EXPLAIN_BIASES)
        return engine_biases_shape(e).heads > 0;
    return c->task == TASK_IMAGE_CLASSIFICATION && model_config_scalar_keys(c) == (view == EXPLAIN_KEYS);
}

bool explain_is_sheet(const struct explanation *x)
{
    return x->view == EXPLAIN_BIASES || x->layers > 1 || x->heads > 1;
}

static enum status resolve_view(enum explain_view *ret, const char *word, const struct model *m, const struct engine *e,
                                struct error *err)
{
    char list[64] = "";
    size_t used = 0;
    for (size_t i = 0; i < VIEW_COUNT; i++) {
        if (!has_view(&m->config, e, (enum explain_view)i))
            continue;
        if (word == NULL || strcmp(word, words[i]) == 0) {
            *ret = (enum explain_view)i;
            return OK;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? " or " : "", words[i]);
    }
    if (word == NULL)
        return error_set_param(err, ERR_ARGUMENT, "model", "there is nothing to show of the model %s (%s, mixer %s)",
                               m->name, model_task_name(m->config.task), mixer_type_name(m->config.mixer.type));
    return error_set_param(err, ERR_ARGUMENT, "view",
                           "\"view\" is \"%s\"; expected %s, the views of the model %s (%s, mixer %s)",
                           json_quote(word).text, used > 0 ? list : "none", m->name, model_task_name(m->config.task),
                           mixer_type_name(m->config.mixer.type));
}

/* A whole number from min to max; a NULL text leaves *ret as it is. */
static enum status resolve_number(uint32_t *ret, const char *name, const char *text, uint32_t min, uint32_t max,
                                  struct error *err)
{
    const char *end = text;
    uint64_t value = 0;
    if (text == NULL)
        return OK;
    if (!digits_read(&value, &end) || *end != '\0' || value < min || value > max)
        return error_set_param(err, ERR_ARGUMENT, name, "\"%s\" is \"%s\"; expected a whole number from %u to %u", name,
                               json_quote(text).text, min, max);
    *ret = (uint32_t)value;
    return OK;
}

/* Of n layers or heads: one by its number, or "each". A NULL text leaves what there is. */
static enum status resolve_some(uint32_t *first, uint32_t *count, const char *name, const char *text, uint32_t n,
                                struct error *err)
{
    if (text == NULL)
        return OK;
    if (strcmp(text, "each") == 0) {
        *first = 0;
        *count = n;
        return OK;
    }
    *count = 1;
    if (resolve_number(first, name, text, 0, n - 1, NULL) == OK)
        return OK;
    return error_set_param(err, ERR_ARGUMENT, name, "\"%s\" is \"%s\"; expected a whole number from 0 to %u, or each",
                           name, json_quote(text).text, n - 1);
}

/* The patches of a row, of position biases by pairs of these; without one, the middle patch. */
static enum status resolve_row(struct explanation *x, const char *row, const struct model *m,
                               const struct engine_biases *shape, struct error *err)
{
    uint32_t at = shape->height / 2;
    if (row != NULL && x->view != EXPLAIN_BIASES)
        return error_set_param(err, ERR_ARGUMENT, "row", "\"row\" is \"%s\"; expected none but with the view biases",
                               json_quote(row).text);
    if (x->view != EXPLAIN_BIASES || !shape->by_position)
        return row == NULL ? OK
                           : error_set_param(err, ERR_ARGUMENT, "row",
                                             "\"row\" is \"%s\"; expected none: the model %s has no biases of pairs of "
                                             "patches to show",
                                             json_quote(row).text, m->name);
    const enum status st = resolve_number(&at, "row", row, 0, shape->height - 1, err);
    x->head = at * shape->width + (row == NULL ? shape->width / 2 : 0);
    x->heads = row == NULL ? 1 : shape->width;
    return st;
}

enum status explain_resolve(struct explanation *ret, const struct explain_request *r, const struct model *m,
                            const struct engine *e, struct error *err)
{
    struct explanation x = {.layer = m->config.depth - 1, .layers = 1};
    enum status st = resolve_view(&x.view, r->view, m, e, err);
    if (st != OK)
        return st;
    const struct engine_biases shape = engine_biases_shape(e);
    if (x.view == EXPLAIN_BIASES)
        x = (struct explanation){.view = x.view, .layers = shape.layers, .heads = shape.heads};
    st = resolve_some(&x.layer, &x.layers, "layer", r->layer, m->config.depth, err);
    if (st == OK)
        st = resolve_some(&x.head, &x.heads, "head", r->head, x.view == EXPLAIN_BIASES ? shape.heads : engine_heads(e),
                          err);
    if (st == OK)
        st = resolve_row(&x, r->row, m, &shape, err);
    x.side = EXPLAIN_SIDE_DEFAULT;
    if (x.view == EXPLAIN_BIASES) {
        const struct sheet s = explain_biases(&x, e);
        x.side = draw_sheet_side(&s);
    }
    if (st == OK)
        st = resolve_number(&x.side, "side", r->side, EXPLAIN_SIDE_MIN, EXPLAIN_SIDE_MAX, err);
    if (st == OK)
        *ret = x;
    return st;
}

enum status explain_maps(struct engine_map *ret, size_t *values, const struct explanation *x, size_t patches,
                         struct error *err)
{
    const uint64_t n = (uint64_t)x->layers * (x->heads > 0 ? x->heads : 1) * patches;
    if (n > EXPLAIN_VALUES_MAX)
        return error_set_param(err, ERR_ARGUMENT, "head",
                               "%u layers and %u heads of %zu patches have %llu values; expected at most %d: choose a "
                               "\"layer\" or a \"head\"",
                               x->layers, x->heads, patches, (unsigned long long)n, EXPLAIN_VALUES_MAX);
    *values = (size_t)n;
    *ret = (struct engine_map){.layer = x->layer,
                               .layers = x->layers,
                               .head = x->head,
                               .heads = x->heads,
                               .queries = x->view == EXPLAIN_QUERIES};
    return OK;
}

struct sheet explain_biases(const struct explanation *x, const struct engine *e)
{
    const struct engine_biases shape = engine_biases_shape(e);
    return (struct sheet){.engine = e,
                          .layer = x->layer,
                          .layers = x->layers,
                          .head = x->head,
                          .heads = x->heads,
                          .down = shape.height,
                          .across = shape.width};
}

enum status explain_draw(struct picture *onto, const struct picture_box *box, const struct explanation *x,
                         const float *maps, uint32_t down, uint32_t across, struct error *err)
{
    if (!explain_is_sheet(x)) {
        draw_map(onto, box, maps, down, across);
        return OK;
    }
    struct sheet s = {.maps = maps, .layers = x->layers, .heads = x->heads, .down = down, .across = across};
    if (x->heads <= 1) { /* layers side by side, in as many rows as heads would be */
        s.layers = 1;
        s.heads = x->layers;
    }
    return draw_sheet(onto, &s, x->side, err);
}

/* The shorter side beside a longer one of `side` pixels, at least one. */
static uint32_t shorter_side(uint32_t shorter, uint32_t longer, uint32_t side)
{
    const uint64_t rounded = ((uint64_t)side * shorter + longer / 2) / longer;
    return rounded > 0 ? (uint32_t)rounded : 1;
}

enum status explain_backdrop(struct picture *ret, struct picture_box *box, const struct picture *p, uint32_t side,
                             struct error *err)
{
    const uint32_t width = picture_whole_width(p), height = picture_whole_height(p);
    const bool tall = height > width;
    struct picture b = {
        .width = tall ? shorter_side(width, height, side) : side,
        .height = tall ? side : shorter_side(height, width, side),
    };
    b.pixels = malloc((size_t)b.width * b.height * 3);
    if (b.pixels == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels", b.width, b.height);
    const enum status st = picture_resize(b.pixels, b.width, b.height, p, INTERPOLATION_BICUBIC, err);
    if (st != OK) {
        picture_clear(&b);
        return st;
    }
    const double x = (double)b.width / (double)width, y = (double)b.height / (double)height;
    *box = (struct picture_box){x * box->left, y * box->top, x * box->width, y * box->height};
    *ret = b;
    return OK;
}
