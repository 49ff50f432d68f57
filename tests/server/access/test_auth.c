/* test_auth.c - keys in force: which one a text is, what it may do, how many requests are left of its rate at which
 * moment, and what a reload does to requests that run. The clock is the test's. */
#include "server/access/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/auth_scene.h"
#include "tests/support/temp_dir.h"

/* ---- who it is ------------------------------------------------------------------------------------------------- */

static void a_key_is_all_of_its_text(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    char text[KEY_TEXT_BYTES + 2];
    auth_scene_begin(s);
    for (int i = 0; i < AUTH_SCENE_KEYS; i++) {
        assert_true(auth_scene_find(s, i, &g));
        assert_string_equal(auth_name(&g), s->file.keys[i].name);
        auth_release(&g);
        assert_null(auth_name(&g));
    }
    memset(&g, 0, sizeof g);
    (void)snprintf(text, sizeof text, "%sx", s->texts[0]);
    assert_true(auth_find(s->auth, text, KEY_TEXT_BYTES, &g)); /* the size counts, not a NUL */
    auth_release(&g);
    assert_false(auth_find(s->auth, text, KEY_TEXT_BYTES + 1, &g));
    assert_false(auth_find(s->auth, text, KEY_TEXT_BYTES - 1, &g));
    assert_false(auth_find(s->auth, text, 0, &g));
    for (size_t i = 0; i < KEY_TEXT_BYTES; i++) { /* each byte counts */
        memcpy(text, s->texts[0], KEY_TEXT_BYTES);
        text[i] ^= 1;
        assert_false(auth_find(s->auth, text, KEY_TEXT_BYTES, &g));
    }
    assert_null(g.table); /* nothing is set where nothing was found */
}

static void each_of_many_keys_is_found(void **state)
{
    enum { MANY = 200 };
    static char texts[MANY][KEY_TEXT_BYTES + 1];
    struct auth_scene *s = *state;
    struct auth_grant g;
    char other[KEY_TEXT_BYTES + 1];
    struct key unknown;
    for (int i = 0; i < MANY; i++) {
        struct key k = {.apis = APIS_USUAL};
        (void)snprintf(k.name, sizeof k.name, "many-%d", i);
        assert_int_equal(key_make(&k, texts[i], NULL), OK);
        assert_int_equal(keys_file_add(&s->file, &k, NULL), OK);
    }
    auth_scene_begin(s);
    for (int i = 0; i < MANY; i++) {
        assert_true(auth_find(s->auth, texts[i], KEY_TEXT_BYTES, &g));
        assert_string_equal(auth_name(&g), s->file.keys[AUTH_SCENE_KEYS + i].name);
        auth_release(&g);
        assert_int_equal(key_make(&unknown, other, NULL), OK);
        assert_false(auth_find(s->auth, other, KEY_TEXT_BYTES, &g));
    }
}

static void a_file_without_keys_lets_nobody_in(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    keys_file_clear(&s->file);
    auth_scene_begin(s);
    assert_false(auth_scene_find(s, 0, &g));
    assert_false(auth_find(s->auth, "", 0, &g));
}

static void a_file_that_cannot_be_read_is_an_error(void **state)
{
    struct auth_scene *s = *state;
    struct error err;
    char want[PATH_MAX + 100];
    (void)snprintf(want, sizeof want, "%s: cannot be opened: No such file or directory; aft key add NAME makes it",
                   s->path);
    assert_int_equal(auth_create(&s->auth, s->path, &err), ERR_IO);
    assert_string_equal(err.message, want);
    assert_null(s->auth);
    auth_free(NULL);
}

static void a_key_calls_its_apis_and_the_open_one(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    const struct auth_grant everybody = {0};
    s->file.keys[1].apis = API_BIT(API_OPENAI) | API_BIT(API_ADMIN);
    s->file.keys[2].apis = 0;
    auth_scene_begin(s);
    static const bool want[AUTH_SCENE_KEYS][API_COUNT] = {
        {[API_NATIVE] = true, [API_OPEN] = true, [API_OPENAI] = true, [API_INFERENCE] = true},
        {[API_OPEN] = true, [API_OPENAI] = true, [API_ADMIN] = true},
        {[API_OPEN] = true},
    };
    for (int i = 0; i < AUTH_SCENE_KEYS; i++) {
        assert_true(auth_scene_find(s, i, &g));
        for (enum api_kind api = 0; api < API_COUNT; api++)
            if (auth_may_call(&g, api) != want[i][api])
                fail_msg("key %d, API %s: expected %d", i, key_api_word(api), want[i][api]);
        auth_release(&g);
    }
    for (enum api_kind api = 0; api < API_COUNT; api++)
        assert_true(auth_may_call(&everybody, api));
}

static void a_key_uses_its_models_or_all(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    const struct auth_grant everybody = {0};
    struct key *k = &s->file.keys[0];
    k->model_count = 2;
    k->models = calloc(k->model_count, sizeof k->models[0]);
    assert_non_null(k->models);
    (void)snprintf(k->models[0], sizeof k->models[0], "one");
    (void)snprintf(k->models[1], sizeof k->models[1], "other");
    auth_scene_begin(s);
    assert_true(auth_scene_find(s, 0, &g));
    assert_true(auth_may_use(&g, "one"));
    assert_true(auth_may_use(&g, "other"));
    assert_false(auth_may_use(&g, "on"));
    assert_false(auth_may_use(&g, "one "));
    assert_false(auth_may_use(&g, ""));
    auth_release(&g);
    assert_true(auth_scene_find(s, 1, &g));
    assert_true(auth_may_use(&g, "on"));
    auth_release(&g);
    assert_true(auth_may_use(&everybody, "on"));
}

static void nobody_has_no_name_and_no_limits(void **state)
{
    struct auth_grant everybody = {0};
    (void)state;
    assert_null(auth_name(&everybody));
    assert_int_equal(auth_metrics_label(&everybody), 0);
    for (int i = 0; i < 3; i++)
        auth_scene_request(&everybody, 0, 0);
    everybody.use.most = UINT64_MAX;
    auth_scene_use(&everybody, 0, UINT64_MAX, 0);
    auth_use_end(&everybody, auth_scene_at(0), UINT64_MAX);
    auth_release(&everybody);
}

/* ---- requests a second ------------------------------------------------------------------------------------------ */

static void a_second_of_requests_is_saved_up(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 2, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0); /* full at first */
    auth_scene_request(&g, 0, 0);
    auth_scene_request(&g, 0, 0.5);
    auth_scene_request(&g, 0.25, 0.25); /* who was refused has not paid */
    auth_scene_request(&g, 0.5, 0);
    auth_scene_request(&g, 0.5, 0.5);
    auth_scene_request(&g, 100, 0); /* no more than a second's worth */
    auth_scene_request(&g, 100, 0);
    auth_scene_request(&g, 100, 0.5);
    auth_release(&g);
}

static void a_slow_rate_saves_up_one_request(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 0.1, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    auth_scene_request(&g, 0, 10);
    auth_scene_request(&g, 9, 1);
    auth_scene_request(&g, 10, 0);
    auth_scene_request(&g, 1000, 0);
    auth_scene_request(&g, 1000, 10);
    auth_release(&g);
}

/* Threads read the clock before they take the lock. */
static void an_earlier_moment_gives_and_takes_nothing(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 1, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 10, 0);
    auth_scene_request(&g, 9, 1);
    auth_scene_request(&g, 10.5, 0.5); /* half a second since, not one and a half */
    auth_release(&g);
}

static void each_key_has_rates_of_its_own(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant a, again, b;
    s->file.keys[1].requests_per_s = 1;
    auth_scene_begin_with(s, 1, 0);
    assert_true(auth_scene_find(s, 0, &a));
    assert_true(auth_scene_find(s, 0, &again));
    assert_true(auth_scene_find(s, 1, &b));
    auth_scene_request(&a, 0, 0);
    auth_scene_request(&again, 0, 1); /* of one key, whichever request asks */
    auth_scene_request(&b, 0, 0);
    assert_int_equal(auth_metrics_label(&a), auth_metrics_label(&again));
    assert_int_not_equal(auth_metrics_label(&a), auth_metrics_label(&b));
    auth_release(&a);
    auth_release(&again);
    auth_release(&b);
}

/* ---- reloading -------------------------------------------------------------------------------------------------- */

static void a_request_keeps_the_rights_that_it_came_with(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant before, after;
    auth_scene_begin(s);
    assert_true(auth_scene_find(s, 0, &before));
    s->file.keys[0].apis = API_BIT(API_ADMIN);
    assert_int_equal(keys_file_remove(&s->file, "b", NULL), OK);
    auth_scene_reload(s);
    assert_true(auth_may_call(&before, API_NATIVE));
    assert_false(auth_may_call(&before, API_ADMIN));
    assert_true(auth_scene_find(s, 0, &after));
    assert_true(auth_may_call(&after, API_ADMIN));
    assert_false(auth_may_call(&after, API_NATIVE));
    assert_int_equal(auth_metrics_label(&before), auth_metrics_label(&after));
    auth_release(&after);
    assert_false(auth_scene_find(s, 1, &after)); /* removed */
    assert_true(auth_scene_find(s, 2, &after));
    assert_string_equal(auth_name(&after), "c");
    auth_release(&after);
    auth_release(&before);
}

static void what_a_key_has_used_outlives_a_reload(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0};
    struct auth_grant before, after;
    auth_scene_begin_with(s, 1, 100);
    assert_true(auth_scene_find(s, 0, &before));
    auth_scene_request(&before, 0, 0);
    auth_scene_generates(&before, &p, 1000);
    auth_scene_use(&before, 0, 100, 0);
    assert_int_equal(keys_file_remove(&s->file, "b", NULL), OK);
    auth_scene_reload(s);
    assert_true(auth_scene_find(s, 0, &after));
    auth_scene_request(&after, 0, 1);
    p.bytes = 200;
    auth_scene_request(&after, 0, 2); /* by the request that runs since before */
    auth_use_end(&before, auth_scene_at(0), 100 + 200);
    auth_release(&before);
    auth_scene_request(&after, 0, 2);
    auth_release(&after);
}

static void new_rates_are_those_of_the_requests_to_come(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant before, after;
    auth_scene_begin_with(s, 1, 0);
    assert_true(auth_scene_find(s, 0, &before));
    auth_scene_request(&before, 0, 0);
    s->file.keys[0].requests_per_s = 10;
    auth_scene_reload(s);
    assert_true(auth_scene_find(s, 0, &after));
    auth_scene_request(&before, 0, 1);
    auth_scene_request(&after, 0, 0.1);
    auth_release(&before);
    auth_release(&after);
}

static void a_key_that_went_and_came_again_owes_nothing(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 1, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    auth_release(&g);
    const struct key kept = s->file.keys[0];
    assert_int_equal(keys_file_remove(&s->file, "a", NULL), OK);
    auth_scene_reload(s);
    assert_int_equal(keys_file_add(&s->file, &kept, NULL), OK);
    auth_scene_reload(s);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    auth_release(&g);
}

static void a_file_that_is_wrong_changes_nothing(void **state)
{
    struct auth_scene *s = *state;
    struct auth_table *t = NULL;
    struct auth_grant g;
    struct error err;
    size_t count = 77;
    auth_scene_begin(s);
    temp_write(s->path, "{}", 2);
    assert_int_equal(auth_read(s->auth, &t, &count, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "expected {\"keys\": [...]} and nothing else"));
    assert_null(t);
    assert_int_equal(count, 77);
    assert_true(auth_scene_find(s, 2, &g));
    auth_release(&g);
}

static void what_was_read_need_not_come_into_force(void **state)
{
    struct auth_scene *s = *state;
    struct auth_table *t;
    struct auth_grant g;
    size_t count;
    auth_scene_begin_with(s, 1, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    assert_int_equal(keys_file_remove(&s->file, "c", NULL), OK);
    assert_int_equal(keys_file_write(&s->file, s->path, NULL), OK);
    assert_int_equal(auth_read(s->auth, &t, &count, NULL), OK);
    assert_int_equal(count, 2);
    auth_table_free(t);
    auth_table_free(NULL);
    auth_scene_request(&g, 0, 1); /* the meter, which both tables had, is there */
    auth_release(&g);
    assert_true(auth_scene_find(s, 2, &g));
    auth_release(&g);
}

static void grants_outlive_all_of_it(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0};
    struct auth_grant g;
    auth_scene_begin_with(s, 1, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_generates(&g, &p, 10);
    auth_scene_use(&g, 0, 1, 0);
    keys_file_clear(&s->file);
    auth_scene_reload(s);
    auth_free(s->auth);
    s->auth = NULL;
    assert_string_equal(auth_name(&g), "a");
    assert_true(auth_may_call(&g, API_NATIVE));
    auth_scene_request(&g, 0, 0);
    auth_scene_request(&g, 0, 1);
    auth_use_end(&g, auth_scene_at(0), 11);
    auth_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_is_all_of_its_text, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(each_of_many_keys_is_found, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_file_without_keys_lets_nobody_in, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_an_error, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_key_calls_its_apis_and_the_open_one, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_key_uses_its_models_or_all, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test(nobody_has_no_name_and_no_limits),
        cmocka_unit_test_setup_teardown(a_second_of_requests_is_saved_up, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_slow_rate_saves_up_one_request, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(an_earlier_moment_gives_and_takes_nothing, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(each_key_has_rates_of_its_own, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_request_keeps_the_rights_that_it_came_with, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(what_a_key_has_used_outlives_a_reload, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(new_rates_are_those_of_the_requests_to_come, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_went_and_came_again_owes_nothing, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_wrong_changes_nothing, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(what_was_read_need_not_come_into_force, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(grants_outlive_all_of_it, auth_scene_set_up, auth_scene_tear_down),
    };
    return cmocka_run_group_tests_name("auth", tests, NULL, NULL);
}
