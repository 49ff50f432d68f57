/* request_query.c - see request_query.h. */
#include "server/request/request_query.h"

#include <ctype.h>

#include "config/json.h"

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

static bool take_parameter(void *arg, const char *name, const char *value, size_t value_bytes)
{
    struct query *q = arg;
    const struct field *f = fields_find(q->known, name);
    q->status = f != NULL ? request_query_add(q->object, f, value, value_bytes, q->err)
                          : fields_refuse(q->known, "parameter", name, q->err);
    return q->status == OK;
}

enum status request_query_parse(json_t **ret, const struct field_list *known, struct request *x, struct error *err)
{
    struct query q = {.known = known, .object = known->count > 0 ? json_object() : NULL, .err = err};
    if (known->count > 0 && q.object == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    request_each_parameter(x, take_parameter, &q);
    if (q.status == OK)
        *ret = q.object;
    else
        json_decref(q.object);
    return q.status;
}
