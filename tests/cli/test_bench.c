/* test_bench.c - aft bench: every figure, models without files. How fast anything is depends on what else runs: only
 * what cannot be otherwise is asked of the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/model_variants.h"
#include "tests/support/program.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char small_text_model[] = "tests/data/golden/lm-local-8";
static const char small_picture_model[] = "tests/data/golden/conv-heads8-k5";
static char aft[PATH_MAX], dir[PATH_MAX], endless[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    model_variants_write_endless(dir, "endless", "tests/data/golden/lm-conv-heads4-k5", 6);
    temp_path(endless, dir, "endless");
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_dir_remove(dir);
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

/* ---- figures of a model ----------------------------------------------------------------------------------------- */

/* bench --json on a model with extra options: exactly these keys beside what describes the run, all numbers above 0. */
static json_t *expect_figures(const char *model, const char *option, const char *value, const char *const keys[])
{
    struct program_run p = {.argv = {aft, "bench", model, "--json", "--runs", "3", option, value}};
    json_t *figures = object_of(&p);
    size_t count = 0;
    assert_non_null(strstr(model, json_string_value(json_object_get(figures, "model"))));
    assert_true(json_is_string(json_object_get(figures, "isa")));
    assert_true(json_integer_value(json_object_get(figures, "threads")) >= 1);
    for (; keys[count] != NULL; count++)
        if (!(number(figures, keys[count]) > 0.0))
            fail_msg("%s: %s is not above 0", model, keys[count]);
    assert_int_equal(json_object_size(figures), count + 3);
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
    json_decref(expect_figures(small_text_model, "--precision", "int8", KEYS(STREAM_KEYS, "step_ms_at_47")));
    json_decref(expect_figures(small_picture_model, NULL, NULL, KEYS(BATCH_KEYS)));
}

static void bench_is_readable_too(void **state)
{
    (void)state;
    const struct program_case cases[] = {
        {"text", {"bench", small_text_model, "--runs", "3"}, NULL, 0, "64 streams ", ""},
        {"prefill", {"bench", small_text_model, "--runs", "3"}, NULL, 0, "(one prompt of 48 bytes)", ""},
        {"positions",
         {"bench", small_text_model, "--runs", "3", "--positions", "3,40"},
         NULL,
         0,
         "byte 40 over byte 3: ",
         ""},
        {"positions of a stream without an end",
         {"bench", endless, "--runs", "3", "--positions", "64,5000"},
         NULL,
         0,
         "byte 5000 over byte 64: ",
         ""},
        {"pictures", {"bench", small_picture_model, "--runs", "3"}, NULL, 0, "batch 8 ", ""},
        {"attention's state grows",
         {"bench", "tests/data/golden/lm-attention", "--runs", "3"},
         NULL,
         0,
         "64 streams ",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    static const char one[] = "expected either MODEL or --synthetic NAME";
    static const struct program_case cases[] = {
        {"nothing to measure", {"bench"}, NULL, 2, "", one},
        {"a model and a synthetic one",
         {"bench", small_text_model, "--synthetic", "aft-local-24x256"},
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
        {"positions of synthetic pictures",
         {"bench", "--synthetic", "aft-conv-small-224", "--positions", "1,2"},
         NULL,
         2,
         "",
         "--positions is for models that generate"},
        {"two models", {"bench", small_text_model, small_text_model}, NULL, 2, "", "unexpected argument"},
        {"a flag takes no value", {"bench", "--json=1"}, NULL, 2, "", "--json takes no value"},
        {"help", {"bench", "--help"}, NULL, 0, "aft-conv-small-224, aft-local-24x256, aft-local-12x512", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- models without files --------------------------------------------------------------------------------------- */

static void a_synthetic_model_is_measured_like_any_other(void **state)
{
    (void)state;
    if (IS_THREAD_SANITIZED) {
        print_message("skipped: under ThreadSanitizer its 300 GFLOP take a minute, through code that the models above "
                      "have been through\n");
        skip();
    }
    struct program_run p = {.argv = {aft, "bench", "--synthetic", "aft-conv-small-224", "--json", "--runs", "3"}};
    json_t *figures = object_of(&p);
    assert_string_equal(json_string_value(json_object_get(figures, "model")), "aft-conv-small-224");
    assert_true(number(figures, "images_per_second_batch_8") > 0.0);
    json_decref(figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_has_every_figure),
        cmocka_unit_test(bench_is_readable_too),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_synthetic_model_is_measured_like_any_other),
    };
    return cmocka_run_group_tests(tests, setup, tear_down);
}
