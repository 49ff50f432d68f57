/* test_limits.c - what measures a machine: that the loops do their work, that bursts of them give rates, that the
 * products measured beside them are products, that limits follow from the rates told with them. How fast anything is
 * depends on what else runs, and is not tested. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/bench/peak.h"
#include "tests/bench/roofline.h"
#include "tests/support/program.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char text_model[] = "tests/data/golden/lm-local-8";
static const char picture_model[] = "tests/data/golden/conv-heads8-k5";
static char limits[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(limits, "tests/bench/limits", "AFTD_TEST_LIMITS");
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
    return 0;
}

/* ---- loops ------------------------------------------------------------------------------------------------------ */

/* Each set of kernels has loops of its own name, of which each runs and changes all of its chains. */
static void every_instruction_set_has_its_loops(void **state)
{
    (void)state;
    const struct kernels *all[KERNELS_TABLES_MAX + 1];
    assert_null(peak_select("avx3"));
    assert_non_null(peak_select(NULL));
    kernels_list(all);
    for (size_t i = 0; all[i] != NULL; i++) {
        const struct peak *peak = peak_select(all[i]->isa);
        if (kernels_select(all[i]->isa) == NULL)
            assert_null(peak);
        for (size_t p = 0; peak != NULL && p < PRECISION_COUNT; p++) {
            _Alignas(64) float chains[PEAK_CHAINS_BYTES / sizeof(float)] = {0.0f};
            size_t changed = 0;
            assert_string_equal(peak->isa, all[i]->isa);
            peak->loops[p].run(chains, 1000);
            while (changed < LENGTH(chains) && chains[changed] != 0.0f)
                changed++;
            /* For each number of 32 bits one multiply-add, a pair, or a quad; what is behind stays as it was. */
            const double macs = peak->loops[p].run == peak->loops[PRECISION_F32].run ? 1.0
                                : p == PRECISION_BF16                                ? 2.0
                                                                                     : 4.0;
            const double steps = p != PRECISION_F32 && strcmp(all[i]->isa, "amx") == 0 ? 16.0 : 1.0; /* at once */
            if (peak->loops[p].flop != 2.0 * steps * macs * (double)changed)
                fail_msg("%s, precision %zu: %zu numbers changed in %g FLOP", peak->isa, p, changed,
                         peak->loops[p].flop);
            for (; changed < LENGTH(chains); changed++)
                assert_true(chains[changed] == 0.0f);
        }
    }
}

/* A precision that pays is multiplied faster than fp32 is: it has a loop that does more at a time. */
static void what_pays_has_a_loop_of_its_own(void **state)
{
    (void)state;
    const struct kernels *all[KERNELS_TABLES_MAX + 1];
    kernels_list(all);
    for (size_t i = 0; all[i] != NULL; i++) {
        const struct peak *peak = peak_select(all[i]->isa);
        for (enum precision p = PRECISION_BF16; peak != NULL && p < PRECISION_COUNT; p++)
            assert_int_equal(peak->loops[p].flop > peak->loops[PRECISION_F32].flop, all[i]->pays[p]);
    }
}

static void each_number_is_read(void **state)
{
    (void)state;
    static uint32_t memory[PEAK_READ_BYTES / 2] __attribute__((aligned(64))); /* twice what is read at a time */
    for (size_t at = 0; at < LENGTH(memory); at++) {
        memory[at] = 5;
        assert_int_equal(peak_read(memory, sizeof memory), 5);
        memory[at] = 0;
    }
}

static void bursts_give_rates(void **state)
{
    (void)state;
    struct roofline *r = NULL;
    struct error err;
    assert_int_equal(roofline_open(&r, NULL, 2, 4000000, &err), OK);
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (enum precision p = PRECISION_F32; p < PRECISION_COUNT; p++) {
            struct roofline_work
                works
                    [] =
                        {
                            {ROOFLINE_REGISTERS, p, 0, 0}, {ROOFLINE_PRODUCT, p, 0, 0},
                            {ROOFLINE_OPENBLAS, p, 0, 0},  {ROOFLINE_READING, p, 4000000, 0},
                            {ROOFLINE_READING, p, 1, 0}, /* what the loop takes at a time, then */
                        };
            for (size_t i = 0; i < LENGTH(works); i++)
                assert_true(!roofline_has(r, &works[i]) || roofline_measure(r, &works[i], threads) > 0.0);
        }
    roofline_close(r);
    assert_int_equal(roofline_open(&r, "avx3", 1, 1, &err), ERR_ARGUMENT);
    assert_string_equal(err.param, "isa");
    assert_int_equal(roofline_open(&r, "baseline", 1, 1, &err), OK);
    for (enum precision p = PRECISION_BF16; p < PRECISION_COUNT; p++) /* nothing makes them fast */
        assert_false(roofline_has(r, &(const struct roofline_work){ROOFLINE_PRODUCT, p, 0, 0}));
    roofline_close(r);
}

/* What is measured is the whole product: each element of it, beyond one block of rows too. */
static void products_are_products(void **state)
{
    (void)state;
    enum { SIDE = ROOFLINE_SIDE };
    static float x[SIDE][SIDE], y[SIDE][SIDE];
    static const double tolerance[PRECISION_COUNT] = {1e-3, 0.3, 0.6}; /* of sums of 512 products of up to 0.25 */
    struct roofline *r = NULL;
    assert_int_equal(roofline_open(&r, NULL, 1, 1, NULL), OK);
    const float(*w)[SIDE] = (const float(*)[SIDE])roofline_weights(r);
    for (size_t i = 0; i < SIDE; i++)
        for (size_t k = 0; k < SIDE; k++)
            x[i][k] = (float)((5 * i + 11 * k) % 13) * 0.0625f - 0.375f;
    for (enum precision p = PRECISION_F32; p < PRECISION_COUNT; p++) {
        if (!roofline_has(r, &(const struct roofline_work){ROOFLINE_PRODUCT, p, 0, 0}))
            continue;
        roofline_multiply(r, p, y[0], x[0]);
        for (size_t row = 0; row < SIDE; row += 7) /* of each block some */
            for (size_t c = 0; c < SIDE; c++) {
                double sum = 0.0;
                for (size_t k = 0; k < SIDE; k++)
                    sum += (double)x[row][k] * (double)w[c][k];
                if (fabs(sum - (double)y[row][c]) > tolerance[p])
                    fail_msg("precision %d: [%zu][%zu] is %g, expected %g", (int)p, row, c, (double)y[row][c], sum);
            }
    }
    roofline_close(r);
}

/* ---- the program ------------------------------------------------------------------------------------------------ */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

/* json_decref. */
static json_t *limits_of(const char *model, const char *precision)
{
    struct program_run p = {.argv = {limits, model, "--json", "--rounds", "3", "--precision", precision}};
    program_run(&p);
    if (p.exit_code != 0 || p.err_size != 0)
        fail_msg("%s: exit code %d: %s", model, p.exit_code, p.err);
    json_t *object = json_loads(p.out, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(object));
    assert_string_equal(json_string_value(json_object_get(object, "precision")), precision);
    assert_string_equal(json_string_value(json_object_get(object, "isa")), kernels_select(NULL)->isa);
    assert_true(number(object, "threads") >= 1.0);
    program_run_clear(&p);
    return object;
}

/* For each figure of aft bench the limit by the formula at the top of limits.c; streams: how many, 0 for a batch, -1
 * for a prompt. */
static void expect_limits(const char *model, size_t count, const char *const keys[], const double streams[])
{
    static const char *const precisions[] = {"f32", "bf16", "int8"};
    double bytes = INFINITY;
    for (size_t p = 0; p < LENGTH(precisions); p++) {
        json_t *all = limits_of(model, precisions[p]);
        const json_t *told = json_object_get(all, "limits"), *reads = json_object_get(all, "read_gbps");
        const double rate = 1e9 * number(all, "gflops"), macs = number(all, "macs");
        const double arithmetic = 2.0 * (macs / rate + number(all, "f32_macs") / (1e9 * number(all, "f32_gflops")));
        const double weights = number(all, "weight_bytes"), state = number(all, "stream_bytes");
        assert_true(weights < bytes); /* each precision is lighter than the one before */
        bytes = weights;
        assert_int_equal(json_object_size(told), count);
        for (size_t i = 0; i < count; i++) {
            const double n = streams[i];
            double expected = n < 0.0 ? rate / (2.0 * macs) : 1.0 / arithmetic;
            if (n > 0.0) {
                const double bandwidth = 1e9 * number(reads, keys[i]);
                expected = n > 1.0 ? n / fmax(n * arithmetic, (weights + n * state) / bandwidth) : bandwidth / weights;
            }
            if (!(number(told, keys[i]) > 0.0) || fabs(number(told, keys[i]) / expected - 1.0) > 1e-4)
                fail_msg("%s, %s: limit %g, expected %g", precisions[p], keys[i], number(told, keys[i]), expected);
        }
        json_decref(all);
    }
}

static void limits_follow_from_the_rates_beside_them(void **state)
{
    (void)state;
    expect_limits(text_model, 4,
                  (const char *const[]){"bytes_per_second_1_streams", "bytes_per_second_8_streams",
                                        "bytes_per_second_64_streams", "prefill_bytes_per_second"},
                  (const double[]){1.0, 8.0, 64.0, -1.0});
    expect_limits(picture_model, 2, (const char *const[]){"images_per_second_batch_1", "images_per_second_batch_8"},
                  (const double[]){0.0, 0.0});
}

static void limits_are_readable_too(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"the machine", {"--rounds", "1"}, NULL, 0, "aftd's int8 product", ""},
        {"on one thread", {"--rounds", "1", "--threads", "1"}, NULL, 0, " 1 thread\n", ""},
        {"text", {text_model, "--rounds", "1"}, NULL, 0, "bytes_per_second_64_streams  at most ", ""},
        {"pictures", {picture_model, "--rounds", "1"}, NULL, 0, "images_per_second_batch_8    at most ", ""},
        {"attention's state grows",
         {"tests/data/golden/lm-attention", "--rounds", "1", "--json"},
         NULL,
         0,
         "\"stream_bytes\": 0.0",
         ""},
        {"a machine has no precision", {"--precision", "int8"}, NULL, 2, "", "usage: limits"},
        {"a machine in JSON", {"--json"}, NULL, 2, "", "usage: limits"},
        {"two models", {text_model, picture_model}, NULL, 2, "", "usage: limits"},
        {"no rounds", {"--rounds", "0"}, NULL, 2, "", "usage: limits"},
        {"too many threads", {"--threads", "257"}, NULL, 2, "", "usage: limits"},
        {"no such model", {"/no/such"}, NULL, 1, "", "/no/such"},
    };
    const size_t products = kernels_select(NULL)->pays[PRECISION_INT8] ? 0 : 1;
    program_expect(limits, cases + products, LENGTH(cases) - products);
    static const struct program_case unknown[] = {
        {"an unknown instruction set", {NULL}, NULL, 1, "", "instruction set \"avx3\" is unknown or not supported"}};
    assert_int_equal(setenv("AFTD_ISA", "avx3", 1), 0);
    program_expect(limits, unknown, 1);
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_has_its_loops),
        cmocka_unit_test(what_pays_has_a_loop_of_its_own),
        cmocka_unit_test(each_number_is_read),
        cmocka_unit_test(bursts_give_rates),
        cmocka_unit_test(products_are_products),
        cmocka_unit_test(limits_follow_from_the_rates_beside_them),
        cmocka_unit_test(limits_are_readable_too),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
