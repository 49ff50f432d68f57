/* test_bench.c - aft bench: every figure and its limit, the machine alone, models without files. How fast anything
 * is depends on what else runs: only what cannot be otherwise is asked of the numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/bench/peak.h"
#include "engine/kernels/kernels.h"
#include "tests/support/program.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char small_text_model[] = "tests/data/golden/lm-local-8";
static const char small_picture_model[] = "tests/data/golden/conv-heads8-k5";
static char aft[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
    return 0;
}

/* The JSON object that a run prints; json_decref. */
static json_t *object_of(struct program_run *p)
{
    json_error_t error;
    program_run(p);
    if (p->exit_code != 0 || p->err_size != 0)
        fail_msg("%s: exit code %d: %s", p->argv[2], p->exit_code, p->err);
    json_t *object = json_loads(p->out, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object))
        fail_msg("%s: %s in\n%s", p->argv[2], error.text, p->out);
    program_run_clear(p);
    return object;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

/* ---- figures of a model ------------------------------------------------------------------------------------------ */

/* bench --json on a model with extra options: exactly these keys beside what describes the run, all numbers above 0. */
static json_t *expect_figures(const char *model, const char *option, const char *value, const char *const keys[])
{
    struct program_run p = {.argv = {aft, "bench", model, "--json", "--runs", "3", option, value}};
    json_t *figures = object_of(&p);
    const bool limits = json_object_get(figures, "limits") != NULL;
    size_t count = 0;
    assert_non_null(strstr(model, json_string_value(json_object_get(figures, "model"))));
    assert_true(json_is_string(json_object_get(figures, "isa")));
    assert_true(json_integer_value(json_object_get(figures, "threads")) >= 1);
    for (; keys[count] != NULL; count++)
        if (!(number(figures, keys[count]) > 0.0))
            fail_msg("%s: %s is not above 0", model, keys[count]);
    assert_int_equal(json_object_size(figures), count + 3 + (limits ? 1 : 0));
    return figures;
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define BATCH_KEYS \
    "images_per_second_batch_1", "images_per_second_batch_8", "longest_block_ms_batch_1", "longest_block_ms_batch_8"
#define STREAM_KEYS                                                                            \
    "bytes_per_second_1_streams", "bytes_per_second_8_streams", "bytes_per_second_64_streams", \
        "prefill_bytes_per_second", "step_ratio"

static void bench_has_every_figure(void **state)
{
    (void)state;
    json_decref(expect_figures("cifar10-aft-conv", NULL, NULL, KEYS(BATCH_KEYS)));
    json_decref(expect_figures("enwik8-aft-local", NULL, NULL, KEYS(STREAM_KEYS, "step_ms_at_64", "step_ms_at_511")));
    json_decref(expect_figures("enwik8-aft-local", "--positions", "0,400",
                               KEYS(STREAM_KEYS, "step_ms_at_0", "step_ms_at_400")));
    json_decref(expect_figures(small_text_model, "--threads", "1", KEYS(STREAM_KEYS, "step_ms_at_47")));
}

/* Each limit follows from the rates beside it by the formula that is printed; share is the figure over it. How large it
 * is says nothing here: rates and figure are measured one after the other, on a machine that may have others on it. */
static void expect_limits(json_t *all, const char *const keys[], const double streams[])
{
    const json_t *limits = json_object_get(all, "limits"), *figures = json_object_get(limits, "figures");
    const double macs = number(limits, "macs"), others = number(limits, "fp32_macs");
    const double weights = number(limits, "weight_bytes"), state = number(limits, "stream_bytes");
    size_t count = 0;
    for (; keys[count] != NULL; count++) {
        const json_t *told = json_object_get(figures, keys[count]);
        const double rate = 1e9 * number(told, "gflops"), limit = number(told, "limit"), share = number(told, "share");
        const double n = streams[count];
        double expected = 1.0 / (2.0 * (macs / rate + others / (1e9 * number(told, "fp32_gflops"))));
        assert_true(rate > 0.0);
        if (n > 0.0) {
            const double bandwidth = 1e9 * number(told, "read_gbps");
            expected = n / fmax(n / expected, (weights + n * state) / bandwidth);
            if (n == 1.0)
                expected = bandwidth / weights;
        } else if (strncmp(keys[count], "prefill", 7) == 0) {
            expected = rate / (2.0 * macs);
        }
        if (fabs(limit / expected - 1.0) > 1e-4 || fabs(share * limit / number(all, keys[count]) - 1.0) > 1e-4)
            fail_msg("%s: limit %g, expected %g; share %g", keys[count], limit, expected, share);
    }
    assert_int_equal(json_object_size(figures), count);
}

static void shares_follow_from_the_rates_beside_them(void **state)
{
    (void)state;
    json_t *text = expect_figures(small_text_model, NULL, NULL, KEYS(STREAM_KEYS, "step_ms_at_47"));
    expect_limits(text,
                  KEYS("bytes_per_second_1_streams", "bytes_per_second_8_streams", "bytes_per_second_64_streams",
                       "prefill_bytes_per_second"),
                  (const double[]){1.0, 8.0, 64.0, 0.0});
    json_decref(text);
    json_t *pictures = expect_figures(small_picture_model, NULL, NULL, KEYS(BATCH_KEYS));
    expect_limits(pictures, KEYS("images_per_second_batch_1", "images_per_second_batch_8"), (const double[]){0.0, 0.0});
    json_decref(pictures);
}

/* Other precisions have other rates, and lighter weights. */
static void limits_go_by_precision(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *rate;
        const struct peak_loop *(*loop)(const char *isa);
    } cases[] = {{"f32", "fp32", NULL}, {"bf16", "bf16", peak_bf16}, {"int8", "int8", peak_int8}};
    double bytes = INFINITY;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        assert_int_equal(setenv("AFTD_PRECISION", cases[i].precision, 1), 0);
        json_t *all = expect_figures(small_text_model, NULL, NULL, KEYS(STREAM_KEYS, "step_ms_at_47"));
        const json_t *limits = json_object_get(all, "limits");
        const bool here = cases[i].loop == NULL || cases[i].loop(NULL) != NULL;
        assert_string_equal(json_string_value(json_object_get(limits, "rate")), here ? cases[i].rate : "fp32");
        assert_true(number(limits, "weight_bytes") < bytes);
        bytes = number(limits, "weight_bytes");
        json_decref(all);
    }
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
}

static void limits_can_be_left_out(void **state)
{
    (void)state;
    json_t *figures = expect_figures(small_text_model, "--no-limits", NULL, KEYS(STREAM_KEYS, "step_ms_at_47"));
    assert_null(json_object_get(figures, "limits"));
    json_decref(figures);
}

static void bench_is_readable_too(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"text", {"bench", small_text_model, "--runs", "3"}, NULL, 0, "64 streams ", ""},
        {"prefill", {"bench", small_text_model, "--runs", "3"}, NULL, 0, "(one prompt of 48 bytes)", ""},
        {"positions",
         {"bench", small_text_model, "--runs", "3", "--positions", "3,40"},
         NULL,
         0,
         "byte 40 over byte 3: ",
         ""},
        {"pictures", {"bench", small_picture_model, "--runs", "3"}, NULL, 0, "batch 8 ", ""},
        {"the formula", {"bench", small_text_model, "--runs", "3"}, NULL, 0, "n / max(n * arithmetic, (", ""},
        {"its share", {"bench", small_picture_model, "--runs", "3"}, NULL, 0, " GFLOP/s)\n", ""},
        {"attention's state grows",
         {"bench", "tests/data/golden/lm-attention", "--runs", "3"},
         NULL,
         0,
         " MB + n * 0 MB) / bandwidth",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    static const char one[] = "expected exactly one of MODEL, --synthetic NAME and --roofline";
    static const struct program_case cases[] = {
        {"nothing to measure", {"bench"}, NULL, 2, "", one},
        {"a model and a synthetic one",
         {"bench", small_text_model, "--synthetic", "aft-local-24x256"},
         NULL,
         2,
         "",
         one},
        {"a model and the machine", {"bench", small_text_model, "--roofline"}, NULL, 2, "", one},
        {"a synthetic one and the machine",
         {"bench", "--roofline", "--synthetic", "aft-local-24x256"},
         NULL,
         2,
         "",
         one},
        {"an unknown synthetic one names those that there are",
         {"bench", "--synthetic", "aft-local-24"},
         NULL,
         2,
         "",
         "unknown synthetic model \"aft-local-24\", expected one of aft-conv-small-224, aft-local-24x256, "
         "aft-local-12x512"},
        {"none", {"bench", "--synthetic", ""}, NULL, 2, "", "unknown synthetic model \"\""},
        {"positions of a machine",
         {"bench", "--roofline", "--positions", "1,2"},
         NULL,
         2,
         "",
         "--positions is about a model, and --roofline measures none"},
        {"a machine without limits", {"bench", "--roofline", "--no-limits"}, NULL, 2, "", "--no-limits is about a"},
        {"positions of synthetic pictures",
         {"bench", "--synthetic", "aft-conv-small-224", "--positions", "1,2"},
         NULL,
         2,
         "",
         "--positions is for models that generate"},
        {"two models", {"bench", small_text_model, small_text_model}, NULL, 2, "", "unexpected argument"},
        {"a flag takes no value", {"bench", "--roofline=1"}, NULL, 2, "", "--roofline takes no value"},
        {"help", {"bench", "--help"}, NULL, 0, "aft-conv-small-224, aft-local-24x256, aft-local-12x512", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- the machine --------------------------------------------------------------------------------------------------*/

static void expect_sample(const json_t *object, const char *what)
{
    static const char *const where[] = {"one", "all"};
    for (size_t i = 0; i < LENGTH(where); i++) {
        const json_t *sample = json_object_get(object, where[i]);
        if (!(number(sample, "median") > 0.0 && number(sample, "best") >= number(sample, "median")))
            fail_msg("%s: the best of %s is no best", what, where[i]);
    }
}

/* The share of each rate that another bounds follows from the two bests; null where one of them is. OpenBLAS has none
 * beside a lower instruction set than its own. */
static void expect_shares(const json_t *gflops, const json_t *shares, bool lower)
{
    static const char *const bounds[][2] = {
        {"openblas", "fp32"}, {"product_fp32", "fp32"}, {"product_bf16", "bf16"}, {"product_int8", "int8"}};
    static const char *const where[] = {"one", "all"};
    assert_int_equal(json_object_size(shares), LENGTH(bounds));
    for (size_t i = 0; i < LENGTH(bounds); i++) {
        const json_t *share = json_object_get(shares, bounds[i][0]), *rate = json_object_get(gflops, bounds[i][0]),
                     *bound = json_object_get(gflops, bounds[i][1]);
        assert_non_null(share);
        if (json_is_null(rate) || json_is_null(bound) || (i == 0 && lower)) {
            assert_true(json_is_null(share));
            continue;
        }
        expect_sample(rate, bounds[i][0]);
        for (size_t t = 0; t < LENGTH(where); t++) {
            const double of = number(json_object_get(rate, where[t]), "best");
            assert_true(fabs(number(share, where[t]) * number(json_object_get(bound, where[t]), "best") / of - 1.0) <
                        1e-4);
        }
    }
}

/* isa: of AFTD_ISA; NULL: not set. */
static void expect_machine(const char *isa)
{
    static const double megabytes[] = {1, 4, 19, 38, 76, 300};
    struct program_run p = {.argv = {aft, "bench", "--roofline", "--json", "--runs", "3"}};
    json_t *all = object_of(&p);
    const json_t *gflops = json_object_get(all, "gflops"), *reads = json_object_get(all, "read_gbps");
    assert_string_equal(json_string_value(json_object_get(all, "isa")), kernels_select(isa)->isa);
    assert_true(number(all, "threads") >= 1.0);
    assert_int_equal(number(all, "rounds"), 3);
    assert_true(json_is_boolean(json_object_get(all, "measured_again")));
    assert_true(json_is_boolean(json_object_get(all, "suspect")));
    assert_int_equal(json_object_size(all), 8);
    assert_int_equal(json_object_size(gflops), 7);
    expect_shares(gflops, json_object_get(all, "shares"), isa != NULL && strcmp(isa, kernels_select(NULL)->isa) != 0);
    expect_sample(json_object_get(gflops, "fp32"), "fp32");
    expect_sample(json_object_get(gflops, "openblas"), "openblas");
    if (peak_bf16(isa) != NULL)
        expect_sample(json_object_get(gflops, "bf16"), "bf16");
    else
        assert_true(json_is_null(json_object_get(gflops, "bf16")));
    if (peak_int8(isa) != NULL)
        expect_sample(json_object_get(gflops, "int8"), "int8");
    else
        assert_true(json_is_null(json_object_get(gflops, "int8")));
    assert_int_equal(json_is_null(json_object_get(gflops, "product_fp32")),
                     kernels_select(isa)->product[PRECISION_F32] == NULL);
    assert_int_equal(json_array_size(reads), LENGTH(megabytes));
    for (size_t i = 0; i < LENGTH(megabytes); i++) {
        assert_true(number(json_array_get(reads, i), "megabytes") == megabytes[i]);
        expect_sample(json_array_get(reads, i), "reading");
    }
    json_decref(all);
}

static void the_machine_is_measured_with_each_instruction_set(void **state)
{
    (void)state;
    static const char *const isas[] = {NULL, "avx2", "baseline"};
    for (size_t i = 0; i < LENGTH(isas); i++) {
        if (peak_select(isas[i]) == NULL)
            continue;
        assert_int_equal(isas[i] == NULL ? unsetenv("AFTD_ISA") : setenv("AFTD_ISA", isas[i], 1), 0);
        expect_machine(isas[i]);
    }
    static const struct program_case cases[] = {
        {"what needs AVX-512", {"bench", "--roofline", "--runs", "3"}, NULL, 0, "not here", ""},
        {"on one thread", {"bench", "--roofline", "--runs", "3", "--threads", "1"}, NULL, 0, " 1 thread\n", ""},
    };
    program_expect(aft, cases, LENGTH(cases)); /* baseline */
    static const struct program_case unknown[] = {
        {"unknown",
         {"bench", "--roofline"},
         NULL,
         1,
         "",
         "instruction set \"avx3\" is unknown or not supported by this machine"}};
    assert_int_equal(setenv("AFTD_ISA", "avx3", 1), 0);
    program_expect(aft, unknown, 1);
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
}

/* ---- models without files ---------------------------------------------------------------------------------------- */

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define IS_THREAD_SANITIZED true
#endif
#endif
#ifndef IS_THREAD_SANITIZED
#define IS_THREAD_SANITIZED false
#endif

static void a_synthetic_model_is_measured_like_any_other(void **state)
{
    (void)state;
    if (IS_THREAD_SANITIZED) {
        print_message("skipped: under ThreadSanitizer its 300 GFLOP take a minute, through code that the models above "
                      "have been through\n");
        skip();
    }
    struct program_run p = {
        .argv = {aft, "bench", "--synthetic", "aft-conv-small-224", "--json", "--runs", "3", "--no-limits"}};
    json_t *figures = object_of(&p);
    assert_string_equal(json_string_value(json_object_get(figures, "model")), "aft-conv-small-224");
    assert_true(number(figures, "images_per_second_batch_8") > 0.0);
    json_decref(figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_has_every_figure),
        cmocka_unit_test(shares_follow_from_the_rates_beside_them),
        cmocka_unit_test(limits_go_by_precision),
        cmocka_unit_test(limits_can_be_left_out),
        cmocka_unit_test(bench_is_readable_too),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(the_machine_is_measured_with_each_instruction_set),
        cmocka_unit_test(a_synthetic_model_is_measured_like_any_other),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
