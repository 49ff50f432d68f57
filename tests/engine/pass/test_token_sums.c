/* test_token_sums.c - sums over tokens, of any number of them and of columns. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/pass/token_sums.h"
#include "tests/support/random.h"

enum { TOKENS = 65536, STRIDE = 9, WIDE = 200 };

/* Equal numbers, whose roundings would go one way, and random ones; of either sign. */
static void a_sum_of_many_tokens_loses_nothing(void **state)
{
    (void)state;
    float *x = malloc(sizeof *x * TOKENS * STRIDE), *weights = malloc(sizeof *weights * TOKENS), out[STRIDE];
    struct random rng = {3};
    assert_true(x != NULL && weights != NULL);
    for (int equal = 0; equal < 2; equal++) {
        double sum[STRIDE] = {0.0}, sizes[STRIDE] = {0.0}, weighted[STRIDE] = {0.0};
        for (size_t t = 0; t < TOKENS; t++) {
            weights[t] = equal && t > 0 ? weights[0] : 1.5f + random_float(&rng, 1.0f);
            for (size_t c = 0; c < STRIDE; c++) {
                float *at = &x[t * STRIDE + c];
                *at = equal && t > 0 ? x[c] : (c % 2 == 0 ? -1.0f : 1.0f) + random_float(&rng, 0.5f);
                sum[c] += (double)*at;
                sizes[c] += fabs((double)*at);
                weighted[c] += (double)weights[t] * (double)*at;
            }
        }
        token_sums(out, x, TOKENS, STRIDE, STRIDE);
        for (size_t c = 0; c < STRIDE; c++)
            assert_true(fabs((double)out[c] / sum[c] - 1.0) <= 1e-7);
        token_size_sums(out, x, TOKENS, STRIDE, STRIDE);
        for (size_t c = 0; c < STRIDE; c++)
            assert_true(fabs((double)out[c] / sizes[c] - 1.0) <= 1e-7);
        token_weighted_sums(out, weights, x, TOKENS, STRIDE, STRIDE);
        for (size_t c = 0; c < STRIDE; c++)
            assert_true(fabs((double)out[c] / weighted[c] - 1.0) <= 1e-7);
    }
    free(weights);
    free(x);
}

/* No column is left out or written beyond, whatever their number. */
static void each_column_has_its_own_sum(void **state)
{
    (void)state;
    float x[3][WIDE], out[WIDE + 1];
    for (size_t c = 0; c < WIDE; c++)
        for (size_t t = 0; t < 3; t++)
            x[t][c] = (float)(c + t);
    for (size_t n = 1; n <= WIDE; n++) {
        out[n] = -1.0f;
        token_sums(out, x[0], 3, WIDE, n);
        for (size_t c = 0; c < n; c++)
            assert_true(out[c] == (float)(3 * c + 3));
        assert_true(out[n] == -1.0f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_many_tokens_loses_nothing),
        cmocka_unit_test(each_column_has_its_own_sum),
    };
    return cmocka_run_group_tests_name("token sums", tests, NULL, NULL);
}
