/* request_picture.c - see request_picture.h. */
#include "server/request_picture.h"

#include "server/api.h"
#include "server/picture.h"
#include "server/picture_fit.h"
#include "weights/json.h"

void request_picture_check_type(struct exchange *x, const char *or_else)
{
    struct error err;
    if (api_has_no_type(x) || api_has_type(x, "image/jpeg") || api_has_type(x, "application/octet-stream"))
        return;
    (void)error_set_param(&err, ERR_MEDIA_TYPE, "Content-Type",
                          "the body is declared as \"%s\"; expected image/jpeg or application/octet-stream%s",
                          json_quote(http_header(x, "Content-Type")).text, or_else);
    api_refuse(x, &err);
}

enum status request_picture_decode(struct picture *ret, struct exchange *x, struct error *err)
{
    if (x->body.size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected a JPEG picture");
    const enum status st = picture_decode(ret, x->body.bytes, x->body.size, err);
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
