/* test_auth_bytes.c - a key's rate of bytes: what is owed and how it is paid off, and what several requests may have
 * ahead of them. The clock is the test's. */
#include "server/access/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/support/auth_scene.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

/* ---- bytes a second --------------------------------------------------------------------------------------------- */

static void owed_bytes_are_paid_off_at_the_rate(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0};
    struct auth_grant g;
    auth_scene_begin_with(s, 0, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    auth_scene_generates(&g, &p, 1000);
    auth_scene_use(&g, 0, 60, 0); /* received: 40 of 100 are left */
    auth_scene_request(&g, 0, 0);
    p.bytes = 40;
    auth_scene_request(&g, 0, 0); /* none owed */
    p.bytes = 290;
    auth_scene_request(&g, 0, 2.5); /* generated since: 250 */
    auth_scene_request(&g, 1, 1.5);
    p.bytes = 300;
    auth_scene_request(&g, 1, 1.6);
    auth_use_end(&g, auth_scene_at(1), 60 + 310); /* the last ones were not seen before */
    auth_scene_request(&g, 1, 1.7);
    auth_scene_request(&g, 2.75, 0);
    auth_release(&g);
}

static void bytes_are_saved_up_for_a_second(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0};
    struct auth_grant g;
    auth_scene_begin_with(s, 0, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_generates(&g, &p, 0);
    auth_scene_use(&g, 0, 100, 0);
    auth_use_end(&g, auth_scene_at(0), 100);
    auth_scene_generates(&g, &p, 0);
    auth_scene_use(&g, 50, 101, 0); /* 100 of the 5,000 that could have come */
    auth_scene_request(&g, 50, 0.01);
    auth_use_end(&g, auth_scene_at(50), 101);
    auth_release(&g);
}

/* As a request that was cancelled before it took what it had announced. */
static void what_was_taken_too_much_is_given_back_at_the_end(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0};
    struct auth_grant g;
    auth_scene_begin_with(s, 0, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_generates(&g, &p, 1000);
    auth_scene_use(&g, 0, 400, 0);
    auth_scene_request(&g, 0, 3);
    auth_use_end(&g, auth_scene_at(0), 150);
    auth_scene_request(&g, 0, 0.5);
    auth_release(&g);
}

static void a_request_that_never_began_pays_what_it_came_to(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 0, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_use_end(&g, auth_scene_at(0), 0);
    auth_scene_request(&g, 0, 0);
    auth_use_end(&g, auth_scene_at(0), 130); /* an answer that no job made */
    auth_scene_request(&g, 0, 0.3);
    auth_release(&g);
}

static void the_longer_wait_counts_and_a_refusal_costs_nothing(void **state)
{
    struct auth_scene *s = *state;
    struct auth_grant g;
    auth_scene_begin_with(s, 1, 100);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_request(&g, 0, 0);
    auth_use_end(&g, auth_scene_at(0), 400);
    auth_scene_request(&g, 0, 3);
    auth_scene_request(&g, 1, 2); /* there is a request by now, but 200 bytes are owed */
    auth_scene_request(&g, 3, 0);
    auth_use_end(&g, auth_scene_at(3), 400 + 10);
    auth_scene_request(&g, 3, 1); /* 0.1 s for the bytes */
    auth_release(&g);
}

static void a_key_without_a_rate_of_bytes_counts_none(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 1000};
    struct auth_grant g;
    auth_scene_begin_with(s, 1e9, 0);
    assert_true(auth_scene_find(s, 0, &g));
    auth_scene_generates(&g, &p, UINT64_MAX);
    auth_scene_use(&g, 0, 1000, 0);
    auth_scene_request(&g, 0, 0);
    auth_use_end(&g, auth_scene_at(0), UINT64_MAX);
    auth_scene_request(&g, 0, 0);
    assert_int_equal(p.calls, 0);
    auth_release(&g);
}

/* ---- bytes ahead ------------------------------------------------------------------------------------------------ */

enum { RATE = 10, AHEAD = KEY_AHEAD_S * RATE }; /* bytes a second; bytes */

static void what_may_come_of_several_requests_is_bounded(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0}, q = {.bytes = 0}, r = {.bytes = 0};
    struct auth_grant a, b, c;
    auth_scene_begin_with(s, 0, RATE);
    assert_true(auth_scene_find(s, 0, &a));
    assert_true(auth_scene_find(s, 0, &b));
    assert_true(auth_scene_find(s, 0, &c));
    auth_scene_generates(&a, &p, AHEAD - 100);
    auth_scene_generates(&b, &q, 100);
    auth_scene_generates(&c, &r, 1);
    auth_scene_use(&a, 0, 0, 0);
    auth_scene_use(&b, 0, 0, 0); /* just so many */
    auth_scene_use(&c, 0, 7, 0.1);
    assert_int_equal(c.use.taken, 0); /* nothing was taken */
    auth_scene_request(&c, 0, 0);
    p.bytes = 1; /* what was generated is not ahead any more */
    auth_scene_use(&c, 0, 7, 0);
    auth_use_end(&a, auth_scene_at(0), 1);
    auth_use_end(&b, auth_scene_at(0), 0);
    auth_use_end(&c, auth_scene_at(0), 7);
    auth_scene_request(&c, 0, 0); /* 8 of 10 */
    auth_use_end(&c, auth_scene_at(0), 7 + 4);
    auth_scene_request(&c, 0, 0.2);
    auth_release(&a);
    auth_release(&b);
    auth_release(&c);
}

static void a_single_request_may_come_to_more(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0}, q = {.bytes = 0}, none = {.bytes = 0};
    struct auth_grant a, b, looks;
    auth_scene_begin_with(s, 0, RATE);
    assert_true(auth_scene_find(s, 0, &a));
    assert_true(auth_scene_find(s, 0, &b));
    assert_true(auth_scene_find(s, 0, &looks));
    auth_scene_generates(&a, &p, UINT64_C(100) * AHEAD);
    auth_scene_generates(&b, &q, AHEAD);
    auth_scene_generates(&looks, &none, 0);
    auth_scene_use(&a, 0, 0, 0);
    auth_scene_use(&b, 0, 0, 100.0 * KEY_AHEAD_S);
    auth_scene_use(&looks, 0, 0, 0); /* what generates nothing always may */
    auth_use_end(&looks, auth_scene_at(0), 0);
    p.ended = true; /* these are all, and none ahead, though its end has not been said */
    auth_scene_use(&b, 0, 0, 0);
    auth_use_end(&b, auth_scene_at(0), 0);
    auth_use_end(&a, auth_scene_at(0), 0);
    auth_release(&a);
    auth_release(&b);
    auth_release(&looks);
}

/* More than it was to come to: it is paid for, and not ahead. */
static void a_request_that_exceeds_its_most_is_none_ahead(void **state)
{
    struct auth_scene *s = *state;
    struct auth_progress p = {.bytes = 0}, q = {.bytes = 0};
    struct auth_grant a, b;
    auth_scene_begin_with(s, 0, RATE);
    assert_true(auth_scene_find(s, 0, &a));
    assert_true(auth_scene_find(s, 0, &b));
    auth_scene_generates(&a, &p, 5);
    auth_scene_generates(&b, &q, AHEAD + 1);
    auth_scene_use(&a, 0, 0, 0);
    auth_scene_use(&b, 0, 0, 0.6);
    p.bytes = 20;
    auth_scene_use(&b, 0, 0, 0);
    auth_scene_request(&a, 0, 1);
    auth_use_end(&a, auth_scene_at(0), 20);
    auth_use_end(&b, auth_scene_at(0), 0);
    auth_release(&a);
    auth_release(&b);
}

static void requests_that_end_in_any_order_are_asked_no_more(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct auth_scene *s = *state;
    auth_scene_begin_with(s, 0, RATE);
    for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
        struct auth_progress p[3] = {{.bytes = 0}};
        struct auth_grant g[3];
        for (int i = 0; i < 3; i++) {
            assert_true(auth_scene_find(s, 0, &g[i]));
            auth_scene_generates(&g[i], &p[i], 10);
            auth_scene_use(&g[i], 0, 0, 0);
        }
        for (int i = 0; i < 3; i++) {
            auth_use_end(&g[orders[o][i]], auth_scene_at(0), 0);
            unsigned calls[3];
            for (int j = 0; j < 3; j++)
                calls[j] = p[j].calls;
            auth_scene_request(&g[0], 0, 0);
            for (int j = 0; j < 3; j++) {
                bool over = false;
                for (int k = 0; k <= i; k++)
                    over = over || orders[o][k] == j;
                assert_int_equal(p[j].calls, calls[j] + !over);
            }
        }
        for (int i = 0; i < 3; i++)
            auth_release(&g[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(owed_bytes_are_paid_off_at_the_rate, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(bytes_are_saved_up_for_a_second, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(what_was_taken_too_much_is_given_back_at_the_end, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_never_began_pays_what_it_came_to, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(the_longer_wait_counts_and_a_refusal_costs_nothing, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_key_without_a_rate_of_bytes_counts_none, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(what_may_come_of_several_requests_is_bounded, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_single_request_may_come_to_more, auth_scene_set_up, auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_exceeds_its_most_is_none_ahead, auth_scene_set_up,
                                        auth_scene_tear_down),
        cmocka_unit_test_setup_teardown(requests_that_end_in_any_order_are_asked_no_more, auth_scene_set_up,
                                        auth_scene_tear_down),
    };
    return cmocka_run_group_tests_name("auth_bytes", tests, NULL, NULL);
}
