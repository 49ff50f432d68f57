/* request_inputs.c - see request_inputs.h. `prepare` runs on a worker's thread, or on the HTTP thread that submits;
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
#include "server/models/registry.h"

enum { NS_FITTED = 30 }; /* of a pixel that the model sees: resizing */

static void drop_kept(struct request_inputs *r)
{
    if (r->kept != NULL)
        r->drop(r->kept);
    r->kept = NULL;
}

enum status request_inputs_init(struct request_inputs *r, struct hosted_model *model, request_inputs_fill *fill,
                                const char *size, struct error *err)
{
    r->model = model;
    r->fill = fill;
    if (size != NULL && (r->size = strdup(size)) == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    return OK;
}

void request_inputs_clear(struct request_inputs *r)
{
    drop_kept(r);
    free(r->size);
}

static void free_work(struct job_work *k)
{
    struct request_inputs *r = (struct request_inputs *)k;
    request_inputs_clear(r);
    free(r);
}

static enum status fill_classification(struct job *j, uint32_t i, const struct request_seen *seen, struct error *err)
{
    const struct picture_fit *f = &seen->fit;
    const struct classify_input in = {
        .pixels = seen->pixels, .height = f->height, .width = f->width, .classes = j->model->model->config.classes};
    (void)err;
    j->work->kept += UINT64_C(3) * f->height * f->width;
    return classify_job_fill(j, i, &in); /* without a map it needs no memory */
}

struct request_inputs *request_inputs_create(struct hosted_model *model, const char *size, struct error *err)
{
    struct request_inputs *r = calloc(1, sizeof *r);
    if (r == NULL) {
        (void)error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
        return NULL;
    }
    r->work.free = free_work;
    if (request_inputs_init(r, model, fill_classification, size, err) == OK)
        return r;
    free(r);
    return NULL;
}

void request_inputs_free(struct request_inputs *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->count; i++)
        free(r->inputs[i].pixels);
    free_work(&r->work);
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

static enum status check_room(const struct request_inputs *r, const char *param, struct error *err)
{
    if (r->count < CLASSIFY_INPUTS_MAX)
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, param != NULL ? param : "",
        "the request has too many inputs; expected at most %d, and the others in requests of their own",
        CLASSIFY_INPUTS_MAX);
}

/* The pixels that the model will see of a picture of these sides; 0: it will be refused. */
static uint64_t fitted_pixels(const struct request_inputs *r, uint32_t width, uint32_t height)
{
    const struct picture p = {.width = width, .height = height};
    struct picture_fit f;
    struct error none;
    return picture_fit_choose(&f, r->size, &p, r->model->model, r->model->engine, &none) == OK
               ? (uint64_t)f.width * f.height
               : 0;
}

/* What is wanted of each file. */
static struct picture_wish wish_of(const struct request_inputs *r)
{
    return (struct picture_wish){.shorter = picture_fit_shorter(r->size, &r->model->model->config),
                                 .longer = r->longer};
}

/* What preparing this file adds to the whole: one after another is decoded, and what the model sees of each is kept. */
static enum status estimate(struct request_inputs *r, struct request_file *f, struct error *err)
{
    const struct picture_wish wish = wish_of(r);
    const struct picture_cost cost = picture_cost_of(f->bytes, f->size, &wish);
    const uint64_t fitted = fitted_pixels(r, cost.width, cost.height);
    struct job_work *k = &r->work;
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

static enum status prepare(struct job *j, struct error *err);

enum status request_inputs_add_file(struct request_inputs *r, const uint8_t *bytes, size_t size, const char *declared,
                                    const char *param, struct error *err)
{
    struct request_file *f = &r->files[r->count < CLASSIFY_INPUTS_MAX ? r->count : 0];
    enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    *f = (struct request_file){.bytes = bytes, .size = size};
    (void)snprintf(f->param, sizeof f->param, "%s", param != NULL ? param : "");
    if (declared != NULL)
        st = picture_check_declared(declared, param != NULL ? param : "Content-Type", bytes, size, err);
    if (st == OK)
        st = picture_check_kind(bytes, size, err);
    if (st == OK)
        st = estimate(r, f, err);
    if (st != OK)
        return name_input(param, st, err);
    r->work.prepare = prepare;
    r->inputs[r->count++] = (struct classify_input){.classes = r->model->model->config.classes};
    return OK;
}

enum status request_inputs_add_pixels(struct request_inputs *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                      const char *param, struct error *err)
{
    const enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    r->sides[r->count] = (struct request_side){width, height};
    r->inputs[r->count++] = (struct classify_input){
        .pixels = pixels, .height = height, .width = width, .classes = r->model->model->config.classes};
    return OK;
}

enum status request_inputs_add_text(struct request_inputs *r, const char *bytes, size_t size, const char *param,
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
    r->sides[r->count] = (struct request_side){0, 0};
    r->inputs[r->count++] = in;
    return OK;
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static enum status stop(void *arg)
{
    return job_stop_reason(arg, clock_now_ns());
}

/* What the model sees of a picture. */
static enum status fit(struct request_inputs *r, uint32_t i, const struct picture *picture, struct job *j,
                       struct error *err)
{
    const struct hosted_model *e = r->model;
    struct request_seen seen = {.picture = picture};
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
    r->sides[i] = (struct request_side){picture_whole_width(picture), picture_whole_height(picture)};
    st = r->fill(j, i, &seen, err);
    if (st != OK)
        free(seen.pixels);
    return st;
}

static enum status prepare_file(struct request_inputs *r, uint32_t i, struct job *j, struct error *err)
{
    const struct request_file *f = &r->files[i];
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
    struct request_inputs *r = (struct request_inputs *)j->work;
    enum status st = OK;
    for (uint32_t i = 0; i < r->count && st == OK; i++)
        if (r->files[i].bytes != NULL)
            st = prepare_file(r, i, j, err);
    if (st == OK)
        drop_kept(r);
    return st;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

enum status request_inputs_job(struct job **ret, struct request_inputs *r, struct error *err)
{
    const enum status st = classify_job_create(ret, r->model, r->inputs, r->count);
    if (st != OK)
        return error_set(err, st, "out of memory for the request; try again later");
    r->work.pictures = r->work.prepare != NULL ? r->count : 0;
    job_set_work(*ret, &r->work);
    return OK;
}

struct request_side request_inputs_side(const struct job *j, uint32_t i)
{
    return ((const struct request_inputs *)j->work)->sides[i];
}

void request_inputs_done(struct job *j)
{
    classify_job_drop_pixels(j);
    workers_give_back(j);
}
