/* test_check_precision.c - aft check-precision: what it measures is what aft score and aft classify say in each
 * precision, and what it records is heeded. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Three windows of the text model, and enough for auto to trust. */
enum { TEXT_BYTES = 1500 };

static char aft[PATH_MAX], dir[PATH_MAX], text_file[PATH_MAX];

/* A model that may be written to: the files of another folder, linked. */
static void link_files(const char *model, const char *name)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char to[PATH_MAX];
    temp_path(to, dir, name);
    assert_int_equal(mkdir(to, 0700), 0);
    for (size_t i = 0; i < LENGTH(files); i++) {
        char from[PATH_MAX], target[PATH_MAX], link[PATH_MAX];
        temp_path(from, model, files[i]);
        temp_path(link, to, files[i]);
        assert_non_null(realpath(from, target));
        assert_int_equal(symlink(target, link), 0);
    }
}

/* A text model with a start embedding, from the tensors of a picture model. */
static void write_starting(void)
{
    struct model_copy c;
    char path[PATH_MAX];
    model_copy_read(&c, "tests/data/golden/pixels-local");
    assert_int_equal(json_object_set_new(c.config, "task", json_string("text-generation")), 0);
    assert_int_equal(json_object_set_new(c.config, "input", json_pack("{s:s, s:i}", "kind", "bytes", "context", 48)),
                     0);
    temp_path(path, dir, "starting");
    assert_int_equal(mkdir(path, 0700), 0);
    model_copy_write(&c, path);
    model_copy_clear(&c);
}

static void write_text(void)
{
    size_t size;
    char *text = temp_read("tests/data/make_odd_shapes.py", &size);
    assert_true(size > TEXT_BYTES);
    temp_path(text_file, dir, "text.py");
    temp_write(text_file, text, TEXT_BYTES);
    free(text);
}

static int setup(void **state)
{
    (void)state;
    char path[PATH_MAX], more[PATH_MAX], target[PATH_MAX];
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    write_text();
    link_files("tests/data/models/enwik8-aft-local", "text");
    link_files("weights/models/cifar10-aft-conv", "classes");
    link_files("weights/models/cifar10-pixels-16", "pixels");
    link_files("tests/data/golden/text-attention", "classified");
    write_starting();
    temp_path(path, dir, "pictures");
    assert_int_equal(mkdir(path, 0700), 0);
    /* more than are computed at a time */
    static const char *const labels[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                         "dog",      "frog",       "horse", "ship", "truck"};
    for (size_t i = 0; i < LENGTH(labels); i++) {
        char file[64];
        temp_path(more, path, labels[i]);
        assert_int_equal(mkdir(more, 0700), 0);
        (void)snprintf(file, sizeof file, "tests/data/cifar/%s.jpg", labels[i]);
        assert_non_null(realpath(file, target));
        char link[PATH_MAX];
        temp_path(link, more, "one.JPG");
        assert_int_equal(symlink(target, link), 0);
    }
    return 0;
}

/* Run a verb on a model of the folder in a precision (NULL: as it is); what it prints, to be freed. */
static char *run(const char *verb, const char *model, const char *data, const char *precision)
{
    char path[PATH_MAX];
    temp_path(path, dir, model);
    const bool writes = strcmp(verb, "check-precision") == 0;
    struct program_run p = {.argv = {aft, verb, path, data, writes ? "--write" : NULL}};
    if (precision != NULL)
        assert_int_equal(setenv("AFTD_PRECISION", precision, 1), 0);
    program_run(&p);
    assert_int_equal(unsetenv("AFTD_PRECISION"), 0);
    if (p.exit_code != 0)
        fail_msg("aft %s: exit code %d: %s", verb, p.exit_code, p.err);
    assert_string_equal(p.err, "");
    char *out = p.out;
    p.out = NULL;
    program_run_clear(&p);
    return out;
}

/* The record's value of a precision. */
static double recorded(const char *model, enum engine_precision precision)
{
    char path[PATH_MAX], file[PATH_MAX];
    temp_path(path, dir, model);
    temp_path(file, path, "precision.json");
    json_t *root = json_load_file(file, 0, NULL);
    assert_non_null(root);
    const double value =
        json_number_value(json_object_get(json_object_get(root, "values"), engine_precision_word(precision)));
    json_decref(root);
    return value;
}

static void bits_are_those_of_aft_score(void **state)
{
    (void)state;
    static const char *const models[] = {"text", "starting"};
    for (size_t i = 0; i < LENGTH(models); i++) {
        free(run("check-precision", models[i], text_file, NULL));
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
            const enum engine_precision precision = (enum engine_precision)p;
            char *said = run("score", models[i], text_file, engine_precision_word(precision));
            const double want = strtod(said, NULL), got = recorded(models[i], precision);
            print_message("  %s, %s: %.4f\n", models[i], engine_precision_word(precision), got);
            assert_true(want > 0.1 && fabs(got - want) < 6e-5);
            free(said);
        }
    }
}

static void what_is_recorded_is_heeded(void **state)
{
    (void)state;
    char *before = run("inspect", "text", NULL, "auto"); /* the test before has recorded it */
    if (engine_precision_pays(ENGINE_INT8, getenv("AFTD_ISA")))
        assert_non_null(strstr(before, "\nprecision                      int8\n"));
    else
        assert_non_null(strstr(before, "\nprecision                      f32\n"));
    free(before);
    char *other = run("inspect", "classes", NULL, "auto");
    assert_non_null(strstr(other, "\nprecision                      f32\n"));
    free(other);
}

static void pictures_are_classified_or_drawn(void **state)
{
    (void)state;
    char pictures[PATH_MAX];
    temp_path(pictures, dir, "pictures");
    char *out = run("check-precision", "classes", pictures, NULL);
    assert_non_null(strstr(out, "of 10 pictures or texts"));
    free(out);
    const double share = recorded("classes", ENGINE_F32);
    assert_true(share > 60.0 && share <= 100.0); /* seven of ten at least */
    out = run("check-precision", "pixels", pictures, NULL);
    assert_non_null(strstr(out, "of 7680 bytes or sub-pixels"));
    free(out);
    const double bits = recorded("pixels", ENGINE_F32);
    assert_true(bits > 2.0 && bits < 6.0 && fabs(recorded("pixels", ENGINE_BF16) - bits) < 0.05);
}

/* Run aft check-precision on a file of that many bytes; the record's samples afterwards. */
static double samples_after(int bytes, const char *option, int code, const char *says)
{
    char path[PATH_MAX], data[PATH_MAX], file[PATH_MAX], text[600];
    temp_path(path, dir, "text");
    temp_path(data, dir, "short.txt");
    memset(text, 'a', sizeof text);
    temp_write(data, text, (size_t)bytes);
    const struct program_case c = {
        option, {"check-precision", path, data, option}, NULL, code, code == 0 ? says : "", code == 0 ? NULL : says};
    program_expect(aft, &c, 1);
    temp_path(file, path, "precision.json");
    json_t *root = json_load_file(file, 0, NULL);
    const double samples = json_number_value(json_object_get(root, "samples"));
    json_decref(root);
    return samples;
}

static void a_record_of_more_samples_is_kept(void **state)
{
    (void)state;
    const double more = samples_after(600, "--force", 0, "of 5");
    assert_true(more > 500.0);
    assert_true(samples_after(100, NULL, 0, "not recorded; --write records it in ") == more);
    assert_true(samples_after(100, "--write", 1, " samples, and these are ") == more);
    assert_true(samples_after(600, "--write", 0, "of 5") == more);
    assert_true(samples_after(100, "--force", 0, "of ") < 101.0);
}

static void what_is_wrong_is_told(void **state)
{
    (void)state;
    char text[PATH_MAX], classes[PATH_MAX], classified[PATH_MAX], pictures[PATH_MAX];
    temp_path(text, dir, "text");
    temp_path(classes, dir, "classes");
    temp_path(classified, dir, "classified");
    temp_path(pictures, dir, "pictures/cat");
    char broken[PATH_MAX], file[PATH_MAX];
    temp_path(broken, dir, "broken");
    temp_path(file, dir, "broken/cat");
    assert_true(mkdir(broken, 0700) == 0 && mkdir(file, 0700) == 0);
    temp_path(file, dir, "broken/cat/one.jpg");
    temp_write(file, "no picture", 10);
    const struct program_case cases[] = {
        {"no data", {"check-precision", text}, NULL, 2, "", NULL},
        {"too many", {"check-precision", text, "a", "b"}, NULL, 2, "", NULL},
        {"no model", {"check-precision", "nobody", "README.md"}, NULL, 1, "", "no model \"nobody\""},
        {"no file", {"check-precision", text, "/nowhere"}, NULL, 1, "", "/nowhere: No such file"},
        {"an empty file", {"check-precision", text, "-"}, "", 1, "", "expected at least 2"},
        {"no folder", {"check-precision", classes, "/nowhere"}, NULL, 1, "", "/nowhere: no such folder"},
        {"no labels", {"check-precision", classes, pictures}, NULL, 1, "", "such as airplane"},
        {"no picture", {"check-precision", classes, broken}, NULL, 1, "", "/broken/cat/one.jpg: "},
        {"no labelled texts", {"check-precision", classified, "README.md"}, NULL, 1, "", "line 1 is no JSON object"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void the_instruction_set_is_the_one_asked_for(void **state)
{
    (void)state;
    char text[PATH_MAX];
    temp_path(text, dir, "text");
    const struct program_case cases[] = {
        {"no such set", {"check-precision", text, text_file}, NULL, 1, "", "\"abacus\""},
    };
    const char *before = getenv("AFTD_ISA");
    char *kept = before != NULL ? strdup(before) : NULL;
    assert_int_equal(setenv("AFTD_ISA", "abacus", 1), 0);
    program_expect(aft, cases, LENGTH(cases));
    assert_int_equal(kept != NULL ? setenv("AFTD_ISA", kept, 1) : unsetenv("AFTD_ISA"), 0);
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_aft_score),
        cmocka_unit_test(what_is_recorded_is_heeded),
        cmocka_unit_test(pictures_are_classified_or_drawn),
        cmocka_unit_test(a_record_of_more_samples_is_kept),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(the_instruction_set_is_the_one_asked_for),
    };
    return cmocka_run_group_tests_name("cli_check_precision", tests, setup, temp_dirs_end);
}
