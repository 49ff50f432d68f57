/* test_models.c - aft models: what is in the folders of models, by name, and which of them cannot be. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

static const char text_model[] = "tests/data/golden/lm-local-8";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_MODELS_DIR", "", 1), 0); /* counts as not set */
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
    temp_dir_create(dir);
    return 0;
}

static void write_model(const char *parent, const char *name, const char *version)
{
    char folder[PATH_MAX], below[PATH_MAX];
    struct model_copy m;
    temp_path(folder, parent, name);
    (void)mkdir(folder, 0700);
    (void)snprintf(below, sizeof below, "%.2000s%s", folder, version);
    (void)mkdir(below, 0700);
    model_copy_read(&m, text_model);
    model_copy_write(&m, below);
    model_copy_clear(&m);
}

/* The object of the model NAME among the lines of `out`; NULL: there is none. */
static json_t *find(const char *out, const char *name)
{
    for (const char *line = out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        assert_true(json_is_object(object));
        if (strcmp(json_string_value(json_object_get(object, "model")), name) == 0)
            return object;
        json_decref(object);
    }
    return NULL;
}

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void shipped_models_are_listed(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"a table", {"models"}, NULL, 0, "\nenwik8-aft-conv           -  text-generation ", ""},
        {"of a folder", {"models", "weights/models"}, NULL, 0, "  weights/models/cifar10-sima\n", ""},
    };
    program_expect(aft, cases, 2);
    struct program_run p = {.argv = {aft, "models", "--json", "--precision", "auto"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    json_t *m = find(p.out, "cifar10-aft-conv");
    assert_string_equal(text(m, "task"), "image-classification");
    assert_string_equal(text(m, "mixer"), "aft-conv");
    assert_string_equal(text(m, "path"), "weights/models/cifar10-aft-conv");
    assert_true(json_is_null(json_object_get(m, "version")));
    assert_true(json_integer_value(json_object_get(m, "file_bytes")) > 0);
    struct program_run inspect = {.argv = {aft, "inspect", "cifar10-aft-conv", "--json", "--precision", "auto"}};
    program_run(&inspect); /* knows the same by loading it */
    json_t *loaded = json_loads(inspect.out, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(m, "parameters")),
                     json_integer_value(json_object_get(loaded, "parameters")));
    assert_string_equal(text(m, "precision"), text(loaded, "precision"));
    json_decref(loaded);
    json_decref(m);
    program_run_clear(&inspect);
    program_run_clear(&p);
}

/* The latest version counts, a name that is found elsewhere first is listed once, and what is broken is told while the
 * others are listed. */
static void names_are_those_that_other_verbs_find(void **state)
{
    (void)state;
    char own[PATH_MAX], config[PATH_MAX], path[PATH_MAX];
    temp_path(own, dir, "models");
    assert_int_equal(mkdir(own, 0700), 0);
    write_model(own, "versioned", "/3");
    write_model(own, "versioned", "/12");
    write_model(own, "enwik8-aft-conv", "");
    write_model(own, "broken", "");
    temp_path(path, own, "broken");
    temp_path(config, path, "config.json");
    temp_write(config, "{", 1);
    assert_int_equal(setenv("AFTD_MODELS_DIR", own, 1), 0);
    struct program_run p = {.argv = {aft, "models", "--json"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_non_null(strstr(p.err, "broken/config.json"));
    json_t *versioned = find(p.out, "versioned"), *first = find(p.out, "enwik8-aft-conv");
    assert_int_equal(json_integer_value(json_object_get(versioned, "version")), 12);
    assert_string_equal(text(versioned, "precision"), "f32"); /* nobody has measured it */
    assert_int_equal(strncmp(text(first, "path"), own, strlen(own)), 0);
    assert_null(find(p.out, "broken"));
    const char *again = strstr(p.out, "\"model\": \"enwik8-aft-conv\"");
    assert_null(strstr(again + 1, "\"model\": \"enwik8-aft-conv\""));
    json_decref(versioned);
    json_decref(first);
    assert_int_equal(setenv("AFTD_MODELS_DIR", "", 1), 0); /* counts as not set */
    program_run_clear(&p);
}

static void folders_without_models_are_named(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"no such folder", {"models", "/no/such"}, NULL, 1, "", "/no/such: No such file or directory"},
        {"none in it", {"models", "tests"}, NULL, 1, "", "tests: no subfolder has a config.json"},
        {"the others are listed", {"models", "/no/such", "weights/models"}, NULL, 1, "cifar10-sima", "/no/such"},
    };
    program_expect(aft, cases, 3);
    assert_int_equal(setenv("AFTD_MODELS_DIR", "/no/such", 1), 0);
    static const struct program_case set[] = {{"the environment's", {"models"}, NULL, 1, "cifar10-sima", "/no/such"}};
    program_expect(aft, set, 1);
    assert_int_equal(setenv("AFTD_MODELS_DIR", "", 1), 0); /* counts as not set */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_models_are_listed),
        cmocka_unit_test(names_are_those_that_other_verbs_find),
        cmocka_unit_test(folders_without_models_are_named),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
