/* test_man.c - the manual pages and the completions in deploy/ are what their templates and the tables of the code
 * give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <glob.h>

#include "config/settings.h"
#include "server/cli/cli.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

static char pages[PATH_MAX], completions[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    program_find(pages, "deploy/man/pages", "AFTD_TEST_PAGES");
    program_find(completions, "deploy/completion/completions", "AFTD_TEST_COMPLETIONS");
    return 0;
}

/* The number of the first line in which two texts differ. */
static unsigned differing_line(const char *a, const char *b)
{
    unsigned line = 1;
    for (; *a != '\0' && *a == *b; a++, b++)
        line += *a == '\n';
    return line;
}

static void expect_written(const char *writer, const char *pattern)
{
    glob_t templates;
    assert_int_equal(glob(pattern, 0, NULL, &templates), 0);
    for (size_t i = 0; i < templates.gl_pathc; i++) {
        char path[PATH_MAX];
        size_t size = 0;
        struct program_run p = {.argv = {writer, templates.gl_pathv[i]}};
        assert_in_range(snprintf(path, sizeof path, "%s", templates.gl_pathv[i]), 4, PATH_MAX - 1);
        path[strlen(path) - strlen(".in")] = '\0';
        program_run(&p);
        if (p.exit_code != 0)
            fail_msg("%s: exit code %d, \"%s\"", templates.gl_pathv[i], p.exit_code, p.err);
        char *page = temp_read(path, &size);
        if (strcmp(page, p.out) != 0)
            fail_msg("%s is not what its template and the tables give, from line %u on: make man writes it anew", path,
                     differing_line(page, p.out));
        free(page);
        program_run_clear(&p);
    }
    globfree(&templates);
}

static void pages_are_what_make_man_writes(void **state)
{
    (void)state;
    expect_written(pages, "deploy/man/*.in");
}

static void completions_are_what_make_man_writes(void **state)
{
    (void)state;
    expect_written(completions, "deploy/completion/*.in");
}

/* So that a page without its tables is noticed, which the test above would take for what the template gives. */
static void pages_name_all_settings_and_verbs(void **state)
{
    (void)state;
    char name[128];
    size_t size = 0;
    char *settings = temp_read("deploy/man/aftd.json.5", &size), *verbs = temp_read("deploy/man/aft.1", &size);
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        (void)snprintf(name, sizeof name, "\n.It Ic %s\n", setting_at(id)->name);
        if (strstr(settings, name) == NULL)
            fail_msg("aftd.json.5 has no %s", setting_at(id)->name);
    }
    for (size_t i = 0; i < cli_verb_count; i++) {
        (void)snprintf(name, sizeof name, "\n.Ss %s\n", cli_verbs[i].name);
        if (strstr(verbs, name) == NULL)
            fail_msg("aft.1 has no %s", cli_verbs[i].name);
    }
    assert_non_null(strstr(verbs, "\n.It Fl n , Fl \\-max-tokens Ar N\nHow many bytes to generate.\nDefault: 256.\n"));
    for (size_t i = 0; i < cli_verb_count; i++) /* among the examples at the end */
        assert_non_null(strstr(strstr(verbs, "\n.Sh EXAMPLES\n"), cli_verbs[i].example));
    free(settings);
    free(verbs);
}

static void an_unknown_insert_is_refused(void **state)
{
    (void)state;
    char dir[PATH_MAX], path[PATH_MAX];
    static const char template[] = ".Sh NAME\n.\\\" INSERT nothing\n";
    temp_dir_create(dir);
    temp_path(path, dir, "page.1.in");
    temp_write(path, template, sizeof template - 1);
    struct program_run p = {.argv = {pages, path}};
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_non_null(strstr(p.err, "page.1.in: there is nothing to insert for \"nothing\""));
    program_run_clear(&p);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_what_make_man_writes),
        cmocka_unit_test(completions_are_what_make_man_writes),
        cmocka_unit_test(pages_name_all_settings_and_verbs),
        cmocka_unit_test(an_unknown_insert_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
