/* test_classify.c - aft classify: the reference's probabilities, several pictures, pictures that are none. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    assert_int_equal(setenv("AFTD_PRECISION", "f32", 1), 0); /* as in the reference's figures */
    temp_dir_create(dir);
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

#define CAT_LINE PICTURES_DIR "small-32.jpg\t" SHIPPED_CAT_BEST "\n"
#define GRAY_LINE PICTURES_DIR "gray.jpg\t" SHIPPED_GRAY_BEST "\n"

static void pictures_are_named_as_the_reference_does(void **state)
{
    (void)state;
    struct program_run one = {.argv = {aft, "classify", model, cat}};
    expect_output("one picture has a line for each label", &one, 0, cat_is, "");
    expect_output("a picture that is resized", &(struct program_run){.argv = {aft, "classify", model, gray}}, 0,
                  gray_is, "");
}

/* Files are read as they are; what the reference gives texts is compared by aft verify. */
static void texts_are_classified_by_a_model_for_them(void **state)
{
    (void)state;
    static const char texts[] = "tests/data/golden/text-attention";
    static const char class_token[] = "tests/data/golden/text-conv-class-token";
    char folder[PATH_MAX], file[PATH_MAX], longest[PATH_MAX], below[PATH_MAX];
    temp_path(folder, dir, "texts");
    assert_int_equal(mkdir(folder, 0700), 0);
    temp_path(below, folder, "below"); /* whose files are not its own */
    assert_int_equal(mkdir(below, 0700), 0);
    temp_path(file, below, "too-long");
    temp_write(file, "1234567890123456789012345678901234567890123456789", 49);
    temp_path(file, folder, "one.txt");
    temp_write(file, "a text", 6);
    temp_path(longest, folder, "long");
    temp_write(longest, "123456789012345678901234567890123456789012345678", 48);
    const struct program_case cases[] = {
        {"a file", {"classify", texts, file}, NULL, 0, "\tneutral\n", ""},
        {"standard input", {"classify", texts, "-", "--top-k", "1"}, "a text", 0, "\t", ""},
        {"a folder, whatever its files are called", {"classify", texts, folder}, NULL, 0, "/one.txt\t", ""},
        {"more than the model takes", {"classify", texts, "README.md"}, NULL, 1, "", "expected 1 to 48"},
        {"nothing", {"classify", texts, "-"}, "", 1, "", "standard input has 0 bytes"},
        {"a class token's position", {"classify", class_token, longest}, NULL, 1, "", "has 48 bytes, expected 1 to 47"},
        {"a size", {"classify", texts, file, "--size", "native"}, NULL, 2, "", "--size is about pictures"},
        {"of our own that it is", {"classify", texts, "--texts", file}, NULL, 2, "", "--texts is for a daemon's model"},
        {"no file", {"classify", texts, "/nowhere"}, NULL, 1, "", "/nowhere: No such file"},
    };
    program_expect(aft, cases, sizeof cases / sizeof cases[0]);
}

static void many_pictures_have_a_line_each(void **state)
{
    (void)state;
    struct program_run two = {.argv = {aft, "classify", model, cat, gray}};
    struct program_run three = {.argv = {aft, "classify", model, cat, "-k", "2", gray, cat}};
    expect_output("two pictures", &two, 0, CAT_LINE GRAY_LINE, "");
    expect_output("no picture depends on those before it, and labels go on in the line", &three, 0,
                  PICTURES_DIR "small-32.jpg\t" SHIPPED_CAT_TWO "\n" PICTURES_DIR "gray.jpg\t" SHIPPED_GRAY_TWO
                               "\n" PICTURES_DIR "small-32.jpg\t" SHIPPED_CAT_TWO "\n",
                  "");
}

/* A copy of a picture under another name. */
static void copy_picture(const char *from, const char *folder, const char *name)
{
    char path[PATH_MAX];
    size_t size = 0;
    uint8_t *bytes = picture_file_read(from, &size);
    temp_path(path, folder, name);
    temp_write(path, bytes, size);
    free(bytes);
}

static void a_folder_stands_for_its_pictures(void **state)
{
    (void)state;
    char folder[PATH_MAX], below[PATH_MAX], slash[PATH_MAX], text[PATH_MAX], out[3 * PATH_MAX];
    temp_path(folder, dir, "pictures");
    temp_path(below, folder, "below.jpg"); /* a folder, however it is named, is not gone into */
    assert_int_equal(mkdir(folder, 0700), 0);
    copy_picture(gray, folder, "b.JPG");
    copy_picture(cat, folder, "a.jpeg");
    temp_path(text, folder, "notes.txt");
    temp_write(text, "x", 1);
    (void)snprintf(out, sizeof out, "%s/a.jpeg\t" SHIPPED_CAT_BEST "\n%s/b.JPG\t" SHIPPED_GRAY_BEST "\n", folder,
                   folder);
    struct program_run alone = {.argv = {aft, "classify", model, folder}};
    expect_output("sorted, and nothing but pictures", &alone, 0, out, "");
    (void)snprintf(slash, sizeof slash, "%.3000s/", folder);
    struct program_run slashed = {.argv = {aft, "classify", model, slash}};
    expect_output("one slash behind it is enough", &slashed, 0, out, "");
    (void)snprintf(out, sizeof out, "%s/a.jpeg\t" SHIPPED_CAT_BEST "\n", folder);
    char second[PATH_MAX];
    temp_path(second, folder, "b.JPG");
    assert_int_equal(unlink(second), 0);
    struct program_run one = {.argv = {aft, "classify", model, folder}};
    expect_output("of one picture too", &one, 0, out, "");
    assert_int_equal(mkdir(below, 0700), 0);
    struct program_run with_folder = {.argv = {aft, "classify", model, folder}};
    program_run(&with_folder);
    assert_int_equal(with_folder.exit_code, 1);
    assert_string_equal(with_folder.out, out);
    assert_non_null(strstr(with_folder.err, "below.jpg: Is a directory"));
    program_run_clear(&with_folder);
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

static void names_of_pictures_come_from_a_list(void **state)
{
    (void)state;
    static const char lines[] = PICTURES_DIR "small-32.jpg\n\n" PICTURES_DIR "gray.jpg"; /* the last without its end */
    static const char nuls[] = PICTURES_DIR "small-32.jpg\0" PICTURES_DIR "gray.jpg";    /* and the literal's own */
    char list[PATH_MAX];
    temp_path(list, dir, "list");
    temp_write(list, lines, sizeof lines - 1);
    struct program_run p = {.argv = {aft, "classify", model, "--files-from", list}};
    expect_output("a file", &p, 0, CAT_LINE GRAY_LINE, "");
    p = (struct program_run){
        .argv = {aft, "classify", model, "--files-from", "-"}, .input = lines, .input_size = sizeof lines - 1};
    expect_output("standard input", &p, 0, CAT_LINE GRAY_LINE, "");
    p = (struct program_run){
        .argv = {aft, "classify", model, "--files-from=-", "-0"}, .input = nuls, .input_size = sizeof nuls};
    expect_output("names that end with NUL", &p, 0, CAT_LINE GRAY_LINE, "");
    p = (struct program_run){.argv = {aft, "classify", model, gray, "--files-from", list}};
    expect_output("behind those of the command line", &p, 0, GRAY_LINE CAT_LINE GRAY_LINE, "");
    p = (struct program_run){.argv = {aft, "classify", model, "--files-from", "/dev/null"}};
    expect_output("none at all", &p, 0, "", "");
    p = (struct program_run){.argv = {aft, "classify", model, "--files-from", "-"},
                             .input = "/no/such.jpg\n" PICTURES_DIR "gray.jpg\n",
                             .input_size = strlen("/no/such.jpg\n" PICTURES_DIR "gray.jpg\n")};
    expect_output("one that fails does not stop the others", &p, 1, GRAY_LINE,
                  "aft classify: /no/such.jpg: No such file or directory\n");
    char *large = malloc(1 << 20);
    memset(large, 'x', 1 << 20);
    p = (struct program_run){
        .argv = {aft, "classify", model, "--files-from", "-"}, .input = large, .input_size = 1 << 20};
    expect_output("a name that is too long", &p, 1, "",
                  "aft classify: standard input: a name has more than 4095 bytes\n");
    free(large);
    static const struct program_case cases[] = {
        {"no such list", {"classify", model, "--files-from", "/no/such"}, NULL, 1, "", "/no/such: No such file"},
        {"a name without end",
         {"classify", model, "--files-from", "/dev/zero", "-k1"},
         NULL,
         1,
         "",
         "/dev/zero: a name has a NUL byte; with -0, names end with NUL"},
        {"a folder", {"classify", model, "--files-from", "tests"}, NULL, 1, "", "tests: Is a directory"},
        {"standard input twice",
         {"classify", model, "-", "--files-from", "-"},
         NULL,
         2,
         "",
         "standard input cannot be an input and --files-from both"},
        {"-0 without a list", {"classify", model, gray, "-0"}, NULL, 2, "", "--null is about --files-from"},
        {"neither pictures nor a list", {"classify", model}, NULL, 2, "", "too few arguments"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* Names that would break a line, or are no text, are told apart from it; in JSON a newline is what it is. */
static void a_name_can_not_end_its_line(void **state)
{
    (void)state;
    char folder[PATH_MAX], out[2 * PATH_MAX];
    temp_path(folder, dir, "odd");
    assert_int_equal(mkdir(folder, 0700), 0);
    copy_picture(cat, folder, "a\n\tb\033[1m\xff.jpg");
    (void)snprintf(out, sizeof out, "%s/a\\x0a\\x09b\\x1b[1m\xff.jpg\t" SHIPPED_CAT_BEST "\n", folder);
    struct program_run p = {.argv = {aft, "classify", model, folder}};
    expect_output("as a line", &p, 0, out, "");
    p = (struct program_run){.argv = {aft, "classify", model, "--files-from", "none\n\033[1m"}};
    expect_output("in a message", &p, 1, "", "aft classify: none\\x0a\\x1b[1m: No such file or directory\n");
    (void)snprintf(out, sizeof out, "%s/a\n\tb\033[1m\xef\xbf\xbd.jpg", folder);
    p = (struct program_run){.argv = {aft, "classify", model, folder, "--json"}};
    program_run(&p);
    json_t *object = json_loads(p.out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(object, "path")), out);
    json_decref(object);
    program_run_clear(&p);
}

/* A line of JSON for each picture that can be read, in the order of their names. */
static void each_picture_is_an_object_on_a_line(void **state)
{
    (void)state;
    static const char *const paths[] = {cat, gray}, *const labels[] = {SHIPPED_CAT_LABEL, SHIPPED_GRAY_LABEL};
    static const char *const best[] = {SHIPPED_CAT_BEST, SHIPPED_GRAY_BEST};
    struct program_run p = {.argv = {aft, "classify", model, "--json", cat, "/no/such.jpg", gray, "--top-k", "3"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    char *line = p.out;
    for (size_t i = 0; i < LENGTH(paths); i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        json_t *object = json_loads(line, 0, NULL);
        const json_t *predictions = json_object_get(object, "predictions"), *first = json_array_get(predictions, 0);
        assert_string_equal(json_string_value(json_object_get(object, "path")), paths[i]);
        assert_string_equal(json_string_value(json_object_get(object, "model")), model);
        assert_int_equal(json_array_size(predictions), 3);
        assert_string_equal(json_string_value(json_object_get(first, "label")), labels[i]);
        assert_true(json_is_integer(json_object_get(first, "index")));
        assert_float_equal(json_real_value(json_object_get(first, "probability")), strtod(best[i], NULL), 1e-4);
        json_decref(object);
        line = end + 1;
    }
    assert_string_equal(line, "");
    program_run_clear(&p);
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
        assert_true(end > line && *end == '\t' && probability >= 0.0 && probability <= before);
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
    struct program_run p = {.argv = {aft, "classify", model, "-"}, .input = bytes, .input_size = size};
    expect_output("alone", &p, 0, cat_is, "");
    p = (struct program_run){.argv = {aft, "classify", model, "-", gray}, .input = bytes, .input_size = size};
    expect_output("among others", &p, 0, "-\t" SHIPPED_CAT_BEST "\n" GRAY_LINE, "");
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
    static const char err[] =
        "aft classify: tests holds no picture: expected files named *.jpg, *.jpeg, *.png or *.webp\n"
        "aft classify: /no/such.jpg: No such file or directory\n";
    struct program_run p = {.argv = {aft, "classify", model, "/no/such.jpg", cat, "tests", gray}};
    expect_output("first and third", &p, 1, CAT_LINE GRAY_LINE, err);
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
        {"a folder without", {"classify", model, "tests"}, NULL, 1, "", "aft classify: tests holds no picture: "},
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
        {"another", {"classify", model, gray, "--size", "64x96", "--top-k=1"}, NULL, 0, "\t", ""},
        {"too large", {"classify", model, gray, "--size", "native"}, NULL, 1, "", "expected at most 4096 patches"},
        {"with room for it",
         {"classify", model, gray, "--size", "native", "--tokens-max", "7500", "--top-k=1"},
         NULL,
         0,
         "\t",
         ""},
        {"no size", {"classify", model, gray, "--size", "big"}, NULL, 1, "", seen},
        {"a fixed size", {"classify", "cifar10-sima", gray, "--size", "64x64"}, NULL, 1, "", "are learnt for 32x32"},
        {"no bound", {"classify", model, gray, "--tokens-max", "0"}, NULL, 2, "", "from 1 to 65536"},
        {"others have their turn",
         {"classify", model, gray, cat, "--size", "native", "--top-k=1"},
         NULL,
         1,
         "small-32.jpg\t" SHIPPED_CAT_BEST,
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
        {"classify", {"classify", folder, cat}, NULL, 1, "", "gave a logit that is not a number"}};
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_named_as_the_reference_does),
        cmocka_unit_test(texts_are_classified_by_a_model_for_them),
        cmocka_unit_test(many_pictures_have_a_line_each),
        cmocka_unit_test(a_folder_stands_for_its_pictures),
        cmocka_unit_test(names_of_pictures_come_from_a_list),
        cmocka_unit_test(a_name_can_not_end_its_line),
        cmocka_unit_test(each_picture_is_an_object_on_a_line),
        cmocka_unit_test(all_classes_add_up_to_one),
        cmocka_unit_test(a_picture_comes_from_standard_input),
        cmocka_unit_test(a_picture_that_fails_does_not_keep_others_from_their_turn),
        cmocka_unit_test(files_that_are_no_pictures_are_named),
        cmocka_unit_test(a_size_may_be_asked_for),
        cmocka_unit_test(a_model_that_overflows_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
