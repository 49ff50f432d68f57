/* sampling.h - how what is generated is drawn: the options that verbs have in common. Single threaded. */
#ifndef SERVER_CLI_SAMPLING_H
#define SERVER_CLI_SAMPLING_H

#include "engine/sampler.h"
#include "server/cli/cli.h"

struct cli_sampling {
    double temperature, top_p, min_p;
    uint64_t top_k, seed; /* seed UINT64_MAX: not given */
};
#define CLI_SAMPLING_DEFAULT                                 \
    {                                                        \
        .temperature = 1.0, .top_p = 1.0, .seed = UINT64_MAX \
    }

/* Rows of a verb's options; `unit` is what the model draws. */
#define CLI_SAMPLING_OPTIONS(s, unit)                                                                                \
    {"temperature",                                                                                                  \
     CLI_NUMBER,                                                                                                     \
     &(s)->temperature,                                                                                              \
     0,                                                                                                              \
     SAMPLER_TEMPERATURE_MAX,                                                                                        \
     "X",                                                                                                            \
     "1",                                                                                                            \
     "randomness; 0 always takes the most likely " unit},                                                            \
        {"top-k",     CLI_UNSIGNED, &(s)->top_k, 0,                                                                  \
         BYTE_VALUES, "N",          "0",         "draw only from the N most likely " unit "s; 0 turns this off"},    \
        {"top-p", CLI_NUMBER, &(s)->top_p, 1e-9,                                                                     \
         1,       "X",        "1",         "draw from the most likely " unit "s that together reach probability X"}, \
        {"min-p", CLI_NUMBER, &(s)->min_p, 0,                                                                        \
         1,       "X",        "0",         "leave out " unit "s less likely than X times the most likely one"},      \
        {"seed", CLI_UNSIGNED, &(s)->seed, 0, (double)SEED_MAX, "N", "random", "equal seeds give equal results"},

/* Fill in *o, the rest as by default; a seed that was not given is drawn. Prints why not and returns CLI_FAILED. */
int cli_sampling_read(const struct cli_sampling *s, struct sampler_options *o);

#endif
