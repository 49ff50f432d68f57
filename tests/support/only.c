/* only.c - AFTD_TEST_ONLY=NAME runs, of a program's tests, those of that name alone; * and ? stand for any characters
 * and for one. The Makefile has it linked into every test program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/only.h"

void only_tests(void)
{
    const char *name = getenv("AFTD_TEST_ONLY");
    if (name != NULL)
        cmocka_set_test_filter(name);
}
