/* session_state.c - see session_state.h. */
#include "server/session/session_state.h"

#include <stdlib.h>

struct session_state *session_state_create(const struct stream_snapshot *snapshot)
{
    struct session_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return NULL;
    atomic_init(&state->references, 1);
    state->snapshot = *snapshot;
    state->next_sample = snapshot->sampler.options.sample + 1;
    return state;
}

struct session_state *session_state_reference(struct session_state *state)
{
    (void)atomic_fetch_add_explicit(&state->references, 1, memory_order_relaxed);
    return state;
}

void session_state_release(struct session_state *state)
{
    if (state == NULL || atomic_fetch_sub_explicit(&state->references, 1, memory_order_acq_rel) != 1)
        return;
    stream_snapshot_clear(&state->snapshot);
    free(state);
}
