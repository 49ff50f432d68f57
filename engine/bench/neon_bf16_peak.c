/* neon_bf16_peak.c - products of bf16 pairs added up in fp32 (bfdot); see peak.h. Compiled for FEAT_BF16: nothing in it
 * may run before kernels_select has checked the processor. */
#include <arm_neon.h>

#include "engine/bench/peak.h"

#define CHAINS 20 /* of up to five cycles each, of which up to four start in a cycle */
#define LANES 4

static void multiply_add(float *out, uint64_t turns)
{
    const bfloat16x8_t pairs = vreinterpretq_bf16_u32(vdupq_n_u32(0x3ebdbed2)); /* 0.37 and -0.41 */
    float32x4_t x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = vdupq_n_f32((float)c);
    for (uint64_t i = 0; i < turns; i++) /* the sums grow until a term is too small for them */
        for (int c = 0; c < CHAINS; c++)
            x[c] = vbfdotq_f32(x[c], pairs, pairs);
    for (int c = 1; c < CHAINS; c++)
        x[0] = vaddq_f32(x[0], x[c]);
    *out = vgetq_lane_f32(x[0], 0); /* all lanes are equal */
}

extern const struct peak_loop peak_loop_bf16;
const struct peak_loop peak_loop_bf16 = {multiply_add, 2.0 * 2 * LANES *CHAINS};
