/* stream_state.c - see stream_state.h. */
#include "engine/stream_state.h"

#include <assert.h>

void stream_states_plan(struct stream_states *s, struct workspace *w, uint32_t streams, size_t stream_floats)
{
    s->count = streams;
    s->stream_floats = stream_floats;
    workspace_note(w, &s->memory, (uint64_t)streams * stream_floats, sizeof *s->memory);
    workspace_note(w, &s->position, streams, sizeof *s->position);
}

float *stream_states_at(const struct stream_states *s, uint32_t stream)
{
    assert(stream < s->count);
    return s->memory + stream * s->stream_floats;
}
