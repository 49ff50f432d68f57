/* test_output.c - where aft's output goes: readers that leave early, full disks, closed descriptors, terminals. */
#include <setjmp.h>
#include <signal.h>
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

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const char text_model[] = "tests/data/golden/lm-local-8";
static const char byte_model[] = "enwik8-aft-local";
static char aft[PATH_MAX], dir[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    assert_int_equal(setenv("TERM", "xterm", 1), 0); /* where the tests run it may be dumb, which shows nothing */
    temp_dir_create(dir);
    return 0;
}

/* A verb of each kind: what is printed at the end, and as it comes. */
static const struct {
    const char *name;
    const char *args[8];
} writers[] = {
    {"--version", {"--version"}},
    {"help", {"help"}},
    {"help of a verb", {"score", "--help"}},
    {"classify", {"classify", "tests/data/golden/conv-heads8-k5", "tests/data/images/small-32.jpg"}},
    {"generate", {"generate", text_model}},
    {"score", {"score", text_model, "tests/data/golden/lm-local-8/config.json"}},
    {"compress", {"compress", text_model, "tests/data/golden/lm-local-8/config.json"}},
    {"inspect, less than a buffer", {"inspect", text_model}},
    {"inspect, more than a buffer", {"inspect", byte_model}},
    {"verify", {"verify", text_model}},
    {"bench", {"bench", text_model, "--runs", "3"}},
    {"bench --json", {"bench", text_model, "--runs", "3", "--json"}},
};

static void expect_write_error(enum program_sink sink)
{
    for (size_t i = 0; i < LENGTH(writers); i++) {
        struct program_run p = {.argv = {aft}, .out_sink = sink};
        for (size_t a = 0; writers[i].args[a] != NULL; a++)
            p.argv[a + 1] = writers[i].args[a];
        program_run(&p);
        if (p.exit_code != 1 || strstr(p.err, "cannot write to standard output") == NULL)
            fail_msg("%s: exit code %d, \"%s\", expected 1 and a message", writers[i].name, p.exit_code, p.err);
        program_run_clear(&p);
    }
}

static void a_full_disk_is_a_failure(void **state)
{
    (void)state;
    expect_write_error(PROGRAM_FULL);
}

static void a_closed_output_is_a_failure(void **state)
{
    (void)state;
    expect_write_error(PROGRAM_CLOSED);
}

static void closed_messages_keep_no_verb_from_its_work(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "inspect", text_model}, .err_sink = PROGRAM_CLOSED};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_non_null(strstr(p.out, "blocks.1.mixer.pos_v"));
    program_run_clear(&p);
}

/* aft generate ... | head -c 10 */
static void a_reader_that_has_enough_ends_generate_quietly(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "generate", byte_model, "--max-tokens", "400", "--seed", "1"}, .out_max = 10};
    program_run(&p);
    assert_false(p.timed_out);
    assert_int_equal(p.signal, SIGPIPE);
    assert_int_equal(p.out_size, 10);
    assert_string_equal(p.err, "");
    program_run_clear(&p);
}

static void where_sigpipe_is_ignored_the_reason_is_told(void **state)
{
    (void)state;
    struct program_run p = {.argv = {aft, "generate", byte_model, "--max-tokens", "400", "--seed", "1"},
                            .out_max = 10,
                            .ignores_sigpipe = true};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_string_equal(p.err, "aft generate: cannot write to standard output: Broken pipe\n");
    program_run_clear(&p);
}

/* ---- terminals ------------------------------------------------------------------------------------------------- */

static void score_shows_its_progress_on_a_terminal_alone(void **state)
{
    (void)state;
    program_need_terminal();
    struct program_run p = {.argv = {aft, "score", byte_model, "Makefile"}, .err_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_non_null(strstr(p.out, " bits per byte\n"));
    assert_int_equal(p.err[0], '\r');
    assert_non_null(strstr(p.err, "%  "));
    assert_non_null(strstr(p.err, "[########################################] 100 %  "));
    assert_string_equal(p.err + p.err_size - 4, "\r\033[K"); /* and wipes it away */
    program_run_clear(&p);

    p.err_sink = PROGRAM_COLLECTED;
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_string_equal(p.err, "");
    program_run_clear(&p);
}

/* Every verb that may take longer than a second; each of them wipes away what it showed. */
static void long_runs_show_how_far_they_are(void **state)
{
    (void)state;
    static const char prompt[] = "The history of ";
    char model[PATH_MAX], archive[PATH_MAX];
    struct model_copy c;
    program_need_terminal();
    temp_path(model, dir, "checked");
    temp_path(archive, dir, "archive");
    assert_int_equal(mkdir(model, 0700), 0);
    model_copy_read(&c, text_model);
    model_copy_write(&c, model);
    model_copy_clear(&c);
    const char *const runs[][12] = {
        {"verify", text_model, "weights/models/cifar10-sima"},
        {"bench", text_model, "--runs", "3"},
        {"check-precision", model, "server/API.md"}, /* long enough for more than a first line */
        {"compress", byte_model, "Makefile", "-o", archive},
        {"decompress", byte_model, archive, "-o", "/dev/null"},
        {"complete", "cifar10-pixels-16", "-o", "/dev/null"},
        {"generate", byte_model, "-p", prompt, "-n", "600", "--json"},
    };
    for (size_t i = 0; i < LENGTH(runs); i++) {
        struct program_run p = {.argv = {aft}, .err_sink = PROGRAM_TERMINAL};
        for (size_t a = 0; runs[i][a] != NULL; a++)
            p.argv[a + 1] = runs[i][a];
        program_run(&p);
        if (p.exit_code != 0 || strstr(p.err, "[####") == NULL || strstr(p.err, " %  ") == NULL ||
            strcmp(p.err + p.err_size - 4, "\r\033[K") != 0)
            fail_msg("aft %s: exit code %d, no progress that is wiped away in the end: \"%s\"", runs[i][0], p.exit_code,
                     p.err);
        program_run_clear(&p);
    }
}

static void the_time_left_is_told_after_a_second(void **state)
{
    (void)state;
    program_need_terminal();
    struct program_run p = {.argv = {aft, "bench", byte_model, "--runs", "21", "-t", "1"},
                            .err_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_non_null(strstr(p.err, "measured, "));
    assert_non_null(strstr(p.err, " s left\033[K"));
    program_run_clear(&p);
}

static void colors_are_for_terminals_that_want_them(void **state)
{
    (void)state;
    static const struct {
        const char *name, *variable, *value;
        enum program_sink sink;
        bool colored;
    } cases[] = {
        {"a terminal", "TERM", "xterm", PROGRAM_TERMINAL, true},
        {"a pipe", "TERM", "xterm", PROGRAM_COLLECTED, false},
        {"NO_COLOR", "NO_COLOR", "1", PROGRAM_TERMINAL, false},
        {"an empty NO_COLOR is none", "NO_COLOR", "", PROGRAM_TERMINAL, true},
        {"a dumb terminal", "TERM", "dumb", PROGRAM_TERMINAL, false},
    };
    program_need_terminal();
    for (size_t i = 0; i < LENGTH(cases); i++) {
        assert_int_equal(setenv("TERM", "xterm", 1), 0);
        assert_int_equal(unsetenv("NO_COLOR"), 0);
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        struct program_run p = {.argv = {aft, "verify", text_model, "/no/such"}, .out_sink = cases[i].sink};
        program_run(&p);
        const bool good = strstr(p.out, "\033[32mok\033[0m    ") != NULL, bad = strstr(p.out, "\033[31mFAILED") != NULL;
        if (good != cases[i].colored || bad != cases[i].colored || (strchr(p.out, '\033') != NULL) != cases[i].colored)
            fail_msg("%s: \"%s\"", cases[i].name, p.out);
        program_run_clear(&p);
        p = (struct program_run){.argv = {aft, "score", "/no/such", "x"}, .err_sink = cases[i].sink};
        program_run(&p);
        if ((strstr(p.err, "\033[31maft score:\033[0m no model") != NULL) != cases[i].colored ||
            (strchr(p.err, '\033') != NULL) != cases[i].colored)
            fail_msg("%s: \"%s\"", cases[i].name, p.err);
        program_run_clear(&p);
    }
    /* nor does a dumb one show progress, which takes escapes */
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    struct program_run p = {.argv = {aft, "score", byte_model, "Makefile"}, .err_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_string_equal(p.err, "");
    program_run_clear(&p);
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
}

/* A model whose likeliest byte is this one, whatever came before. */
static void write_constant_model(const char *path, const char *bytes, size_t count)
{
    float bias[256] = {0}, weight[256 * 32] = {0};
    struct model_copy c;
    for (size_t i = 0; i < count; i++)
        bias[(unsigned char)bytes[i]] = 50.0f;
    model_copy_read(&c, text_model);
    model_copy_set(&c, "head.weight", weight, 256, 32);
    model_copy_set(&c, "head.bias", bias, 256, 0);
    model_copy_write(&c, path);
    model_copy_clear(&c);
}

static const struct {
    const char *name, *bytes; /* that the model draws from */
    const char *on_terminal;  /* what a draw of them may consist of */
} draws[] = {
    {"an escape becomes a dot", "\033", "."},
    {"a bell becomes a dot", "\a", "."},
    {"a carriage return becomes a dot", "\r", "."},
    {"DEL becomes a dot", "\x7f", "."},
    {"a newline stays", "\n", "\n"},
    {"a tab stays", "\t", "\t"},
    {"text stays", "a", "a"},
    {"a byte that begins no character is replaced", "\xff", "\xef\xbf\xbd"},
    {"the CSI of C1 becomes a dot, what is torn is replaced", "\xc2\x9b", ".\xef\xbf\xbd"},
    {"other characters of two bytes stay whole", "\xc3\xa9", "\xc3\xa9\xef\xbf\xbd"},
};

static void a_terminal_gets_no_control_characters(void **state)
{
    (void)state;
    char folder[PATH_MAX];
    program_need_terminal();
    temp_path(folder, dir, "constant");
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < LENGTH(draws); i++) {
        write_constant_model(folder, draws[i].bytes, strlen(draws[i].bytes));
        struct program_run p = {.argv = {aft, "generate", folder, "--max-tokens", "40", "--seed", "3"},
                                .out_sink = PROGRAM_TERMINAL};
        program_run(&p);
        assert_int_equal(p.exit_code, 0);
        assert_true(p.out_size > 1);
        assert_int_equal(p.out[p.out_size - 1], '\n'); /* the prompt of the shell begins a line */
        p.out[--p.out_size] = '\0';
        if (strspn(p.out, draws[i].on_terminal) != p.out_size || strpbrk(p.out, draws[i].on_terminal) == NULL ||
            strstr(p.out, "\xc2\x9b") != NULL)
            fail_msg("%s: got \"%s\"", draws[i].name, p.out);
        program_run_clear(&p);

        p.out_sink = PROGRAM_COLLECTED; /* elsewhere the bytes are as they are */
        program_run(&p);
        assert_int_equal(p.out_size, 40);
        if (strspn(p.out, draws[i].bytes) != 40)
            fail_msg("%s: a pipe got other bytes: \"%s\"", draws[i].name, p.out);
        program_run_clear(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_is_a_failure),
        cmocka_unit_test(a_closed_output_is_a_failure),
        cmocka_unit_test(closed_messages_keep_no_verb_from_its_work),
        cmocka_unit_test(a_reader_that_has_enough_ends_generate_quietly),
        cmocka_unit_test(where_sigpipe_is_ignored_the_reason_is_told),
        cmocka_unit_test(score_shows_its_progress_on_a_terminal_alone),
        cmocka_unit_test(long_runs_show_how_far_they_are),
        cmocka_unit_test(the_time_left_is_told_after_a_second),
        cmocka_unit_test(colors_are_for_terminals_that_want_them),
        cmocka_unit_test(a_terminal_gets_no_control_characters),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
