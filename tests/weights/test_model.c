/* test_model.c - whole model directories: those that ship, the small ones with known answers, names, and what the
 * loaded struct promises to the engine. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/linear_floats.h"
#include "tests/support/model_copy.h"
#include "tests/support/temp_dir.h"
#include "weights/model.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char dir[PATH_MAX], folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(folder, dir, "m");
    return mkdir(folder, 0700);
}

static struct model *load(const char *path)
{
    struct model *m = NULL;
    struct error err = {.message = ""};

    if (model_load(&m, path, NULL, NULL, &err) != OK)
        fail_msg("%s: %s", path, err.message);
    return m;
}

static void expect_refusal(const char *path, enum status want, const char *piece)
{
    struct model *m = NULL;
    struct error err = {.message = ""};
    const enum status got = model_load(&m, path, NULL, NULL, &err);

    if (got != want || strstr(err.message, piece) == NULL)
        fail_msg("%s: %s \"%s\", expected %s \"%s\"", path, status_name(got), err.message, status_name(want), piece);
    assert_null(m);
}

/* A pointer of a loaded model leads into its arena, aligned. */
static void assert_in_arena(const struct model *m, const float *p, uint64_t rows, uint64_t columns)
{
    assert_non_null(p);
    assert_true(p >= m->arena && p + rows * columns <= m->arena + m->arena_bytes / sizeof(float));
    assert_int_equal((uintptr_t)p % 64, 0);
}

static void assert_linear(const struct model *m, const struct linear *l, uint32_t out, uint32_t in)
{
    assert_int_equal(l->out, out);
    assert_int_equal(l->in, in);
    assert_int_equal(l->weight.elements, (uint64_t)out * in);
    assert_in_arena(m, l->bias, 1, out);
}

/* ---- models that load ------------------------------------------------------------------------------------------- */

static void the_shipped_classifier_loads(void **state)
{
    (void)state;
    struct model *m = load("weights/models/cifar10-aft-conv");
    assert_string_equal(m->name, "cifar10-aft-conv");
    assert_int_equal(m->config.classes, 10);
    assert_int_equal(m->tensor_count, 120);
    assert_int_equal(m->parameters, 1128330);
    assert_int_equal(m->file_bytes, 2267228);
    assert_linear(m, &m->patch_embed, 128, 48);
    assert_linear(m, &m->head, 10, 128);
    assert_null(m->tok_embed);
    assert_null(m->pos_embed);
    for (uint32_t i = 0; i < m->config.depth; i++) {
        const struct block_weights *b = &m->blocks[i];
        assert_linear(m, &b->q, 128, 128);
        assert_linear(m, &b->k, 32, 128);
        assert_linear(m, &b->v, 128, 128);
        assert_linear(m, &b->out, 128, 128);
        assert_linear(m, &b->fc1, 512, 128);
        assert_linear(m, &b->fc2, 128, 512);
        assert_in_arena(m, b->norm1.weight, 1, 128);
        assert_in_arena(m, b->norm1.bias, 1, 128);
        assert_in_arena(m, b->norm2.weight, 1, 128);
        assert_in_arena(m, b->norm2.bias, 1, 128);
        assert_in_arena(m, b->biases, 32, 25);
    }
    model_free(m);
    model_free(NULL);
}

static void a_language_model_loads(void **state)
{
    (void)state;
    struct model *m = load("tests/data/models/enwik8-aft-local/");
    assert_string_equal(m->name, "enwik8-aft-local");
    assert_int_equal(m->config.classes, 0);
    assert_in_arena(m, m->tok_embed, 256, 192);
    assert_in_arena(m, m->pos_embed, 512, 192);
    assert_linear(m, &m->head, 256, 192);
    assert_in_arena(m, m->norm.weight, 1, 192);
    assert_in_arena(m, m->norm.bias, 1, 192);
    assert_int_equal(m->patch_embed.weight.elements, 0);
    for (uint32_t i = 0; i < m->config.depth; i++) {
        assert_in_arena(m, m->blocks[i].biases, 512, 32);
        assert_linear(m, &m->blocks[i].k, 192, 192);
    }
    model_free(m);
}

static void assert_floats(const struct linear *l, const struct tensor *want)
{
    float *w = linear_floats(l);
    assert_int_equal(want->bytes, sizeof *w * l->out * l->in);
    assert_memory_equal(w, want->data, want->bytes);
    free(w);
}

static void tensors_keep_the_files_numbers(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    struct model *m = load("tests/data/golden/conv-heads8-k5");
    assert_floats(&m->patch_embed, model_copy_tensor(&c, "patch_embed.weight"));
    assert_memory_equal(m->blocks[1].k.bias, model_copy_tensor(&c, "blocks.1.mixer.k.bias")->data, sizeof(float) * 8);
    assert_floats(&m->blocks[1].fc2, model_copy_tensor(&c, "blocks.1.mlp.fc2.weight"));
    assert_memory_equal(m->norm.bias, model_copy_tensor(&c, "norm.bias")->data, sizeof(float) * 32);
    assert_int_equal(m->tensor_count, c.count);
    for (size_t i = 0; i < c.count; i++) {
        assert_string_equal(m->tensors[i].name, c.tensors[i].name);
        assert_int_equal(m->tensors[i].rank, c.tensors[i].rank);
        assert_memory_equal(m->tensors[i].shape, c.tensors[i].shape, sizeof c.tensors[i].shape);
        assert_int_equal(m->tensors[i].bytes, c.tensors[i].bytes);
        assert_int_equal(m->tensors[i].dtype, DTYPE_F32);
    }
    model_free(m);
    model_copy_clear(&c);
}

static void every_bias_may_be_absent(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    for (size_t i = c.count; i-- > 0;) {
        const char *name = c.tensors[i].name;
        const size_t n = strlen(name);
        if (strcmp(name + n - 5, ".bias") == 0 && strstr(name, "norm") == NULL && strstr(name, "conv") == NULL)
            model_copy_drop(&c, name);
    }
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    assert_null(m->patch_embed.bias);
    assert_null(m->head.bias);
    assert_null(m->blocks[0].q.bias);
    assert_null(m->blocks[1].k.bias);
    assert_null(m->blocks[1].fc2.bias);
    assert_non_null(m->blocks[1].norm2.bias);
    model_free(m);
    model_copy_clear(&c);
}

static void a_picture_model_may_have_positions(void **state)
{
    struct model_copy c;
    float rows[64 * 32];

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++)
        rows[i] = (float)i;
    model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
    model_copy_set(&c, "pos_embed", rows, 64, 32);
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    assert_memory_equal(m->pos_embed, rows, sizeof rows);
    model_free(m);
    model_copy_clear(&c);
}

static void a_class_token_leaves_room_for_a_byte(void **state)
{
    struct model_copy c;
    const float row[32] = {0.0f};

    (void)state;
    model_copy_read(&c, "tests/data/golden/text-conv-class-token");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "context", json_integer(1)), 0);
    model_copy_set(&c, "pos_embed", row, 1, 32);
    model_copy_write(&c, folder);
    expect_refusal(folder, ERR_FORMAT, "input.context is 1, expected 2 or more where there is a cls_token");
    model_copy_drop(&c, "cls_token");
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    assert_int_equal(model_text_max(m), 1);
    model_free(m);
    model_copy_clear(&c);
}

static void shared_layers_are_those_of_the_first_block(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    for (size_t i = c.count; i-- > 0;) {
        if (strncmp(c.tensors[i].name, "blocks.1.", 9) == 0)
            model_copy_drop(&c, c.tensors[i].name);
    }
    model_copy_write(&c, folder);
    expect_refusal(folder, ERR_FORMAT, "blocks.1.norm1.weight is missing");
    assert_int_equal(json_object_set_new(c.config, "share_layers", json_true()), 0);
    assert_int_equal(json_object_set_new(c.config, "depth", json_integer(5)), 0);
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    for (uint32_t i = 0; i < 5; i++)
        assert_memory_equal(&m->blocks[i], &m->blocks[0], sizeof m->blocks[0]);
    assert_in_arena(m, m->blocks[4].biases, 48, 8);
    model_free(m);
    model_copy_clear(&c);
}

static void other_files_in_the_folder_do_not_matter(void **state)
{
    struct model_copy c;
    char path[PATH_MAX];

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    model_copy_write(&c, folder);
    temp_path(path, folder, "cases.safetensors");
    temp_write(path, "junk", 4);
    temp_path(path, folder, "README.md");
    temp_write(path, "# junk", 6);
    temp_path(path, folder, "model.safetensors.index.json"); /* the single file comes first */
    temp_write(path, "junk", 4);
    model_free(load(folder));
    model_copy_clear(&c);
}

static void a_matrix_of_no_numbers_is_refused_by_its_place(void **state)
{
    struct model_copy c;
    float weight[256 * 32] = {0.0f}, rows[2 * 32];
    struct error err = {.message = ""};

    (void)state;
    weight[33] = NAN;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    model_copy_set(&c, "head.weight", weight, 256, 32);
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    assert_int_equal(linear_rows(&m->head, 0, 1, rows, &err), OK);
    assert_int_equal(linear_rows(&m->head, 1, 2, rows, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, "m/model.safetensors: tensor \"head.weight\" holds a NaN at element 33"));
    assert_string_equal(err.param, "head.weight");
    model_free(m);
    model_copy_clear(&c);
}

static void files_may_vanish_but_not_change(void **state)
{
    struct model_copy c;
    char path[PATH_MAX];
    float row[32];
    double sum = 0.0;
    struct error err = {.message = ""};

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    temp_path(path, folder, "model.safetensors");
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_floats(&m->head, model_copy_tensor(&c, "head.weight"));
    assert_int_equal(model_check_unchanged(m, NULL), OK);
    assert_int_equal(ftruncate(fd, 1), 0);
    assert_int_equal(close(fd), 0);
    for (size_t i = 0; i < 8192; i++) /* all 256 x 32 */
        sum += (double)fabsf(m->tok_embed[i]);
    assert_true(sum > 0.0);
    assert_int_equal(linear_rows(&m->head, 0, 1, row, &err), ERR_IO);
    assert_non_null(strstr(err.message, "model.safetensors: ended 128 bytes early: it was truncated"));
    assert_int_equal(model_check_unchanged(m, &err), ERR_IO);
    assert_non_null(strstr(err.message, "to 1 bytes while being read"));
    model_free(m);
    model_copy_clear(&c);
}

/* ---- models that do not ----------------------------------------------------------------------------------------- */

static void what_is_missing_is_named(void **state)
{
    char path[PATH_MAX];
    struct model_copy c;

    (void)state;
    expect_refusal(folder, ERR_IO, "m/config.json: cannot be opened: No such file");
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    model_copy_write(&c, folder);
    temp_path(path, folder, "model.safetensors");
    assert_int_equal(unlink(path), 0);
    expect_refusal(folder, ERR_IO, "m/model.safetensors: cannot be opened: No such file");
    model_copy_clear(&c);
}

static void a_broken_config_is_refused_by_its_key(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    assert_int_equal(json_object_set_new(c.config, "dim", json_string("32")), 0);
    model_copy_write(&c, folder);
    expect_refusal(folder, ERR_FORMAT, "dim is a string (\"32\")");
    model_copy_clear(&c);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

#define NAME_64 "abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

static const struct {
    const char *folder, *suffix, *piece; /* piece NULL: the name is good */
} names[] = {
    {"plain", "", NULL},
    {"plain", "/", NULL},
    {"plain", "///", NULL},
    {"a.b_c-9", "", NULL},
    {"...", "", NULL},
    {NAME_64, "", NULL},
    {NAME_64 "x", "", "name has 65 bytes, expected 1..64"},
    {"a b", "", "holds the byte 0x20, expected only letters"},
    {"a\nb", "", "holds the byte 0x0a"},
    {"\xC3\xA9", "", "holds the byte 0xc3"},
    {"a:b", "", "holds the byte 0x3a"},
};

static void the_folder_names_the_model(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-1");
    for (size_t i = 0; i < LENGTH(names); i++) {
        char path[PATH_MAX];
        temp_path(path, dir, names[i].folder);
        if (mkdir(path, 0700) == 0)
            model_copy_write(&c, path);
        const size_t n = strlen(path);
        (void)snprintf(path + n, sizeof path - n, "%s", names[i].suffix);
        if (names[i].piece != NULL) {
            expect_refusal(path, ERR_FORMAT, names[i].piece);
            continue;
        }
        struct model *m = load(path);
        assert_string_equal(m->name, names[i].folder);
        model_free(m);
    }
    model_copy_clear(&c);
}

static void dots_are_resolved_and_links_keep_their_name(void **state)
{
    struct model_copy c;
    char path[PATH_MAX], link[PATH_MAX], home[PATH_MAX];
    static const char *const dotted[] = {".", "./", "inner/..", "inner/../"};

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-1");
    model_copy_write(&c, folder);
    temp_path(path, folder, "inner");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < LENGTH(dotted); i++) {
        struct model *m = load(dotted[i]);
        assert_string_equal(m->name, "m");
        model_free(m);
    }
    assert_int_equal(chdir(home), 0);
    temp_path(link, dir, "current");
    assert_int_equal(symlink(folder, link), 0);
    struct model *m = load(link);
    assert_string_equal(m->name, "current");
    model_free(m);
    expect_refusal("/", ERR_FORMAT, "name has 0 bytes");
    model_copy_clear(&c);
}

static void dropped_weights_leave_the_description(void **state)
{
    (void)state;
    struct model *m = load("weights/models/cifar10-aft-conv");
    const size_t tensors = m->tensor_count;
    model_drop_weights(m);
    assert_null(m->arena);
    assert_null(m->blocks);
    assert_int_equal(m->head.out, 0);
    assert_null(m->set);
    assert_int_equal(m->tensor_count, tensors);
    assert_string_equal(m->name, "cifar10-aft-conv");
    assert_string_equal(m->config.labels[8], "ship");
    model_drop_weights(m); /* twice is once */
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_classifier_loads),
        cmocka_unit_test(a_language_model_loads),
        cmocka_unit_test(dropped_weights_leave_the_description),
        cmocka_unit_test(tensors_keep_the_files_numbers),
        cmocka_unit_test_setup_teardown(every_bias_may_be_absent, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_picture_model_may_have_positions, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_class_token_leaves_room_for_a_byte, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(shared_layers_are_those_of_the_first_block, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(other_files_in_the_folder_do_not_matter, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_matrix_of_no_numbers_is_refused_by_its_place, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(files_may_vanish_but_not_change, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_broken_config_is_refused_by_its_key, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(the_folder_names_the_model, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(dots_are_resolved_and_links_keep_their_name, setup, temp_dirs_end),
    };

    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
