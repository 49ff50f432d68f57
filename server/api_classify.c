/* api_classify.c - POST /classify: a JPEG, or JSON with a text, in; the most probable labels out.
 * The picture is decoded and brought to the model's size on the HTTP thread; the engine sees pixels. */
#include "server/api.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "server/logits.h"
#include "server/picture_fit.h"
#include "server/registry.h"
#include "server/request_json.h"
#include "server/request_picture.h"
#include "weights/json.h"

enum { TOP_K_DEFAULT = 5 };

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

/* ---- the query ------------------------------------------------------------------------------------------------- */

struct query {
    const char *model; /* NULL: none was named */
    const char *size;  /* NULL: the trained one */
    uint32_t top_k;
    enum status status;
    struct error *err;
};

static bool parse_top_k(const char *value, uint32_t *ret)
{
    char *end;
    if (value == NULL || !isdigit((unsigned char)value[0]))
        return false;
    errno = 0;
    const unsigned long k = strtoul(value, &end, 10);
    if (*end != '\0' || errno != 0 || k < 1 || k > CLASSIFY_TOP_K_MAX)
        return false;
    *ret = (uint32_t)k;
    return true;
}

static bool query_parameter(void *arg, const char *name, const char *value, size_t value_bytes)
{
    struct query *q = arg;
    const bool is_text = value != NULL && strlen(value) == value_bytes;
    if (strcmp(name, "model") == 0 && is_text && value_bytes > 0)
        q->model = value;
    else if (strcmp(name, "model") == 0)
        q->status = error_set_param(q->err, ERR_ARGUMENT, "model", "\"model\" is empty; expected the name of a model");
    else if (strcmp(name, "size") == 0 && is_text)
        q->size = value;
    else if (strcmp(name, "size") == 0)
        q->status = error_set_param(q->err, ERR_ARGUMENT, "size", "\"size\" is no text; expected native or HxW");
    else if (strcmp(name, "top_k") != 0)
        q->status =
            error_set_param(q->err, ERR_ARGUMENT, json_quote(name).text,
                            "there is no parameter \"%s\"; expected model, top_k or size", json_quote(name).text);
    else if (!is_text || !parse_top_k(value, &q->top_k))
        q->status =
            error_set_param(q->err, ERR_ARGUMENT, "top_k", "\"top_k\" is \"%s\"; expected a whole number from 1 to %d",
                            json_quote(is_text ? value : "").text, CLASSIFY_TOP_K_MAX);
    return q->status == OK;
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

/* The text of {"text"}: its bytes, copied. */
static enum status read_text(const json_t *object, const struct model_config *c, struct classify_input *in,
                             struct error *err)
{
    const json_t *text = json_object_get(object, "text");
    const size_t size = json_string_length(text); /* 0 of what is no string */
    if (text == NULL)
        return error_set_param(err, ERR_ARGUMENT, "text", "\"text\" is missing; expected a string");
    if (!json_is_string(text))
        return error_set_param(err, ERR_ARGUMENT, "text", "\"text\" is %s; expected a string",
                               json_describe(text).text);
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

/* What the object says beside the text, where the query says nothing of it. */
static enum status read_fields(json_t *object, struct query *q, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const json_int_t top_k = json_integer_value(value);
        if (strcmp(name, "text") == 0)
            continue;
        if (strcmp(name, "model") == 0 && json_is_string(value) && json_string_length(value) > 0)
            q->model = json_string_value(value);
        else if (strcmp(name, "top_k") == 0 && json_is_integer(value) && top_k >= 1 && top_k <= CLASSIFY_TOP_K_MAX)
            q->top_k = (uint32_t)top_k;
        else if (strcmp(name, "model") == 0)
            return error_set_param(err, ERR_ARGUMENT, "model", "\"model\" is %s; expected the name of a model",
                                   json_describe(value).text);
        else if (strcmp(name, "top_k") == 0)
            return error_set_param(err, ERR_ARGUMENT, "top_k", "\"top_k\" is %s; expected a whole number from 1 to %d",
                                   json_describe(value).text, CLASSIFY_TOP_K_MAX);
        else
            return error_set_param(err, ERR_ARGUMENT, json_quote(name).text,
                                   "there is no field \"%s\" here; expected: text, model, top_k",
                                   json_quote(name).text);
    }
    return OK;
}

/* Find the model, then read what it is to classify: the text of `object`, or the picture in the body (NULL). */
static enum status read_input(struct exchange *x, const json_t *object, const struct query *q, struct entry **ret,
                              struct classify_input *in, struct error *err)
{
    struct classification *state = x->state;
    struct entry *e;
    const enum status st =
        registry_pick(api_service(x)->registry, q->model,
                      object != NULL ? TASK_TEXT_CLASSIFICATION : TASK_IMAGE_CLASSIFICATION, &e, err);
    if (st != OK)
        return st;
    const struct model_config *c = &e->model->config;
    x->model = e->metrics_label;
    x->model_name = e->model->name;
    state->top_k = q->top_k < c->classes ? q->top_k : c->classes;
    *in = (struct classify_input){.classes = c->classes};
    *ret = e;
    return object != NULL ? read_text(object, c, in, err) : read_picture(x, e, q->size, in, err);
}

static enum status prepare(struct exchange *x, struct job **ret, struct error *err)
{
    struct query q = {.top_k = TOP_K_DEFAULT, .err = err};
    struct classify_input in;
    struct entry *e;
    json_t *object = NULL;
    enum status st = OK;
    http_query(x, query_parameter, &q);
    if (q.status != OK)
        return q.status;
    if (api_has_type(x, "application/json")) {
        st = request_json_parse(&object, x->body.bytes, x->body.size, err);
        if (st == OK)
            st = read_fields(object, &q, err);
    }
    if (st == OK && object != NULL && q.size != NULL)
        st = error_set_param(err, ERR_ARGUMENT, "size", "\"size\" is \"%s\"; expected none beside a text",
                             json_quote(q.size).text);
    if (st == OK)
        st = read_input(x, object, &q, &e, &in, err);
    json_decref(object);
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
