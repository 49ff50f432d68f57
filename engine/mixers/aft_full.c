/* aft_full.c - AFT-full (Zhai et al. 2021, eq. 2): a bias for each pair of positions. A stream's state is all of its
 * keys and values up to T: as with attention, the longer the text is, the more a step costs. */
#include "engine/mixers/aft.h"

const struct mixer mixer_aft_full = {
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
