/* refused_memory.h - a test program's own malloc, calloc and realloc, which refuse the allocation that a test chooses,
 * the libraries' too. Included by one file of the program, as it defines them; not in libsupport, from which every
 * program would take them. Where a sanitizer stands in malloc's place, nothing is refused (sanitized.h).
 * What the calling thread asks for is refused, and nothing else. */
#ifndef TESTS_SUPPORT_REFUSED_MEMORY_H
#define TESTS_SUPPORT_REFUSED_MEMORY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/support/sanitized.h"

enum { ALLOCATIONS_MAX = 100000 }; /* that are refused in turn: more would be a test without an end */

static _Thread_local long refused_from; /* the so-manyth allocation from now is refused; 0: none */
static _Thread_local bool refused_on;   /* those after it as well */
static _Thread_local unsigned refused_count;

/* Refuse the n-th allocation from now, and with `stays` those after it. */
static inline void refuse_memory(long n, bool stays)
{
    refused_count = 0;
    refused_on = stays;
    refused_from = n;
}

/* Refuse nothing more. Was any refused? */
static inline bool give_memory(void)
{
    refused_from = 0;
    return refused_count > 0;
}

#if !IS_SANITIZED
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *before, size_t size);

static bool is_refused(void)
{
    if (refused_from > 1) {
        refused_from--;
        return false;
    }
    const bool refused = refused_from == 1;
    if (refused && !refused_on)
        refused_from = 0;
    refused_count += refused;
    if (refused)
        errno = ENOMEM;
    return refused;
}

void *malloc(size_t size)
{
    return is_refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *before, size_t size)
{
    return is_refused() ? NULL : __libc_realloc(before, size);
}
#endif

#endif
