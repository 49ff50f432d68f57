/* test_kernels.c - every kernel of every instruction set that this machine runs, against its plain twin: the papers'
 * formulas in double precision, position by position, with a maximum taken out of every sum. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "tests/support/random.h"

static const char *const isas[] = {"baseline", "avx2", "avx512"};

/* The tables that this machine runs, best last; returns how many. */
static size_t runnable(const struct kernels *found[3])
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        found[n] = kernels_select(isas[i]);
        n += found[n] != NULL ? 1 : 0;
    }
    return n;
}

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
    const struct kernels *tables[3];
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
                assert_float_equal((double)y[i], want, 2e-3); /* x has 2^-14 to give after the offset */
            }
            for (size_t i = dim; i < padded; i++)
                assert_true(y[i] == 0.0f);
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
    const struct kernels *tables[3];
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

/* ---- AFT-local -------------------------------------------------------------------------------------------------- */

/* One channel of eq. 2 at position t, with the bias w of lag < window and 0 or minus infinity beyond. */
static double plain_local(const float *k, const float *v, const float *w, uint32_t t, uint32_t window, bool global)
{
    double top = -INFINITY, num = 0.0, den = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t s = 0; s <= t; s++) {
            const uint32_t lag = t - s;
            if (lag >= window && !global)
                continue;
            const double z = (double)k[s] + (lag < window ? (double)w[lag] : 0.0);
            if (pass == 0) {
                top = fmax(top, z);
            } else {
                num += exp(z - top) * (double)v[s];
                den += exp(z - top);
            }
        }
    return num / den;
}

enum way { FACTORED, EXACT, WINDOW }; /* local_factored, local_exact with and without the global sum */

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
    if (way == FACTORED)
        kn->local_factored(y, q, k, v, state, factors, stride, span, t, groups, gate);
    else
        kn->local_exact(y, q, k, v, state, bias, stride, span, t, groups, gate, way == EXACT);
}

/* With one bias a lag for all channels, or each channel its own. */
static void run_local(const struct kernels *kn, size_t at, bool by_channel, struct random *rng)
{
    const uint32_t span = local_cases[at].window < STEPS ? local_cases[at].window : STEPS;
    float *state = calloc(CHANNELS / LANES * local_state_floats(span), sizeof *state);
    float k[CHANNELS][STEPS], v[CHANNELS][STEPS];
    assert_non_null(state);
    for (size_t i = 0; i < CHANNELS / LANES * local_state_floats(span); i++)
        state[i] = 1e30f; /* left behind by another stream */
    for (uint32_t t = 0; t < STEPS; t++) {
        float row[4][CHANNELS], w[STEPS * CHANNELS], own[STEPS];
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
            for (uint32_t lag = 0; lag < span; lag++)
                own[lag] = by_channel ? w[(size_t)lag * CHANNELS + c] : w[lag];
            const double mean = plain_local(k[c], v[c], own, t, span, local_cases[at].way != WINDOW);
            const double want = local_cases[at].gate ? mean / (1.0 + exp(-(double)row[1][c])) : mean;
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
    const struct kernels *tables[3];
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
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (enum way way = FACTORED; way <= WINDOW; way++)
            for (int repeat = 0; repeat < 200; repeat++) {
                float memory[LANES * (3 + 2 * SPAN)] = {0}, y[LANES], k[LANES], v[LANES], w[SPAN];
                for (uint32_t t = 0; t < 12; t++) {
                    for (size_t i = 0; i < SPAN; i++)
                        w[i] = random_float(&rng, way == FACTORED ? BIAS_FACTORED : 60.0f);
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
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        float memory[LANES * (3 + 2 * SPAN)] = {0}, y[LANES], k[LANES], v[LANES];
        for (uint32_t t = 0; t < 2; t++) {
            for (size_t c = 0; c < LANES; c++) {
                k[c] = t == 0 ? 127.5f : 0.0f;
                v[c] = (float)t;
            }
            tables[a]->local_exact(y, v, k, v, memory, w, 0, SPAN, t, 1, false, true);
        }
        for (size_t c = 0; c < LANES; c++)
            assert_float_equal(y[c], (float)(1.0 / (1.0 + exp(7.5))), 1e-6f);
    }
}

/* An overflow upstream must be seen in the logits, not clamped into an ordinary number. */
static void not_a_number_goes_through(void **state)
{
    (void)state;
    enum { SPAN = 2 };
    static const enum epilogue kinds[] = {EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_GELU_TANH, EPILOGUE_RELU,
                                          EPILOGUE_ADD};
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++) {
        float memory[LANES * (3 + 2 * SPAN)] = {0}, y[LANES], nan[LANES], one[LANES], w[SPAN] = {1.0f, 1.0f};
        for (size_t c = 0; c < LANES; c++) {
            nan[c] = NAN;
            one[c] = 1.0f;
        }
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            memcpy(y, one, sizeof y);
            tables[a]->epilogue(y, LANES, nan, LANES, one, 1, LANES, kinds[k]);
            for (size_t c = 0; c < LANES; c++)
                assert_true(isnan(y[c]));
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

/* ---- every token with every token -------------------------------------------------------------------------------- */

/* sum_s softmax_s(z[s]) v[s], in double. */
static double plain_mean(const double *z, const float *v, size_t v_stride, size_t n)
{
    double top = -INFINITY, num = 0.0, den = 0.0;
    for (size_t s = 0; s < n; s++)
        top = fmax(top, z[s]);
    for (size_t s = 0; s < n; s++) {
        num += exp(z[s] - top) * (double)v[s * v_stride];
        den += exp(z[s] - top);
    }
    return num / den;
}

enum { TOKENS_MOST = 40 };

static void aft_takes_each_position_exactly(void **state)
{
    (void)state;
    static const float sizes[][2] = {{2.0f, 1.0f}, {200.0f, 60.0f}, {3000.0f, 1.0f}};
    struct random rng = {7};
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t tokens = 1; tokens <= TOKENS_MOST; tokens += 13) {
                float k[TOKENS_MOST * CHANNELS], v[TOKENS_MOST * CHANNELS], q[CHANNELS], y[CHANNELS], w[TOKENS_MOST];
                for (size_t j = 0; j < tokens * CHANNELS; j++) {
                    k[j] = random_float(&rng, sizes[i][0]);
                    v[j] = random_float(&rng, 1.0f);
                }
                for (size_t c = 0; c < CHANNELS; c++)
                    q[c] = random_float(&rng, 3.0f);
                for (size_t s = 0; s < tokens; s++) /* every third is not seen */
                    w[s] = s % 3 == 1 ? -INFINITY : random_float(&rng, sizes[i][1]);
                tables[a]->aft_exact(y, q, k, v, w, tokens, CHANNELS, CHANNELS, true);
                for (size_t c = 0; c < CHANNELS; c++) {
                    double z[TOKENS_MOST];
                    for (size_t s = 0; s < tokens; s++)
                        z[s] = (double)k[s * CHANNELS + c] + (double)w[s];
                    const double want = plain_mean(z, v + c, CHANNELS, tokens) / (1.0 + exp(-(double)q[c]));
                    assert_float_equal(y[c], (float)want, 3e-7f * (sizes[i][0] + sizes[i][1] + 2.0f));
                }
            }
}

/* A head's cache with what the kernel must not look at: positions beyond the last are NaN, as is what a row of y has
 * beyond the head. */
enum { ATTEND_POSITIONS = 600, ATTEND_STRIDE = CHANNELS + 3 };

struct attend_run {
    float k[ATTEND_POSITIONS][CHANNELS], keys[(ATTEND_POSITIONS + LANES) * CHANNELS];
    float values[(ATTEND_POSITIONS + 1) * CHANNELS];
    float q[ATTEND_ROWS_MAX][ATTEND_STRIDE], y[ATTEND_ROWS_MAX][ATTEND_STRIDE], alone[ATTEND_STRIDE];
};

static void attend_run_init(struct attend_run *x, size_t positions, size_t width, struct random *rng)
{
    for (size_t i = 0; i < sizeof x->keys / sizeof x->keys[0]; i++)
        x->keys[i] = NAN;
    for (size_t i = 0; i < sizeof x->values / sizeof x->values[0]; i++)
        x->values[i] = NAN;
    for (size_t s = 0; s < positions; s++)
        for (size_t c = 0; c < width; c++) {
            x->keys[attend_key(s, c, width)] = x->k[s][c] = random_float(rng, 2.0f);
            x->values[s * width + c] = random_float(rng, 1.0f);
        }
    for (size_t r = 0; r < ATTEND_ROWS_MAX; r++)
        for (size_t c = 0; c < ATTEND_STRIDE; c++) {
            x->q[r][c] = random_float(rng, 2.0f);
            x->y[r][c] = x->alone[c] = NAN;
        }
}

/* Rows together are as the formula says, and to the bit what each is alone. */
static void run_attend(const struct kernels *kn, size_t rows, size_t count, size_t width, struct random *rng)
{
    struct attend_run *x = malloc(sizeof *x);
    double z[ATTEND_POSITIONS];
    assert_non_null(x);
    assert_true(count + rows - 1 <= ATTEND_POSITIONS);
    attend_run_init(x, count + rows - 1, width, rng);
    kn->attend(x->y[0], ATTEND_STRIDE, x->q[0], ATTEND_STRIDE, rows, x->keys, x->values, count, width, 0.5f);
    for (size_t r = 0; r < rows; r++) {
        for (size_t s = 0; s < count + r; s++) {
            z[s] = 0.0;
            for (size_t c = 0; c < width; c++)
                z[s] += 0.5 * (double)x->q[r][c] * (double)x->k[s][c];
        }
        for (size_t c = 0; c < width; c++)
            if (!(fabs((double)x->y[r][c] - plain_mean(z, x->values + c, width, count + r)) <= 1e-5))
                fail_msg("%s: width %zu, count %zu, row %zu of %zu, channel %zu is %g", kn->isa, width, count, r, rows,
                         c, (double)x->y[r][c]);
        kn->attend(x->alone, 0, x->q[r], 0, 1, x->keys, x->values, count + r, width, 0.5f);
        assert_memory_equal(x->y[r], x->alone, width * sizeof(float));
        assert_true(isnan(x->y[r][width]));
    }
    free(x);
}

static void queries_attend_to_their_keys(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 15, 16, 17, 40, 253, 256, 257, 300, 512, 515};
    static const size_t rows[] = {1, 3, 4, 11, ATTEND_ROWS_MAX};
    struct random rng = {8};
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t width = 1; width <= CHANNELS; width = width < 3 ? width + 1 : width + 5)
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
                run_attend(tables[a], rows[(i + width) % (sizeof rows / sizeof rows[0])], counts[i], width, &rng);
}

/* A score that no float32 holds is an overflow upstream, to be seen in the logits; large ones are not. */
static void attending_survives_large_scores_and_shows_overflows(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    static float keys[(COUNT + LANES) * 2], values[(COUNT + LANES) * 2];
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (int which = 0; which < 3; which++) {
            const float q[2] = {1.0f, 1.0f};
            float y[2];
            for (size_t s = 0; s < COUNT; s++) {
                keys[attend_key(s, 0, 2)] = s == 290 ? 1e30f : 1e10f * (float)s;
                keys[attend_key(s, 1, 2)] = which == 1 && s == 7 ? NAN : which == 2 && s == 280 ? INFINITY : 0.0f;
                values[2 * s] = (float)s;
                values[2 * s + 1] = 1.0f;
            }
            tables[a]->attend(y, 2, q, 2, 1, keys, values, COUNT, 2, 1.0f);
            if (which == 0)
                assert_true(y[0] == 290.0f && y[1] == 1.0f);
            else
                assert_true(isnan(y[0]) && isnan(y[1]));
        }
}

static void softmax_adds_up_to_one_for_numbers_of_any_size(void **state)
{
    (void)state;
    struct random rng = {9};
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t count = 1; count <= 3 * LANES + 1; count++)
            for (int large = 0; large < 2; large++) {
                float x[4 * LANES], was[4 * LANES];
                double sum = 0.0, den = 0.0, top = -INFINITY;
                for (size_t i = 0; i < count; i++) {
                    was[i] = x[i] = random_float(&rng, large != 0 ? 1e30f : 5.0f);
                    top = fmax(top, (double)x[i]);
                }
                tables[a]->softmax(x, count);
                for (size_t i = 0; i < count; i++)
                    den += exp((double)was[i] - top);
                for (size_t i = 0; i < count; i++) {
                    assert_float_equal(x[i], (float)(exp((double)was[i] - top) / den), 1e-6f);
                    sum += (double)x[i];
                }
                assert_float_equal((float)sum, 1.0f, 1e-5f);
            }
}

/* ---- AFT-conv --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t height, width, kh, kw, heads, dim;
    enum way way;
    bool gate;
    float key_size, bias_size;
    double tolerance;
} conv_cases[] = {
    {"ordinary", 8, 8, 5, 5, 4, 32, FACTORED, true, 2.0f, 1.0f, 1e-6},
    {"one head", 4, 6, 3, 3, 1, 20, FACTORED, true, 2.0f, 1.0f, 1e-6},
    {"as many heads as channels", 5, 7, 3, 7, 36, 36, FACTORED, false, 2.0f, 1.0f, 1e-6},
    {"kernel wider than the grid", 4, 3, 15, 15, 4, 16, FACTORED, true, 2.0f, 1.0f, 1e-6},
    {"a single token", 1, 1, 5, 5, 2, 16, FACTORED, false, 2.0f, 1.0f, 1e-6},
    {"1 x 1 kernel", 3, 5, 1, 1, 2, 16, FACTORED, false, 2.0f, 1.0f, 1e-6},
    {"even kernel", 6, 7, 4, 2, 4, 32, FACTORED, true, 2.0f, 1.0f, 1e-6},
    {"even kernel, window only", 6, 7, 2, 4, 4, 32, WINDOW, true, 2.0f, 1.0f, 1e-6},
    {"large keys", 8, 8, 5, 5, 4, 32, FACTORED, false, 80.0f, 1.0f, 2e-5},
    {"a large key whose bias is very negative", 8, 8, 5, 5, 4, 32, FACTORED, false, 30.0f, BIAS_FACTORED, 2e-5},
    {"exactly", 8, 8, 5, 5, 4, 32, EXACT, true, 2.0f, 1.0f, 1e-6},
    {"exactly, kernel wider than the grid", 4, 3, 15, 15, 4, 16, EXACT, true, 2.0f, 1.0f, 1e-6},
    {"large keys, extreme biases", 6, 7, 5, 3, 4, 32, EXACT, false, 200.0f, 60.0f, 1e-4},
    {"window only", 6, 6, 3, 3, 4, 32, WINDOW, true, 2.0f, 1.0f, 1e-6},
    {"window only, large keys, extreme biases", 6, 6, 3, 3, 4, 32, WINDOW, false, 200.0f, 60.0f, 1e-4},
};

/* One channel of eq. 6 at position p. */
static double plain_conv(const float *k, size_t k_stride, const float *v, size_t v_stride, const float *w, size_t at,
                         size_t p)
{
    const uint32_t height = conv_cases[at].height, width = conv_cases[at].width;
    const int kh = (int)conv_cases[at].kh, kw = (int)conv_cases[at].kw;
    double top = -INFINITY, num = 0.0, den = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t s = 0; s < (size_t)height * width; s++) {
            const int dy = (int)(s / width) - (int)(p / width) + kh / 2,
                      dx = (int)(s % width) - (int)(p % width) + kw / 2;
            const bool inside = dy >= 0 && dy < kh && dx >= 0 && dx < kw;
            if (!inside && conv_cases[at].way == WINDOW)
                continue;
            const double z = (double)k[s * k_stride] + (inside ? (double)w[dy * kw + dx] : 0.0);
            if (pass == 0) {
                top = fmax(top, z);
            } else {
                num += exp(z - top) * (double)v[s * v_stride];
                den += exp(z - top);
            }
        }
    return num / den;
}

/* One picture with everything that the kernels want beside it. */
struct conv_run {
    struct conv_shape shape;
    float *qkv, *w, *head_taps, *channel_taps, *e, *den, *ev, *num, *y, *scratch;
    uint32_t *head_of;
};

static float *floats(size_t n)
{
    float *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void conv_run_init(struct conv_run *r, size_t at, struct random *rng)
{
    const uint32_t heads = conv_cases[at].heads, dim = conv_cases[at].dim, taps = conv_cases[at].kh * conv_cases[at].kw;
    struct conv_shape *s = &r->shape;
    *s = (struct conv_shape){.height = conv_cases[at].height,
                             .width = conv_cases[at].width,
                             .kh = conv_cases[at].kh,
                             .kw = conv_cases[at].kw,
                             .heads = (uint32_t)lanes_padded(heads),
                             .channels = (uint32_t)lanes_padded(dim)};
    s->stride = 2 * (size_t)s->channels + s->heads;
    const size_t tokens = (size_t)s->height * s->width;
    r->qkv = floats(tokens * s->stride);
    r->w = floats((size_t)heads * taps);
    r->head_taps = floats((size_t)taps * s->heads);
    r->channel_taps = floats((size_t)taps * s->channels);
    r->e = floats(tokens * s->heads);
    r->den = floats(tokens * s->heads);
    r->ev = floats(tokens * s->channels);
    r->num = floats(tokens * s->channels);
    r->y = floats(tokens * s->channels);
    const size_t window = (tokens + 1) * s->heads, prefix = conv_scratch_floats(tokens, s->height);
    r->scratch = floats(window > prefix ? window : prefix);
    r->head_of = calloc(s->channels, sizeof *r->head_of);
    assert_non_null(r->head_of);
    for (size_t t = 0; t < tokens; t++) {
        float *row = r->qkv + t * s->stride;
        for (size_t c = 0; c < dim; c++) {
            row[c] = random_float(rng, 3.0f);
            row[s->channels + s->heads + c] = random_float(rng, 1.0f);
        }
        for (size_t h = 0; h < heads; h++)
            row[s->channels + h] = random_float(rng, conv_cases[at].key_size);
    }
    for (uint32_t c = 0; c < dim; c++)
        r->head_of[c] = c * heads / dim;
    for (size_t h = 0; h < heads; h++)
        for (size_t j = 0; j < taps; j++) {
            const float w = r->w[h * taps + j] = random_float(rng, conv_cases[at].bias_size);
            r->head_taps[j * s->heads + h] = conv_cases[at].way == FACTORED ? (float)exp((double)w) : w;
        }
    for (size_t c = 0; c < s->channels; c++)
        for (size_t j = 0; j < taps; j++)
            r->channel_taps[j * s->channels + c] = r->head_taps[j * s->heads + r->head_of[c]];
}

static void conv_run_clear(struct conv_run *r)
{
    float *all[] = {r->qkv, r->w, r->head_taps, r->channel_taps, r->e, r->den, r->ev, r->num, r->y, r->scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(r->head_of);
}

static void conv_run_mix(const struct conv_run *r, const struct kernels *kn, enum way way, bool gate)
{
    const struct conv_shape *s = &r->shape;
    const float *q = r->qkv, *k = q + s->channels, *v = k + s->heads;
    if (way != FACTORED) {
        for (size_t p = 0; p < (size_t)s->height * s->width; p++)
            kn->conv_exact(r->y, q, k, v, r->head_taps, r->head_of, s, p, gate, way == EXACT, r->scratch);
        return;
    }
    for (size_t h = 0; h < s->heads; h += LANES) {
        kn->conv_keys(r->e, k, s, h);
        kn->conv_sums(r->den, r->e, r->head_taps, s, s->heads, h, r->scratch);
    }
    for (size_t c = 0; c < s->channels; c += LANES) {
        kn->conv_values(r->ev, r->e, v, r->head_of, s, c);
        kn->conv_sums(r->num, r->ev, r->channel_taps, s, s->channels, c, r->scratch);
        kn->conv_finish(r->y, q, r->num, r->den, r->head_of, s, c, gate);
    }
}

static void conv_agrees_with_equation_6(void **state)
{
    (void)state;
    struct random rng = {5};
    const struct kernels *tables[3];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof conv_cases / sizeof conv_cases[0]; i++)
            for (int repeat = 0; repeat < 5; repeat++) {
                struct conv_run r;
                conv_run_init(&r, i, &rng);
                conv_run_mix(&r, tables[a], conv_cases[i].way, conv_cases[i].gate);
                const struct conv_shape *s = &r.shape;
                const float *k = r.qkv + s->channels, *v = k + s->heads;
                for (size_t p = 0; p < (size_t)s->height * s->width; p++)
                    for (size_t c = 0; c < conv_cases[i].dim; c++) {
                        const size_t head = c * conv_cases[i].heads / conv_cases[i].dim;
                        const double mean =
                            plain_conv(k + head, s->stride, v + c, s->stride, r.w + head * s->kh * s->kw, i, p);
                        const double q = (double)r.qkv[p * s->stride + c];
                        const double want = conv_cases[i].gate ? mean / (1.0 + exp(-q)) : mean;
                        const double got = (double)r.y[p * s->channels + c];
                        if (!(fabs(got - want) <= conv_cases[i].tolerance))
                            fail_msg("%s, %s: position %zu channel %zu is %g, expected %g", tables[a]->isa,
                                     conv_cases[i].name, p, c, got, want);
                    }
                conv_run_clear(&r);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_what_is_missing),
        cmocka_unit_test(norm_is_layer_norm),
        cmocka_unit_test(epilogues_are_their_formulas),
        cmocka_unit_test(local_steps_agree_with_equation_2),
        cmocka_unit_test(local_steps_stay_finite_for_any_key),
        cmocka_unit_test(a_bias_lifts_a_key_over_one_two_hundred_powers_larger),
        cmocka_unit_test(not_a_number_goes_through),
        cmocka_unit_test(aft_takes_each_position_exactly),
        cmocka_unit_test(queries_attend_to_their_keys),
        cmocka_unit_test(attending_survives_large_scores_and_shows_overflows),
        cmocka_unit_test(softmax_adds_up_to_one_for_numbers_of_any_size),
        cmocka_unit_test(conv_agrees_with_equation_6),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
