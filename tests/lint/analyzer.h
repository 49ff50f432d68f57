/* What clang's analyzer, which sees one file at a time, cannot know of functions of other files: that an error is
 * returned where one is told, and that a test that failed goes no further. Included before all else, by
 * `make lint-long` alone, but for the files that define these macros' functions. */
#ifndef LINT_ANALYZER_H
#define LINT_ANALYZER_H

#include <stdint.h>
#include <stdlib.h>

#include "config/status.h"
#include "server/cli/cli.h"

#define error_set(err, st, ...) (error_set(err, st, __VA_ARGS__), (st))
#define error_set_param(err, st, ...) (error_set_param(err, st, __VA_ARGS__), (st))
#define cli_fail(...) (cli_fail(__VA_ARGS__), CLI_FAILED)
#define cli_fail_usage(...) (cli_fail_usage(__VA_ARGS__), CLI_USAGE)

/* cmocka's, which its macros call. */
static inline void _fail(const char *file, int line)
{
    (void)file, (void)line;
    abort();
}

static inline void _assert_true(uintmax_t result, const char *expression, const char *file, int line)
{
    (void)expression, (void)file, (void)line;
    if (result == 0)
        abort();
}

static inline void _assert_int_equal(uintmax_t a, uintmax_t b, const char *file, int line)
{
    (void)file, (void)line;
    if (a != b)
        abort();
}

#endif
