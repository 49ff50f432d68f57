/* test_version.c - what --version of both programs says: version, commit, instruction sets, libraries. */
#include <limits.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#define NUMBERS "[0-9]+(\\.[0-9]+)+"

/* Each is a line; `in`: 1 of aftd, 2 of aft, 3 of both. */
static const struct {
    unsigned in;
    const char *pattern;
} lines[] = {
    {3, "commit +([0-9a-f]{40}(\\+changes)?|[^ ]+)"},
    {3, "instruction set +[a-z0-9]+, of [a-z0-9, ]*baseline"},
    {3, "jansson +" NUMBERS},
    {3, "nettle +" NUMBERS},
    {3, "BLAS +OpenBLAS " NUMBERS ".*"},
    {3, "libjpeg +" NUMBERS ".*"},
    {3, "libpng +" NUMBERS},
    {3, "libwebp +" NUMBERS},
    {3, "libexif +libexif\\.so\\." NUMBERS},
    {1, "libmicrohttpd +" NUMBERS},
    {1, "GnuTLS +" NUMBERS},
    {2, "libcurl +libcurl/" NUMBERS ".*"},
};

static bool has_line(const char *text, const char *pattern)
{
    char whole[256];
    regex_t expression;
    (void)snprintf(whole, sizeof whole, "^%s$", pattern);
    assert_int_equal(regcomp(&expression, whole, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    const bool found = regexec(&expression, text, 0, NULL, 0) == 0;
    regfree(&expression);
    return found;
}

static void assert_says(const char *name, const char *variable, unsigned program)
{
    char path[PATH_MAX], first[64];
    program_find(path, name, variable);
    struct program_run p = {.argv = {path, "--version"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_string_equal(p.err, "");
    (void)snprintf(first, sizeof first, "%s " AFTD_VERSION "\n", name);
    assert_memory_equal(p.out, first, strlen(first)); /* for scripts */
    for (size_t i = 0; i < LENGTH(lines); i++)
        if (has_line(p.out, lines[i].pattern) != ((lines[i].in & program) != 0))
            fail_msg("%s: \"%s\": expected %s in\n%s", name, lines[i].pattern,
                     (lines[i].in & program) != 0 ? "a line" : "none", p.out);
    program_run_clear(&p);
}

static void the_daemon_names_what_it_runs_with(void **state)
{
    (void)state;
    assert_says("aftd", "AFTD_TEST_DAEMON", 1);
}

static void the_program_names_what_it_runs_with(void **state)
{
    (void)state;
    assert_says("aft", "AFTD_TEST_CLI", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_daemon_names_what_it_runs_with),
        cmocka_unit_test(the_program_names_what_it_runs_with),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
