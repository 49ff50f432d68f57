/* test_json.c - with --json, each answer of aft is a JSON object on a line of its own that says what the text does.
 * What asks a daemon is in test_ps, test_health and test_top, pictures in test_classify, aft load in test_load. */
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

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

static const char text_model[] = "tests/data/golden/lm-local-8";
static const char picture_model[] = "tests/data/golden/conv-heads8-k5";
static const char drawing_model[] = "weights/models/cifar10-pixels-16";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    return 0;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Run aft with --json: the objects of its lines, a JSON array; json_decref. */
static json_t *objects_of(const char *const *args, const char *input, int exit_code)
{
    struct program_run p = {.argv = {aft}, .input = input, .input_size = input != NULL ? strlen(input) : 0};
    size_t count = 1;
    for (; args[count - 1] != NULL; count++)
        p.argv[count] = args[count - 1];
    p.argv[count] = "--json";
    program_run(&p);
    if (p.exit_code != exit_code)
        fail_msg("aft %s --json: exit code %d, \"%s\"", args[0], p.exit_code, p.err);
    json_t *objects = json_array();
    for (char *line = p.out, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL); /* a model writes any byte */
        if (!json_is_object(object))
            fail_msg("aft %s --json: no object: %s", args[0], line);
        assert_int_equal(json_array_append_new(objects, object), 0);
    }
    program_run_clear(&p);
    return objects;
}

/* The only one. */
static json_t *object_of(const char *const *args, const char *input)
{
    json_t *objects = objects_of(args, input, 0);
    assert_int_equal(json_array_size(objects), 1);
    json_t *object = json_incref(json_array_get(objects, 0));
    json_decref(objects);
    return object;
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (value == NULL)
        fail_msg("no text \"%s\"", key);
    return value;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

/* ---- the verbs -------------------------------------------------------------------------------------------------- */

static void verify_tells_each_model(void **state)
{
    (void)state;
    json_t *all = objects_of(LIST("verify", "--precision", "bf16", text_model, "/no/such", picture_model), NULL, 1);
    assert_int_equal(json_array_size(all), 3);
    const json_t *good = json_array_get(all, 0), *bad = json_array_get(all, 1);
    assert_string_equal(text(good, "model"), text_model);
    assert_string_equal(text(good, "precision"), "bf16");
    assert_true(json_is_true(json_object_get(good, "passed")));
    assert_true(number(good, "error") > 1e-4 && number(good, "error") <= number(good, "tolerance"));
    assert_true(number(good, "inputs") >= 1);
    assert_string_equal(text(bad, "model"), "/no/such");
    assert_true(json_is_false(json_object_get(bad, "passed")));
    assert_non_null(strstr(text(bad, "message"), "no model"));
    assert_true(json_is_true(json_object_get(json_array_get(all, 2), "passed")));
    json_decref(all);
}

static void scores_are_of_texts_and_of_pictures(void **state)
{
    (void)state;
    json_t *o = object_of(LIST("score", text_model, "-"), "The quick brown fox");
    assert_string_equal(text(o, "path"), "-");
    assert_string_equal(text(o, "model"), "lm-local-8");
    assert_true(number(o, "bits_per_byte") > 1 && number(o, "bytes") == 19);
    json_decref(o);
    o = object_of(LIST("score", drawing_model, "tests/data/images/small-32.jpg"), NULL);
    assert_true(number(o, "bits_per_dim") > 1 && number(o, "bits_per_dim") < 8 && number(o, "dims") == 768);
    json_decref(o);
}

static void inspect_tells_what_the_model_is(void **state)
{
    (void)state;
    json_t *o = object_of(LIST("inspect", text_model, "--threads", "1", "--precision=int8"), NULL);
    const json_t *mixer = json_object_get(o, "mixer"), *tensors = json_object_get(o, "tensors");
    assert_string_equal(text(o, "model"), "lm-local-8");
    assert_string_equal(text(o, "task"), "text-generation");
    assert_string_equal(text(mixer, "type"), "aft-local");
    assert_true(number(mixer, "window") == 8);
    assert_string_equal(text(o, "precision"), "int8");
    assert_true(number(o, "threads") == 1 && number(o, "context") == 48 && number(o, "parameters") > 1000);
    assert_true(json_is_null(json_object_get(o, "size")));
    double parameters = 0;
    size_t i, d;
    const json_t *tensor, *side;
    json_array_foreach(tensors, i, tensor)
    {
        double elements = 1;
        json_array_foreach(json_object_get(tensor, "shape"), d, side) elements *= json_number_value(side);
        parameters += elements;
    }
    assert_true(parameters == number(o, "parameters"));
    json_decref(o);
    o = object_of(LIST("inspect", picture_model), NULL);
    assert_true(json_integer_value(json_array_get(json_object_get(o, "size"), 0)) == 32);
    assert_int_equal(json_array_size(json_object_get(json_object_get(o, "mixer"), "kernel")), 2);
    json_decref(o);
}

/* As POST /generate tells it. */
static void generate_tells_text_and_end(void **state)
{
    (void)state;
    struct program_run plain = {.argv = {aft, "generate", text_model, "-p", "A", "-s", "5", "-n", "20"}};
    program_run(&plain);
    json_t *o = object_of(LIST("generate", text_model, "-p", "A", "-s", "5", "-n", "20", "--utf8"), NULL);
    assert_true(number(o, "seed") == 5 && number(o, "tokens") == 20);
    assert_string_equal(text(o, "finish_reason"), "length");
    assert_string_equal(text(o, "model"), "lm-local-8");
    const json_t *usage = json_object_get(o, "usage");
    assert_true(number(usage, "prompt_tokens") == 1 && number(usage, "completion_tokens") == 20);
    json_decref(o);
    o = object_of(LIST("generate", text_model, "-p", "A", "-s", "5", "-n", "20"), NULL);
    assert_int_equal(plain.out_size, 20); /* bytes that are not UTF-8 are replaced in JSON alone */
    assert_true(json_is_string(json_object_get(o, "text")));
    json_decref(o);
    program_run_clear(&plain);
    o = object_of(LIST("generate", text_model, "--context-overflow", "stop", "-n", "400"), NULL);
    assert_string_equal(text(o, "finish_reason"), "context");
    assert_true(number(o, "tokens") == 48); /* the implicit newline is fed, the last byte is not */
    json_decref(o);
}

static void check_precision_tells_its_record(void **state)
{
    (void)state;
    static const char *const precisions[] = {"f32", "bf16", "int8"};
    char folder[PATH_MAX];
    struct model_copy c;
    temp_path(folder, dir, "checked");
    assert_int_equal(mkdir(folder, 0700), 0);
    model_copy_read(&c, text_model);
    model_copy_write(&c, folder);
    model_copy_clear(&c);
    json_t *o = object_of(LIST("check-precision", folder, "LICENSE", "-t", "1"), NULL);
    assert_string_equal(text(o, "measure"), "bits");
    assert_true(number(o, "samples") >= 500);
    assert_true(json_is_false(json_object_get(o, "written")));
    for (size_t i = 0; i < 3; i++) {
        const json_t *one = json_object_get(json_object_get(o, "precisions"), precisions[i]);
        assert_true(number(one, "value") > 1 && json_is_boolean(json_object_get(one, "good")));
    }
    json_decref(o);
}

static void keys_are_told_as_they_are(void **state)
{
    (void)state;
    char file[PATH_MAX];
    temp_path(file, dir, "keys.json");
    json_t *made = object_of(LIST("key", "add", "alice", "--file", file, "--models", "a,b", "--rate", "2.5/s"), NULL);
    assert_string_equal(text(made, "name"), "alice");
    assert_true(strlen(text(made, "key")) > 20);
    json_decref(made);
    json_decref(object_of(LIST("key", "add", "bob", "-f", file), NULL));
    json_t *all = objects_of(LIST("key", "list", "--file", file), NULL, 0);
    const json_t *alice = json_array_get(all, 0), *bob = json_array_get(all, 1);
    assert_int_equal(json_array_size(all), 2);
    assert_string_equal(text(alice, "name"), "alice");
    assert_true(number(alice, "requests_per_s") == 2.5);
    assert_true(json_is_null(json_object_get(alice, "bytes_per_s")));
    assert_int_equal(json_array_size(json_object_get(alice, "models")), 2);
    assert_true(json_is_null(json_object_get(bob, "models")));
    assert_int_equal(json_array_size(json_object_get(bob, "apis")), 3);
    json_decref(all);
}

static void figures_are_on_one_line(void **state)
{
    (void)state;
    json_t *o = object_of(LIST("bench", text_model, "--runs", "3", "-t", "1"), NULL);
    assert_true(number(o, "bytes_per_second_1_streams") > 0 && number(o, "threads") == 1);
    json_decref(o);
}

static void what_was_written_is_told(void **state)
{
    (void)state;
    char archive[PATH_MAX], back[PATH_MAX], png[PATH_MAX];
    struct stat at;
    temp_path(archive, dir, "a.aftz");
    temp_path(back, dir, "a.txt");
    temp_path(png, dir, "a.png");
    json_t *o = object_of(LIST("compress", text_model, "LICENSE", "-o", archive), NULL);
    assert_int_equal(stat(archive, &at), 0);
    assert_string_equal(text(o, "path"), "LICENSE");
    assert_string_equal(text(o, "output"), archive);
    assert_true(number(o, "bytes") == (double)at.st_size);
    assert_int_equal(stat("LICENSE", &at), 0);
    assert_true(number(o, "bytes_read") == (double)at.st_size);
    json_decref(o);
    o = object_of(LIST("decompress", text_model, archive, "-o", back), NULL);
    assert_true(number(o, "bytes") == (double)at.st_size);
    json_decref(o);
    o = object_of(LIST("complete", drawing_model, "-o", png, "-t", "1"), NULL);
    assert_int_equal(stat(png, &at), 0);
    assert_true(json_is_null(json_object_get(o, "path")));
    assert_true(number(o, "bytes") == (double)at.st_size);
    json_decref(o);
    o = object_of(LIST("explain", picture_model, "--view", "biases", "-o", png), NULL);
    assert_int_equal(stat(png, &at), 0);
    assert_true(number(o, "bytes") == (double)at.st_size);
    json_decref(o);
}

static void only_one_thing_goes_to_standard_output(void **state)
{
    (void)state;
    static const char both[] = "--json and the file would both go to standard output: use -o FILE";
    static const struct program_case cases[] = {
        {"compress", {"compress", text_model, "LICENSE", "--json"}, NULL, 2, "", both},
        {"decompress", {"decompress", text_model, "LICENSE", "--json", "-o", "-"}, NULL, 2, "", both},
        {"complete", {"complete", drawing_model, "--json", "-o", "-"}, NULL, 2, "", both},
        {"explain", {"explain", picture_model, "--view", "biases", "--json", "-o", "-"}, NULL, 2, "", both},
    };
    program_expect(aft, cases, sizeof cases / sizeof cases[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_tells_each_model),
        cmocka_unit_test(scores_are_of_texts_and_of_pictures),
        cmocka_unit_test(inspect_tells_what_the_model_is),
        cmocka_unit_test(generate_tells_text_and_end),
        cmocka_unit_test(check_precision_tells_its_record),
        cmocka_unit_test(keys_are_told_as_they_are),
        cmocka_unit_test(figures_are_on_one_line),
        cmocka_unit_test(what_was_written_is_told),
        cmocka_unit_test(only_one_thing_goes_to_standard_output),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
