/* picture_inputs.c - see picture_inputs.h. `prepare` runs on a worker's thread, or on the HTTP thread that submits;
 * everything else on HTTP threads. Until the job is submitted all is the HTTP thread's, then the preparing one's, then,
 * from the job's end, again the HTTP thread's. */
#include "server/operation/picture_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/media/picture.h"
#include "server/media/picture_cost.h"
#include "server/media/picture_fit.h"
#include "server/models/hosted_model.h"
#include "server/request/request_job.h"
#include "server/request/workers.h"

enum { NS_FITTED = 30 }; /* of a pixel that the model sees: resizing */

static enum status fill_classification(struct job *j, uint32_t i, const struct picture_seen *seen, struct error *err)
{
    const struct picture_fit *f = &seen->fit;
    const struct classify_input in = {
        .pixels = seen->pixels, .height = f->height, .width = f->width, .classes = j->model->model->config.classes};
    j->work.kept += UINT64_C(3) * f->height * f->width;
    return classify_fill(j, i, &in, err); /* without a map it needs no memory */
}

enum status picture_inputs_create(struct picture_inputs **ret, struct request *x, picture_inputs_fill *fill,
                                  const char *size, struct error *err)
{
    struct picture_inputs *r = request_alloc(x, sizeof *r, err);
    if (r == NULL)
        return ERR_NOMEM;
    r->request = x;
    r->model = x->job.model;
    r->fill = fill != NULL ? fill : fill_classification;
    if (size != NULL) {
        r->size = request_alloc(x, strlen(size) + 1, err);
        if (r->size == NULL)
            return ERR_NOMEM;
        memcpy(r->size, size, strlen(size));
    }
    x->job.work.arg = r;
    *ret = r;
    return OK;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* Put the name of the input at fault before the message. */
static enum status name_input(const char *param, enum status st, struct error *err)
{
    char message[ERROR_MESSAGE_MAX];
    if (param == NULL || param[0] == '\0' || st == OK || st == ERR_NOMEM || strcmp(err->param, param) == 0)
        return st;
    (void)snprintf(message, sizeof message, "%s", err->message);
    return error_set_param(err, st, param, "%s: %s", param, message);
}

static enum status check_room(const struct picture_inputs *r, const char *param, struct error *err)
{
    if (r->count < CLASSIFY_INPUTS_MAX)
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, param != NULL ? param : "",
        "the request has too many inputs; expected at most %d, and the others in requests of their own",
        CLASSIFY_INPUTS_MAX);
}

/* The pixels that the model will see of a picture of these sides; 0: it will be refused. */
static uint64_t fitted_pixels(const struct picture_inputs *r, uint32_t width, uint32_t height)
{
    const struct picture p = {.width = width, .height = height};
    struct picture_fit f;
    struct error none;
    return picture_fit_choose(&f, r->size, &p, r->model->model, r->model->engine, &none) == OK
               ? (uint64_t)f.width * f.height
               : 0;
}

/* What is wanted of each file. */
static struct picture_wish wish_of(const struct picture_inputs *r)
{
    return (struct picture_wish){.shorter = picture_fit_shorter(r->size, &r->model->model->config),
                                 .longer = r->longer};
}

/* What preparing this file adds to the whole: one after another is decoded, and what the model sees of each is kept. */
static enum status estimate(struct picture_inputs *r, struct picture_file *f, struct error *err)
{
    const struct picture_wish wish = wish_of(r);
    const struct picture_cost cost = picture_cost_of(f->bytes, f->size, &wish);
    const uint64_t fitted = fitted_pixels(r, cost.width, cost.height);
    struct job_work *k = &r->request->job.work;
    f->bytes_max = cost.bytes;
    r->pixels += cost.pixels;
    if (r->pixels > CLASSIFY_PIXELS_MAX)
        return error_set(err, ERR_PICTURE,
                         "with this picture the request has too many pixels in all; expected at most %llu",
                         (unsigned long long)CLASSIFY_PIXELS_MAX);
    const uint64_t more = cost.bytes > r->decode_most ? cost.bytes - r->decode_most : 0;
    r->decode_most += more;
    k->prepare_bytes += more + 3 * fitted;
    k->prepare_ns += cost.ns + NS_FITTED * fitted;
    return OK;
}

/* Of a job that classifies; another has its one picture as it fills it. */
static void add(struct picture_inputs *r, const struct classify_input *in)
{
    if (r->request->job.kind == &job_kind_classify)
        classify_add(&r->request->job, in);
    r->count++;
}

static enum status prepare(struct job *j, struct error *err);

enum status picture_inputs_add_file(struct picture_inputs *r, const uint8_t *bytes, size_t size, const char *declared,
                                    const char *param, struct error *err)
{
    struct picture_file *f = &r->files[r->count < CLASSIFY_INPUTS_MAX ? r->count : 0];
    enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    *f = (struct picture_file){.bytes = bytes, .size = size};
    (void)snprintf(f->param, sizeof f->param, "%s", param != NULL ? param : "");
    if (declared != NULL)
        st = picture_check_declared(declared, param != NULL ? param : "Content-Type", bytes, size, err);
    if (st == OK)
        st = picture_check_kind(bytes, size, err);
    if (st == OK)
        st = estimate(r, f, err);
    if (st != OK)
        return name_input(param, st, err);
    r->request->job.work.prepare = prepare;
    r->request->keeps_body = true;
    add(r, &(struct classify_input){.classes = r->model->model->config.classes});
    return OK;
}

enum status picture_inputs_add_pixels(struct picture_inputs *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                      const char *param, struct error *err)
{
    const enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    r->sides[r->count] = (struct picture_side){width, height};
    add(r, &(struct classify_input){
               .pixels = pixels, .height = height, .width = width, .classes = r->model->model->config.classes});
    return OK;
}

enum status picture_inputs_add_text(struct picture_inputs *r, const char *bytes, size_t size, const char *param,
                                    struct error *err)
{
    const struct model_config *c = &r->model->model->config;
    struct classify_input in = {.height = 1, .width = (uint32_t)size, .classes = c->classes};
    const enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    if (size < 1 || size > c->context)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" has %zu bytes; expected 1 to %u, as many as the model takes", param, size,
                               c->context);
    in.pixels = malloc(size);
    if (in.pixels == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the text; try again later");
    memcpy(in.pixels, bytes, size);
    add(r, &in);
    return OK;
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static enum status stop(void *arg)
{
    return job_stop_reason(arg, clock_now_ns());
}

/* What the model sees of a picture. */
static enum status fit(struct picture_inputs *r, uint32_t i, const struct picture *picture, struct job *j,
                       struct error *err)
{
    const struct hosted_model *e = r->model;
    struct picture_seen seen = {.picture = picture};
    enum status st = picture_fit_choose(&seen.fit, r->size, picture, e->model, e->engine, err);
    if (st != OK)
        return st;
    r->fitted += (uint64_t)seen.fit.width * seen.fit.height;
    if (r->fitted > PICTURE_PIXELS_MAX)
        return error_set(err, ERR_ARGUMENT,
                         "with this picture the model would see too many pixels in one request; expected at most %u",
                         PICTURE_PIXELS_MAX);
    st = picture_fit_apply(&seen.pixels, &seen.fit, picture, &e->model->config, err);
    if (st != OK)
        return st;
    r->sides[i] = (struct picture_side){picture_whole_width(picture), picture_whole_height(picture)};
    st = r->fill(j, i, &seen, err);
    if (st != OK)
        free(seen.pixels);
    return st;
}

static enum status prepare_file(struct picture_inputs *r, uint32_t i, struct job *j, struct error *err)
{
    const struct picture_file *f = &r->files[i];
    struct picture_wish wish = wish_of(r);
    wish.bytes_max = f->bytes_max;
    wish.stop = stop;
    wish.arg = j;
    struct picture picture = {0};
    enum status st = picture_decode(&picture, f->bytes, f->size, &wish, err);
    if (st == OK)
        st = fit(r, i, &picture, j, err);
    picture_clear(&picture);
    return name_input(f->param, st, err);
}

static enum status prepare(struct job *j, struct error *err)
{
    struct picture_inputs *r = j->work.arg;
    enum status st = OK;
    for (uint32_t i = 0; i < r->count && st == OK; i++)
        if (r->files[i].bytes != NULL)
            st = prepare_file(r, i, j, err);
    if (st == OK)
        request_drop_body(r->request);
    return st;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

enum status picture_inputs_make_job(struct picture_inputs *r, bool pooled, struct error *err)
{
    struct job *j = &r->request->job;
    j->work.pictures = j->work.prepare != NULL ? r->count : 0;
    request_job_charge_pixels(r->request, r->pixels);
    return classify_make_room(j, pooled, err);
}

struct picture_side picture_inputs_side(const struct job *j, uint32_t i)
{
    return ((const struct picture_inputs *)j->work.arg)->sides[i];
}

void picture_inputs_done(struct job *j)
{
    classify_drop_pixels(j);
    workers_give_back(j);
}
