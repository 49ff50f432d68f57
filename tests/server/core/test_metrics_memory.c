/* test_metrics_memory.c - the metrics are told whole or not at all, whichever allocation finds no memory: what is cut
 * short or empty would be read as a daemon whose counters began anew. The program's own functions refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/core/metrics.h"
#include "tests/support/refused_memory.h"

static void metrics_are_whole_or_refused(void **state)
{
    char *whole, *text;
    size_t size, got;
    struct error err;
    unsigned refused = 0;
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    assert_int_equal(metrics_render(&whole, &size, &err), OK);
    for (long n = 1;; n++) {
        assert_true(n < ALLOCATIONS_MAX);
        refuse_memory(n, false);
        const enum status st = metrics_render(&text, &got, &err);
        const bool reached = give_memory();
        if (st == OK) {
            if (text == NULL || got + 1024 < size) /* numbers of the process may have become shorter */
                fail_msg("without allocation %ld: %zu bytes of %zu, and no error", n, got, size);
            free(text);
        } else {
            assert_int_equal(st, ERR_NOMEM);
            assert_non_null(strstr(err.message, "memory"));
        }
        if (!reached)
            break;
        refused += st != OK;
    }
    assert_true(refused > 0);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_whole_or_refused),
    };
    return cmocka_run_group_tests_name("metrics_memory", tests, NULL, NULL);
}
