/* test_registry.c - models by name: which one a request means, what it is told where there is none, what is loaded for
 * it, and what is known of files that were tried. The models compute nothing. */
#include "server/models/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/core/clock.h"
#include "server/core/queue.h"
#include "tests/support/job_party.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static uint64_t later_ns;

/* Instead of libc's: each look at the time is a nanosecond after the one before; later_ns is what passes besides. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    later_ns++;
    *ret =
        (struct timespec){.tv_sec = (time_t)(later_ns / CLOCK_NS_PER_S), .tv_nsec = (long)(later_ns % CLOCK_NS_PER_S)};
    return 0;
}

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

/* What a request for it gets; NULL: nothing. */
static struct hosted_model *use(struct registry *r, const char *name)
{
    struct hosted_model *e = NULL;
    struct error err;
    (void)registry_acquire(r, name, REGISTRY_ANY_TASK, NULL, &e, &err);
    return e;
}

/* ---- which one a request means ---------------------------------------------------------------------------------- */

static void models_are_listed_by_name(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "f", "i", "u"};
    struct registry *r = *state;
    struct registry_model *rows;
    size_t count;
    put_all(r);
    assert_int_equal(registry_models(r, &rows, &count), OK);
    assert_int_equal(count, ARRAY_LEN(names));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rows[i].found.name, names[i]);
        assert_ptr_equal(rows[i].hosted, i < 4 ? loaded(r, names[i]) : NULL); /* those that are loaded */
        assert_ptr_equal(registry_row_at(r, i), registry_row(r, names[i]));
    }
    assert_null(registry_row_at(r, count));
    registry_remove(r, "a"); /* whoever has looked keeps it */
    assert_int_equal(rows[0].hosted->bytes, 100);
    registry_models_free(rows, count);
    assert_null(registry_row(r, "a"));
}

static void a_request_means_one_model(void **state)
{
    static const struct {
        const char *name;
        int task;
        const char *want;
    } cases[] = {
        {"a", TASK_TEXT_GENERATION, "a"},      {"a", REGISTRY_ANY_TASK, "a"},
        {"a@1", TASK_TEXT_GENERATION, "a"}, /* without versions it has the first */
        {"c", TASK_TEXT_GENERATION, "c"},      {"c@3", TASK_TEXT_GENERATION, "c"},
        {"b", TASK_IMAGE_CLASSIFICATION, "b"},
    };
    struct registry *r = *state;
    put_all(r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hosted_model *e = NULL;
        struct error err;
        if (registry_acquire(r, cases[i].name, cases[i].task, NULL, &e, &err) != OK)
            fail_msg("%s: %s", cases[i].name, err.message);
        assert_ptr_equal(e, loaded(r, cases[i].want));
        hosted_model_release(e);
    }
}

static void what_cannot_be_meant_is_said(void **state)
{
#define LISTED "loaded models: a, b, c, d, i"
    static char long_name[MODEL_NAME_MAX + 2];
    struct registry *r = *state;
    char too_long[ERROR_MESSAGE_MAX];
    memset(long_name, 'a', sizeof long_name - 1);
    (void)snprintf(too_long, sizeof too_long, "no model is named \"%s\"; " LISTED, long_name);
    const struct {
        const char *name;
        int task;
        enum status want;
        const char *says;
    } cases[] = {
        {"x", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "no model is named \"x\"; " LISTED},
        {"", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "no model is named \"\"; " LISTED},
        {"A", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "no model is named \"A\"; " LISTED},
        {"@1", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "no model is named \"@1\"; " LISTED},
        {"x@1", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "no model is named \"x@1\"; " LISTED},
        {"u", TASK_TEXT_CLASSIFICATION, ERR_NOT_FOUND, "no model is named \"u\"; " LISTED},
        {long_name, TASK_TEXT_GENERATION, ERR_NOT_FOUND, too_long},
        {"c@2", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "there is no version \"2\" of the model \"c\"; expected c or c@3"},
        {"c@", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "there is no version \"\" of the model \"c\"; expected c or c@3"},
        {"c@03", TASK_TEXT_GENERATION, ERR_NOT_FOUND,
         "there is no version \"03\" of the model \"c\"; expected c or c@3"},
        {"c@3@3", TASK_TEXT_GENERATION, ERR_NOT_FOUND,
         "there is no version \"3@3\" of the model \"c\"; expected c or c@3"},
        {"a@2", TASK_TEXT_GENERATION, ERR_NOT_FOUND, "there is no version \"2\" of the model \"a\"; expected a or a@1"},
        {"b", TASK_TEXT_GENERATION, ERR_ARGUMENT,
         "the model \"b\" is for image-classification; this request is for text-generation"},
        {"f", TASK_TEXT_GENERATION, ERR_UNAVAILABLE,
         "the model \"f\" cannot be loaded; the log and GET /admin/models say why"},
        {NULL, TASK_IMAGE_GENERATION, ERR_ARGUMENT, "no model for image-generation is loaded"},
        {NULL, TASK_TEXT_CLASSIFICATION, ERR_UNAVAILABLE,
         "the model \"f\" cannot be loaded; the log and GET /admin/models say why"},
    };
    put_all(r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct hosted_model *e = NULL;
        struct error err = {.message = ""};
        const enum status st = cases[i].name != NULL ? registry_acquire(r, cases[i].name, cases[i].task, NULL, &e, &err)
                                                     : registry_acquire(r, NULL, cases[i].task, NULL, &e, &err);
        if (st != cases[i].want || strcmp(err.message, cases[i].says) != 0 || strcmp(err.param, "model") != 0)
            fail_msg("%s: %s \"%s\", expected \"%s\"", cases[i].name, status_name(st), err.message, cases[i].says);
        assert_null(e);
    }
}

static void no_longer_name_is_cut_to_one_that_there_is(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    char name[MODEL_NAME_MAX + 2];
    memset(name, 'a', sizeof name);
    name[MODEL_NAME_MAX] = '\0';
    put_loaded(r, name, 0, TASK_TEXT_GENERATION, 1);
    assert_int_equal(registry_acquire(r, name, TASK_TEXT_GENERATION, NULL, &e, NULL), OK);
    hosted_model_release(e);
    name[MODEL_NAME_MAX] = 'a';
    name[MODEL_NAME_MAX + 1] = '\0';
    assert_int_equal(registry_acquire(r, name, TASK_TEXT_GENERATION, NULL, &e, NULL), ERR_NOT_FOUND);
    assert_false(registry_look(r, name, &(struct registry_model){.bytes = 0}));
}

static void an_empty_registry_says_so(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct error err;
    assert_int_equal(registry_acquire(r, "a", REGISTRY_ANY_TASK, NULL, &e, &err), ERR_NOT_FOUND);
    assert_string_equal(err.message, "no model is named \"a\"; loaded models: none");
    registry_free(NULL);
}

static void models_are_looked_at_by_name_and_version(void **state)
{
    static const struct {
        const char *ref, *row, *look; /* NULL: none */
    } cases[] = {
        {"a", "a", "a"},    {"a@1", NULL, "a"}, {"a@2", NULL, NULL}, {"c", "c", "c"},
        {"c@3", NULL, "c"}, {"c@", NULL, NULL}, {"i", "i", "i"},     {"i@1", NULL, "i"},
        {"u", "u", "u"},    {"x", NULL, NULL},  {"", NULL, NULL},    {"A", NULL, NULL},
    };
    struct registry *r = *state;
    struct found_model next;
    put_all(r);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct registry_model copy = {.hosted = NULL};
        const struct registry_model *row = registry_row(r, cases[i].ref);
        assert_string_equal(row != NULL ? row->found.name : "none", cases[i].row != NULL ? cases[i].row : "none");
        assert_int_equal(registry_look(r, cases[i].ref, &copy), cases[i].look != NULL);
        assert_string_equal(copy.found.name, cases[i].look != NULL ? cases[i].look : "");
        assert_ptr_equal(copy.hosted, cases[i].look != NULL ? loaded(r, cases[i].look) : NULL);
        hosted_model_release(copy.hosted);
    }
    assert_false(registry_next_wanted(r, &next)); /* to look is not to ask for it */
}

static void a_name_is_what_stands_before_the_version(void **state)
{
    static char long_name[2 * MODEL_NAME_MAX];
    char name[MODEL_NAME_MAX + 1];
    (void)state;
    registry_name_of(name, "a@3");
    assert_string_equal(name, "a");
    registry_name_of(name, "a");
    assert_string_equal(name, "a");
    registry_name_of(name, "@3");
    assert_string_equal(name, "");
    memset(long_name, 'a', sizeof long_name - 1);
    registry_name_of(name, long_name);
    assert_int_equal(strlen(name), MODEL_NAME_MAX);
}

/* ---- loading when asked for ------------------------------------------------------------------------------------- */

static void a_request_for_an_idle_model_has_it_wanted(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct found_model next;
    struct error err;
    put_all(r);
    assert_false(registry_next_wanted(r, &next));
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, &err), ERR_LOADING);
    assert_string_equal(err.message, "the model \"i\" is being loaded");
    assert_null(e);
    assert_true(registry_next_wanted(r, &next));
    assert_string_equal(next.name, "i");
    assert_string_equal(next.path, "models/i");
    put_loaded(r, "i", 0, TASK_TEXT_GENERATION, 1);
    assert_false(registry_next_wanted(r, &next)); /* it has come */
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, NULL), OK);
    hosted_model_release(e);
}

static void for_want_of_room_it_is_tried_again(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct found_model next;
    struct error err;
    put(r, "i", MODEL_IDLE, TASK_TEXT_GENERATION);
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, NULL), ERR_LOADING);
    registry_note(r, "i", MODEL_IDLE, "no room");
    assert_false(registry_next_wanted(r, &next)); /* not before it is asked for */
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, &err), ERR_LOADING);
    assert_string_equal(
        err.message, "the model \"i\" is being loaded; the last attempt failed: the log and GET /admin/models say why");
    assert_true(registry_next_wanted(r, &next));
    registry_note(r, "i", MODEL_FAILED, "broken");
    assert_false(registry_next_wanted(r, &next));
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, &err), ERR_UNAVAILABLE);
    assert_string_equal(err.message, "the model \"i\" cannot be loaded; the log and GET /admin/models say why");
}

static void who_loads_is_woken(void **state)
{
    struct registry *r = *state;
    struct hosted_model *e = NULL;
    struct queue *q = NULL;
    assert_int_equal(queue_create(&q, 1, 1), OK);
    registry_wake_for_wanted(r, q);
    put(r, "i", MODEL_IDLE, TASK_TEXT_GENERATION);
    assert_int_equal(registry_acquire(r, "i", TASK_TEXT_GENERATION, NULL, &e, NULL), ERR_LOADING);
    assert_true(queue_wait(q)); /* would wait for ever */
    registry_wake_for_wanted(r, NULL);
    queue_free(q);
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

static void a_replaced_model_stays_for_who_has_it(void **state)
{
    struct registry *r = *state;
    put_loaded(r, "a", 1, TASK_TEXT_GENERATION, 1);
    struct hosted_model *old = use(r, "a");
    put_loaded(r, "a", 2, TASK_TEXT_GENERATION, 2);
    struct hosted_model *new = use(r, "a");
    assert_ptr_not_equal(old, new);
    assert_int_equal(old->version, 1);
    assert_int_equal(new->version, 2);
    hosted_model_release(new);
    assert_int_equal(hosted_model_users(old), 1);
    hosted_model_hold(old, HOSTED_BY_LANE);
    hosted_model_release(old);
    assert_true(hosted_model_is_abandoned(old)); /* the registry has given it up */
    hosted_model_let_go(old, HOSTED_BY_LANE);
}

static void a_failure_leaves_what_is_loaded(void **state)
{
    struct registry *r = *state;
    const struct registry_model *row;
    struct hosted_model *e = NULL;
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 1);
    registry_note(r, "a", MODEL_FAILED, "the new files are broken");
    row = registry_row(r, "a");
    assert_non_null(row);
    assert_int_equal(row->state, MODEL_LOADED);
    assert_string_equal(row->failure, "the new files are broken");
    assert_int_equal(registry_acquire(r, "a", TASK_TEXT_GENERATION, NULL, &e, NULL), OK);
    hosted_model_release(e);
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 1);
    row = registry_row(r, "a");
    assert_non_null(row);
    assert_string_equal(row->failure, ""); /* forgotten once others were accepted */
}

static void a_dropped_model_is_known_and_a_removed_one_is_not(void **state)
{
    struct registry *r = *state;
    const struct registry_model *row;
    put_all(r);
    registry_drop(r, "a", MODEL_UNLOADED);
    assert_null(use(r, "a"));
    row = registry_row(r, "a");
    assert_non_null(row);
    assert_int_equal(row->state, MODEL_UNLOADED);
    assert_string_equal(row->found.path, "models/a");
    registry_remove(r, "b");
    assert_null(registry_row(r, "b"));
    assert_int_equal(registry_bytes(r, ""), 1 + 10);
    registry_drop(r, "x", MODEL_UNLOADED); /* unknown names are no-ops */
    registry_remove(r, "x");
    registry_note(r, "x", MODEL_FAILED, "");
    registry_note(r, "x", MODEL_IDLE, "");
    assert_null(registry_row(r, "x"));
    assert_non_null(loaded(r, "c"));
    assert_non_null(loaded(r, "d"));
}

static void as_many_are_known_as_there_is_room_for(void **state)
{
    struct registry *r = *state;
    struct error err;
    char name[16];
    for (int i = REGISTRY_MODELS_MAX; i > 0; i--) {
        (void)snprintf(name, sizeof name, "m%03d", i);
        put(r, name, MODEL_IDLE, TASK_TEXT_GENERATION);
    }
    const struct found_model more = found("m999", 0), known = found("m256", 7);
    struct hosted_model *e = party_model();
    assert_int_equal(registry_put(r, &more, MODEL_LOADED, TASK_TEXT_GENERATION, e, &err), ERR_CONFIG);
    assert_string_equal(err.message, "models/m999: more than 256 models");
    assert_int_equal(hosted_model_users(e), 1); /* nothing was taken */
    assert_int_equal(registry_put(r, &known, MODEL_LOADED, TASK_TEXT_GENERATION, e, &err), OK);
    assert_ptr_equal(loaded(r, "m256"), e);
}

static void a_size_is_that_of_the_same_files(void **state)
{
    struct registry *r = *state;
    const struct found_model before = found("a", 1), after = found("a", 2);
    assert_int_equal(registry_size(r, &before), 0);
    registry_note_size(r, &before, 5); /* of a model that is not known */
    assert_int_equal(registry_size(r, &before), 0);
    assert_int_equal(registry_put(r, &before, MODEL_IDLE, TASK_TEXT_GENERATION, NULL, NULL), OK);
    registry_note_size(r, &before, 5);
    registry_note_size(r, &after, 6); /* not those that are known */
    assert_int_equal(registry_size(r, &before), 5);
    assert_int_equal(registry_size(r, &after), 0);
    assert_int_equal(registry_put(r, &before, MODEL_UNLOADED, TASK_TEXT_GENERATION, NULL, NULL), OK);
    assert_int_equal(registry_size(r, &before), 5);
    assert_int_equal(registry_put(r, &after, MODEL_IDLE, TASK_TEXT_GENERATION, NULL, NULL), OK);
    assert_int_equal(registry_size(r, &after), 0);
    assert_int_equal(registry_size(r, &before), 0);
}

/* ---- making room ------------------------------------------------------------------------------------------------ */

static void room_is_made_of_what_was_asked_for_longest_ago(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    struct registry *r = *state;
    struct hosted_model *lanes[ARRAY_LEN(names)], *used;
    const struct registry_model *least;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        put_loaded(r, names[i], 0, TASK_TEXT_GENERATION, 1u << i);
        lanes[i] = loaded(r, names[i]);
        hosted_model_hold(lanes[i], HOSTED_BY_LANE);
    }
    for (size_t i = 0; i < 3; i++) /* b, c, a */
        hosted_model_release(use(r, names[(i + 1) % 3]));
    assert_int_equal(registry_bytes(r, "b"), 1 + 4);
    least = registry_least_used(r, "");
    assert_ptr_equal(least->hosted, lanes[1]);
    least = registry_least_used(r, "b"); /* not the one that room is made for */
    assert_ptr_equal(least->hosted, lanes[2]);
    used = use(r, "b");
    hosted_model_release(use(r, "a"));
    hosted_model_release(use(r, "c"));
    least = registry_least_used(r, ""); /* b is used still, though it was asked for before the others */
    assert_ptr_equal(least->hosted, lanes[0]);
    hosted_model_release(used);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        registry_drop(r, names[i], MODEL_IDLE);
        hosted_model_let_go(lanes[i], HOSTED_BY_LANE);
    }
    assert_null(registry_least_used(r, ""));
}

/* As a request does; what it gets is released at once. */
static enum status ask(struct registry *r, const char *name)
{
    struct hosted_model *e = NULL;
    struct error err;
    const enum status st = registry_acquire(r, name, REGISTRY_ANY_TASK, NULL, &e, &err);
    hosted_model_release(e);
    return st;
}

static void a_model_in_use_gives_way_to_one_that_waits(void **state)
{
    struct registry *r = *state;
    struct hosted_model *stream;
    struct error err;
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 1);
    put_loaded(r, "c", 0, TASK_TEXT_GENERATION, 1);
    stream = use(r, "a");
    struct hosted_model *other = use(r, "c"), *none = NULL;
    assert_null(registry_least_used(r, "b"));
    registry_have_one_yield(r, "b");
    assert_int_equal(ask(r, "c"), OK); /* one is enough */
    assert_int_equal(registry_acquire(r, "a", REGISTRY_ANY_TASK, NULL, &none, &err), ERR_LOADING);
    assert_non_null(strstr(err.message, "gives way to another"));
    hosted_model_release(stream); /* nobody else has it by now */
    assert_ptr_equal(registry_least_used(r, "b"), registry_row(r, "a"));
    hosted_model_release(other);
    registry_drop(r, "a", MODEL_IDLE);
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 1); /* it has its turn again */
    assert_int_equal(ask(r, "a"), OK);
}

/* Its longest request may run for minutes: until then its other clients get their share. */
static void who_gives_way_does_so_for_a_while_and_then_pauses(void **state)
{
    struct registry *r = *state;
    put_loaded(r, "a", 0, TASK_TEXT_GENERATION, 1);
    put_loaded(r, "c", 0, TASK_TEXT_GENERATION, 1);
    struct hosted_model *stream = use(r, "a"), *another = use(r, "c");
    registry_have_one_yield(r, "b");
    later_ns += MODEL_YIELDS_NS - CLOCK_NS_PER_S;
    registry_have_one_yield(r, "b"); /* its client asks again and again */
    assert_int_equal(ask(r, "a"), ERR_LOADING);
    later_ns += CLOCK_NS_PER_S;
    assert_int_equal(ask(r, "c"), OK);
    registry_have_one_yield(r, "b"); /* the next one's turn */
    assert_int_equal(ask(r, "a"), OK);
    assert_int_equal(ask(r, "c"), ERR_LOADING);
    later_ns += MODEL_YIELDS_AGAIN_NS - MODEL_YIELDS_NS;
    registry_have_one_yield(r, "b");
    assert_int_equal(ask(r, "a"), ERR_LOADING);
    assert_int_equal(ask(r, "c"), OK);
    hosted_model_release(another);
    hosted_model_release(stream);
}

static void what_a_client_waits_for_is_kept_until_it_has_come(void **state)
{
    struct registry *r = *state;
    put(r, "b", MODEL_IDLE, TASK_TEXT_GENERATION);
    assert_int_equal(ask(r, "b"), ERR_LOADING);
    put_loaded(r, "b", 0, TASK_TEXT_GENERATION, 1);
    assert_null(registry_least_used(r, "a"));
    assert_true(registry_row(r, "b")->awaited_ns != 0);
    assert_int_equal(ask(r, "b"), OK);
    assert_true(registry_row(r, "b")->awaited_ns == 0);
    assert_ptr_equal(registry_least_used(r, "a"), registry_row(r, "b"));
    put_loaded(r, "c", 0, TASK_TEXT_GENERATION, 1); /* nobody has asked for it */
    assert_true(registry_row(r, "c")->awaited_ns == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_are_listed_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_means_one_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_meant_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_longer_name_is_cut_to_one_that_there_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_empty_registry_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_are_looked_at_by_name_and_version, set_up, tear_down),
        cmocka_unit_test(a_name_is_what_stands_before_the_version),
        cmocka_unit_test_setup_teardown(a_request_for_an_idle_model_has_it_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(for_want_of_room_it_is_tried_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_loads_is_woken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replaced_model_stays_for_who_has_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_leaves_what_is_loaded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dropped_model_is_known_and_a_removed_one_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(as_many_are_known_as_there_is_room_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_size_is_that_of_the_same_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_model_in_use_gives_way_to_one_that_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_gives_way_does_so_for_a_while_and_then_pauses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_client_waits_for_is_kept_until_it_has_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room_is_made_of_what_was_asked_for_longest_ago, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
