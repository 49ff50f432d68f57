/* picture_inputs.c - see picture_inputs.h. `preprocess` runs on a worker's thread, or on the HTTP thread that submits;
 * everything else on HTTP threads. Until the job is submitted all is the HTTP thread's, then the preprocessing one's,
 * then, from the job's end, again the HTTP thread's. */
#include "server/operation/picture_inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/media/picture_cost.h"
#include "server/models/hosted_model.h"
#include "server/request/request_job.h"

enum { NS_FITTED = 30 }; /* of a pixel that the model sees: resizing */

void picture_inputs_drop(struct picture_inputs *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        free(r->list[i].pixels);
        r->list[i].pixels = NULL;
    }
}

static void drop(void *inputs)
{
    picture_inputs_drop(inputs);
}

enum status picture_inputs_init(struct picture_inputs *r, struct request *x, picture_fill *fill, const char *size,
                                struct error *err)
{
    r->request = x;
    r->fill = fill;
    x->job.work.arg = r;
    r->options.shorter = picture_fit_shorter(size, &x->job.model->model->config);
    r->options.stop = &x->job.cancelled;
    if (size != NULL) {
        r->size = job_alloc(&x->job, strlen(size) + 1, err);
        if (r->size == NULL)
            return ERR_NOMEM;
        memcpy(r->size, size, strlen(size));
    }
    return job_defer(&x->job, drop, r, err);
}

/* ---- gathering -------------------------------------------------------------------------------------------------- */

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

/* ---- for the job's model ---------------------------------------------------------------------------------------- */

static enum status fit(struct picture_fit *ret, const struct picture_inputs *r, const struct picture *p,
                       struct error *err)
{
    const struct hosted_model *e = r->request->job.model;
    return picture_fit_choose(ret, r->size, p, e->model, e->engine, err);
}

/* What preprocessing this file adds to the whole: one after another is decoded, and what the model sees of each is
 * kept. Its header tells, before any work is spent on it. */
static enum status note_cost(struct picture_inputs *r, struct picture_input *in, struct error *err)
{
    struct job_work *k = &r->request->job.work;
    const struct picture_cost cost = picture_cost_of(in->file, in->file_bytes, &r->options);
    const struct picture sides = {.width = cost.width, .height = cost.height};
    struct picture_fit f = {0};
    struct error none; /* a size that does not fit is refused when it is decoded */
    const uint64_t fitted = fit(&f, r, &sides, &none) == OK ? (uint64_t)f.width * f.height : 0;
    r->pixels += cost.pixels;
    if (r->pixels > CLASSIFY_PIXELS_MAX)
        return error_set(err, ERR_PICTURE,
                         "with this picture the request has too many pixels in all; expected at most %llu",
                         (unsigned long long)CLASSIFY_PIXELS_MAX);
    in->bytes_max = cost.bytes;
    const uint64_t more = cost.bytes > r->decode_most ? cost.bytes - r->decode_most : 0;
    r->decode_most += more;
    k->preprocess_bytes += more + 3 * fitted;
    k->preprocess_ns += cost.ns + NS_FITTED * fitted;
    return OK;
}

static enum status preprocess(struct job *j, struct error *err);

enum status picture_inputs_add_file(struct picture_inputs *r, const uint8_t *bytes, size_t size, const char *declared,
                                    const char *param, struct error *err)
{
    struct picture_input in = {
        .file = bytes, .file_bytes = size, .classes = r->request->job.model->model->config.classes};
    enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    (void)snprintf(in.param, sizeof in.param, "%s", param != NULL ? param : "");
    st = picture_check(declared, param != NULL ? param : "Content-Type", bytes, size, err);
    if (st == OK)
        st = note_cost(r, &in, err);
    if (st != OK)
        return name_input(param, st, err);
    r->list[r->count++] = in;
    r->request->job.work.preprocess = preprocess;
    r->request->keeps_body = true;
    request_job_charge_pixels(r->request, r->pixels);
    return OK;
}

enum status picture_inputs_add_pixels(struct picture_inputs *r, uint8_t *pixels, uint32_t width, uint32_t height,
                                      const char *param, struct error *err)
{
    const enum status st = check_room(r, param, err);
    if (st == OK)
        r->list[r->count++] = (struct picture_input){.whole_width = width,
                                                     .whole_height = height,
                                                     .pixels = pixels,
                                                     .height = height,
                                                     .width = width,
                                                     .classes = r->request->job.model->model->config.classes};
    return st;
}

enum status picture_inputs_add_text(struct picture_inputs *r, const char *bytes, size_t size, const char *param,
                                    struct error *err)
{
    const struct hosted_model *m = r->request->job.model;
    const uint32_t most = engine_info(m->engine)->elements_max;
    const enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    if (size < 1 || size > most)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "\"%s\" has %zu bytes; expected 1 to %u, as many as the model takes", param, size, most);
    uint8_t *copy = malloc(size);
    if (copy == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the text; try again later");
    memcpy(copy, bytes, size);
    r->list[r->count++] = (struct picture_input){
        .pixels = copy, .height = 1, .width = (uint32_t)size, .classes = m->model->config.classes};
    return OK;
}

/* ---- preprocessing ----------------------------------------------------------------------------------------------- */

/* What the model sees of a picture. */
static enum status picture_inputs_show(struct picture_inputs *r, uint32_t i, const struct picture *whole,
                                       const struct picture_fit *f, struct error *err)
{
    struct job *j = &r->request->job;
    struct picture_input *in = &r->list[i];
    r->fitted += (uint64_t)f->width * f->height;
    if (r->fitted > PICTURE_PIXELS_MAX)
        return error_set(err, ERR_ARGUMENT,
                         "with this picture the model would see too many pixels in one request; expected at most %u",
                         PICTURE_PIXELS_MAX);
    const enum status st = picture_fit_apply(&in->pixels, f, whole, &j->model->model->config, err);
    if (st != OK)
        return st;
    in->height = f->height;
    in->width = f->width;
    in->whole_width = picture_whole_width(whole);
    in->whole_height = picture_whole_height(whole);
    return r->fill(j, i, whole, f, err);
}

static enum status preprocess_file(struct picture_inputs *r, uint32_t i, struct error *err)
{
    const struct picture_input *in = &r->list[i];
    struct picture_options options = r->options;
    struct picture whole = {0};
    struct picture_fit f;
    options.bytes_max = in->bytes_max;
    enum status st = picture_decode(&whole, in->file, in->file_bytes, &options, err);
    if (st == OK)
        st = fit(&f, r, &whole, err);
    if (st == OK)
        st = picture_inputs_show(r, i, &whole, &f, err);
    picture_clear(&whole);
    return name_input(in->param, st, err);
}

static enum status preprocess(struct job *j, struct error *err)
{
    struct picture_inputs *r = j->work.arg;
    enum status st = OK;
    for (uint32_t i = 0; i < r->count && st == OK; i++)
        if (r->list[i].file != NULL)
            st = preprocess_file(r, i, err);
    if (st == OK)
        request_drop_body(r->request);
    return st;
}
