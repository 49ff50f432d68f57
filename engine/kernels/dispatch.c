/* dispatch.c - which build of the element-wise kernels runs on this machine. */
#include <string.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include "engine/kernels/kernels.h"

extern const struct kernels kernels_baseline;
#ifdef __x86_64__
extern const struct kernels kernels_avx2, kernels_avx2_int8, kernels_avx512, kernels_avx512_vnni, kernels_avx512_bf16;
#elif defined __aarch64__
extern const struct kernels kernels_neon, kernels_neon_dotprod, kernels_neon_bf16;
#endif

enum { TABLES_MAX = 6 }; /* with the NULL that ends the list */

/* Best first. The features checked are those that the Makefile compiles each table with, no more. */
static void runnable(const struct kernels *found[TABLES_MAX])
{
    size_t n = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef KERNELS_PLAIN /* ThreadSanitizer's build supports no registers that wide */
    if (avx512)
        found[n++] = &kernels_avx512;
    if (avx2)
        found[n++] = &kernels_avx2;
#else
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (vnni && __builtin_cpu_supports("avx512bf16"))
        found[n++] = &kernels_avx512_bf16;
    if (vnni)
        found[n++] = &kernels_avx512_vnni;
    if (avx512)
        found[n++] = &kernels_avx512;
    if (avx2)
        found[n++] = &kernels_avx2_int8;
#endif
#elif defined __aarch64__
#ifndef KERNELS_PLAIN
    const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    if (dotprod && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0)
        found[n++] = &kernels_neon_bf16;
    if (dotprod)
        found[n++] = &kernels_neon_dotprod;
#endif
    found[n++] = &kernels_neon;
#endif
    found[n++] = &kernels_baseline;
    found[n] = NULL;
}

const struct kernels *kernels_select(const char *isa)
{
    const struct kernels *found[TABLES_MAX];
    runnable(found);
    if (isa == NULL)
        return found[0];
    for (size_t i = 0; found[i] != NULL; i++)
        if (strcmp(found[i]->isa, isa) == 0)
            return found[i];
    return NULL;
}
