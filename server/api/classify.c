/* classify.c - POST /classify: pictures, or a text, in; the most probable labels of each out. One picture is the
 * body; several are parts of multipart/form-data, or strings in JSON. Workers decode and resize them for the model;
 * the engine sees pixels. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "engine/logits.h"
#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/request_picture.h"
#include "server/api/request_query.h"
#include "server/api/request_type.h"
#include "server/api/service.h"
#include "server/models/registry.h"
#include "server/request/classify_request.h"
#include "server/request/multipart.h"
#include "server/request/request_json.h"

enum { TOP_K_DEFAULT = 5, PARAM_MAX = 32 };

/* How the input is given. */
enum form { FORM_BODY, FORM_PARTS, FORM_JSON };

/* Texts are borrowed from the JSON, or from what a form's parts came to. */
struct fields {
    const json_t *text, *images, *model, *size;
    int64_t top_k;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"text", FIELD_TEXT, AT(text), FIELD_RANGE(0, HTTP_BODY_MAX), .what = "a string"},
    {"images", FIELD_OTHER, AT(images), .read = request_images_read, .what = REQUEST_IMAGES_EXPECTED},
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_WISH_MAX), .what = "the name of a model"},
    {"top_k", FIELD_INTEGER, AT(top_k), FIELD_RANGE(1, CLASSIFY_TOP_K_MAX)},
    {"size", FIELD_NAME, AT(size), FIELD_RANGE(1, HTTP_URL_MAX), .what = "native or HxW in pixels"},
};
#undef AT
/* The query has neither text nor images. */
enum { FIELD_COUNT = sizeof table / sizeof table[0], QUERY_FIRST = 2, QUERY_COUNT = FIELD_COUNT - QUERY_FIRST };
const struct field_list classify_fields = {table, FIELD_COUNT}, classify_query = {table + QUERY_FIRST, QUERY_COUNT};

/* The exchange's state. */
struct classification {
    uint32_t top_k, count;
};

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static json_t *describe_predictions(const struct model_config *c, const float *logits, uint32_t top_k)
{
    struct prediction best[CLASSIFY_TOP_K_MAX];
    json_t *list = json_array();
    logits_top(best, top_k, logits, c->classes);
    for (uint32_t i = 0; i < top_k; i++)
        json_append(list, json_pack("{s:s, s:i, s:f}", "label", c->labels[best[i].index], "index", (int)best[i].index,
                                    "probability", best[i].probability));
    return list;
}

/* One input's answer. */
static json_t *describe(const struct job *j, uint32_t input, uint32_t top_k)
{
    const struct model *m = j->model->model;
    const float *logits = classify_job_of(j)->logits + (size_t)input * m->config.classes;
    const struct classify_side side = classify_request_side(j, input);
    json_t *predictions = describe_predictions(&m->config, logits, top_k);
    if (m->config.input != INPUT_IMAGE)
        return json_pack("{s:s, s:o}", "model", m->name, "predictions", predictions);
    return json_pack("{s:s, s:o, s:{s:i, s:i}}", "model", m->name, "predictions", predictions, "image", "width",
                     (int)side.width, "height", (int)side.height);
}

static void answer(struct exchange *x)
{
    struct job *j = x->job;
    const struct classification *state = x->api->state;
    classify_request_done(j);
    if (!request_job_ended_well(x))
        return;
    json_t *whole = state->count > 1 ? json_array() : describe(j, 0, state->top_k);
    for (uint32_t i = 0; state->count > 1 && i < state->count; i++)
        json_append(whole, describe(j, i, state->top_k));
    reply_send_json(x, 200, whole);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

static enum status read_body(struct exchange *x, struct classify_request *r, struct error *err)
{
    char type[MEDIA_TYPE_MAX];
    if (x->body.size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected a picture");
    return classify_request_add_file(r, x->body.bytes, x->body.size,
                                     !request_type_is_unsaid(x) && request_type_read(x, type) ? type : NULL, NULL, err);
}

/* A part that is not a picture, for fields_read. */
static enum status take_field(json_t *object, const struct multipart_part *part, struct error *err)
{
    const struct field *f = fields_find(classify_query.table, QUERY_COUNT, part->name);
    if (f != NULL)
        return request_query_add(object, f, (const char *)part->bytes, part->size, err);
    if (request_picture_is_part(part))
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, json_quote(part->name).text,
        "there is no part \"%s\" here; expected image or file with a picture, or model, top_k or size",
        json_quote(part->name).text);
}

static enum status take_picture(struct classify_request *r, const struct multipart_part *part, struct error *err)
{
    char param[PARAM_MAX];
    if (!request_picture_is_part(part))
        return OK;
    (void)snprintf(param, sizeof param, "%.5s[%u]", part->name, classify_request_count(r));
    return classify_request_add_file(r, part->bytes, part->size, part->type, param, err);
}

/* Read the pictures of the form into `r`; or, if that is NULL, its other parts into `object`, since these say which
 * model the pictures are for. */
static enum status read_parts(struct exchange *x, json_t *object, struct classify_request *r, struct error *err)
{
    struct multipart m;
    struct multipart_part part;
    bool end = false;
    enum status st = multipart_begin(&m, http_header(x, "Content-Type"), x->body.bytes, x->body.size, err);
    while (st == OK && (st = multipart_next(&m, &part, &end, err)) == OK && !end)
        st = r != NULL ? take_picture(r, &part, err) : take_field(object, &part, err);
    if (st == OK && r != NULL && classify_request_count(r) == 0)
        return error_set_param(err, ERR_ARGUMENT, "image", "the body has no part \"image\"; expected one or more");
    return st;
}

/* Required fields, and fields that exclude each other. */
static enum status check_fields(const struct fields *f, enum form form, struct error *err)
{
    if (form != FORM_JSON)
        return OK;
    if (f->text == NULL && f->images == NULL)
        return error_set_param(
            err, ERR_ARGUMENT, "text",
            "\"text\" is missing; expected a string, or \"images\" for a model that classifies pictures");
    if (f->text != NULL && f->images != NULL)
        return error_set_param(err, ERR_ARGUMENT, "images",
                               "\"text\" and \"images\" are both given; expected one of them");
    if (f->text != NULL && f->size != NULL)
        return error_set_param(err, ERR_ARGUMENT, "size", "\"size\" is \"%s\"; expected no \"size\" with a text",
                               json_quote(json_string_value(f->size)).text);
    return OK;
}

/* Find the model, then read what it is to classify. */
static enum status read_input(struct exchange *x, const struct fields *f, enum form form, struct classify_request **ret,
                              struct error *err)
{
    struct classification *state = x->api->state;
    struct hosted_model *model;
    const bool is_text = form == FORM_JSON && f->images == NULL;
    enum status st = request_model_acquire(x, json_string_value(f->model),
                                           is_text ? TASK_TEXT_CLASSIFICATION : TASK_IMAGE_CLASSIFICATION, &model, err);
    if (st == OK)
        st = check_fields(f, form, err);
    if (st != OK)
        return st;
    const uint32_t classes = model->model->config.classes;
    state->top_k = (uint32_t)f->top_k < classes ? (uint32_t)f->top_k : classes;
    struct classify_request *r = *ret = classify_request_create(model, json_string_value(f->size));
    if (r == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    if (f->text != NULL)
        st = classify_request_add_text(r, json_string_value(f->text), json_string_length(f->text), "text", err);
    else
        st = form == FORM_JSON    ? request_images_add(x, r, f->images, err)
             : form == FORM_PARTS ? read_parts(x, NULL, r, err)
                                  : read_body(x, r, err);
    state->count = classify_request_count(r);
    return st;
}

/* The fields of the body's object, or of its form, override the query's. */
static enum status prepare(struct exchange *x, struct job **ret, struct error *err)
{
    struct classify_request *r = NULL;
    const struct settings *settings = service_of(x)->settings;
    const enum form form = request_type_is(x, "application/json")      ? FORM_JSON
                           : request_type_is(x, "multipart/form-data") ? FORM_PARTS
                                                                       : FORM_BODY;
    struct fields f = {.top_k = TOP_K_DEFAULT};
    json_t *object = NULL;
    enum status st = fields_read(classify_query.table, QUERY_COUNT, x->api->query, settings, &f, err);
    if (st == OK && form == FORM_JSON)
        st = request_json_parse(&object, x->body.bytes, x->body.size, err);
    if (st == OK && form == FORM_PARTS && (object = json_object()) == NULL)
        st = error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK && form == FORM_PARTS)
        st = read_parts(x, object, NULL, err);
    if (st == OK && form != FORM_BODY)
        st = fields_read(table, FIELD_COUNT, object, settings, &f, err);
    if (st == OK)
        st = read_input(x, &f, form, &r, err);
    if (st == OK)
        st = request_picture_job(x, r, ret, err);
    else
        classify_request_free(r);
    json_decref(object);
    return st;
}

void api_classify(struct exchange *x)
{
    struct error err;
    struct job *j = NULL;
    if (request_job_begin(x, sizeof(struct classification), free) == NULL)
        return;
    const enum status st = prepare(x, &j, &err);
    request_job_submit_or_refuse(x, st, &err, j, answer);
}
