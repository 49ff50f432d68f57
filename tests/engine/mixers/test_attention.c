/* test_attention.c - the kernels of a query that sees every token, in every instruction set that this machine
 * runs, against their plain twins (plain.h). */
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

enum { TOKENS_MOST = 40, CHANNELS = 2 * LANES };

static void aft_takes_each_position_exactly(void **state)
{
    (void)state;
    static const float sizes[][2] = {{2.0f, 1.0f}, {200.0f, 60.0f}, {3000.0f, 1.0f}};
    struct random rng = {7};
    const struct kernels *tables[TABLES];
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
                mixer_kernels(tables[a])->aft_exact(y, q, k, v, w, tokens, CHANNELS, CHANNELS, true);
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
    float rest[ATTEND_ROWS_MAX][ATTEND_STRIDE];
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
            x->y[r][c] = x->rest[r][c] = x->alone[c] = NAN;
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
    mixer_kernels(kn)->attend(x->y[0], x->rest[0], ATTEND_STRIDE, x->q[0], ATTEND_STRIDE, rows, x->keys, x->values,
                              count, width, 0.5f);
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
        mixer_kernels(kn)->attend(x->alone, x->rest[0], 0, x->q[r], 0, 1, x->keys, x->values, count + r, width, 0.5f);
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
    const struct kernels *tables[TABLES];
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
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (int which = 0; which < 3; which++) {
            const float q[2] = {1.0f, 1.0f};
            float y[2], rest[2];
            for (size_t s = 0; s < COUNT; s++) {
                keys[attend_key(s, 0, 2)] = s == 290 ? 1e30f : 1e10f * (float)s;
                keys[attend_key(s, 1, 2)] = which == 1 && s == 7 ? NAN : which == 2 && s == 280 ? INFINITY : 0.0f;
                values[2 * s] = (float)s;
                values[2 * s + 1] = 1.0f;
            }
            mixer_kernels(tables[a])->attend(y, rest, 2, q, 2, 1, keys, values, COUNT, 2, 1.0f);
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
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t count = 1; count <= 3 * LANES + 1; count++)
            for (int large = 0; large < 2; large++) {
                float x[4 * LANES], was[4 * LANES];
                double sum = 0.0, den = 0.0, top = -INFINITY;
                for (size_t i = 0; i < count; i++) {
                    was[i] = x[i] = random_float(&rng, large != 0 ? 1e30f : 5.0f);
                    top = fmax(top, (double)x[i]);
                }
                mixer_kernels(tables[a])->softmax(x, count);
                for (size_t i = 0; i < count; i++)
                    den += exp((double)was[i] - top);
                for (size_t i = 0; i < count; i++) {
                    assert_float_equal(x[i], (float)(exp((double)was[i] - top) / den), 1e-6f);
                    sum += (double)x[i];
                }
                assert_float_equal((float)sum, 1.0f, 1e-5f);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aft_takes_each_position_exactly),
        cmocka_unit_test(queries_attend_to_their_keys),
        cmocka_unit_test(attending_survives_large_scores_and_shows_overflows),
        cmocka_unit_test(softmax_adds_up_to_one_for_numbers_of_any_size),
    };
    return cmocka_run_group_tests_name("kernels of attention", tests, NULL, NULL);
}
