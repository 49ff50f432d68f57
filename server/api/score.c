/* score.c - POST /score: how probable a text or a picture is under a generating model, element by element. HTTP
 * threads. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <ctype.h>
#include <stdlib.h>

#include "config/json_memory.h"
#include "server/api/api_request.h"
#include "server/api/reply.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/request_picture.h"
#include "server/api/request_query.h"
#include "server/api/request_type.h"
#include "server/api/service.h"
#include "server/kinds/score.h"
#include "server/models/registry.h"
#include "server/request/request_bytes.h"
#include "server/request/request_json.h"

/* Texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *text, *text_base64;
    int64_t timeout_ms;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_WISH_MAX)},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX), .max_set = field_max_timeout},
    {"text", FIELD_TEXT, AT(text), FIELD_RANGE(0, SCORE_BYTES_MAX)},
    {"text_base64", FIELD_TEXT, AT(text_base64), FIELD_RANGE(0, 2 * SCORE_BYTES_MAX)},
};
#undef AT
/* The query has only the first two. */
enum { FIELD_COUNT = sizeof table / sizeof table[0], QUERY_FIELD_COUNT = 2 };
const struct field_list score_fields = {table, FIELD_COUNT}, score_query = {table, QUERY_FIELD_COUNT};

/* The work of a job that scores a picture. */
struct seeing {
    struct job_work work; /* first */
    struct request_picture source;
};

static void seeing_free(struct job_work *k)
{
    struct seeing *s = (struct seeing *)k;
    request_picture_clear(&s->source);
    free(s);
}

static enum status see(struct job *j, struct error *err)
{
    struct seeing *s = (struct seeing *)j->work;
    uint8_t *elements = NULL;
    const enum status st = request_picture_trained(&elements, &s->source, j, err);
    if (st == OK)
        score_job_fill(j, elements);
    return st;
}

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static void answer(struct exchange *x)
{
    const struct job *j = x->job;
    const struct score_job *scored = score_job_of(j);
    const struct score_input *in = &scored->in;
    const struct seeing *seen = (const struct seeing *)j->work;
    const bool picture = seen != NULL;
    const size_t count = in->count - in->first;
    double bits = 0.0;
    if (!request_job_ended_well(x))
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        bits -= (double)scored->log2_probs[i];
        json_append(list, json_real((double)scored->log2_probs[i]));
    }
    json_t *whole =
        json_pack("{s:s, s:f, s:I, s:o}", "model", j->model->model->name, picture ? "bits_per_dim" : "bits_per_byte",
                  bits / (double)count, picture ? "dims" : "bytes", (json_int_t)in->count, "log2_probs", list);
    if (picture)
        json_put(whole, "image",
                 json_pack("{s:i, s:i}", "width", (int)seen->source.width, "height", (int)seen->source.height));
    reply_send_json(x, 200, whole);
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* An undeclared body that begins with { is JSON: no picture begins so. */
static bool is_json(const struct exchange *x)
{
    size_t at = 0;
    if (!request_type_is_unsaid(x))
        return request_type_is(x, "application/json");
    while (at < x->body.size && isspace(x->body.bytes[at]))
        at++;
    return at < x->body.size && x->body.bytes[at] == '{';
}

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

/* Read the query, and `object`, the body's JSON, which overrides it; NULL: the body is a picture, which *seeing is
 * for. */
static enum status read_request(struct exchange *x, json_t *object, struct hosted_model **ret, struct score_input *in,
                                struct seeing **seeing, struct error *err)
{
    const bool picture = object == NULL;
    const struct service *s = service_of(x);
    struct fields f = {0};
    struct hosted_model *e;
    struct request_picture_file file = {.size = 0};
    enum status st = picture ? request_picture_find(&file, x, &score_query, err) : OK;
    if (st == OK)
        st = fields_read(table, QUERY_FIELD_COUNT, x->api->query, s->settings, &f, err);
    if (st == OK && !picture)
        st = fields_read(table, FIELD_COUNT, object, s->settings, &f, err);
    if (st == OK)
        st = request_model_acquire(x, json_string_value(f.model),
                                   picture ? TASK_IMAGE_GENERATION : TASK_TEXT_GENERATION, &e, err);
    if (st != OK)
        return st;
    x->api->timeout_ms = (uint32_t)f.timeout_ms;
    in->first = engine_info(e->engine)->starts ? 0 : 1;
    *ret = e;
    if (!picture)
        return read_text(&f, in, err);
    const struct model_config *c = &e->model->config;
    in->count = (size_t)3 * c->size[0] * c->size[1];
    struct seeing *look = *seeing = calloc(1, sizeof *look);
    if (look == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    look->work.free = seeing_free;
    look->work.prepare = see;
    return request_picture_take_trained(&look->source, x, &file, c, &look->work, err);
}

static enum status prepare(struct exchange *x, struct job **ret, struct error *err)
{
    struct score_input in = {0};
    struct hosted_model *e = NULL;
    json_t *object = NULL;
    struct seeing *seeing = NULL;
    enum status st = is_json(x) ? request_json_parse(&object, x->body.bytes, x->body.size, err) : OK;
    if (st == OK)
        st = read_request(x, object, &e, &in, &seeing, err);
    json_decref(object);
    if (st == OK && score_job_create(ret, e, &in) == OK) {
        if (seeing != NULL)
            job_set_work(*ret, &seeing->work);
        return OK;
    }
    free(in.elements);
    if (seeing != NULL)
        seeing_free(&seeing->work);
    return st != OK ? st : error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
}

void api_score(struct exchange *x)
{
    struct error err;
    struct job *j = NULL;
    if (request_job_refuse_if_full(x))
        return;
    const enum status st = prepare(x, &j, &err);
    request_job_submit_or_refuse(x, st, &err, j, answer);
}
