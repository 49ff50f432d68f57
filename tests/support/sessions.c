/* sessions.c - see sessions.h. */
#include "tests/support/sessions.h"

#include <nettle/base64.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void session_call(const struct daemon *d, const struct session_call *c, struct reply *ret)
{
    char path[512], header[256];
    const char *const headers[] = {header, NULL};
    (void)snprintf(path, sizeof path, "/v1/sessions%s%s%s", c->id != NULL ? "/" : "", c->id != NULL ? c->id : "",
                   c->what != NULL ? c->what : "");
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", c->key != NULL ? c->key : "");
    const struct request r = {.method = c->method,
                              .path = path,
                              .type = c->type,
                              .body = c->body,
                              .size = c->size,
                              .headers = c->key != NULL ? headers : NULL};
    client_call(d, &r, ret);
}

void session_call_json(const struct daemon *d, const char *method, const char *id, const char *what, json_t *body,
                       struct reply *ret)
{
    char *text = json_dumps(body, 0);
    json_decref(body);
    assert_non_null(text);
    const struct session_call c = {
        .method = method, .id = id, .what = what, .type = "application/json", .body = text, .size = strlen(text)};
    session_call(d, &c, ret);
    free(text);
}

static void expect(const struct reply *r, long status)
{
    if (r->status != status)
        fail_msg("%ld, expected %ld: %s", r->status, status, r->body);
}

static void copy_id(char id[TEST_SESSION_ID_BYTES], const json_t *session)
{
    const char *text = json_string_value(json_object_get(session, "id"));
    assert_non_null(text);
    assert_int_equal(strlen(text), TEST_SESSION_ID_BYTES - 1);
    assert_int_equal(strspn(text, "0123456789abcdef"), TEST_SESSION_ID_BYTES - 1);
    memcpy(id, text, TEST_SESSION_ID_BYTES);
}

void session_create(const struct daemon *d, json_t *fields, char id[TEST_SESSION_ID_BYTES])
{
    struct reply r;
    char location[128], path[128];
    session_call_json(d, "POST", NULL, NULL, fields, &r);
    expect(&r, 201);
    json_t *session = reply_json(&r);
    copy_id(id, session);
    (void)snprintf(path, sizeof path, "/v1/sessions/%s", id);
    assert_true(reply_header(&r, "Location", location, sizeof location));
    assert_string_equal(location, path);
    json_decref(session);
    reply_clear(&r);
}

void session_fork(const struct daemon *d, const char *id, size_t count, char ids[][TEST_SESSION_ID_BYTES])
{
    struct reply r;
    session_call_json(d, "POST", id, "/fork", json_pack("{s:i}", "n", (int)count), &r);
    expect(&r, 201);
    json_t *answer = reply_json(&r);
    const json_t *list = json_object_get(answer, "sessions");
    assert_int_equal(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        copy_id(ids[i], json_array_get(list, i));
    json_decref(answer);
    reply_clear(&r);
}

json_t *session_get(const struct daemon *d, const char *id)
{
    struct reply r;
    const struct session_call c = {.method = "GET", .id = id};
    session_call(d, &c, &r);
    expect(&r, 200);
    json_t *session = reply_json(&r);
    reply_clear(&r);
    return session;
}

void session_state(const struct daemon *d, const char *id, struct reply *ret)
{
    const struct session_call c = {.method = "GET", .id = id, .what = "/state"};
    char type[64];
    session_call(d, &c, ret);
    expect(ret, 200);
    assert_true(reply_header(ret, "Content-Type", type, sizeof type));
    assert_string_equal(type, "application/octet-stream");
}

void session_put(const struct daemon *d, const char *id, const void *state, size_t size)
{
    struct reply r;
    const struct session_call c = {
        .method = "PUT", .id = id, .what = "/state", .type = "application/octet-stream", .body = state, .size = size};
    session_call(d, &c, &r);
    expect(&r, 200);
    reply_clear(&r);
}

void session_try(const struct daemon *d, const char *id, json_t *fields, struct reply *ret)
{
    if (id != NULL)
        assert_int_equal(json_object_set_new(fields, "session", json_string(id)), 0);
    char *body = json_dumps(fields, 0);
    json_decref(fields);
    assert_non_null(body);
    const struct request r = {.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(d, &r, ret);
    free(body);
}

json_t *session_generate(const struct daemon *d, const char *id, json_t *fields, uint8_t *out, size_t *size)
{
    struct reply r;
    struct base64_decode_ctx base64;
    size_t n;
    assert_int_equal(json_object_set_new(fields, "bytes_base64", json_true()), 0);
    do
        session_try(d, id, json_incref(fields), &r);
    while (reply_is_late(&r, fields));
    json_decref(fields);
    expect(&r, 200);
    json_t *answer = reply_json(&r);
    const char *text = json_string_value(json_object_get(answer, "bytes_base64"));
    assert_non_null(text);
    base64_decode_init(&base64);
    assert_int_equal(base64_decode_update(&base64, &n, out + *size, strlen(text), text), 1);
    *size += n;
    reply_clear(&r);
    return answer;
}
