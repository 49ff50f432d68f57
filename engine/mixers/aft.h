/* aft.h - AFT (Zhai et al. 2021, eq. 2) with a bias for each pair of positions, or none: what aft-full, aft-local and
 * aft-simple share, which differ in the biases alone. The functions are as in struct mixer (mixer.h). */
#ifndef ENGINE_MIXERS_AFT_H
#define ENGINE_MIXERS_AFT_H

#include <math.h>

#include "engine/block/mixer.h"

/* exp(w) - 1 of a packed bias: by how much a token counts more than without it. */
static inline float aft_surplus(const struct block *b, float packed)
{
    return b->exact ? expm1f(packed) : packed - 1.0f;
}

void aft_plan(struct block *b, struct workspace *w, const struct engine_core *e, const struct block_weights *bw);
void aft_pack(struct block *b, const struct engine_core *e, const struct block_weights *bw);

struct engine_biases aft_biases_shape(const struct engine_core *e);
void aft_read_biases(const struct engine_core *e, uint32_t layer, uint32_t head, float *out);

/* Both forms. */
uint64_t aft_macs(const struct engine_core *e, const struct block *b, const struct sequence_pass *pass);

/* Parallel (aft.c). */
void aft_plan_scratch(struct mixer_scratch *s, struct workspace *w, const struct engine_core *e, uint64_t rows,
                      uint32_t tokens);
void aft_mix_sequences(const struct engine_core *e, uint32_t layer, const struct activations *a,
                       const struct mixer_scratch *s, const struct sequence_pass *pass);

/* Causal, recurrent (aft_streams.c), for aft-conv too. */
size_t aft_layer_floats(const struct engine_core *e);
uint64_t aft_step_macs(const struct engine_core *e, const struct block *b);
void aft_mix_streams(const struct engine_core *e, uint32_t layer, const struct activations *a,
                     const struct stream_pass *pass);
void aft_mix_parts(const struct engine_core *e, uint32_t layer, const struct activations *a,
                   const struct stream_pass *pass);
void aft_walk_state(const struct engine_core *e, uint32_t layer, float *state, uint32_t position, struct state_walk *w);

#endif
