/* peak.c - which of the loops run on this machine; see peak.h. */
#include "engine/bench/peak.h"

#include <string.h>

#include "engine/kernels/kernels.h"

extern const struct peak peak_baseline;
#ifdef __x86_64__
extern const struct peak peak_avx2, peak_avx512;
#endif
/* ThreadSanitizer's build supports neither registers that wide nor code compiled for them. */
#if (defined __x86_64__ || defined __aarch64__) && !defined KERNELS_PLAIN
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

/* The kernels' names begin with the set that their plain C is compiled for: "avx512vnni". On arm64 it is the baseline,
 * whatever the products are. */
const struct peak *peak_select(const char *isa)
{
    const struct kernels *kn = kernels_select(isa); /* which checks the processor */
    for (size_t i = 0; kn != NULL && i < sizeof peaks / sizeof peaks[0]; i++)
        if (strncmp(peaks[i]->isa, kn->isa, strlen(peaks[i]->isa)) == 0)
            return peaks[i];
    return kn != NULL ? &peak_baseline : NULL;
}

#ifdef HAS_INTRINSICS
/* Do the kernels' products have the instruction? avx2 has none for bytes, though its int8 product pays. */
static int multiplies(const char *isa, enum precision precision)
{
    const struct kernels *kn = kernels_select(isa);
    return kn != NULL && kn->pays[precision] && strcmp(kn->isa, "avx2") != 0;
}

const struct peak_loop *peak_bf16(const char *isa)
{
    return multiplies(isa, PRECISION_BF16) ? &peak_loop_bf16 : NULL;
}

const struct peak_loop *peak_int8(const char *isa)
{
    return multiplies(isa, PRECISION_INT8) ? &peak_loop_int8 : NULL;
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
