/* test_score.c - aft score: bits per byte as the format's float64 reference finds them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/data/shipped.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char byte_model[] = "enwik8-aft-local";
static const char enwik8[] = "tests/data/enwik8-held-out.xz";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_PRECISION", "f32", 1), 0); /* as in the reference's figures */
    temp_dir_create(dir);
    return 0;
}

/* "2.9429 bits per byte\n" -> 2.9429; must be all there is. */
static double run_score(const char *model, const char *file, const void *input, size_t size)
{
    struct program_run p = {.argv = {aft, "score", model, file}, .input = input, .input_size = size};
    char *end = NULL;
    program_run(&p);
    if (p.exit_code != 0 || p.err_size != 0)
        fail_msg("exit code %d: %s", p.exit_code, p.err);
    const double bits = strtod(p.out, &end);
    assert_string_equal(end, " bits per byte\n");
    program_run_clear(&p);
    return bits;
}

static const char fox[] = "The quick brown fox jumps over the lazy dog. "; /* 45 bytes */

/* What the reference says of the first `size` bytes of the fox, over and over. */
static const struct {
    const char *name, *model;
    size_t size;
    double want;
} texts[] = {
    {"two bytes, of which the second is scored", "tests/data/golden/lm-local-8", 2, 13.309793},
    {"a window less one", "tests/data/golden/lm-local-8", 48, 11.343236},
    {"one window", "tests/data/golden/lm-local-8", 49, 11.356635},
    {"a byte in the second window", "tests/data/golden/lm-local-8", 50, 11.337407},
    {"five windows", "tests/data/golden/lm-local-1", 200, 10.786454},
    {"five windows of another model", "tests/data/golden/lm-local-8", 200, 11.268030},
    {"two windows of the text model, each of several passes", "enwik8-aft-local", 630, SHIPPED_FOX_BITS},
};

static void texts_score_as_the_reference_says(void **state)
{
    (void)state;
    char text[700], path[PATH_MAX];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = fox[i % (sizeof fox - 1)];
    temp_path(path, dir, "text");
    for (size_t i = 0; i < LENGTH(texts); i++) {
        const double piped = run_score(texts[i].model, "-", text, texts[i].size);
        temp_write(path, text, texts[i].size);
        const double read = run_score(texts[i].model, path, NULL, 0);
        if (piped != read || !(piped >= texts[i].want - 1e-4 && piped <= texts[i].want + 1e-4))
            fail_msg("%s: %.4f by pipe, %.4f by name, expected %.6f", texts[i].name, piped, read, texts[i].want);
    }
}

static void every_byte_value_can_be_scored(void **state)
{
    (void)state;
    unsigned char bytes[512];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    const double bits = run_score(byte_model, "-", bytes, sizeof bytes);
    assert_true(fabs(bits - SHIPPED_ALL_VALUES_BITS) < 1e-4);
}

/* The first 4,096 bytes that the model was not trained on. */
static void unseen_wikipedia_scores_as_the_reference_says(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct program_run p = {.argv = {"/usr/bin/xz", "-dc", enwik8}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_int_equal(p.out_size, 75000);
    temp_path(path, dir, "enwik8");
    temp_write(path, p.out, 4096);
    program_run_clear(&p);
    const double bits = run_score(byte_model, path, NULL, 0);
    if (!(fabs(bits - SHIPPED_UNSEEN_BITS) < 1e-4))
        fail_msg("%.4f bits per byte, expected %.6f", bits, SHIPPED_UNSEEN_BITS);
}

static void files_that_cannot_be_scored_are_refused(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"no such file",
         {"score", byte_model, "/no/such/file"},
         NULL,
         1,
         "",
         "/no/such/file: No such file or directory"},
        {"a folder", {"score", byte_model, "tests"}, NULL, 1, "", "tests: Is a directory"},
        {"an empty file",
         {"score", byte_model, "/dev/null"},
         NULL,
         1,
         "",
         "/dev/null has 0 bytes, expected at least 2"},
        {"nothing on standard input",
         {"score", byte_model, "-"},
         NULL,
         1,
         "",
         "standard input has 0 bytes, expected at least 2"},
        {"one byte", {"score", byte_model, "-"}, "a", 1, "", "standard input has 1 byte, expected at least 2"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_score_as_the_reference_says),
        cmocka_unit_test(every_byte_value_can_be_scored),
        cmocka_unit_test(unseen_wikipedia_scores_as_the_reference_says),
        cmocka_unit_test(files_that_cannot_be_scored_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
