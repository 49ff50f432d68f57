/* stream_ahead.h - what streams feed ahead of the ends of their contexts (stream_window.h), so that none stands still
 * there, however many get there at once. Half a context of elements is fed beside the other half, which is a row more
 * for each row that a stream feeds of its own; after a long prompt there is less time for it, and it takes more.
 *
 * Rows of one stream that lie in one pass cost half of what they cost one by one, so that streams take turns with some
 * at a time. As a stream comes near the end, its turns come sooner and have fewer, and the pass in which it shifts has
 * fed all but the element drawn last. All of that only takes time off the shift: what is not fed ahead is fed then. */
#ifndef SERVER_OPERATION_STREAM_AHEAD_H
#define SERVER_OPERATION_STREAM_AHEAD_H

#include <stdint.h>

#include "engine/engine.h"

struct stream_slots;

/* The lane's next pass feeds taken[rank] rows of each stream. Write to parts [streams_max] what it is to feed ahead,
 * of those that have one; returns how many parts. Their rows are no more than two for each of these streams or, where
 * there are few, than prompts may have. Engine thread only. */
uint32_t stream_ahead_plan(struct stream_slots *p, const uint32_t *taken, uint32_t prompt_rows_max,
                           struct engine_part *parts);

#endif
