/* test_pass_choice.c - two ways to do a pass, such as by all threads and by one, by simulated times: what is faster is
 * used, what is slower costs little, and a machine that becomes busy or quiet is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/core/pass_choice.h"
#include "tests/support/random.h"

#define US 1000.0
#define SECOND 1e9

/* Passes for `span_ns` of simulated time, which take what is given by all threads and by one. Returns the mean. */
static double run(struct pass_choice *c, double span_ns, double all_ns, double one_ns)
{
    double spent = 0.0, passes = 0.0;
    while (spent < span_ns) {
        const bool is_other = pass_choice_is_other(c);
        const double ns = is_other ? one_ns : all_ns;
        pass_choice_tell(c, is_other, (uint64_t)ns);
        spent += ns;
        passes++;
    }
    return spent / passes;
}

static void a_quiet_machine_loses_next_to_nothing(void **state)
{
    struct pass_choice c = {0};
    (void)state;
    assert_false(pass_choice_is_other(&c));
    assert_true(run(&c, SECOND, 110 * US, 190 * US) < 1.05 * 110 * US); /* while it still tries often */
    assert_true(run(&c, 10 * SECOND, 110 * US, 190 * US) < 1.005 * 110 * US);
    assert_true(run(&c, 10 * SECOND, 6 * US, 5.9 * US) <= 6 * US); /* small, and all the same */
}

static void long_passes_are_tried_as_rarely(void **state)
{
    struct pass_choice c = {0}, other = {0};
    (void)state;
    (void)run(&c, SECOND, 30000 * US, 36000 * US);
    assert_true(run(&c, 60 * SECOND, 30000 * US, 36000 * US) < 1.01 * 30000 * US);
    (void)run(&other, SECOND, 36000 * US, 30000 * US);
    assert_true(run(&other, 60 * SECOND, 36000 * US, 30000 * US) < 1.01 * 30000 * US);
}

static void beside_another_process_one_thread_is_used(void **state)
{
    struct pass_choice c = {0};
    (void)state;
    (void)run(&c, SECOND, 2300 * US, 400 * US);
    assert_true(run(&c, 10 * SECOND, 2300 * US, 400 * US) < 1.05 * 400 * US);
}

static void what_changes_is_noticed_within_a_second(void **state)
{
    struct pass_choice c = {0};
    (void)state;
    (void)run(&c, 20 * SECOND, 110 * US, 190 * US);
    (void)run(&c, SECOND, 2300 * US, 400 * US);
    assert_true(run(&c, 5 * SECOND, 2300 * US, 400 * US) < 1.05 * 400 * US);
    (void)run(&c, SECOND, 110 * US, 190 * US);
    assert_true(run(&c, 5 * SECOND, 110 * US, 190 * US) < 1.02 * 110 * US);
}

/* A thread that is interrupted for milliseconds now and then, in the middle of a trial or before it. */
static void interruptions_do_not_decide(void **state)
{
    struct pass_choice c = {0};
    struct random rng = {.state = 5};
    double spent = 0.0, passes = 0.0;
    (void)state;
    while (spent < 60 * SECOND) {
        const double interruption = random_below(&rng, 500) == 0 ? 4000 * US : 0.0;
        const bool is_other = pass_choice_is_other(&c);
        const double ns = (is_other ? 190 * US : 110 * US) + interruption;
        pass_choice_tell(&c, is_other, (uint64_t)ns);
        spent += ns;
        passes++;
    }
    assert_true(spent / passes < 1.1 * (110 * US + 4000 * US / 500));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_loses_next_to_nothing),
        cmocka_unit_test(long_passes_are_tried_as_rarely),
        cmocka_unit_test(beside_another_process_one_thread_is_used),
        cmocka_unit_test(what_changes_is_noticed_within_a_second),
        cmocka_unit_test(interruptions_do_not_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
