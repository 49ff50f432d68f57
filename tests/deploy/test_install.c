/* test_install.c - what make install puts where, and what make uninstall leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

static char destdir[PATH_MAX], variant[PATH_MAX];

/* The programs are those that were built with this test, for which make finds nothing to do. */
static int setup(void **state)
{
    char self[PATH_MAX];
    (void)state;
    program_find(self, "", "AFTD_TEST_NONE"); /* a folder build/, or build/VARIANT/ */
    self[strlen(self) - 1] = '\0';
    const char *last = strrchr(self, '/') + 1;
    (void)snprintf(variant, sizeof variant, "%s", strcmp(last, "build") == 0 ? "release" : last);
    temp_dir_create(destdir);
    return 0;
}

/* Run a command of the shell, in which $1 is VARIANT's value and $2 is DESTDIR; it succeeds and prints `expected`. */
static void expect(const char *command, const char *expected)
{
    struct program_run p = {.argv = {"/bin/sh", "-c", command, "sh", variant, destdir}};
    program_run(&p);
    if (p.exit_code != 0 || (expected != NULL && strcmp(p.out, expected) != 0))
        fail_msg("%s: exit code %d, \"%s\", \"%s\", expected \"%s\"", command, p.exit_code, p.out, p.err, expected);
    program_run_clear(&p);
}

#define MAKE "make -s --no-print-directory VARIANT=\"$1\" DESTDIR=\"$2\" "

static void everything_of_the_models_is_installed(void **state)
{
    (void)state;
    expect(MAKE "install", NULL);
    expect("diff -r weights/models \"$2\"/usr/local/share/aftd/models", "");
}

static void the_installed_configuration_names_the_installed_models(void **state)
{
    (void)state;
    expect("unset AFTD_MODELS_DIR; cd / && \"$2\"/usr/local/bin/aftd --config \"$2\"/usr/local/etc/aftd/aftd.json "
           "--print-config | grep "
           "models_dir",
           "    \"models_dir\": \"/usr/local/share/aftd/models\",\n");
}

static void pages_and_completions_lie_where_they_are_looked_for(void **state)
{
    (void)state;
    expect("cd \"$2\"/usr/local/share && ls man/man?/* bash-completion/completions/* zsh/site-functions/*",
           "bash-completion/completions/aft\nbash-completion/completions/aftd\nman/man1/aft.1\nman/man5/aftd.json.5\n"
           "man/man8/aftd.8\nzsh/site-functions/_aft\nzsh/site-functions/_aftd\n");
}

static void an_edited_configuration_stays(void **state)
{
    (void)state;
    expect("sed -i s/8080/9090/ \"$2\"/usr/local/etc/aftd/aftd.json", "");
    expect(MAKE "install >/dev/null && grep -c 9090 \"$2\"/usr/local/etc/aftd/aftd.json", "1\n");
}

static void uninstalling_leaves_what_is_not_of_the_installation(void **state)
{
    (void)state;
    expect("mkdir \"$2\"/usr/local/share/aftd/models/own && touch \"$2\"/usr/local/share/aftd/models/own/config.json",
           "");
    expect(MAKE "uninstall >/dev/null && cd \"$2\" && find . -type f | sort",
           "./usr/local/etc/aftd/aftd.json\n./usr/local/share/aftd/models/own/config.json\n");
    expect("sed -i s/9090/8080/ \"$2\"/usr/local/etc/aftd/aftd.json && rm -r \"$2\"/usr/local/share/aftd/models/own",
           "");
    expect(MAKE "uninstall >/dev/null && cd \"$2\" && find . -type f -o -name aftd", "");
}

/* In this order: each goes on with what the one before it left. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_of_the_models_is_installed),
        cmocka_unit_test(the_installed_configuration_names_the_installed_models),
        cmocka_unit_test(pages_and_completions_lie_where_they_are_looked_for),
        cmocka_unit_test(an_edited_configuration_stays),
        cmocka_unit_test(uninstalling_leaves_what_is_not_of_the_installation),
    };
    return cmocka_run_group_tests(tests, setup, temp_dirs_end);
}
