/* peak.c - which of the loops run on this machine; see peak.h. */
#include "engine/kernels/peak.h"

#include <string.h>

#include "engine/kernels/kernels.h"

extern const struct peak peak_baseline;
#ifdef __x86_64__
extern const struct peak peak_avx2, peak_avx512;
#endif
/* ThreadSanitizer's build has neither registers that wide nor what is compiled for them. */
#if defined __x86_64__ && !defined KERNELS_PLAIN
#define HAS_INTRINSICS
extern const struct peak_loop peak_loop_bf16, peak_loop_int8;
#endif

static const struct peak *const peaks[] = {
    &peak_baseline,
#ifdef __x86_64__
    &peak_avx2,
    &peak_avx512,
#endif
};

/* The kernels' names begin with the set that their plain C is compiled for: "avx512vnni". */
const struct peak *peak_select(const char *isa)
{
    const struct kernels *kn = kernels_select(isa); /* which asks the processor */
    for (size_t i = 0; kn != NULL && i < sizeof peaks / sizeof peaks[0]; i++)
        if (strncmp(peaks[i]->isa, kn->isa, strlen(peaks[i]->isa)) == 0)
            return peaks[i];
    return NULL;
}

#ifdef HAS_INTRINSICS
static int is_one_of(const char *isa, const char *one, const char *other)
{
    const struct kernels *kn = kernels_select(isa);
    return kn != NULL && (strcmp(kn->isa, one) == 0 || strcmp(kn->isa, other) == 0);
}

const struct peak_loop *peak_bf16(const char *isa)
{
    return is_one_of(isa, "avx512bf16", "avx512bf16") ? &peak_loop_bf16 : NULL;
}

const struct peak_loop *peak_int8(const char *isa)
{
    return is_one_of(isa, "avx512vnni", "avx512bf16") ? &peak_loop_int8 : NULL;
}
#else
const struct peak_loop *peak_bf16(const char *isa)
{
    (void)isa;
    return NULL;
}

const struct peak_loop *peak_int8(const char *isa)
{
    (void)isa;
    return NULL;
}
#endif
