/* aft.h - the causal, recurrent form of every AFT mixer (aft_streams.c), and what else aft.c and aft_conv.c share. */
#ifndef ENGINE_MIXERS_AFT_H
#define ENGINE_MIXERS_AFT_H

#include <math.h>

#include "engine/mixers/aft_kernels.h"
#include "engine/pass/mixer.h"

/* What an AFT mixer keeps of a block. */
struct aft_block {
    bool exact; /* which kernels mix: see aft_kernels.h, "two ways" */
    /* aft-full, aft-local: exp(w), or w where exact: [T, T] or, causal, by lag [T, span]. NULL: no biases. */
    float *biases;
    /* aft-conv: the same for taps, in tiles of LANES columns, [columns / LANES, kh * kw, LANES], over heads and over
     * channels; exact, over heads alone, [kh * kw, keys]; causal, over channels alone and by lag, [K, channels]. */
    float *head_taps, *channel_taps;
    /* aft-conv: where few taps are not exp(0), which these are, for each LANES columns: a list for conv_sums (`few`),
     * [columns / LANES, few_stride]. NULL elsewhere. */
    uint32_t *head_few, *channel_few;
    size_t few_stride;
    /* Causal: elements that have biases of their own, including the current one. aft-conv: up to the last tap that is
     * not exp(0); positions beyond it are treated like those beyond the kernel. */
    uint32_t span;
};

/* Are n biases too large, or `global` missing, for the factored kernels? */
static inline bool aft_needs_exact(const float *bias, size_t n, bool global)
{
    float largest = 0.0f;
    for (size_t i = 0; i < n; i++)
        largest = fabsf(bias[i]) > largest ? fabsf(bias[i]) : largest; /* fmaxf would be a call */
    return !global || largest > BIAS_FACTORED;
}

/* exp(w) - 1 of a packed bias: by how much a token counts more than without it. */
static inline float aft_surplus(const struct aft_block *b, float packed)
{
    return b->exact ? expm1f(packed) : packed - 1.0f;
}

/* As in struct mixer (mixer.h). */
size_t KERNEL(aft_layer_floats)(const struct engine_core *e);
uint64_t KERNEL(aft_step_macs)(const struct engine_core *e, const struct block *b);
void KERNEL(aft_mix_streams)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                             const struct stream_pass *pass);
void KERNEL(aft_mix_parts)(const struct engine_core *e, uint32_t layer, const struct activations *a,
                           const struct stream_pass *pass);
void KERNEL(aft_walk_state)(const struct engine_core *e, uint32_t layer, float *state, uint32_t position,
                            struct state_walk *w);

/* What AFT's causal form provides, of a mixer. */
#define AFT_STREAMS                                                                   \
    .layer_floats = KERNEL(aft_layer_floats), .mix_streams = KERNEL(aft_mix_streams), \
    .mix_parts = KERNEL(aft_mix_parts), .walk_state = KERNEL(aft_walk_state)

enum { SCRATCH_E, SCRATCH_DEN, SCRATCH_EV, SCRATCH_NUM }; /* mixer_scratch.rows: of keys twice, of channels twice */

#endif
