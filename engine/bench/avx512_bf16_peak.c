/* avx512_bf16_peak.c - products of bf16 pairs added up in fp32 (vdpbf16ps); see peak.h. Compiled for AVX-512 BF16:
 * nothing in it may run before kernels_select has checked the processor. */
#include <immintrin.h>

#include "engine/bench/peak.h"

#define CHAINS 16 /* of six cycles each, of which up to two start in a cycle */
#define LANES 16

static void multiply_add(float *out, uint64_t turns)
{
    const __m512bh pairs = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.37f), _mm512_set1_ps(-0.41f));
    __m512 x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = _mm512_set1_ps((float)c);
    for (uint64_t i = 0; i < turns; i++)
        for (int c = 0; c < CHAINS; c++)
            x[c] = _mm512_dpbf16_ps(x[c], pairs, pairs);
    for (int c = 1; c < CHAINS; c++)
        x[0] = _mm512_add_ps(x[0], x[c]);
    *out = _mm512_reduce_add_ps(x[0]);
}

extern const struct peak_loop peak_loop_bf16;
const struct peak_loop peak_loop_bf16 = {multiply_add, 2.0 * 2 * LANES *CHAINS};
