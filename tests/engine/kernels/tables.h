/* tables.h - the element-wise kernels of every instruction set that this machine runs. */
#ifndef TESTS_ENGINE_KERNELS_TABLES_H
#define TESTS_ENGINE_KERNELS_TABLES_H

#include <stddef.h>

#include "engine/kernels/kernels.h"

#ifdef __aarch64__
static const char *const isas[] = {"baseline", "neon", "neondotprod", "neonbf16"};
#else
static const char *const isas[] = {"baseline", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"};
#endif

enum { TABLES = sizeof isas / sizeof isas[0] };

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/* The tables that this machine runs, best last; returns how many. For ThreadSanitizer all are compiled from the same
 * plain code (Makefile), so there one stands for all. */
static inline size_t runnable(const struct kernels *found[TABLES])
{
    size_t n = 0;
    for (size_t i = 0; i < (__has_feature(thread_sanitizer) ? 1 : TABLES); i++) {
        found[n] = kernels_select(isas[i]);
        n += found[n] != NULL ? 1 : 0;
    }
    return n;
}

#endif
