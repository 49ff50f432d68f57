/* stream_state.h - the fixed-size states of all streams of a model, in slots, and how one of them is moved: by a walk
 * over the parts of it that are in use, in an order that the mixer knows. Engine thread only. */
#ifndef ENGINE_PASS_STREAM_STATE_H
#define ENGINE_PASS_STREAM_STATE_H

#include <stdbool.h>

#include "engine/core/workspace.h"

struct stream_states {
    float *memory;      /* [streams][depth][floats of a layer] */
    uint32_t *position; /* [streams] bytes fed so far */
    size_t stream_floats;
    uint32_t count;
};

void stream_states_plan(struct stream_states *s, struct workspace *w, uint32_t streams, size_t stream_floats);
/* A slot's state; what it holds means nothing while its position is 0 (mixers start anew there). */
float *stream_states_at(const struct stream_states *s, uint32_t stream);

/* What a walk does with the floats of a state that are in use. */
enum state_walk_kind {
    STATE_COUNT,
    STATE_SAVE,    /* to `out`, floats side by side */
    STATE_CHECK,   /* are the numbers of `in` finite? */
    STATE_RESTORE, /* from `in` */
    STATE_COPY,    /* into the same place of the state `to` */
};

struct state_walk {
    enum state_walk_kind kind;
    uint8_t *out;      /* need not be aligned */
    const uint8_t *in; /* the same */
    const float *from; /* a copy's states */
    float *to;
    size_t floats;        /* walked over so far */
    bool is_not_a_number; /* checked: one is infinite or NaN */
};

/* Walk over the next floats of a state; `half`: each is a pair of bf16. */
void state_walk_over(struct state_walk *w, float *state, size_t floats, bool half);

#endif
