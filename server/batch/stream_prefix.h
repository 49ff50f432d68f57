/* stream_prefix.h - what a prompt's slot has to do with the states that are kept of prompts' beginnings: it goes on
 * from the longest one that its own prompt begins with, and leaves states of what it feeds. Logits are the same bits.
 *
 * States are kept at multiples of a number of bytes, counted from the first byte that is fed. Prompts of texts alone
 * take part: those of slots with a state_owner, so none behind a state that a client gave, which says nothing of how it
 * came about.
 * Engine thread only, but for create and free. */
#ifndef SERVER_BATCH_STREAM_PREFIX_H
#define SERVER_BATCH_STREAM_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"

struct hosted_model;
struct stream_model;
struct stream_prefixes;
struct stream_slot;

/* For the streams_max streams of a model, which outlives it as `m` does. *ret is set only on OK, NULL where nothing is
 * kept; NULL goes with all that follows. Errors: ERR_NOMEM. */
enum status stream_prefixes_create(struct stream_prefixes **ret, const struct hosted_model *model,
                                   const struct stream_model *m, const struct settings *s, struct error *err);
void stream_prefixes_free(struct stream_prefixes *p);

/* A sample has begun, and perhaps follows another (stream_slot_follow): skip what is known. Returns how many elements
 * that are. */
size_t stream_prefix_begin(struct stream_prefixes *p, struct stream_slot *s);
/* How many of the next `take` elements the slot may be fed in one pass. */
uint32_t stream_prefix_take(const struct stream_prefixes *p, const struct stream_slot *s, uint32_t take);
/* Elements were fed, and none was pushed behind them yet. */
void stream_prefix_keep(struct stream_prefixes *p, struct stream_slot *s);

#endif
