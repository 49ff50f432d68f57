/* stream_prefix.h - how the slot of a prompt uses the cache of states: it continues from the state of the longest
 * beginning of its prompt that has one, and leaves states of what it feeds. The logits are the same, bit for bit.
 *
 * States are kept at multiples of a number of bytes, counted from the first byte that is fed. Only prompts of texts
 * take part, those of slots with a state_owner: none that follows a state sent by a client, as such a state does not
 * say how it came about.
 * Engine thread only, except for create and free. */
#ifndef SERVER_OPERATION_STREAM_PREFIX_H
#define SERVER_OPERATION_STREAM_PREFIX_H

#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct hosted_model;
struct settings;
struct stream_model;
struct stream_prefixes;
struct stream_slot;

/* For the streams_max streams of a model; the model and `m` outlive it. *ret is set only on OK; it is NULL where
 * nothing is kept, and all functions below take NULL. Errors: ERR_NOMEM. */
enum status stream_prefixes_create(struct stream_prefixes **ret, const struct hosted_model *model,
                                   const struct stream_model *m, const struct settings *s, struct error *err);
void stream_prefixes_free(struct stream_prefixes *p);

/* A sample has begun, and perhaps follows another (stream_slot_follow): skip what is known. Returns how many elements
 * were skipped. */
size_t stream_prefix_begin(struct stream_prefixes *p, struct stream_slot *s);
/* The sample goes on in another slot: no more states of its prompt are kept. */
void stream_prefix_forget(struct stream_prefixes *p, const struct stream_slot *s);
/* How many of the next `take` elements the slot may be fed in one pass. */
uint32_t stream_prefix_take(const struct stream_prefixes *p, const struct stream_slot *s, uint32_t take);
/* Elements were fed, and none was pushed after them yet: keep the state if it is time to. */
void stream_prefix_keep(struct stream_prefixes *p, struct stream_slot *s);

#endif
