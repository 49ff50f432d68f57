/* test_kernels_sums.c - sums that run on: a stream of any length, a window of any length, a row of any length keep the
 * accuracy of a short one, in every instruction set that this machine runs, against sums in double precision. What is
 * equal all the time is the worst: every addition then errs in the same direction. AFTD_TEST_STEPS sets the length of
 * the streams; 20 million were tried. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/block/row_sums.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/program.h"
#include "tests/support/random.h"

#define EXACT 1e-6 /* of the values' size, at any length */

enum { STEPS = 1000000, LOOK = 997, WINDOW = 16384, TOKENS = 65536, COLUMNS = 70 };

static void assert_near(double is, double should_be, double tolerance)
{
    if (!(fabs(is - should_be) <= tolerance))
        fail_msg("is %.9g, expected %.9g within %.2g", is, should_be, tolerance);
}

static uint32_t steps_of_a_stream(void)
{
    const char *text = getenv("AFTD_TEST_STEPS");
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : (uint32_t)test_work(STEPS);
}

/* What the channels are given, in turn: equal all the time; anything; values of either sign, which all but cancel;
 * keys that have become small beside those at the beginning. */
static void next_pair(float *k, float *v, size_t c, uint32_t t, struct random *rng)
{
    switch (c % 4) {
    case 0:
        *k = 0.3f + 0.1f * (float)(c / 4);
        *v = 0.1f;
        break;
    case 1:
        *k = random_float(rng, 3.0f);
        *v = random_float(rng, 1.0f);
        break;
    case 2:
        *k = 0.7f;
        *v = t % 2 == 0 ? 1.0f : -0.99f;
        break;
    default:
        *k = t < 1000 ? 6.0f : -3.0f + random_float(rng, 1.0f);
        *v = t < 1000 ? 1.0f : 0.5f;
    }
}

/* A stream without a window is what aft-simple is: a span of one, whose bias is 0. In a window all biases are 0 as
 * well, so that what is expected is the mean over all that came. */
static void run_stream(const struct kernels *kn, bool exact, uint32_t span, uint32_t steps)
{
    struct random rng = {span};
    float k[LANES], v[LANES], q[LANES] = {0}, y[LANES];
    double num[LANES] = {0}, den[LANES] = {0}, worst = 0.0;
    float *state = calloc(local_state_floats(span, false), sizeof *state), *weights = calloc(span, sizeof *weights);
    assert_true(state != NULL && weights != NULL);
    for (uint32_t i = 0; i < span; i++)
        weights[i] = exact ? 0.0f : 1.0f;
    for (uint32_t t = 0; t < steps; t++) {
        const struct local_step step = {
            .weights = weights, .span = span, .t = t, .groups = 1, .global = true, .next = state};
        for (size_t c = 0; c < LANES; c++) {
            next_pair(&k[c], &v[c], c, t, &rng);
            num[c] += exp((double)k[c]) * (double)v[c];
            den[c] += exp((double)k[c]);
        }
        (exact ? kn->local_exact : kn->local_factored)(y, q, k, v, state, &step);
        if (t % LOOK == 0 || t + 1 == steps)
            for (size_t c = 0; c < LANES; c++)
                worst = fmax(worst, fabs((double)y[c] - num[c] / den[c]));
    }
    free(weights);
    free(state);
    if (worst > EXACT)
        fail_msg("%s, window %u%s: off by %.2g after %u steps", kn->isa, span, exact ? ", exactly" : "", worst, steps);
    print_message("  %s, window %u%s, %u steps: off by at most %.1g\n", kn->isa, span, exact ? ", exactly" : "", steps,
                  worst);
}

static void a_stream_of_any_length_is_exact(void **state)
{
    (void)state;
    const uint32_t steps = steps_of_a_stream();
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        run_stream(tables[a], false, 1, steps);
        run_stream(tables[a], false, 32, steps / 4);
        run_stream(tables[a], false, 200, steps / 20);
        run_stream(tables[a], true, 32, steps / 20);
    }
}

/* All of it within the window: aft-full as a stream. A position costs as much as the window has. */
static void a_window_of_any_length_is_exact(void **state)
{
    (void)state;
    const uint32_t window = getenv("AFTD_TEST_STEPS") != NULL ? TOKENS : (uint32_t)test_work(WINDOW);
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        run_stream(tables[a], false, window, window);
        run_stream(tables[a], true, window / 2, window / 2);
    }
}

/* As a whole, every token seen. */
static void tokens_of_any_number_are_weighed_exactly(void **state)
{
    (void)state;
    static float k[TOKENS * LANES], v[TOKENS * LANES], bias[TOKENS], weights[TOKENS + LANES];
    double num[LANES] = {0}, den[LANES] = {0}, sum = 0.0;
    float q[LANES] = {0}, y[LANES];
    struct random rng = {3};
    const struct kernels *tables[TABLES];
    for (uint32_t t = 0; t < TOKENS; t++)
        for (size_t c = 0; c < LANES; c++) {
            next_pair(&k[t * LANES + c], &v[t * LANES + c], c, t, &rng);
            num[c] += exp((double)k[t * LANES + c]) * (double)v[t * LANES + c];
            den[c] += exp((double)k[t * LANES + c]);
        }
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        tables[a]->aft_exact(y, q, k, v, bias, TOKENS, LANES, LANES, false);
        for (size_t c = 0; c < LANES; c++)
            assert_near((double)y[c], num[c] / den[c], EXACT);
        for (uint32_t t = 0; t < TOKENS; t++)
            weights[t] = 0.3f;
        tables[a]->softmax(weights, TOKENS);
        for (uint32_t t = 0; t < TOKENS; t++)
            assert_near((double)weights[t] * TOKENS, 1.0, EXACT);
        sum += (double)weights[0];
    }
    assert_true(sum > 0.0);
}

/* A window of three in a text of the format's greatest length, or a picture: what lies outside counts as well. */
static void all_beyond_a_convolutions_window_is_exact(void **state)
{
    (void)state;
    static const uint32_t sides[][2] = {{1, TOKENS}, {256, 256}, {TOKENS / 4, 4}};
    static float x[TOKENS * LANES], out[TOKENS * LANES], taps[9 * LANES];
    const struct kernels *tables[TABLES];
    const struct conv_span spans[2][4] = {{{0}}, {{0, 1}, {0, 3}, {1, 1}, {0, 3}}};
    double want[LANES] = {0};
    struct random rng = {6};
    for (size_t i = 0; i < sizeof taps / sizeof taps[0]; i++)
        taps[i] = 1.0f;
    for (size_t i = 0; i < (size_t)TOKENS * LANES; i++) {
        x[i] = i % LANES % 2 == 0 ? 0.1f + 0.01f * (float)(i % LANES) : 0.5f + random_float(&rng, 0.5f);
        want[i % LANES] += (double)x[i];
    }
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
            for (int sparse = 0; sparse < 2; sparse++) {
                const struct conv_shape s = {.height = sides[i][0],
                                             .width = sides[i][1],
                                             .kh = sides[i][0] == 1 ? 1 : 3,
                                             .kw = 3,
                                             .heads = LANES,
                                             .channels = LANES,
                                             .stride = LANES,
                                             .token = LANES,
                                             .group = LANES};
                float *scratch = malloc(conv_scratch_floats(s.height, s.width) * sizeof *scratch);
                assert_non_null(scratch);
                const struct conv_span *of_rows = s.kh == 1 ? &spans[1][2] : spans[1];
                tables[a]->conv_sums(out, x, taps, sparse == 1 ? of_rows : NULL, &s, scratch);
                for (size_t at = 0; at < (size_t)TOKENS * LANES; at += 997)
                    assert_near((double)out[at], want[at % LANES], EXACT * want[at % LANES]);
                free(scratch);
            }
}

static void sums_of_rows_are_exact(void **state)
{
    (void)state;
    static float x[TOKENS * COLUMNS], weights[TOKENS];
    static double plain[COLUMNS], weighted[COLUMNS], sizes[COLUMNS];
    float out[COLUMNS];
    struct random rng = {5};
    for (uint32_t t = 0; t < TOKENS; t++) {
        weights[t] = 0.9f;
        for (size_t c = 0; c < COLUMNS; c++) {
            const float value = c % 2 == 0 ? 0.1f + 0.01f * (float)c : random_float(&rng, 1.0f);
            x[t * COLUMNS + c] = value;
            plain[c] += (double)value;
            weighted[c] += (double)value * (double)weights[t];
            sizes[c] += fabs((double)value);
        }
    }
    row_sums(out, x, NULL, TOKENS, COLUMNS, COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++)
        assert_near((double)out[c], plain[c], EXACT * sizes[c]);
    row_sums(out, x, weights, TOKENS, COLUMNS, COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++)
        assert_near((double)out[c], weighted[c], EXACT * sizes[c]);
    row_sums_of_sizes(out, x, TOKENS, COLUMNS, COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++)
        assert_near((double)out[c], sizes[c], EXACT * sizes[c]);
}

/* The mean is rounded too: where all lies close together, that is no small part of what differs. */
static void a_norm_of_what_is_nearly_equal_is_exact(void **state)
{
    (void)state;
    static const float offsets[] = {0.0f, 1.0f, 1000.0f, 1e6f};
    const struct kernels *tables[TABLES];
    struct random rng = {8};
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (size_t dim = 2; dim <= 100; dim += dim < 5 ? 1 : 19)
                for (int repeat = 0; repeat < 50; repeat++) {
                    float x[112] = {0}, w[112] = {0}, b[112] = {0}, y[112];
                    double mean = 0.0, var = 0.0;
                    for (size_t i = 0; i < dim; i++) {
                        x[i] = offsets[o] + random_float(&rng, 1e-3f * (offsets[o] + 1.0f));
                        w[i] = 1.0f;
                        mean += (double)x[i] / (double)dim;
                    }
                    for (size_t i = 0; i < dim; i++)
                        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)dim;
                    tables[a]->norm(y, x, w, b, dim, 1e-12f);
                    for (size_t i = 0; i < dim; i++)
                        assert_near((double)y[i], ((double)x[i] - mean) / sqrt(var + (double)1e-12f),
                                    EXACT * (fabs((double)y[i]) + 1.0));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_of_any_length_is_exact),
        cmocka_unit_test(a_window_of_any_length_is_exact),
        cmocka_unit_test(tokens_of_any_number_are_weighed_exactly),
        cmocka_unit_test(all_beyond_a_convolutions_window_is_exact),
        cmocka_unit_test(sums_of_rows_are_exact),
        cmocka_unit_test(a_norm_of_what_is_nearly_equal_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
