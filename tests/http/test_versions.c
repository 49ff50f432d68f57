/* test_versions.c - NAME@VERSION, in the place of a model's name: it is answered as long as that version is the
 * one served, in every API and for keys too, and nothing else is taken for it. The real daemon and small models. */
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
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define LONGEST "a234567890123456789012345678901234567890123456789012345678901234" /* MODEL_NAME_MAX bytes */
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LOOK_MS = 10 };

/* many/9 and many/10; plain and picture, without versions. */
static void put_models(void)
{
    char path[PATH_MAX];
    model_folder_put(models_folder, "many", TEXT_A); /* makes the folder, which from here on has only versions */
    model_folder_put(models_folder, "many/9", TEXT_A);
    model_folder_put(models_folder, "many/10", TEXT_B);
    temp_path(path, models_folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    model_folder_put(models_folder, "plain", TEXT_A);
    model_folder_put(models_folder, "picture", PICTURE);
}

static void expect(const char *path, const char *body, const char *const headers[], long status, const char *says)
{
    struct reply r;
    const struct request q = {.path = path,
                              .type = body != NULL && body[0] == '{' ? "application/json" : NULL,
                              .body = body,
                              .size = body != NULL ? strlen(body) : 0,
                              .headers = headers};
    client_call(&administered, &q, &r);
    if (r.status != status || strstr(r.body, says) == NULL)
        fail_msg("%s %s: %ld %s, expected %ld and \"%s\"", path, body != NULL ? body : "", r.status, r.body, status,
                 says);
    reply_clear(&r);
}

static void the_version_that_is_served_can_be_asked_for(void **state)
{
    static const struct {
        const char *path, *body;
        long status;
        const char *says;
    } cases[] = {
        {"/v1/completions", "{\"model\": \"many@10\", \"prompt\": \"a\"}", 200, "\"model\":\"many\""},
        {"/v1/completions", "{\"model\": \"many@9\", \"prompt\": \"a\"}", 404, "no version"},
        {"/score", "{\"model\": \"many@10\", \"text\": \"abc\"}", 200, "\"model\":\"many\""},
        {"/score", "{\"model\": \"many@11\", \"text\": \"abc\"}", 404, "no version"},
        {"/v1/compress?model=many@10", "abc", 200, "aftz"},
        {"/v1/compress?model=many%4010", "abc", 200, "aftz"},
        {"/v1/compress?model=many@1", "abc", 404, "no version"},
        {"/explain?view=biases&model=picture@1", "", 200, "PNG"},
        {"/explain?view=biases&model=picture@2", "", 404, "no version"},
        {"/classify?model=picture@2", "x", 404, "no version"},
        {"/v1/models", NULL, 200, "\"version\":10"},
        {"/v1/models/many", NULL, 200, "\"version\":10"},
        {"/v1/models/many@10", NULL, 200, "\"id\":\"many\""},
        {"/v1/models/many@9", NULL, 404, "no model"},
        {"/v2/models/many@10/ready", NULL, 200, "true"},
        {"/v2/models/many@10", NULL, 200, "\"versions\":[\"10\"]"},
        {"/v2/models/many@9", NULL, 404, "no version"},
    };
    (void)state;
    put_models();
    administration_start(NULL, NULL);
    char *a = model_text("plain"), *b = model_text("many");
    assert_string_not_equal(a, b);
    model_assert_writes("many@10", b);
    model_assert_writes("plain@1", a);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(cases[i].path, cases[i].body, NULL, cases[i].status, cases[i].says);
    /* the next version takes its place, and who asks for the old one is told */
    model_folder_drop(models_folder, "many/10");
    assert_string_equal(admin_reload(), "reloaded many, unchanged picture, unchanged plain");
    model_assert_writes("many@9", a);
    model_assert_writes("many", a);
    model_assert_error("many@10", 404, "not_found", "no version \"10\" of the model \"many\"; expected many or many@9");
    free(a);
    free(b);
    daemon_stop(&administered);
}

static void what_is_no_version_is_refused(void **state)
{
    static const struct {
        const char *model, *says;
    } cases[] = {
        {"many@", "no version \"\" of"},
        {"many@010", "no version \"010\" of"},
        {"many@+10", "no version"},
        {"many@ 10", "no version"},
        {"many@10 ", "no version"},
        {"many@0", "no version \"0\" of"},
        {"many@4294967306", "no version"}, /* 2^32 + 10 */
        {"many@latest", "no version"},
        {"many@10@10", "no version \"10@10\" of"},
        {"plain@2", "expected plain or plain@1"},
        {"odd@8", "no model is named"},
        {"@10", "no model is named"},
        {"@", "no model is named"},
        {LONGEST "@1234567890", "no model is named \"" LONGEST "@1234567890\""},
    };
    (void)state;
    put_models();
    administration_start(NULL, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        model_assert_error(cases[i].model, 404, "not_found", cases[i].says);
    model_assert_error(LONGEST "@12345678901", 400, "invalid_value", "1 to 75");
    /* administration is of names */
    admin_act_badly("plain@1", "unload", 404, "not_found", "is not loaded");
    admin_act_badly("many@10", "reload", 404, "not_found", "is not loaded");
    daemon_stop(&administered);
}

/* A key of a model is one of all its versions, and of no other model. */
static void a_key_of_a_model_is_one_of_its_versions(void **state)
{
    static const struct {
        const char *path, *body;
        long status;
        const char *says;
    } cases[] = {
        {"/score", "{\"model\": \"many@10\", \"text\": \"abc\"}", 200, "\"model\":\"many\""},
        {"/score", "{\"model\": \"many@9\", \"text\": \"abc\"}", 404, "does not exist"},
        {"/score", "{\"model\": \"plain@1\", \"text\": \"abc\"}", 403, "may not use the model"},
        {"/v1/models/many@10", NULL, 200, "\"id\":\"many\""},
        {"/v1/models/plain@1", NULL, 404, "no model"},
        {"/v1/models/plain", NULL, 404, "no model"},
    };
    char file[PATH_MAX], dir[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 64];
    (void)state;
    temp_dir_create(dir);
    temp_path(file, dir, "keys");
    keys_add(file, "one", (const char *const[]){"--models", "many", NULL}, key);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", key);
    put_models();
    administration_start(flag, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(cases[i].path, cases[i].body, (const char *const[]){header, NULL}, cases[i].status, cases[i].says);
    daemon_stop(&administered);
    temp_dir_remove(dir);
}

static void a_lazy_model_is_loaded_by_its_own_version_alone(void **state)
{
    (void)state;
    put_models();
    administration_start("--models-lazy=true", NULL);
    model_assert_error("many@9", 404, "not_found", "many@10");
    assert_string_equal(admin_state_of("many"), "idle");
    model_assert_error("many@10", 503, "model_loading", "\"many\" is being loaded");
    for (const int64_t end = test_now_ms() + HANG_MS; strcmp(admin_state_of("many"), "loaded") != 0;) {
        assert_true(test_now_ms() < end);
        test_sleep_ms(LOOK_MS);
    }
    free(model_text("many@10"));
    daemon_stop(&administered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_version_that_is_served_can_be_asked_for, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_version_is_refused, administration_set_up, administration_tear_down),
        cmocka_unit_test_setup_teardown(a_key_of_a_model_is_one_of_its_versions, administration_set_up,
                                        administration_tear_down),
        cmocka_unit_test_setup_teardown(a_lazy_model_is_loaded_by_its_own_version_alone, administration_set_up,
                                        administration_tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_versions", tests, NULL, NULL);
}
