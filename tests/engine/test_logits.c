/* test_logits.c - probabilities of logits: against numbers that can be worked out by hand, ties, and values that would
 * overflow if the largest were not taken off first. */
#include "engine/logits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"

#define LN2 0.693147180559945309

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fmax(1.0, fabs(want))))
        fail_msg("%.17g, expected %.17g", got, want);
}

static void finite_is_neither_infinite_nor_no_number(void **state)
{
    float logits[5] = {0.0f, -1e38f, 3e38f, -0.0f, 1e-45f};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    (void)state;
    assert_true(logits_are_finite(logits, 5));
    assert_true(logits_are_finite(logits, 0));
    for (size_t at = 0; at < 5; at++)
        for (size_t i = 0; i < 3; i++) {
            const float before = logits[at];
            logits[at] = bad[i];
            assert_false(logits_are_finite(logits, 5));
            logits[at] = before;
        }
}

/* 1 : 2 : 4 : 1 of eight. */
static const float eighths[4] = {0.0f, (float)LN2, (float)(2 * LN2), 0.0f};

static void probabilities_are_those_of_softmax(void **state)
{
    static const double want[4] = {0.125, 0.25, 0.5, 0.125};
    float p[4], shifted[4];
    struct prediction top[4];
    (void)state;
    logits_probabilities(p, eighths, 4);
    logits_top(top, 4, eighths, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_near(p[i], want[i]);
        assert_near(logits_log2(eighths, 4, i), log2(want[i]));
        assert_near(top[i].probability, (const double[]){0.5, 0.25, 0.125, 0.125}[i]);
        shifted[i] = eighths[i] + 64.0f;
    }
    logits_probabilities(p, shifted, 4); /* what is added to all changes nothing */
    assert_near(p[2], 0.5);
    logits_probabilities(p, eighths, 1);
    assert_near(p[0], 1.0);
}

static void large_logits_do_not_overflow(void **state)
{
    static const float logits[3] = {10000.0f, -10000.0f, 10000.0f};
    float p[3];
    struct prediction top[3];
    (void)state;
    logits_probabilities(p, logits, 3);
    assert_near(p[0], 0.5);
    assert_true(p[1] == 0.0f);
    assert_near(logits_log2(logits, 3, 2), -1.0);
    assert_near(logits_log2(logits, 3, 1), -20000.0 / LN2 - 1.0);
    logits_top(top, 3, logits, 3);
    assert_near(top[1].probability, 0.5);
}

static void the_best_come_first_and_ties_in_order(void **state)
{
    static const float logits[6] = {1.0f, 3.0f, 2.0f, 3.0f, 1.0f, 2.0f};
    static const uint32_t want[6] = {1, 3, 2, 5, 0, 4};
    struct prediction top[7];
    (void)state;
    for (size_t k = 0; k <= 6; k++) {
        top[k] = (struct prediction){.index = 77}; /* not among those asked for */
        logits_top(top, k, logits, 6);
        for (size_t i = 0; i < k; i++)
            assert_int_equal(top[i].index, want[i]);
        assert_int_equal(top[k].index, 77);
    }
}

/* As classes of many: they add up to 1. */
static void all_of_a_thousand_add_up_to_1(void **state)
{
    enum { N = 1000 };
    static float logits[N];
    static struct prediction top[N];
    double sum = 0.0;
    (void)state;
    for (size_t i = 0; i < N; i++)
        logits[i] = (float)((i * 7919) % N) / 100.0f;
    logits_top(top, N, logits, N);
    for (size_t i = 0; i < N; i++) {
        sum += top[i].probability;
        assert_true(i == 0 || top[i].probability <= top[i - 1].probability);
        assert_int_equal(top[i].index * 7919 % N, N - 1 - i); /* each once, the largest first */
    }
    assert_true(fabs(sum - 1.0) < 1e-12);
}

static void a_bytes_logarithms_are_its_own_and_the_likeliest(void **state)
{
    float logits[BYTE_VALUES], told[1 + GENERATE_LIKELIEST_MAX];
    uint8_t likeliest[GENERATE_LIKELIEST_MAX];
    (void)state;
    for (int i = 0; i < BYTE_VALUES; i++)
        logits[i] = -1000.0f;
    logits['a'] = logits['z'] = (float)LN2; /* 2 : 2 : 4 of eight, and nothing else */
    logits['q'] = (float)(2 * LN2);
    logits_logprobs(told, likeliest, 3, logits, 'z');
    assert_near(told[0], log(0.25));
    assert_near(told[1], log(0.5));
    assert_near(told[2], log(0.25));
    assert_near(told[3], log(0.25));
    assert_int_equal(likeliest[0], 'q');
    assert_int_equal(likeliest[1], 'a'); /* a tie: the lower one first */
    assert_int_equal(likeliest[2], 'z');
    logits_logprobs(told, likeliest, GENERATE_LIKELIEST_MAX, logits, 'b');
    assert_near(told[0], -1000.0 - log(8.0));
    assert_int_equal(likeliest[3], 0); /* of equals the lowest */
    assert_int_equal(likeliest[GENERATE_LIKELIEST_MAX - 1], GENERATE_LIKELIEST_MAX - 4);
    logits_logprobs(told, NULL, 0, logits, 'q');
    assert_near(told[0], log(0.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finite_is_neither_infinite_nor_no_number),
        cmocka_unit_test(probabilities_are_those_of_softmax),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(the_best_come_first_and_ties_in_order),
        cmocka_unit_test(all_of_a_thousand_add_up_to_1),
        cmocka_unit_test(a_bytes_logarithms_are_its_own_and_the_likeliest),
    };
    return cmocka_run_group_tests_name("logits", tests, NULL, NULL);
}
