/* mixer_table.h - the mixers of weights/mixers.h by what a model asks for. Any thread; no state. */
#ifndef ENGINE_MIXERS_MIXER_TABLE_H
#define ENGINE_MIXERS_MIXER_TABLE_H

#include "engine/block/mixer.h"

/* The mixer of a model; NULL where it lacks the form that the task needs, causal or parallel. */
const struct mixer *mixer_find(const struct model_config *c);

#endif
