/* test_verify_cases.c - aft verify: whatever is wrong with a model's cases, or with what the engine makes of them,
 * counts as failed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/safetensors_write.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char text_model[] = "tests/data/golden/lm-local-8";        /* T = 48 */
static const char picture_model[] = "tests/data/golden/conv-heads8-k5"; /* pictures of 32 x 32, one of 40 x 20 */
static const char text_classifier[] = "tests/data/golden/text-conv-class-token"; /* T = 48, one for the class token */
static char aft[PATH_MAX], dir[PATH_MAX], folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(folder, dir, "model");
    return mkdir(folder, 0700);
}

/* ---- cases that fail ------------------------------------------------------------------------------------------- */

#define CASES_MAX 12

/* cases.safetensors of a golden model, to be changed and written beside the model in `folder`. */
struct cases {
    struct safetensors *file;
    struct tensor tensors[CASES_MAX];
    size_t count;
    float logits[48 * 256]; /* a copy for who changes values */
};

static struct tensor *find(struct cases *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->tensors[i].name, name) == 0)
            return &c->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void drop(struct cases *c, const char *name)
{
    struct tensor *t = find(c, name);
    *t = c->tensors[--c->count];
}

static void rename_tensor(struct cases *c, const char *name, const char *new_name)
{
    find(c, name)->name = new_name;
}

static void reshape(struct tensor *t, uint32_t rank, uint64_t a, uint64_t b, uint64_t e)
{
    t->rank = rank;
    t->shape[0] = a;
    t->shape[1] = b;
    t->shape[2] = e;
    t->elements = a * (rank > 1 ? b : 1) * (rank > 2 ? e : 1);
    t->bytes = t->elements * dtype_bytes(t->dtype);
}

/* Let one logit of case 0 be something else. */
static void set_logit(struct cases *c, float value)
{
    struct tensor *t = find(c, "logits.0");
    assert_true(t->dtype == DTYPE_F32 && t->bytes <= sizeof c->logits);
    memcpy(c->logits, t->data, t->bytes);
    c->logits[t->elements / 2] = value;
    t->data = (const uint8_t *)c->logits;
}

static void set_nan(struct cases *c)
{
    set_logit(c, NAN);
}

static void set_infinity(struct cases *c)
{
    set_logit(c, INFINITY);
}

static void set_wrong(struct cases *c)
{
    set_logit(c, 1e6f);
}

static void drop_all(struct cases *c)
{
    c->count = 0;
}

static void drop_inputs(struct cases *c)
{
    for (size_t i = 0; i < c->count;)
        if (strncmp(c->tensors[i].name, "input.", 6) == 0)
            c->tensors[i] = c->tensors[--c->count];
        else
            i++;
}

static void drop_first_input(struct cases *c)
{
    drop(c, "input.0");
}

static void drop_last_logits(struct cases *c)
{
    drop(c, c->count == 8 ? "logits.3" : "logits.2");
}

static void leave_gap(struct cases *c)
{
    drop(c, "input.1");
    drop(c, "logits.1");
}

static void count_from_one(struct cases *c)
{
    rename_tensor(c, "input.0", "input.9");
    rename_tensor(c, "logits.0", "logits.9");
}

static void add_odd_name(struct cases *c)
{
    rename_tensor(c, "input.1", "input.01");
    rename_tensor(c, "logits.1", "logits.01");
}

static void add_stranger(struct cases *c)
{
    struct tensor *t = &c->tensors[c->count++];
    *t = *find(c, "input.0");
    t->name = "note";
}

static void empty_input(struct cases *c)
{
    reshape(find(c, "input.0"), 1, 0, 0, 0);
    reshape(find(c, "logits.0"), 2, 0, 256, 0);
}

static void empty_picture(struct cases *c)
{
    reshape(find(c, "input.0"), 3, 0, 16, 3);
}

static void long_input(struct cases *c)
{
    static const uint8_t zeros[49];
    struct tensor *t = find(c, "input.0");
    reshape(t, 1, 49, 0, 0);
    t->data = zeros;
}

static void whole_context(struct cases *c)
{
    long_input(c);
    reshape(find(c, "input.0"), 1, 48, 0, 0);
}

static void flat_picture(struct cases *c)
{
    struct tensor *t = find(c, "input.0");
    reshape(t, 1, t->elements, 0, 0);
}

static void picture_with_alpha(struct cases *c)
{
    struct tensor *t = find(c, "input.0");
    reshape(t, 3, t->shape[0], t->shape[1] * 3 / 4, 4);
}

static void picture_of_floats(struct cases *c)
{
    static const float zeros[32 * 32 * 3];
    struct tensor *t = find(c, "input.0");
    assert_true(t->elements <= LENGTH(zeros));
    t->dtype = DTYPE_F32;
    t->bytes = t->elements * dtype_bytes(DTYPE_F32);
    t->data = (const uint8_t *)zeros;
}

static void torn_picture(struct cases *c)
{
    struct tensor *t = find(c, "input.0");
    reshape(t, 3, t->shape[0] - 1, t->shape[1], 3);
}

static void few_logits(struct cases *c)
{
    struct tensor *t = find(c, "logits.0");
    reshape(t, 1, t->elements - 1, 0, 0);
}

static void input_of_floats(struct cases *c)
{
    struct tensor *t = find(c, "input.0");
    *t = *find(c, "logits.0");
    t->name = "input.0";
}

static void logits_of_bytes(struct cases *c)
{
    static const uint8_t zeros[48 * 256];
    struct tensor *t = find(c, "logits.0");
    t->dtype = DTYPE_U8;
    t->bytes = t->elements;
    t->data = zeros;
}

static void nothing(struct cases *c)
{
    (void)c;
}

static const struct {
    const char *name, *model;
    void (*change)(struct cases *c);
    int exit_code;
    const char *out;
} changes[] = {
    {"unchanged bytes", text_model, nothing, 0, "ok      "},
    {"unchanged pictures", picture_model, nothing, 0, "ok      "},
    {"a tensor of another name is nobody's business", text_model, add_stranger, 0, "ok      "},
    {"a NaN", text_model, set_nan, 1, "\"logits.0\" holds a NaN"},
    {"an infinity", text_model, set_infinity, 1, "\"logits.0\" holds an infinity"},
    {"a NaN of a picture", picture_model, set_nan, 1, "\"logits.0\" holds a NaN"},
    {"a wrong logit", text_model, set_wrong, 1, "FAILED  1  "},
    {"a wrong logit of a picture", picture_model, set_wrong, 1, "FAILED  1  "},
    {"no cases at all", text_model, drop_all, 1, "no input.0"},
    {"logits without inputs", text_model, drop_inputs, 1, "no input.0"},
    {"the first input is missing", text_model, drop_first_input, 1, "no input.0"},
    {"the last logits are missing", picture_model, drop_last_logits, 1, "no logits."},
    {"a gap", text_model, leave_gap, 1, "no input.1"},
    {"cases that count from 1", text_model, count_from_one, 1, "no input.0"},
    {"a case of another spelling", text_model, add_odd_name, 1, "no input.1"},
    {"an empty input", text_model, empty_input, 1, "input.0: expected U8 [1 to 48]"},
    {"an empty picture", picture_model, empty_picture, 1, "input.0 has 0 values"},
    {"an input beyond the context", text_model, long_input, 1, "input.0: expected U8 [1 to 48]"},
    {"an input with no position for the class token", text_classifier, whole_context, 1,
     "input.0: expected U8 [1 to 47]"},
    {"a picture in one row", picture_model, flat_picture, 1, "input.0: expected U8 [height, width, 3]"},
    {"a picture with alpha", picture_model, picture_with_alpha, 1, "input.0: expected U8 [height, width, 3]"},
    {"a picture of floats", picture_model, picture_of_floats, 1, "input.0: expected U8 [height, width, 3]"},
    {"a picture that ends within a patch", picture_model, torn_picture, 1, "is not a multiple of the"},
    {"too few logits", text_model, few_logits, 1, "elements, expected"},
    {"too few logits of a picture", picture_model, few_logits, 1, "elements, expected"},
    {"an input of floats", text_model, input_of_floats, 1, "input.0: expected U8"},
    {"logits of bytes", text_model, logits_of_bytes, 1, "dtype U8, expected"},
};

static void copy_model(const char *from)
{
    struct model_copy m;
    model_copy_read(&m, from);
    model_copy_write(&m, folder);
    model_copy_clear(&m);
}

static void cases_that_are_wrong_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(changes); i++) {
        static struct cases c;
        char path[PATH_MAX], last[40];
        temp_path(path, changes[i].model, "cases.safetensors");
        c = (struct cases){.count = 0};
        assert_int_equal(safetensors_open(&c.file, path, NULL), OK);
        assert_int_equal(safetensors_read(c.file, NULL), OK);
        for (size_t t = 0; t < safetensors_count(c.file); t++)
            c.tensors[c.count++] = *safetensors_at(c.file, t);
        changes[i].change(&c);
        copy_model(changes[i].model);
        temp_path(path, folder, "cases.safetensors");
        safetensors_write(path, c.tensors, c.count);
        safetensors_close(c.file);

        (void)snprintf(last, sizeof last, "\n%d passed, %d failed\n", 1 - changes[i].exit_code, changes[i].exit_code);
        const struct program_case cases[] = {
            {changes[i].name, {"verify", folder}, NULL, changes[i].exit_code, changes[i].out, ""},
            {changes[i].name, {"verify", folder}, NULL, changes[i].exit_code, last, ""},
        };
        program_expect(aft, cases, LENGTH(cases));
    }
}

/* ---- models and their cases --------------------------------------------------------------------------------- */

/* Logits of the engine that are no numbers fail whatever the tolerance. */
static void a_model_that_overflows_fails(void **state)
{
    (void)state;
    char path[PATH_MAX];
    float weight[256 * 32];
    struct model_copy m;
    struct safetensors *file = NULL;
    struct tensor tensors[CASES_MAX];
    for (size_t i = 0; i < LENGTH(weight); i++)
        weight[i] = 3e38f;
    model_copy_read(&m, text_model);
    model_copy_set(&m, "head.weight", weight, 256, 32);
    model_copy_write(&m, folder);
    model_copy_clear(&m);
    temp_path(path, text_model, "cases.safetensors");
    assert_int_equal(safetensors_open(&file, path, NULL), OK);
    assert_int_equal(safetensors_read(file, NULL), OK);
    for (size_t t = 0; t < safetensors_count(file); t++)
        tensors[t] = *safetensors_at(file, t);
    temp_path(path, folder, "cases.safetensors");
    safetensors_write(path, tensors, safetensors_count(file));
    safetensors_close(file);
    const struct program_case cases[] = {
        {"overflow", {"verify", folder, "--tolerance", "1"}, NULL, 1, "\n0 passed, 1 failed\n", ""}};
    program_expect(aft, cases, LENGTH(cases));
}

/* With pos_embed a classifier takes pictures of its trained size alone. */
static void a_picture_that_pos_embed_does_not_fit_fails(void **state)
{
    (void)state;
    static float zeros[64 * 1024];
    char path[PATH_MAX];
    struct model_copy m;
    struct safetensors *file = NULL;
    struct tensor tensors[CASES_MAX];
    model_copy_read(&m, picture_model);
    const json_t *input = json_object_get(m.config, "input");
    const json_t *size = json_object_get(input, "size"), *patch = json_object_get(input, "patch");
    uint64_t tokens = 1;
    for (size_t i = 0; i < 2; i++)
        tokens *=
            (uint64_t)(json_integer_value(json_array_get(size, i)) / json_integer_value(json_array_get(patch, i)));
    const uint64_t dim = (uint64_t)json_integer_value(json_object_get(m.config, "dim"));
    assert_true(tokens * dim <= LENGTH(zeros));
    model_copy_set(&m, "pos_embed", zeros, tokens, dim);
    model_copy_write(&m, folder);
    model_copy_clear(&m);

    temp_path(path, picture_model, "cases.safetensors");
    assert_int_equal(safetensors_open(&file, path, NULL), OK);
    assert_int_equal(safetensors_read(file, NULL), OK);
    const size_t count = safetensors_count(file);
    bool other_size = false;
    for (size_t t = 0; t < count; t++) {
        tensors[t] = *safetensors_at(file, t);
        if (strcmp(tensors[t].name, "input.0") == 0) { /* its upper half */
            reshape(&tensors[t], 3, tensors[t].shape[0] / 2, tensors[t].shape[1], 3);
            other_size = true;
        }
    }
    assert_true(other_size);
    temp_path(path, folder, "cases.safetensors");
    safetensors_write(path, tensors, count);
    safetensors_close(file);
    const struct program_case cases[] = {
        {"another size", {"verify", folder}, NULL, 1, "its positions are learnt\n0 passed, 1 failed\n", ""}};
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_that_are_wrong_fail),
        cmocka_unit_test(a_model_that_overflows_fails),
        cmocka_unit_test(a_picture_that_pos_embed_does_not_fit_fails),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
