/* request_images.c - see request_images.h. */
#include "server/api/request_images.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/api/request_type.h"
#include "server/request/request_bytes.h"

enum { PARAM_MAX = 32 };

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
