/* request_head.c - see request_head.h. */
#include "server/request/request_head.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "server/fields/request_json.h"
#include "server/http/transport.h"
#include "server/media/picture.h"
#include "server/request/route.h"
#include "server/request/service.h"

struct query {
    const struct field_list *known;
    json_t *object;
    enum status status;
    struct error *err;
};

enum status request_query_add(json_t *object, const struct field *f, const char *value, size_t value_bytes,
                              struct error *err)
{
    json_t *json = NULL;
    bool lacked_memory = false;
    if (json_object_get(object, f->name) != NULL)
        return error_set_param(err, ERR_ARGUMENT, f->name, "\"%s\" is given twice", f->name);
    if (value_bytes > 0 && f->kind != FIELD_TEXT && f->kind != FIELD_NAME && !isspace((unsigned char)value[0]) &&
        !isspace((unsigned char)value[value_bytes - 1])) /* JSON allows space around values, a query does not */
        json = json_scan(value, value_bytes, JSON_DECODE_ANY, NULL, &lacked_memory);
    if (json_is_null(json)) /* is no value here, where what is not given is left out */
        json = NULL;
    if (json == NULL && !lacked_memory) /* a text, or of the wrong kind, which fields_read reports */
        json = json_make_text(value != NULL ? value : "", value != NULL ? value_bytes : 0, &lacked_memory);
    if (json == NULL && !lacked_memory)
        return error_set_param(err, ERR_ARGUMENT, f->name, "\"%s\" is not UTF-8", f->name);
    if (json == NULL || json_object_set_new(object, f->name, json) != 0)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    return OK;
}

/* A parameter, decoded; its value may be NULL. */
static enum MHD_Result take_parameter(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_bytes,
                                      const char *value, size_t value_bytes)
{
    struct query *q = cls;
    (void)kind;
    if (strlen(name) != name_bytes) /* or "top_k%00..." would be top_k */
        name = "(a name with a NUL)";
    const struct field *f = fields_find(q->known, name);
    q->status = f != NULL ? request_query_add(q->object, f, value, value_bytes, q->err)
                          : fields_refuse(q->known, "parameter", ":", name, q->err);
    return q->status == OK ? MHD_YES : MHD_NO;
}

enum status request_query_parse(json_t **ret, const struct field_list *known, struct request *x, struct error *err)
{
    struct query q = {.known = known, .object = known->count > 0 ? json_object() : NULL, .err = err};
    if (known->count > 0 && q.object == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    (void)MHD_get_connection_values_n(x->mhd, MHD_GET_ARGUMENT_KIND, take_parameter, &q);
    if (q.status == OK)
        *ret = q.object;
    else
        json_decref(q.object);
    return q.status;
}

enum status request_read_fields(struct request *x, const struct field_list *list, void *to, struct error *err)
{
    if (x->body.size == 0 && x->route->body != BODY)
        return OK;
    const enum status st = request_json_parse(&x->object, x->body.bytes, x->body.size, err);
    return st == OK ? fields_read(list, x->object, x->service->settings, to, err) : st;
}

/* ---- the body --------------------------------------------------------------------------------------------------- */

/* Whatever its parameters. */
static bool is_declared_as(const struct request *x, const char *type)
{
    const char *given = request_header(x, "Content-Type");
    const size_t size = strlen(type);
    return given != NULL && strncasecmp(given, type, size) == 0 &&
           (given[size] == '\0' || strchr("; \t", given[size]) != NULL);
}

bool request_type_read(const struct request *x, char out[MEDIA_TYPE_MAX])
{
    const char *given = request_header(x, "Content-Type");
    const size_t size = given != NULL ? strcspn(given, "; \t") : 0;
    if (size == 0 || size >= MEDIA_TYPE_MAX)
        return false;
    memcpy(out, given, size);
    out[size] = '\0';
    return true;
}

enum status request_type_check_encoding(const struct request *x, struct error *err)
{
    const char *encoding = request_header(x, "Content-Encoding");
    if (!x->has_body || encoding == NULL || strcasecmp(encoding, "identity") == 0)
        return OK;
    return error_set_param(err, ERR_MEDIA_TYPE, "Content-Encoding",
                           "the body is declared as \"%s\"; expected no encoding: compressed bodies are not read",
                           json_quote(encoding).text);
}

enum status request_type_check(struct request *x, unsigned types, struct error *err)
{
    static const struct {
        unsigned of; /* which of `types` it stands for */
        const char *type;
    } known[] = {
        {TYPE_PICTURE, "image/jpeg"},       {TYPE_PICTURE, "image/png"},
        {TYPE_PICTURE, "image/webp"},       {TYPE_PICTURE | TYPE_BYTES, "application/octet-stream"},
        {TYPE_FORM, "multipart/form-data"}, {TYPE_JSON, "application/json"},
    };
    char expected[ERROR_MESSAGE_MAX / 2], type[MEDIA_TYPE_MAX];
    size_t used = 0;
    if (types == TYPE_ANY || request_header(x, "Content-Type") == NULL ||
        is_declared_as(x, "application/x-www-form-urlencoded"))
        return OK;
    if ((types & TYPE_PICTURE) != 0 && request_type_read(x, type) && picture_reads_type(type)) {
        x->type = TYPE_PICTURE;
        return OK;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if ((known[i].of & types) == 0)
            continue;
        if (is_declared_as(x, known[i].type)) {
            x->type = known[i].of & types;
            return OK;
        }
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", used > 0 ? ", " : "", known[i].type);
    }
    return error_set_param(err, ERR_MEDIA_TYPE, "Content-Type", "the body is declared as \"%s\"; expected %s%s",
                           json_quote(request_header(x, "Content-Type")).text,
                           strchr(expected, ',') != NULL ? "one of " : "", expected);
}

bool request_type_is_json(const struct request *x)
{
    size_t at = 0;
    if (x->type != 0)
        return x->type == TYPE_JSON;
    while (at < x->body.size && isspace(x->body.bytes[at]))
        at++;
    return at < x->body.size && x->body.bytes[at] == '{';
}

enum status request_type_check_size(uint64_t bytes, size_t most, struct error *err)
{
    if (bytes <= most)
        return OK;
    return error_set_param(err, ERR_TOO_LARGE, "body", "the body has %llu bytes; expected at most %zu",
                           (unsigned long long)bytes, most);
}
