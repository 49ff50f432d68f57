/* request_json.c - see request_json.h. Any thread; no state. */
#include "server/fields/request_json.h"

#include <stdbool.h>
#include <stdio.h>
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

/* The parser knows only numbers that fit 64 bits. fault->position: just behind the one that does not. */
static enum status refuse_number(const uint8_t *body, const json_error_t *fault, struct error *err)
{
    char name[JSON_QUOTE_MAX] = "", number[JSON_QUOTE_MAX];
    size_t end = (size_t)fault->position, begin = end;
    while (begin > 0 && body[begin - 1] != '\0' && strchr("+-.eE0123456789", body[begin - 1]) != NULL)
        begin--;
    (void)snprintf(number, sizeof number, "%.*s", (int)(end - begin), (const char *)body + begin);
    for (end = begin; end > 0 && strchr(" \t\r\n:", body[end - 1]) != NULL; end--) {
    }
    if (end < begin && end > 0 && body[end - 1] == '"') {
        for (begin = --end; begin > 0 && body[begin - 1] != '"'; begin--) {
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)(end - begin), (const char *)body + begin);
    }
    return error_set_param(err, ERR_ARGUMENT, json_quote(name).text,
                           "%s%s%s is %s; expected a number that fits 64 bits: whole ones from -2^63 to 2^63 - 1",
                           name[0] != '\0' ? "\"" : "a number", json_quote(name).text, name[0] != '\0' ? "\"" : "",
                           json_quote(number).text);
}

static enum status parse(json_t **ret, const uint8_t *body, size_t size, unsigned values_max, struct error *err)
{
    json_error_t fault;
    bool lacked_memory = false;
    if (size == 0)
        return error_set(err, ERR_ARGUMENT, "the body is empty; expected a JSON object");
    const char *excess = find_excess(body, size, values_max);
    json_t *object = NULL;
    if (excess == NULL)
        object = json_scan((const char *)body, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault, &lacked_memory);
    if (lacked_memory)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    const char *picture = object == NULL ? picture_media_type(body, size) : NULL;
    if (picture != NULL)
        return error_set(
            err, ERR_ARGUMENT,
            "the body is a picture (%s); expected a JSON object. /classify takes pictures, declared as what "
            "they are or as nothing",
            picture);
    if (excess != NULL)
        return error_set(err, ERR_ARGUMENT,
                         "the body's JSON %s; expected at most %d levels and %u of the characters , : [ {", excess,
                         JSON_DEPTH_MAX, values_max);
    if (object == NULL && json_error_code(&fault) == json_error_numeric_overflow)
        return refuse_number(body, &fault, err);
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
