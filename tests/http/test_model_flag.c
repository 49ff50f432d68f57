/* test_model_flag.c - folders that are models themselves, given by --model: served under their names like those of
 * models_dir, ready for the Open Inference Protocol, reloaded, unloaded, with versions; and aliases. The real
 * daemon. */
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
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define TEXT_A GOLDEN "lm-local-8"
#define TEXT_B GOLDEN "lm-local-no-global"
#define PICTURE GOLDEN "conv-heads8-k5"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580 };

/* Start with `flags`, in which {} stands for the test's folder. */
static void start(const char *const flags[])
{
    static char texts[8][PATH_MAX];
    const char *all[16] = {"--admin-address=127.0.0.1", "--admin-port=0", "--streams-max=8", "--picture-tokens-max=64"};
    size_t count = 4;
    for (size_t i = 0; flags[i] != NULL; i++) {
        const char *here = strstr(flags[i], "{}");
        assert_true(i < ARRAY_LEN(texts));
        const size_t before = here != NULL ? (size_t)(here - flags[i]) : strlen(flags[i]);
        assert_true(before < sizeof texts[i] / 2);
        memcpy(texts[i], flags[i], before);
        (void)snprintf(texts[i] + before, sizeof texts[i] / 2, "%.1500s%s", here != NULL ? models_folder : "",
                       here != NULL ? here + 2 : "");
        all[count++] = texts[i];
    }
    daemon_start(&administered, all);
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

/* ---- --model ---------------------------------------------------------------------------------------------------- */

static void a_folder_is_served_under_the_name_given_or_its_own(void **state)
{
    (void)state;
    model_folder_put(models_folder, "not a name", TEXT_A);
    model_folder_put(models_folder, "own", TEXT_B);
    start((const char *const[]){"--models-dir=off", "--model=pets={}/not a name", "--model", "{}/own/", NULL});
    expect("/v2/models/pets/ready", NULL, NULL, 200, "{\"name\":\"pets\",\"ready\":true}");
    expect("/v2/models/own/ready", NULL, NULL, 200, "{\"name\":\"own\",\"ready\":true}");
    expect("/v2/models/cifar10-aft-conv/ready", NULL, NULL, 404, "loaded models: own, pets");
    expect("/v1/models/pets", NULL, NULL, 200, "\"id\":\"pets\"");
    expect("/generate", "{\"model\": \"pets\", \"max_tokens\": 1}", NULL, 200, "\"model\":\"pets\"");
    expect("/metrics", NULL, NULL, 200, "aftd_model_info{model=\"pets\"");
    daemon_stop(&administered);
}

static void both_places_serve_where_both_are_given(void **state)
{
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    start((const char *const[]){"--models-dir=tests/data/models", "--model=pets={}/one", NULL});
    expect("/v2/models/pets/ready", NULL, NULL, 200, "true");
    expect("/v2/models/cifar10-aft-conv/ready", NULL, NULL, 200, "true");
    daemon_stop(&administered);
}

static void such_models_change_like_the_others(void **state)
{
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    model_folder_put(models_folder, "two", TEXT_B);
    start((const char *const[]){"--models-dir=off", "--model=x={}/one", "--model={}/two", NULL});
    char *a = model_text("x"), *b = model_text("two");
    assert_string_not_equal(a, b);
    assert_string_equal(admin_reload(), "unchanged two, unchanged x");
    model_folder_put(models_folder, "one", TEXT_B);
    assert_string_equal(admin_reload(), "reloaded x, unchanged two");
    model_assert_writes("x", b);
    model_folder_break(models_folder, "one", TEXT_A, MODEL_TRUNCATED);
    assert_string_equal(admin_reload(), "unchanged two, failed x");
    model_assert_writes("x", b);
    model_folder_put(models_folder, "one", TEXT_A);
    admin_act_well("x", "reload");
    model_assert_writes("x", a);
    admin_act_well("x", "unload");
    model_assert_error("x", 404, "not_found", "loaded models: two");
    assert_string_equal(admin_reload(), "unchanged two, unchanged x");
    admin_act_well("x", "load");
    model_assert_writes("x", a);
    admin_act_badly("one", "load", 404, "not_found", "there is no model \"one\" in models_dir or model");
    model_folder_drop(models_folder, "one");
    assert_string_equal(admin_reload(), "unloaded x, unchanged two");
    model_folder_put(models_folder, "one", TEXT_A);
    assert_string_equal(admin_reload(), "loaded x, unchanged two");
    free(a);
    free(b);
    daemon_stop(&administered);
}

static void all_of_them_gone_at_once_changes_nothing(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    start((const char *const[]){"--models-dir=off", "--model=x={}/one", NULL});
    model_folder_drop(models_folder, "one");
    admin_post("/admin/config/reload", "", &r);
    reply_assert_error(&r, 422, "file_refused", NULL, "there is no model in any of these folders");
    reply_clear(&r);
    assert_string_equal(admin_state_of("x"), "loaded");
    daemon_stop(&administered);
}

static void the_highest_version_in_it_is_served(void **state)
{
    char path[PATH_MAX];
    (void)state;
    model_folder_put(models_folder, "many", TEXT_A); /* makes the folder, which from here on has only versions */
    model_folder_put(models_folder, "many/1", TEXT_A);
    model_folder_put(models_folder, "many/2", TEXT_B);
    temp_path(path, models_folder, "many/config.json");
    assert_int_equal(remove(path), 0);
    start((const char *const[]){"--models-dir=off", "--model=x={}/many", NULL});
    expect("/v2/models/x/versions/2/ready", NULL, NULL, 200, "true");
    expect("/v2/models/x/versions/1/ready", NULL, NULL, 404, "expected 2");
    expect("/v1/models/x@2", NULL, NULL, 200, "\"version\":2");
    model_folder_put(models_folder, "many/3", TEXT_A);
    assert_string_equal(admin_reload(), "reloaded x");
    expect("/v1/models/x@3", NULL, NULL, 200, "\"version\":3");
    daemon_stop(&administered);
}

static void it_may_wait_until_it_is_asked_for(void **state)
{
    (void)state;
    model_folder_put(models_folder, "one", TEXT_A);
    start((const char *const[]){"--models-dir=off", "--model=x={}/one", "--models-lazy=true", NULL});
    assert_string_equal(admin_state_of("x"), "idle");
    expect("/v2/models/x/ready", NULL, NULL, 503, "is being loaded");
    for (const int64_t end = test_now_ms() + HANG_MS; strcmp(admin_state_of("x"), "loaded") != 0;) {
        assert_true(test_now_ms() < end);
        test_sleep_ms(2);
    }
    expect("/v2/models/x/ready", NULL, NULL, 200, "true");
    daemon_stop(&administered);
}

static void what_cannot_be_served_is_said_at_the_start(void **state)
{
    char empty[PATH_MAX + 16], same[PATH_MAX + 32], program[PATH_MAX];
    (void)state;
    (void)snprintf(empty, sizeof empty, "--model=x=%s", models_folder);
    (void)snprintf(same, sizeof same, "--model=enwik8-aft-local=%s", TEXT_A);
    const struct program_case cases[] = {
        {"no folder", {"--listen-port=0", "--model=x=/no/such"}, NULL, 1, "", "model x = /no/such: No such file"},
        {"no model", {"--listen-port=0", empty}, NULL, 2, "", "expected a folder with a config.json"},
        {"no name", {"--listen-port=0", "--model=."}, NULL, 2, "", "expected NAME=PATH"},
        {"a name twice", {"--listen-port=0", "--model=x=/a", "--model=x=/b"}, NULL, 2, "", "names \"x\" twice"},
        {"a name in both places",
         {"--listen-port=0", "--models-lazy=true", "--models-dir=tests/data/models", same},
         NULL,
         2,
         "",
         "\"enwik8-aft-local\" is the name of two models: "},
        {"nothing", {"--listen-port=0", "--models-dir=off"}, NULL, 2, "", "models_dir and model are both off"},
        {"an alias of nothing",
         {"--listen-port=0", "--models-lazy=true", "--model=" TEXT_A, "--aliases=x=y"},
         NULL,
         2,
         "",
         "aliases has \"x=y\"; expected the name of a model"},
        {"an alias that is a model",
         {"--listen-port=0", "--models-lazy=true", "--model=" TEXT_A, "--aliases=lm-local-8=lm-local-8"},
         NULL,
         2,
         "",
         "expected an alias that is no model's name"},
    };
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    program_expect(program, cases, ARRAY_LEN(cases));
}

/* ---- aliases ---------------------------------------------------------------------------------------------------- */

static void an_alias_does_in_the_place_of_the_name(void **state)
{
    static const struct {
        const char *path, *body;
        long status;
        const char *says;
    } cases[] = {
        {"/v1/completions", "{\"model\": \"gpt-4o-mini\", \"prompt\": \"a\"}", 200, "\"model\":\"text\""},
        {"/v1/completions", "{\"model\": \"gpt-4o-mini@1\", \"prompt\": \"a\"}", 200, "\"model\":\"text\""},
        {"/v1/completions", "{\"model\": \"gpt-4o-mini@2\", \"prompt\": \"a\"}", 404, "expected text or text@1"},
        {"/v1/completions", "{\"model\": \"GPT-4o-mini\", \"prompt\": \"a\"}", 404, "loaded models: picture, text"},
        {"/generate", "{\"model\": \"second\", \"max_tokens\": 1}", 200, "\"model\":\"text\""},
        {"/v1/sessions", "{\"model\": \"second\"}", 201, "\"model\":\"text\""},
        {"/score", "{\"model\": \"second\", \"text\": \"abc\"}", 200, "\"model\":\"text\""},
        {"/v1/compress?model=second", "abc", 200, "aftz"},
        {"/explain?view=biases&model=seer", "", 200, "PNG"},
        {"/classify?model=second", "x", 400, "is for text-generation"},
        {"/v1/models/gpt-4o-mini", NULL, 200, "\"id\":\"text\""},
        {"/v1/models/gpt-4o-mini@1", NULL, 200, "\"id\":\"text\""},
        {"/v1/models/gpt-4o-mini@2", NULL, 404, "there is no model"},
        {"/v1/models/text", NULL, 200, "\"aliases\":[\"gpt-4o-mini\",\"second\"]"},
        {"/v1/models", NULL, 200, "\"aliases\":[\"seer\"]"},
        {"/v2/models/second", NULL, 200, "\"name\":\"text\""},
        {"/v2/models/second/ready", NULL, 200, "\"ready\":true"},
        {"/v2/models/second/versions/1/ready", NULL, 200, "\"ready\":true"},
        {"/v2/models/third/ready", NULL, 404, "no model is named"},
    };
    (void)state;
    model_folder_put(models_folder, "text", TEXT_A);
    model_folder_put(models_folder, "picture", PICTURE);
    start((const char *const[]){"--models-dir={}", "--aliases=gpt-4o-mini=text, seer=picture,second=text", NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        expect(cases[i].path, cases[i].body, NULL, cases[i].status, cases[i].says);
    assert_true(client_metric(&administered, "aftd_requests_total{endpoint=\"/generate\",model=\"text\"") > 0);
    daemon_await_log(&administered, " model=text ");
    char *log = daemon_log(&administered);
    assert_null(strstr(log, "model=second"));
    free(log);
    admin_act_badly("second", "reload", 404, "not_found", "is not loaded");
    daemon_stop(&administered);
}

/* What a key may use is said in models' own names. */
static void keys_know_no_aliases(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], key[KEYS_TEXT_MAX], wrong[KEYS_TEXT_MAX];
    char by_text[KEYS_TEXT_MAX + 32], by_alias[KEYS_TEXT_MAX + 32];
    (void)state;
    model_folder_put(models_folder, "text", TEXT_A);
    model_folder_put(models_folder, "secret", TEXT_B);
    temp_path(file, models_folder, ".keys.json");
    keys_add(file, "text", (const char *const[]){"--models", "text", NULL}, key);
    keys_add(file, "alias", (const char *const[]){"--models", "hidden", NULL}, wrong);
    (void)snprintf(by_text, sizeof by_text, "X-API-Key: %s", key);
    (void)snprintf(by_alias, sizeof by_alias, "X-API-Key: %s", wrong);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    start((const char *const[]){"--models-dir={}", "--aliases=t=text,hidden=secret", flag, NULL});
    const char *const text[] = {by_text, NULL}, *const alias[] = {by_alias, NULL};
    expect("/generate", "{\"model\": \"t\", \"max_tokens\": 1}", text, 200, "\"model\":\"text\"");
    expect("/generate", "{\"model\": \"hidden\", \"max_tokens\": 1}", text, 403,
           "may not use the model \\\"hidden\\\"");
    expect("/generate", "{\"model\": \"hidden\", \"max_tokens\": 1}", alias, 403, "may not use the model");
    expect("/v1/models/hidden", NULL, text, 404, "there is no model");
    expect("/v1/models/hidden", NULL, alias, 404, "there is no model");
    daemon_stop(&administered);
}

static void write_config(const char *path, const char *aliases)
{
    char text[512];
    const int size = snprintf(text, sizeof text, "{\"aliases\": \"%s\"}", aliases);
    temp_write(path, text, (size_t)size);
}

static void a_reload_takes_aliases_over(void **state)
{
    char path[PATH_MAX];
    (void)state;
    model_folder_put(models_folder, "text", TEXT_A);
    temp_path(path, models_folder, ".aftd.json");
    write_config(path, "t=text");
    start((const char *const[]){"--models-dir={}", "--config={}/.aftd.json", NULL});
    expect("/v2/models/t/ready", NULL, NULL, 200, "true");
    write_config(path, "u=text,n=new");
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered, "nothing has changed: aliases has \"n=new\"; expected the name of a model");
    expect("/v2/models/t/ready", NULL, NULL, 200, "true");
    model_folder_put(models_folder, "new", TEXT_B); /* which the same reload loads */
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered, "\"changed\":[\"aliases\"],\"restart\":[]");
    expect("/v2/models/t/ready", NULL, NULL, 404, "no model");
    expect("/v2/models/u/ready", NULL, NULL, 200, "true");
    expect("/v2/models/n/ready", NULL, NULL, 200, "\"name\":\"new\"");
    model_folder_put(models_folder, "u", TEXT_B); /* a model goes before an alias of its name */
    admin_act_well("u", "load");
    expect("/v2/models/u/ready", NULL, NULL, 200, "\"name\":\"u\"");
    daemon_stop(&administered);
}

int main(void)
{
    test_limit_s(LIMIT_S);
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, administration_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_folder_is_served_under_the_name_given_or_its_own),
        TEST(both_places_serve_where_both_are_given),
        TEST(such_models_change_like_the_others),
        TEST(all_of_them_gone_at_once_changes_nothing),
        TEST(the_highest_version_in_it_is_served),
        TEST(it_may_wait_until_it_is_asked_for),
        TEST(what_cannot_be_served_is_said_at_the_start),
        TEST(an_alias_does_in_the_place_of_the_name),
        TEST(keys_know_no_aliases),
        TEST(a_reload_takes_aliases_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
