/* sampling.c - see sampling.h. */
#include "server/cli/sampling.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int cli_sampling_read(const struct cli_sampling *s, struct sampler_options *o)
{
    uint64_t seed = s->seed;
    if (seed == UINT64_MAX && getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return cli_fail("cannot draw a random seed: %s; give one with --seed N", strerror(errno));
    sampler_options_default(o);
    o->seed = seed & SEED_MAX;
    o->temperature = (float)s->temperature;
    o->top_k = (uint32_t)s->top_k;
    o->top_p = (float)s->top_p;
    o->min_p = (float)s->min_p;
    return CLI_OK;
}
