/* test_inference_models.c - what Triton's extensions of the Open Inference Protocol say of models and do with them:
 * their configuration, what has been counted, the index, loading and unloading. That Triton's own client understands
 * it is in tests/clients. The real daemon and small models. */
#include <jansson.h>
#include <setjmp.h>
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
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, PIXELS = 2 * 32 * 32 * 3 };

static void start(void)
{
    model_folder_put(models_folder, "one", GOLDEN "lm-local-8");
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    administration_start("--batch-wait-us=1234", NULL);
}

/* `body` NULL: GET. On the public listener. */
static json_t *ask(const char *path, const char *body)
{
    struct reply r;
    client_call(&administered,
                &(struct request){.path = path,
                                  .type = body != NULL ? "application/json" : NULL,
                                  .body = body,
                                  .size = body != NULL ? strlen(body) : 0},
                &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", path, r.status, r.body);
    json_t *answer = reply_json(&r);
    reply_clear(&r);
    return answer;
}

/* Single quotes stand for double ones. */
static void assert_json(json_t *got, const char *want)
{
    char text[1000];
    (void)snprintf(text, sizeof text, "%s", want);
    for (char *at = text; *at != '\0'; at++)
        *at = *at == '\'' ? '"' : *at;
    json_t *expected = json_loads(text, 0, NULL);
    assert_non_null(expected);
    if (!json_equal(expected, got)) {
        char *is = json_dumps(got, 0);
        fail_msg("%s, expected %s", is, text);
    }
    json_decref(expected);
    json_decref(got);
}

static void assert_refused(const struct reply *r, long status, const char *says)
{
    json_t *answer = reply_json(r);
    const char *message = json_string_value(json_object_get(answer, "error"));
    if (r->status != status || message == NULL || strstr(message, says) == NULL)
        fail_msg("expected %ld and \"%s\", got %ld %s", status, says, r->status, r->body);
    json_decref(answer);
}

/* ---- what a model is -------------------------------------------------------------------------------------------- */

static void a_model_tells_its_configuration(void **state)
{
    (void)state;
    start();
    json_t *said = ask("/v2/models/picture/config", NULL);
    json_t *versioned = ask("/v2/models/picture/versions/1/config", NULL);
    assert_true(json_equal(said, versioned));
    json_decref(versioned);
    assert_json(json_incref(json_object_get(said, "input")),
                "[{'name': 'image', 'data_type': 'TYPE_STRING', 'dims': []},"
                "{'name': 'pixels', 'data_type': 'TYPE_FP32', 'dims': [32, 32, 3]}]");
    assert_json(json_incref(json_object_get(said, "dynamic_batching")), "{'max_queue_delay_microseconds': 1234}");
    assert_int_equal(json_integer_value(json_object_get(said, "max_batch_size")), 64);
    json_decref(said);
    said = ask("/v2/models/one/config", NULL);
    assert_json(json_incref(json_object_get(said, "output")),
                "[{'name': 'text', 'data_type': 'TYPE_STRING', 'dims': []},"
                "{'name': 'finish_reason', 'data_type': 'TYPE_STRING', 'dims': []}]");
    assert_null(json_object_get(said, "dynamic_batching"));
    json_decref(said);
    struct reply r;
    client_get(&administered, "/v2/models/none/config", &r);
    assert_refused(&r, 404, "none");
    reply_clear(&r);
    client_get(&administered, "/v2/models/one/versions/7/config", &r);
    assert_refused(&r, 404, "there is no version \"7\"");
    reply_clear(&r);
    daemon_stop(&administered);
}

/* ---- what was counted ------------------------------------------------------------------------------------------- */

static json_int_t figure(const json_t *stats, const char *what, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(json_object_get(stats, "inference_stats"), what), key));
}

/* The figures are those of /metrics, of all APIs together, and what is only looked at is no inference. */
static void what_was_counted_is_told(void **state)
{
    static const char pixels[] =
        "{\"inputs\": [{\"name\": \"pixels\", \"datatype\": \"UINT8\", \"shape\": [2, 32, 32, 3], "
        "\"parameters\": {\"binary_data_size\": 6144}}]}";
    char body[sizeof pixels + PIXELS] = "", length[64];
    const char *const headers[] = {length, NULL};
    struct reply r;
    (void)state;
    start();
    memcpy(body, pixels, sizeof pixels - 1);
    (void)snprintf(length, sizeof length, "Inference-Header-Content-Length: %zu", sizeof pixels - 1);
    const struct request q = {.path = "/v2/models/picture/infer",
                              .type = "application/octet-stream",
                              .body = body,
                              .size = sizeof pixels - 1 + PIXELS,
                              .headers = headers};
    for (int i = 0; i < 3; i++) {
        client_call(&administered, &q, &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
        free(model_text("one"));
    }
    client_call(&administered, &(struct request){.path = "/v2/models/picture/infer", .body = "{}", .size = 2}, &r);
    assert_refused(&r, 400, "\"inputs\" is missing");
    reply_clear(&r);

    /* A request is counted once its answer is sent. */
    client_await_metric(&administered, "aftd_requests_total{endpoint=\"/v2/models/{}/infer\",model=\"picture\"", 4,
                        HANG_MS);
    client_await_metric(&administered, "aftd_requests_total{endpoint=\"/generate\",model=\"one\"", 3, HANG_MS);

    json_t *all = ask("/v2/models/stats", NULL), *list = json_object_get(all, "model_stats");
    assert_int_equal(json_array_size(list), 2);
    json_t *one = json_array_get(list, 0), *picture = json_array_get(list, 1);
    assert_string_equal(json_string_value(json_object_get(one, "name")), "one");
    assert_string_equal(json_string_value(json_object_get(picture, "name")), "picture");
    assert_int_equal(figure(one, "success", "count"), 3);
    assert_int_equal(figure(one, "fail", "count"), 0);
    assert_int_equal(figure(one, "queue", "count"), 3);
    assert_null(json_object_get(one, "inference_count"));
    assert_int_equal(figure(picture, "success", "count"), 3);
    assert_int_equal(figure(picture, "fail", "count"), 1);
    assert_int_equal(json_integer_value(json_object_get(picture, "inference_count")), 6);
    assert_true(client_metric(&administered, "aftd_batch_size_count{model=\"picture\"}") ==
                (double)json_integer_value(json_object_get(picture, "execution_count")));
    for (size_t i = 0; i < 2; i++) {
        json_t *stats = json_array_get(list, i);
        assert_int_equal(figure(stats, "compute_infer", "count"),
                         json_integer_value(json_object_get(stats, "execution_count")));
        assert_true(figure(stats, "compute_infer", "ns") > 0 && figure(stats, "queue", "ns") > 0);
        assert_null(json_object_get(stats, "last_inference"));
    }
    json_t *alone = ask("/v2/models/one/stats", NULL), *versioned = ask("/v2/models/one/versions/1/stats", NULL);
    assert_true(json_equal(json_array_get(json_object_get(alone, "model_stats"), 0), one));
    assert_true(json_equal(alone, versioned));
    json_decref(alone);
    json_decref(versioned);
    json_decref(all);
    client_get(&administered, "/v2/models/none/stats", &r);
    assert_refused(&r, 404, "none");
    reply_clear(&r);
    daemon_stop(&administered);
}

/* ---- the repository --------------------------------------------------------------------------------------------- */

#define ONE "{'name': 'one', 'version': '1', 'state': 'READY', 'reason': ''}"
#define PICTURE "{'name': 'picture', 'version': '1', 'state': 'READY', 'reason': ''}"
#define GONE "{'name': 'one', 'version': '1', 'state': 'UNAVAILABLE', 'reason': 'unloaded by an administrator'}"

static void the_index_says_which_models_are_ready(void **state)
{
    struct reply r;
    (void)state;
    start();
    assert_json(ask("/v2/repository/index", NULL), "[" ONE "," PICTURE "]");
    assert_json(ask("/v2/repository/index", ""), "[" ONE "," PICTURE "]");
    admin_act_well("one", "unload");
    assert_json(ask("/v2/repository/index", "{}"), "[" GONE "," PICTURE "]");
    assert_json(ask("/v2/repository/index", "{\"ready\": false}"), "[" GONE "," PICTURE "]");
    assert_json(ask("/v2/repository/index", "{\"ready\": true}"), "[" PICTURE "]");
    client_call(&administered, &(struct request){.path = "/v2/repository/index", .body = "{\"redy\": 1}", .size = 11},
                &r);
    assert_refused(&r, 400, "did you mean \"ready\"?");
    reply_clear(&r);
    model_folder_put(models_folder, "broken", GOLDEN "lm-local-8");
    model_folder_break(models_folder, "broken", GOLDEN "lm-local-8", MODEL_TRUNCATED);
    (void)admin_reload();
    json_t *index = ask("/v2/repository/index", NULL); /* why is not everybody's business */
    assert_json(json_incref(json_array_get(index, 0)),
                "{'name': 'broken', 'version': '1', 'state': 'UNAVAILABLE', 'reason': 'its files are not accepted'}");
    json_decref(index);
    daemon_stop(&administered);
}

static void an_administrator_loads_and_unloads_as_triton_does(void **state)
{
    static const struct {
        const char *path, *body, *says;
        long status;
    } wrong[] = {
        {"/v2/repository/models/none/load", "{}", "there is no model", 404},
        {"/v2/repository/models/one/unload", "{}", "is not loaded", 404},
        {"/v2/repository/models/one/load", "[]", "expected a JSON object", 400},
        {"/v2/repository/models/one/load", "{\"parameter\": {}}", "did you mean \"parameters\"?", 400},
        {"/v2/repository/models/one/load", "{\"parameters\": {\"config\": \"{}\"}}",
         "there is no field \"config\" here", 400},
        {"/v2/repository/models/one/load", "{\"parameters\": {\"file:1/model\": \"\"}}", "file:1/model", 400},
        {"/v2/repository/models/picture/unload", "{\"parameters\": {\"unload_dependents\": 1}}", "true or false", 400},
        {"/v2/repository/models/"
         "a12345678901234567890123456789012345678901234567890123456789012345/load",
         "", "64 bytes", 404},
        {"/v2/repository/models/one", "{}", "there is nothing at", 404},
    };
    struct reply r;
    (void)state;
    start();
    char *text = model_text("one");
    admin_post("/v2/repository/models/one/unload", "{\"parameters\": {\"unload_dependents\": false}}", &r);
    assert_int_equal(r.status, 200);
    assert_json(reply_json(&r), "{'name': 'one', 'unload': true}");
    reply_clear(&r);
    assert_string_equal(admin_state_of("one"), "unloaded");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        admin_post(wrong[i].path, wrong[i].body, &r);
        assert_refused(&r, wrong[i].status, wrong[i].says);
        reply_clear(&r);
    }
    assert_string_equal(admin_state_of("one"), "unloaded");
    admin_post("/v2/repository/models/one/load", "", &r);
    assert_int_equal(r.status, 200);
    assert_json(reply_json(&r), "{'name': 'one', 'load': true}");
    reply_clear(&r);
    model_assert_writes("one", text);
    free(text);
    /* Not for everybody, and not for pages in browsers. */
    client_call(&administered, &(struct request){.path = "/v2/repository/models/one/unload", .body = "{}", .size = 2},
                &r);
    assert_refused(&r, 404, "there is nothing at");
    reply_clear(&r);
    static const char *const page[] = {"Origin: http://localhost", NULL};
    client_call(&administered,
                &(struct request){.path = "/v2/repository/models/one/unload",
                                  .body = "{}",
                                  .size = 2,
                                  .headers = page,
                                  .port = administered.admin_port},
                &r);
    assert_refused(&r, 403, "may not use the admin API");
    reply_clear(&r);
    assert_string_equal(admin_state_of("one"), "loaded");
    daemon_stop(&administered);
}

/* Of others a key learns nothing. */
static void a_key_sees_the_models_that_it_may_use(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 32];
    static const char *const lists[] = {"/v2/models/stats", "/v2/repository/index"};
    const char *const headers[] = {header, NULL};
    struct reply r;
    (void)state;
    temp_path(file, models_folder, ".keys.json");
    keys_add(file, "one", (const char *const[]){"--models", "one", NULL}, key);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    model_folder_put(models_folder, "one", GOLDEN "lm-local-8");
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    administration_start(flag, NULL);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        client_get(&administered, lists[i], &r);
        assert_refused(&r, 401, "a key is needed");
        reply_clear(&r);
        client_call(&administered, &(struct request){.path = lists[i], .headers = headers}, &r);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.body, "\"one\""));
        assert_null(strstr(r.body, "picture"));
        reply_clear(&r);
    }
    client_call(&administered, &(struct request){.path = "/v2/models/picture/config", .headers = headers}, &r);
    assert_refused(&r, 403, "may not use the model");
    reply_clear(&r);
    client_call(&administered,
                &(struct request){.path = "/v2/repository/models/one/unload",
                                  .body = "{}",
                                  .size = 2,
                                  .headers = headers,
                                  .port = administered.admin_port},
                &r);
    assert_refused(&r, 403, "may not use the API \"admin\"");
    reply_clear(&r);
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, administration_tear_down)
        TEST(a_model_tells_its_configuration),
        TEST(what_was_counted_is_told),
        TEST(the_index_says_which_models_are_ready),
        TEST(a_key_sees_the_models_that_it_may_use),
        TEST(an_administrator_loads_and_unloads_as_triton_does),
#undef TEST
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("models of the Open Inference Protocol", tests, NULL, NULL);
}
