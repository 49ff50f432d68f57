/* test_registry_request.c - which model a request means that names none, or names one by an alias. The models compute
 * nothing. */
#include "server/models/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/job_party.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static int set_up(void **state)
{
    struct registry *r = NULL;
    assert_int_equal(registry_create(&r), OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    registry_free(*state);
    return 0;
}

static struct found_model found(const char *name, uint32_t version)
{
    struct found_model f = {.version = version, .print = {(uint8_t)version, (uint8_t)name[0]}};
    (void)snprintf(f.name, sizeof f.name, "%s", name);
    (void)snprintf(f.path, sizeof f.path, "models/%s", name);
    return f;
}

/* A loaded model of so many bytes, which the registry's reference alone holds. */
static void put_loaded(struct registry *r, const char *name, uint32_t version, enum model_task task, uint64_t bytes)
{
    const struct found_model f = found(name, version);
    struct hosted_model *e = party_model();
    e->version = version;
    e->bytes = bytes;
    assert_int_equal(registry_put(r, &f, MODEL_LOADED, task, e, NULL), OK);
}

static void put(struct registry *r, const char *name, enum model_state state, enum model_task task)
{
    const struct found_model f = found(name, 0);
    assert_int_equal(registry_put(r, &f, state, task, NULL, NULL), OK);
}

/* b and d classify pictures, a and c@3 make text, i could, u is gone, f is broken. */
static void put_all(struct registry *r)
{
    put_loaded(r, "d", 0, TASK_IMAGE_CLASSIFICATION, 1);
    put_loaded(r, "c", 3, TASK_TEXT_GENERATION, 10);
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 100);
    put_loaded(r, "b", 0, TASK_IMAGE_CLASSIFICATION, 1000);
    put(r, "i", MODEL_IDLE, TASK_TEXT_GENERATION);
    put(r, "u", MODEL_UNLOADED, TASK_TEXT_CLASSIFICATION);
    put(r, "f", MODEL_FAILED, TASK_TEXT_CLASSIFICATION);
    registry_note(r, "f", MODEL_FAILED, "config.json: not valid JSON");
}

static struct hosted_model *loaded(struct registry *r, const char *name)
{
    const struct registry_model *row = registry_row(r, name);
    assert_non_null(row);
    return row->hosted;
}

/* The default for a task is loaded and is that model, and no other of the task's is the default. */
static void assert_default(struct registry *r, int task, const struct registry_choice *among, const char *name)
{
    static const char *const all[] = {"a", "b", "c", "d", "i", "u", "f"};
    struct hosted_model *e = NULL;
    struct error err;
    if (registry_acquire(r, NULL, task, among, &e, &err) != OK)
        fail_msg("%s: %s", name, err.message);
    assert_ptr_equal(e, loaded(r, name));
    hosted_model_release(e);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct registry_model *row = registry_row(r, all[i]);
        if (row != NULL && (int)row->task == task)
            assert_int_equal(registry_is_default(r, all[i], among), strcmp(all[i], name) == 0);
    }
}

static void a_request_without_a_name_means_the_first_by_name(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    put_all(r);
    assert_default(r, TASK_TEXT_GENERATION, NULL, "a");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, NULL, "b");
    assert_int_equal(registry_acquire(r, NULL, REGISTRY_ANY_TASK, NULL, &e, NULL), OK);
    assert_ptr_equal(e, loaded(r, "a"));
    hosted_model_release(e);
    registry_remove(r, "a");
    assert_default(r, TASK_TEXT_GENERATION, NULL, "c");
    assert_false(registry_is_default(r, "x", NULL));
}

static void a_request_without_a_name_means_the_first_that_the_setting_lists_for_its_task(void **state)
{
    struct registry *r = *state;
    put_all(r);
    registry_set_names(r, "d,c, b ,a", "off");
    assert_default(r, TASK_TEXT_GENERATION, NULL, "c");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, NULL, "d");
    registry_set_names(r, "f,u,x,c", "off"); /* those cannot serve, and there is no x */
    assert_default(r, TASK_TEXT_GENERATION, NULL, "c");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, NULL, "b");
    registry_drop(r, "c", MODEL_UNLOADED);
    assert_default(r, TASK_TEXT_GENERATION, NULL, "a");
    registry_set_names(r, "off", "off");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, NULL, "b");
}

static void defaults_are_chosen_among_the_models_that_may_be_used(void **state)
{
    static char names[][MODEL_NAME_MAX + 1] = {"d", "c"};
    const struct registry_choice among = {names, ARRAY_LEN(names)}, all = {NULL, 0};
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct error err;
    put_all(r);
    assert_default(r, TASK_TEXT_GENERATION, &among, "c");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, &among, "d");
    assert_default(r, TASK_TEXT_GENERATION, &all, "a");
    registry_set_names(r, "a,b,i", "off");
    assert_default(r, TASK_TEXT_GENERATION, &among, "c");
    assert_default(r, TASK_IMAGE_CLASSIFICATION, &among, "d");
    registry_remove(r, "c");
    assert_int_equal(registry_acquire(r, NULL, TASK_TEXT_GENERATION, &among, &e, &err), ERR_ARGUMENT);
    assert_string_equal(err.message, "no model for text-generation is loaded");
    assert_string_equal(err.param, "model");
}

/* b is an alias too, but there is a model of that name. */
static void an_alias_becomes_the_name_that_it_stands_for(void **state)
{
    static const struct {
        const char *ref, *name;
    } cases[] = {
        {"x", "a"}, {"x@3", "a@3"}, {"yy", "c"},  {"yy@", "c@"}, {"a", "a"},     {"a@1", "a@1"}, {"X", "X"},
        {"", ""},   {"@1", "@1"},   {"xx", "xx"}, {"x ", "x "},  {"off", "off"}, {"b", "b"},
    };
    static char long_name[2 * MODEL_REF_MAX];
    char room[MODEL_REF_MAX + 1];
    struct registry *r = *state;
    put_all(r);
    registry_set_names(r, "off", "x=a, yy=c,b=a");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(registry_real_name(r, cases[i].ref, room), cases[i].name);
    memset(long_name, 'x', sizeof long_name - 1);
    assert_ptr_equal(registry_real_name(r, long_name, room), long_name);
    long_name[1] = '@';
    assert_int_equal(strlen(registry_real_name(r, long_name, room)), MODEL_REF_MAX);
    registry_set_names(r, "off", "off");
    assert_string_equal(registry_real_name(r, "x", room), "x");
}

static void an_idle_default_is_wanted_by_who_names_none(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct found_model next;
    struct error err;
    put_all(r);
    registry_set_names(r, "i", "off");
    assert_true(registry_is_default(r, "i", NULL));
    assert_int_equal(registry_acquire(r, NULL, TASK_TEXT_GENERATION, NULL, &e, &err), ERR_LOADING);
    assert_string_equal(err.message, "the model \"i\" is being loaded");
    assert_true(registry_next_wanted(r, &next));
    assert_string_equal(next.name, "i");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_without_a_name_means_the_first_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_without_a_name_means_the_first_that_the_setting_lists_for_its_task,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(defaults_are_chosen_among_the_models_that_may_be_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_alias_becomes_the_name_that_it_stands_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_idle_default_is_wanted_by_who_names_none, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("registry_request", tests, NULL, NULL);
}
