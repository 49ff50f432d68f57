/* test_kernels.c - layer norm and epilogues, in every instruction set that this machine runs, against their plain
 * twins: the formulas in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/random.h"

static void print_what_is_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        if (kernels_select(isas[i]) == NULL)
            print_message("this machine does not run %s: its kernels are not tested here\n", isas[i]);
    assert_non_null(kernels_select("baseline"));
    assert_non_null(kernels_select(NULL));
    assert_null(kernels_select("avx9"));
}

/* ---- layer norm and epilogues ----------------------------------------------------------------------------------- */

static void norm_is_layer_norm(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 3, 16, 17, 20, 36, 100, 192};
    struct random rng = {1};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
            const size_t dim = dims[d], padded = lanes_padded(dim);
            float x[192], w[192] = {0}, b[192] = {0}, y[192];
            for (size_t i = 0; i < padded; i++)
                x[i] = i < dim ? 1000.0f + random_float(&rng, 3.0f) : 7.0f; /* a large offset; rubbish in the padding */
            for (size_t i = 0; i < dim; i++) {
                w[i] = random_float(&rng, 2.0f);
                b[i] = random_float(&rng, 2.0f);
            }
            double mean = 0.0, var = 0.0;
            for (size_t i = 0; i < dim; i++)
                mean += (double)x[i] / (double)dim;
            for (size_t i = 0; i < dim; i++)
                var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)dim;
            tables[a]->norm(y, x, w, b, dim, 1e-5f);
            for (size_t i = 0; i < dim; i++) {
                const double want = ((double)x[i] - mean) / sqrt(var + 1e-5) * (double)w[i] + (double)b[i];
                assert_float_equal((double)y[i], want, 2e-6); /* of up to 6; by the rounded mean alone 4e-5 */
            }
            for (size_t i = dim; i < padded; i++)
                assert_true(y[i] == 0.0f);
        }
}

/* Numbers so close together that what the mean is rounded by is of the size of their differences. */
static void norm_is_exact_where_all_lie_close_together(void **state)
{
    (void)state;
    static const size_t dims[] = {2, 3, 16, 17, 100, 8192};
    static const float offsets[] = {0.3f, 1000.0f, -77777.0f};
    static float x[8192], w[8192], b[8192], y[8192];
    struct random rng = {7};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t at = 0; at < sizeof dims / sizeof dims[0] * 3 * 20; at++) {
            const size_t dim = dims[at / 60], steps = at % 20 + 1;
            const float offset = offsets[at / 20 % 3], last = nextafterf(offset, INFINITY) - offset;
            double mean = 0.0, var = 0.0, worst = 0.0;
            for (size_t i = 0; i < lanes_padded(dim); i++) {
                x[i] = offset + last * (float)random_below(&rng, (uint32_t)steps + 1);
                w[i] = i < dim ? 1.0f : 0.0f;
            }
            for (size_t i = 0; i < dim; i++)
                mean += (double)x[i] / (double)dim;
            for (size_t i = 0; i < dim; i++)
                var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)dim;
            tables[a]->norm(y, x, w, b, dim, 1e-12f);
            for (size_t i = 0; i < dim; i++) {
                const double want = ((double)x[i] - mean) / sqrt(var + (double)1e-12f);
                worst = fmax(worst, fabs((double)y[i] - want) / fmax(1.0, fabs(want)));
            }
            if (!(worst <= 1e-6))
                fail_msg("%s: %zu numbers of %g and up to %zu last places more: off by %g", tables[a]->isa, dim,
                         (double)offset, steps, worst);
        }
}

static double plain_epilogue(enum epilogue kind, double x, double before)
{
    switch (kind) {
    case EPILOGUE_BIAS:
        return x;
    case EPILOGUE_GELU:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case EPILOGUE_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case EPILOGUE_RELU:
        return x > 0.0 ? x : 0.0;
    case EPILOGUE_ADD:
        return before + x;
    }
    return NAN;
}

static void epilogues_are_their_formulas(void **state)
{
    (void)state;
    static const float sizes[] = {0.01f, 1.0f, 5.0f, 40.0f, 3e4f};
    static const enum epilogue kinds[] = {EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_GELU_TANH, EPILOGUE_RELU,
                                          EPILOGUE_ADD};
    enum { ROWS = 3, COLS = 32, LD = 32, STRIDE = 48 };
    struct random rng = {2};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
                float acc[ROWS * LD], bias[COLS], y[ROWS * STRIDE], before[ROWS * STRIDE];
                for (size_t i = 0; i < sizeof acc / sizeof acc[0]; i++)
                    acc[i] = random_float(&rng, sizes[s]);
                for (size_t i = 0; i < COLS; i++)
                    bias[i] = random_float(&rng, sizes[s]);
                for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
                    before[i] = random_float(&rng, 1.0f);
                memcpy(y, before, sizeof y);
                tables[a]->epilogue(y, STRIDE, acc, LD, bias, ROWS, COLS, kinds[k]);
                for (size_t r = 0; r < ROWS; r++)
                    for (size_t c = 0; c < STRIDE; c++) {
                        const double x = c < COLS ? (double)(acc[r * LD + c] + bias[c]) : 0.0;
                        const double was = (double)before[r * STRIDE + c];
                        const double want = c < COLS ? plain_epilogue(kinds[k], x, was) : was;
                        assert_float_equal((double)y[r * STRIDE + c], want, 4e-7f * (1.0f + fabsf((float)x)));
                    }
            }
}

/* An overflow upstream must be seen in the logits, not clamped into an ordinary number. */
static void not_a_number_goes_through(void **state)
{
    (void)state;
    static const enum epilogue kinds[] = {EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_GELU_TANH, EPILOGUE_RELU,
                                          EPILOGUE_ADD};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            float y[LANES], nan[LANES], one[LANES];
            for (size_t c = 0; c < LANES; c++) {
                nan[c] = NAN;
                y[c] = one[c] = 1.0f;
            }
            tables[a]->epilogue(y, LANES, nan, LANES, one, 1, LANES, kinds[k]);
            for (size_t c = 0; c < LANES; c++)
                assert_true(isnan(y[c]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_what_is_missing),
        cmocka_unit_test(norm_is_layer_norm),
        cmocka_unit_test(norm_is_exact_where_all_lie_close_together),
        cmocka_unit_test(epilogues_are_their_formulas),
        cmocka_unit_test(not_a_number_goes_through),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
