/* test_sessions_refused.c - what sessions are refused for: ids and keys that are not theirs, bounds of number,
 * memory and time, models that are not there any more, bodies and methods that are wrong; and that nothing is lost or
 * left by it. Real daemons. */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/model_folder.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/raw_socket.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

#define LM "enwik8-aft-local"
#define ATTENTION "tests/data/golden/lm-attention"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define NOBODYS "0123456789abcdef0123456789abcdef"
#define STATE_TYPE "application/octet-stream"

enum {
    LIMIT_S = 580,
    MUTATED = 100,
    SHOWN_MAX = 12 /* digits of an id in a row */
};

static struct daemon aftd;
static char dir[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static void create(char id[TEST_SESSION_ID_BYTES])
{
    session_create(&aftd, json_pack("{s:s, s:s, s:i}", "model", LM, "prompt", "The ", "seed", 1), id);
}

static void expect_call(const struct session_call *c, long status, const char *code, const char *param,
                        const char *says)
{
    struct reply r;
    session_call(&aftd, c, &r);
    reply_assert_error(&r, status, code, param, says);
    reply_clear(&r);
}

static void expect_json(const char *id, const char *what, const char *body, long status, const char *code,
                        const char *param, const char *says)
{
    const struct session_call c = {
        .method = "POST", .id = id, .what = what, .type = "application/json", .body = body, .size = strlen(body)};
    expect_call(&c, status, code, param, says);
}

static void expect_generate(const char *id, json_t *fields, long status, const char *code, const char *param,
                            const char *says)
{
    struct reply r;
    session_try(&aftd, id, fields, &r);
    reply_assert_error(&r, status, code, param, says);
    reply_clear(&r);
}

/* Every request that names a session, as `key`: it must not be there. */
static void expect_not_there(const char *id, const char *key)
{
    const struct session_call calls[] = {
        {.method = "GET", .id = id, .key = key},
        {.method = "DELETE", .id = id, .key = key},
        {.method = "POST", .id = id, .what = "/fork", .key = key},
        {.method = "POST", .id = id, .what = "/fork", .type = "application/json", .body = "{}", .size = 2, .key = key},
        {.method = "GET", .id = id, .what = "/state", .key = key},
        {.method = "PUT", .id = id, .what = "/state", .type = STATE_TYPE, .body = "x", .size = 1, .key = key},
    };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        expect_call(&calls[i], 404, "not_found", "session", "there is no session");
    char body[128], header[KEYS_TEXT_MAX + 32];
    struct reply r;
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", key != NULL ? key : "");
    (void)snprintf(body, sizeof body, "{\"session\": \"%s\", \"max_tokens\": 1}", id);
    const struct request q = {.path = "/generate",
                              .type = "application/json",
                              .body = body,
                              .size = strlen(body),
                              .headers = key != NULL ? (const char *const[]){header, NULL} : NULL};
    client_call(&aftd, &q, &r);
    reply_assert_error(&r, 404, "not_found", "session", "there is no session");
    reply_clear(&r);
}

/* ---- whose they are --------------------------------------------------------------------------------------------- */

static void what_nobody_has_is_not_there(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], longest[200];
    daemon_start(&aftd, NULL);
    create(id);
    expect_not_there(NOBODYS, NULL);
    id[0] = id[0] == 'a' ? 'b' : 'a';
    expect_not_there(id, NULL);
    id[TEST_SESSION_ID_BYTES - 2] = '\0';
    expect_not_there(id, NULL);
    memset(longest, 'a', sizeof longest);
    longest[90] = '\0';
    expect_not_there(longest, NULL);
    daemon_stop(&aftd);
}

/* Another key gets exactly the answer that it gets for a session that does not exist; a key may not take over a model
 * by a session. */
static void a_session_is_its_keys_alone(void **state)
{
    (void)state;
    char file[PATH_MAX], flag[PATH_MAX + 16], id[TEST_SESSION_ID_BYTES];
    char alice[KEYS_TEXT_MAX], bob[KEYS_TEXT_MAX], carol[KEYS_TEXT_MAX];
    struct reply r;
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    keys_add(file, "alice", NULL, alice);
    keys_add(file, "bob", NULL, bob);
    keys_add(file, "carol", (const char *const[]){"--apis", "openai", NULL}, carol);
    daemon_start(&aftd, (const char *const[]){flag, "--sessions-per-key-max=3", "--session-ttl-s=2000", NULL});

    const struct session_call make = {
        .method = "POST", .type = "application/json", .body = "{\"prompt\": \"The \"}", .size = 18, .key = alice};
    session_call(&aftd, &make, &r);
    assert_int_equal(r.status, 201);
    json_t *session = reply_json(&r);
    (void)snprintf(id, sizeof id, "%s", json_string_value(json_object_get(session, "id")));
    json_decref(session);
    reply_clear(&r);

    expect_not_there(id, bob);
    const struct session_call bare = {.method = "GET", .id = id};
    expect_call(&bare, 401, "invalid_api_key", NULL, NULL);
    const struct session_call foreign = {.method = "GET", .id = id, .key = carol};
    expect_call(&foreign, 403, "not_allowed", NULL, NULL);
    const struct session_call mine = {.method = "GET", .id = id, .key = alice};
    session_call(&aftd, &mine, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);

    /* three of alice's, and bob still has his own */
    const struct session_call three = {.method = "POST",
                                       .id = id,
                                       .what = "/fork",
                                       .type = "application/json",
                                       .body = "{\"n\": 3}",
                                       .size = 8,
                                       .key = alice};
    char seconds[16];
    session_call(&aftd, &three, &r);
    reply_assert_error(&r, 429, "rate_limit_exceeded", NULL, "the key has 1 of at most 3 sessions");
    assert_true(reply_header(&r, "Retry-After", seconds, sizeof seconds));
    assert_in_range(strtoul(seconds, NULL, 10), 1000, 2000); /* when hers ends; not soon, as for a queue */
    reply_clear(&r);
    for (int i = 0; i < 2; i++) {
        session_call(&aftd, &make, &r);
        assert_int_equal(r.status, 201);
        reply_clear(&r);
    }
    expect_call(&make, 429, "rate_limit_exceeded", NULL, "has 3 of at most 3 sessions");
    struct session_call bobs = make;
    bobs.key = bob;
    session_call(&aftd, &bobs, &r);
    assert_int_equal(r.status, 201);
    reply_clear(&r);
    daemon_stop(&aftd);
}

/* A key that loses a model loses what its sessions have of it. */
static void a_session_gives_no_model_that_the_key_may_not_use(void **state)
{
    (void)state;
    char file[PATH_MAX], flag[PATH_MAX + 16], key[KEYS_TEXT_MAX], id[TEST_SESSION_ID_BYTES];
    struct reply r;
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    keys_add(file, "alice", NULL, key);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    const struct session_call make = {
        .method = "POST", .type = "application/json", .body = "{}", .size = 2, .key = key};
    session_call(&aftd, &make, &r);
    assert_int_equal(r.status, 201);
    json_t *session = reply_json(&r);
    (void)snprintf(id, sizeof id, "%s", json_string_value(json_object_get(session, "id")));
    json_decref(session);
    reply_clear(&r);

    keys_set(file, "alice", "models", json_pack("[s]", "cifar10-aft-conv"));
    daemon_signal(&aftd, SIGHUP);
    const struct session_call fetch = {.method = "GET", .id = id, .what = "/state", .key = key};
    for (int64_t end_ms = test_now_ms() + HANG_MS;;) {
        session_call(&aftd, &fetch, &r);
        const long status = r.status;
        reply_clear(&r);
        if (status == 403)
            break;
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(5);
    }
    const struct session_call get = {.method = "GET", .id = id, .key = key};
    session_call(&aftd, &get, &r); /* it is still hers */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    expect_call(&fetch, 403, "not_allowed", "model", LM);
    const struct session_call fork = {.method = "POST", .id = id, .what = "/fork", .key = key};
    expect_call(&fork, 403, "not_allowed", "model", LM);
    const struct session_call put = {
        .method = "PUT", .id = id, .what = "/state", .type = STATE_TYPE, .body = "x", .size = 1, .key = key};
    expect_call(&put, 403, "not_allowed", "model", LM);
    daemon_stop(&aftd);
}

/* ---- bounds ----------------------------------------------------------------------------------------------------- */

static void as_many_as_are_allowed_are_kept(void **state)
{
    (void)state;
    char ids[3][TEST_SESSION_ID_BYTES], seconds[16];
    struct reply r;
    daemon_start(&aftd, (const char *const[]){"--sessions-max=3", "--session-ttl-s=2000", NULL});
    create(ids[0]);
    create(ids[1]);
    expect_json(ids[0], "/fork", "{\"n\": 2}", 503, "sessions_full", NULL,
                "2 of at most 3 sessions, and the request asks for 2");
    assert_int_equal(client_metric(&aftd, "aftd_sessions "), 2);
    create(ids[2]);
    session_call_json(&aftd, "POST", NULL, NULL, json_pack("{s:s}", "prompt", "The "), &r);
    reply_assert_error(&r, 503, "sessions_full", NULL, "3 of at most 3 sessions");
    assert_true(reply_header(&r, "Retry-After", seconds, sizeof seconds));
    assert_in_range(strtoul(seconds, NULL, 10), 1000, 2000); /* when the first ends */
    reply_clear(&r);
    for (size_t i = 0; i < 3; i++) /* none was dropped for it */
        json_decref(session_get(&aftd, ids[i]));
    assert_int_equal(client_metric(&aftd, "aftd_sessions_refused_total "), 3);
    (void)client_await_metric(&aftd, "aftd_requests_rejected_total{reason=\"sessions_full\"}", 2, HANG_MS);
    const struct session_call drop = {.method = "DELETE", .id = ids[1]};
    session_call(&aftd, &drop, &r);
    assert_int_equal(r.status, 204);
    reply_clear(&r);
    create(ids[1]);
    assert_int_equal(client_metric(&aftd, "aftd_sessions "), 3);
    assert_int_equal(client_metric(&aftd, "aftd_sessions_created_total "), 4);
    daemon_stop(&aftd);
}

/* A MiB has room for three times the text model's 320 kB, whatever their texts are. */
static void as_much_as_is_allowed_is_kept(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], forks[2][TEST_SESSION_ID_BYTES];
    daemon_start(&aftd, (const char *const[]){"--sessions-memory-max-mb=1", NULL});
    session_create(&aftd, json_pack("{}"), id);
    assert_in_range((uintmax_t)client_metric(&aftd, "aftd_session_bytes "), 317952, 349525);
    session_fork(&aftd, id, 2, forks);
    expect_json(id, "/fork", "{}", 503, "sessions_full", NULL, "bytes each");
    expect_json(NULL, NULL, "{\"prompt\": \"The \"}", 503, "sessions_full", NULL, "of at most 1048576 bytes");
    daemon_stop(&aftd);
}

static void none_are_kept_where_none_may_be(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--sessions-max=0", NULL});
    expect_json(NULL, NULL, "{}", 503, "sessions_full", NULL, "0 of at most 0 sessions");
    daemon_stop(&aftd);
}

/* Nobody asks: the memory is given back all the same. One that is used stays, and one in use, however long. */
static void a_session_that_nobody_uses_expires(void **state)
{
    (void)state;
    static struct raw_input in;
    char forgotten[TEST_SESSION_ID_BYTES], busy[TEST_SESSION_ID_BYTES], body[256];
    const long ttl_s = 2;
    (void)snprintf(body, sizeof body, "--session-ttl-s=%ld", ttl_s);
    daemon_start(&aftd, (const char *const[]){body, NULL});
    create(busy);
    (void)snprintf(body, sizeof body,
                   "{\"session\": \"%s\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", \"stream\": true, "
                   "\"timeout_ms\": 600000}",
                   busy);
    char *text = raw_post("/generate", body, "");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    create(forgotten);
    (void)client_await_metric(&aftd, "aftd_sessions ", 1, HANG_MS);
    assert_int_equal(client_metric(&aftd, "aftd_sessions_expired_total "), 1);
    expect_not_there(forgotten, NULL);
    json_t *session = session_get(&aftd, busy);
    assert_true(json_is_true(json_object_get(session, "busy")));
    assert_int_equal(json_integer_value(json_object_get(session, "expires_in_s")), ttl_s);
    json_decref(session);
    raw_close(fd);
    (void)client_await_metric(&aftd, "aftd_sessions ", 0, HANG_MS);
    assert_int_equal(client_metric(&aftd, "aftd_session_bytes "), 0);
    assert_int_equal(client_metric(&aftd, "aftd_sessions_expired_total "), 2);
    daemon_stop(&aftd);
}

/* ---- models ----------------------------------------------------------------------------------------------------- */

static void a_session_does_not_outlive_its_model(void **state)
{
    char id[TEST_SESSION_ID_BYTES];
    struct reply blob;
    (void)administration_set_up(state);
    model_folder_put(models_folder, "text", "tests/data/golden/lm-local-8");
    administration_start(NULL, NULL);
    session_create(&administered, json_pack("{s:s, s:s}", "model", "text", "prompt", "The "), id);
    session_state(&administered, id, &blob);
    const struct daemon own = aftd;
    aftd = administered;
    admin_act_well("text", "unload");
    expect_generate(id, json_object(), 404, "not_found", "model", NULL);
    admin_act_well("text", "load");
    session_put(&aftd, id, blob.body, blob.size); /* it is the same model again */
    model_folder_put(models_folder, "text", "tests/data/golden/lm-local-no-global");
    admin_act_well("text", "reload");
    expect_generate(id, json_object(), 409, "conflict", "session", "of another model");
    const struct session_call put = {
        .method = "PUT", .id = id, .what = "/state", .type = STATE_TYPE, .body = blob.body, .size = blob.size};
    expect_call(&put, 409, "conflict", "session", "begin a new session");
    json_decref(session_get(&aftd, id)); /* it can still be looked at, and its state saved */
    reply_clear(&blob);
    session_state(&aftd, id, &blob);
    reply_clear(&blob);
    aftd = own;
    (void)administration_tear_down(state);
}

static void a_session_is_of_one_model(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], flag[PATH_MAX + 16];
    model_folder_put(dir, "one", ATTENTION);
    model_folder_put(dir, "two", "tests/data/golden/lm-local-8");
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", dir);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    expect_json(NULL, NULL, "{\"model\": \"three\"}", 404, "not_found", "model", "three");
    session_create(&aftd, json_pack("{s:s}", "model", "one"), id);
    expect_generate(id, json_pack("{s:s}", "model", "two"), 400, "invalid_value", "model", "expected \"one\"");
    expect_generate(id, json_pack("{s:s}", "model", "three"), 404, "not_found", "model", "three");
    struct reply r; /* and is free again after each of these */
    session_try(&aftd, id, json_pack("{s:s, s:i}", "model", "one", "max_tokens", 1), &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    daemon_stop(&aftd);
}

/* ---- wrong requests --------------------------------------------------------------------------------------------- */

static void what_is_no_request_is_refused(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES];
    daemon_start(&aftd, (const char *const[]){"--body-bytes-max=1000000", NULL});
    create(id);
    expect_json(NULL, NULL, "", 400, "invalid_value", NULL, NULL);
    expect_json(NULL, NULL, "{\"max_tokens\": 1}", 400, "invalid_value", "max_tokens", "no field");
    expect_json(NULL, NULL, "{\"temperature\": -1}", 400, "invalid_value", "temperature", "from 0 to 100");
    expect_json(NULL, NULL, "{\"prompt\": \"a\", \"state\": \"AAAA\"}", 400, "invalid_value", "prompt", "one of them");
    expect_json(NULL, NULL, "{\"state\": \"AAAA\"}", 400, "invalid_value", "state", "expected at least");
    expect_json(NULL, NULL, "{\"state\": \"A\"}", 400, "invalid_value", "state", "base64");
    expect_json(id, "/fork", "{\"n\": 0}", 400, "invalid_value", "n", "from 1 to 64");
    expect_json(id, "/fork", "{\"n\": 65}", 400, "invalid_value", "n", "from 1 to 64");
    expect_json(id, "/fork", "{\"m\": 1}", 400, "invalid_value", "m", "expected: n");
    expect_json(id, "/fork", "[]", 400, "invalid_value", NULL, NULL);
    expect_generate(id, json_pack("{s:s}", "state", "AAAA"), 400, "invalid_value", "session", "one of them");
    expect_generate(id, json_pack("{s:i}", "n", 2), 400, "invalid_value", "n", "fork it for more");
    expect_generate(id, json_pack("{s:b}", "echo", 1), 400, "invalid_value", "echo", "session");
    expect_generate(NULL, json_pack("{s:i}", "session", 1), 400, "invalid_value", "session", "a string");
    expect_generate(NULL, json_pack("{s:s}", "session", ""), 400, "invalid_value", "session", "empty");
    const struct {
        struct session_call call;
        long status;
        const char *code, *param;
    } cases[] = {
        {{.method = "PUT", .type = STATE_TYPE, .body = "x", .size = 1}, 405, "method_not_allowed", NULL},
        {{.method = "PATCH", .id = id, .type = STATE_TYPE, .body = "x", .size = 1}, 405, "method_not_allowed", NULL},
        {{.method = "PUT", .id = id, .type = STATE_TYPE, .body = "x", .size = 1},
         415,
         "unsupported_media",
         "Content-Type"},
        {{.method = "PUT", .id = id, .type = "application/json", .body = "{}", .size = 2}, 409, "conflict", "session"},
        {{.method = "PUT", .id = "a%20b", .type = "application/json", .body = "{}", .size = 2},
         400,
         "invalid_value",
         "session"},
        {{.method = "PUT", .id = "own", .type = "application/json", .body = "{\"n\": 2}", .size = 8},
         400,
         "invalid_value",
         "n"},
        {{.method = "GET", .id = id, .what = "/fork"}, 405, "method_not_allowed", NULL},
        {{.method = "DELETE", .id = id, .what = "/state"}, 405, "method_not_allowed", NULL},
        {{.method = "GET", .id = id, .what = "/nothing"}, 404, "not_found", NULL},
        {{.method = "POST"}, 411, "length_required", NULL},
        {{.method = "POST", .type = "text/plain", .body = "{}", .size = 2}, 415, "unsupported_media", "Content-Type"},
        {{.method = "POST", .id = id, .what = "/fork", .type = "text/plain", .body = "{}", .size = 2},
         415,
         "unsupported_media",
         "Content-Type"},
        {{.method = "PUT", .id = id, .what = "/state", .type = "application/json", .body = "{}", .size = 2},
         415,
         "unsupported_media",
         "Content-Type"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect_call(&cases[i].call, cases[i].status, cases[i].code, cases[i].param, NULL);
    json_decref(session_get(&aftd, id));
    daemon_stop(&aftd);
}

static void what_is_no_state_is_refused(void **state)
{
    (void)state;
    struct random rng = {47};
    char id[TEST_SESSION_ID_BYTES];
    struct reply before, now;
    daemon_start(&aftd, (const char *const[]){"--body-bytes-max=1000000", NULL});
    create(id);
    session_state(&aftd, id, &before);
    struct session_call put = {.method = "PUT", .id = id, .what = "/state", .type = STATE_TYPE, .body = before.body};
    for (int i = 0; i < test_work(MUTATED); i++) {
        const size_t at = random_below(&rng, (uint32_t)before.size);
        put.size = i % 4 == 0 ? random_below(&rng, (uint32_t)before.size) : before.size;
        before.body[at] ^= 1;
        put.body = before.body;
        if (put.size > 0)
            expect_call(&put, 400, "invalid_value", "state", NULL);
        before.body[at] ^= 1;
    }
    put.size = 0;
    put.body = "";
    expect_call(&put, 400, "invalid_value", "state", "0 bytes");
    char *large = calloc(1, 1000001);
    assert_non_null(large);
    put.body = large;
    put.size = 1000001;
    expect_call(&put, 413, "body_too_large", NULL, NULL);
    free(large);
    session_state(&aftd, id, &now);
    assert_int_equal(now.size, before.size);
    assert_memory_equal(now.body, before.body, now.size);
    reply_clear(&now);
    session_put(&aftd, id, before.body, before.size);
    reply_clear(&before);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_nobody_has_is_not_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_is_its_keys_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_gives_no_model_that_the_key_may_not_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_many_as_are_allowed_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_much_as_is_allowed_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(none_are_kept_where_none_may_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_that_nobody_uses_expires, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_does_not_outlive_its_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_session_is_of_one_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_request_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_state_is_refused, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_sessions_refused", tests, NULL, NULL);
}
