/* test_config_models.c - the setting model: a flag that adds up if it is repeated, and what it means for models_dir. */
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static char dir[PATH_MAX], path[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "aftd.json");
    return 0;
}

/* By a file, a variable (NULL: none) and up to 3 flags. */
static enum status load(struct config *ret, const char *json, const char *variable, const char *const args[3],
                        struct error *err)
{
    char texts[4][64], *argv[] = {(char[]){"aftd"}, (char[]){"--config"}, path, texts[0], texts[1], texts[2]};
    char *envp[] = {variable != NULL ? texts[3] : NULL, NULL};
    int argc = 3;
    temp_write(path, json, strlen(json));
    for (size_t i = 0; i < 3 && args[i] != NULL; i++, argc++)
        (void)snprintf(texts[i], sizeof texts[i], "%s", args[i]);
    (void)snprintf(texts[3], sizeof texts[3], "%s", variable != NULL ? variable : "");
    return config_load(ret, argc, argv, envp, NULL, NULL, err);
}

/* Whoever names models means these, unless models_dir is given as well. */
static void models_add_up_and_replace_the_default_folder(void **state)
{
    static const struct {
        const char *json, *variable, *args[3], *model, *models_dir;
    } cases[] = {
        {"{}", NULL, {NULL}, "off", "weights/models"},
        {"{}", NULL, {"--model=a=/x"}, "a=/x", "off"},
        {"{}", NULL, {"--model=a=/x", "--model", "/y/b"}, "a=/x,/y/b", "off"},
        {"{}", NULL, {"--model=a=/x", "--model=b", "--model=c,d"}, "a=/x,b,c,d", "off"},
        {"{\"model\": \"f\"}", NULL, {NULL}, "f", "off"},
        {"{\"model\": \"f\"}", "AFTD_MODEL=e", {NULL}, "e", "off"},
        {"{\"model\": \"f\"}", NULL, {"--model=a", "--model=b"}, "a,b", "off"},
        {"{}", NULL, {"--model=a", "--models-dir=weights/models"}, "a", "weights/models"},
        {"{\"models_dir\": \"m\"}", NULL, {"--model=a"}, "a", "m"},
        {"{\"models_dir\": \"m\"}", NULL, {"--model=off"}, "off", "m"},
        {"{}", NULL, {"--models-dir=off"}, "off", "off"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config c;
        struct error err;
        assert_int_equal(load(&c, cases[i].json, cases[i].variable, cases[i].args, &err), OK);
        assert_string_equal(c.settings.model, cases[i].model);
        assert_string_equal(c.settings.models_dir, cases[i].models_dir);
    }
}

static void more_models_than_a_text_can_name_are_refused(void **state)
{
    char half[SETTING_TEXT_MAX / 2 + 1];
    (void)state;
    struct config c;
    struct error err;
    memset(half, 'a', sizeof half - 1);
    half[sizeof half - 1] = '\0';
    char *argv[] = {(char[]){"aftd"}, (char[]){"--model"}, half, (char[]){"--model"}, half, NULL, NULL};
    char *const none[] = {NULL};
    assert_int_equal(config_load(&c, 5, argv, none, NULL, NULL, &err), OK);
    assert_int_equal(strlen(c.settings.model), SETTING_TEXT_MAX);
    argv[5] = (char[]){"--model"};
    argv[6] = (char[]){"b"};
    assert_int_equal(config_load(&c, 7, argv, none, NULL, NULL, &err), ERR_CONFIG);
    assert_string_equal(err.param, "model");
    assert_non_null(strstr(err.message, "model = \"aaaaaaaa")); /* its beginning, of many bytes */
    assert_non_null(strstr(err.message, "aaaaaaaa...: expected 1 to 1023 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_add_up_and_replace_the_default_folder),
        cmocka_unit_test(more_models_than_a_text_can_name_are_refused),
    };
    return cmocka_run_group_tests_name("config_models", tests, set_up, temp_dirs_end);
}
