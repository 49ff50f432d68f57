/* dispatch.c - which build of the element-wise kernels runs on this machine. */
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined __aarch64__
#include <sys/auxv.h>
#endif

#include "engine/kernels/kernels.h"

extern const struct kernels kernels_baseline;
#ifdef __x86_64__
extern const struct kernels kernels_avx2, kernels_avx2_int8, kernels_avx2_vnni, kernels_avx512, kernels_avx512_vnni,
    kernels_avx512_bf16, kernels_avx512_amx;
#elif defined __aarch64__
extern const struct kernels kernels_neon, kernels_neon_dotprod, kernels_neon_bf16;
#endif

/* A table of this build, and whether this processor runs it. */
struct table {
    const struct kernels *kernels;
    bool runs;
};

#if defined __x86_64__ && !defined KERNELS_PLAIN
/* AVX-VNNI, for which not every compiler has a name yet. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1U << 4) != 0;
}

/* Has the processor tiles, for bf16 and int8, and does Linux, which saves them with a thread's registers for a process
 * that has asked, let us use them? */
static bool may_use_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 }; /* of asm/prctl.h and the manuals of Intel */
    const unsigned wanted = 1U << 22 | 1U << 24 | 1U << 25;         /* amx-bf16, amx-tile, amx-int8 */
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}
#endif

/* Best first; returns how many there are. The features checked are those that the Makefile compiles each table with,
 * and that its assembly uses, no more. */
static size_t list_tables(struct table found[KERNELS_TABLES_MAX])
{
    size_t n = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#ifdef KERNELS_PLAIN /* ThreadSanitizer's build supports no registers that wide */
    found[n++] = (struct table){&kernels_avx512, avx512};
    found[n++] = (struct table){&kernels_avx2, avx2};
#else
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
    found[n++] = (struct table){&kernels_avx512_amx, bf16 && may_use_tiles()};
    const bool intel = __builtin_cpu_is("intel"); /* whose vdpbf16ps is slower than to widen pairs for two FMAs */
    found[n + intel] = (struct table){&kernels_avx512_bf16, bf16};
    found[n + !intel] = (struct table){&kernels_avx512_vnni, vnni};
    n += 2;
    found[n++] = (struct table){&kernels_avx512, avx512};
    found[n++] = (struct table){&kernels_avx2_vnni, avx2 && has_avx_vnni()};
    found[n++] = (struct table){&kernels_avx2_int8, avx2};
#endif
#elif defined __aarch64__
#ifndef KERNELS_PLAIN
    const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
    found[n++] = (struct table){&kernels_neon_bf16, dotprod && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0};
    found[n++] = (struct table){&kernels_neon_dotprod, dotprod};
#endif
    found[n++] = (struct table){&kernels_neon, true};
#endif
    found[n++] = (struct table){&kernels_baseline, true};
    return n;
}

void kernels_list(const struct kernels *ret[KERNELS_TABLES_MAX + 1])
{
    struct table found[KERNELS_TABLES_MAX];
    const size_t n = list_tables(found);
    for (size_t i = 0; i < n; i++)
        ret[i] = found[i].kernels;
    ret[n] = NULL;
}

const struct kernels *kernels_select(const char *isa)
{
    struct table found[KERNELS_TABLES_MAX];
    const size_t n = list_tables(found);
    for (size_t i = 0; i < n; i++)
        if (found[i].runs && (isa == NULL || strcmp(found[i].kernels->isa, isa) == 0))
            return found[i].kernels;
    return NULL;
}
