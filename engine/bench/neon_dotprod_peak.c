/* neon_dotprod_peak.c - products of four signed bytes each added up in 32 bits (sdot); see peak.h. Compiled for
 * FEAT_DotProd: nothing in it may run before kernels_select has checked the processor. */
#include <arm_neon.h>

#include "engine/bench/peak.h"

#define CHAINS 16 /* of up to four cycles each, of which up to four start in a cycle */
#define LANES 4

static void multiply_add(float *out, uint64_t turns)
{
    const int8x16_t bytes = vreinterpretq_s8_s32(vdupq_n_s32(0x3b1df50d));
    int32x4_t x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = vdupq_n_s32(c);
    for (uint64_t i = 0; i < turns; i++) /* the sums wrap, as the instruction does */
        for (int c = 0; c < CHAINS; c++)
            x[c] = vdotq_s32(x[c], bytes, bytes);
    for (int c = 1; c < CHAINS; c++)
        x[0] = veorq_s32(x[0], x[c]);
    *out = (float)vgetq_lane_s32(x[0], 0); /* all lanes are equal */
}

extern const struct peak_loop peak_loop_int8;
const struct peak_loop peak_loop_int8 = {multiply_add, 2.0 * 4 * LANES *CHAINS};
