/* aft_local.c - AFT-local (Zhai et al. 2021, section 3.2): biases within a window; what is beyond it counts with w =
 * 0. */
#include "engine/mixers/aft.h"

const struct mixer mixer_aft_local = {
    .plan = aft_plan,
    .pack = aft_pack,
    .layer_floats = aft_layer_floats,
    .mix_streams = aft_mix_streams,
    .mix_parts = aft_mix_parts,
    .walk_state = aft_walk_state,
    .plan_scratch = aft_plan_scratch,
    .mix_sequences = aft_mix_sequences,
    .macs = aft_macs,
    .biases_shape = aft_biases_shape,
    .read_biases = aft_read_biases,
};
