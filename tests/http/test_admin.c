/* test_admin.c - models that change while they are served, by the admin API and by SIGHUP: what the answers say,
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_folder.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LAST_SUCCESS "aftd_config_last_reload_success_timestamp_seconds"

enum { LIMIT_S = 580 };

/* ---- one model ------------------------------------------------------------------------------------------------- */

static void a_model_is_loaded_unloaded_and_replaced(void **state)
{
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    model_folder_put(models_folder, "picture", PICTURE);
    administration_start(NULL, NULL);
    char *a = model_text("one");
    admin_act_well("one", "unload");
    assert_string_equal(admin_state_of("one"), "unloaded");
    model_assert_error("one", 404, "not_found", "loaded models: picture");
    assert_true(client_metric(&administered, "aftd_model_info{model=\"one\"") == 0);
    assert_true(client_metric(&administered, "aftd_model_info{model=\"picture\"") == 1);
    admin_act_badly("one", "unload", 404, "not_found", "is not loaded");
    admin_act_badly("one", "reload", 404, "not_found", "is not loaded");
    admin_act_well("one", "load");
    assert_true(client_metric(&administered, "aftd_model_info{model=\"one\"") == 1);
    model_assert_writes("one", a);
    model_folder_put(models_folder, "one", TEXT_B);
    model_assert_writes("one", a);
    admin_act_well("one", "reload");
    char *b = model_text("one");
    assert_string_not_equal(a, b);
    model_folder_put(models_folder, "two", TEXT_A);
    admin_act_well("two", "load");
    model_assert_writes("two", a);
    model_assert_writes("one", b);
    free(a);
    free(b);
    daemon_stop(&administered);
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
        {"/admin/models/none", "{\"action\": \"load\"}", NULL, "not_found", NULL, "there is no model", 404},
        {"/admin/models/..", "{\"action\": \"load\"}", NULL, "not_found", NULL, NULL, 404},
        {"/admin/models/.hidden", "{\"action\": \"load\"}", NULL, "not_found", NULL, NULL, 404},
        {"/admin/models/"
         "a12345678901234567890123456789012345678901234567890123456789012345",
         "{\"action\": \"load\"}", NULL, "not_found", NULL, "64 bytes", 404},
    };
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    model_folder_put(models_folder, ".hidden", TEXT_A);
    administration_start(NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        const struct request q = {.method = "POST",
                                  .path = cases[i].path,
                                  .type = cases[i].type != NULL ? cases[i].type : "application/json",
                                  .body = cases[i].body,
                                  .size = strlen(cases[i].body),
                                  .port = administered.admin_port};
        client_call(&administered, &q, &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    struct reply r; /* nothing of it is public */
    client_get(&administered, "/admin/models", &r);
    reply_assert_error(&r, 404, "not_found", NULL, NULL);
    reply_clear(&r);
    daemon_stop(&administered);
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
    model_folder_put(models_folder, "one", TEXT_A);
    administration_start(NULL, NULL);
    char *a = model_text("one");
    for (int fault = 0; fault < MODEL_FAULTS; fault++) {
        model_folder_break(models_folder, "one", TEXT_A, (enum model_fault)fault);
        admin_act_badly("one", "reload", 422, "file_refused", says[fault]);
        assert_string_equal(admin_reload(), "failed one");
        assert_true(client_metric(&administered, "aftd_models_failed") == 1);
        assert_string_equal(admin_state_of("one"), "loaded");
        model_assert_writes("one", a);
        model_folder_put(models_folder, "one", TEXT_A);
    }
    model_folder_put(models_folder, "new", TEXT_A);
    model_folder_break(models_folder, "new", TEXT_A, MODEL_TRUNCATED);
    admin_act_badly("new", "load", 422, "file_refused", "truncated");
    assert_string_equal(admin_reload(), "reloaded one, failed new");
    assert_string_equal(admin_state_of("new"), "failed");
    model_assert_error("new", 503, "unavailable", "GET /admin/models say why"); /* which is nobody else's business */
    json_t *models = admin_get("/admin/models");
    char *told = json_dumps(models, 0);
    assert_non_null(strstr(told, "truncated"));
    assert_non_null(strstr(told, models_folder));
    free(told);
    json_decref(models);
    model_folder_put(models_folder, "new", TEXT_A);
    assert_true(client_metric(&administered, "aftd_models_failed") == 1);
    assert_true(client_metric(&administered, "aftd_config_last_reload_successful") ==
                1); /* models are another figure */
    assert_string_equal(admin_reload(), "loaded new, unchanged one");
    assert_true(client_metric(&administered, "aftd_models_failed") == 0);
    model_assert_writes("new", a);
    free(a);
    daemon_stop(&administered);
}

/* Files that would take for ever to read. */
static void only_regular_files_that_a_model_names_are_read(void **state)
{
    char path[PATH_MAX + 32];
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    (void)snprintf(path, sizeof path, "%s/one/fifo.safetensors", models_folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)snprintf(path, sizeof path, "%s/one/sparse.safetensors", models_folder);
    temp_write(path, "", 0);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    administration_start(NULL, NULL);
    assert_string_equal(admin_state_of("one"), "loaded");
    (void)snprintf(path, sizeof path, "%s/one/model.safetensors", models_folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    admin_act_badly("one", "reload", 422, "file_refused", "is a FIFO, expected a regular file");
    assert_int_equal(unlink(path), 0);
    temp_write(path, "", 0);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    admin_act_badly("one", "reload", 422, "file_refused", "has 1099511627776 bytes, expected at most");
    model_ask("one", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    daemon_signal(&administered, SIGTERM);
    assert_int_equal(daemon_wait(&administered, HANG_MS), 0);
}

/* Names must be valid both in JSON lists and in paths. */
static void a_folder_that_cannot_name_a_model_is_refused(void **state)
{
    static const char *const folders[] = {"two words", "\xff", "a\nb", "caf\xc3\xa9"};
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    administration_start(NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        char version[32], path[PATH_MAX];
        struct reply r;
        model_folder_put(models_folder, folders[i],
                         TEXT_A); /* makes the folder, which from here on has only versions */
        (void)snprintf(version, sizeof version, "%s/1", folders[i]);
        model_folder_put(models_folder, version, TEXT_A);
        (void)snprintf(version, sizeof version, "%s/config.json", folders[i]);
        temp_path(path, models_folder, version);
        assert_int_equal(remove(path), 0);
        admin_post("/admin/config/reload", "", &r);
        reply_assert_error(&r, 422, "file_refused", NULL, "it names the model");
        reply_clear(&r);
        json_decref(admin_get("/admin/models"));
        (void)snprintf(version, sizeof version, "%s/1", folders[i]);
        model_folder_drop(models_folder, version);
    }
    assert_string_equal(admin_reload(), "unchanged one");
    daemon_stop(&administered);
}

/* A browser sends the POST of another site's page without asking first, and only withholds the answer. */
static void pages_in_browsers_do_not_administrate(void **state)
{
    static const char *const from_page[] = {"Origin: http://evil.example", NULL}, *const from_file[] = {"Origin: null",
                                                                                                        NULL};
    static const struct {
        const char *path, *body;
    } cases[] = {{"/admin/models/one", "{\"action\": \"unload\"}"},
                 {"/admin/config/reload", ""},
                 {"/admin/drain", ""},
                 {"/admin/config", NULL},
                 {"/admin/models", NULL}};
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    administration_start(NULL, NULL);
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        struct reply r;
        const char *body = cases[i / 2].body;
        client_call(&administered,
                    &(struct request){.path = cases[i / 2].path,
                                      .body = body,
                                      .size = body != NULL ? strlen(body) : 0,
                                      .headers = i % 2 == 0 ? from_page : from_file,
                                      .port = administered.admin_port},
                    &r);
        reply_assert_error(&r, 403, "not_allowed", "Origin", "may not use the admin API");
        reply_clear(&r);
    }
    assert_string_equal(admin_state_of("one"), "loaded");
    daemon_stop(&administered);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static void the_page_is_not_on_the_admin_listener(void **state)
{
    static const struct {
        const char *path;
        long status;
    } cases[] = {{"/", 404}, {"/page/page.js", 404}, {"/openapi.json", 200}, {"/healthz", 200}, {"/classify", 404}};
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    administration_start(NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        client_call(&administered, &(struct request){.path = cases[i].path, .port = administered.admin_port}, &r);
        assert_int_equal(r.status, cases[i].status);
        if (cases[i].status == 200 && strcmp(cases[i].path, "/openapi.json") == 0)
            assert_null(strstr(r.body, "\"/page/"));
        reply_clear(&r);
    }
    client_get(&administered, "/", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
}

static void models_dir_is_followed(void **state)
{
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    model_folder_put(models_folder, "b", TEXT_B);
    administration_start(NULL, NULL);
    char *a = model_text("a"), *b = model_text("b");
    assert_string_equal(admin_reload(), "unchanged a, unchanged b");
    model_folder_put(models_folder, "b", TEXT_A);
    model_folder_put(models_folder, "c", TEXT_B);
    model_folder_drop(models_folder, "a");
    assert_true(client_metric(&administered, "aftd_model_info{model=\"a\"") == 1);
    assert_string_equal(admin_reload(), "loaded c, reloaded b, unloaded a");
    assert_true(client_metric(&administered, "aftd_model_info{model=\"a\"") == 0);
    assert_true(client_metric(&administered, "aftd_model_info{model=\"c\"") == 1);
    model_assert_writes("b", a);
    model_assert_writes("c", b);
    model_assert_error("a", 404, "not_found", "loaded models: b, c");
    assert_string_equal(admin_state_of("a"), "");

    admin_act_well("c", "unload"); /* what an administrator took away does not come back by itself */
    assert_string_equal(admin_reload(), "unchanged b, unchanged c");
    assert_string_equal(admin_state_of("c"), "unloaded");

    model_folder_drop(models_folder, "b");
    model_folder_drop(models_folder, "c");
    struct reply r;
    admin_post("/admin/config/reload", "", &r);
    reply_assert_error(&r, 422, "file_refused", NULL, "no subfolder has a config.json");
    reply_clear(&r);
    model_assert_writes("b", a);
    free(a);
    free(b);
    daemon_stop(&administered);
}

static void a_folder_of_more_than_can_be_served_changes_nothing(void **state)
{
    char name[16];
    struct reply r;
    (void)state;
    for (int i = 0; i < REGISTRY_MODELS_MAX; i++) {
        (void)snprintf(name, sizeof name, "m%03d", i);
        model_folder_put(models_folder, name, TEXT_A);
    }
    administration_start(NULL, NULL);
    char *text = model_text("m000");
    model_folder_put(models_folder, "one-more", TEXT_A);
    admin_post("/admin/config/reload", "", &r);
    reply_assert_error(&r, 422, "file_refused", NULL, "more than 256 models");
    reply_clear(&r);
    model_folder_drop(models_folder, "m001"); /* whose model is still served */
    admin_act_badly("one-more", "load", 422, "file_refused", "more than 256 models");
    model_assert_writes("m001", text);
    free(text);
    daemon_stop(&administered);
}

static void a_hangup_follows_models_dir_and_settings(void **state)
{
    char config[PATH_MAX], flag[PATH_MAX + 16];
    static const char before[] = "{\"log_level\": \"info\", \"memory_max_mb\": 2048, \"queue_jobs_max\": 7}";
    static const char after[] = "{\"log_level\": \"debug\", \"memory_max_mb\": 1024, \"queue_jobs_max\": 8}";
    (void)state;
    temp_path(config, models_folder, "aftd.json");
    (void)snprintf(flag, sizeof flag, "--config=%s", config);
    temp_write(config, before, strlen(before));
    model_folder_put(models_folder, "a", TEXT_A);
    administration_start(flag, NULL);
    const double started = client_metric(&administered, LAST_SUCCESS);
    model_folder_put(models_folder, "b", TEXT_A);
    temp_write(config, after, strlen(after));
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered, /* and none of those that are shares of the memory */
                     "{\"changed\":[\"log_level\"],\"restart\":[\"memory_max_mb\",\"queue_jobs_max\"],");
    daemon_await_log(&administered, "\"models\":{\"loaded\":[\"b\"],");
    json_t *all = admin_get("/admin/config");
    const char *level, *source, *queue;
    json_int_t jobs;
    assert_int_equal(json_unpack(all, "{s:{s:s, s:s}, s:{s:I, s:s}}", "log_level", "value", &level, "source", &source,
                                 "queue_jobs_max", "value", &jobs, "source", &queue),
                     0);
    assert_string_equal(level, "debug");
    assert_int_equal(jobs, 7); /* what is in force */
    assert_non_null(strstr(source, config));
    json_decref(all);

    const double succeeded = client_metric(&administered, LAST_SUCCESS);
    assert_true(succeeded > started);
    assert_true(client_metric(&administered, "aftd_config_last_reload_successful") == 1);
    temp_write(config, after, 20);
    model_folder_put(models_folder, "c", TEXT_A);
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered, "reload: nothing has changed: ");
    (void)client_await_metric(&administered, "aftd_config_last_reload_successful", 0, HANG_MS);
    assert_true(client_metric(&administered, LAST_SUCCESS) == succeeded);
    assert_string_equal(admin_state_of("c"), "");

    temp_write(config, before, strlen(before));
    model_folder_put(models_folder, "no name", TEXT_A);
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered,
                     "reload: settings, keys and certificate were taken over, but the models were not: ");
    assert_string_equal(admin_state_of("c"), "");
    all = admin_get("/admin/config");
    assert_int_equal(json_unpack(all, "{s:{s:s}}", "log_level", "value", &level), 0);
    assert_string_equal(level, "info");
    json_decref(all);
    assert_true(client_metric(&administered, "aftd_config_last_reload_successful") == 0);
    model_folder_drop(models_folder, "no name");
    assert_string_equal(admin_reload(), "loaded c, unchanged a, unchanged b");
    assert_true(client_metric(&administered, "aftd_config_last_reload_successful") == 1);
    assert_true(client_metric(&administered, LAST_SUCCESS) > succeeded);
    daemon_stop(&administered);
}

static void the_highest_version_is_served(void **state)
{
    (void)state;
    model_folder_put(models_folder, "plain", TEXT_B);
    administration_start(NULL, NULL);
    char *b = model_text("plain");
    model_folder_put(models_folder, "many", TEXT_A); /* makes the folder, which from here on has only versions */
    model_folder_put(models_folder, "many/9", TEXT_A);
    model_folder_put(models_folder, "many/10", TEXT_B);
    model_folder_put(models_folder, "many/011", TEXT_A);
    char path[PATH_MAX];
    temp_path(path, models_folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    assert_string_equal(admin_reload(), "loaded many, unchanged plain");
    model_assert_writes("many", b);
    model_folder_break(models_folder, "many/11", TEXT_A, MODEL_NO_TENSOR);
    assert_string_equal(admin_reload(), "unchanged plain, failed many");
    model_assert_writes("many", b);
    model_folder_drop(models_folder, "many/11");
    model_folder_drop(models_folder, "many/10");
    assert_string_equal(admin_reload(), "reloaded many, unchanged plain");
    char *a = model_text("many");
    assert_string_not_equal(a, b);
    free(a);
    free(b);
    daemon_stop(&administered);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void draining_can_be_asked_for(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    administration_start("--drain-delay-ms=500", NULL);
    for (int i = 0; i < 2; i++) { /* the second does not hurry the first */
        admin_post("/admin/drain", "", &r);
        assert_int_equal(r.status, 202);
        reply_clear(&r);
    }
    assert_int_equal(daemon_wait(&administered, HANG_MS), 0);
    char *log = daemon_log(&administered);
    assert_non_null(strstr(log, "draining: new requests are accepted for 500 ms"));
    assert_non_null(strstr(log, "stopped"));
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_is_loaded_unloaded_and_replaced, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_done_is_said, administration_set_up, administration_tear_down),
        cmocka_unit_test_setup_teardown(files_that_are_not_accepted_change_nothing, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(only_regular_files_that_a_model_names_are_read, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_name_a_model_is_refused, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(pages_in_browsers_do_not_administrate, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(the_page_is_not_on_the_admin_listener, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(models_dir_is_followed, administration_set_up, administration_tear_down),
        cmocka_unit_test_setup_teardown(a_folder_of_more_than_can_be_served_changes_nothing, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_hangup_follows_models_dir_and_settings, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(the_highest_version_is_served, administration_set_up, administration_tear_down),
        cmocka_unit_test_setup_teardown(draining_can_be_asked_for, administration_set_up, administration_tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
