/* stream_window.h - the window of one stream: the elements (bytes, sub-pixels) that the engine's state of it was made
 * of and those that are to be fed next, as many as the model's context. One thread at a time: the engine's, or that of
 * a program with an engine of its own. Nothing here allocates. */
#ifndef SERVER_STREAM_STREAM_WINDOW_H
#define SERVER_STREAM_STREAM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct stream_snapshot;

/* What the streams of a model have in common. */
struct stream_model {
    struct engine *engine;
    uint32_t context;     /* elements that a stream takes between two resets, or ENGINE_CONTEXT_UNLIMITED */
    uint32_t window_size; /* the context, or where there is none the piece of a request that is taken at once */
    bool starts;          /* a start embedding stands in the place of elements[0] */
};

/* `window_size`: the context that the model's config has. */
struct stream_model stream_model_of(struct engine *e, uint32_t window_size);
bool stream_model_is_limited(const struct stream_model *m);
/* Elements that a stream of a model whose context ends can still be fed at a position; at 0 it is yet to begin. */
uint32_t stream_model_room(const struct stream_model *m, uint32_t position);

/* Invariant: elements[0 .. fed) is what the state was made of since the last reset (of a stream without an end, the
 * latest part of that), elements[fed .. length) is still to be fed. */
struct stream_window {
    const struct stream_model *model;
    uint32_t stream;   /* the engine's */
    uint8_t *elements; /* [model->window_size] */
    uint32_t fed, length;
};

/* Begin anew: reset the engine's state, and put the start into the window where there is one. */
void stream_window_reset(struct stream_window *w);
/* All of it is fed: have room for what goes on behind the state. */
void stream_window_clear(struct stream_window *w);
/* Put what there is room for of `elements` [count] behind what the window has; returns how many that are. */
size_t stream_window_fill(struct stream_window *w, const uint8_t *elements, size_t count);

/* Have one more element fed next. Where the context is full, `shift`: go on from the last half of it, of which the
 * element will be the last; else false. */
bool stream_window_push(struct stream_window *w, uint8_t element, bool shift);

/* What is to be fed next are `given` elements behind a snapshot. Go on from it; where both do not fit into the context,
 * begin again with the last half of it, as a shift does. Returns how many of those given are left out: the first. */
size_t stream_window_restore(struct stream_window *w, const struct stream_snapshot *from, size_t given);
/* What the stream is now, but for its sampler; `last`: the element to be fed next where the window has none. `to` has
 * room for it. */
void stream_window_save(const struct stream_window *w, uint8_t last, struct stream_snapshot *to);

#endif
