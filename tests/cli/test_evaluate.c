/* test_evaluate.c - aft evaluate: its figures are those of aft score and aft classify of the same, and add up. */
#include <jansson.h>
#include <math.h>
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

#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define PICTURES_MODEL "weights/models/cifar10-aft-conv"
#define TEXTS_MODEL "tests/data/golden/text-fastformer"

static const char *const labels[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                     "dog",      "frog",       "horse", "ship", "truck"};
static const char *const feelings[] = {"negative", "neutral", "positive"}; /* labels of TEXTS_MODEL */
static char aft[PATH_MAX], dir[PATH_MAX];

static void make(const char *name)
{
    char path[PATH_MAX];
    temp_path(path, dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* A folder of a folder for each label, called as it is or by its number, with tests/data/cifar's picture of it. */
static void make_pictures(const char *folder, bool by_number)
{
    make(folder);
    for (size_t i = 0; i < LENGTH(labels); i++) {
        char name[64], picture[64], target[PATH_MAX], link[PATH_MAX];
        const int size = by_number ? snprintf(name, sizeof name, "%s/n%zu", folder, i)
                                   : snprintf(name, sizeof name, "%s/%s", folder, labels[i]);
        make(name);
        (void)snprintf(picture, sizeof picture, "tests/data/cifar/%s.jpg", labels[i]);
        assert_non_null(realpath(picture, target));
        (void)snprintf(name + size, sizeof name - (size_t)size, "/one.jpg");
        temp_path(link, dir, name);
        assert_int_equal(symlink(target, link), 0);
    }
}

/* The same texts as files and as lines. */
static void make_texts(void)
{
    char lines[1024] = "", path[PATH_MAX];
    make("texts");
    for (size_t i = 0; i < LENGTH(feelings); i++) {
        char name[64], text[64];
        (void)snprintf(name, sizeof name, "texts/%s", feelings[i]);
        make(name);
        for (size_t j = 0; j < 4; j++) {
            (void)snprintf(name, sizeof name, "texts/%s/%zu", feelings[i], j);
            (void)snprintf(text, sizeof text, "the %zu. of %s%s", j, feelings[i],
                           j == 3 ? ", a longer one than the model takes" : "");
            temp_path(path, dir, name);
            temp_write(path, text, strlen(text));
            (void)snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
                           "{\"text\": \"%s\", \"label\": \"%s\"}\n", text, feelings[i]);
        }
    }
    temp_path(path, dir, "texts.jsonl");
    temp_write(path, lines, strlen(lines));
}

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    make_pictures("pictures", false);
    make_pictures("numbered", true);
    make_texts();
    return 0;
}

static json_t *evaluate(const char *model, const char *data)
{
    char path[PATH_MAX];
    if (data[0] == '/')
        (void)snprintf(path, sizeof path, "%s", data);
    else
        temp_path(path, dir, data);
    struct program_run p = {.argv = {aft, "evaluate", model, path, "--json", "--precision", "f32"}};
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("aft evaluate: exit code %d: %s", p.exit_code, p.err);
    json_t *answer = json_loads(p.out, 0, NULL);
    assert_non_null(answer);
    program_run_clear(&p);
    return answer;
}

static double number(const json_t *answer, const char *key)
{
    assert_true(json_is_number(json_object_get(answer, key)));
    return json_number_value(json_object_get(answer, key));
}

/* How many of the pictures aft classify names right; in *calibration, the expected error of Guo et al. 2017, eq. 3, in
 * 15 bins. */
static double classified(double *calibration)
{
    const size_t count = LENGTH(labels);
    double right = 0.0, bins[15] = {0.0};
    for (size_t i = 0; i < LENGTH(labels); i++) {
        char file[PATH_MAX], name[64];
        (void)snprintf(name, sizeof name, "pictures/%s/one.jpg", labels[i]);
        temp_path(file, dir, name);
        struct program_run p = {.argv = {aft, "classify", PICTURES_MODEL, file, "--precision", "f32"}};
        program_run(&p);
        assert_int_equal(p.exit_code, 0);
        char *tab = strchr(p.out, '\t');
        assert_non_null(tab);
        const double probability = strtod(p.out, NULL);
        const bool is_right = strncmp(tab + 1, labels[i], strlen(labels[i])) == 0;
        bins[(size_t)fmin(probability * 15.0, 14.0)] += probability - (is_right ? 1.0 : 0.0);
        right += is_right ? 1.0 : 0.0;
        program_run_clear(&p);
    }
    *calibration = 0.0;
    for (size_t i = 0; i < LENGTH(bins); i++)
        *calibration += fabs(bins[i]) / (double)count;
    return right;
}

static void pictures_are_told_as_aft_classify_tells_them(void **state)
{
    (void)state;
    double calibration;
    const double right = classified(&calibration);
    static const char *const folders[] = {"pictures", "numbered"};
    for (size_t f = 0; f < LENGTH(folders); f++) {
        json_t *answer = evaluate(PICTURES_MODEL, folders[f]), *row, *cell;
        size_t i, j;
        double sum = 0.0, diagonal = 0.0;
        assert_true(number(answer, "samples") == 10.0);
        assert_true(fabs(number(answer, "top1_percent") - 10.0 * right) < 1e-9 && right >= 7.0);
        assert_true(number(answer, "top5_percent") >= number(answer, "top1_percent"));
        assert_true(fabs(number(answer, "calibration_error_percent") - 100.0 * calibration) < 0.01);
        json_array_foreach(json_object_get(answer, "labels"), i, row)
        {
            assert_string_equal(json_string_value(json_object_get(row, "label")), labels[i]);
            json_array_foreach(json_object_get(row, "told"), j, cell)
            {
                sum += json_number_value(cell);
                diagonal += i == j ? json_number_value(cell) : 0.0;
            }
        }
        assert_true(sum == 10.0 && diagonal == right);
        json_decref(answer);
    }
}

static void texts_are_those_of_files_or_of_lines(void **state)
{
    (void)state;
    json_t *files = evaluate(TEXTS_MODEL, "texts"), *lines = evaluate(TEXTS_MODEL, "texts.jsonl");
    assert_true(number(files, "samples") == 12.0);
    assert_true(json_equal(files, lines));
    json_decref(files);
    json_decref(lines);
}

static void bits_are_those_of_aft_score(void **state)
{
    (void)state;
    char path[PATH_MAX];
    assert_non_null(realpath("README.md", path));
    json_t *answer = evaluate("tests/data/models/enwik8-aft-local", path);
    struct program_run p = {.argv = {aft, "score", "tests/data/models/enwik8-aft-local", path, "--precision", "f32"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_true(fabs(number(answer, "bits_per_byte") - strtod(p.out, NULL)) < 6e-5);
    program_run_clear(&p);
    json_decref(answer);
}

#define TEXT_MODEL "tests/data/models/enwik8-aft-local"

/* All bits of a text behind its first byte, as aft score tells them. */
static double score(const char *text, size_t size)
{
    char path[PATH_MAX];
    temp_path(path, dir, "slice");
    temp_write(path, text, size);
    struct program_run p = {.argv = {aft, "score", TEXT_MODEL, path, "--precision", "f32", "--json"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    json_t *answer = json_loads(p.out, 0, NULL);
    const double bits = number(answer, "bits_per_byte") * (double)(size - 1);
    json_decref(answer);
    program_run_clear(&p);
    return bits;
}

/* Each byte behind 64 others or fewer, and half of them but at the beginning. */
static void a_past_can_be_cut(void **state)
{
    (void)state;
    enum { PAST = 64, SIZE = 5 * PAST / 2 + 1 };
    size_t whole;
    char *text = temp_read("README.md", &whole), path[PATH_MAX];
    temp_path(path, dir, "past");
    temp_write(path, text, SIZE);
    struct program_run p = {
        .argv = {aft, "evaluate", TEXT_MODEL, path, "--precision", "f32", "--json", "--past", "64"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    json_t *answer = json_loads(p.out, 0, NULL);
    double wanted = score(text, PAST + 1);
    for (size_t begin = PAST / 2; begin + PAST < SIZE; begin += PAST / 2)
        wanted += score(text + begin, PAST + 1) - score(text + begin, PAST / 2 + 1);
    assert_true(number(answer, "samples") == (double)(SIZE - 1));
    assert_true(fabs(number(answer, "bits_per_byte") * (double)(SIZE - 1) - wanted) < 1e-3 * wanted);
    json_decref(answer);
    program_run_clear(&p);

    temp_write(path, text, 1026); /* two windows of 512 */
    answer = evaluate(TEXT_MODEL, "past");
    const json_t *by_past = json_object_get(answer, "by_past");
    double sum = 0.0;
    for (size_t i = 0; i < 2; i++) {
        const json_t *bin = json_array_get(by_past, i);
        assert_true(number(bin, "bytes_before") == (i == 0 ? 0.0 : 64.0));
        assert_true(number(bin, "bytes") == (i == 0 ? 2.0 * 64 + 1 : 2.0 * (512 - 64)));
        sum += number(bin, "bytes") * number(bin, "bits_per_byte");
    }
    assert_int_equal(json_array_size(by_past), 2);
    assert_true(fabs(sum / 1025.0 - number(answer, "bits_per_byte")) < 1e-7);
    json_decref(answer);
    free(text);
}

static void pictures_are_scored_by_their_sub_pixels(void **state)
{
    (void)state;
    json_t *answer = evaluate("weights/models/cifar10-pixels-16", "pictures/cat");
    assert_true(number(answer, "samples") == 768.0);
    assert_true(number(answer, "bits_per_dim") > 2.0 && number(answer, "bits_per_dim") < 6.0);
    json_decref(answer);
}

static void what_is_taken_for_what_is_drawn(void **state)
{
    (void)state;
    static const unsigned char png[] = {0x89, 'P', 'N', 'G'};
    char data[PATH_MAX], file[PATH_MAX];
    size_t size;
    temp_path(data, dir, "pictures");
    temp_path(file, dir, "table.png");
    const struct program_case c = {"drawn", {"evaluate", PICTURES_MODEL, data, "--confusion", file},        NULL,
                                   0,       "right %  of those told  samples  label, most often taken for", ""};
    program_expect(aft, &c, 1);
    char *bytes = temp_read(file, &size);
    assert_true(size > 100 && memcmp(bytes, png, sizeof png) == 0);
    free(bytes);
}

static void what_is_left_out_or_guessed_is_told(void **state)
{
    (void)state;
    char some[PATH_MAX], numbered[PATH_MAX], link[PATH_MAX], target[PATH_MAX];
    static const char *const folders[] = {"some/cat", "some/car"};
    make("some");
    for (size_t i = 0; i < LENGTH(folders); i++) {
        char name[64];
        make(folders[i]);
        (void)snprintf(name, sizeof name, "%s/one.jpg", folders[i]);
        temp_path(link, dir, name);
        assert_non_null(realpath("tests/data/cifar/cat.jpg", target));
        assert_int_equal(symlink(target, link), 0);
    }
    temp_path(some, dir, "some");
    temp_path(numbered, dir, "numbered");
    const struct program_case cases[] = {
        {"another folder",
         {"evaluate", PICTURES_MODEL, some},
         NULL,
         0,
         "  1 pictures, in ",
         "warning: 1 files lie in no folder of a label's name"},
        {"numbers",
         {"evaluate", PICTURES_MODEL, numbered},
         NULL,
         0,
         "  10 pictures, in ",
         "warning: no folder has a label's name"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

/* aft-conv sees pictures of any size; the samples are the same, what it makes of them is not. */
static void another_size_is_another_figure(void **state)
{
    (void)state;
    char pictures[PATH_MAX];
    temp_path(pictures, dir, "pictures");
    static const char *const sizes[] = {"32x32", "48x64"};
    double loss[LENGTH(sizes)];
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        struct program_run p = {
            .argv = {aft, "evaluate", PICTURES_MODEL, pictures, "--json", "--precision", "f32", "--size", sizes[i]}};
        program_run(&p);
        assert_int_equal(p.exit_code, 0);
        json_t *answer = json_loads(p.out, 0, NULL);
        assert_true(number(answer, "samples") == 10.0);
        loss[i] = number(answer, "loss");
        json_decref(answer);
        program_run_clear(&p);
    }
    json_t *trained = evaluate(PICTURES_MODEL, "pictures");
    assert_true(loss[0] == number(trained, "loss") && fabs(loss[1] - loss[0]) > 0.01);
    json_decref(trained);
}

static void what_is_wrong_is_told(void **state)
{
    (void)state;
    char pictures[PATH_MAX], cat[PATH_MAX], texts[PATH_MAX], wrong[PATH_MAX], empty[PATH_MAX], broken[PATH_MAX];
    temp_path(pictures, dir, "pictures");
    temp_path(cat, dir, "pictures/cat");
    temp_path(texts, dir, "texts.jsonl");
    temp_path(wrong, dir, "wrong.jsonl");
    temp_path(empty, dir, "empty.jsonl");
    make("broken");
    make("broken/cat");
    temp_path(broken, dir, "broken/cat/one.jpg");
    temp_write(broken, "no picture", 10);
    temp_path(broken, dir, "broken/cat/two.jpg");
    temp_write(broken, "no picture", 10);
    temp_path(broken, dir, "broken");
    const char *line = "{\"text\": \"a\", \"label\": \"neutral\"}\n\n{\"text\": \"a\", \"label\": \"angry\"}\n";
    temp_write(wrong, line, strlen(line));
    temp_write(empty, "", 0);
    const struct program_case cases[] = {
        {"no data", {"evaluate", PICTURES_MODEL}, NULL, 2, "", NULL},
        {"no model", {"evaluate", "nobody", pictures}, NULL, 1, "", "no model \"nobody\""},
        {"no folder", {"evaluate", PICTURES_MODEL, "/nowhere"}, NULL, 1, "", "/nowhere: no such folder"},
        {"a file of pictures", {"evaluate", PICTURES_MODEL, texts}, NULL, 1, "", "no such folder"},
        {"no labels", {"evaluate", PICTURES_MODEL, cat}, NULL, 1, "", "such as airplane"},
        {"another label", {"evaluate", TEXTS_MODEL, wrong}, NULL, 1, "", "line 3 has the label \"angry\""},
        {"no JSON", {"evaluate", TEXTS_MODEL, "README.md"}, NULL, 1, "", "line 1 is no JSON object"},
        {"nothing", {"evaluate", TEXTS_MODEL, empty}, NULL, 1, "", "there is nothing to evaluate on"},
        {"two broken pictures", {"evaluate", PICTURES_MODEL, broken}, NULL, 1, "", "/two.jpg: "},
        {"each at its own size",
         {"evaluate", PICTURES_MODEL, pictures, "--size", "native"},
         NULL,
         2,
         "",
         "--size is native, expected HxW"},
        {"a size of positions that are learnt",
         {"evaluate", "cifar10-sima", pictures, "--size", "64x64"},
         NULL,
         2,
         "",
         "are learnt for 32x32"},
        {"a table among the figures",
         {"evaluate", PICTURES_MODEL, pictures, "--confusion", "-"},
         NULL,
         2,
         "",
         "expected a file"},
        {"no table of bits",
         {"evaluate", "tests/data/models/enwik8-aft-local", "README.md", "--confusion", wrong},
         NULL,
         2,
         "",
         "--confusion is for classifiers"},
        {"more past than there is",
         {"evaluate", TEXT_MODEL, "README.md", "--past", "513"},
         NULL,
         2,
         "",
         "--past is 513, more than the context of enwik8-aft-local, 512"},
        {"no past of pictures",
         {"evaluate", PICTURES_MODEL, pictures, "--past", "64"},
         NULL,
         2,
         "",
         "--past is for generators of text"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_told_as_aft_classify_tells_them),
        cmocka_unit_test(texts_are_those_of_files_or_of_lines),
        cmocka_unit_test(bits_are_those_of_aft_score),
        cmocka_unit_test(a_past_can_be_cut),
        cmocka_unit_test(pictures_are_scored_by_their_sub_pixels),
        cmocka_unit_test(what_is_taken_for_what_is_drawn),
        cmocka_unit_test(another_size_is_another_figure),
        cmocka_unit_test(what_is_left_out_or_guessed_is_told),
        cmocka_unit_test(what_is_wrong_is_told),
    };
    return cmocka_run_group_tests_name("cli_evaluate", tests, setup, temp_dirs_end);
}
