/* explain.c - POST /explain: a picture in, a PNG out that shows what the model sees in it, or what it has learnt.
 * A map is computed along with the batch that its picture is in; workers decode the picture, and draw. */
#include "config/settings.h"
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
#include "server/job/workers.h"
#include "server/kinds/classify.h"
#include "server/media/drawing.h"
#include "server/media/explanation.h"
#include "server/media/picture_fit.h"
#include "server/media/png.h"
#include "server/models/registry.h"

/* Borrowed from the JSON that the query becomes. Their ranges depend on the model (explanation.h). */
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

enum {
    NS_BACKDROP = 30, /* of a pixel that is drawn: resizing, colours, compression; measured, roughly */
    NS_DRAWN = 120,
    NS_FITTED = 30,
};

/* What the job's work needs, and its result. Constant between its steps: `prepare`, the engine, `conclude`, the
 * answer. */
struct explaining {
    struct job_work work; /* first */
    struct explanation what;
    struct hosted_model *hosted;       /* the job's */
    struct request_picture_file given; /* until it is taken */
    struct request_picture source;
    struct picture backdrop; /* the client's, upright */
    struct image_box box;    /* the part of it that the model sees */
    uint64_t source_bytes;   /* most memory to decode it */
    char *size;              /* NULL: the trained one */
    char *png;               /* what is answered */
    size_t png_bytes;
};

static void explaining_free(struct job_work *k)
{
    struct explaining *s = (struct explaining *)k;
    picture_clear(&s->backdrop);
    request_picture_clear(&s->source);
    free(s->size);
    free(s->png);
    free(s);
}

/* ---- the work ---------------------------------------------------------------------------------------------------- */

/* Make of the picture what the model sees, and the backdrop that the map will be drawn on. */
static enum status prepare(struct job *j, struct error *err)
{
    struct explaining *s = (struct explaining *)j->work;
    const struct hosted_model *e = s->hosted;
    const struct model_config *c = &e->model->config;
    struct classify_input in = {
        .classes = c->classes,
        .map = {.layer = s->what.layer, .head = s->what.head},
    };
    struct picture picture = {0};
    struct picture_fit fit;
    enum status st = request_picture_decode(&picture, &s->source, j, err);
    if (st == OK)
        st = picture_fit_choose(&fit, s->size, &picture, e->model, e->engine, err);
    if (st == OK)
        st = picture_fit_apply(&in.pixels, &fit, &picture, c, err);
    if (st == OK) {
        in.height = fit.height;
        in.width = fit.width;
        in.map.values = fit.height / c->patch[0] * (fit.width / c->patch[1]);
        s->box = image_crop_box(&picture, fit.resize_to, fit.width, fit.height);
        st = explain_backdrop(&s->backdrop, &s->box, &picture, s->what.side, err);
    }
    picture_clear(&picture);
    if (st == OK && classify_job_fill(j, 0, &in) == OK) {
        s->work.kept = s->work.prepare_bytes - s->source_bytes;
        return OK;
    }
    free(in.pixels);
    return st != OK ? st : error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
}

static enum status conclude_map(struct job *j, struct error *err)
{
    struct explaining *s = (struct explaining *)j->work;
    const struct model_config *c = &s->hosted->model->config;
    const struct classify_job *classified = classify_job_of(j);
    const struct classify_input *in = &classified->inputs[0];
    draw_map(&s->backdrop, &s->box, classified->map, in->height / c->patch[0], in->width / c->patch[1]);
    const enum status st = png_encode(&s->png, &s->png_bytes, &s->backdrop, err);
    picture_clear(&s->backdrop);
    classify_job_drop_pixels(j);
    return st;
}

/* Biases are constant, so this needs no engine. */
static enum status conclude_biases(struct job *j, struct error *err)
{
    struct explaining *s = (struct explaining *)j->work;
    struct picture p = {0};
    enum status st = draw_biases(&p, s->hosted->engine, s->what.layer, s->what.head, s->what.side, err);
    if (st == OK)
        st = png_encode(&s->png, &s->png_bytes, &p, err);
    picture_clear(&p);
    return st;
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

static void answer(struct exchange *x)
{
    struct job *j = x->job;
    struct explaining *s = (struct explaining *)j->work;
    struct error err;
    if (!request_job_ended_well(x))
        return;
    if (workers_conclude(j, &err) != OK) {
        reply_send_error(x, &err);
        return;
    }
    if (s->what.view != EXPLAIN_BIASES) {
        struct prediction best;
        char prediction[HTTP_HEADER_VALUE_MAX];
        logits_top(&best, 1, classify_job_of(j)->logits, s->hosted->model->config.classes);
        (void)snprintf(prediction, sizeof prediction, "%u %.4f", best.index, best.probability);
        http_add_header(x, "X-Explain-Prediction", prediction);
    }
    http_add_header(x, "X-Explain-View", explain_view_word(s->what.view));
    add_number(x, "X-Explain-Layer", s->what.layer);
    add_number(x, "X-Explain-Head", s->what.head);
    http_reply(x, 200, "image/png", s->png, s->png_bytes);
    s->png = NULL; /* taken */
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Models for any task have biases; but without a name a picture classifier is meant. */
static enum status pick_model(struct exchange *x, const char *name, bool biases, struct hosted_model **ret,
                              struct error *err)
{
    const int task = name != NULL && biases ? REGISTRY_ANY_TASK : TASK_IMAGE_CLASSIFICATION;
    return request_model_acquire(x, name, task, ret, err);
}

static enum status resolve(struct exchange *x, struct explaining *s, struct error *err)
{
    struct fields f = {0};
    enum status st = request_picture_find(&s->given, x, &explain_query, err);
    if (st == OK)
        st = fields_read(table, FIELD_COUNT, x->api->query, service_of(x)->settings, &f, err);
    const struct explain_request wish = {
        .view = json_string_value(f.view),
        .layer = json_string_value(f.layer),
        .head = json_string_value(f.head),
        .side = json_string_value(f.side),
    };
    if (st == OK)
        st = pick_model(x, json_string_value(f.model), explain_wants_biases(&wish), &s->hosted, err);
    if (st == OK)
        st = explain_resolve(&s->what, &wish, s->hosted->model, s->hosted->engine, err);
    if (st == OK && f.size != NULL && (s->size = strdup(json_string_value(f.size))) == NULL)
        st = error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    return st;
}

/* What is drawn has at most so many pixels, and twice their bytes while it is encoded. */
static uint64_t drawn_pixels(const struct explaining *s)
{
    return (uint64_t)s->what.side * s->what.side;
}

static enum status plan_map(struct exchange *x, struct explaining *s, struct error *err)
{
    const struct model_config *c = &s->hosted->model->config;
    struct job_work *k = &s->work;
    const uint64_t drawn = drawn_pixels(s);
    const enum status st = request_picture_take(&s->source, x, &s->given, picture_fit_shorter(s->size, c), s->what.side,
                                                &k->prepare_ns, &s->source_bytes, err);
    if (st != OK)
        return st;
    /* At its own size the model sees as many pixels as the picture has, within its limits. */
    const uint64_t fitted = s->size == NULL
                                ? (uint64_t)c->size[0] * c->size[1]
                                : (uint64_t)engine_info(s->hosted->engine)->elements_max * c->patch[0] * c->patch[1];
    k->prepare = prepare;
    k->conclude = conclude_map;
    k->prepare_ns += NS_BACKDROP * drawn + NS_FITTED * fitted;
    k->prepare_bytes = s->source_bytes + 3 * (fitted + 2 * drawn);
    k->conclude_ns = NS_DRAWN * drawn;
    k->pictures = 1;
    return OK;
}

static enum status make_job(struct exchange *x, struct explaining *s, struct job **ret, struct error *err)
{
    enum status st;
    if (s->what.view == EXPLAIN_BIASES) {
        s->work.conclude = conclude_biases;
        s->work.conclude_bytes = 6 * drawn_pixels(s);
        st = work_job_create(ret, s->hosted, &s->work);
    } else {
        const struct classify_input in = {.classes = s->hosted->model->config.classes};
        st = plan_map(x, s, err);
        if (st != OK)
            return st;
        st = classify_job_create(ret, s->hosted, &in, 1);
        if (st == OK)
            job_set_work(*ret, &s->work);
    }
    return st == OK ? OK : error_set(err, st, "out of memory for the request; try again later");
}

void api_explain(struct exchange *x)
{
    struct error err;
    struct job *j = NULL;
    struct explaining *s = calloc(1, sizeof *s);
    if (s == NULL) {
        (void)error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
        reply_send_error(x, &err);
        return;
    }
    s->work.free = explaining_free;
    enum status st = resolve(x, s, &err);
    if (st == OK && request_job_refuse_if_full(x)) {
        explaining_free(&s->work);
        return;
    }
    if (st == OK)
        st = make_job(x, s, &j, &err);
    if (st != OK)
        explaining_free(&s->work);
    request_job_submit_or_refuse(x, st, &err, j, answer);
}
