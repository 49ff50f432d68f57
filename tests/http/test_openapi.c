/* test_openapi.c - some hundred made-up requests, right and wrong ones: is every answer as /openapi.json says?
 * tests/openapi/run.py does it, where $PYTHON has schemathesis; `make test-openapi` sends thousands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/program.h"

/* A machine that only builds and serves has no Python. */
static const char script[] = "command -v \"$0\" >/dev/null || {"
                             "    echo 'the answers were not held against /openapi.json: there is no Python'; exit 77;"
                             "}; exec \"$0\" \"$@\"";

enum { LIMIT_S = 580, LACKS_PACKAGES = 77 };

static void every_answer_is_as_described(void **state)
{
    const char *python = getenv("PYTHON");
    char aftd[PATH_MAX];
    (void)state;
    program_find(aftd, "aftd", "AFTD_TEST_DAEMON");
    struct program_run p = {
        .argv = {"/bin/sh", "-c", script, python != NULL ? python : "python3", "tests/openapi/run.py", "--daemon", aftd,
                 "--examples", "200"},
    };
    program_run(&p);
    const int code = p.exit_code;
    if (code == LACKS_PACKAGES)
        print_message("skipped: %s", p.out);
    else if (code != 0)
        (void)fprintf(stderr, "%s%s\n", p.out, p.err); /* cmocka's own would cut it */
    program_run_clear(&p);
    if (code == LACKS_PACKAGES)
        skip();
    assert_int_equal(code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_as_described),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
