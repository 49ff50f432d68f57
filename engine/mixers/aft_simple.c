/* aft_simple.c - AFT-simple (Zhai et al. 2021, eq. 5): no biases. A sequence has one weighted mean for all its tokens,
 * a stream two sums. */
#include "engine/mixers/aft.h"

const struct mixer mixer_aft_simple = {
    .plan = aft_plan,
    .layer_floats = aft_layer_floats,
    .mix_streams = aft_mix_streams,
    .mix_parts = aft_mix_parts,
    .walk_state = aft_walk_state,
    .plan_scratch = aft_plan_scratch,
    .mix_sequences = aft_mix_sequences,
    .macs = aft_macs,
};
