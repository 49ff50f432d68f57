/* test_precision.c - what a setting means for a model, and when a record of its quality counts. */
#include "server/models/precision.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/control/hosting.h"
#include "server/models/registry.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char dir[PATH_MAX];

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    temp_path(path, dir, name);
    temp_write(path, text, strlen(text));
}

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    put("config.json", "{}");
    put("model.safetensors", "weights");
    return 0;
}

/* The best instruction set for which both pay, or NULL where this machine has none. */
static const char *best_isa(void)
{
    static const char *const isas[] = {"amx", "avx512bf16", "neonbf16"};
    for (size_t i = 0; i < LENGTH(isas); i++)
        if (engine_precision_pays(ENGINE_BF16, isas[i]))
            return isas[i];
    return NULL;
}

static void a_list_names_models_and_the_rest(void **state)
{
    (void)state;
    static const struct {
        const char *ref, *name;
        enum engine_precision want;
        bool is_auto;
    } cases[] = {
        {NULL, "a", ENGINE_F32, true},
        {"", "a", ENGINE_F32, true},
        {"bf16", "a", ENGINE_BF16, false},
        {"int8", "a", ENGINE_INT8, false},
        {"f32,a=int8", "a", ENGINE_INT8, false},
        {"a=int8,f32", "a", ENGINE_INT8, false},
        {"f32,a=int8", "b", ENGINE_F32, false},
        {"a=int8", "b", ENGINE_F32, true},
        {"bf16,ab=int8", "a", ENGINE_BF16, false},
        {"a=bf16,a=int8", "a", ENGINE_INT8, false},
        {"auto", "a", ENGINE_F32, true},
        {"auto,a=bf16", "a", ENGINE_BF16, false},
        {"auto,a=bf16", "b", ENGINE_F32, true},
        {"bf16,a=auto", "a", ENGINE_F32, true},
        {" bf16 , a=int8 ", "a", ENGINE_INT8, false},
        {" bf16 , a=int8 ", "b", ENGINE_BF16, false},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct precision_choice got;
        assert_int_equal(precision_check(cases[i].ref, NULL), OK);
        assert_int_equal(precision_choose(&got, cases[i].ref, cases[i].name, dir, ENGINE_F32, NULL, NULL), OK);
        if (got.precision != cases[i].want)
            fail_msg("\"%s\" for %s is %d", cases[i].ref != NULL ? cases[i].ref : "nothing", cases[i].name,
                     got.precision);
        assert_int_equal(got.by, cases[i].is_auto ? PRECISION_BY_FILES : PRECISION_BY_SETTING);
    }
}

static void what_is_no_precision_is_named(void **state)
{
    (void)state;
    static const char *const map_requests[] = {
        "fp16", "int", "f32,,bf16", "f32,", "a=", "a=fp16", "=x", "a= f32", "F32", "auto=f"};
    for (size_t i = 0; i < LENGTH(map_requests); i++) {
        struct precision_choice got = {.precision = ENGINE_INT8, .by = PRECISION_BY_FILES};
        struct error err;
        assert_int_equal(precision_check(map_requests[i], NULL), ERR_ARGUMENT);
        assert_int_equal(precision_choose(&got, map_requests[i], "a", dir, ENGINE_F32, NULL, &err), ERR_ARGUMENT);
        assert_string_equal(err.param, "precision");
        assert_non_null(strstr(err.message, "expected f32, bf16, int8 or auto"));
        assert_int_equal(got.precision, ENGINE_INT8);
    }
}

static void record(bool bits, double f32, double bf16, double int8)
{
    struct precision_record r = {
        .bits = bits, .samples = 1000, .value = {[ENGINE_F32] = f32, [ENGINE_BF16] = bf16, [ENGINE_INT8] = int8}};
    assert_int_equal(precision_digest(r.digest, dir, NULL), OK);
    assert_int_equal(precision_record_write(&r, dir, NULL), OK);
}

static enum engine_precision chosen(const char *isa)
{
    struct precision_choice got;
    struct error err;
    if (precision_choose(&got, "auto", "a", dir, ENGINE_F32, isa, &err) != OK)
        fail_msg("%s", err.message);
    return got.precision;
}

/* Without a record, what the weights are kept in counts, where the processor multiplies that; with one, the record. */
static void weights_kept_in_bf16_are_multiplied_in_it(void **state)
{
    (void)state;
    struct precision_choice got;
    const char *best = best_isa();
    char path[PATH_MAX];
    temp_path(path, dir, "precision.json");
    (void)unlink(path); /* of the tests before */
    assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_BF16, "baseline", NULL), OK);
    assert_int_equal(got.precision, ENGINE_F32);
    if (best != NULL) {
        assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_BF16, best, NULL), OK);
        assert_int_equal(got.precision, ENGINE_BF16);
    }
    assert_int_equal(got.by, PRECISION_BY_FILES);
    assert_false(got.has_digest);
    record(true, 1.8, 1.9, 1.9);
    assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_BF16, best, NULL), OK);
    assert_int_equal(got.precision, ENGINE_F32);
    assert_int_equal(got.by, PRECISION_BY_RECORD);
    uint8_t digest[PRECISION_DIGEST_BYTES];
    assert_int_equal(precision_digest(digest, dir, NULL), OK);
    assert_true(got.has_digest);
    assert_memory_equal(got.digest, digest, sizeof digest);
}

static void most_of_the_weights_count(void **state)
{
    (void)state;
    struct tensor_info tensors[] = {{.dtype = DTYPE_BF16, .bytes = 1200}, {.dtype = DTYPE_F32, .bytes = 1600}};
    struct model m = {.tensors = tensors, .tensor_count = 2, .parameters = 1000};
    assert_int_equal(precision_stored(&m), ENGINE_BF16);
    tensors[0].bytes = 1000;
    tensors[1].bytes = 2000;
    assert_int_equal(precision_stored(&m), ENGINE_F32);
}

static void auto_is_the_narrowest_that_was_found_good(void **state)
{
    (void)state;
    static const struct {
        double f32, bf16, int8;
        enum engine_precision want;
        bool bits;
    } cases[] = {
        {1.80, 1.801, 1.804, ENGINE_INT8, true}, {1.80, 1.804, 1.806, ENGINE_BF16, true},
        {1.80, 1.806, 1.804, ENGINE_INT8, true}, {1.80, 1.806, 1.806, ENGINE_F32, true},
        {1.80, 1.70, 1.60, ENGINE_INT8, true},   {85.0, 84.9, 84.85, ENGINE_INT8, false},
        {85.0, 84.9, 84.75, ENGINE_BF16, false}, {85.0, 84.7, 84.7, ENGINE_F32, false},
        {85.0, 85.5, 86.0, ENGINE_INT8, false},
    };
    if (best_isa() == NULL)
        print_message("this machine multiplies no bf16: nothing is chosen by itself here\n");
    for (size_t i = 0; i < LENGTH(cases); i++) {
        record(cases[i].bits, cases[i].f32, cases[i].bf16, cases[i].int8);
        if (best_isa() != NULL)
            assert_int_equal(chosen(best_isa()), cases[i].want);
        assert_int_equal(chosen("baseline"), ENGINE_F32); /* where neither pays */
    }
    struct precision_record few = {.bits = true, .samples = 499, .value = {1.8, 1.8, 1.8}};
    assert_true(precision_is_good(&few, ENGINE_F32));
    assert_false(precision_is_good(&few, ENGINE_INT8)); /* too few to tell */
}

static void a_record_of_other_files_does_not_count(void **state)
{
    (void)state;
    record(true, 1.8, 1.8, 1.8);
    const enum engine_precision before = chosen(NULL);
    put("cases.safetensors", "anything");
    assert_int_equal(chosen(NULL), before);
    put("model.safetensors", "other weights");
    assert_int_equal(chosen(NULL), ENGINE_F32);
    put("model.safetensors", "weights");
    assert_int_equal(chosen(NULL), before);
    put("model-2.safetensors", ""); /* no part of the model */
    assert_int_equal(chosen(NULL), before);
    put("config.json", "other");
    assert_int_equal(chosen(NULL), ENGINE_F32);
    struct precision_choice got; /* which says so, for the log */
    assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_F32, NULL, NULL), OK);
    assert_true(got.is_outdated && got.by == PRECISION_BY_FILES);
    record(true, 1.8, 1.8, 1.8);
    assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_F32, NULL, NULL), OK);
    assert_true(!got.is_outdated && got.by == PRECISION_BY_RECORD);
    put("precision.json", "{\"format\": \"aftd-precision\", \"version\": 1, \"sha256\": \"ab\"}"); /* of aftd 0.1 */
    assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_F32, NULL, NULL), OK);
    assert_true(got.is_outdated && got.by == PRECISION_BY_FILES);
}

static void shards_are_what_their_index_names(void **state)
{
    (void)state;
    char path[PATH_MAX];
    uint8_t one[PRECISION_DIGEST_BYTES], other[PRECISION_DIGEST_BYTES];
    (void)snprintf(path, sizeof path, "%.4000s/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    put("b.safetensors", "b");
    put("a.safetensors", "a");
    put("model.safetensors.index.json", "{\"weight_map\": {\"x\": \"b.safetensors\", \"y\": \"a.safetensors\"}}");
    assert_int_equal(precision_digest(one, dir, NULL), OK);
    put("model.safetensors.index.json", "{\"weight_map\": {\"y\": \"a.safetensors\", \"x\": \"b.safetensors\"}}");
    put("c.safetensors", "c");
    assert_int_equal(precision_digest(other, dir, NULL), OK);
    assert_memory_equal(one, other, sizeof one); /* in the order of names, and no others */
    put("b.safetensors", "B");
    assert_int_equal(precision_digest(other, dir, NULL), OK);
    assert_memory_not_equal(one, other, sizeof one);
}

static void a_broken_record_is_an_error(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[]",
        "{}",
        "{\"format\": \"aftd-precision\", \"version\": 3}",
        "{\"format\": \"aftd-precision\", \"version\": 2, \"xxh128\": \"ab\", \"measure\": \"bits\", \"samples\": 1, "
        "\"values\": {}}",
        "{\"format\": \"aftd-precision\", \"version\": 2, \"xxh128\": "
        "\"01234567890123456789012345678901\", \"measure\": \"bits\", \"samples\": 1, "
        "\"values\": {\"f32\": 1, \"bf16\": \"x\", \"int8\": 1}}",
        "{\"format\": \"aftd-precision\", \"version\": 2, \"xxh128\": "
        "\"x1234567890123456789012345678901\", \"measure\": \"bits\", \"samples\": 1, "
        "\"values\": {\"f32\": 1, \"bf16\": 1, \"int8\": 1}}",
        "{\"format\": \"aftd-precision\", \"version\": 2, \"xxh128\": "
        "\"012345678901234567890123456789  \", \"measure\": \"bits\", \"samples\": 1, "
        "\"values\": {\"f32\": 1, \"bf16\": 1, \"int8\": 1}}",
    };
    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct precision_choice got;
        struct error err;
        put("precision.json", texts[i]);
        assert_int_equal(precision_choose(&got, "auto", "a", dir, ENGINE_F32, NULL, &err), ERR_FORMAT);
        assert_non_null(strstr(err.message, "precision.json"));
        assert_int_equal(precision_choose(&got, "int8", "a", dir, ENGINE_F32, NULL, &err),
                         OK); /* it is not looked at */
    }
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    uint8_t digest[PRECISION_DIGEST_BYTES];
    struct error err;
    struct precision_record r = {.samples = 1};
    assert_int_equal(precision_digest(digest, "/nowhere", &err), ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere"));
    assert_int_equal(precision_record_write(&r, "/nowhere", &err), ERR_IO);
    assert_non_null(strstr(err.message, "/nowhere/precision.json"));
}

static void settings_of_the_engine_are_looked_at(void **state)
{
    (void)state;
    struct settings s;
    struct error err;
    struct hosting *b = NULL;
    const struct registry_model *row;
    size_t count = 0;
    settings_init(&s);
    (void)snprintf(s.models_dir, sizeof s.models_dir, "tests/data/models");
    (void)snprintf(s.isa, sizeof s.isa, "avx9");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "\"avx9\""));
    (void)snprintf(s.isa, sizeof s.isa, "baseline");
    (void)snprintf(s.precision, sizeof s.precision, "f32,cifar10-aft-conv=int9");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "\"cifar10-aft-conv=int9\""));
    (void)snprintf(s.precision, sizeof s.precision, "bf16,cifar10-aft-covn=int8");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), ERR_CONFIG);
    assert_non_null(strstr(err.message, "\"cifar10-aft-covn\""));
    (void)snprintf(s.precision, sizeof s.precision, "bf16,cifar10-aft-conv=int8");
    assert_int_equal(hosting_start(&b, &s, NULL, &err), OK);
    for (; (row = registry_row_at(b->registry, count)) != NULL; count++) {
        const struct hosted_model *e = row->hosted;
        assert_non_null(e);
        const bool named = strcmp(e->model->name, "cifar10-aft-conv") == 0;
        assert_string_equal(engine_info(e->engine)->isa, "baseline");
        assert_string_equal(engine_info(e->engine)->precision, named ? "int8" : "bf16");
    }
    assert_true(count > 1);
    hosting_stop(b);
    hosting_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_names_models_and_the_rest),
        cmocka_unit_test(what_is_no_precision_is_named),
        cmocka_unit_test(auto_is_the_narrowest_that_was_found_good),
        cmocka_unit_test(weights_kept_in_bf16_are_multiplied_in_it),
        cmocka_unit_test(most_of_the_weights_count),
        cmocka_unit_test(a_record_of_other_files_does_not_count),
        cmocka_unit_test(shards_are_what_their_index_names),
        cmocka_unit_test(a_broken_record_is_an_error),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),
        cmocka_unit_test(settings_of_the_engine_are_looked_at),
    };
    return cmocka_run_group_tests_name("precision", tests, setup, temp_dirs_end);
}
