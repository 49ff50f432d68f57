/* keys.c - see keys.h. */
#include "tests/support/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"

static void run(const char *action, const char *file, const char *name, const char *const more[],
                char key[KEYS_TEXT_MAX])
{
    char program[PATH_MAX];
    program_find(program, "aft", "AFTD_TEST_CLI");
    struct program_run p = {.argv = {program, "key", action, name, "--file", file}};
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        assert_true(i + 7 < PROGRAM_ARGUMENTS_MAX);
        p.argv[6 + i] = more[i];
    }
    program_run(&p);
    if (p.exit_code != 0)
        fail_msg("aft key %s: %s", action, p.err);
    if (key != NULL) {
        assert_true(p.out_size > 1 && p.out_size <= KEYS_TEXT_MAX);
        memcpy(key, p.out, p.out_size - 1); /* less the newline */
        key[p.out_size - 1] = '\0';
    }
    program_run_clear(&p);
}

void keys_add(const char *file, const char *name, const char *const more[], char key[KEYS_TEXT_MAX])
{
    run("add", file, name, more, key);
}

void keys_remove(const char *file, const char *name)
{
    run("remove", file, name, NULL, NULL);
}
