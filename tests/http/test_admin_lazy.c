/* test_admin_lazy.c - models that are loaded when they are asked for, and dropped where memory is bounded. The
 * real daemon and small models. */
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
#include "tests/support/model_folder.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LOOK_MS = 10 };

/* Ask until it is there, like a client that is told to try again. */
static char *text_after_loading(const char *model)
{
    for (const int64_t end = test_now_ms() + HANG_MS;;) {
        struct reply r;
        char after[16];
        model_ask(model, &r);
        const long status = r.status;
        if (status != 200) {
            reply_assert_error(&r, 503, "model_loading", "model", "is being loaded");
            assert_true(reply_header(&r, "Retry-After", after, sizeof after));
        }
        reply_clear(&r);
        if (status == 200)
            return model_text(model);
        if (test_now_ms() > end)
            fail_msg("%s does not get loaded", model);
        test_sleep_ms(LOOK_MS);
    }
}

static void a_lazy_model_is_loaded_when_it_is_asked_for(void **state)
{
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    model_folder_put(models_folder, "b", TEXT_B);
    model_folder_put(models_folder, "broken", TEXT_A);
    model_folder_break(models_folder, "broken", TEXT_A, MODEL_TRUNCATED);
    administration_start("--models-lazy=true", NULL);
    assert_string_equal(admin_state_of("a"), "idle");
    assert_true(client_metric(&administered, "aftd_model_info{") == 0);
    free(text_after_loading("a"));
    assert_string_equal(admin_state_of("a"), "loaded");
    assert_string_equal(admin_state_of("b"), "idle");
    model_assert_error("broken", 503, "model_loading", NULL);
    for (const int64_t end = test_now_ms() + HANG_MS; strcmp(admin_state_of("broken"), "failed") != 0;) {
        assert_true(test_now_ms() < end);
        test_sleep_ms(LOOK_MS);
    }
    model_assert_error("broken", 503, "unavailable", "cannot be loaded; the log and GET /admin/models say why");
    assert_non_null(strstr(admin_failure_of("broken"), "truncated"));
    assert_string_equal(admin_reload(),
                        "loaded broken, unchanged a, unchanged b"); /* to be tried again when asked for */
    assert_string_equal(admin_state_of("broken"), "idle");
    assert_true(client_metric(&administered, "aftd_requests_rejected_total{reason=\"loading\"}") >= 2);
    model_folder_drop(models_folder, "b"); /* which nobody has asked for */
    assert_string_equal(admin_reload(), "unloaded b, unchanged a, unchanged broken");
    assert_string_equal(admin_state_of("b"), "");
    daemon_stop(&administered);
}

/* A model rests once the daemon has seen the end of its last request, which its client may know of before. */
static void await_rest(const char *model)
{
    for (const int64_t end = test_now_ms() + HANG_MS; admin_is_in_use(model);) {
        assert_true(test_now_ms() < end);
        test_sleep_ms(LOOK_MS);
    }
}

static void the_model_that_rested_longest_makes_room(void **state)
{
    static const char rows[] = "--pass-rows-max=4096"; /* for a workspace of megabytes */
    char flag[64];
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    model_folder_put(models_folder, "b", TEXT_A);
    model_folder_put(models_folder, "c", TEXT_A);
    administration_start(rows, NULL);
    json_t *all = admin_get("/admin/models");
    const json_int_t three = json_integer_value(json_object_get(all, "memory_bytes"));
    json_decref(all);
    daemon_stop(&administered);

    const json_int_t two_mb = (three * 5 / 6 + (1 << 20) - 1) >> 20; /* two fit, a third does not */
    (void)snprintf(flag, sizeof flag, "--models-memory-max-mb=%d", (int)two_mb);
    administration_start(flag, rows);
    assert_string_equal(admin_state_of("c"), "idle"); /* it was the last of them at the start */
    free(model_text("b"));
    await_rest("b");
    free(model_text("a"));
    await_rest("a");
    free(text_after_loading("c"));
    await_rest("c");
    assert_string_equal(admin_state_of("a"), "loaded");
    assert_string_equal(admin_state_of("b"), "idle");
    assert_string_equal(admin_state_of("c"), "loaded");
    assert_true(client_metric(&administered, "aftd_model_info{model=\"b\"") == 0);
    free(text_after_loading("b"));
    await_rest("b");
    assert_string_equal(admin_state_of("a"), "idle");
    admin_act_well("a", "load");
    assert_string_equal(admin_state_of("c"), "idle");
    model_folder_put(models_folder, "d", TEXT_A);
    assert_string_equal(admin_reload(), "loaded d, unchanged a, unchanged b, unchanged c");
    assert_string_equal(admin_state_of("a"), "idle"); /* nobody has asked for it since it was loaded */
    assert_string_equal(admin_state_of("d"), "loaded");
    model_folder_drop(models_folder, "d");
    daemon_stop(&administered);

    administration_start("--models-memory-max-mb=1", rows); /* none of them fits at all */
    admin_act_badly("a", "load", 503, "out_of_memory", "all models together may take 1 (models_memory_max_mb)");
    model_assert_error("a", 503, "unavailable", "cannot be loaded");
    assert_non_null(strstr(admin_failure_of("a"), "models_memory_max_mb"));
    daemon_stop(&administered);
}

/* A stream that nobody reads holds its model until its client leaves. */
static int begin_stream(const char *model)
{
    static struct raw_input in;
    char json[256];
    (void)snprintf(json, sizeof json,
                   "{\"model\": \"%s\", \"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", "
                   "\"stream\": true}",
                   model);
    char *text = raw_post("/generate", json, "");
    const int fd = raw_connect_small(administered.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    return fd;
}

static void await_failure(const char *model, const char *says)
{
    for (const int64_t end = test_now_ms() + HANG_MS;;) {
        struct reply r;
        model_ask(model, &r);
        reply_assert_error(&r, 503, "model_loading", "model", "is being loaded");
        const bool has_failed = strstr(r.body, "the last attempt failed") != NULL;
        reply_clear(&r);
        if (has_failed) {
            assert_non_null(strstr(admin_failure_of(model), says));
            return;
        }
        if (test_now_ms() > end)
            fail_msg("%s is not said to have failed: %s", model, says);
        test_sleep_ms(LOOK_MS);
    }
}

static void put_version(const char *model, const char *version)
{
    char name[64], path[PATH_MAX];
    model_folder_put(models_folder, model, TEXT_A); /* makes the folder, which from here on has only versions */
    (void)snprintf(name, sizeof name, "%s/%s", model, version);
    model_folder_put(models_folder, name, TEXT_A);
    (void)snprintf(name, sizeof name, "%s/config.json", model);
    temp_path(path, models_folder, name);
    assert_int_equal(remove(path), 0);
}

static void a_model_that_finds_no_room_is_tried_again(void **state)
{
    static const char rows[] = "--pass-rows-max=4096";
    char flag[64];
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    administration_start(rows, NULL);
    json_t *all = admin_get("/admin/models");
    const json_int_t one = json_integer_value(json_object_get(all, "memory_bytes"));
    json_decref(all);
    daemon_stop(&administered);

    (void)snprintf(flag, sizeof flag, "--models-memory-max-mb=%d", (int)(one * 3 / 2 >> 20)); /* one fits alone */
    model_folder_put(models_folder, "b", TEXT_B);
    put_version("v", "1");
    administration_start(flag, rows);
    assert_string_equal(admin_state_of("b"), "idle");
    assert_string_equal(admin_state_of("v"), "idle");
    model_folder_put(models_folder, "d", TEXT_A);
    model_folder_break(models_folder, "d", TEXT_A, MODEL_BAD_JSON);
    assert_string_equal(admin_reload(), "unchanged a, unchanged b, unchanged v, failed d");
    const int fd = begin_stream("a");
    admin_act_badly("b", "load", 503, "unavailable", "the other models are in use");
    free(model_text("a")); /* it gives way to requests alone */
    await_failure("b", "the other models are in use");
    assert_string_equal(admin_state_of("b"), "idle");
    model_folder_put(models_folder, "c", TEXT_A);
    model_folder_put(models_folder, "d", TEXT_A); /* a model that was not known before */
    put_version("v", "2");
    model_folder_drop(models_folder, "v/1");
    assert_string_equal(admin_reload(), "unchanged a, unchanged b, failed c, failed d, failed v");
    assert_string_equal(admin_state_of("c"), "idle");
    raw_close(fd);
    free(text_after_loading("b"));
    assert_string_equal(admin_state_of("a"), "idle");
    free(text_after_loading("c"));
    free(text_after_loading("d"));
    free(text_after_loading("v"));
    daemon_stop(&administered);
}

/* Requests that overlap would otherwise keep it in use, and the other out, for ever. */
static void overlapping_requests_do_not_keep_another_model_out(void **state)
{
    static const char rows[] = "--pass-rows-max=4096";
    char flag[64];
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "a", TEXT_A);
    administration_start(rows, NULL);
    json_t *all = admin_get("/admin/models");
    const json_int_t one = json_integer_value(json_object_get(all, "memory_bytes"));
    json_decref(all);
    daemon_stop(&administered);

    (void)snprintf(flag, sizeof flag, "--models-memory-max-mb=%d", (int)(one * 3 / 2 >> 20)); /* one fits alone */
    model_folder_put(models_folder, "b", TEXT_B);
    administration_start(flag, rows);
    const int before = begin_stream("a");
    await_failure("b", "the other models are in use");
    model_ask("a", &r); /* which would overlap */
    reply_assert_error(&r, 503, "model_loading", "model", "gives way to another");
    reply_clear(&r);
    raw_close(before);
    free(text_after_loading("b"));
    free(text_after_loading("a")); /* and in turn */
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lazy_model_is_loaded_when_it_is_asked_for, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(the_model_that_rested_longest_makes_room, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(overlapping_requests_do_not_keep_another_model_out, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_model_that_finds_no_room_is_tried_again, administration_set_up,
                                        administration_tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
