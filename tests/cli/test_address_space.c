/* test_address_space.c - programs that are started with too little address space say so and end; with enough they run.
 * The real programs, under ulimit -v. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/program.h"
#include "tests/support/sanitized.h"

enum { LITTLE_MB = 96, STEP_MB = 16 };

static void run_within(struct program_run *p, const char *program, const char *variable, long mb, const char *threads)
{
    static char path[PATH_MAX], command[PATH_MAX + 200];
    program_find(path, program, variable);
    (void)snprintf(command, sizeof command, "ulimit -v %ld; %s exec '%s' --version", mb * 1024, threads, path);
    *p = (struct program_run){.argv = {"/bin/sh", "-c", command, NULL}};
    program_run(p);
    if (p->timed_out)
        fail_msg("%s hangs with %ld MiB", program, mb);
}

static void assert_said(const struct program_run *p)
{
    assert_int_equal(p->exit_code, 1);
    assert_int_equal(p->out_size, 0);
    assert_non_null(strstr(p->err, "the address space is limited to "));
    assert_non_null(strstr(p->err, "OMP_NUM_THREADS"));
}

static void too_little_address_space_is_said_by_both_programs(void **state)
{
    struct program_run p;
    (void)state;
    if (IS_SANITIZED)
        skip();
    run_within(&p, "aftd", "AFTD_TEST_DAEMON", LITTLE_MB, "");
    assert_said(&p);
    program_run_clear(&p);
    run_within(&p, "aft", "AFTD_TEST_CLI", LITTLE_MB, "");
    assert_said(&p);
    program_run_clear(&p);
}

/* Whatever the limit: it runs, or it says why not; it never hangs. */
static void no_limit_of_address_space_makes_it_hang(void **state)
{
    const long processors = sysconf(_SC_NPROCESSORS_CONF), most = 128 * (processors > 8 ? 8 : processors) + 256;
    struct program_run p;
    bool runs = false;
    (void)state;
    if (IS_SANITIZED)
        skip();
    for (long mb = LITTLE_MB; mb <= most; mb += STEP_MB) {
        run_within(&p, "aftd", "AFTD_TEST_DAEMON", mb, "OMP_NUM_THREADS=8");
        assert_true(!runs || p.exit_code == 0); /* more is never worse */
        if (p.exit_code != 0)
            assert_said(&p);
        runs = p.exit_code == 0;
        program_run_clear(&p);
    }
    assert_true(runs);
    run_within(&p, "aftd", "AFTD_TEST_DAEMON", 320, "OMP_NUM_THREADS=1");
    assert_int_equal(p.exit_code, 0);
    program_run_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_address_space_is_said_by_both_programs),
        cmocka_unit_test(no_limit_of_address_space_makes_it_hang),
    };
    return cmocka_run_group_tests_name("address space", tests, NULL, NULL);
}
