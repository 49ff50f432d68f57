/* complete.c - POST /complete: a picture in, whose first rows are kept; the rest is drawn by a model of sub-pixels
 * (image autoregression, Zhai et al. 2021, section 4.2), once or several times. The answer is a PNG, or the rows as
 * server-sent events while they are drawn. HTTP threads. */
#include "config/settings.h"
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/generate_request.h"
#include "server/media/picture_grid.h"
#include "server/media/png.h"
#include "server/models/registry.h"
#include "server/operation/complete.h"
#include "server/operation/request_picture.h"
#include "server/request/events.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_head.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"
#include "server/request/workers.h"

/* ---- the query ------------------------------------------------------------------------------------------------- */

/* Texts are borrowed from the JSON that the query became. */
struct fields {
    const json_t *model;
    struct sampler_fields sampler;
    int64_t rows, n, scale, seed, timeout_ms; /* rows, seed -1, timeout_ms 0: not given */
    enum field_switch stream;
};

#define AT(member) .offset = offsetof(struct fields, member)
static const struct field table[] = {
    {"model", FIELD_NAME, AT(model), FIELD_RANGE(1, MODEL_REF_MAX)},
    {"rows", FIELD_INTEGER, AT(rows), FIELD_RANGE(0, MODEL_PICTURE_SIDE_MAX)},
    {"n", FIELD_INTEGER, AT(n), FIELD_RANGE(1, COMPLETE_SAMPLES_MAX)},
    {"scale", FIELD_INTEGER, AT(scale), FIELD_RANGE(1, COMPLETE_SCALE_MAX)},
    {"temperature", FIELD_NUMBER, AT(sampler.temperature), FIELD_RANGE(0, SAMPLER_TEMPERATURE_MAX)},
    {"top_k", FIELD_INTEGER, AT(sampler.top_k), FIELD_RANGE(0, BYTE_VALUES)},
    {"top_p", FIELD_NUMBER, AT(sampler.top_p), FIELD_RANGE(0, 1), .exclusive = true},
    {"min_p", FIELD_NUMBER, AT(sampler.min_p), FIELD_RANGE(0, 1)},
    {"seed", FIELD_INTEGER, AT(seed), FIELD_RANGE(0, SEED_MAX)},
    {"stream", FIELD_SWITCH, AT(stream), FIELD_RANGE(0, 0)},
    {"timeout_ms", FIELD_INTEGER, AT(timeout_ms), FIELD_RANGE(1, UINT32_MAX),
     .max_setting = offsetof(struct settings, timeout_ms_max)},
};
#undef AT
const struct field_list complete_query = FIELDS_OF(table);

/* The request's state. */
struct completion {
    uint32_t scale;
    char *png; /* what is answered, unless it is rows */
    size_t png_bytes;
    bool streams, said_finish;
    struct multipart_part given;
    uint32_t read[COMPLETE_SAMPLES_MAX]; /* rows that were sent */
};

enum { NS_PAINTED = 100 }; /* of a pixel that is painted and encoded; measured, roughly */

/* ---- the picture ----------------------------------------------------------------------------------------------- */

/* The request begins with its job. */
static struct completion *state_of(struct job *j)
{
    return ((struct request *)(void *)j)->state;
}

static enum status postprocess(struct job *j, struct error *err)
{
    struct completion *s = state_of(j);
    const struct complete_job *c = complete_job_of(j);
    const struct complete_input *in = &c->in;
    const uint32_t *size = j->model->model->config.size;
    const struct picture_grid g = picture_grid_lay_out(in->samples, size, s->scale);
    struct picture picture = {.pixels = NULL};
    enum status st = picture_grid_paint(&picture, &g, in->samples, c->pixels, size, err);
    if (st == OK)
        st = png_encode(&s->png, &s->png_bytes, &picture, err);
    picture_clear(&picture);
    return st;
}

/* The model's rows of the picture. */
static enum status fill(struct job *j, uint32_t i, const struct picture *whole, const struct picture_fit *f,
                        struct error *err)
{
    (void)whole;
    (void)f;
    (void)err;
    complete_fill(j, ((const struct picture_inputs *)j->work.arg)->list[i].pixels);
    return OK;
}

static enum status answer_picture(struct request *x, struct error *err)
{
    struct job *j = &x->job;
    struct completion *s = x->state;
    char seed[24];
    const enum status st = workers_postprocess(j, err);
    if (st != OK)
        return st;
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)complete_job_of(j)->in.sampler.seed);
    request_add_header(x, "X-Seed", seed);
    (void)request_reply(x, 200, "image/png", s->png, s->png_bytes);
    s->png = NULL; /* taken */
    return OK;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* Rows [from, to) of a sample. */
static enum request_piece say_rows(const struct job *j, uint32_t sample, uint32_t from, uint32_t to, char **piece,
                                   size_t *bytes)
{
    const struct complete_job *c = complete_job_of(j);
    const struct complete_input *in = &c->in;
    const uint32_t *size = j->model->model->config.size;
    const uint8_t *rows = c->pixels + (size_t)sample * in->total + (size_t)from * in->row_count;
    json_t *event = json_pack("{s:i, s:i, s:i, s:i, s:i, s:o}", "index", (int)sample, "row", (int)from, "rows",
                              (int)(to - from), "width", (int)size[1], "height", (int)size[0], "rgb_base64",
                              reply_base64(rows, (size_t)(to - from) * in->row_count));
    return event_say(NULL, event, piece, bytes);
}

static enum request_piece say_finish(struct request *x, char **piece, size_t *bytes)
{
    const struct job *j = &x->job;
    const struct complete_input *in = &complete_job_of(j)->in;
    const struct job_result *r = job_result(j);
    struct completion *state = x->state;
    const json_int_t given = in->known_count, generated = r->generated;
    state->said_finish = true;
    if (r->status != OK)
        return event_say(NULL, event_describe_error(x), piece, bytes);
    return event_say(NULL,
                     json_pack("{s:s, s:{s:I, s:I, s:I}, s:o, s:I, s:s}", "finish_reason", job_finish_words[r->finish],
                               "usage", "prompt_tokens", given, "completion_tokens", generated, "total_tokens",
                               given + generated, "timings", request_job_timings(x), "seed",
                               (json_int_t)in->sampler.seed, "model", j->model->model->name),
                     piece, bytes);
}

static enum request_piece read_piece(struct request *x, char **piece, size_t *bytes)
{
    struct completion *state = x->state;
    uint32_t sample, rows;
    switch (complete_read_rows(&x->job, state->read, &sample, &rows)) {
    case JOB_EVENT_BYTES: {
        const uint32_t from = state->read[sample];
        state->read[sample] = rows;
        return say_rows(&x->job, sample, from, rows, piece, bytes);
    }
    case JOB_EVENT_PING:
        return event_say_ping(piece, bytes);
    case JOB_EVENT_END:
        return state->said_finish ? REQUEST_END : say_finish(x, piece, bytes);
    default:
        return REQUEST_LATER;
    }
}

/* ---- the request ----------------------------------------------------------------------------------------------- */

/* Checks that concern more than one field. */
static enum status complete_check(const struct request *x, const struct hosted_model *e, struct fields *f,
                                  struct error *err)
{
    const uint32_t *size = e->model->config.size;
    const bool is_given = ((const struct completion *)x->state)->given.size > 0;
    const bool starts = engine_info(e->engine)->starts;
    const struct picture_grid g = picture_grid_lay_out((uint32_t)f->n, size, (uint32_t)f->scale);
    if (f->rows < 0)
        f->rows = is_given ? size[0] / 2 : 0;
    if (f->rows >= size[0])
        return error_set_param(err, ERR_ARGUMENT, "rows",
                               "\"rows\" is %lld; expected 0 to %u: the pictures of \"%s\" have %u rows of %u pixels",
                               (long long)f->rows, size[0] - 1, e->model->name, size[0], size[1]);
    if (f->rows > 0 && !is_given)
        return error_set_param(err, ERR_ARGUMENT, "rows",
                               "\"rows\" is %lld and the body is empty; expected a picture to take the rows from",
                               (long long)f->rows);
    if (f->rows == 0 && !starts)
        return error_set_param(err, ERR_ARGUMENT, "rows",
                               "\"%s\" cannot begin a picture by itself; expected a picture and at least 1 row of it",
                               e->model->name);
    if ((uint64_t)g.width * g.height > COMPLETE_PIXELS_MAX)
        return error_set_param(err, ERR_ARGUMENT, "scale",
                               "\"scale\" is %lld and the answer would have %u x %u pixels; expected at most %u in all",
                               (long long)f->scale, g.width, g.height, COMPLETE_PIXELS_MAX);
    return OK;
}

static void free_png(void *state)
{
    free(((struct completion *)state)->png);
}

/* What is to be done besides drawing sub-pixels. */
static enum status plan(struct request *x, const struct complete_input *in, struct error *err)
{
    struct completion *state = x->state;
    struct job_work *k = &x->job.work;
    const struct picture_grid g = picture_grid_lay_out(in->samples, x->job.model->model->config.size, state->scale);
    const uint64_t painted = (uint64_t)g.width * g.height;
    struct picture_inputs *source;
    if (!in->stream) {
        k->postprocess = postprocess;
        k->postprocess_ns = NS_PAINTED * painted;
        k->postprocess_bytes = 6 * painted;
    }
    enum status st = job_defer(&x->job, free_png, state, err);
    if (st == OK && state->given.size > 0) {
        source = job_alloc(&x->job, sizeof *source, err);
        st = source != NULL ? picture_inputs_init(source, x, fill, NULL, err) : ERR_NOMEM;
        if (st == OK)
            st = request_picture_add(source, &state->given, err);
    }
    return st;
}

static enum status build(struct request *x, const struct fields *f, struct error *err)
{
    const struct model_config *c = &x->job.model->model->config;
    struct complete_input in = {
        .row_count = 3 * c->size[1],
        .total = 3 * c->size[1] * c->size[0],
        .known_count = 3 * c->size[1] * (uint32_t)f->rows,
        .samples = (uint32_t)f->n,
        .stream = ((const struct completion *)x->state)->streams,
    };
    sampler_options_default(&in.sampler);
    generate_set_sampler(&in.sampler, &f->sampler);
    in.sampler.seed = f->seed >= 0 ? (uint64_t)f->seed : request_draw_seed();
    const enum status st = complete_begin(&x->job, &in, err);
    return st == OK ? plan(x, &in, err) : st;
}

static enum status read_request(struct request *x, struct error *err)
{
    struct completion *state = x->state;
    struct fields f = {.sampler = SAMPLER_FIELDS_UNSAID, .rows = -1, .n = 1, .scale = 1, .seed = -1};
    struct hosted_model *e;
    enum status st = request_picture_find_one(&state->given, x, &complete_query, err);
    if (st == OK)
        st = fields_read(&complete_query, x->query, x->service->settings, &f, err);
    if (st == OK)
        st = request_model_acquire(x, json_string_value(f.model), TASK_IMAGE_GENERATION, &e, err);
    if (st != OK)
        return st;
    state->scale = (uint32_t)f.scale;
    x->timeout_ms = (uint32_t)f.timeout_ms;
    state->streams = events_wanted(x, f.stream);
    st = complete_check(x, e, &f, err);
    return st == OK ? build(x, &f, err) : st;
}

enum status api_complete(struct request *x, struct error *err)
{
    struct completion *state = x->state = job_alloc(&x->job, sizeof *state, err);
    const enum status st = state != NULL ? read_request(x, err) : ERR_NOMEM;
    x->reader = read_piece;
    return st == OK ? request_job_made(x, state->streams ? events_answer : answer_picture) : st;
}
