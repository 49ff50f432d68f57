/* avx512_vnni_peak.c - products of four unsigned and four signed bytes added up in 32 bits (vpdpbusd); see peak.h.
 * Compiled for AVX-512 VNNI: nothing in it may run before kernels_select has checked the processor. */
#include <immintrin.h>

#include "engine/bench/peak.h"

#define CHAINS 16 /* of four or five cycles each, of which up to two start in a cycle */
#define LANES 16

static void multiply_add(float *out, uint64_t turns)
{
    const __m512i unsigned_bytes = _mm512_set1_epi32(0x3b1d2507), signed_bytes = _mm512_set1_epi32((int)0xf3150bed);
    __m512i x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = _mm512_set1_epi32(c);
    for (uint64_t i = 0; i < turns; i++) /* the sums wrap, as the instruction does */
        for (int c = 0; c < CHAINS; c++)
            x[c] = _mm512_dpbusd_epi32(x[c], unsigned_bytes, signed_bytes);
    for (int c = 1; c < CHAINS; c++)
        x[0] = _mm512_xor_si512(x[0], x[c]);
    *out = (float)_mm512_cvtsi512_si32(x[0]); /* all lanes are equal */
}

extern const struct peak_loop peak_loop_int8;
const struct peak_loop peak_loop_int8 = {multiply_add, 2.0 * 4 * LANES *CHAINS};
