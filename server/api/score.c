/* score.c - POST /score: how probable a text or a picture is under a generating model, element by element. HTTP
 * threads. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <stdlib.h>

#include "config/json_memory.h"
#include "server/fields/request_bytes.h"
#include "server/models/registry.h"
#include "server/operation/request_picture.h"
#include "server/operation/score.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_head.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

/* Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *text, *text_base64;
    int64_t timeout_ms;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX)},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX),
     .max_setting = offsetof(struct settings, timeout_ms_max)},
    {"text", FIELD_TEXT, AT(text), FIELD_RANGE(0, SCORE_BYTES_MAX)},
    {"text_base64", FIELD_TEXT, AT(text_base64), FIELD_RANGE(0, 2 * SCORE_BYTES_MAX)},
};
#undef AT
const struct field_list score_fields = FIELDS_OF(table);
const struct field_list score_query = {table, 2}; /* only the first two */

/* A picture is seen at the trained size, as its sub-pixels. */
static enum status score_fill(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                              struct error *err)
{
    (void)whole;
    (void)f;
    (void)err;
    score_job_of(j)->in.elements = ((const struct picture_inputs *)j->work.arg)->list[i].pixels;
    return OK;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static enum status score_answer(struct request *x, struct error *err)
{
    (void)err;
    const struct job *j = &x->job;
    const struct score_job *scored = score_job_of(j);
    const struct score_input *in = &scored->in;
    const bool picture = j->work.arg != NULL;
    const size_t count = in->count - in->first;
    double bits = 0.0;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        bits -= (double)scored->log2_probs[i];
        json_append(list, json_real((double)scored->log2_probs[i]));
    }
    json_t *whole =
        json_pack("{s:s, s:f, s:I, s:o}", "model", j->model->model->name, picture ? "bits_per_dim" : "bits_per_byte",
                  bits / (double)count, picture ? "dims" : "bytes", (json_int_t)in->count, "log2_probs", list);
    if (picture) {
        const struct picture_input *seen = ((const struct picture_inputs *)j->work.arg)->list;
        json_put(whole, "image",
                 json_pack("{s:i, s:i}", "width", (int)seen->whole_width, "height", (int)seen->whole_height));
    }
    return reply_send_json(x, 200, whole);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

static enum status read_text(const struct fields *f, struct score_input *in, struct error *err)
{
    const char *name = f->text_base64 != NULL ? "text_base64" : "text";
    if (f->text == NULL && f->text_base64 == NULL)
        return error_set_param(err, ERR_ARGUMENT, "text", "\"text\" is missing; expected a string");
    enum status st =
        request_bytes_read(&in->elements, &in->count, "text", f->text, f->text_base64, SCORE_BYTES_MAX, err);
    if (st == OK && in->count <= in->first)
        st =
            error_set_param(err, ERR_ARGUMENT, name, "\"%s\" has %zu byte%s; expected at least %zu%s", name, in->count,
                            in->count == 1 ? "" : "s", in->first + 1, in->first > 0 ? ": the first is not scored" : "");
    return st;
}

/* A picture is seen at the trained size, as its sub-pixels. */
static enum status begin_picture(struct request *x, struct score_input *in, const struct multipart_part *file,
                                 struct error *err)
{
    const uint32_t *size = x->job.model->model->config.size;
    struct picture_inputs *r;
    in->count = (size_t)3 * size[0] * size[1];
    enum status st = score_begin(&x->job, in, err);
    if (st == OK && (r = job_alloc(&x->job, sizeof *r, err)) == NULL)
        st = ERR_NOMEM;
    if (st == OK)
        st = picture_inputs_init(r, x, score_fill, NULL, err);
    return st == OK ? request_picture_add(r, file, err) : st;
}

static enum status begin_text(struct request *x, struct score_input *in, const struct fields *f, struct error *err)
{
    enum status st = read_text(f, in, err);
    if (st == OK)
        st = score_begin(&x->job, in, err);
    if (st == OK)
        st = job_defer(&x->job, free, in->elements, err);
    if (st != OK)
        free(in->elements);
    return st;
}

/* Read the query, and the body: a picture, or JSON, which overrides it. */
static enum status read_request(struct request *x, struct error *err)
{
    const bool picture = !request_type_is_json(x);
    struct fields f = {0};
    struct hosted_model *e;
    struct multipart_part file = {.size = 0};
    enum status st = picture ? request_picture_find_one(&file, x, &score_query, err) : OK;
    if (st == OK)
        st = fields_read(&score_query, x->query, x->service->settings, &f, err);
    if (st == OK && !picture)
        st = request_read_fields(x, &score_fields, &f, err);
    if (st == OK)
        st = request_model_acquire(x, json_string_value(f.model),
                                   picture ? TASK_IMAGE_GENERATION : TASK_TEXT_GENERATION, &e, err);
    if (st != OK)
        return st;
    struct score_input in = {.first = engine_info(e->engine)->starts ? 0 : 1};
    x->timeout_ms = (uint32_t)f.timeout_ms;
    return picture ? begin_picture(x, &in, &file, err) : begin_text(x, &in, &f, err);
}

enum status api_score(struct request *x, struct error *err)
{
    const enum status st = read_request(x, err);
    return st == OK ? request_job_made(x, score_answer) : st;
}
