/* test_capacity_machine.c - the cores of a simulated machine, of which what is done first can be said by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/cli/capacity_machine.h"

#define WAKE_S 0.001

static void expect_near(const char *what, double got, double expected)
{
    if (!(fabs(got - expected) < 1e-9))
        fail_msg("%s is %.9f, expected %.9f", what, got, expected);
}

/* Whatever is done next: when, and of which request. */
static void expect_next(struct capacity_machine *m, double at_s, uint32_t request)
{
    expect_near("the end", m->next_s, at_s);
    const uint32_t worker = m->next;
    capacity_machine_settle(m, m->next_s);
    assert_int_equal(capacity_machine_take(m).request, request);
    capacity_machine_pace(m, worker);
}

static void an_idle_core_wakes_once_for_all_that_want_it(void **state)
{
    const struct capacity_plan p = {.cores = 1, .threads = 1, .per_machine = 1, .costs = {.wake_s = WAKE_S}};
    struct capacity_machine m;
    (void)state;
    assert_true(capacity_machine_init(&m, &p, 0, 1));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(capacity_machine_add(&m, capacity_machine_outside(&m, 0, i),
                                         (struct capacity_work){.seconds = 1e-4 * (i + 1), .request = i}));
    capacity_machine_pace(&m, CAPACITY_NOBODY);
    expect_next(&m, WAKE_S + 1e-4, 0);
    expect_next(&m, WAKE_S + 3e-4, 1);
    expect_next(&m, WAKE_S + 6e-4, 2);
    assert_true(isinf(m.next_s));
    expect_near("what the core has done", m.core_s, 6e-4);
    capacity_machine_settle(&m, 0.5);
    assert_true(capacity_machine_sleeps(&m, capacity_machine_outside(&m, 0, 1)));
    assert_true(capacity_machine_add(&m, capacity_machine_outside(&m, 0, 1),
                                     (struct capacity_work){.seconds = 1e-4, .request = 7}));
    assert_false(capacity_machine_sleeps(&m, capacity_machine_outside(&m, 0, 1)));
    capacity_machine_pace(&m, CAPACITY_NOBODY);
    expect_next(&m, 0.5 + WAKE_S + 1e-4, 7); /* it slept again */
    capacity_machine_clear(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_core_wakes_once_for_all_that_want_it),
    };
    return cmocka_run_group_tests_name("server_cli_capacity_machine", tests, NULL, NULL);
}
