/* api_classify.c - POST /classify: a picture, or JSON with a text, in; the most probable labels out.
 * The picture is decoded and brought to the model's size on the HTTP thread; the engine sees pixels. */
#include "server/api.h"

#include <stdlib.h>
#include <string.h>

#include "server/field_lists.h"
#include "server/job.h"
#include "server/logits.h"
#include "server/picture_fit.h"
#include "server/registry.h"
#include "server/request_json.h"
#include "server/request_picture.h"
#include "server/request_query.h"
#include "weights/json.h"

enum { TOP_K_DEFAULT = 5 };

/* Texts are borrowed from the JSON. */
struct fields {
    const json_t *text, *model, *size;
    int64_t top_k;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"text", FIELD_TEXT, AT(text), FIELD_RANGE(0, HTTP_BODY_MAX), .what = "a string"},
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_NAME_MAX), .what = "the name of a model"},
    {"top_k", FIELD_INTEGER, AT(top_k), FIELD_RANGE(1, CLASSIFY_TOP_K_MAX)},
    {"size", FIELD_NAME, AT(size), FIELD_RANGE(1, HTTP_URL_MAX), .what = "native or HxW in pixels"},
};
#undef AT
/* The query has no text, and an object in the body no size. */
static const struct field *const query_table = table + 1;
enum { FIELD_COUNT = sizeof table / sizeof table[0] - 1 }; /* of each */
const struct field_list classify_fields = {table, FIELD_COUNT}, classify_query = {table + 1, FIELD_COUNT};

/* The exchange's state. */
struct classification {
    uint32_t top_k;
    uint32_t width, height; /* of the picture, after orientation; 0 of a text */
};

/* ---- before the body ------------------------------------------------------------------------------------------- */

void api_classify_begin(struct exchange *x)
{
    if (!api_has_type(x, "application/json"))
        request_picture_check_type(x, ", or application/json with a text");
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static json_t *describe_predictions(const struct model_config *c, const float *logits, uint32_t top_k)
{
    struct prediction best[CLASSIFY_TOP_K_MAX];
    json_t *list = json_array();
    logits_top(best, top_k, logits, c->classes);
    for (uint32_t i = 0; i < top_k; i++)
        if (json_array_append_new(list, json_pack("{s:s, s:i, s:f}", "label", c->labels[best[i].index], "index",
                                                  (int)best[i].index, "probability", best[i].probability)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static void answer(struct exchange *x)
{
    const struct job *j = x->job;
    const struct job_result *r = job_result(j);
    const struct classification *state = x->state;
    api_note_times(x);
    if (r->status != OK) {
        api_refuse_job(x, j);
        return;
    }
    const struct model *m = j->model->model;
    json_t *predictions = describe_predictions(&m->config, j->logits, state->top_k), *whole = NULL;
    if (predictions != NULL && m->config.input == INPUT_IMAGE)
        whole = json_pack("{s:s, s:o, s:{s:i, s:i}}", "model", m->name, "predictions", predictions, "image", "width",
                          (int)state->width, "height", (int)state->height);
    else if (predictions != NULL)
        whole = json_pack("{s:s, s:o}", "model", m->name, "predictions", predictions);
    api_reply_json(x, 200, whole);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Decode the body and bring it to the size that the model is to see. */
static enum status read_picture(struct exchange *x, const struct entry *e, const char *size, struct classify_input *in,
                                struct error *err)
{
    struct classification *state = x->state;
    struct picture picture = {0};
    struct picture_fit fit;
    enum status st = request_picture_decode(&picture, x, err);
    if (st != OK)
        return st;
    st = picture_fit_choose(&fit, size, &picture, e->model, e->engine, err);
    if (st == OK)
        st = picture_fit_apply(&in->pixels, &fit, &picture, &e->model->config, err);
    if (st == OK) {
        in->height = fit.height;
        in->width = fit.width;
    }
    state->width = picture.width;
    state->height = picture.height;
    picture_clear(&picture);
    return st;
}

/* The text's bytes, copied. */
static enum status read_text(const json_t *text, const struct model_config *c, struct classify_input *in,
                             struct error *err)
{
    const size_t size = json_string_length(text);
    if (text == NULL)
        return error_set_param(err, ERR_ARGUMENT, "text", "\"text\" is missing; expected a string");
    if (size < 1 || size > c->context)
        return error_set_param(err, ERR_ARGUMENT, "text",
                               "\"text\" has %zu bytes; expected 1 to %u, as many as the model takes", size,
                               c->context);
    in->pixels = malloc(size);
    if (in->pixels == NULL)
        return error_set(err, ERR_NOMEM, "there is no memory for the text at the moment");
    memcpy(in->pixels, json_string_value(text), size);
    in->height = 1;
    in->width = (uint32_t)size;
    return OK;
}

/* Find the model, then read what it is to classify. */
static enum status read_input(struct exchange *x, const struct fields *f, bool is_text, struct entry **ret,
                              struct classify_input *in, struct error *err)
{
    struct classification *state = x->state;
    struct entry *e;
    const enum status st = api_pick_model(x, json_string_value(f->model),
                                          is_text ? TASK_TEXT_CLASSIFICATION : TASK_IMAGE_CLASSIFICATION, &e, err);
    if (st != OK)
        return st;
    const struct model_config *c = &e->model->config;
    state->top_k = (uint32_t)f->top_k < c->classes ? (uint32_t)f->top_k : c->classes;
    *in = (struct classify_input){.classes = c->classes};
    *ret = e;
    return is_text ? read_text(f->text, c, in, err) : read_picture(x, e, json_string_value(f->size), in, err);
}

/* What the body's object says counts more than the query. */
static enum status prepare(struct exchange *x, struct job **ret, struct error *err)
{
    const struct settings *settings = api_service(x)->settings;
    const bool is_text = api_has_type(x, "application/json");
    struct fields f = {.top_k = TOP_K_DEFAULT};
    struct classify_input in;
    struct entry *e = NULL;
    json_t *query = NULL, *object = NULL;
    enum status st = request_query_parse(&query, query_table, FIELD_COUNT, x, err);
    if (st == OK)
        st = fields_read(query_table, FIELD_COUNT, query, settings, &f, err);
    if (st == OK && is_text)
        st = request_json_parse(&object, x->body.bytes, x->body.size, err);
    if (st == OK && is_text)
        st = fields_read(table, FIELD_COUNT, object, settings, &f, err);
    if (st == OK && is_text && f.size != NULL)
        st = error_set_param(err, ERR_ARGUMENT, "size", "\"size\" is \"%s\"; expected none beside a text",
                             json_quote(json_string_value(f.size)).text);
    if (st == OK)
        st = read_input(x, &f, is_text, &e, &in, err);
    json_decref(object);
    json_decref(query);
    if (st != OK)
        return st;
    st = job_create_classify(ret, e, &in);
    if (st != OK) {
        free(in.pixels);
        return error_set(err, st, "there is no memory for the request at the moment");
    }
    return OK;
}

void api_classify(struct exchange *x)
{
    struct error err;
    struct job *j = NULL;
    if (api_refuse_if_full(x))
        return;
    x->state = calloc(1, sizeof(struct classification));
    x->state_free = free;
    const enum status st = x->state == NULL
                               ? error_set(&err, ERR_NOMEM, "there is no memory for the request at the moment")
                               : prepare(x, &j, &err);
    if (st != OK) {
        api_refuse(x, &err);
    } else {
        http_drop_body(x);
        api_submit(x, j, api_service(x)->settings->timeout_ms, answer);
    }
}
