/* mixer_table.c - see mixer_table.h. */
#include "engine/mixers/mixer_table.h"

static const struct mixer *const mixers[] = {
#define X(constant, name, ...) [MIXER_##constant] = &mixer_##name,
    MIXERS(X)
#undef X
};

const struct mixer *mixer_find(const struct model_config *c)
{
    const struct mixer *m = mixers[c->mixer.type];
    const bool has_form = model_config_causal(c) ? m->mix_streams != NULL : m->mix_sequences != NULL;
    return has_form ? m : NULL;
}
