/* request_picture.c - see request_picture.h. */
#include "server/operation/request_picture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/fields/request_bytes.h"
#include "server/media/picture.h"
#include "server/request/request.h"
#include "server/request/request_head.h"

enum { PARAM_MAX = 32 };

enum status request_picture_add(struct picture_inputs *r, const struct multipart_part *file, struct error *err)
{
    if (file->size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected " PICTURE_KINDS);
    return picture_inputs_add_file(r, file->bytes, file->size, file->type, NULL, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static enum status take_field(const struct multipart_part *part, const struct field_list *list, json_t *object,
                              struct error *err)
{
    const struct field *f = fields_find(list, part->name);
    if (f != NULL)
        return request_query_add(object, f, (const char *)part->bytes, part->size, err);
    return fields_refuse(list, "part", " image or file with a picture, or one of", part->name, err);
}

enum status request_picture_find(struct multipart_part *files, size_t max, bool with_empty, size_t *count,
                                 struct request *x, const struct field_list *list, json_t *object, struct error *err)
{
    struct multipart m;
    struct multipart_part part = {.bytes = x->body.bytes, .size = x->body.size};
    bool end = false;
    *count = 0;
    if (x->type != TYPE_FORM) {
        if (x->type != 0)
            (void)request_type_read(x, part.type);
        if (part.size > 0)
            files[(*count)++] = part;
        return OK;
    }
    enum status st = multipart_begin(&m, request_header(x, "Content-Type"), x->body.bytes, x->body.size, err);
    while (st == OK && (st = multipart_next(&m, &part, &end, err)) == OK && !end) {
        if (strcmp(part.name, "image") != 0 && strcmp(part.name, "file") != 0)
            st = take_field(&part, list, object, err);
        else if (*count < max && (with_empty || part.size > 0))
            files[(*count)++] = part;
    }
    return st;
}

enum status request_picture_find_one(struct multipart_part *ret, struct request *x, const struct field_list *list,
                                     struct error *err)
{
    struct multipart_part files[2] = {{.size = 0}};
    size_t count;
    const enum status st = request_picture_find(files, 2, false, &count, x, list, x->query, err);
    if (st == OK && count > 1)
        return error_set_param(err, ERR_ARGUMENT, files[1].name, "the form has two pictures; expected one");
    *ret = files[0];
    return st;
}

/* ---- pictures in JSON ------------------------------------------------------------------------------------------- */

bool request_pictures_read(const json_t *value, void *to)
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
static enum status add(struct picture_inputs *r, const json_t *value, uint8_t **room, const char *param,
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
    return picture_inputs_add_file(r, bytes, size, type, param, err);
}

enum status request_pictures_add(struct picture_inputs *r, const json_t *images, struct error *err)
{
    uint8_t *room = r->request->body.bytes;
    for (size_t i = 0; i < json_array_size(images); i++) {
        char param[PARAM_MAX];
        (void)snprintf(param, sizeof param, "images[%zu]", i);
        const enum status st = add(r, json_array_get(images, i), &room, param, err);
        if (st != OK)
            return st;
    }
    return OK;
}
