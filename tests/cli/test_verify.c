/* test_verify.c - aft verify: the models with known answers pass, directories that are none fail, the tolerance
 * decides. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define GOLDEN "tests/data/golden"
#define ODD_SHAPES "tests/data/odd-shapes" /* widths, kernels and contexts that are no multiple of anything */

static const char text_model[] = GOLDEN "/lm-local-8";
static const char picture_model[] = GOLDEN "/conv-heads8-k5";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    return 0;
}

/* ---- models that pass ------------------------------------------------------------------------------------------ */

enum { ARGUMENTS = 4 }; /* before the models */

/* verify all models of a folder whose names hold, or do not hold, a piece; all must pass. tolerance "": aft's own. */
static void verify_all(const char *parent, const char *piece, bool hold, const char *precision, const char *tolerance)
{
    static char paths[PROGRAM_ARGUMENTS_MAX][PATH_MAX];
    char wish[32], column[16];
    struct program_run p = {.argv = {aft, "verify", "--precision", precision}};
    if (tolerance[0] != '\0') { /* with an equals sign, so that there are as many arguments */
        (void)snprintf(wish, sizeof wish, "--tolerance=%s", tolerance);
        p.argv[ARGUMENTS] = wish;
    }
    const size_t first = tolerance[0] != '\0' ? ARGUMENTS + 1 : ARGUMENTS;
    char last[80];
    size_t count = 0;
    DIR *d = opendir(parent);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.' || (strstr(e->d_name, piece) != NULL) != hold)
            continue;
        assert_true(first + count + 1 < PROGRAM_ARGUMENTS_MAX);
        temp_path(paths[count], parent, e->d_name);
        p.argv[first + count] = paths[count];
        count++;
    }
    assert_int_equal(closedir(d), 0);
    program_run(&p);
    (void)snprintf(last, sizeof last, "\n%zu passed, 0 failed\n", count);
    if (p.exit_code != 0 || count == 0 || p.out_size < strlen(last) ||
        strcmp(p.out + p.out_size - strlen(last), last) != 0)
        fail_msg("exit code %d for %zu models:\n%s%s", p.exit_code, count, p.out, p.err);
    (void)snprintf(column, sizeof column, "  %-4s  ", precision);
    size_t told = 0;
    for (const char *at = strstr(p.out, column); at != NULL; at = strstr(at + 1, column))
        told++;
    assert_int_equal(told, count);
    for (size_t i = 0; i < count; i++)
        assert_non_null(strstr(p.out, paths[i])); /* a line for each */
    program_run_clear(&p);
}

static void models_agree_with_the_reference(void **state)
{
    (void)state;
    verify_all(GOLDEN, "large-keys", false, "f32", "1e-5");
}

static void models_with_large_keys_agree_with_the_reference(void **state)
{
    (void)state;
    verify_all(GOLDEN, "large-keys", true, "f32", "5e-5");
}

static void models_agree_on_every_instruction_set(void **state)
{
    (void)state;
    static const char *const sets[] = {"baseline", "avx2", "avx512", "neon"};
    for (size_t i = 0; i < LENGTH(sets); i++) {
        assert_int_equal(setenv("AFTD_ISA", sets[i], 1), 0);
        struct program_run p = {.argv = {aft, "inspect", text_model}};
        program_run(&p);
        if (p.exit_code == 0) {
            verify_all(GOLDEN, "cancelling", true, "f32", "1e-5");
            verify_all(ODD_SHAPES, "-", true, "f32", "1e-5");
        } else {
            print_message("skipped %s: %s", sets[i], p.err);
        }
        program_run_clear(&p);
    }
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
}

static void the_shipped_models_agree_with_the_reference(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"all",
         {"verify", "weights/models/cifar10-aft-conv", "weights/models/cifar10-pixels-16",
          "weights/models/cifar10-sima", "weights/models/enwik8-aft-conv/", "weights/models/languages-aft-conv",
          "--precision", "f32", "--tolerance", "1e-5"},
         NULL,
         0,
         "\n5 passed, 0 failed\n",
         ""},
        {"a sequence model both ways",
         {"verify", "weights/models/enwik8-aft-conv"},
         NULL,
         0,
         "at once and byte by byte)\n1 passed, 0 failed\n",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_model_may_be_named(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"one that ships", {"verify", "cifar10-aft-conv"}, NULL, 0, "  cifar10-aft-conv (", ""},
        {"beside a folder", {"verify", "cifar10-sima", text_model}, NULL, 0, "\n2 passed, 0 failed\n", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* The folder with the highest number counts, as for the daemon. */
static void a_model_with_versions_is_verified_in_its_latest(void **state)
{
    (void)state;
    char name[PATH_MAX], version[PATH_MAX], cases_path[PATH_MAX], source[PATH_MAX];
    struct model_copy m;
    size_t size = 0;
    temp_path(name, dir, "versioned");
    assert_int_equal(mkdir(name, 0700), 0);
    temp_path(version, name, "2");
    assert_int_equal(mkdir(version, 0700), 0);
    model_copy_read(&m, text_model);
    model_copy_write(&m, version);
    model_copy_clear(&m);
    temp_path(source, text_model, "cases.safetensors");
    temp_path(cases_path, version, "cases.safetensors");
    char *bytes = temp_read(source, &size);
    temp_write(cases_path, bytes, size);
    free(bytes);
    assert_int_equal(setenv("AFTD_MODELS_DIR", dir, 1), 0);
    const struct program_case cases[] = {
        {"by name", {"verify", "versioned"}, NULL, 0, "  versioned (", ""},
        {"by path", {"verify", name}, NULL, 0, "\n1 passed, 0 failed\n", ""},
        {"it has its folder's name",
         {"inspect", "versioned"},
         NULL,
         0,
         "model                          versioned\n",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
    assert_int_equal(unsetenv("AFTD_MODELS_DIR"), 0);
}

/* ---- precisions ------------------------------------------------------------------------------------------------- */

static void models_agree_in_each_precision(void **state)
{
    (void)state;
    static const char *const sets[] = {"baseline", "avx2", "avxvnni", "avx512", "amx", "neon"};
    static const char *const precisions[] = {"f32", "bf16", "int8"};
    for (size_t i = 0; i < LENGTH(sets); i++) {
        assert_int_equal(setenv("AFTD_ISA", sets[i], 1), 0);
        struct program_run p = {.argv = {aft, "inspect", text_model}};
        program_run(&p);
        for (size_t j = 0; j < LENGTH(precisions) && p.exit_code == 0; j++) {
            verify_all(GOLDEN, "lm-", true, precisions[j], "");
            verify_all(GOLDEN, "lm-", false, precisions[j], "");
        }
        program_run_clear(&p);
    }
    assert_int_equal(unsetenv("AFTD_ISA"), 0);
}

/* What is verified is what was asked for: the narrower ones have the error that their rounding makes, and auto is what
 * the model's record says. */
static void the_precision_asked_for_is_verified(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"not f32 in disguise",
         {"verify", text_model, "--precision", "bf16", "--tolerance", "1e-4"},
         NULL,
         1,
         "  bf16  ",
         ""},
        {"nor int8", {"verify", text_model, "--precision=int8", "--tolerance", "1e-4"}, NULL, 1, "  int8  ", ""},
        {"auto without a record", {"verify", text_model, "--precision", "auto"}, NULL, 0, "  f32   ", ""},
        {"a tolerance is for all",
         {"verify", text_model, "--precision", "int8", "--tolerance", "1"},
         NULL,
         0,
         "  int8  ",
         ""},
        {"no such precision",
         {"verify", text_model, "--precision", "f16"},
         NULL,
         2,
         "",
         "aft verify: --precision is \"f16\", expected f32|bf16|int8|auto"},
        {"none",
         {"verify", text_model, "--precision", ""},
         NULL,
         2,
         "",
         "--precision is \"\", expected f32|bf16|int8|auto"},
        {"several", {"verify", text_model, "--precision", "f32|bf16"}, NULL, 2, "", "--precision is \"f32|bf16\""},
    };
    static const struct program_case set[] = {
        {"the environment's", {"verify", text_model}, NULL, 0, "  bf16  ", ""},
        {"the option goes first", {"verify", text_model, "--precision", "f32"}, NULL, 0, "  f32   ", ""},
    };
    static const struct program_case unset[] = {
        /* which auto would compute in int8, by its record */
        {"f32 unless told",
         {"-u", "AFTD_PRECISION", aft, "verify", "weights/models/cifar10-sima"},
         NULL,
         0,
         "  f32   ",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
    program_expect("/usr/bin/env", unset, LENGTH(unset));
    assert_int_equal(setenv("AFTD_PRECISION", "bf16", 1), 0);
    program_expect(aft, set, LENGTH(set));
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
}

/* ---- directories that fail ------------------------------------------------------------------------------------- */

static void directories_without_cases_or_model_fail(void **state)
{
    (void)state;
    char none[PATH_MAX], broken[PATH_MAX], path[PATH_MAX];
    temp_path(none, dir, "none");
    temp_path(broken, dir, "broken");
    assert_int_equal(mkdir(none, 0700), 0);
    assert_int_equal(mkdir(broken, 0700), 0);
    struct model_copy m;
    model_copy_read(&m, text_model);
    model_copy_write(&m, none); /* a model, no cases */
    model_copy_drop(&m, "norm.bias");
    model_copy_write(&m, broken);
    model_copy_clear(&m);
    temp_path(path, broken, "cases.safetensors");
    temp_write(path, "", 0);
    const struct program_case cases[] = {
        {"no cases", {"verify", none}, NULL, 1, "cases.safetensors: cannot be opened: No such file or directory", ""},
        {"a tensor is missing", {"verify", broken}, NULL, 1, "norm.bias", ""},
        {"no such folder",
         {"verify", "/no/such"},
         NULL,
         1,
         "FAILED  /no/such: no model \"/no/such\": expected a folder with a config.json, or the name of one",
         ""},
        {"no such name", {"verify", "no-such-model"}, NULL, 1, "FAILED  no-such-model: no model \"no-such", ""},
        {"an empty name", {"verify", ""}, NULL, 1, "0 passed, 1 failed\n", ""},
        {"one bad folder does not keep others from their turn",
         {"verify", none, text_model, "/no", picture_model},
         NULL,
         1,
         "\n2 passed, 2 failed\n",
         ""},
        {"two good ones", {"verify", picture_model, text_model}, NULL, 0, "\n2 passed, 0 failed\n", ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void the_tolerance_decides(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"nothing is exact", {"verify", text_model, "--tolerance", "0"}, NULL, 1, "\n0 passed, 1 failed\n", ""},
        {"within float32's precision",
         {"verify", text_model, "--tolerance=1e-5"},
         NULL,
         0,
         "\n1 passed, 0 failed\n",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_agree_with_the_reference),
        cmocka_unit_test(models_with_large_keys_agree_with_the_reference),
        cmocka_unit_test(models_agree_on_every_instruction_set),
        cmocka_unit_test(the_shipped_models_agree_with_the_reference),
        cmocka_unit_test(a_model_may_be_named),
        cmocka_unit_test(a_model_with_versions_is_verified_in_its_latest),
        cmocka_unit_test(models_agree_in_each_precision),
        cmocka_unit_test(the_precision_asked_for_is_verified),
        cmocka_unit_test(directories_without_cases_or_model_fail),
        cmocka_unit_test(the_tolerance_decides),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
