/* stops.h - stop strings, at which a generated text ends. They are matched on the raw bytes by the engine thread, one
 * byte at a time; the HTTP thread that answers turns what they let through into UTF-8. No allocation, no locks: a value
 * belongs to one thread at a time. */
#ifndef SERVER_OPERATION_STOPS_H
#define SERVER_OPERATION_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"

struct stop_set {
    uint32_t count;
    uint8_t lengths[GENERATE_STOPS_MAX]; /* 1 .. GENERATE_STOP_BYTES_MAX each */
    uint8_t bytes[GENERATE_STOPS_MAX][GENERATE_STOP_BYTES_MAX];
};

/* False, and nothing added, if the set is full or the length is 0 or too long. */
bool stop_set_add(struct stop_set *s, const void *bytes, size_t size);

/* Zeroed but for its stops. Invariant between calls: `held` is the longest suffix of what was fed that a stop string
 * begins with, and is not a whole stop string. So no more is withheld than may still turn out to belong to one. If the
 * stream ends without one, it was text after all. */
struct stop_matcher {
    const struct stop_set *stops; /* borrowed */
    uint32_t held_bytes;
    uint8_t held[GENERATE_STOP_BYTES_MAX];
};

/* Feed the next byte. *text_bytes: so many of those held, this one included, now certainly are text, the oldest. True
 * when a stop string is complete: no byte of it is text, and the matcher holds nothing more. If several end here, the
 * longest counts, because it began first. */
bool stop_matcher_feed(struct stop_matcher *m, uint8_t byte, size_t *text_bytes);

#endif
