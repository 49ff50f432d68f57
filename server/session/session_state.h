/* session_state.h - where a text is between two requests, as sessions keep it: constant and reference-counted, so that
 * forks share one and every holder may read it for as long as it likes. Any thread. */
#ifndef SERVER_SESSION_SESSION_STATE_H
#define SERVER_SESSION_SESSION_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/operation/stream_snapshot.h"

struct session_state {
    atomic_uint references;
    struct stream_snapshot snapshot;
    bool is_read;         /* from a store, and may have forks of any number */
    uint32_t next_sample; /* otherwise that of the next fork from here; under the lock of the sessions */
};

/* Create it with one reference and the snapshot's memory, which it takes. NULL if out of memory: nothing was taken. */
struct session_state *session_state_create(const struct stream_snapshot *snapshot);
struct session_state *session_state_reference(struct session_state *state); /* returns `state` */
void session_state_release(struct session_state *state);                    /* NULL is a no-op */

#endif
