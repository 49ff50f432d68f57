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
#include "server/core/text.h"

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

/* How a text ended. */
struct generate_ending {
    const char *finish; /* a literal; NULL: it has not */
    json_int_t generated, dropped;
};

/* On standard error: of a prompt of `size` bytes the last `kept` are used; the context ended the text. */
void generate_tell_dropped(size_t size, size_t kept);
void generate_tell_end_of_context(uint64_t generated);
/* With --json: the text as a whole, and what /generate tells of it. Takes nothing. */
int generate_print_json(const struct generate_options *r, const struct text_output *o, const char *model, uint64_t seed,
                        size_t prompt, const struct generate_ending *end);

/* The text by a daemon, from the events of its stream. Where the connection breaks, it goes on. Returns the exit code,
 * and has printed why. */
int generate_by_daemon(const struct remote *remote, const struct generate_options *r, const uint8_t *prompt,
                       size_t size);

#endif
