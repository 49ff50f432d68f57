/* mixer_table.c - the mixers of weights/mixers.h, by what a model asks for, as one instruction set has them. */
#include "engine/kernels/simd.h"
#include "engine/pass/mixer.h"

#define X(constant, name, ...) extern const struct mixer KERNEL(mixer_##name);
MIXERS(X)
#undef X

const struct mixer *const KERNEL(mixer_table)[MIXER_COUNT] = {
#define X(constant, name, ...) [MIXER_##constant] = &KERNEL(mixer_##name),
    MIXERS(X)
#undef X
};
