/* openapi.c - see openapi.h. What routes, fields, settings and statuses know comes from their tables; the texts,
 * examples and shapes of answers come from openapi.json, which is part of the program. In it
 *
 *     paths."/a/{name}".METHOD   describes a route; {name} names a {} of its path, and becomes a parameter
 *     x-fields: LIST             in a body's media type: a list of route_table.h, to be inserted
 *     x-errors: [STATUS]         in an operation: what it may answer besides 400, 403, 414, and 411 and 413 with bodies
 *     top level x-fields: {LIST: {FIELD: SCHEMA}}   is added to what a field's kind and range say; a schema with a
 *                                                   type, an anyOf or a $ref replaces that
 *     top level x-errors: {STATUS: TEXT}            says what an error's status means
 *
 * x-undocumented: true marks a route that openapi.json lacks, an unknown list, a body that names another list than its
 * route, and an undescribed field whose kind says nothing; tests/server/api/test_openapi.c looks for it. */
#include "server/api/openapi.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "config/limits.h"
#include "config/settings.h"
#include "config/status.h"
#include "server/api/route_table.h"
#include "server/api/routes.h"
#include "server/fields/fields.h"
#include "server/request/reply.h"
#include "server/request/route.h"

/* The bytes of openapi.json, from openapi_text to openapi_end. */
__asm__(".section .rodata\n"
        ".global openapi_text, openapi_end\n"
        ".hidden openapi_text, openapi_end\n"
        "openapi_text: .incbin \"server/api/openapi.json\"\n"
        "openapi_end: .byte 0\n"
        ".previous\n");
extern const char openapi_text[], openapi_end[];

enum { NAME_MAX_BYTES = 64 };

/* Every error that the tables know. */
static const enum status statuses[] = {
#define X(name, http, type, code) name,
    STATUSES(X)
#undef X
};

/* A document in the making. What lacks memory, its json_print finds out. */
struct maker {
    const struct settings *settings;
    json_t *doc, *fields, *errors; /* the last two: x-fields and x-errors, taken out of the document */
};

/* The object or array at `key`, made if there is none. Borrowed. */
static json_t *under(json_t *object, const char *key, json_t *(*make)(void))
{
    if (json_object_get(object, key) == NULL)
        json_put(object, key, make());
    return json_object_get(object, key);
}

/* Remove the value at `key` and return it; NULL if there is none. */
static json_t *take(json_t *object, const char *key)
{
    json_t *value = json_incref(json_object_get(object, key));
    (void)json_object_del(object, key);
    return value;
}

/* ---- fields ---------------------------------------------------------------------------------------------------- */

/* The schema that kind and range give. */
static json_t *schema_of_kind(struct maker *m, const struct field *f)
{
    const double max = fields_max(f, m->settings);
    switch (f->kind) {
    case FIELD_NAME:
    case FIELD_TEXT: /* lengths count characters, which have a byte or more */
        return json_pack("{s:s*, s:s, s:i, s:I}", "pattern", f->kind == FIELD_NAME ? "^[^\\u0000]*$" : NULL, "type",
                         "string", "minLength", f->min > 0, "maxLength", (json_int_t)max);
    case FIELD_INTEGER:
        return json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)f->min, "maximum",
                         (json_int_t)max);
    case FIELD_NUMBER:
        return json_pack("{s:s, s:f, s:f}", "type", "number", f->exclusive ? "exclusiveMinimum" : "minimum", f->min,
                         "maximum", max);
    case FIELD_SWITCH:
        return json_pack("{s:s}", "type", "boolean");
    case FIELD_WORD: /* openapi.json should have said it */
    case FIELD_LIST:
    case FIELD_OBJECT:
    case FIELD_OTHER:
        break;
    }
    return json_pack("{s:b}", "x-undocumented", 1);
}

/* note: what openapi.json says about the field, or NULL. */
static json_t *schema_of_field(struct maker *m, const struct field *f, const json_t *note)
{
    const bool replaces = json_object_get(note, "type") != NULL || json_object_get(note, "anyOf") != NULL ||
                          json_object_get(note, "$ref") != NULL;
    char expected[ERROR_MESSAGE_MAX / 2], text[ERROR_MESSAGE_MAX];
    const char *about = json_string_value(json_object_get(note, "description")), *key;
    json_t *value, *schema = replaces ? json_object() : schema_of_kind(m, f);
    json_object_foreach((json_t *)note, key, value) json_put(schema, key, json_incref(value));
    fields_describe(f, m->settings, expected, sizeof expected);
    (void)snprintf(text, sizeof text, "%s%s%s", about != NULL ? about : "", about != NULL ? ": " : "", expected);
    json_put(schema, "description", json_string(text));
    return schema;
}

/* A copy of a list, which is openapi.json's for other schemas too, with one more. */
static json_t *with(const json_t *list, json_t *more)
{
    size_t i;
    json_t *copy = json_array(), *one;
    json_array_foreach((json_t *)list, i, one) json_append(copy, json_incref(one));
    json_append(copy, more);
    return copy;
}

/* Null is the same as leaving the field out. */
static void allow_null(json_t *schema)
{
    const json_t *given = json_object_get(schema, "anyOf"), *words = json_object_get(schema, "enum");
    json_t *type = json_object_get(schema, "type");
    if (json_is_string(type))
        json_put(schema, "type", json_pack("[O, s]", type, "null"));
    if (words != NULL)
        json_put(schema, "enum", with(words, json_null()));
    if (given != NULL) {
        json_put(schema, "anyOf", with(given, json_pack("{s:s}", "type", "null")));
    } else if (json_object_get(schema, "$ref") != NULL) {
        json_put(schema, "anyOf", json_pack("[{s:o}, {s:s}]", "$ref", take(schema, "$ref"), "type", "null"));
    }
}

static json_t *schema_of_list(struct maker *m, const char *name)
{
    const struct field_list *list = routes_fields(name);
    const json_t *notes = json_object_get(m->fields, name);
    json_t *schema = json_object(), *properties = json_object();
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        const struct field *f = &list->table[i];
        json_t *schema_of_one = schema_of_field(m, f, json_object_get(notes, f->name));
        if (f->required)
            json_append(under(schema, "required", json_array), json_string(f->name));
        else
            allow_null(schema_of_one);
        json_put(properties, f->name, schema_of_one);
    }
    if (list == NULL)
        json_put(schema, "x-undocumented", json_true());
    json_put(schema, "type", json_string("object"));
    json_put(schema, "additionalProperties", json_pack("{s:s}", "type", "null"));
    json_put(schema, "properties", properties);
    return schema;
}

/* A parameter of the query for each field. */
static void add_query(struct maker *m, json_t *operation, const struct route *r)
{
    const json_t *notes = json_object_get(m->fields, r->query_name);
    for (size_t i = 0; i < r->query->count; i++) {
        const struct field *f = &r->query->table[i];
        json_t *schema = schema_of_field(m, f, json_object_get(notes, f->name)), *about = take(schema, "description");
        json_append(
            under(operation, "parameters", json_array),
            json_pack("{s:s, s:s, s:o, s:o}", "name", f->name, "in", "query", "description", about, "schema", schema));
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

static void expand_body(struct maker *m, json_t *operation, const struct route *r)
{
    const char *type;
    json_t *body = json_object_get(operation, "requestBody"), *media;
    const struct field_list *described = &no_fields;
    if (body != NULL)
        json_put(body, "required", json_boolean(r->body == BODY));
    json_object_foreach(json_object_get(body, "content"), type, media)
    {
        json_t *name = take(media, "x-fields");
        if (name != NULL) {
            json_put(media, "schema", schema_of_list(m, json_string_value(name)));
            described = routes_fields(json_string_value(name));
        }
        json_decref(name);
    }
    if (described != r->fields)
        json_put(operation, "x-undocumented", json_true());
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* Which of the schemes are accepted; {} stands for no key. */
static void add_security(struct maker *m, json_t *operation, const struct route *r)
{
    json_t *ways = json_array();
    if (route_needs_key(r, m->settings)) {
        json_append(ways, json_pack("{s:[]}", "bearer"));
        json_append(ways, json_pack("{s:[]}", "header"));
        if (strcmp(m->settings->keys_file, "off") == 0)
            json_append(ways, json_object());
    }
    json_put(operation, "security", ways);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

/* Below /v2 errors have the Open Inference Protocol's form. */
static bool is_below_v2(const char *path)
{
    return strncmp(path, "/v2", strlen("/v2")) == 0;
}

static const char *error_schema(bool below_v2)
{
    return below_v2 ? "InferenceError" : "Error";
}

static json_t *reference(const char *what, const char *name)
{
    return json_pack("{s:s++}", "$ref", "#/components/", what, name);
}

/* components.responses: what openapi.json says of each status, with the codes of the table. */
static void add_error_response(struct maker *m, const char *status, const char *text, bool below_v2)
{
    const char *shape = error_schema(below_v2);
    json_t *examples = json_object();
    char name[NAME_MAX_BYTES];
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        const enum status st = statuses[i];
        if (status_http(st) != (unsigned)strtoul(status, NULL, 10))
            continue;
        json_t *value = below_v2 ? json_pack("{s:s}", "error", text)
                                 : json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", text, "type",
                                             status_type(st), "param", "code", status_code(st));
        json_put(examples, status_code(st), json_pack("{s:o}", "value", value));
    }
    json_t *content =
        json_pack("{s:{s:o, s:o}}", "application/json", "schema", reference("schemas/", shape), "examples", examples);
    (void)snprintf(name, sizeof name, "%s%s", shape, status);
    json_put(json_object_get(json_object_get(m->doc, "components"), "responses"), name,
             json_pack("{s:s, s:o}", "description", text, "content", content));
}

/* The headers of all answers, and those of some statuses. */
static void add_headers(const char *status, json_t *response)
{
    json_t *headers = under(response, "headers", json_object);
    json_put(headers, "X-Request-Id", reference("headers/", "RequestId"));
    if (strcmp(status, "503") == 0 || strcmp(status, "429") == 0)
        json_put(headers, "Retry-After", reference("headers/", "RetryAfter"));
}

/* Every error that openapi.json knows, in both shapes. */
static void add_components(struct maker *m)
{
    const char *key;
    json_t *value;
    json_object_foreach(m->errors, key, value)
    {
        add_error_response(m, key, json_string_value(value), false);
        add_error_response(m, key, json_string_value(value), true);
    }
    json_object_foreach(json_object_get(json_object_get(m->doc, "components"), "responses"), key, value)
    {
        const char *digits = key + strcspn(key, "0123456789");
        add_headers(digits, value);
    }
}

static void add_error(json_t *responses, const struct route *r, unsigned status)
{
    char key[16], name[NAME_MAX_BYTES];
    (void)snprintf(key, sizeof key, "%u", status);
    (void)snprintf(name, sizeof name, "%s%u", error_schema(is_below_v2(r->path)), status);
    if (json_object_get(responses, key) == NULL)
        json_put(responses, key, reference("responses/", name));
}

static void expand_responses(const struct maker *m, json_t *operation, const struct route *r)
{
    json_t *responses = under(operation, "responses", json_object), *errors = take(operation, "x-errors"), *value;
    const char *key;
    size_t i;
    json_object_foreach(responses, key, value)
    {
        if (json_object_get(value, "$ref") == NULL)
            add_headers(key, value);
    }
    add_error(responses, r, status_http(ERR_ARGUMENT));
    add_error(responses, r, status_http(ERR_FORBIDDEN)); /* of request_host.c */
    add_error(responses, r, status_http(ERR_URL));
    if (route_needs_key(r, m->settings)) {
        add_error(responses, r, status_http(ERR_KEY));
        add_error(responses, r, status_http(ERR_RATE));
    }
    if (r->body != NO_BODY) {
        add_error(responses, r, status_http(ERR_TOO_LARGE));
        add_error(responses, r, status_http(ERR_MEDIA_TYPE)); /* or a Content-Encoding */
    }
    if (r->body == BODY)
        add_error(responses, r, status_http(ERR_LENGTH));
    json_array_foreach(errors, i, value) add_error(responses, r, (unsigned)json_integer_value(value));
    json_decref(errors);
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

/* Is `named`, a path of openapi.json, that of the route `path`, in which {} have no names? */
static bool is_path(const char *named, const char *path)
{
    while (*path != '\0' && *named != '\0') {
        if (*named != *path)
            return false;
        if (*path == '{')
            named = strchr(named, '}'); /* openapi.json's, which has one */
        path += *path == '{' ? 2 : 1;
        named = named != NULL ? named + 1 : "";
    }
    return *path == '\0' && *named == '\0';
}

/* The path's item; *name is openapi.json's name of the path. If it is not there it is made, with plain {}. */
static json_t *find_item(struct maker *m, const char *path, const char **name)
{
    json_t *paths = under(m->doc, "paths", json_object), *item;
    json_object_foreach(paths, *name, item)
    {
        if (is_path(*name, path))
            return item;
    }
    *name = path;
    return under(paths, path, json_object);
}

/* A parameter for each name in the path. */
static void add_segments(json_t *operation, const char *path)
{
    const char *open = path;
    while ((open = strchr(open, '{')) != NULL) {
        const size_t size = strcspn(++open, "}");
        json_t *parameters = under(operation, "parameters", json_array);
        json_append(parameters, json_pack("{s:s#, s:s, s:b, s:{s:s, s:i, s:i, s:s}}", "name", open, (int)size, "in",
                                          "path", "required", 1, "schema", "type", "string", "minLength", 1,
                                          "maxLength", HTTP_SEGMENT_MAX - 1, "pattern", "^[^/]+$"));
    }
}

/* "post_v1_models" */
static json_t *operation_id(const char *method, const char *path)
{
    char id[HTTP_SEGMENT_MAX];
    (void)snprintf(id, sizeof id, "%s%s", method, path);
    for (char *at = id; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at))
            *at = '_';
    return json_string(id);
}

/* A method in lower case, as openapi.json has it. */
static void lower_method(char method[16], const struct route *r)
{
    size_t i = 0;
    for (; r->method[i] != '\0' && i + 1 < 16; i++)
        method[i] = (char)tolower((unsigned char)r->method[i]);
    method[i] = '\0';
}

/* Describe what this listener serves, and drop what another does. */
static void make_operation(struct maker *m, const struct route *r, bool admin)
{
    static const char *const tags[] = {
        [API_NATIVE] = "native",       [API_OPEN] = "health", [API_OPENAI] = "openai",
        [API_INFERENCE] = "inference", [API_ADMIN] = "admin",
    };
    char method[16];
    const char *path;
    json_t *item = find_item(m, r->path, &path);
    lower_method(method, r);
    if (!route_is_served(r, admin)) {
        (void)json_object_del(item, method);
        if (json_object_size(item) == 0)
            (void)json_object_del(json_object_get(m->doc, "paths"), path);
        return;
    }
    if (json_object_get(item, method) == NULL)
        json_put(item, method,
                 json_pack("{s:b, s:s, s:{s:{s:s}}}", "x-undocumented", 1, "summary", r->path, "responses", "200",
                           "description", "done"));
    json_t *operation = json_object_get(item, method);
    json_put(operation, "operationId", operation_id(method, path));
    json_put(operation, "tags", json_pack("[s]", tags[r->api]));
    add_security(m, operation, r);
    add_segments(operation, path);
    add_query(m, operation, r);
    expand_body(m, operation, r);
    expand_responses(m, operation, r);
}

/* ---- the document ---------------------------------------------------------------------------------------------- */

json_t *openapi_describe(const struct settings *s, bool admin)
{
    struct maker m = {.settings = s};
    bool lacked_memory;
    m.doc = json_scan(openapi_text, (size_t)(openapi_end - openapi_text), JSON_REJECT_DUPLICATES, NULL, &lacked_memory);
    if (m.doc == NULL)
        return NULL;
    m.fields = take(m.doc, "x-fields");
    m.errors = take(m.doc, "x-errors");
    json_put(json_object_get(m.doc, "info"), "version", json_string(AFTD_VERSION));
    add_components(&m);
    for (size_t i = 0; i < api_routes.count; i++)
        make_operation(&m, &api_routes.list[i], admin);
    json_decref(m.fields);
    json_decref(m.errors);
    return m.doc;
}

char *openapi_print(const struct settings *s, bool admin)
{
    json_t *whole = openapi_describe(s, admin);
    char *text = json_print(whole, REPLY_JSON_FLAGS);
    json_decref(whole);
    return text;
}
