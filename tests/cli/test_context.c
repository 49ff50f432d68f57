/* test_context.c - every verb on byte models of short contexts, and the limits that weights/FORMAT.md draws to
 * prompt and text. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char small_model[] = "tests/data/golden/lm-local-8"; /* T = 48 */
static char aft[PATH_MAX], dir[PATH_MAX], folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    temp_dir_create(dir);
    temp_path(folder, dir, "short");
    return mkdir(folder, 0700);
}

/* The small model with its first `context` positions, into `folder`. */
static void write_short_model(uint32_t context)
{
    struct model_copy c;
    model_copy_read(&c, small_model);
    assert_int_equal(json_object_set_new(json_object_get(c.config, "input"), "context", json_integer(context)), 0);
    for (size_t i = 0; i < c.count; i++) {
        struct tensor *t = &c.tensors[i];
        if (strstr(t->name, "pos_") == NULL)
            continue;
        t->bytes = t->bytes / t->shape[0] * context; /* pos_embed, pos_u, pos_v: a row for each position */
        t->elements = t->elements / t->shape[0] * context;
        t->shape[0] = context;
    }
    model_copy_write(&c, folder);
    model_copy_clear(&c);
}

/* ---- generate -------------------------------------------------------------------------------------------------- */

static struct program_run generate(const char *prompt)
{
    struct program_run p = {.argv = {aft, "generate", folder, "--prompt", prompt, "--seed", "5", "--max-tokens", "1000",
                                     "--context-overflow", "stop"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    return p;
}

/* Prompt and text together are at most T + 1 bytes long; of a longer prompt the last T - 1 stay, and always one. An
 * empty prompt is fed one byte that does not count. */
static const struct {
    const char *name;
    uint32_t context;
    const char *prompt;
    size_t kept, generated;
} limits[] = {
    {"T 48, empty prompt", 48, "", 0, 48},
    {"T 48, one byte", 48, "a", 1, 48},
    {"T 48, 47 bytes: the longest that is kept whole", 48, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstu", 47, 2},
    {"T 48, 48 bytes lose one", 48, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuv", 47, 2},
    {"T 48, 60 bytes lose 13", 48, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefgh", 47, 2},
    {"T 3, empty prompt", 3, "", 0, 3},
    {"T 3, one byte", 3, "a", 1, 3},
    {"T 3, two bytes", 3, "ab", 2, 2},
    {"T 3, three bytes", 3, "abc", 2, 2},
    {"T 2, empty prompt", 2, "", 0, 2},
    {"T 2, one byte", 2, "a", 1, 2},
    {"T 2, two bytes", 2, "ab", 1, 2},
    {"T 2, seven bytes", 2, "abcdefg", 1, 2},
    {"T 1, empty prompt", 1, "", 0, 1},
    {"T 1, one byte", 1, "a", 1, 1},
    {"T 1, three bytes", 1, "abc", 1, 1},
};

static void generation_stops_at_the_contexts_end(void **state)
{
    (void)state;
    char note[400], end[200];
    for (size_t i = 0; i < LENGTH(limits); i++) {
        const size_t size = strlen(limits[i].prompt), kept = limits[i].kept;
        write_short_model(limits[i].context);
        struct program_run all = generate(limits[i].prompt);
        struct program_run last = generate(limits[i].prompt + size - kept);
        (void)snprintf(end, sizeof end,
                       "aft generate: the context is full after %zu bytes; with --context-overflow shift the text "
                       "goes on\n",
                       limits[i].generated);
        (void)snprintf(note, sizeof note, "aft generate: the prompt has %zu bytes; its last %zu are used\n%s", size,
                       kept, end);
        if (all.out_size != limits[i].generated || strcmp(all.err, size > kept ? note : end) != 0)
            fail_msg("%s: %zu bytes and \"%s\", expected %zu", limits[i].name, all.out_size, all.err,
                     limits[i].generated);
        assert_int_equal(all.out_size, last.out_size);
        assert_memory_equal(all.out, last.out, all.out_size);
        assert_string_equal(last.err, end);
        program_run_clear(&all);
        program_run_clear(&last);
    }
}

/* The text model's text after a prompt, which nothing but its last bytes has a part in. */
static void continue_bytes(char *prompt, size_t size, size_t count)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%zu", count);
    struct program_run p = {.argv = {aft, "generate", "tests/data/models/enwik8-aft-local", "--prompt", "-",
                                     "--max-tokens", number, "--temperature", "0", "--repetition-penalty", "1.3"},
                            .input = prompt,
                            .input_size = size};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_int_equal(p.out_size, count);
    memcpy(prompt + size, p.out, count);
    program_run_clear(&p);
}

/* What was fed ahead by then makes no difference to that. */
static void a_text_goes_on_past_each_end_as_from_its_last_half(void **state)
{
    (void)state;
    enum { CONTEXT = 512, HALF = CONTEXT / 2, PROMPT = 15, ENDS = 3, ALL = CONTEXT + ENDS * (HALF + 1) };
    static char all[ALL] = "The history of ", piece[CONTEXT];
    continue_bytes(all, PROMPT, ALL - PROMPT);
    for (size_t end = 1; end <= ENDS; end++) {
        const char *from = all + end * (HALF + 1);
        memcpy(piece, from, HALF);
        continue_bytes(piece, HALF, HALF);
        assert_memory_equal(piece, from, CONTEXT);
    }
}

/* ---- the other verbs ------------------------------------------------------------------------------------------- */

/* Windows of so few bytes, by the format's float64 reference. */
static void scores_are_the_references(void **state)
{
    (void)state;
    static const char *const want[] = {NULL, "11.1873 bits per byte\n", "11.1262 bits per byte\n",
                                       "11.2669 bits per byte\n"};
    for (uint32_t context = 1; context <= 3; context++) {
        write_short_model(context);
        const struct program_case cases[] = {
            {want[context], {"score", folder, "-"}, "The quick brown fox", 0, want[context], ""}};
        program_expect(aft, cases, LENGTH(cases));
    }
}

static void inspect_and_bench_cope_with_tiny_contexts(void **state)
{
    (void)state;
    for (uint32_t context = 1; context <= 3; context++) {
        char key[32], line[64];
        write_short_model(context);
        (void)snprintf(key, sizeof key, "\"step_ms_at_%" PRIu32 "\": ", context - 1);
        (void)snprintf(line, sizeof line, "context                        %" PRIu32 "\n", context);
        const struct program_case cases[] = {
            {"inspect", {"inspect", folder}, NULL, 0, line, ""},
            {"a step", {"bench", folder, "--runs", "3", "--json"}, NULL, 0, key, ""},
            {"its ratio to itself", {"bench", folder, "--runs", "3", "--json"}, NULL, 0, "\"step_ratio\": ", ""},
        };
        program_expect(aft, cases, LENGTH(cases));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generation_stops_at_the_contexts_end),
        cmocka_unit_test(a_text_goes_on_past_each_end_as_from_its_last_half),
        cmocka_unit_test(scores_are_the_references),
        cmocka_unit_test(inspect_and_bench_cope_with_tiny_contexts),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
