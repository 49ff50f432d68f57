/* test_default_models.c - which model answers a request that names none, and who is told so: with the models that ship,
 * for keys that may not use all of them, and after a reload of the setting. */
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
#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define SHIPPED "--models-dir=weights/models"
#define SMALL "--streams-max=8", "--picture-tokens-max=64"
#define CONV "cifar10-aft-conv"
#define SIMA "cifar10-sima"
#define TEXT "enwik8-aft-conv"
#define LABELS "languages-aft-conv"
#define PIXELS "cifar10-pixels-16"

static struct daemon aftd;
static char dir[PATH_MAX];
static char *picture;
static size_t picture_size;

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    picture = temp_read("weights/models/" CONV "/sample.jpg", &picture_size);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    free(picture);
    return 0;
}

/* POST a text, or, where body is NULL, the picture. */
static void post(const char *path, const char *body, const char *key, struct reply *r)
{
    const char *const headers[] = {key, NULL};
    const struct request q = {.path = path,
                              .type = body != NULL && body[0] == '{' ? "application/json" : NULL,
                              .body = body != NULL ? body : picture,
                              .size = body != NULL ? strlen(body) : picture_size,
                              .headers = key != NULL ? headers : NULL};
    client_call(&aftd, &q, r);
}

/* The answer is the model's: says its header, and its field if the answer has one. */
static void assert_answers(const char *path, const char *body, const char *key, const char *model)
{
    struct reply r;
    char value[128] = "none", field[160];
    post(path, body, key, &r);
    if (r.status != 200 && r.status != 201)
        fail_msg("%s: %ld %s", path, r.status, r.body);
    (void)reply_header(&r, "X-Model", value, sizeof value);
    if (strcmp(value, model) != 0)
        fail_msg("%s: X-Model is %s, expected %s", path, value, model);
    assert_null(strstr(strstr(r.headers, "X-Model:") + 1, "X-Model:")); /* once */
    (void)snprintf(field, sizeof field, "\"model\":\"%s\"", model);
    if (strstr(r.body, "\"model\":") != NULL && strstr(r.body, field) == NULL)
        fail_msg("%s: expected %s: %s", path, field, r.body);
    reply_clear(&r);
}

#define PROMPT "{\"prompt\": \"x\", \"max_tokens\": 2}"
#define STREAM "{\"prompt\": \"x\", \"max_tokens\": 2, \"stream\": true}"

/* The defaults of all tasks that the models that ship have. */
static void assert_defaults(const char *classifier, const char *writer, const char *painter)
{
    struct reply r;
    assert_answers("/classify", NULL, NULL, classifier);
    assert_answers("/classify", "{\"text\": \"abc\"}", NULL, LABELS);
    assert_answers("/explain", NULL, NULL, classifier);
    assert_answers("/generate", PROMPT, NULL, writer);
    assert_answers("/v1/completions", PROMPT, NULL, writer);
    assert_answers("/score", "{\"text\": \"abc\"}", NULL, writer);
    assert_answers("/v1/embeddings", "{\"input\": \"abc\"}", NULL, writer);
    assert_answers("/score", NULL, NULL, painter);
    assert_answers("/complete?rows=15", NULL, NULL, painter);
    assert_answers("/v1/sessions", "{\"prompt\": \"x\"}", NULL, writer);
    assert_answers("/v1/compress", "abc", NULL, writer);
    post("/generate", STREAM, NULL, &r);
    assert_non_null(strstr(r.body, writer));
    reply_clear(&r);
}

/* The names of /v1/models that have "default": true, with a space behind each. */
static const char *marked(const char *key)
{
    static char names[256];
    const char *const headers[] = {key, NULL};
    struct reply r;
    size_t i;
    json_t *model;
    client_call(&aftd, &(struct request){.path = "/v1/models", .headers = key != NULL ? headers : NULL}, &r);
    json_t *all = reply_json(&r);
    names[0] = '\0';
    json_array_foreach(json_object_get(all, "data"), i, model)
    {
        const json_t *is = json_object_get(model, "default");
        assert_true(is == NULL || json_is_true(is));
        if (is != NULL)
            (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s ",
                           json_string_value(json_object_get(model, "id")));
    }
    json_decref(all);
    reply_clear(&r);
    return names;
}

static void the_models_that_ship_answer_requests_that_name_none(void **state)
{
    struct reply r;
    (void)state;
    daemon_start(&aftd, (const char *const[]){SHIPPED, SMALL, NULL});
    assert_defaults(CONV, TEXT, PIXELS);
    assert_string_equal(marked(NULL), CONV " " PIXELS " " TEXT " " LABELS " ");
    client_get(&aftd, "/v1/models/" SIMA, &r);
    assert_null(strstr(r.body, "\"default\""));
    reply_clear(&r);
    client_get(&aftd, "/v1/models/" TEXT, &r);
    assert_non_null(strstr(r.body, "\"default\":true"));
    reply_clear(&r);
    daemon_stop(&aftd);
}

static void the_setting_chooses_for_each_task(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){SHIPPED, SMALL, "--default-models=" TEXT "," SIMA "," CONV, NULL});
    assert_defaults(SIMA, TEXT, PIXELS);
    assert_string_equal(marked(NULL), PIXELS " " SIMA " " TEXT " " LABELS " ");
    daemon_stop(&aftd);
}

static void keys_have_the_defaults_among_their_models(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 16], conv[KEYS_TEXT_MAX], all[KEYS_TEXT_MAX], text[KEYS_TEXT_MAX];
    char by_conv[KEYS_TEXT_MAX + 16], by_all[KEYS_TEXT_MAX + 16], by_text[KEYS_TEXT_MAX + 16];
    struct reply r;
    (void)state;
    temp_path(file, dir, "keys.json");
    keys_add(file, "conv", (const char *const[]){"--models", CONV "," PIXELS, NULL}, conv);
    keys_add(file, "text", (const char *const[]){"--models", TEXT, NULL}, text);
    keys_add(file, "all", NULL, all);
    (void)snprintf(by_conv, sizeof by_conv, "X-API-Key: %s", conv);
    (void)snprintf(by_text, sizeof by_text, "X-API-Key: %s", text);
    (void)snprintf(by_all, sizeof by_all, "X-API-Key: %s", all);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    daemon_start(&aftd, (const char *const[]){SHIPPED, SMALL, flag, ("--default-models=" SIMA), NULL});
    assert_answers("/classify", NULL, by_all, SIMA);
    assert_answers("/classify", NULL, by_conv, CONV);
    assert_answers("/generate", PROMPT, by_text, TEXT);
    assert_string_equal(marked(by_all), PIXELS " " SIMA " " TEXT " " LABELS " ");
    assert_string_equal(marked(by_conv), CONV " " PIXELS " ");
    assert_string_equal(marked(by_text), TEXT " ");
    post("/classify", NULL, by_text, &r);
    reply_assert_error(&r, 400, "invalid_value", "model",
                       "none of the models that the key \"text\" may use is for this");
    reply_clear(&r);
    daemon_stop(&aftd);
}

static void write_config(const char *path, const char *defaults)
{
    char text[512];
    const int size = snprintf(text, sizeof text, "{\"default_models\": \"%s\"}", defaults);
    temp_write(path, text, (size_t)size);
}

static void a_reload_takes_the_setting_over(void **state)
{
    char path[PATH_MAX], flag[PATH_MAX + 16];
    (void)state;
    temp_path(path, dir, "aftd.json");
    (void)snprintf(flag, sizeof flag, "--config=%s", path);
    write_config(path, "off");
    daemon_start(&aftd, (const char *const[]){SHIPPED, SMALL, flag, NULL});
    assert_answers("/classify", NULL, NULL, CONV);
    write_config(path, SIMA);
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, "\"changed\":[\"default_models\"],\"restart\":[]");
    assert_answers("/classify", NULL, NULL, SIMA);
    write_config(path, CONV ",gone");
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, "nothing has changed: default_models names \"gone\", which is no model here");
    assert_answers("/classify", NULL, NULL, SIMA);
    daemon_stop(&aftd);
}

static void a_name_that_no_model_has_keeps_it_from_starting(void **state)
{
    static const char *const wrong[] = {"--default-models=gone", ("--default-models=" CONV ",gone"),
                                        ("--default-models=" CONV ",")};
    char program[PATH_MAX];
    (void)state;
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct program_case c = {wrong[i], {wrong[i], SHIPPED, "--models-lazy=true", "--listen-port=0"},
                                       NULL,     2,
                                       "",       "which is no model here; expected names of models"};
        program_expect(program, &c, 1);
    }
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_models_that_ship_answer_requests_that_name_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_setting_chooses_for_each_task, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_have_the_defaults_among_their_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reload_takes_the_setting_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_name_that_no_model_has_keeps_it_from_starting, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
