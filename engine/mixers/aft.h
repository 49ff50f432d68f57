/* aft.h - the causal, recurrent form of every AFT mixer (aft_streams.c), and what else aft.c and aft_conv.c share. The
 * functions are as in struct mixer (mixer.h). */
#ifndef ENGINE_MIXERS_AFT_H
#define ENGINE_MIXERS_AFT_H

#include <math.h>

#include "engine/block/mixer.h"

/* exp(w) - 1 of a packed bias: by how much a token counts more than without it. */
static inline float aft_surplus(const struct block *b, float packed)
{
    return b->exact ? expm1f(packed) : packed - 1.0f;
}

size_t aft_layer_floats(const struct engine_core *e);
uint64_t aft_step_macs(const struct engine_core *e, const struct block *b);
void aft_mix_streams(const struct engine_core *e, uint32_t layer, const struct activations *a,
                     const struct stream_pass *pass);
void aft_mix_parts(const struct engine_core *e, uint32_t layer, const struct activations *a,
                   const struct stream_pass *pass);
void aft_walk_state(const struct engine_core *e, uint32_t layer, float *state, uint32_t position, struct state_walk *w);

#endif
