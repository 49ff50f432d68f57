/* kernels.h - the mixers' inner loops as each instruction set has them. */
#ifndef TESTS_ENGINE_MIXERS_KERNELS_H
#define TESTS_ENGINE_MIXERS_KERNELS_H

#include <string.h>

#define KERNELS_ISA baseline /* whose functions the headers declare; the others' are of the same types */
#include "engine/mixers/aft_kernels.h"
#include "engine/mixers/attention.h"
#include "tests/engine/kernels/tables.h"

#define MIXER_KERNELS(X)   \
    X(local_factored)      \
    X(local_factored_rows) \
    X(local_exact)         \
    X(aft_exact) X(conv_keys) X(conv_values) X(conv_sums) X(conv_finish) X(conv_exact) X(attend) X(softmax)

struct mixer_kernels {
#define X(name) __typeof__(name##_baseline) *(name);
    MIXER_KERNELS(X)
#undef X
};

#ifdef __x86_64__
#define X(name) extern __typeof__(name##_baseline) name##_avx2, name##_avx512;
MIXER_KERNELS(X)
#undef X
#endif

/* Of a table: the widest set that it is compiled for, whatever its products. */
static inline const struct mixer_kernels *mixer_kernels(const struct kernels *table)
{
#define X(name) name##_baseline,
    static const struct mixer_kernels baseline = {MIXER_KERNELS(X)};
#undef X
#ifdef __x86_64__
#define X(name) name##_avx2,
    static const struct mixer_kernels avx2 = {MIXER_KERNELS(X)};
#undef X
#define X(name) name##_avx512,
    static const struct mixer_kernels avx512 = {MIXER_KERNELS(X)};
#undef X
    if (strncmp(table->isa, "avx512", strlen("avx512")) == 0)
        return &avx512;
    if (strcmp(table->isa, "avx2") == 0)
        return &avx2;
#endif
    (void)table;
    return &baseline;
}

#endif
