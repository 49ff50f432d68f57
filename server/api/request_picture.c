/* request_picture.c - see request_picture.h. */
#include "server/api/request_picture.h"

#include "config/json.h"
#include "server/api/reply.h"
#include "server/api/request_type.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"

void request_picture_check_type(struct exchange *x, const char *or_else)
{
    char type[MEDIA_TYPE_MAX];
    struct error err;
    if (request_type_is_unsaid(x) || request_type_is(x, "application/octet-stream") ||
        (request_type_read(x, type) && picture_reads_type(type)))
        return;
    (void)error_set_param(&err, ERR_MEDIA_TYPE, "Content-Type",
                          "the body is declared as \"%s\"; expected image/jpeg, image/png, image/webp or "
                          "application/octet-stream%s",
                          json_quote(http_header(x, "Content-Type")).text, or_else);
    reply_send_error(x, &err);
}

void request_picture_type(struct exchange *x)
{
    request_picture_check_type(x, "");
}

enum status request_picture_decode(struct picture *ret, struct exchange *x, struct error *err)
{
    char type[MEDIA_TYPE_MAX];
    enum status st = OK;
    if (x->body.size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected " PICTURE_KINDS);
    if (request_type_read(x, type) && picture_reads_type(type))
        st = picture_check_declared(type, "Content-Type", x->body.bytes, x->body.size, err);
    if (st == OK)
        st = picture_decode(ret, x->body.bytes, x->body.size, err);
    if (st == OK)
        http_drop_body(x);
    return st;
}

enum status request_picture_trained(uint8_t **ret, uint32_t *width, uint32_t *height, struct exchange *x,
                                    const struct model_config *c, struct error *err)
{
    const struct picture_fit trained = {.resize_to = c->resize_to, .height = c->size[0], .width = c->size[1]};
    struct picture picture = {0};
    enum status st = request_picture_decode(&picture, x, err);
    if (st != OK)
        return st;
    st = picture_fit_apply(ret, &trained, &picture, c, err);
    if (st == OK) {
        *width = picture.width;
        *height = picture.height;
    }
    picture_clear(&picture);
    return st;
}
