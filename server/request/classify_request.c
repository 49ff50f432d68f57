/* classify_request.c - see classify_request.h. `prepare` runs on a worker's thread, or on the HTTP thread that submits;
 * everything else on HTTP threads. Until the job is submitted all is the HTTP thread's, then the preparing one's, then,
 * from the job's end, again the HTTP thread's. */
#include "server/request/classify_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/media/picture.h"
#include "server/media/picture_cost.h"
#include "server/media/picture_fit.h"
#include "server/models/registry.h"

enum {
    PARAM_MAX = 64,
    TYPE_MAX = 64,
    NS_FITTED = 30, /* of a pixel that the model sees: resizing */
};

/* A picture that is to be decoded. */
struct file {
    const uint8_t *bytes; /* borrowed; NULL: the input is something else, and complete */
    size_t size;
    uint64_t bytes_max; /* as its header promises */
    char param[PARAM_MAX];
    bool is_named;
};

struct classify_request {
    struct job_work work; /* first */
    struct hosted_model *model;
    char *size; /* NULL: the trained one */
    uint32_t count;
    struct classify_input inputs[CLASSIFY_INPUTS_MAX]; /* pixels are owned until there is a job */
    struct classify_side sides[CLASSIFY_INPUTS_MAX];
    struct file files[CLASSIFY_INPUTS_MAX];
    uint64_t pixels;      /* of all files */
    uint64_t fitted;      /* of all that are prepared */
    uint64_t decode_most; /* bytes of the file that takes most */
    void *kept;
    void (*drop)(void *kept);
};

static void drop_kept(struct classify_request *r)
{
    if (r->kept != NULL)
        r->drop(r->kept);
    r->kept = NULL;
}

static void free_work(struct job_work *k)
{
    struct classify_request *r = (struct classify_request *)k;
    drop_kept(r);
    free(r->size);
    free(r);
}

struct classify_request *classify_request_create(struct hosted_model *model, const char *size)
{
    struct classify_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->model = model;
    r->work.free = free_work;
    if (size != NULL && (r->size = strdup(size)) == NULL) {
        free(r);
        return NULL;
    }
    return r;
}

void classify_request_free(struct classify_request *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->count; i++)
        free(r->inputs[i].pixels);
    free_work(&r->work);
}

uint32_t classify_request_count(const struct classify_request *r)
{
    return r->count;
}

bool classify_request_has_files(const struct classify_request *r)
{
    return r->work.prepare != NULL;
}

uint64_t classify_request_pixels(const struct classify_request *r)
{
    return r->pixels;
}

void classify_request_keep(struct classify_request *r, void *kept, void (*drop)(void *kept))
{
    r->kept = kept;
    r->drop = drop;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* Put the name of the input at fault before the message. */
static enum status name_input(const char *param, enum status st, struct error *err)
{
    char message[ERROR_MESSAGE_MAX];
    if (param == NULL || st == OK || st == ERR_NOMEM || strcmp(err->param, param) == 0)
        return st;
    (void)snprintf(message, sizeof message, "%s", err->message);
    return error_set_param(err, st, param, "%s: %s", param, message);
}

static enum status check_room(const struct classify_request *r, const char *param, struct error *err)
{
    if (r->count < CLASSIFY_INPUTS_MAX)
        return OK;
    return error_set_param(
        err, ERR_ARGUMENT, param != NULL ? param : "",
        "the request has too many inputs; expected at most %d, and the others in requests of their own",
        CLASSIFY_INPUTS_MAX);
}

/* The pixels that the model will see of a picture of these sides; 0: it will be refused. */
static uint64_t fitted_pixels(const struct classify_request *r, uint32_t width, uint32_t height)
{
    const struct picture p = {.width = width, .height = height};
    struct picture_fit f;
    struct error none;
    return picture_fit_choose(&f, r->size, &p, r->model->model, r->model->engine, &none) == OK
               ? (uint64_t)f.width * f.height
               : 0;
}

/* What preparing this file adds to the whole: one after another is decoded, and what the model sees of each is kept. */
static enum status estimate(struct classify_request *r, struct file *f, struct error *err)
{
    const struct picture_wish wish = {.shorter = picture_fit_shorter(r->size, &r->model->model->config)};
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
    k->pictures++;
    return OK;
}

static enum status prepare(struct job *j, struct error *err);

enum status classify_request_add_file(struct classify_request *r, const uint8_t *bytes, size_t size,
                                      const char *declared, const char *param, struct error *err)
{
    struct file *f = &r->files[r->count < CLASSIFY_INPUTS_MAX ? r->count : 0];
    enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    *f = (struct file){.bytes = bytes, .size = size, .is_named = param != NULL};
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

enum status classify_request_add_pixels(struct classify_request *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                        const char *param, struct error *err)
{
    const enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    r->sides[r->count] = (struct classify_side){width, height};
    r->inputs[r->count++] = (struct classify_input){
        .pixels = pixels, .height = height, .width = width, .classes = r->model->model->config.classes};
    return OK;
}

enum status classify_request_add_text(struct classify_request *r, const char *bytes, size_t size, const char *param,
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
    r->sides[r->count] = (struct classify_side){0, 0};
    r->inputs[r->count++] = in;
    return OK;
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static enum status stop(void *arg)
{
    return job_stop_reason(arg, clock_now_ns());
}

/* What the model sees of a picture. */
static enum status fit(struct classify_request *r, uint32_t i, const struct picture *picture, struct job *j,
                       struct error *err)
{
    const struct hosted_model *e = r->model;
    struct classify_input in = {.classes = e->model->config.classes};
    struct picture_fit f;
    enum status st = picture_fit_choose(&f, r->size, picture, e->model, e->engine, err);
    if (st != OK)
        return st;
    if (r->fitted + (uint64_t)f.width * f.height > PICTURE_PIXELS_MAX)
        return error_set(err, ERR_ARGUMENT,
                         "with this picture the model would see too many pixels in one request; expected at most %u",
                         PICTURE_PIXELS_MAX);
    st = picture_fit_apply(&in.pixels, &f, picture, &e->model->config, err);
    if (st != OK)
        return st;
    in.height = f.height;
    in.width = f.width;
    r->fitted += (uint64_t)f.width * f.height;
    r->sides[i] = (struct classify_side){picture_whole_width(picture), picture_whole_height(picture)};
    return classify_job_fill(j, i, &in); /* without a map it needs no memory */
}

static enum status prepare_file(struct classify_request *r, uint32_t i, struct job *j, struct error *err)
{
    const struct file *f = &r->files[i];
    const struct picture_wish wish = {.shorter = picture_fit_shorter(r->size, &r->model->model->config),
                                      .bytes_max = f->bytes_max,
                                      .stop = stop,
                                      .arg = j};
    struct picture picture = {0};
    enum status st = picture_decode(&picture, f->bytes, f->size, &wish, err);
    if (st == OK)
        st = fit(r, i, &picture, j, err);
    picture_clear(&picture);
    return name_input(f->is_named ? f->param : NULL, st, err);
}

static enum status prepare(struct job *j, struct error *err)
{
    struct classify_request *r = (struct classify_request *)j->work;
    enum status st = OK;
    for (uint32_t i = 0; i < r->count && st == OK; i++)
        if (r->files[i].bytes != NULL)
            st = prepare_file(r, i, j, err);
    if (st != OK)
        return st;
    drop_kept(r);
    r->work.kept = 3 * r->fitted;
    return OK;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

enum status classify_request_job(struct job **ret, struct classify_request *r, struct error *err)
{
    const enum status st = classify_job_create(ret, r->model, r->inputs, r->count);
    if (st != OK)
        return error_set(err, st, "out of memory for the request; try again later");
    job_set_work(*ret, &r->work);
    return OK;
}

struct classify_side classify_request_side(const struct job *j, uint32_t i)
{
    return ((const struct classify_request *)j->work)->sides[i];
}

void classify_request_done(struct job *j)
{
    classify_job_drop_pixels(j);
    workers_give_back(j);
}
