/* embeddings.c - OpenAI's POST /v1/embeddings: texts in, or pictures, and for each the mean of what the model's last
 * block makes of its bytes or patches, after the final norm. Generating models run texts as streams; classifiers, of
 * texts or pictures, give what their head is given. HTTP threads. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "server/api/generate_request.h"
#include "server/api/prompts.h"
#include "server/core/little_endian.h"
#include "server/fields/request_json.h"
#include "server/models/registry.h"
#include "server/operation/classify.h"
#include "server/operation/embed.h"
#include "server/operation/picture_inputs.h"
#include "server/operation/request_picture.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"

_Static_assert(GENERATE_PROMPTS_MAX <= CLASSIFY_INPUTS_MAX, "a text classifier takes all texts that may be sent");

enum { PARAM_MAX = 32, NUMBER_BYTES = 56 /* of a number of the answer, while that is built */ };

/* Lists and texts are borrowed from the JSON. */
struct fields {
    const json_t *model, *input, *images, *user;
    int64_t dimensions, timeout_ms; /* 0: not given */
    int32_t priority;
    enum { FLOATS, BASE64 } format;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX)},
    {"input", FIELD_OTHER, AT(input), .read = prompts_read, .what = PROMPTS_EXPECTED},
    {"images", FIELD_OTHER, AT(images), .read = request_pictures_read, .what = REQUEST_PICTURES_EXPECTED},
    {"encoding_format", FIELD_WORD, AT(format), .words = {"float", "base64"}, .what = "\"float\" or \"base64\""},
    {"dimensions", FIELD_INTEGER, AT(dimensions), FIELD_RANGE(1, MODEL_DIM_MAX)},
    {"priority", FIELD_OTHER, AT(priority), .read = generate_read_priority, .what = GENERATE_PRIORITY_EXPECTED},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX),
     .max_setting = offsetof(struct settings, timeout_ms_max)},
    {"user", FIELD_TEXT, AT(user), FIELD_RANGE(0, OPENAI_USER_MAX)},
};
#undef AT
const struct field_list embedding_fields = FIELDS_OF(table);

/* The request's state. */
struct embedding {
    bool base64;
};

/* ---- the answer ------------------------------------------------------------------------------------------------ */

static uint32_t count_of(const struct job *j)
{
    return j->kind == &job_kind_embed ? embed_job_of(j)->in.count : classify_job_of(j)->in.count;
}

/* Bytes of texts, patches of pictures. */
static json_int_t count_tokens(const struct job *j)
{
    const struct model_config *c = &j->model->model->config;
    json_int_t tokens = 0;
    if (j->kind == &job_kind_embed)
        return (json_int_t)j->input_len;
    for (uint32_t i = 0; i < count_of(j); i++) {
        const struct picture_input *in = &classify_job_of(j)->in.list[i];
        tokens += c->input == INPUT_IMAGE ? in->height / c->patch[0] * (in->width / c->patch[1]) : in->width;
    }
    return tokens;
}

static json_t *describe_floats(const float *vector, uint32_t dim)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < dim; i++)
        json_append(list, json_real((double)vector[i]));
    return list;
}

static json_t *describe_base64(const float *vector, uint32_t dim)
{
    const size_t size = dim * sizeof *vector;
    uint8_t *bytes = malloc(size), *at = bytes;
    for (uint32_t i = 0; i < dim && bytes != NULL; i++)
        le_put_float(&at, vector[i]);
    json_t *value = bytes != NULL ? reply_base64(bytes, size) : NULL;
    free(bytes);
    return value;
}

/* All embeddings, in the order of their inputs; room [dim]. NULL for want of memory. */
static json_t *describe_all(const struct job *j, bool base64, float *room, uint32_t dim)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count_of(j); i++) {
        if (j->kind == &job_kind_embed)
            embed_job_mean(j, i, room);
        else
            memcpy(room, classify_job_of(j)->pooled + (size_t)i * dim, dim * sizeof *room);
        json_t *one = json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", (int)i, "embedding",
                                (base64 ? describe_base64 : describe_floats)(room, dim));
        json_append(list, one);
    }
    return list;
}

static enum status embeddings_answer(struct request *x, struct error *err)
{
    (void)err;
    struct job *j = &x->job;
    const struct embedding *state = x->state;
    const uint32_t dim = engine_info(j->model->engine)->dim;
    if (j->kind == &job_kind_classify)
        classify_drop_pixels(j);
    const json_int_t tokens = count_tokens(j);
    float *room = malloc(dim * sizeof *room);
    json_t *list = room != NULL ? describe_all(j, state->base64, room, dim) : NULL;
    free(room);
    return reply_send_json(x, 200,
                           list == NULL ? NULL
                                        : json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", list,
                                                    "model", j->model->model->name, "usage", "prompt_tokens", tokens,
                                                    "total_tokens", tokens));
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* A model that is named may be of any task that fits the inputs; else the one that such inputs usually go to. */
static enum status pick_model(struct request *x, const struct fields *f, struct hosted_model **ret, struct error *err)
{
    const bool pictures = f->images != NULL;
    const enum model_task usual = pictures ? TASK_IMAGE_CLASSIFICATION : TASK_TEXT_GENERATION;
    struct hosted_model *m;
    const enum status st = request_model_acquire(x, json_string_value(f->model),
                                                 f->model != NULL ? REGISTRY_ANY_TASK : (int)usual, &m, err);
    if (st != OK)
        return st;
    const enum model_task task = m->model->config.task;
    if (task != usual && (pictures || task != TASK_TEXT_CLASSIFICATION))
        return error_set_param(err, ERR_ARGUMENT, "model", "the model \"%s\" is for %s; expected one for %s",
                               m->model->name, model_task_name(task),
                               pictures ? "image-classification, as \"images\" are given"
                                        : "text-generation or text-classification, as \"input\" is given");
    *ret = m;
    return OK;
}

/* What one field alone does not show. */
static enum status embeddings_check(const struct fields *f, struct error *err)
{
    if (f->input == NULL && f->images == NULL)
        return error_set_param(err, ERR_ARGUMENT, "input",
                               "\"input\" is missing; expected texts, or \"images\" for a model that classifies "
                               "pictures");
    if (f->input != NULL && f->images != NULL)
        return error_set_param(err, ERR_ARGUMENT, "images",
                               "\"input\" and \"images\" are both given; expected one of them");
    return OK;
}

static enum status check_dimensions(const struct fields *f, const struct hosted_model *m, struct error *err)
{
    const uint32_t dim = engine_info(m->engine)->dim;
    if (f->dimensions == 0 || f->dimensions == (int64_t)dim)
        return OK;
    return error_set_param(err, ERR_ARGUMENT, "dimensions",
                           "\"dimensions\" is %lld; expected %u, which the embeddings of the model \"%s\" have",
                           (long long)f->dimensions, dim, m->model->name);
}

/* Most bytes of a text that the model takes. */
static size_t longest(const struct hosted_model *m)
{
    const struct engine_info *info = engine_info(m->engine);
    if (m->model->config.task == TASK_TEXT_CLASSIFICATION)
        return info->elements_max;
    return info->context == ENGINE_CONTEXT_UNLIMITED ? GENERATE_PROMPT_MAX : info->context - (info->starts ? 1 : 0);
}

static void name_text(char out[PARAM_MAX], const struct prompts *p, uint32_t i)
{
    if (p->count == 1)
        (void)snprintf(out, PARAM_MAX, "input");
    else
        (void)snprintf(out, PARAM_MAX, "input[%u]", i);
}

static enum status check_texts(const struct prompts *p, const struct hosted_model *m, struct error *err)
{
    const size_t most = longest(m);
    for (uint32_t i = 0; i < p->count; i++) {
        const size_t size = p->ends[i] - (i > 0 ? p->ends[i - 1] : 0);
        char param[PARAM_MAX];
        if (size >= 1 && size <= most)
            continue;
        name_text(param, p, i);
        if (size == 0)
            return error_set_param(err, ERR_ARGUMENT, param, "\"%s\" is empty; expected at least one byte", param);
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" has %zu bytes; expected at most %zu, the context of the model \"%s\"", param,
                               size, most, m->model->name);
    }
    return OK;
}

/* For a generating model. Takes p->bytes on OK. */
static enum status begin_streams(struct request *x, struct prompts *p, struct error *err)
{
    struct embed_input in = {.texts = p->bytes, .count = p->count};
    memcpy(in.ends, p->ends, sizeof in.ends);
    enum status st = embed_begin(&x->job, &in, err);
    if (st == OK)
        st = job_defer(&x->job, free, p->bytes, err);
    if (st == OK)
        p->bytes = NULL;
    return st;
}

static enum status add_texts(struct picture_inputs *r, const struct prompts *p, struct error *err)
{
    enum status st = OK;
    for (uint32_t i = 0; i < p->count && st == OK; i++) {
        const size_t from = i > 0 ? p->ends[i - 1] : 0;
        char param[PARAM_MAX];
        name_text(param, p, i);
        st = picture_inputs_add_text(r, (const char *)p->bytes + from, p->ends[i] - from, param, err);
    }
    return st;
}

/* For a classifier: of pictures if `p` is NULL. */
static enum status begin_batch(struct request *x, const struct fields *f, const struct prompts *p, struct error *err)
{
    enum status st = classify_begin(&x->job, err);
    if (st != OK)
        return st;
    struct picture_inputs *r = &classify_job_of(&x->job)->in;
    st = picture_inputs_init(r, x, classify_note_input, NULL, err);
    if (st == OK)
        st = p != NULL ? add_texts(r, p, err) : request_pictures_add(r, f->images, err);
    return st == OK ? classify_make_outputs(&x->job, true, err) : st;
}

static enum status begin_job(struct request *x, const struct fields *f, struct error *err)
{
    const struct hosted_model *m = x->job.model;
    struct prompts p = {0};
    if (f->images != NULL)
        return begin_batch(x, f, NULL, err);
    enum status st = prompts_copy(&p, f->input, err);
    if (st == OK)
        st = check_texts(&p, m, err);
    if (st == OK)
        st = m->model->config.task == TASK_TEXT_GENERATION ? begin_streams(x, &p, err) : begin_batch(x, f, &p, err);
    free(p.bytes);
    return st;
}

static enum status read_request(struct request *x, struct error *err)
{
    struct fields f = {0};
    struct hosted_model *m = NULL;
    struct job *j = &x->job;
    enum status st = request_json_parse_bytes(&x->object, x->body.bytes, x->body.size, err);
    if (st == OK)
        st = fields_read(&embedding_fields, x->object, x->service->settings, &f, err);
    if (st == OK)
        st = embeddings_check(&f, err);
    if (st == OK)
        st = pick_model(x, &f, &m, err);
    if (st == OK)
        st = check_dimensions(&f, m, err);
    if (st == OK)
        st = begin_job(x, &f, err);
    if (st != OK)
        return st;
    x->timeout_ms = (uint32_t)f.timeout_ms;
    ((struct embedding *)x->state)->base64 = f.format == BASE64;
    j->item.priority = f.priority;
    j->answer_bytes =
        j->input_len + (size_t)count_of(j) * engine_info(m->engine)->dim * (sizeof(double) + NUMBER_BYTES);
    return OK;
}

enum status api_openai_embeddings(struct request *x, struct error *err)
{
    x->state = job_alloc(&x->job, sizeof(struct embedding), err);
    const enum status st = x->state != NULL ? read_request(x, err) : ERR_NOMEM;
    return st == OK ? request_job_made(x, embeddings_answer) : st;
}
