/* test_generate.c - aft generate: the same text for the same seed, prompts of any bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/data/shipped.h"
#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char byte_model[] = "enwik8-aft-local";
static const char small_model[] = "tests/data/golden/lm-local-8"; /* T = 48 */
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("AFTD_PRECISION", "f32", 1), 0); /* as in the reference's figures */
    temp_dir_create(dir);
    return 0;
}

/* generate MODEL OPTIONS with a prompt on standard input; must succeed. */
static struct program_run generate(const char *model, const char *const options[], const void *prompt, size_t size)
{
    struct program_run p = {.argv = {aft, "generate", model, "--prompt", "-"}, .input = prompt, .input_size = size};
    for (size_t i = 0; options[i] != NULL; i++)
        p.argv[i + 5] = options[i];
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("exit code %d: %s", p.exit_code, p.err);
    return p;
}

#define GENERATE(model, prompt, size, ...) generate((model), (const char *const[]){__VA_ARGS__, NULL}, (prompt), (size))

static void assert_same_text(const struct program_run *a, const struct program_run *b)
{
    assert_int_equal(a->out_size, b->out_size);
    assert_memory_equal(a->out, b->out, a->out_size);
}

/* ---- what is generated ----------------------------------------------------------------------------------------- */

/* The likeliest bytes by the format's float64 reference. */
static void greedy_text_is_the_references(void **state)
{
    (void)state;
    static const struct program_case cases[] = {
        {"a prompt is continued and not echoed",
         {"generate", byte_model, "--prompt", "The history of ", "--temperature", "0", "--max-tokens", "39"},
         NULL,
         0,
         SHIPPED_HISTORY_GOES_ON,
         ""},
        {"an empty prompt is one newline, which is not echoed",
         {"generate", byte_model, "--temperature", "0", "--max-tokens", "24"},
         NULL,
         0,
         SHIPPED_NOTHING_GOES_ON,
         ""},
        {"so is an empty standard input",
         {"generate", byte_model, "--prompt", "-", "--temperature", "0", "--max-tokens", "24"},
         "",
         0,
         SHIPPED_NOTHING_GOES_ON,
         ""},
        {"and a newline is a newline",
         {"generate", byte_model, "--prompt", "\n", "--temperature", "0", "--max-tokens", "24"},
         NULL,
         0,
         SHIPPED_NOTHING_GOES_ON,
         ""},
        {"a prompt from standard input",
         {"generate", byte_model, "--prompt", "-", "--temperature", "0", "--max-tokens", "39"},
         "The history of ",
         0,
         SHIPPED_HISTORY_GOES_ON,
         ""},
        {"only the likeliest byte with top-k 1",
         {"generate", byte_model, "--prompt", "The history of ", "--top-k", "1", "--max-tokens", "39"},
         NULL,
         0,
         SHIPPED_HISTORY_GOES_ON,
         ""},
        {"only the likeliest byte with min-p 1",
         {"generate", byte_model, "--prompt", "The history of ", "--min-p", "1", "--max-tokens", "39"},
         NULL,
         0,
         SHIPPED_HISTORY_GOES_ON,
         ""},
        {"only the likeliest byte with a tiny top-p",
         {"generate", byte_model, "--prompt", "The history of ", "--top-p", "1e-9", "--max-tokens", "39"},
         NULL,
         0,
         SHIPPED_HISTORY_GOES_ON,
         ""},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_seed_decides_the_text(void **state)
{
    (void)state;
    struct program_run a = GENERATE(small_model, "seed", 4, "--seed", "7", "--max-tokens", "40");
    struct program_run b = GENERATE(small_model, "seed", 4, "--seed", "7", "--max-tokens", "40");
    struct program_run other = GENERATE(small_model, "seed", 4, "--seed", "8", "--max-tokens", "40");
    assert_same_text(&a, &b);
    assert_memory_not_equal(a.out, other.out, 40);
    program_run_clear(&b);
    program_run_clear(&other);
    b = GENERATE(small_model, "seed", 4, "--seed", "7", "--max-tokens", "12"); /* its beginning */
    assert_int_equal(b.out_size, 12);
    assert_memory_equal(a.out, b.out, 12);
    program_run_clear(&a);
    program_run_clear(&b);
}

static void without_a_seed_texts_differ(void **state)
{
    (void)state;
    struct program_run a = GENERATE(small_model, "x", 1, "--max-tokens", "40");
    struct program_run b = GENERATE(small_model, "x", 1, "--max-tokens", "40");
    assert_memory_not_equal(a.out, b.out, 40); /* equal once in more than 2^64 runs */
    program_run_clear(&a);
    program_run_clear(&b);
}

static void the_repetition_penalty_looks_at_the_prompt(void **state)
{
    (void)state;
    static const char prompt[] = "The history of ";
    struct program_run plain = GENERATE(byte_model, prompt, strlen(prompt), "--temperature", "0", "--max-tokens", "1");
    struct program_run punished = GENERATE(byte_model, prompt, strlen(prompt), "--temperature", "0", "--max-tokens",
                                           "1", "--repetition-penalty", "100");
    assert_int_equal(plain.out[0], 't');
    assert_null(strchr(prompt, punished.out[0]));
    program_run_clear(&plain);
    program_run_clear(&punished);
}

static void prompts_hold_any_bytes(void **state)
{
    (void)state;
    char every[255];
    char given[256] = {0};
    for (size_t i = 0; i < sizeof every; i++)
        given[i] = every[i] = (char)(i + 1);
    struct program_run from_input =
        GENERATE(byte_model, every, sizeof every, "--seed", "1", "--max-tokens", "20", "--temperature", "0");
    struct program_run from_argument = {
        .argv = {aft, "generate", byte_model, "--prompt", given, "--max-tokens", "20", "--temperature", "0"}};
    program_run(&from_argument);
    assert_int_equal(from_argument.exit_code, 0);
    assert_same_text(&from_input, &from_argument);
    program_run_clear(&from_argument);
    program_run_clear(&from_input);

    /* A NUL can only come from standard input. It is a byte as any other: it neither ends the prompt nor is skipped. */
    struct program_run with = GENERATE(small_model, "ab\0cd", 5, "--seed", "1", "--max-tokens", "30");
    struct program_run cut = GENERATE(small_model, "ab", 2, "--seed", "1", "--max-tokens", "30");
    struct program_run without = GENERATE(small_model, "abcd", 4, "--seed", "1", "--max-tokens", "30");
    assert_memory_not_equal(with.out, cut.out, 30);
    assert_memory_not_equal(with.out, without.out, 30);
    program_run_clear(&with);
    program_run_clear(&cut);
    program_run_clear(&without);
}

static void a_prompt_beyond_the_bound_is_refused(void **state)
{
    (void)state;
    char *large = malloc(GENERATE_PROMPT_MAX + 1);
    assert_non_null(large);
    memset(large, 'a', GENERATE_PROMPT_MAX + 1);
    struct program_run p = {.argv = {aft, "generate", small_model, "--prompt", "-", "--max-tokens", "1"},
                            .input = large,
                            .input_size = GENERATE_PROMPT_MAX + 1};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_string_equal(p.err, "aft generate: standard input: larger than 1048576 bytes\n");
    program_run_clear(&p);
    p.input_size--;
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_int_equal(p.out_size, 1);
    program_run_clear(&p);
    free(large);
}

/* A byte's logits do not depend on whether it was part of the prompt: greedy text goes on where it was cut. */
static void text_goes_on_from_its_own_beginning(void **state)
{
    (void)state;
    struct program_run all = GENERATE(byte_model, "Alan", 4, "--temperature", "0", "--max-tokens", "200");
    assert_int_equal(all.out_size, 200);
    for (size_t cut = 1; cut < 200; cut += 66) {
        char prompt[204] = "Alan";
        memcpy(prompt + 4, all.out, cut);
        struct program_run rest = GENERATE(byte_model, prompt, 4 + cut, "--temperature", "0", "--max-tokens", "30");
        const size_t n = 200 - cut < 30 ? 200 - cut : 30;
        assert_memory_equal(rest.out, all.out + cut, n);
        program_run_clear(&rest);
    }
    program_run_clear(&all);
}

/* ---- stop texts ------------------------------------------------------------------------------------------------- */

static void a_text_ends_before_what_stops_it(void **state)
{
    (void)state;
    struct program_run all = GENERATE(byte_model, "The history of ", 15, "--temperature", "0", "--max-tokens", "40");
    const char *end = strstr(all.out, "[[199");
    assert_non_null(end);
    *strstr(all.out, "[[199") = '\0';
    const struct program_case cases[] = {
        {"one",
         {"generate", byte_model, "-p", "The history of ", "--temperature=0", "--stop", "[[199"},
         NULL,
         0,
         all.out,
         ""},
        {"the first of several",
         {"generate", byte_model, "-p", "The history of ", "--temperature=0", "--stop", "zzzz", "--stop", "[[199"},
         NULL,
         0,
         all.out,
         ""},
        {"what might have been one is text",
         {"generate", byte_model, "-p", "The history of ", "--temperature=0", "-n", "9", "--stop", "the [[Alb"},
         NULL,
         0,
         "the [[Ala",
         ""},
        {"an empty one", {"generate", byte_model, "--stop", ""}, NULL, 2, "", "--stop is \"\", expected at most 8"},
        {"one too long",
         {"generate", byte_model, "--stop", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
         NULL,
         2,
         "",
         "of 1 to 64 bytes each"},
        {"too many",
         {"generate", byte_model, "--stop=1", "--stop=2", "--stop=3", "--stop=4", "--stop=5", "--stop=6", "--stop=7",
          "--stop=8", "--stop=9"},
         NULL,
         2,
         "",
         "--stop is \"9\", expected at most 8 texts"},
        {"one that is not UTF-8", {"generate", byte_model, "--stop", "\xff"}, NULL, 2, "", "in UTF-8"},
    };
    program_expect(aft, cases, LENGTH(cases));
    struct program_run stopped =
        GENERATE(byte_model, "The history of ", 15, "--temperature", "0", "--max-tokens", "400", "--stop", "[[199");
    assert_string_equal(stopped.out, all.out); /* and nothing behind it */
    program_run_clear(&stopped);
    program_run_clear(&all);
}

/* ---- prompts and threads ---------------------------------------------------------------------------------------- */

static void a_prompt_comes_from_a_file(void **state)
{
    (void)state;
    char file[PATH_MAX];
    temp_path(file, dir, "prompt");
    temp_write(file, "The history of ", 15);
    struct program_run said = GENERATE(small_model, "The history of ", 15, "--seed", "1", "--max-tokens", "20");
    struct program_run read = {.argv = {aft, "generate", small_model, "--prompt-file", file, "-s", "1", "-n", "20"}};
    program_run(&read);
    assert_int_equal(read.out_size, 20);
    assert_memory_equal(read.out, said.out, 20);
    program_run_clear(&read);
    program_run_clear(&said);
    const struct program_case cases[] = {
        {"no such file", {"generate", small_model, "--prompt-file", "/no/such"}, NULL, 1, "", "/no/such: No such file"},
        {"two prompts", {"generate", small_model, "--prompt-file", file, "-p", "a"}, NULL, 2, "", "give one of them"},
        {"a text and a prompt", {"generate", small_model, "a", "-p", "a"}, NULL, 2, "", "give one of them"},
        {"threads", {"generate", small_model, "-t", "1", "-n", "1", "--precision", "int8"}, NULL, 0, NULL, ""},
        {"too many threads", {"generate", small_model, "-t", "999"}, NULL, 2, "", "--threads is \"999\""},
        {"threads of a daemon",
         {"generate", "--url", "http://127.0.0.1:1", "-t", "1"},
         NULL,
         2,
         "",
         "--threads is not for a daemon, which has the setting threads instead"},
        {"precision of a daemon",
         {"score", "LICENSE", "--url", "http://127.0.0.1:1", "--precision", "f32"},
         NULL,
         2,
         "",
         "--precision is not for a daemon"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

static void a_text_may_be_an_argument_or_piped_in_and_is_echoed_if_asked(void **state)
{
    (void)state;
    struct program_run said = GENERATE(small_model, "The history of ", 15, "--seed", "1", "--max-tokens", "20");
    struct program_run others[] = {
        {.argv = {aft, "generate", small_model, "The history of ", "-s", "1", "-n", "20"}},
        {.argv = {aft, "generate", "-m", small_model, "The history of ", "-s", "1", "-n", "20"}},
        {.argv = {aft, "generate", small_model, "-s", "1", "-n", "20"}, .input = "The history of ", .input_size = 15},
        {.argv = {aft, "generate", small_model, "The history of ", "-s", "1", "-n", "20"},
         .input = "x",
         .input_size = 1},
        {.argv = {aft, "generate", small_model, "The history of ", "-s", "1", "-n", "20", "--echo"}},
    };
    for (size_t i = 0; i < LENGTH(others); i++) {
        const size_t echoed = i == LENGTH(others) - 1 ? 15 : 0;
        program_run(&others[i]);
        assert_int_equal(others[i].out_size, echoed + 20);
        assert_memory_equal(others[i].out, "The history of ", echoed);
        assert_memory_equal(others[i].out + echoed, said.out, 20);
        program_run_clear(&others[i]);
    }
    program_run_clear(&said);
}

/* ---- broken models --------------------------------------------------------------------------------------------- */

static void a_model_that_overflows_is_an_error(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    float weight[256 * 32];
    struct model_copy c;
    temp_path(folder, dir, "overflow");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < LENGTH(weight); i++)
        weight[i] = 3e38f;
    model_copy_read(&c, small_model);
    model_copy_set(&c, "head.weight", weight, 256, 32);
    model_copy_write(&c, folder);
    model_copy_clear(&c);
    const struct program_case cases[] = {
        {"generate", {"generate", folder, "--seed", "1"}, NULL, 1, "", "gave a logit that is not a number"},
        {"score", {"score", folder, "-"}, "ab", 1, "", "gives no finite probability to a byte"},
    };
    program_expect(aft, cases, LENGTH(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_the_references),
        cmocka_unit_test(a_seed_decides_the_text),
        cmocka_unit_test(without_a_seed_texts_differ),
        cmocka_unit_test(the_repetition_penalty_looks_at_the_prompt),
        cmocka_unit_test(prompts_hold_any_bytes),
        cmocka_unit_test(a_prompt_beyond_the_bound_is_refused),
        cmocka_unit_test(text_goes_on_from_its_own_beginning),
        cmocka_unit_test(a_text_ends_before_what_stops_it),
        cmocka_unit_test(a_prompt_comes_from_a_file),
        cmocka_unit_test(a_text_may_be_an_argument_or_piped_in_and_is_echoed_if_asked),
        cmocka_unit_test(a_model_that_overflows_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
