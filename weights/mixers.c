/* mixers.c - see mixers.h. */
#include "weights/mixers.h"

#include <assert.h>

static const struct mixer_facts facts[] = {
#define X(constant, name, text, ...) [MIXER_##constant] = {.word = (text), __VA_ARGS__},
    MIXERS(X)
#undef X
};

const struct mixer_facts *mixer_facts(enum mixer_type type)
{
    assert(type < MIXER_COUNT);
    return &facts[type];
}

bool mixer_has(enum mixer_type type, enum mixer_option option)
{
    return (mixer_facts(type)->options & (unsigned)option) != 0;
}

const char *mixer_type_name(enum mixer_type type)
{
    return mixer_facts(type)->word;
}
