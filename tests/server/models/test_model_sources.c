/* test_model_sources.c - models from two places: the folder of models, and folders that are models themselves. */
#include "config/settings.h"
#include "server/models/model_sources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LONGEST "a234567890123456789012345678901234567890123456789012345678901234" /* MODEL_NAME_MAX bytes */

static char dir[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static void make_folder(const char *name)
{
    char path[PATH_MAX];
    temp_path(path, dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* A folder with a config.json, which is not looked into. */
static void make_model(const char *name)
{
    char path[PATH_MAX], file[PATH_MAX];
    make_folder(name);
    (void)snprintf(file, sizeof file, "%.1000s/config.json", name);
    temp_path(path, dir, file);
    temp_write(path, "", 0);
}

/* Settings in which {} stands for the test's folder. */
static struct settings settings_of(const char *model, const char *models_dir)
{
    struct settings s;
    const char *const texts[] = {model, models_dir};
    char *const to[] = {s.model, s.models_dir};
    settings_init(&s);
    for (size_t i = 0; i < 2; i++) {
        size_t used = 0;
        to[i][0] = '\0';
        for (const char *at = texts[i]; *at != '\0';) {
            const bool here = strncmp(at, "{}", 2) == 0;
            used +=
                (size_t)snprintf(to[i] + used, SETTING_TEXT_MAX + 1 - used, "%.*s", here ? 1000 : 1, here ? dir : at);
            at += here ? 2 : 1;
        }
    }
    return s;
}

/* "a=a b=x/3": each model's name and folder, in the order of the list. */
static void expect_scan(const char *model, const char *models_dir, const char *want)
{
    const struct settings s = settings_of(model, models_dir);
    struct found_model *all = NULL, one;
    struct error err = {.message = ""};
    size_t count = 0;
    char got[1024] = "";
    if (model_sources_scan(&all, &count, &s, false, &err) != OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(strncmp(all[i].path, dir, strlen(dir)), 0);
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s=%s", i > 0 ? " " : "", all[i].name,
                       all[i].path + strlen(dir) + 1);
        assert_int_equal(model_sources_find(&one, &s, all[i].name, NULL), OK);
        assert_string_equal(one.path, all[i].path);
        assert_int_equal(one.version, all[i].version);
        assert_memory_equal(one.print, all[i].print, sizeof one.print);
    }
    assert_string_equal(got, want);
    free(all);
}

static void expect_refusal(const char *model, const char *models_dir, const char *says)
{
    const struct settings s = settings_of(model, models_dir);
    struct found_model *all = NULL;
    struct error err = {.message = ""};
    size_t count = 0;
    if (model_sources_scan(&all, &count, &s, false, &err) != ERR_CONFIG || strstr(err.message, says) == NULL)
        fail_msg("%s, %s: \"%s\", expected \"%s\"", model, models_dir, err.message, says);
}

/* ---- the setting ------------------------------------------------------------------------------------------------ */

static void a_list_has_names_and_paths(void **state)
{
#define FORM "expected NAME=PATH, or PATH whose last part is the name: 1 to 64 letters, digits, '.', '_' and '-', the "
    static const char *const right[] = {"a=/x",
                                        "/x/a",
                                        "a",
                                        "a/",
                                        "/a//",
                                        "x/a=b/c",
                                        "a=b=c",
                                        "a=.",
                                        "a=..",
                                        "a=/",
                                        (LONGEST "=x"),
                                        ("x/" LONGEST),
                                        "a=/x, b=/x ,c",
                                        "a= b",
                                        "a=my models/pets"};
    static const struct {
        const char *list, *wrong;
    } wrong[] = {
        {"", ""},
        {"a=", "a="},
        {"=x", "=x"},
        {"a,", ""},
        {"/", "/"},
        {".", "."},
        {"x/..", "x/.."},
        {".a=x", ".a=x"},
        {"x/.a", "x/.a"},
        {"a b=x", "a b=x"},
        {"x/a b", "x/a b"},
        {"x/a=b", "x/a=b"},
        {LONGEST "5=x", LONGEST "5=x"},
        {"a=x,\xc3\xa4=x", "\xc3\xa4=x"},
    };
    struct settings s;
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        s = settings_of(right[i], "off");
        if (model_sources_check(&s, &err) != OK)
            fail_msg("\"%s\": %s", right[i], err.message);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char want[ERROR_MESSAGE_MAX];
        (void)snprintf(want, sizeof want, "model has \"%s\"; " FORM, wrong[i].wrong);
        s = settings_of(wrong[i].list, "off");
        if (model_sources_check(&s, &err) != ERR_CONFIG || strncmp(err.message, want, strlen(want)) != 0)
            fail_msg("\"%s\": %s", wrong[i].list, err.message);
        assert_string_equal(err.param, "model");
    }
}

static void names_are_given_once(void **state)
{
    static const char *const twice[] = {"a=x,b=y,a=z", "a,x/a/", "a=x,a=x"};
    struct settings s;
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(twice); i++) {
        s = settings_of(twice[i], "off");
        assert_int_equal(model_sources_check(&s, &err), ERR_CONFIG);
        assert_string_equal(err.message, "model names \"a\" twice; expected each name once");
    }
}

static void one_of_the_settings_says_something(void **state)
{
    struct settings s = settings_of("off", "off");
    struct error err;
    (void)state;
    assert_int_equal(model_sources_check(&s, &err), ERR_CONFIG);
    assert_string_equal(err.message, "models_dir and model are both off: expected at least one");
    s = settings_of("off", "m");
    assert_int_equal(model_sources_check(&s, &err), OK);
}

/* ---- what is there ---------------------------------------------------------------------------------------------- */

static void folders_are_models_by_the_name_given_or_their_own(void **state)
{
    (void)state;
    make_model("x");
    make_model("my model");
    make_folder("v");
    make_model("v/9");
    make_model("v/10");
    make_folder("m");
    make_model("m/b");
    make_model("m/z");
    expect_scan("{}/x", "off", "x=x");
    expect_scan("{}/x/", "off", "x=x");
    expect_scan("y={}/x,c={}/my model, {}/v", "off", "c=my model v=v/10 y=x");
    expect_scan("off", "{}/m", "b=m/b z=m/z");
    expect_scan("{}/x,a={}/v", "{}/m", "a=v/10 b=m/b x=x z=m/z");
}

static void names_in_both_places_are_refused(void **state)
{
    (void)state;
    make_model("x");
    make_folder("m");
    make_model("m/b");
    expect_refusal("b={}/x", "{}/m", "\"b\" is the name of two models: ");
    expect_refusal("b={}/x", "{}/m", "expected another name before the '=' in the setting");
    expect_scan("c={}/x", "{}/m", "b=m/b c=x");
}

static void folders_that_are_gone_are_left_out_unless_all_are(void **state)
{
    (void)state;
    make_model("x");
    make_folder("empty");
    make_folder("m");
    expect_scan("{}/x,{}/gone,{}/empty", "off", "x=x");
    expect_refusal("{}/gone,{}/empty", "off", "there is no model in any of these folders");
    expect_refusal("{}/x", "{}/m", "no subfolder has a config.json");
}

static void no_more_than_can_be_served_are_found(void **state)
{
    (void)state;
    make_model("x");
    make_folder("m");
    for (int i = 0; i < REGISTRY_MODELS_MAX; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "m/n%d", i);
        make_model(name);
    }
    expect_refusal("one-more={}/x", "{}/m", ": more than 256 models");
}

static void what_must_be_there_is_named(void **state)
{
    struct found_model *all = NULL;
    size_t count;
    struct settings s;
    struct error err;
    (void)state;
    make_model("x");
    make_folder("empty");
    make_folder("m");
    make_model("m/b");
    s = settings_of("{}/x", "off");
    assert_int_equal(model_sources_scan(&all, &count, &s, true, &err), OK);
    free(all);
    s = settings_of("off", "{}/m");
    assert_int_equal(model_sources_scan(&all, &count, &s, true, &err), OK);
    free(all);
    s = settings_of("{}/x,pets={}/gone", "off");
    assert_int_equal(model_sources_scan(&all, &count, &s, true, &err), ERR_IO);
    assert_non_null(strstr(err.message, "model pets = "));
    assert_non_null(strstr(err.message, "/gone: No such file or directory"));
    s = settings_of("{}/x,{}/empty", "off");
    assert_int_equal(model_sources_scan(&all, &count, &s, true, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "model empty = "));
    assert_non_null(strstr(err.message, "expected a folder with a config.json, or with versions"));
}

static void one_is_found_in_the_place_that_names_it(void **state)
{
    struct found_model m;
    struct settings s;
    struct error err;
    (void)state;
    make_model("x");
    make_folder("m");
    make_model("m/b");
    s = settings_of("y={}/x,gone={}/gone", "{}/m");
    assert_int_equal(model_sources_find(&m, &s, "x", &err), ERR_NOT_FOUND);
    assert_string_equal(err.message, "there is no model \"x\" in models_dir or model");
    assert_int_equal(model_sources_find(&m, &s, "gone", &err), ERR_NOT_FOUND);
    assert_string_equal(err.message, "there is no model \"gone\" in models_dir or model");
    s = settings_of("y={}/x", "off");
    assert_int_equal(model_sources_find(&m, &s, "b", &err), ERR_NOT_FOUND);
    assert_string_equal(err.message, "there is no model \"b\" in models_dir or model");
    assert_string_equal(err.param, "model");
}

static void one_is_found_by_its_name_alone(void **state)
{
    static const char *const none[] = {"b", "", ".", "..", ".begun", "a/3", "../a", "a ", "A"};
    const struct settings s = settings_of("off", "{}");
    struct found_model m;
    struct error err;
    (void)state;
    make_folder("a");
    make_model("a/3");
    make_model(".begun");
    assert_int_equal(model_sources_find(&m, &s, "a", NULL), OK);
    assert_string_equal(m.name, "a");
    assert_int_equal(m.version, 3);
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        char want[256];
        (void)snprintf(want, sizeof want, "there is no model \"%s\" in models_dir or model", none[i]);
        assert_int_equal(model_sources_find(&m, &s, none[i], &err), ERR_NOT_FOUND);
        assert_string_equal(err.message, want);
        assert_string_equal(err.param, "model");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_names_and_paths),
        cmocka_unit_test(names_are_given_once),
        cmocka_unit_test(one_of_the_settings_says_something),
        cmocka_unit_test_setup_teardown(folders_are_models_by_the_name_given_or_their_own, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(one_is_found_by_its_name_alone, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(names_in_both_places_are_refused, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(folders_that_are_gone_are_left_out_unless_all_are, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(no_more_than_can_be_served_are_found, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(what_must_be_there_is_named, set_up, temp_dirs_end),
        cmocka_unit_test_setup_teardown(one_is_found_in_the_place_that_names_it, set_up, temp_dirs_end),
    };
    return cmocka_run_group_tests_name("model_sources", tests, NULL, NULL);
}
