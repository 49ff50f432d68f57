/* test_model_names.c - the settings that say which models requests mean. */
#include "server/models/model_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/models/registry.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LONGEST "a234567890123456789012345678901234567890123456789012345678901234" /* MODEL_NAME_MAX bytes */

static struct registry *known;

/* Settings that find no model on the disk. */
static struct settings settings_of(const char *default_models, const char *aliases, const char *precision)
{
    struct settings s;
    settings_init(&s);
    (void)snprintf(s.models_dir, sizeof s.models_dir, "off");
    (void)snprintf(s.default_models, sizeof s.default_models, "%s", default_models);
    (void)snprintf(s.aliases, sizeof s.aliases, "%s", aliases);
    (void)snprintf(s.precision, sizeof s.precision, "%s", precision);
    return s;
}

static int set_up(void **state)
{
    static const char *const names[] = {"a", "b", LONGEST};
    (void)state;
    assert_int_equal(registry_create(&known), OK);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct found_model f = {.version = 0};
        (void)snprintf(f.name, sizeof f.name, "%s", names[i]);
        assert_int_equal(registry_put(known, &f, MODEL_IDLE, TASK_TEXT_GENERATION, NULL, NULL), OK);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    registry_free(known);
    return 0;
}

static void expect_right(const char *default_models, const char *aliases)
{
    const struct settings s = settings_of(default_models, aliases, "auto");
    struct error err;
    if (model_names_check(&s, known, &err) != OK)
        fail_msg("\"%s\", \"%s\": %s", default_models, aliases, err.message);
}

static void expect_wrong(const char *default_models, const char *aliases, const char *param, const char *says)
{
    const struct settings s = settings_of(default_models, aliases, "auto");
    struct error err = {.message = ""};
    if (model_names_check(&s, known, &err) != ERR_CONFIG || strcmp(err.message, says) != 0 ||
        strcmp(err.param, param) != 0)
        fail_msg("\"%s\", \"%s\": %s", default_models, aliases, err.message);
}

static void defaults_are_models_that_there_are(void **state)
{
    static const char *const right[] = {"off", "a", "b,a", " a , b ", "a,a", LONGEST};
    static const struct {
        const char *list, *wrong;
    } wrong[] = {{"x", "x"},       {"a,x", "x"}, {"", ""},       {"a,", ""},     {",a", ""},
                 {"a,off", "off"}, {"A", "A"},   {"a@1", "a@1"}, {"a b", "a b"}, {LONGEST "5", LONGEST "5"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++)
        expect_right(right[i], "off");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char want[ERROR_MESSAGE_MAX];
        (void)snprintf(want, sizeof want,
                       "default_models names \"%s\", which is no model here; expected names of models "
                       "separated by commas, or off",
                       wrong[i].wrong);
        expect_wrong(wrong[i].list, "off", "default_models", want);
    }
}

static void aliases_are_new_names_of_models_that_there_are(void **state)
{
#define FORM "expected ALIAS=NAME, both as models are named"
    static const char *const right[] = {"off", "x=a", "x=a , y=b", "gpt-4o-mini=a", &(LONGEST "=a")[1], "off=a"};
    static const struct {
        const char *list, *wrong, *why;
    } wrong[] = {
        {"", "", FORM},
        {"x", "x", FORM},
        {"x=", "x=", FORM},
        {"=a", "=a", FORM},
        {"x=a,", "", FORM},
        {"x/y=a", "x/y=a", FORM},
        {"x@1=a", "x@1=a", FORM},
        {"x y=a", "x y=a", FORM},
        {LONGEST "5=a", LONGEST "5=a", FORM},
        {"x=" LONGEST "5", "x=" LONGEST "5", FORM},
        {"b=a", "b=a", "expected an alias that is no model's name"},
        {"a=a", "a=a", "expected an alias that is no model's name"},
        {"x=c", "x=c", "expected the name of a model that is here"},
        {"y=x,x=a", "y=x", "expected the name of a model that is here"},
        {"x=a=b", "x=a=b", "expected the name of a model that is here"},
        {"x=a,y=b,x=b", "x=b", "expected each alias once"},
        {"x=a,x=a", "x=a", "expected each alias once"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++)
        expect_right("off", right[i]);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char want[ERROR_MESSAGE_MAX];
        (void)snprintf(want, sizeof want, "aliases has \"%s\"; %s", wrong[i].wrong, wrong[i].why);
        expect_wrong("off", wrong[i].list, "aliases", want);
    }
}

/* Before any is served: what is on the disk counts. */
static void models_on_the_disk_are_there_too(void **state)
{
    static const char *const wrong[] = {"bf16,golden=f32", "auto, =f32", "pixels-loca=f32", LONGEST "5=f32"};
    struct settings s = settings_of("pixels-local", "x=pixels-local", "bf16, pixels-local=f32,conv-heads8-k5=int8");
    struct error err;
    (void)state;
    (void)snprintf(s.models_dir, sizeof s.models_dir, "tests/data/golden");
    assert_int_equal(model_names_check(&s, NULL, &err), OK);
    assert_int_equal(model_names_check_precision(&s, &err), OK);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        (void)snprintf(s.precision, sizeof s.precision, "%s", wrong[i]);
        assert_int_equal(model_names_check_precision(&s, &err), ERR_CONFIG);
        assert_non_null(strstr(err.message, "which is no model here"));
        assert_string_equal(err.param, "precision");
    }
    (void)snprintf(s.default_models, sizeof s.default_models, "a");
    assert_int_equal(model_names_check(&s, NULL, &err), ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_models_that_there_are),
        cmocka_unit_test(aliases_are_new_names_of_models_that_there_are),
        cmocka_unit_test(models_on_the_disk_are_there_too),
    };
    return cmocka_run_group_tests_name("model_names", tests, set_up, tear_down);
}
