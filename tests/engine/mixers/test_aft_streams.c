/* test_aft_streams.c - a step of AFT's causal form, and several at once, in every instruction set that this machine
 * runs, against their plain twin (plain.h), position by position. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/mixers/kernels.h"
#include "tests/engine/mixers/plain.h"
#include "tests/support/random.h"

/* local_factored, also with a ring of bf16, local_exact with and without the global sum */
enum way { FACTORED, HALF, EXACT, WINDOW };

static const struct {
    const char *name;
    uint32_t window;
    enum way way;
    bool gate;
    float key_size, bias_size, value_size;
    double tolerance; /* relative to value_size */
} local_cases[] = {
    {"ordinary", 8, FACTORED, true, 2.0f, 1.0f, 1.0f, 1e-6},
    {"window of 1", 1, FACTORED, true, 2.0f, 1.0f, 1.0f, 1e-6},
    {"window longer than the sequence", 100, FACTORED, false, 2.0f, 1.0f, 1.0f, 1e-6},
    {"large keys", 8, FACTORED, false, 80.0f, 1.0f, 1.0f, 2e-5}, /* keys of 80 have 4e-6 to give */
    {"very large keys", 8, FACTORED, false, 3000.0f, 1.0f, 1.0f, 1e-3},
    {"the largest biases for factors", 8, FACTORED, false, 2.0f, BIAS_FACTORED, 1.0f, 1e-5},
    {"the largest biases for factors, large keys and values", 48, FACTORED, false, 100.0f, BIAS_FACTORED, 1e6f, 1e-4},
    {"a ring of bf16", 8, HALF, true, 2.0f, 1.0f, 1.0f, 8e-3}, /* 2^-8 in e and in e*v */
    {"a ring of bf16 longer than the sequence", 100, HALF, false, 2.0f, 1.0f, 1.0f, 8e-3},
    {"a ring of bf16, very large keys", 8, HALF, false, 3000.0f, 1.0f, 1.0f, 8e-3},
    {"exactly", 8, EXACT, true, 2.0f, 1.0f, 1.0f, 1e-6},
    {"exactly, window of 1", 1, EXACT, false, 2.0f, 1.0f, 1.0f, 1e-6},
    {"exactly, window longer than the sequence", 100, EXACT, false, 2.0f, 1.0f, 1.0f, 1e-6},
    {"extreme biases", 8, EXACT, false, 2.0f, 60.0f, 1.0f, 1e-5},
    {"extreme biases, large keys and values", 8, EXACT, false, 200.0f, 60.0f, 1e9f, 1e-4},
    {"extreme biases and very large keys", 8, EXACT, false, 3000.0f, 60.0f, 1.0f, 1e-3},
    {"window only", 8, WINDOW, true, 2.0f, 1.0f, 1.0f, 1e-6},
    {"window only, large keys", 8, WINDOW, false, 200.0f, 1.0f, 1.0f, 1e-4},
    {"window only, extreme biases", 8, WINDOW, false, 100.0f, 60.0f, 1.0f, 1e-4},
};

enum { STEPS = 60, CHANNELS = 2 * LANES };

/* One step by the kernel of `way`; bias is w by lag, [span] or [span, stride]. */
static void step_local(const struct kernels *kn, enum way way, float *y, const float *q, const float *k, const float *v,
                       float *state, const float *bias, size_t stride, uint32_t span, uint32_t t, size_t groups,
                       bool gate)
{
    float factors[STEPS * CHANNELS];
    const size_t n = span * (stride == 0 ? 1 : stride);
    assert_true(n <= sizeof factors / sizeof factors[0]);
    for (size_t i = 0; i < n; i++)
        factors[i] = (float)exp((double)bias[i]);
    const struct local_step step = {
        .weights = way == FACTORED || way == HALF ? factors : bias,
        .stride = stride,
        .span = span,
        .t = t,
        .groups = groups,
        .gate = gate,
        .global = way != WINDOW,
        .half = way == HALF,
        .next = state,
    };
    (way == FACTORED || way == HALF ? mixer_kernels(kn)->local_factored : mixer_kernels(kn)->local_exact)(y, q, k, v,
                                                                                                          state, &step);
}

/* With one bias a lag for all channels, or each channel its own. */
static void run_local(const struct kernels *kn, size_t at, bool by_channel, struct random *rng)
{
    const uint32_t span = local_cases[at].window < STEPS ? local_cases[at].window : STEPS;
    float *state = calloc(CHANNELS / LANES * local_state_floats(span, local_cases[at].way == HALF), sizeof *state);
    float k[CHANNELS][STEPS], v[CHANNELS][STEPS];
    assert_non_null(state);
    for (size_t i = 0; i < CHANNELS / LANES * local_state_floats(span, local_cases[at].way == HALF); i++)
        state[i] = 1e30f; /* left behind by another stream */
    for (uint32_t t = 0; t < STEPS; t++) {
        float row[4][CHANNELS], w[STEPS * CHANNELS];
        double z[STEPS];
        const size_t stride = by_channel ? CHANNELS : 0;
        for (size_t i = 0; i < span * (by_channel ? (size_t)CHANNELS : 1); i++)
            w[i] = random_float(rng, local_cases[at].bias_size);
        for (size_t c = 0; c < CHANNELS; c++) {
            row[1][c] = random_float(rng, 3.0f);
            row[2][c] = k[c][t] = random_float(rng, local_cases[at].key_size);
            row[3][c] = v[c][t] = random_float(rng, local_cases[at].value_size);
        }
        step_local(kn, local_cases[at].way, row[0], row[1], row[2], row[3], state, w, stride, span, t, CHANNELS / LANES,
                   local_cases[at].gate);
        for (size_t c = 0; c < CHANNELS; c++) {
            for (uint32_t s = 0; s <= t; s++) { /* w of lag < span, and 0 or minus infinity beyond */
                const size_t lag = t - s;
                const double beyond = local_cases[at].way == WINDOW ? -INFINITY : 0.0;
                z[s] = (double)k[c][s] + (lag < span ? (double)w[by_channel ? lag * CHANNELS + c : lag] : beyond);
            }
            const double mean = plain_mean(z, v[c], 1, t + 1);
            const double want = local_cases[at].gate ? mean * plain_sigmoid((double)row[1][c]) : mean;
            if (!(fabs((double)row[0][c] - want) <= local_cases[at].tolerance * (double)local_cases[at].value_size))
                fail_msg("%s, %s: position %u channel %zu is %g, expected %g", kn->isa, local_cases[at].name, t, c,
                         (double)row[0][c], want);
        }
    }
    free(state);
}

static void local_steps_agree_with_equation_2(void **state)
{
    (void)state;
    struct random rng = {3};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof local_cases / sizeof local_cases[0]; i++)
            for (int repeat = 0; repeat < 5; repeat++)
                run_local(tables[a], i, repeat % 2 == 1, &rng);
}

/* Keys as large as float32 goes: the answer is a mean of values, so it must stay finite and within them. */
static void local_steps_stay_finite_for_any_key(void **state)
{
    (void)state;
    static const float keys[] = {0.0f, 1e10f, -1e10f, 3.4e38f, -3.4e38f, 1e-40f, 88.7f, -104.0f};
    enum { SPAN = 4 };
    struct random rng = {4};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (enum way way = FACTORED; way <= WINDOW; way++)
            for (int repeat = 0; repeat < 200; repeat++) {
                float memory[LANES * (LOCAL_ROWS_BEFORE_RING + 2 * SPAN)] = {0}, y[LANES], k[LANES], v[LANES], w[SPAN];
                for (uint32_t t = 0; t < 12; t++) {
                    for (size_t i = 0; i < SPAN; i++)
                        w[i] = random_float(&rng, way == FACTORED || way == HALF ? BIAS_FACTORED : 60.0f);
                    for (size_t c = 0; c < LANES; c++) {
                        k[c] = keys[random_below(&rng, sizeof keys / sizeof keys[0])];
                        v[c] = random_float(&rng, 1.0f);
                    }
                    step_local(tables[a], way, y, v, k, v, memory, w, 0, SPAN, t, 1, false);
                    for (size_t c = 0; c < LANES; c++)
                        if (!(fabsf(y[c]) <= 1.0001f))
                            fail_msg("%s way %d: %g from key %g at position %u", tables[a]->isa, (int)way, (double)y[c],
                                     (double)k[c], t);
                }
            }
}

/* A larger key whose bias is -60 beside a smaller one whose bias is +60: what they weigh together is what counts. */
static void a_bias_lifts_a_key_over_one_two_hundred_powers_larger(void **state)
{
    (void)state;
    enum { SPAN = 2 };
    static const float w[SPAN] = {60.0f, -60.0f}; /* by lag */
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        float memory[LANES * (LOCAL_ROWS_BEFORE_RING + 2 * SPAN)] = {0}, y[LANES], k[LANES], v[LANES];
        for (uint32_t t = 0; t < 2; t++) {
            for (size_t c = 0; c < LANES; c++) {
                k[c] = t == 0 ? 127.5f : 0.0f;
                v[c] = (float)t;
            }
            const struct local_step step = {.weights = w, .span = SPAN, .t = t, .groups = 1, .global = true};
            mixer_kernels(tables[a])->local_exact(y, v, k, v, memory, &step);
        }
        for (size_t c = 0; c < LANES; c++)
            assert_float_equal(y[c], (float)(1.0 / (1.0 + exp(7.5))), 1e-6f);
    }
}

/* Some positions one by one, and the same ones LOCAL_ROWS at a time where they may be: the bits agree. */
struct rows_case {
    const char *name;
    uint32_t span;
    float key_size;
    bool half, by_channel, each; /* each: a position has biases of its own */
};

static const struct rows_case rows_cases[] = {
    {"the shortest window", LOCAL_ROWS, 2.0f, false, false, true},
    {"one more", LOCAL_ROWS + 1, 2.0f, false, true, false},
    {"a ring of bf16", 32, 2.0f, true, false, true},
    {"a ring of bf16, biases by channel", 11, 2.0f, true, true, false},
    {"not full", 100, 2.0f, false, false, true},
    {"not full, a ring of bf16", 100, 2.0f, true, true, false},
    {"raised references", 9, 150.0f, false, false, true},
    {"raised references all the time", 9, 1000.0f, true, true, false},
    {"one bias for all", 5, 2.0f, false, false, false},
};

static void run_rows(const struct kernels *kn, const struct rows_case *rc, struct random *rng)
{
    enum { GROUPS = 3, WIDE = GROUPS * LANES, SPAN_MAX = 100, ROWS = 4 * SPAN_MAX };
    static float q[ROWS][WIDE], k[ROWS][2 * WIDE], v[ROWS][WIDE], one[ROWS][WIDE], some[ROWS][WIDE];
    static float weights[(ROWS + 1) * SPAN_MAX], by_channel[SPAN_MAX * WIDE];
    static float states[2][GROUPS * LANES * (LOCAL_ROWS_BEFORE_RING + 2 * SPAN_MAX)];
    const size_t floats = GROUPS * local_state_floats(rc->span, rc->half);
    const uint32_t count = rc->span == SPAN_MAX ? SPAN_MAX : ROWS;
    for (size_t r = 0; r < count; r++)
        for (size_t c = 0; c < WIDE; c++) {
            q[r][c] = random_float(rng, 3.0f);
            k[r][c] = random_float(rng, rc->key_size) * (random_below(rng, 8) == 0 ? 1.0f : 0.1f);
            v[r][c] = random_float(rng, 1.0f);
        }
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)exp((double)random_float(rng, 2.0f));
    for (size_t i = 0; i < sizeof by_channel / sizeof by_channel[0]; i++)
        by_channel[i] = (float)exp((double)random_float(rng, 2.0f));
    for (size_t i = 0; i < floats; i++)
        states[0][i] = states[1][i] = 1e30f; /* left behind by another stream */
    struct local_step step = {.stride = rc->by_channel ? WIDE : 0,
                              .span = rc->span,
                              .groups = GROUPS,
                              .gate = random_below(rng, 2) == 0,
                              .half = rc->half};
    const size_t further = rc->each ? rc->span : 0;
    for (uint32_t t = 0, n; t < count; t += n) {
        n = count - t < LOCAL_ROWS || random_below(rng, 4) == 0 ? 1 : LOCAL_ROWS;
        for (uint32_t r = 0; r < n; r++) {
            step.t = t + r;
            step.weights = rc->by_channel ? by_channel : weights + step.t * further;
            step.next = states[0];
            mixer_kernels(kn)->local_factored(one[t + r], q[t + r], k[t + r], v[t + r], states[0], &step);
        }
        step.t = t;
        step.weights = rc->by_channel ? by_channel : weights + t * further;
        step.next = states[1];
        const struct local_rows rows = {.y = some[t],
                                        .q = q[t],
                                        .k = k[t],
                                        .v = v[t],
                                        .y_stride = WIDE,
                                        .q_stride = WIDE,
                                        .k_stride = (size_t)2 * WIDE,
                                        .v_stride = WIDE,
                                        .weights_stride = further};
        if (n == 1)
            mixer_kernels(kn)->local_factored(some[t], q[t], k[t], v[t], states[1], &step);
        else
            mixer_kernels(kn)->local_factored_rows(&rows, states[1], &step);
        for (uint32_t r = t; r < t + n; r++)
            for (size_t c = 0; c < WIDE; c++)
                if (one[r][c] != some[r][c]) /* no NaN is among them */
                    fail_msg("%s, %s: position %u of %u at once, channel %zu is %.9g, by itself %.9g", kn->isa,
                             rc->name, r, n, c, (double)some[r][c], (double)one[r][c]);
    }
    assert_memory_equal(states[0], states[1], floats * sizeof(float));
}

static void positions_at_once_have_the_bits_of_steps(void **state)
{
    (void)state;
    struct random rng = {5};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof rows_cases / sizeof rows_cases[0]; i++)
            for (int repeat = 0; repeat < 5; repeat++)
                run_rows(tables[a], &rows_cases[i], &rng);
}

/* An overflow upstream must be seen in the logits, not clamped into an ordinary number. */
static void not_a_number_goes_through(void **state)
{
    (void)state;
    enum { SPAN = 2 };
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        float memory[LANES * (LOCAL_ROWS_BEFORE_RING + 2 * SPAN)] = {0}, y[LANES], nan[LANES], one[LANES],
                                                           w[SPAN] = {1.0f, 1.0f};
        for (size_t c = 0; c < LANES; c++) {
            nan[c] = NAN;
            one[c] = 1.0f;
        }
        for (int which = 0; which < 3; which++)
            for (enum way way = FACTORED; way <= WINDOW; way++) {
                step_local(tables[a], way, y, which == 0 ? nan : one, which == 1 ? nan : one, which == 2 ? nan : one,
                           memory, w, 0, SPAN, 0, 1, true);
                for (size_t c = 0; c < LANES; c++)
                    assert_true(isnan(y[c]));
            }
    }
}

/* In one of several positions: its answer is none, those before it are as they were. */
static void not_a_number_goes_through_positions_at_once(void **state)
{
    (void)state;
    static const float w[LOCAL_ROWS] = {1.0f, 1.0f, 1.0f, 1.0f};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (uint32_t which = 0; which < 3 * LOCAL_ROWS; which++) {
            float memory[LANES * (LOCAL_ROWS_BEFORE_RING + 2 * LOCAL_ROWS)] = {0}, y[LOCAL_ROWS][LANES],
                                                               in[3][LOCAL_ROWS][LANES];
            for (size_t i = 0; i < sizeof in / sizeof(float); i++)
                (&in[0][0][0])[i] = 1.0f;
            const struct local_rows rows = {.y = y[0],
                                            .q = in[0][0],
                                            .k = in[1][0],
                                            .v = in[2][0],
                                            .y_stride = LANES,
                                            .q_stride = LANES,
                                            .k_stride = LANES,
                                            .v_stride = LANES};
            struct local_step step = {.weights = w, .span = LOCAL_ROWS, .groups = 1, .gate = true, .next = memory};
            for (; step.t < LOCAL_ROWS; step.t++) /* the windows are full then */
                mixer_kernels(tables[a])->local_factored(y[0], in[0][0], in[1][0], in[2][0], memory, &step);
            const uint32_t bad = which % LOCAL_ROWS;
            for (size_t c = 0; c < LANES; c++)
                in[which / LOCAL_ROWS][bad][c] = NAN;
            mixer_kernels(tables[a])->local_factored_rows(&rows, memory, &step);
            for (size_t c = 0; c < LANES; c++) {
                assert_true(isnan(y[bad][c]));
                for (uint32_t r = 0; r < bad; r++)
                    assert_float_equal(y[r][c], (float)(1.0 / (1.0 + exp(-1.0))), 1e-6f);
                for (uint32_t r = bad + 1; r < LOCAL_ROWS; r++) /* a query is of its own position alone */
                    assert_true((which < LOCAL_ROWS) != (isnan(y[r][c]) != 0));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_steps_agree_with_equation_2),
        cmocka_unit_test(local_steps_stay_finite_for_any_key),
        cmocka_unit_test(positions_at_once_have_the_bits_of_steps),
        cmocka_unit_test(a_bias_lifts_a_key_over_one_two_hundred_powers_larger),
        cmocka_unit_test(not_a_number_goes_through),
        cmocka_unit_test(not_a_number_goes_through_positions_at_once),
    };
    return cmocka_run_group_tests_name("aft_streams", tests, NULL, NULL);
}
