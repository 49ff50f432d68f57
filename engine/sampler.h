/* sampler.h - logits -> next byte, as weights/FORMAT.md orders it: logit_bias, repetition_penalty, presence_penalty and
 * frequency_penalty, allowed_bytes and utf8, temperature (0 is greedy and ends the list), top_k, top_p, min_p. Ties go
 * to the lower byte.
 * Randomness is Philox 4x32-10 (Salmon et al. 2011), counter based: the n-th draw of a stream is a function of (seed,
 * sample, n) alone, so text does not depend on what runs beside it. No allocation; one thread per struct. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "config/limits.h"

/* Ranges are checked by the caller; sampler_options_default gives the contract's defaults. */
struct sampler_options {
    uint64_t seed;
    uint32_t sample;          /* which sample of the request: its own random stream */
    float temperature;        /* >= 0 */
    uint32_t top_k;           /* 1 .. 256; 0: off */
    float top_p;              /* (0, 1] */
    float min_p;              /* [0, 1] */
    float repetition_penalty; /* > 0; 1: off */
    float presence_penalty;   /* -SAMPLER_OFFSET_MAX .. SAMPLER_OFFSET_MAX, off a byte that the history has */
    float frequency_penalty;  /* likewise, for each time that it has it */
    bool utf8;                /* no byte that no UTF-8 text could have next; a new character begins after bytes that
                                 are no such text, and where `allowed` has no byte to go on with */
    bool is_biased;           /* does any of `bias` differ from 0? */
    float bias[BYTE_VALUES];  /* -SAMPLER_BIAS_MAX .. SAMPLER_BIAS_MAX, added to each byte's logit */
    uint8_t allowed[BYTE_VALUES / 8]; /* byte b may be drawn: bit b % 8 of element b / 8; one at least */
};

struct sampler {
    struct sampler_options options;
    uint64_t draws;                   /* bytes drawn so far: the generator's counter */
    uint8_t history[SAMPLER_HISTORY]; /* ring of the latest bytes, prompt included */
    uint64_t seen;                    /* bytes ever put into history */
};

/* Seed 0. */
static inline void sampler_options_default(struct sampler_options *o)
{
    *o = (struct sampler_options){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
    memset(o->allowed, 0xff, sizeof o->allowed);
}
/* Is there a byte that may be drawn? With `utf8` that is one that a character begins with, and that an allowed byte can
 * follow. */
bool sampler_can_draw(const struct sampler_options *o);
static inline void sampler_init(struct sampler *s, const struct sampler_options *o)
{
    *s = (struct sampler){.options = *o};
}
/* Record a byte of the prompt. */
void sampler_accept(struct sampler *s, uint8_t byte);
/* Choose the next byte from logits [256], finite, and record it. Counts as a draw. */
uint8_t sampler_draw(struct sampler *s, const float *logits);

static inline bool sampler_allows(const struct sampler_options *o, size_t byte)
{
    return (o->allowed[byte / 8] >> byte % 8 & 1) != 0;
}

/* Philox 4x32-10: counter [4], key [2] -> out [4]. Published for its known-answer test. */
void sampler_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#endif
