/* test_http_admin.c - models that change while they are served, by the admin API and by SIGHUP: what the answers say,
 * what requests see of it, that files which are not accepted change nothing. The real daemon and small models. */
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

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 60, WAIT_MS = 10000, LOOK_MS = 10 };

static struct daemon aftd;
static char folder[PATH_MAX], dir_flag[PATH_MAX + 16];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(folder);
    (void)snprintf(dir_flag, sizeof dir_flag, "--models-dir=%s", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(folder);
    return 0;
}

static void start(const char *flag, const char *other)
{
    daemon_start(&aftd, (const char *const[]){dir_flag, "--admin-address=127.0.0.1", "--admin-port=0",
                                              "--streams-max=8", "--picture-tokens-max=64", flag, other, NULL});
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static void post_admin(const char *path, const char *body, struct reply *ret)
{
    const struct request r = {.method = "POST",
                              .path = path,
                              .type = "application/json",
                              .body = body,
                              .size = strlen(body),
                              .port = aftd.admin_port};
    client_call(&aftd, &r, ret);
}

/* {"action": ACTION} to a model; the status must be `status`. */
static void act(const char *model, const char *action, long status, struct reply *ret)
{
    char path[128], body[128];
    (void)snprintf(path, sizeof path, "/admin/models/%s", model);
    (void)snprintf(body, sizeof body, "{\"action\": \"%s\"}", action);
    post_admin(path, body, ret);
    if (ret->status != status)
        fail_msg("%s %s: %ld, expected %ld: %s", action, model, ret->status, status, ret->body);
}

static void act_well(const char *model, const char *action)
{
    struct reply r;
    act(model, action, 200, &r);
    reply_clear(&r);
}

static void act_badly(const char *model, const char *action, long status, const char *code, const char *says)
{
    struct reply r;
    act(model, action, status, &r);
    reply_assert_error(&r, status, code, NULL, says);
    reply_clear(&r);
}

static json_t *get_admin(const char *path)
{
    struct reply r;
    client_call(&aftd, &(struct request){.path = path, .port = aftd.admin_port}, &r);
    assert_int_equal(r.status, 200);
    json_t *value = reply_json(&r);
    reply_clear(&r);
    return value;
}

/* "loaded", or what it is; "" if it is not known. Static memory. */
static const char *state_of(const char *model)
{
    static char state[32];
    json_t *all = get_admin("/admin/models"), *m;
    size_t i;
    state[0] = '\0';
    json_array_foreach(json_object_get(all, "models"), i, m)
    {
        if (strcmp(json_string_value(json_object_get(m, "model")), model) == 0)
            (void)snprintf(state, sizeof state, "%s", json_string_value(json_object_get(m, "state")));
    }
    json_decref(all);
    return state;
}

/* What models_scan reports: "loaded: a; failed: b". Static memory. */
static const char *reload(void)
{
    static const char *const lists[] = {"loaded", "reloaded", "unloaded", "unchanged", "failed"};
    static char text[512];
    struct reply r;
    size_t used = 0, i;
    json_t *one;
    post_admin("/admin/config/reload", "", &r);
    assert_int_equal(r.status, 200);
    json_t *report = reply_json(&r), *models = json_object_get(report, "models");
    text[0] = '\0';
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        json_array_foreach(json_object_get(models, lists[k]), i, one)
        {
            const char *name = json_string_value(json_is_object(one) ? json_object_get(one, "model") : one);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used > 0 ? ", " : "", lists[k], name);
        }
    json_decref(report);
    reply_clear(&r);
    return text;
}

static void ask_text(const char *model, struct reply *ret)
{
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"model\": \"%s\", \"prompt\": \"Abc\", \"max_tokens\": 40, \"temperature\": 0}", model);
    const struct request r = {.path = "/generate", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(&aftd, &r, ret);
}

static void assert_text_error(const char *model, long status, const char *code, const char *says)
{
    struct reply r;
    ask_text(model, &r);
    reply_assert_error(&r, status, code, "model", says);
    reply_clear(&r);
}

/* The text that the model writes; free it. */
static char *text_of(const char *model)
{
    struct reply r;
    ask_text(model, &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", model, r.status, r.body);
    json_t *answer = reply_json(&r);
    char *text = strdup(json_string_value(json_object_get(answer, "text")));
    json_decref(answer);
    reply_clear(&r);
    assert_non_null(text);
    return text;
}

static void assert_writes(const char *model, const char *expected)
{
    char *text = text_of(model);
    assert_string_equal(text, expected);
    free(text);
}

/* ---- one model ------------------------------------------------------------------------------------------------- */

static void a_model_is_loaded_unloaded_and_replaced(void **state)
{
    (void)state;
    model_folder_put(folder, "one", TEXT_A);
    model_folder_put(folder, "picture", PICTURE);
    start(NULL, NULL);
    char *a = text_of("one");
    act_well("one", "unload");
    assert_string_equal(state_of("one"), "unloaded");
    assert_text_error("one", 404, "not_found", "loaded are: picture");
    assert_true(client_metric(&aftd, "aftd_model_info{model=\"one\"") == 0);
    assert_true(client_metric(&aftd, "aftd_model_info{model=\"picture\"") == 1);
    act_badly("one", "unload", 404, "not_found", "is not loaded");
    act_badly("one", "reload", 404, "not_found", "is not loaded");
    act_well("one", "load");
    assert_true(client_metric(&aftd, "aftd_model_info{model=\"one\"") == 1);
    assert_writes("one", a);
    model_folder_put(folder, "one", TEXT_B);
    assert_writes("one", a);
    act_well("one", "reload");
    char *b = text_of("one");
    assert_string_not_equal(a, b);
    model_folder_put(folder, "two", TEXT_A);
    act_well("two", "load");
    assert_writes("two", a);
    assert_writes("one", b);
    free(a);
    free(b);
    daemon_stop(&aftd);
}

static void what_cannot_be_done_is_said(void **state)
{
    static const struct {
        const char *path, *body, *type, *code, *param, *says;
        long status;
    } cases[] = {
        {"/admin/models/one", "", NULL, "invalid_value", NULL, NULL, 400},
        {"/admin/models/one", "{}", NULL, "invalid_value", "action", "load, unload or reload", 400},
        {"/admin/models/one", "{\"action\": 1}", NULL, "invalid_value", "action", "load, unload or reload", 400},
        {"/admin/models/one", "{\"action\": \"burn\"}", NULL, "invalid_value", "action", "\"burn\"", 400},
        {"/admin/models/one", "{\"action\": \"load\", \"now\": 1}", NULL, "invalid_value", "now", NULL, 400},
        {"/admin/models/one", "{\"action\": \"load\"}", "text/plain", "unsupported_media", "Content-Type", NULL, 415},
        {"/admin/models/none", "{\"action\": \"load\"}", NULL, "not_found", NULL, "no folder of a model", 404},
        {"/admin/models/..", "{\"action\": \"load\"}", NULL, "not_found", NULL, NULL, 404},
        {"/admin/models/.hidden", "{\"action\": \"load\"}", NULL, "not_found", NULL, NULL, 404},
        {"/admin/models/"
         "a12345678901234567890123456789012345678901234567890123456789012345",
         "{\"action\": \"load\"}", NULL, "not_found", NULL, "64 bytes", 404},
    };
    (void)state;
    model_folder_put(folder, "one", TEXT_A);
    model_folder_put(folder, ".hidden", TEXT_A);
    start(NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        const struct request q = {.method = "POST",
                                  .path = cases[i].path,
                                  .type = cases[i].type != NULL ? cases[i].type : "application/json",
                                  .body = cases[i].body,
                                  .size = strlen(cases[i].body),
                                  .port = aftd.admin_port};
        client_call(&aftd, &q, &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    struct reply r; /* nothing of it is public */
    client_get(&aftd, "/admin/models", &r);
    reply_assert_error(&r, 404, "not_found", NULL, NULL);
    reply_clear(&r);
    daemon_stop(&aftd);
}

static void files_that_are_not_accepted_change_nothing(void **state)
{
    static const char *const says[MODEL_FAULTS] = {
        [MODEL_TRUNCATED] = "model.safetensors",
        [MODEL_WRONG_SHAPE] = "expected",
        [MODEL_BAD_JSON] = "config.json",
        [MODEL_NO_TENSOR] = "norm.weight",
    };
    (void)state;
    model_folder_put(folder, "one", TEXT_A);
    start(NULL, NULL);
    char *a = text_of("one");
    for (int fault = 0; fault < MODEL_FAULTS; fault++) {
        model_folder_break(folder, "one", TEXT_A, (enum model_fault)fault);
        act_badly("one", "reload", 422, "file_refused", says[fault]);
        assert_string_equal(reload(), "failed one");
        assert_string_equal(state_of("one"), "loaded");
        assert_writes("one", a);
        model_folder_put(folder, "one", TEXT_A);
    }
    model_folder_put(folder, "new", TEXT_A);
    model_folder_break(folder, "new", TEXT_A, MODEL_TRUNCATED);
    act_badly("new", "load", 422, "file_refused", "truncated");
    assert_string_equal(reload(), "reloaded one, failed new");
    assert_string_equal(state_of("new"), "failed");
    assert_text_error("new", 503, "unavailable", "truncated");
    model_folder_put(folder, "new", TEXT_A);
    assert_string_equal(reload(), "loaded new, unchanged one");
    assert_writes("new", a);
    free(a);
    daemon_stop(&aftd);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static void models_dir_is_followed(void **state)
{
    (void)state;
    model_folder_put(folder, "a", TEXT_A);
    model_folder_put(folder, "b", TEXT_B);
    start(NULL, NULL);
    char *a = text_of("a"), *b = text_of("b");
    assert_string_equal(reload(), "unchanged a, unchanged b");
    model_folder_put(folder, "b", TEXT_A);
    model_folder_put(folder, "c", TEXT_B);
    model_folder_drop(folder, "a");
    assert_string_equal(reload(), "loaded c, reloaded b, unloaded a");
    assert_writes("b", a);
    assert_writes("c", b);
    assert_text_error("a", 404, "not_found", "loaded are: b, c");
    assert_string_equal(state_of("a"), "");

    act_well("c", "unload"); /* what an administrator took away does not come back by itself */
    assert_string_equal(reload(), "unchanged b, unchanged c");
    assert_string_equal(state_of("c"), "unloaded");

    model_folder_drop(folder, "b");
    model_folder_drop(folder, "c");
    struct reply r;
    post_admin("/admin/config/reload", "", &r);
    reply_assert_error(&r, 422, "file_refused", NULL, "no subfolder has a config.json");
    reply_clear(&r);
    assert_writes("b", a);
    free(a);
    free(b);
    daemon_stop(&aftd);
}

static void await_log(const char *text)
{
    for (const int64_t end = test_now_ms() + test_ms(WAIT_MS);;) {
        char *log = daemon_log(&aftd);
        const bool found = strstr(log, text) != NULL;
        free(log);
        if (found)
            return;
        if (test_now_ms() > end)
            fail_msg("the log does not say: %s", text);
        test_sleep_ms(LOOK_MS);
    }
}

static void a_hangup_follows_models_dir_and_settings(void **state)
{
    char config[PATH_MAX], flag[PATH_MAX + 16];
    static const char before[] = "{\"log_level\": \"info\", \"queue_jobs_max\": 7}";
    static const char after[] = "{\"log_level\": \"debug\", \"queue_jobs_max\": 8}";
    (void)state;
    temp_path(config, folder, "aftd.json");
    (void)snprintf(flag, sizeof flag, "--config=%s", config);
    temp_write(config, before, strlen(before));
    model_folder_put(folder, "a", TEXT_A);
    start(flag, NULL);
    model_folder_put(folder, "b", TEXT_A);
    temp_write(config, after, strlen(after));
    daemon_signal(&aftd, SIGHUP);
    await_log("{\"changed\":[\"log_level\"],\"restart\":[\"queue_jobs_max\"],");
    await_log("\"models\":{\"loaded\":[\"b\"],");
    json_t *all = get_admin("/admin/config");
    const char *level, *source, *queue;
    json_int_t jobs;
    assert_int_equal(json_unpack(all, "{s:{s:s, s:s}, s:{s:I, s:s}}", "log_level", "value", &level, "source", &source,
                                 "queue_jobs_max", "value", &jobs, "source", &queue),
                     0);
    assert_string_equal(level, "debug");
    assert_int_equal(jobs, 7); /* what is in force */
    assert_non_null(strstr(source, config));
    json_decref(all);

    temp_write(config, after, 20);
    model_folder_put(folder, "c", TEXT_A);
    daemon_signal(&aftd, SIGHUP);
    await_log("reload: nothing has changed: ");
    assert_string_equal(state_of("c"), "");
    daemon_stop(&aftd);
}

static void the_highest_version_is_served(void **state)
{
    (void)state;
    model_folder_put(folder, "plain", TEXT_B);
    start(NULL, NULL);
    char *b = text_of("plain");
    model_folder_put(folder, "many", TEXT_A); /* makes the folder; then it is one with versions alone */
    model_folder_put(folder, "many/9", TEXT_A);
    model_folder_put(folder, "many/10", TEXT_B);
    model_folder_put(folder, "many/011", TEXT_A);
    char path[PATH_MAX];
    temp_path(path, folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    assert_string_equal(reload(), "loaded many, unchanged plain");
    assert_writes("many", b);
    model_folder_break(folder, "many/11", TEXT_A, MODEL_NO_TENSOR);
    assert_string_equal(reload(), "unchanged plain, failed many");
    assert_writes("many", b);
    model_folder_drop(folder, "many/11");
    model_folder_drop(folder, "many/10");
    assert_string_equal(reload(), "reloaded many, unchanged plain");
    char *a = text_of("many");
    assert_string_not_equal(a, b);
    free(a);
    free(b);
    daemon_stop(&aftd);
}

/* ---- lazily, and within a bound --------------------------------------------------------------------------------- */

/* Ask until it is there, as a client would that is told to try again. */
static char *text_after_loading(const char *model)
{
    for (const int64_t end = test_now_ms() + test_ms(WAIT_MS);;) {
        struct reply r;
        char after[16];
        ask_text(model, &r);
        const long status = r.status;
        if (status != 200) {
            reply_assert_error(&r, 503, "model_loading", "model", "is being loaded");
            assert_true(reply_header(&r, "Retry-After", after, sizeof after));
        }
        reply_clear(&r);
        if (status == 200)
            return text_of(model);
        if (test_now_ms() > end)
            fail_msg("%s does not get loaded", model);
        test_sleep_ms(LOOK_MS);
    }
}

static void a_lazy_model_is_loaded_when_it_is_asked_for(void **state)
{
    (void)state;
    model_folder_put(folder, "a", TEXT_A);
    model_folder_put(folder, "b", TEXT_B);
    model_folder_put(folder, "broken", TEXT_A);
    model_folder_break(folder, "broken", TEXT_A, MODEL_TRUNCATED);
    start("--models-lazy=true", NULL);
    assert_string_equal(state_of("a"), "idle");
    assert_true(client_metric(&aftd, "aftd_model_info{") == 0);
    free(text_after_loading("a"));
    assert_string_equal(state_of("a"), "loaded");
    assert_string_equal(state_of("b"), "idle");
    assert_text_error("broken", 503, "model_loading", NULL);
    for (const int64_t end = test_now_ms() + test_ms(WAIT_MS); strcmp(state_of("broken"), "failed") != 0;) {
        assert_true(test_now_ms() < end);
        test_sleep_ms(LOOK_MS);
    }
    assert_text_error("broken", 503, "unavailable", "truncated");
    assert_string_equal(reload(), "loaded broken, unchanged a, unchanged b"); /* to be tried again when asked for */
    assert_string_equal(state_of("broken"), "idle");
    assert_true(client_metric(&aftd, "aftd_requests_rejected_total{reason=\"loading\"}") >= 2);
    daemon_stop(&aftd);
}

static void the_model_that_rested_longest_makes_room(void **state)
{
    static const char rows[] = "--pass-rows-max=4096"; /* for a workspace of megabytes */
    char flag[64];
    (void)state;
    model_folder_put(folder, "a", TEXT_A);
    model_folder_put(folder, "b", TEXT_A);
    model_folder_put(folder, "c", TEXT_A);
    start(rows, NULL);
    json_t *all = get_admin("/admin/models");
    const json_int_t three = json_integer_value(json_object_get(all, "memory_bytes"));
    json_decref(all);
    daemon_stop(&aftd);

    const json_int_t two_mb = (three * 5 / 6 + (1 << 20) - 1) >> 20; /* two fit, a third does not */
    (void)snprintf(flag, sizeof flag, "--models-memory-max-mb=%d", (int)two_mb);
    start(flag, rows);
    assert_string_equal(state_of("c"), "idle"); /* it was the last of them at the start */
    free(text_of("b"));
    free(text_of("a"));
    free(text_after_loading("c"));
    assert_string_equal(state_of("a"), "loaded");
    assert_string_equal(state_of("b"), "idle");
    assert_string_equal(state_of("c"), "loaded");
    assert_true(client_metric(&aftd, "aftd_model_info{model=\"b\"") == 0);
    free(text_after_loading("b"));
    assert_string_equal(state_of("a"), "idle");
    act_well("a", "load");
    assert_string_equal(state_of("c"), "idle");
    daemon_stop(&aftd);

    start("--models-memory-max-mb=1", rows); /* none of them fits at all */
    act_badly("a", "load", 503, "out_of_memory", "models_memory_max_mb is 1");
    assert_text_error("a", 503, "unavailable", "models_memory_max_mb");
    daemon_stop(&aftd);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void draining_can_be_asked_for(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(folder, "a", TEXT_A);
    start("--drain-delay-ms=500", NULL);
    for (int i = 0; i < 2; i++) { /* the second does not hurry the first */
        post_admin("/admin/drain", "", &r);
        assert_int_equal(r.status, 202);
        reply_clear(&r);
    }
    assert_int_equal(daemon_wait(&aftd, test_ms(WAIT_MS)), 0);
    char *log = daemon_log(&aftd);
    assert_non_null(strstr(log, "draining: new requests are taken for 500 ms"));
    assert_non_null(strstr(log, "stopped"));
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_is_loaded_unloaded_and_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_done_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_not_accepted_change_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_dir_is_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hangup_follows_models_dir_and_settings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_highest_version_is_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lazy_model_is_loaded_when_it_is_asked_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_model_that_rested_longest_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(draining_can_be_asked_for, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
