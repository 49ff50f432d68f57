/* classify.c - POST /classify: pictures or texts in; the most probable labels of each out. One picture is the body;
 * several are parts of multipart/form-data, or strings in JSON, as texts are. HTTP threads; workers decode large ones
 * (server/operation/picture_inputs.h). */
#include "server/api/route_table.h"

#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "engine/logits.h"
#include "server/fields/multipart.h"
#include "server/fields/request_json.h"
#include "server/models/registry.h"
#include "server/operation/classify.h"
#include "server/operation/picture_inputs.h"
#include "server/operation/request_picture.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_head.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

enum { TOP_K_DEFAULT = 5, PARAM_MAX = 32 };

/* Texts are borrowed from the JSON, or from what a form's parts came to. */
struct fields {
    const json_t *text, *texts, *images, *model, *size;
    int64_t top_k;
};

/* Strings as well as pictures in base64. */
#define TEXTS_EXPECTED "a list of 1 to " FIELD_DIGITS(CLASSIFY_INPUTS_MAX) " texts, none of them empty"
#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"text", FIELD_TEXT, AT(text), FIELD_RANGE(0, HTTP_BODY_MAX), .what = "a string"},
    {"texts", FIELD_OTHER, AT(texts), .read = request_pictures_read, .what = TEXTS_EXPECTED},
    {"images", FIELD_OTHER, AT(images), .read = request_pictures_read, .what = REQUEST_PICTURES_EXPECTED},
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX), .what = "the name of a model"},
    {"top_k", FIELD_INTEGER, AT(top_k), FIELD_RANGE(1, CLASSIFY_TOP_K_MAX)},
    {"size", FIELD_NAME, AT(size), FIELD_RANGE(1, HTTP_URL_MAX), .what = "native or HxW in pixels"},
};
#undef AT
const struct field_list classify_fields = FIELDS_OF(table);
/* The query has neither texts nor images. */
const struct field_list classify_query = {table + 3, sizeof table / sizeof table[0] - 3};

/* The request's state. */
struct classification {
    uint32_t top_k;
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
static json_t *classify_describe(const struct job *j, uint32_t input, uint32_t top_k)
{
    const struct model *m = j->model->model;
    const float *logits = classify_job_of(j)->logits + (size_t)input * m->config.classes;
    const struct picture_input *in = &classify_job_of(j)->in.list[input];
    json_t *predictions = describe_predictions(&m->config, logits, top_k);
    if (m->config.input != INPUT_IMAGE)
        return json_pack("{s:s, s:o}", "model", m->name, "predictions", predictions);
    return json_pack("{s:s, s:o, s:{s:i, s:i}}", "model", m->name, "predictions", predictions, "image", "width",
                     (int)in->whole_width, "height", (int)in->whole_height);
}

static enum status classify_answer(struct request *x, struct error *err)
{
    (void)err;
    struct job *j = &x->job;
    const uint32_t top_k = ((const struct classification *)x->state)->top_k, count = classify_job_of(j)->in.count;
    classify_drop_pixels(j);
    json_t *whole = count > 1 ? json_array() : classify_describe(j, 0, top_k);
    for (uint32_t i = 0; count > 1 && i < count; i++)
        json_append(whole, classify_describe(j, i, top_k));
    return reply_send_json(x, 200, whole);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Add what was found of pictures: parts of a form, which messages name, or the body. */
static enum status add_files(struct picture_inputs *r, const struct multipart_part *files, size_t count,
                             struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < count && st == OK; i++) {
        char param[PARAM_MAX];
        (void)snprintf(param, sizeof param, "%.5s[%zu]", files[i].name, i);
        st = picture_inputs_add_file(r, files[i].bytes, files[i].size, files[i].type,
                                     files[i].name[0] != '\0' ? param : NULL, err);
    }
    return st;
}

/* Required fields of a JSON body, and fields that exclude each other. */
static enum status check_fields(const struct fields *f, struct error *err)
{
    const char *first = f->text != NULL ? "text" : f->texts != NULL ? "texts" : NULL;
    const char *second = f->images != NULL ? "images" : f->texts != NULL ? "texts" : NULL;
    if (first == NULL && second == NULL)
        return error_set_param(err, ERR_ARGUMENT, "text",
                               "\"text\" is missing; expected a string, or \"texts\", or \"images\" for a model that "
                               "classifies pictures");
    if (first != NULL && second != NULL && strcmp(first, second) != 0)
        return error_set_param(err, ERR_ARGUMENT, second, "\"%s\" and \"%s\" are both given; expected one of them",
                               first, second);
    if (first != NULL && f->size != NULL)
        return error_set_param(err, ERR_ARGUMENT, "size", "\"size\" is \"%s\"; expected no \"size\" with a text",
                               json_quote(json_string_value(f->size)).text);
    return OK;
}

/* What a request gives: texts of JSON, or files, which may also be parts of a form. */
struct given {
    bool is_json, is_form;
    size_t count;
    struct multipart_part files[REQUEST_FILES_MAX];
};

static enum status check_files(const struct given *g, struct error *err)
{
    if (g->count > 0)
        return OK;
    return g->is_form
               ? error_set_param(err, ERR_ARGUMENT, "image", "the body has no part \"image\"; expected one or more")
               : error_set(err, ERR_ARGUMENT, "the body is empty; expected a picture");
}

static enum status add_texts(struct picture_inputs *r, const json_t *texts, struct error *err)
{
    enum status st = OK;
    size_t i;
    const json_t *text;
    json_array_foreach((json_t *)texts, i, text)
    {
        char param[PARAM_MAX];
        (void)snprintf(param, sizeof param, "texts[%zu]", i);
        if (st == OK)
            st = picture_inputs_add_text(r, json_string_value(text), json_string_length(text), param, err);
    }
    return st;
}

/* Find the model, then read what it is to classify. */
static enum status read_input(struct request *x, const struct fields *f, const struct given *g, struct error *err)
{
    struct classification *state = x->state;
    struct hosted_model *model;
    const bool is_text = g->is_json && f->images == NULL;
    enum status st = request_model_acquire(x, json_string_value(f->model),
                                           is_text ? TASK_TEXT_CLASSIFICATION : TASK_IMAGE_CLASSIFICATION, &model, err);
    if (st == OK)
        st = g->is_json ? check_fields(f, err) : check_files(g, err);
    if (st != OK)
        return st;
    const uint32_t classes = model->model->config.classes;
    state->top_k = (uint32_t)f->top_k < classes ? (uint32_t)f->top_k : classes;
    st = classify_begin(&x->job, err);
    if (st != OK)
        return st;
    struct picture_inputs *r = &classify_job_of(&x->job)->in;
    st = picture_inputs_init(r, x, classify_note_input, json_string_value(f->size), err);
    if (st == OK && f->text != NULL)
        st = picture_inputs_add_text(r, json_string_value(f->text), json_string_length(f->text), "text", err);
    else if (st == OK && f->texts != NULL)
        st = add_texts(r, f->texts, err);
    else if (st == OK)
        st = g->is_json ? request_pictures_add(r, f->images, err) : add_files(r, g->files, g->count, err);
    return st == OK ? classify_make_outputs(&x->job, false, err) : st;
}

/* The fields of the body's object, or of its form, override the query's. */
enum status api_classify(struct request *x, struct error *err)
{
    const struct settings *settings = x->service->settings;
    struct given g = {.is_json = request_type_is_json(x), .is_form = x->type == TYPE_FORM};
    struct fields f = {.top_k = TOP_K_DEFAULT};
    x->state = job_alloc(&x->job, sizeof(struct classification), err);
    enum status st = x->state != NULL ? fields_read(&classify_query, x->query, settings, &f, err) : ERR_NOMEM;
    if (st == OK && g.is_json)
        st = request_json_parse(&x->object, x->body.bytes, x->body.size, err);
    else if (st == OK && (x->object = json_object()) == NULL)
        st = error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK && !g.is_json)
        st = request_picture_find(g.files, REQUEST_FILES_MAX, true, &g.count, x, &classify_query, x->object, err);
    if (st == OK)
        st = fields_read(&classify_fields, x->object, settings, &f, err);
    if (st == OK)
        st = read_input(x, &f, &g, err);
    return st == OK ? request_job_made(x, classify_answer) : st;
}
