/* mixer_table.c - the mixers of weights/mixers.h, by what a model asks for. */
#include "engine/block/mixer.h"

const struct mixer *const mixer_table[MIXER_COUNT] = {
#define X(constant, name, ...) [MIXER_##constant] = &mixer_##name,
    MIXERS(X)
#undef X
};
