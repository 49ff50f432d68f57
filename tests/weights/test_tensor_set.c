/* test_tensor_set.c - a model in several files loads like one in a single file, and an index that does not agree with
 * its files is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/linear_floats.h"
#include "tests/support/model_copy.h"
#include "tests/support/safetensors_write.h"
#include "tests/support/temp_dir.h"
#include "weights/model.h"
#include "weights/tensor_set.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(folder);
    return 0;
}

static void write_text(const char *name, const char *text)
{
    char path[PATH_MAX];

    temp_path(path, folder, name);
    temp_write(path, text, strlen(text));
}

/* The golden in three files; every third tensor goes into the same one. */
static void write_shards(const struct model_copy *c)
{
    char name[64], path[PATH_MAX];
    json_t *map = json_object();

    for (size_t shard = 0; shard < 3; shard++) {
        struct tensor part[MODEL_COPY_TENSORS_MAX];
        size_t n = 0;
        (void)snprintf(name, sizeof name, "model-%05zu-of-00003.safetensors", shard + 1);
        for (size_t i = shard; i < c->count; i += 3) {
            part[n++] = c->tensors[i];
            assert_int_equal(json_object_set_new(map, c->tensors[i].name, json_string(name)), 0);
        }
        temp_path(path, folder, name);
        safetensors_write(path, part, n);
    }
    json_t *root = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    temp_path(path, folder, "model.safetensors.index.json");
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

static void assert_same_floats(const struct linear *a, const struct linear *b)
{
    float *of_a = linear_floats(a), *of_b = linear_floats(b);
    assert_memory_equal(of_a, of_b, sizeof *of_a * b->out * b->in);
    free(of_a);
    free(of_b);
}

static void shards_load_like_a_single_file(void **state)
{
    struct model_copy c;
    struct model *single = NULL, *shards = NULL;
    char path[PATH_MAX];
    struct error err = {.message = ""};

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    model_copy_write(&c, folder);
    assert_int_equal(model_load(&single, folder, NULL, NULL, NULL), OK);
    temp_path(path, folder, "model.safetensors");
    assert_int_equal(unlink(path), 0);
    write_shards(&c);
    if (model_load(&shards, folder, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(shards->tensor_count, single->tensor_count);
    assert_int_equal(shards->parameters, single->parameters);
    assert_true(shards->file_bytes > shards->parameters * sizeof(float));
    assert_int_equal(shards->arena_bytes, single->arena_bytes);
    assert_memory_equal(shards->blocks[1].biases, single->blocks[1].biases, sizeof(float) * 8 * 25);
    assert_same_floats(&shards->head, &single->head);
    assert_same_floats(&shards->blocks[0].fc1, &single->blocks[0].fc1);
    model_free(single);
    model_free(shards);
    model_copy_clear(&c);
}

#define MAP(text) "{\"weight_map\":{" text "}}"

/* s1 holds a and b, s2 holds c. */
static const struct {
    const char *index;
    enum status want;
    const char *piece;
} indexes[] = {
    {MAP("\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\""), OK, ""},
    {MAP("\"c\":\"s2.safetensors\""), OK, ""},
    {"{\"weight_map\":{},\"metadata\":{\"total_size\":0},\"x\":1}", OK, ""},
    {"{}", ERR_FORMAT, "weight_map is missing, expected an object of file names by tensor"},
    {"{\"weight_map\":[]}", ERR_FORMAT, "weight_map is a list of 0"},
    {"[", ERR_FORMAT, "model.safetensors.index.json: not valid JSON"},
    {MAP("\"a\":1"), ERR_FORMAT, "weight_map \"a\" is 1, expected the plain name of a file"},
    {MAP("\"a\":\"\""), ERR_FORMAT, "expected the plain name of a file"},
    {MAP("\"a\":\"..\""), ERR_FORMAT, "expected the plain name of a file"},
    {MAP("\"a\":\"../s1.safetensors\""), ERR_FORMAT, "expected the plain name of a file"},
    {MAP("\"a\":\"/etc/passwd\""), ERR_FORMAT, "expected the plain name of a file"},
    {MAP("\"a\":\"x/s1.safetensors\""), ERR_FORMAT, "expected the plain name of a file"},
    {MAP("\"a\":\"s9.safetensors\""), ERR_IO, "s9.safetensors: cannot be opened: No such file"},
    {MAP("\"a\":\"junk\""), ERR_FORMAT, "junk: has 4 bytes, expected at least the 8"},
    {MAP("\"a\":\"s1.safetensors\""), ERR_FORMAT, "s1.safetensors holds tensor \"b\", which weight_map does not name"},
    {MAP("\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s2.safetensors\""), ERR_FORMAT,
     "s1.safetensors holds tensor \"b\", which weight_map expects in s2.safetensors"},
    {MAP("\"c\":\"s2.safetensors\",\"d\":\"s2.safetensors\""), ERR_FORMAT,
     "weight_map names tensor \"d\", which s2.safetensors does not hold"},
    {MAP("\"c\":\"s2.safetensors\",\"c\":\"s2.safetensors\""), ERR_FORMAT, "duplicate"},
    {MAP("\"c\":\"s2.safetensors\",\"e\":\"s3.safetensors\""), ERR_FORMAT,
     "s3.safetensors holds tensor \"c\", which weight_map expects in s2.safetensors"},
};

static void an_index_agrees_with_its_files_or_is_refused(void **state)
{
    static const uint8_t byte[] = {1};
    const struct tensor tensors[] = {
        {.name = "a", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = byte, .bytes = 1},
        {.name = "b", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = byte, .bytes = 1},
        {.name = "c", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = byte, .bytes = 1},
        {.name = "e", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = byte, .bytes = 1},
    };
    char path[PATH_MAX];

    (void)state;
    temp_path(path, folder, "s1.safetensors");
    safetensors_write(path, tensors, 2);
    temp_path(path, folder, "s2.safetensors");
    safetensors_write(path, tensors + 2, 1);
    temp_path(path, folder, "s3.safetensors");
    safetensors_write(path, tensors + 2, 2);
    write_text("junk", "junk");
    for (size_t i = 0; i < LENGTH(indexes); i++) {
        struct tensor_set *s = NULL;
        struct error err = {.message = ""};
        write_text("model.safetensors.index.json", indexes[i].index);
        const enum status st = tensor_set_open(&s, folder, &err);
        if (st != indexes[i].want || strstr(err.message, indexes[i].piece) == NULL)
            fail_msg("%s: %s \"%s\", expected \"%s\"", indexes[i].index, status_name(st), err.message,
                     indexes[i].piece);
        tensor_set_close(s);
    }
}

static void more_files_than_the_bound_are_refused(void **state)
{
    struct tensor_set *s = NULL;
    struct error err = {.message = ""};
    char path[PATH_MAX], name[32];
    json_t *map = json_object();

    (void)state;
    for (int i = 0; i <= MODEL_SHARDS_MAX; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        assert_int_equal(json_object_set_new(map, name, json_string(name)), 0);
    }
    json_t *root = json_pack("{s:o}", "weight_map", map);
    temp_path(path, folder, "model.safetensors.index.json");
    assert_int_equal(json_dump_file(root, path, 0), 0);
    assert_int_equal(tensor_set_open(&s, folder, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "lists more than 64 files"));
    json_decref(root);
}

static void more_tensors_than_the_bound_are_refused(void **state)
{
    enum { ENTRY_BYTES = 64 };
    char path[PATH_MAX];
    char *header = malloc((size_t)(MODEL_TENSORS_MAX + 1) * ENTRY_BYTES);
    size_t size = 0;
    struct tensor_set *set;
    struct error err = {.message = ""};
    (void)state;
    assert_non_null(header);
    for (int i = 0; i <= MODEL_TENSORS_MAX; i++)
        size +=
            (size_t)snprintf(header + size, ENTRY_BYTES,
                             "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i == 0 ? '{' : ',', i);
    header[size++] = '}';
    temp_path(path, folder, "model.safetensors");
    safetensors_write_raw(path, size, header, size, NULL, 0);
    free(header);
    assert_int_equal(tensor_set_open(&set, folder, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "more than 24000 tensors"));
}

static void tensors_are_found_by_name_in_file_order(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3};
    const struct tensor tensors[] = {
        {.name = "z", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = bytes, .bytes = 1},
        {.name = "a", .dtype = DTYPE_U8, .rank = 1, .shape = {2}, .data = bytes + 1, .bytes = 2},
    };
    struct tensor_set *s = NULL;
    char path[PATH_MAX];

    (void)state;
    temp_path(path, folder, "model.safetensors");
    safetensors_write(path, tensors, 2);
    assert_int_equal(tensor_set_open(&s, folder, NULL), OK);
    assert_int_equal(tensor_set_count(s), 2);
    assert_string_equal(tensor_set_at(s, 0)->name, "z");
    assert_int_equal(tensor_set_find(s, "z"), 0);
    assert_int_equal(tensor_set_find(s, "a"), 1);
    assert_int_equal(tensor_set_find(s, "b"), 2);
    assert_int_equal(tensor_set_at(s, 1)->begin, tensor_set_bytes(s) - 2);
    tensor_set_close(s);
    tensor_set_close(NULL);
}

/* Neither cut nor looked for. */
static void a_folder_whose_name_leaves_no_room_is_refused(void **state)
{
    static const char file[] = "/model.safetensors";
    char dir[PATH_MAX + 1];
    (void)state;
    for (size_t size = PATH_MAX - sizeof file; size <= PATH_MAX; size++) {
        struct tensor_set *s = NULL;
        struct error err = {.message = ""};
        memset(dir, '/', size);
        dir[size] = '\0';
        assert_int_equal(tensor_set_open(&s, dir, &err), ERR_IO);
        const bool fits = size + sizeof file <= PATH_MAX && size + sizeof "/model.safetensors.index.json" <= PATH_MAX;
        if ((strstr(err.message, "the path is longer than") != NULL) == fits)
            fail_msg("%zu bytes: %s", size, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_load_like_a_single_file, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(an_index_agrees_with_its_files_or_is_refused, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(more_files_than_the_bound_are_refused, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(more_tensors_than_the_bound_are_refused, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(tensors_are_found_by_name_in_file_order, setup, temp_dirs_end),
        cmocka_unit_test(a_folder_whose_name_leaves_no_room_is_refused),
    };

    return cmocka_run_group_tests_name("tensor_set", tests, NULL, NULL);
}
