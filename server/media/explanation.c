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

enum status explain_resolve(struct explanation *ret, const struct explain_request *r, const struct model *m,
                            const struct engine *e, struct error *err)
{
    struct explanation x = {.head = ENGINE_ALL_HEADS, .side = EXPLAIN_SIDE_DEFAULT};
    enum status st = resolve_view(&x.view, r->view, m, e, err);
    if (st != OK)
        return st;
    const bool biases = x.view == EXPLAIN_BIASES;
    const uint32_t heads = biases ? engine_biases_shape(e).heads : engine_heads(e);
    x.layer = biases ? DRAW_ALL_LAYERS : m->config.depth - 1;
    st = resolve_number(&x.layer, "layer", r->layer, 0, m->config.depth - 1, err);
    if (st == OK)
        st = resolve_number(&x.head, "head", r->head, 0, heads - 1, err);
    if (st == OK)
        st = resolve_number(&x.side, "side", r->side, EXPLAIN_SIDE_MIN, EXPLAIN_SIDE_MAX, err);
    if (st == OK)
        *ret = x;
    return st;
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
