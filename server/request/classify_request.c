/* classify_request.c - see classify_request.h. */
#include "server/request/classify_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/media/picture.h"
#include "server/media/picture_fit.h"
#include "server/models/registry.h"

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

static enum status fit(struct classify_request *r, const struct picture *picture, struct error *err)
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
    r->sides[r->count] = (struct classify_side){picture->width, picture->height};
    r->inputs[r->count++] = in;
    return OK;
}

enum status classify_request_add_file(struct classify_request *r, const uint8_t *bytes, size_t size,
                                      const char *declared, const char *param, struct error *err)
{
    struct picture picture = {0};
    enum status st = check_room(r, param, err);
    if (st != OK)
        return st;
    if (declared != NULL)
        st = picture_check_declared(declared, param != NULL ? param : "Content-Type", bytes, size, err);
    if (st == OK)
        st = picture_decode(&picture, bytes, size, err);
    if (st == OK) {
        r->decoded += (uint64_t)picture.width * picture.height;
        if (r->decoded > CLASSIFY_PIXELS_MAX)
            st = error_set(err, ERR_PICTURE,
                           "with this picture the request has too many pixels in all; expected at most %llu",
                           (unsigned long long)CLASSIFY_PIXELS_MAX);
        else
            st = fit(r, &picture, err);
    }
    picture_clear(&picture);
    return name_input(param, st, err);
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

enum status classify_request_job(struct job **ret, struct classify_request *r, struct error *err)
{
    const enum status st = classify_job_create(ret, r->model, r->inputs, r->count);
    if (st != OK)
        return error_set(err, st, "out of memory for the request; try again later");
    r->count = 0; /* the job's now */
    return OK;
}

void classify_request_clear(struct classify_request *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->inputs[i].pixels);
    r->count = 0;
}
