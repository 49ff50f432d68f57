/* explain.c - POST /explain: a picture in, a PNG out that shows what the model sees in it, or what it has learnt.
 * A map is computed along with the batch that its picture is in; the HTTP thread draws it. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/logits.h"
#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/request_picture.h"
#include "server/api/request_query.h"
#include "server/api/service.h"
#include "server/kinds/classify.h"
#include "server/media/drawing.h"
#include "server/media/explanation.h"
#include "server/media/picture_fit.h"
#include "server/media/png.h"
#include "server/models/registry.h"

/* Borrowed from the JSON that the query became. Their ranges depend on the model (explanation.h). */
struct fields {
    const json_t *model, *size, *view, *layer, *head, *side;
};

#define WORD(member, expected)                                                                        \
    {                                                                                                 \
#member, FIELD_NAME, .offset = offsetof(struct fields, member), FIELD_RANGE(1, HTTP_URL_MAX), \
                             .what = (expected)                                                       \
    }
static const struct field table[] = {
    WORD(model, "the name of a model"), WORD(size, "native or HxW in pixels"), WORD(view, "a view's name"),
    WORD(layer, "a whole number"),      WORD(head, "a whole number"),          WORD(side, "a whole number"),
};
#undef WORD
enum { FIELD_COUNT = sizeof table / sizeof table[0] };
const struct field_list explain_query = {table, FIELD_COUNT};

/* The exchange's state. */
struct explaining {
    struct explanation what;
    struct picture backdrop; /* the client's, upright */
    struct image_box box;    /* the part of it that the model sees */
    json_t *query;
    const char *size; /* borrowed from `query`; NULL: the trained one */
};

static void explaining_free(void *state)
{
    struct explaining *s = state;
    picture_clear(&s->backdrop);
    json_decref(s->query);
    free(s);
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static void add_number(struct exchange *x, const char *name, uint32_t value)
{
    char text[16] = "all";
    if (value != UINT32_MAX)
        (void)snprintf(text, sizeof text, "%u", value);
    http_add_header(x, name, text);
}

_Static_assert(ENGINE_ALL_HEADS == UINT32_MAX && DRAW_ALL_LAYERS == UINT32_MAX, "what add_number calls all");

static void answer_png(struct exchange *x, const struct picture *p)
{
    const struct explanation *what = &((const struct explaining *)x->api->state)->what;
    struct error err;
    char *bytes = NULL;
    size_t size = 0;
    if (png_encode(&bytes, &size, p, &err) != OK) {
        reply_send_error(x, &err);
        return;
    }
    http_add_header(x, "X-Explain-View", explain_view_word(what->view));
    add_number(x, "X-Explain-Layer", what->layer);
    add_number(x, "X-Explain-Head", what->head);
    http_reply(x, 200, "image/png", bytes, size);
}

static void answer_map(struct exchange *x)
{
    const struct job *j = x->job;
    const struct job_result *r = job_result(j);
    struct explaining *state = x->api->state;
    x->api->queue_ms = reply_milliseconds(r->queued_ns, r->started_ns != 0 ? r->started_ns : r->done_ns);
    x->api->compute_ms = reply_milliseconds(r->started_ns, r->done_ns);
    if (r->status != OK) {
        reply_send_job_error(x, j);
        return;
    }
    const struct model_config *c = &j->model->model->config;
    const struct classify_job *classified = classify_job_of(j);
    const struct classify_input *in = &classified->inputs[0];
    struct prediction best;
    char prediction[HTTP_HEADER_VALUE_MAX];
    logits_top(&best, 1, classified->logits, c->classes);
    (void)snprintf(prediction, sizeof prediction, "%u %.4f", best.index, best.probability);
    http_add_header(x, "X-Explain-Prediction", prediction);
    draw_map(&state->backdrop, &state->box, classified->map, in->height / c->patch[0], in->width / c->patch[1]);
    answer_png(x, &state->backdrop);
}

/* Biases are constant, so this needs no job and no engine thread. */
static void answer_biases(struct exchange *x, const struct hosted_model *e)
{
    const struct explanation *what = &((const struct explaining *)x->api->state)->what;
    struct picture p = {0};
    struct error err;
    if (draw_biases(&p, e->engine, what->layer, what->head, what->side, &err) == OK)
        answer_png(x, &p);
    else
        reply_send_error(x, &err);
    picture_clear(&p);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Models for any task have biases; but without a name a picture classifier is meant. */
static enum status pick_model(struct exchange *x, const char *name, bool biases, struct hosted_model **ret,
                              struct error *err)
{
    const int task = name != NULL && biases ? REGISTRY_ANY_TASK : TASK_IMAGE_CLASSIFICATION;
    return request_model_acquire(x, name, task, ret, err);
}

static enum status resolve(struct exchange *x, struct hosted_model **ret, struct error *err)
{
    struct explaining *state = x->api->state;
    struct fields f = {0};
    enum status st = request_query_parse(&state->query, table, FIELD_COUNT, x, err);
    if (st == OK)
        st = fields_read(table, FIELD_COUNT, state->query, service_of(x)->settings, &f, err);
    if (st != OK)
        return st;
    const struct explain_request wish = {
        .view = json_string_value(f.view),
        .layer = json_string_value(f.layer),
        .head = json_string_value(f.head),
        .side = json_string_value(f.side),
    };
    st = pick_model(x, json_string_value(f.model), explain_wants_biases(&wish), ret, err);
    if (st != OK)
        return st;
    state->size = json_string_value(f.size);
    return explain_resolve(&state->what, &wish, (*ret)->model, (*ret)->engine, err);
}

/* Make of the body's picture a job for its map, and the backdrop that the map will be drawn on. */
static enum status prepare(struct exchange *x, struct hosted_model *e, struct job **ret, struct error *err)
{
    struct explaining *state = x->api->state;
    const struct model_config *c = &e->model->config;
    struct classify_input in = {
        .classes = c->classes,
        .map = {.layer = state->what.layer, .head = state->what.head},
    };
    struct picture picture = {0};
    struct picture_fit fit;
    enum status st = request_picture_decode(&picture, x, err);
    if (st == OK)
        st = picture_fit_choose(&fit, state->size, &picture, e->model, e->engine, err);
    if (st == OK)
        st = picture_fit_apply(&in.pixels, &fit, &picture, c, err);
    if (st == OK) {
        in.height = fit.height;
        in.width = fit.width;
        in.map.values = fit.height / c->patch[0] * (fit.width / c->patch[1]);
        state->box = image_crop_box(&picture, fit.resize_to, fit.width, fit.height);
        st = explain_backdrop(&state->backdrop, &state->box, &picture, state->what.side, err);
    }
    picture_clear(&picture);
    if (st == OK) {
        st = classify_job_create(ret, e, &in, 1);
        if (st == OK)
            return OK;
        (void)error_set(err, st, "out of memory for the request; try again later");
    }
    free(in.pixels);
    return st;
}

void api_explain(struct exchange *x)
{
    struct error err;
    struct hosted_model *e = NULL;
    struct job *j = NULL;
    struct explaining *state = calloc(1, sizeof *state);
    x->api->state = state;
    x->api->state_free = explaining_free;
    if (state == NULL) {
        (void)error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
        reply_send_error(x, &err);
        return;
    }
    enum status st = resolve(x, &e, &err);
    if (st == OK && state->what.view == EXPLAIN_BIASES) {
        answer_biases(x, e);
        return;
    }
    if (st == OK && request_job_refuse_if_full(x))
        return;
    if (st == OK)
        st = prepare(x, e, &j, &err);
    if (st != OK)
        reply_send_error(x, &err);
    else
        request_job_submit(x, j, service_of(x)->settings->timeout_ms, answer_map);
}
