/* generation.h - what holds of every request to generate that a parser let through, whatever its API. One thread. */
#ifndef TESTS_FUZZ_GENERATION_H
#define TESTS_FUZZ_GENERATION_H

#include "config/settings.h"
#include "server/operation/generate.h"

/* Abort unless every value is in its bounds and every prompt is there to be read. */
void fuzz_check_generation(const struct generate_input *in, const struct settings *s);

#endif
