/* dispatch.c - which build of the element-wise kernels runs on this machine. */
#include <string.h>

#include "engine/kernels/kernels.h"

extern const struct kernels kernels_baseline;
#ifdef __x86_64__
extern const struct kernels kernels_avx2, kernels_avx512;
#endif

/* Best first; NULL ends the list. What is asked for is what the Makefile compiles each table with, no more. */
static void runnable(const struct kernels *found[4])
{
    size_t n = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found[n++] = &kernels_avx512;
    if (avx2)
        found[n++] = &kernels_avx2;
#endif
    found[n++] = &kernels_baseline;
    found[n] = NULL;
}

const struct kernels *kernels_select(const char *isa)
{
    const struct kernels *found[4];
    runnable(found);
    if (isa == NULL)
        return found[0];
    for (size_t i = 0; found[i] != NULL; i++)
        if (strcmp(found[i]->isa, isa) == 0)
            return found[i];
    return NULL;
}
