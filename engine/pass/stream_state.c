/* stream_state.c - see stream_state.h. */
#include "engine/pass/stream_state.h"

#include <assert.h>
#include <string.h>

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

/* Is a number, or are both of a pair of bf16, finite: is no exponent all ones? */
static bool is_finite(uint32_t bits, bool half)
{
    const uint32_t upper = 0x7F800000u, lower = upper >> 16;
    return (bits & upper) != upper && (!half || (bits & lower) != lower);
}

void state_walk_over(struct state_walk *w, float *state, size_t floats, bool half)
{
    const size_t at = w->floats * sizeof *state;
    w->floats += floats;
    if (w->kind == STATE_SAVE) {
        memcpy(w->out + at, state, floats * sizeof *state);
    } else if (w->kind == STATE_COPY) {
        memcpy(w->to + (state - w->from), state, floats * sizeof *state);
    } else if (w->kind == STATE_RESTORE) {
        memcpy(state, w->in + at, floats * sizeof *state);
    } else if (w->kind == STATE_CHECK) {
        for (size_t i = 0; i < floats; i++) {
            uint32_t bits;
            memcpy(&bits, w->in + at + i * sizeof bits, sizeof bits);
            w->is_not_a_number |= !is_finite(bits, half);
        }
    }
}
