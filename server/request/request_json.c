/* request_json.c - see request_json.h. Any thread; no state. */
#include "server/request/request_json.h"

#include <stdbool.h>
#include <string.h>

#include "config/json.h"
#include "config/limits.h"
#include "server/media/picture.h"

/* The parser recurses, and needs a hundred times the memory of a value's text: limit both before it begins. */
static const char *find_excess(const uint8_t *text, size_t size, unsigned values_max)
{
    unsigned depth = 0, values = 0;
    bool quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] != '\0' && strchr("[{,:", text[i]) != NULL && ++values > values_max)
            return "has too many values";
        else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > JSON_DEPTH_MAX)
            return "is nested too deeply";
        else if (!quoted && (text[i] == ']' || text[i] == '}') && depth > 0)
            depth--;
    }
    return NULL;
}

static enum status parse(json_t **ret, const uint8_t *body, size_t size, unsigned values_max, struct error *err)
{
    json_error_t fault;
    bool lacked_memory;
    if (size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected a JSON object");
    const char *picture = picture_media_type(body, size);
    if (picture != NULL)
        return error_set(
            err, ERR_ARGUMENT,
            "the body is a picture (%s); expected a JSON object. /classify takes pictures, declared as what "
            "they are or as nothing",
            picture);
    const char *excess = find_excess(body, size, values_max);
    if (excess != NULL)
        return error_set(err, ERR_ARGUMENT,
                         "the body's JSON %s; expected at most %d levels and %u of the characters , : [ {", excess,
                         JSON_DEPTH_MAX, values_max);
    json_t *object =
        json_scan((const char *)body, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault, &lacked_memory);
    if (lacked_memory)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    if (object == NULL)
        return error_set(err, ERR_ARGUMENT, "the body is not valid JSON: line %d, column %d: %s", fault.line,
                         fault.column, json_quote(fault.text).text);
    if (!json_is_object(object)) {
        const enum status st =
            error_set(err, ERR_ARGUMENT, "the body is %s; expected a JSON object", json_describe(object).text);
        json_decref(object);
        return st;
    }
    *ret = object;
    return OK;
}

enum status request_json_parse(json_t **ret, const uint8_t *body, size_t size, struct error *err)
{
    return parse(ret, body, size, JSON_VALUES_MAX, err);
}

enum status request_json_parse_bytes(json_t **ret, const uint8_t *body, size_t size, struct error *err)
{
    return parse(ret, body, size, JSON_BYTES_VALUES_MAX, err);
}
