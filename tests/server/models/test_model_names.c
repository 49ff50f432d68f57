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

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LONGEST "a234567890123456789012345678901234567890123456789012345678901234" /* MODEL_NAME_MAX bytes */

static bool is_there(const void *arg, const char *name)
{
    const char *const *known = arg;
    for (; *known != NULL; known++)
        if (strcmp(*known, name) == 0)
            return true;
    return false;
}

static const char *const models[] = {"a", "b", LONGEST, NULL};

static void defaults_are_models_that_there_are(void **state)
{
    static const char *const right[] = {"off", "a", "b,a", " a , b ", "a,a", LONGEST};
    static const struct {
        const char *list, *wrong;
    } wrong[] = {{"x", "x"},       {"a,x", "x"}, {"", ""},       {"a,", ""},     {",a", ""},
                 {"a,off", "off"}, {"A", "A"},   {"a@1", "a@1"}, {"a b", "a b"}, {LONGEST "5", LONGEST "5"}};
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++)
        if (model_names_check_defaults(right[i], is_there, models, &err) != OK)
            fail_msg("\"%s\": %s", right[i], err.message);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char want[ERROR_MESSAGE_MAX];
        (void)snprintf(want, sizeof want,
                       "default_models names \"%s\", which is no model here; expected names of models "
                       "separated by commas, or off",
                       wrong[i].wrong);
        if (model_names_check_defaults(wrong[i].list, is_there, models, &err) != ERR_CONFIG ||
            strcmp(err.message, want) != 0 || strcmp(err.param, "default_models") != 0)
            fail_msg("\"%s\": %s", wrong[i].list, err.message);
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
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right); i++)
        if (model_names_check_aliases(right[i], is_there, models, &err) != OK)
            fail_msg("\"%s\": %s", right[i], err.message);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char want[ERROR_MESSAGE_MAX];
        (void)snprintf(want, sizeof want, "aliases has \"%s\"; %s", wrong[i].wrong, wrong[i].why);
        if (model_names_check_aliases(wrong[i].list, is_there, models, &err) != ERR_CONFIG ||
            strcmp(err.message, want) != 0 || strcmp(err.param, "aliases") != 0)
            fail_msg("\"%s\": %s", wrong[i].list, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_models_that_there_are),
        cmocka_unit_test(aliases_are_new_names_of_models_that_there_are),
    };
    return cmocka_run_group_tests_name("model_names", tests, NULL, NULL);
}
