/* stream_state.h - the fixed-size states of all streams of a model, in slots. Engine thread only. */
#ifndef ENGINE_STREAM_STATE_H
#define ENGINE_STREAM_STATE_H

#include "engine/workspace.h"

struct stream_states {
    float *memory;      /* [streams][depth][floats of a layer] */
    uint32_t *position; /* [streams] bytes fed so far */
    size_t stream_floats;
    uint32_t count;
};

void stream_states_plan(struct stream_states *s, struct workspace *w, uint32_t streams, size_t stream_floats);
/* A slot's state; what it holds means nothing while its position is 0 (mixers start anew there). */
float *stream_states_at(const struct stream_states *s, uint32_t stream);

#endif
