/* test_classify.c - aft classify: the reference's probabilities, several pictures, pictures that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/data/shipped.h"
#include "tests/support/model_copy.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char model[] = "cifar10-aft-conv";
static const char cat[] = PICTURES_DIR "small-32.jpg"; /* of the model's own size */
static const char gray[] = PICTURES_DIR "gray.jpg";    /* to be resized and cropped */
/* The format's float64 reference on what Pillow makes of them. */
static const char cat_is[] = SHIPPED_CAT_IS;
static const char gray_is[] = SHIPPED_GRAY_IS;
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

/* Standard output as a whole. */
static void expect_output(const char *name, struct program_run *p, int exit_code, const char *out, const char *err)
{
    program_run(p);
    if (p->exit_code != exit_code || strcmp(p->out, out) != 0 || strcmp(p->err, err) != 0)
        fail_msg("%s: exit code %d, expected %d\ngot: %s%sexpected: %s%s", name, p->exit_code, exit_code, p->out,
                 p->err, out, err);
    program_run_clear(p);
}

static void pictures_are_named_as_the_reference_does(void **state)
{
    (void)state;
    char both[400], all[600];
    (void)snprintf(both, sizeof both, "%s:\n%s\n%s:\n%s", cat, cat_is, gray, gray_is);
    const int cat_first = (int)strcspn(cat_is, "\n"), gray_first = (int)strcspn(gray_is, "\n");
    (void)snprintf(all, sizeof all, "%s:\n%.*s\n\n%s:\n%.*s\n\n%s:\n%.*s\n", cat, cat_first, cat_is, gray, gray_first,
                   gray_is, cat, cat_first, cat_is);
    struct program_run one = {.argv = {aft, "classify", model, cat}};
    struct program_run two = {.argv = {aft, "classify", model, cat, gray}};
    struct program_run three = {.argv = {aft, "classify", model, cat, "--top-k", "1", gray, cat}};
    expect_output("one picture needs no title", &one, 0, cat_is, "");
    expect_output("a picture that is resized", &(struct program_run){.argv = {aft, "classify", model, gray}}, 0,
                  gray_is, "");
    expect_output("two pictures", &two, 0, both, "");
    expect_output("no picture depends on those before it", &three, 0, all, "");
}

static void all_classes_add_up_to_one(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "classify", model, cat, "--top-k", "1000"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    double sum = 0.0, before = 1.0;
    size_t lines = 0;
    for (char *line = p.out; *line != '\0'; lines++) {
        char *end = NULL;
        const double probability = strtod(line, &end);
        assert_true(end > line && *end == ' ' && probability >= 0.0 && probability <= before);
        sum += probability;
        before = probability;
        line = strchr(end, '\n');
        assert_non_null(line++);
    }
    assert_int_equal(lines, 10);
    assert_true(sum > 0.9994 && sum < 1.0006); /* four decimals each */
    program_run_clear(&p);
}

static void a_picture_comes_from_standard_input(void **state)
{
    (void)state;
    size_t size = 0;
    uint8_t *bytes = picture_file_read(cat, &size);
    char both[300];
    (void)snprintf(both, sizeof both, "-:\n%s\n%s:\n%s", cat_is, gray, gray_is);
    struct program_run p = {.argv = {aft, "classify", model, "-"}, .input = bytes, .input_size = size};
    expect_output("alone", &p, 0, cat_is, "");
    p = (struct program_run){.argv = {aft, "classify", model, "-", gray}, .input = bytes, .input_size = size};
    expect_output("among others", &p, 0, both, "");
    p = (struct program_run){.argv = {aft, "classify", model, "-"}, .input = bytes, .input_size = size / 2};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_string_equal(p.out, "");
    assert_memory_equal(p.err, "aft classify: -: ", 17); /* torn off in the middle */
    program_run_clear(&p);
    free(bytes);
}

static void a_picture_that_fails_does_not_keep_others_from_their_turn(void **state)
{
    (void)state;
    char out[400], err[400];
    (void)snprintf(out, sizeof out, "%s:\n%s\n%s:\n%s", cat, cat_is, gray, gray_is);
    (void)snprintf(err, sizeof err,
                   "aft classify: /no/such.jpg: No such file or directory\naft classify: tests: Is a directory\n");
    struct program_run p = {.argv = {aft, "classify", model, "/no/such.jpg", cat, "tests", gray}};
    expect_output("first and third", &p, 1, out, err);
}

static void files_that_are_no_pictures_are_named(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"no such file",
         {"classify", model, "/no/such.jpg"},
         NULL,
         1,
         "",
         "aft classify: /no/such.jpg: No such file or directory\n"},
        {"a folder", {"classify", model, "tests"}, NULL, 1, "", "aft classify: tests: Is a directory\n"},
        {"a text", {"classify", model, "Makefile"}, NULL, 1, "", "aft classify: Makefile: "},
        {"an empty file",
         {"classify", model, "/dev/null"},
         NULL,
         1,
         "",
         "aft classify: /dev/null: the picture is empty"},
        {"an empty standard input", {"classify", model, "-"}, NULL, 1, "", "aft classify: -: the picture is empty"},
        {"a name that begins with a dash",
         {"classify", model, "--", "-x.jpg"},
         NULL,
         1,
         "",
         "aft classify: -x.jpg: No such file"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_size_may_be_asked_for(void **state)
{
    (void)state;
    static const char seen[] = "aft classify: " PICTURES_DIR "gray.jpg: \"size\" is ";
    static const struct program_case cases[] = {
        {"the trained size", {"classify", model, gray, "--size", "32x32"}, NULL, 0, SHIPPED_GRAY_IS, ""},
        {"a picture of the trained size", {"classify", model, cat, "--size=native"}, NULL, 0, SHIPPED_CAT_IS, ""},
        {"another", {"classify", model, gray, "--size", "64x96", "--top-k=1"}, NULL, 0, " ", ""},
        {"too large", {"classify", model, gray, "--size", "native"}, NULL, 1, "", "expected at most 4096 patches"},
        {"with room for it",
         {"classify", model, gray, "--size", "native", "--tokens-max", "7500", "--top-k=1"},
         NULL,
         0,
         " ",
         ""},
        {"no size", {"classify", model, gray, "--size", "big"}, NULL, 1, "", seen},
        {"a fixed size", {"classify", "cifar10-sima", gray, "--size", "64x64"}, NULL, 1, "", "are learnt for 32x32"},
        {"no bound", {"classify", model, gray, "--tokens-max", "0"}, NULL, 2, "", "from 1 to 65536"},
        {"others have their turn",
         {"classify", model, gray, cat, "--size", "native", "--top-k=1"},
         NULL,
         1,
         "small-32.jpg:\n0.5171 bird",
         seen},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_model_that_overflows_is_an_error(void **state)
{
    (void)state;
    static float weight[7 * 1024];
    char folder[PATH_MAX];
    struct model_copy c;
    temp_path(folder, dir, "overflow");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < LENGTH(weight); i++)
        weight[i] = 3e38f;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    const struct tensor *head = model_copy_tensor(&c, "head.weight");
    assert_true(head->elements <= LENGTH(weight));
    model_copy_set(&c, "head.weight", weight, head->shape[0], head->shape[1]);
    model_copy_write(&c, folder);
    model_copy_clear(&c);
    const struct program_case cases[] = {
        {"classify", {"classify", folder, cat}, NULL, 1, "", "expected a finite number"}};
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_named_as_the_reference_does),
        cmocka_unit_test(all_classes_add_up_to_one),
        cmocka_unit_test(a_picture_comes_from_standard_input),
        cmocka_unit_test(a_picture_that_fails_does_not_keep_others_from_their_turn),
        cmocka_unit_test(files_that_are_no_pictures_are_named),
        cmocka_unit_test(a_size_may_be_asked_for),
        cmocka_unit_test(a_model_that_overflows_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
