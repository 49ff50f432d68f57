/* stream_window.h - the window of one stream: the elements (bytes, sub-pixels) that the engine's state was computed
 * from and those to be fed next, as many as the model's context has. One thread at a time: the engine's, or that of a
 * program with an engine of its own. Nothing here allocates. */
#ifndef SERVER_OPERATION_STREAM_WINDOW_H
#define SERVER_OPERATION_STREAM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

struct stream_snapshot;

/* What the streams of a model have in common. */
struct stream_model {
    struct engine *engine;
    uint32_t context;     /* elements that a stream takes between two resets, or ENGINE_CONTEXT_UNLIMITED */
    uint32_t window_size; /* the context or, if unlimited, how much of a request is taken at once */
    bool starts;          /* a start embedding takes the place of elements[0] */
};

/* `window_size`: the context in the model's config. */
struct stream_model stream_model_of(struct engine *e, uint32_t window_size);
bool stream_model_is_limited(const struct stream_model *m);
/* How many elements a stream can still be fed at a position, for a model with a limited context; at 0 it has not
 * begun. */
uint32_t stream_model_room(const struct stream_model *m, uint32_t position);

/* A window that is full and shifts begins again with the last half of its elements. So that a stream need not stand
 * still while those are fed, they may be fed ahead, as they become known, to a second stream of the engine, which then
 * takes the place of the first; whatever was not fed ahead is to be fed after the shift.
 *
 * Invariant: elements[0 .. fed) is what the state was computed from since the last reset (the latest part of it if the
 * context is unlimited), elements[fed .. length) is still to be fed. */
struct stream_window {
    const struct stream_model *model;
    uint32_t stream;   /* the engine's */
    uint8_t *elements; /* [model->window_size] */
    uint32_t fed, length;
    uint32_t ahead;     /* the engine's second; unused if nothing is fed ahead */
    uint32_t ahead_fed; /* of the elements that the window will begin with: so many are in that one's state */
};

/* What is left to feed ahead of the next shift. */
struct stream_ahead {
    uint32_t left;  /* elements; 0: nothing, or there is no room for more than what stands for the start */
    uint32_t known; /* of these, by now */
    uint32_t
        pushes; /* that the shift comes with, >= 1; if each pass feeds one element and pushes one, as many passes */
};

/* Start over: reset the engine's state, and put the start into the window if there is one. */
void stream_window_reset(struct stream_window *w);
/* All of the window is fed: make room for what follows the state. */
void stream_window_clear(struct stream_window *w);
/* Append as many of `elements` [count] as there is room for; returns how many. */
size_t stream_window_fill(struct stream_window *w, const uint8_t *elements, size_t count);

/* Append an element to be fed next. If the context is full, with `shift` continue from the last half of it, whose last
 * element this will be; without, return false. */
bool stream_window_push(struct stream_window *w, uint8_t element, bool shift);

/* Of a model with a limited context. */
struct stream_ahead stream_window_ahead(const struct stream_window *w);
/* A part for the next pass, which feeds the next `count` >= 1 of those that are known. */
struct engine_part stream_window_feed_ahead(struct stream_window *w, uint32_t count);

/* Continue from a snapshot, with `given` elements to be fed next. If both do not fit into the context, start over with
 * the last half of it, as a shift does. Returns how many of those given are left out, from the first on. */
size_t stream_window_restore(struct stream_window *w, const struct stream_snapshot *from, size_t given);
/* Save the state of the stream, without its sampler; `last`: the element to be fed next if the window has none. `to`
 * has room for it. */
void stream_window_save(const struct stream_window *w, uint8_t last, struct stream_snapshot *to);

#endif
