/* test_report.c - aft inspect: what a model is, and every tensor. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/model_copy.h"
#include "tests/support/model_variants.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"
#include "weights/safetensors.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char small_text_model[] = "tests/data/golden/lm-local-8";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    return 0;
}

/* ---- inspect --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *path;
    const char *lines[16]; /* pieces of what stands above the table */
} models[] = {
    {"a byte model",
     "tests/data/models/enwik8-aft-local",
     {"model                          enwik8-aft-local\n", "task                           text-generation\n",
      "mixer                          {\"type\": \"aft-local\", ", ", \"global\": true, \"window\": 32}\n",
      "blocks                         6\n", "dim                            192\n",
      "hidden                         768\n", "context                        512\n",
      "classes                        0\n", "parameters                     3259648\n",
      "file_bytes                     6529512\n", "linear_macs                    2703360\n",
      "mixing_macs                    74880\n",    /* 6 * 192 * (1 + 2 * 32) */
      "stream_bytes                   317952\n"}}, /* 6 layers * 192 channels * (5 + 2 * 32) floats */
    {"a shipped classifier",
     "weights/models/cifar10-aft-conv",
     {"task                           image-classification\n",
      "mixer                          {\"type\": \"aft-conv\", ", ", \"heads\": 32, \"kernel\": [5, 5]}\n",
      "blocks                         6\n", "dim                            128\n",
      "hidden                         512\n", "size                           [32, 32]\n",
      "patch                          [4, 4]\n", "classes                        10\n",
      "parameters                     1128330\n", "linear_macs                    71173376\n",
      "mixing_macs                    1585152\n"}}, /* 6 blocks * 64 tokens * (128 + 25 taps * (128 + 32)) */
    {"softmax attention over a text",
     "tests/data/golden/text-attention",
     {"mixing_macs                    294912\n"}}, /* 2 blocks * 2 * 48 * 48 tokens * 32 */
    {"without what is usual",
     "tests/data/golden/lm-local-no-global",
     {"mixer                          {\"type\": \"aft-local\", ", ", \"global\": false, \"window\": 8}\n"}},
    {"without a query gate", "tests/data/golden/conv-no-query", {"\"query_gate\": false, "}},
};

/* A line of the table: name, dtype, [shape], bytes, in any width. */
static void expect_tensor(const char *table, const struct tensor *t)
{
    char start[TENSOR_NAME_MAX + 2], shape[100] = "[", name[TENSOR_NAME_MAX], dtype[8], bytes[32];
    size_t used = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, i > 0 ? ", " : "", t->shape[i]);
    assert_true(used < sizeof shape - 1);
    shape[used] = ']';
    shape[used + 1] = '\0';
    (void)snprintf(start, sizeof start, "\n%s ", t->name);
    const char *line = strstr(table, start);
    if (line == NULL) {
        fail_msg("%s is not listed", t->name);
        return;
    }
    assert_int_equal(sscanf(line, "%127s %7s", name, dtype), 2);
    assert_string_equal(dtype, dtype_name(t->dtype));
    const char *found = strchr(line, '[');
    assert_non_null(found);
    assert_memory_equal(found, shape, strlen(shape));
    assert_int_equal(sscanf(found + strlen(shape), " %31s", bytes), 1);
    assert_int_equal(strtoull(bytes, NULL, 10), t->bytes);
}

static void inspect_shows_the_architecture_and_each_tensor(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(models); i++) {
        struct program_run p = {.argv = {aft, "inspect", models[i].path}};
        struct safetensors *file = NULL;
        char path[PATH_MAX];
        program_run(&p);
        assert_int_equal(p.exit_code, 0);
        assert_string_equal(p.err, "");
        for (size_t l = 0; l < LENGTH(models[i].lines) && models[i].lines[l] != NULL; l++)
            if (strstr(p.out, models[i].lines[l]) == NULL)
                fail_msg("%s: no \"%s\" in\n%.1000s", models[i].name, models[i].lines[l], p.out);
        const char *table = strstr(p.out, "\n\ntensor ");
        assert_non_null(table);
        temp_path(path, models[i].path, "model.safetensors");
        assert_int_equal(safetensors_open(&file, path, NULL), OK);
        assert_int_equal(safetensors_read(file, NULL), OK);
        size_t lines = 0;
        for (const char *at = table + 2; (at = strchr(at, '\n')) != NULL; at++)
            lines++;
        assert_int_equal(lines, safetensors_count(file) + 1); /* and the titles */
        for (size_t t = 0; t < safetensors_count(file); t++)
            expect_tensor(table, safetensors_at(file, t));
        safetensors_close(file);
        program_run_clear(&p);
    }
}

static void unknown_keys_of_a_config_are_told(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    struct model_copy c;
    temp_path(folder, dir, "odd");
    assert_int_equal(mkdir(folder, 0700), 0);
    model_copy_read(&c, small_text_model);
    assert_int_equal(json_object_set_new(c.config, "dropout", json_real(0.5)), 0);
    model_copy_write(&c, folder);
    model_copy_clear(&c);
    const struct program_case cases[] = {
        {"inspect warns and goes on",
         {"inspect", folder},
         NULL,
         0,
         "model                          odd\n",
         "aft inspect: warning: "},
        {"and names the key", {"inspect", folder}, NULL, 0, "blocks.1.mixer.pos_v", "\"dropout\""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_chat_template_is_told(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    temp_path(folder, dir, "chat");
    model_variants_write_chat(dir, "chat", small_text_model, "A:", "\n");
    const struct program_case cases[] = {
        {"a model that answers conversations",
         {"inspect", folder},
         NULL,
         0,
         "\nchat_template                  true\n",
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
    struct program_run p = {.argv = {aft, "inspect", small_text_model}};
    program_run(&p);
    assert_non_null(strstr(p.out, "\nchat_template                  false\n"));
    program_run_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_shows_the_architecture_and_each_tensor),
        cmocka_unit_test(unknown_keys_of_a_config_are_told),
        cmocka_unit_test(a_chat_template_is_told),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
