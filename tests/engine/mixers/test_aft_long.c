/* test_aft_long.c - AFT-local after very many steps, in every instruction set that this machine runs, against sums
 * in double precision. AFTD_TORTURE=long goes 20 times as far. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/mixers/kernels.h"
#include "tests/support/program.h"
#include "tests/support/random.h"

enum { PERIOD = 4099, SPAN_MAX = 100 }; /* keys and values of a period come again: a prime, whatever the window */

/* What the steps are given; exp(k) in double. */
struct input {
    float k[PERIOD][LANES], v[PERIOD][LANES];
    double e[PERIOD][LANES];
};

/* Random ones, or the same at every position: all roundings then go one way for long. Values are about 1. */
static void make_input(struct input *in, bool equal, struct random *rng)
{
    for (size_t i = 0; i < PERIOD; i++)
        for (size_t c = 0; c < LANES; c++) {
            const size_t from = equal ? 0 : i;
            in->k[i][c] = from < i ? in->k[from][c] : random_float(rng, 2.0f);
            in->v[i][c] = from < i ? in->v[from][c] : 1.0f + random_float(rng, 0.5f);
            in->e[i][c] = exp((double)in->k[i][c]);
        }
}

/* Sums of what has left the window, in double. */
struct left {
    double e[LANES], ev[LANES];
};

static void leave(struct left *s, const struct input *in, uint32_t position)
{
    const size_t i = position % PERIOD;
    for (size_t c = 0; c < LANES; c++) {
        s->e[c] += in->e[i][c];
        s->ev[c] += in->e[i][c] * (double)in->v[i][c];
    }
}

static double mean_at(const struct left *s, const struct input *in, const float *bias, uint32_t span, uint32_t t,
                      size_t c)
{
    double e = s->e[c], ev = s->ev[c];
    for (uint32_t lag = 0; lag < span && lag <= t; lag++) {
        const size_t i = (t - lag) % PERIOD;
        const double term = exp((double)bias[lag]) * in->e[i][c];
        e += term;
        ev += term * (double)in->v[i][c];
    }
    return ev / e;
}

static const struct {
    const char *name;
    uint32_t span, steps;
    bool exact;
} cases[] = {
    {"aft-simple", 1, 1u << 20, false},
    {"a window", 8, 1u << 20, false},
    {"a long window", SPAN_MAX, 1u << 18, false},
    {"exactly", 1, 1u << 20, true},
    {"exactly, a long window", SPAN_MAX, 1u << 16, true},
};

/* Returns the largest error, relative to the mean. */
static double run(const struct kernels *kn, size_t at, const struct input *in, uint32_t steps, struct random *rng)
{
    float bias[SPAN_MAX], weights[SPAN_MAX], q[LANES] = {0}, y[LANES];
    const uint32_t span = cases[at].span;
    float *state = calloc(local_state_floats(span, false), sizeof *state);
    struct left left = {{0}, {0}};
    double worst = 0.0;
    assert_non_null(state);
    for (uint32_t i = 0; i < span; i++) {
        bias[i] = random_float(rng, 1.0f);
        weights[i] = cases[at].exact ? bias[i] : (float)exp((double)bias[i]);
    }
    struct local_step step = {.weights = weights, .span = span, .groups = 1, .global = true, .next = state};
    for (step.t = 0; step.t < steps; step.t++) {
        if (step.t >= span)
            leave(&left, in, step.t - span);
        const size_t i = step.t % PERIOD;
        (cases[at].exact ? mixer_kernels(kn)->local_exact : mixer_kernels(kn)->local_factored)(y, q, in->k[i], in->v[i],
                                                                                               state, &step);
        const bool looks = (step.t & (step.t + 1)) == 0 || step.t % 65537 == 0 || step.t + 1 == steps;
        for (size_t c = 0; looks && c < LANES; c++) {
            const double want = mean_at(&left, in, bias, span, step.t, c);
            worst = fmax(worst, fabs((double)y[c] - want) / want);
        }
    }
    free(state);
    return worst;
}

static void sums_that_run_on_stay_within_a_millionth(void **state)
{
    (void)state;
    static struct input in;
    const char *torture = getenv("AFTD_TORTURE");
    const bool far = torture != NULL && strcmp(torture, "long") == 0;
    struct random rng = {11};
    const struct kernels *tables[TABLES];
    if (!far)
        print_message("with AFTD_TORTURE=long it goes 20 times as far\n");
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            for (int equal = 0; equal < 2; equal++) {
                const uint32_t steps = far ? 20 * cases[i].steps : (uint32_t)test_work((int)cases[i].steps);
                make_input(&in, equal != 0, &rng);
                const double worst = run(tables[a], i, &in, steps, &rng);
                if (far)
                    print_message("%s, %s, %s, %u steps: %.2g\n", tables[a]->isa, cases[i].name,
                                  equal ? "equal" : "random", steps, worst);
                if (!(worst <= 1e-6))
                    fail_msg("%s, %s, %s: off by %.3g after at most %u steps, expected 1e-6", tables[a]->isa,
                             cases[i].name, equal ? "equal positions" : "random ones", worst, steps);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_that_run_on_stay_within_a_millionth),
    };
    return cmocka_run_group_tests_name("kernels, long", tests, NULL, NULL);
}
