/* request_picture.c - see request_picture.h. */
#include "server/api/request_picture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/api/api_request.h"
#include "server/api/request_job.h"
#include "server/api/request_query.h"
#include "server/api/request_type.h"
#include "server/core/clock.h"
#include "server/media/picture.h"
#include "server/media/picture_cost.h"
#include "server/media/picture_fit.h"
#include "server/models/hosted_model.h"
#include "server/request/request_bytes.h"

enum { PARAM_MAX = 32, NS_FITTED = 30 /* of a pixel that the model sees: resizing */ };

static enum status stop(void *job)
{
    return job_stop_reason(job, clock_now_ns());
}

static void free_body(void *kept)
{
    http_free_body(kept);
}

enum status request_picture_job(struct exchange *x, struct classify_request *r, struct job **ret, struct error *err)
{
    const enum status st = classify_request_job(ret, r, err);
    if (st != OK) {
        classify_request_free(r);
        return st;
    }
    if (!classify_request_has_files(r)) /* nothing of the body is needed any more */
        return OK;
    request_job_charge_pixels(x, classify_request_pixels(r));
    struct http_kept_body *kept = http_keep_body(x);
    if (kept == NULL) {
        job_release(*ret);
        *ret = NULL;
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    }
    classify_request_keep(r, kept, free_body);
    return OK;
}

bool request_picture_is_part(const struct multipart_part *part)
{
    return strcmp(part->name, "image") == 0 || strcmp(part->name, "file") == 0;
}

static enum status take_part(struct request_picture_file *f, const struct multipart_part *part,
                             const struct field_list *list, json_t *query, struct error *err)
{
    const struct field *field = fields_find(list->table, list->count, part->name);
    if (field != NULL)
        return request_query_add(query, field, (const char *)part->bytes, part->size, err);
    if (!request_picture_is_part(part))
        return fields_refuse(list->table, list->count, "part", part->name, err);
    if (f->size > 0)
        return error_set_param(err, ERR_ARGUMENT, part->name, "the form has two pictures; expected one");
    f->bytes = part->bytes;
    f->size = part->size;
    (void)snprintf(f->type, sizeof f->type, "%s", part->type);
    return OK;
}

enum status request_picture_find(struct request_picture_file *ret, struct exchange *x, const struct field_list *list,
                                 struct error *err)
{
    struct request_picture_file f = {.bytes = x->body.bytes, .size = x->body.size};
    struct multipart m;
    struct multipart_part part;
    bool end = false;
    enum status st = OK;
    if (request_type_is(x, "multipart/form-data")) {
        f.size = 0;
        st = multipart_begin(&m, http_header(x, "Content-Type"), x->body.bytes, x->body.size, err);
        while (st == OK && (st = multipart_next(&m, &part, &end, err)) == OK && !end)
            st = take_part(&f, &part, list, x->api->query, err);
    } else if (!request_type_is_unsaid(x)) {
        (void)request_type_read(x, f.type);
    }
    if (st == OK)
        *ret = f;
    return st;
}

enum status request_picture_take(struct request_picture *ret, struct exchange *x, const struct request_picture_file *f,
                                 uint32_t shorter, uint32_t longer, uint64_t *ns, uint64_t *bytes, struct error *err)
{
    struct request_picture p = {
        .bytes = f->bytes, .size = f->size, .wish = {.shorter = shorter, .longer = longer, .stop = stop}};
    if (p.size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected " PICTURE_KINDS);
    enum status st = picture_check_declared(f->type, "Content-Type", p.bytes, p.size, err);
    if (st == OK)
        st = picture_check_kind(p.bytes, p.size, err);
    if (st != OK)
        return st;
    const struct picture_cost cost = picture_cost_of(p.bytes, p.size, &p.wish);
    p.wish.bytes_max = cost.bytes;
    request_job_charge_pixels(x, cost.pixels);
    p.body = http_keep_body(x);
    if (p.body == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    *ns = cost.ns;
    *bytes = cost.bytes;
    *ret = p;
    return OK;
}

enum status request_picture_decode(struct picture *ret, struct request_picture *p, struct job *j, struct error *err)
{
    p->wish.arg = j;
    const enum status st = picture_decode(ret, p->bytes, p->size, &p->wish, err);
    request_picture_clear(p);
    if (st == OK) {
        p->width = picture_whole_width(ret);
        p->height = picture_whole_height(ret);
    }
    return st;
}

void request_picture_clear(struct request_picture *p)
{
    http_free_body(p->body);
    p->body = NULL;
}

enum status request_picture_take_trained(struct request_picture *ret, struct exchange *x,
                                         const struct request_picture_file *f, const struct model_config *c,
                                         struct job_work *k, struct error *err)
{
    uint64_t ns = 0, bytes = 0;
    const uint64_t fitted = (uint64_t)c->size[0] * c->size[1];
    const enum status st = request_picture_take(ret, x, f, c->resize_to, 0, &ns, &bytes, err);
    if (st != OK)
        return st;
    k->prepare_ns += ns + NS_FITTED * fitted;
    k->prepare_bytes += bytes + 3 * fitted;
    return OK;
}

enum status request_picture_trained(uint8_t **ret, struct request_picture *p, struct job *j, struct error *err)
{
    const struct model_config *c = &j->model->model->config;
    const struct picture_fit trained = {.resize_to = c->resize_to, .height = c->size[0], .width = c->size[1]};
    struct picture picture = {0};
    enum status st = request_picture_decode(&picture, p, j, err);
    if (st == OK)
        st = picture_fit_apply(ret, &trained, &picture, c, err);
    picture_clear(&picture);
    return st;
}

/* ---- pictures in JSON -------------------------------------------------------------------------------------------- */

bool request_images_read(const json_t *value, void *to)
{
    size_t i;
    json_t *image;
    const size_t count = json_array_size(value); /* 0 if it is not a list */
    if (count < 1 || count > CLASSIFY_INPUTS_MAX)
        return false;
    json_array_foreach(value, i, image)
    {
        if (!json_is_string(image) || json_string_length(image) == 0)
            return false;
    }
    *(const json_t **)to = value;
    return true;
}

/* A picture in base64, or "data:image/png;base64,...". Its bytes are put at *room: of the body, whose text is the
 * JSON's by now, and which was longer. */
static enum status add(struct classify_request *r, const json_t *value, uint8_t **room, const char *param,
                       struct error *err)
{
    const char *text = json_string_value(value), *end = text + json_string_length(value);
    char type[MEDIA_TYPE_MAX] = "";
    if (strncasecmp(text, "data:", 5) == 0) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const size_t length = strcspn(text + 5, ";,");
        if (comma == NULL || comma - text < 7 || strncasecmp(comma - 7, ";base64", 7) != 0 || length >= sizeof type)
            return error_set_param(err, ERR_ARGUMENT, param,
                                   "%s is a data URI of an unsupported form; expected data:image/...;base64,...",
                                   param);
        memcpy(type, text + 5, length);
        text = comma + 1;
    }
    if (strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0)
        return error_set_param(err, ERR_ARGUMENT, param,
                               "%s is a URL; expected the picture itself, in base64: nothing is fetched from elsewhere",
                               param);
    size_t size = (size_t)(end - text);
    uint8_t *bytes = *room;
    if (!request_base64_decode(text, size, bytes, &size))
        return error_set_param(err, ERR_ARGUMENT, param,
                               "%s is not base64; expected RFC 4648's, padded, without line breaks", param);
    *room += size;
    return classify_request_add_file(r, bytes, size, type, param, err);
}

enum status request_images_add(struct exchange *x, struct classify_request *r, const json_t *images, struct error *err)
{
    uint8_t *room = x->body.bytes;
    for (size_t i = 0; i < json_array_size(images); i++) {
        char param[PARAM_MAX];
        (void)snprintf(param, sizeof param, "images[%zu]", i);
        const enum status st = add(r, json_array_get(images, i), &room, param, err);
        if (st != OK)
            return st;
    }
    return OK;
}
