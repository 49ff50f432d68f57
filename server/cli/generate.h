/* generate.h - aft generate: what both of its halves have in common, one with an engine of its own (generate.c) and one
 * that asks a daemon (generate_remote.c). Single threaded. */
#ifndef SERVER_CLI_GENERATE_H
#define SERVER_CLI_GENERATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/sampler.h"
#include "server/cli/cli.h"
#include "server/operation/stops.h"

struct remote;
struct text_output;

struct generate_options {
    struct cli_engine with;           /* unless a daemon is asked */
    const char *prompt, *prompt_file; /* one of them, or both NULL */
    uint64_t max_tokens;
    uint64_t retries; /* of a daemon that is asked, without a byte more; UINT64_MAX: not given */
    struct sampler_options sampler;
    struct cli_texts stop_texts;
    struct stop_set stops;
    bool shift; /* else the text ends where the context does */
    bool echo;  /* the prompt comes before the text */
    bool json;
};

/* How a text ended, and whose it is. */
struct generate_ending {
    const char *finish; /* a literal; NULL: it has not */
    json_int_t generated, dropped, seed;
    char model[MODEL_NAME_MAX + 1];
};

/* Counts bytes of the text, where it does not get between them. */
struct cli_progress generate_progress(const struct generate_options *r);
/* The text has ended: tell on standard error of a prompt that is used in part, and of a context that is full; with
 * --json print the text as a whole, and what /generate tells of it. */
int generate_conclude(const struct generate_options *r, const struct text_output *o, size_t prompt,
                      const struct generate_ending *end);

/* The text by a daemon, from the events of its stream. Where the connection breaks, it goes on. Returns the exit code,
 * and has printed why. Takes the prompt. */
int generate_by_daemon(const struct remote *remote, const struct generate_options *r, uint8_t *prompt, size_t size);

#endif
