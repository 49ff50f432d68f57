/* explain.c - POST /explain: a picture in, a PNG out that shows what the model sees in it, or what it has learnt.
 * A map is computed along with the batch that its picture is in; workers decode the picture, and draw. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/logits.h"
#include "server/media/drawing.h"
#include "server/media/explanation.h"
#include "server/media/picture_fit.h"
#include "server/media/png.h"
#include "server/models/registry.h"
#include "server/operation/classify.h"
#include "server/operation/request_picture.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_head.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"
#include "server/request/workers.h"

/* Borrowed from the JSON that the query becomes. Their ranges depend on the model (explanation.h). */
struct fields {
    const json_t *model, *size, *view, *layer, *head, *row, *side;
};

#define WORD(member, expected)                                                                        \
    {                                                                                                 \
#member, FIELD_NAME, .offset = offsetof(struct fields, member), FIELD_RANGE(1, HTTP_URL_MAX), \
                             .what = (expected)                                                       \
    }
static const struct field table[] = {
    WORD(model, "the name of a model"),     WORD(size, "native or HxW in pixels"), WORD(view, "a view's name"),
    WORD(layer, "a whole number, or each"), WORD(head, "a whole number, or each"), WORD(row, "a whole number"),
    WORD(side, "a whole number"),
};
#undef WORD
const struct field_list explain_query = FIELDS_OF(table);

enum {
    NS_BACKDROP = 30, /* of a pixel that is drawn: resizing, colours, compression; measured, roughly */
    NS_DRAWN = 120,
};

/* The request's state: what its job's work needs, and its result. Constant between its steps: `preprocess`, the engine,
 * `postprocess`, the answer. */
struct explaining {
    struct explanation what;
    struct picture backdrop; /* the client's, upright */
    struct picture_box box;  /* the part of it that the model sees */
    char *png;               /* what is answered */
    size_t png_bytes;
};

static void clear(void *state)
{
    struct explaining *s = state;
    picture_clear(&s->backdrop);
    free(s->png);
}

/* The request begins with its job. */
static struct explaining *state_of(struct job *j)
{
    return ((struct request *)(void *)j)->state;
}

/* ---- the work --------------------------------------------------------------------------------------------------- */

/* What is drawn has at most so many pixels, and twice their bytes while it is encoded. */
static uint64_t drawn_pixels(const struct explaining *s)
{
    return (uint64_t)s->what.side * s->what.side;
}

/* Besides what the model sees, make of the picture the backdrop that the map will be drawn on. */
static enum status explain_fill(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                                struct error *err)
{
    struct explaining *s = state_of(j);
    const struct model_config *c = &j->model->model->config;
    struct picture_input *in = &classify_job_of(j)->in.list[i];
    enum status st = explain_maps(&in->map, &in->map_values, &s->what,
                                  (size_t)(f->height / c->patch[0]) * (f->width / c->patch[1]), err);
    s->box = picture_crop_box(whole, f->resize_to, f->width, f->height);
    if (st == OK && !explain_is_sheet(&s->what))
        st = explain_backdrop(&s->backdrop, &s->box, whole, s->what.side, err);
    if (st != OK)
        return st;
    j->work.retained = 6 * drawn_pixels(s) + in->map_values * sizeof(float);
    return classify_note_input(j, i, whole, f, err);
}

static enum status postprocess_maps(struct job *j, struct error *err)
{
    struct explaining *s = state_of(j);
    const struct model_config *c = &j->model->model->config;
    const struct classify_job *classified = classify_job_of(j);
    const struct picture_input *in = &classified->in.list[0];
    enum status st = explain_draw(&s->backdrop, &s->box, &s->what, classified->map, in->height / c->patch[0],
                                  in->width / c->patch[1], err);
    if (st == OK)
        st = png_encode(&s->png, &s->png_bytes, &s->backdrop, err);
    picture_clear(&s->backdrop);
    classify_drop_pixels(j);
    return st;
}

/* Biases are constant, so this needs no engine. */
static enum status postprocess_biases(struct job *j, struct error *err)
{
    struct explaining *s = state_of(j);
    const struct sheet sheet = explain_biases(&s->what, j->model->engine);
    struct picture p = {0};
    enum status st = draw_sheet(&p, &sheet, s->what.side, err);
    if (st == OK)
        st = png_encode(&s->png, &s->png_bytes, &p, err);
    picture_clear(&p);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

/* Which layer or head, "each", or with none `all` of them. */
static void add_which(struct request *x, const char *name, uint32_t first, uint32_t count)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%u", first);
    request_add_header(x, name, count == 1 ? text : count == 0 ? "all" : "each");
}

static enum status explain_answer(struct request *x, struct error *err)
{
    struct job *j = &x->job;
    struct explaining *s = state_of(j);
    const enum status st = workers_postprocess(j, err);
    if (st != OK)
        return st;
    if (s->what.view != EXPLAIN_BIASES) {
        struct prediction best;
        char prediction[HTTP_HEADER_VALUE_MAX];
        logits_top(&best, 1, classify_job_of(j)->logits, j->model->model->config.classes);
        (void)snprintf(prediction, sizeof prediction, "%u %.4f", best.index, best.probability);
        request_add_header(x, "X-Explain-Prediction", prediction);
    }
    request_add_header(x, "X-Explain-View", explain_view_word(s->what.view));
    add_which(x, "X-Explain-Layer", s->what.layer, s->what.layers);
    add_which(x, "X-Explain-Head", s->what.head, s->what.heads);
    (void)request_reply(x, 200, "image/png", s->png, s->png_bytes);
    s->png = NULL; /* taken */
    return OK;
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Models for any task have biases; but without a name a picture classifier is meant. */
static enum status resolve(struct request *x, const struct fields *f, struct error *err)
{
    struct explaining *s = x->state;
    struct hosted_model *e;
    const struct explain_request wanted = {
        .view = json_string_value(f->view),
        .layer = json_string_value(f->layer),
        .head = json_string_value(f->head),
        .row = json_string_value(f->row),
        .side = json_string_value(f->side),
    };
    const int task = f->model != NULL && explain_wants_biases(&wanted) ? REGISTRY_ANY_TASK : TASK_IMAGE_CLASSIFICATION;
    const enum status st = request_model_acquire(x, json_string_value(f->model), task, &e, err);
    return st == OK ? explain_resolve(&s->what, &wanted, e->model, e->engine, err) : st;
}

static enum status plan_map(struct request *x, const char *size, const struct multipart_part *given, struct error *err)
{
    const struct explaining *s = x->state;
    struct job_work *k = &x->job.work;
    const uint64_t drawn = drawn_pixels(s);
    enum status st = classify_begin(&x->job, err);
    if (st != OK)
        return st;
    struct picture_inputs *source = &classify_job_of(&x->job)->in;
    k->postprocess = postprocess_maps;
    k->postprocess_ns = NS_DRAWN * drawn;
    k->preprocess_bytes = 6 * drawn;
    if (!explain_is_sheet(&s->what)) {
        source->options.longer = s->what.side;
        k->preprocess_ns = NS_BACKDROP * drawn;
    }
    st = picture_inputs_init(source, x, explain_fill, size, err);
    if (st == OK)
        st = request_picture_add(source, given, err);
    return st == OK ? classify_make_outputs(&x->job, false, err) : st;
}

static enum status plan_biases(struct request *x, struct error *err)
{
    if (job_begin(&x->job, &job_kind_work, 0, err) == NULL)
        return ERR_NOMEM;
    x->job.work.postprocess = postprocess_biases;
    x->job.work.postprocess_bytes = 6 * drawn_pixels(x->state);
    x->job.work.postprocess_ns = NS_DRAWN * drawn_pixels(x->state);
    return OK;
}

enum status api_explain(struct request *x, struct error *err)
{
    struct multipart_part given;
    struct fields f = {0};
    struct explaining *s = x->state = job_alloc(&x->job, sizeof *s, err);
    if (s == NULL || job_defer(&x->job, clear, s, err) != OK)
        return ERR_NOMEM;
    enum status st = request_picture_find_one(&given, x, &explain_query, err);
    if (st == OK)
        st = fields_read(&explain_query, x->query, x->service->settings, &f, err);
    if (st == OK)
        st = resolve(x, &f, err);
    if (st == OK && s->what.view == EXPLAIN_BIASES)
        st = plan_biases(x, err);
    else if (st == OK)
        st = plan_map(x, json_string_value(f.size), &given, err);
    return st == OK ? request_job_made(x, explain_answer) : st;
}
