/* stream_slot.h - what one stream is fed: the elements that a request gave, then those drawn, in a window of as many as
 * the model's context. Engine thread only; nothing here allocates. */
#ifndef SERVER_STREAM_SLOT_H
#define SERVER_STREAM_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/sampler.h"

struct generate_input;
struct job;
struct stream_snapshot;

/* What the slots of a model have in common. */
struct stream_model {
    struct engine *engine;
    uint32_t context;     /* elements that a stream takes between two resets, or ENGINE_CONTEXT_UNLIMITED */
    uint32_t window_size; /* the context, or where there is none the piece of a request that is taken at once */
    bool starts;          /* a start embedding stands in the place of window[0] */
};

/* Invariant: window[0 .. fed) is what the state was made of since the last reset (of a stream without an end, the
 * latest part of that), window[fed .. length) is still to be fed. */
struct stream_slot {
    uint32_t index;  /* the engine's stream */
    struct job *job; /* NULL: free */
    uint32_t sample; /* of the job's */
    struct sampler sampler;
    uint8_t *window; /* [window_size] */
    uint32_t fed, length;
    const uint8_t *given; /* [given_count] of the request: those before `at` have been in the window */
    size_t given_count, at;
    size_t scored; /* of a text or picture to score: logits used so far */
    uint32_t generated;
    uint8_t drawn;     /* the latest element */
    bool is_fine;      /* the pass's logits are finite */
    uint64_t drawn_ns; /* when the latest element was drawn */
};

/* How many bytes at the end of a prompt are fed. */
size_t stream_slot_kept(const struct stream_model *m, const struct generate_input *in);

/* Begin a sample of a job from a reset state; index and window are set. */
void stream_slot_begin(const struct stream_model *m, struct stream_slot *s, struct job *j, uint32_t sample);

/* All of the window is fed, but not all that was given: the next of it, behind what the state holds. Only a stream
 * without an end comes to this, and one to score. */
void stream_slot_go_on(const struct stream_model *m, struct stream_slot *s);

/* Have the element just drawn fed next. False where the context is full and must not `shift`. */
bool stream_slot_push(const struct stream_model *m, struct stream_slot *s, uint8_t element, bool shift);

/* Take the log2 probabilities out of a part's logits [count, 256] and go on. True when all elements have theirs. */
bool stream_slot_score(const struct stream_model *m, struct stream_slot *s, const float *logits, uint32_t count);

/* Can a slot of this engine go on from a snapshot that came from outside? Any thread. Errors: ERR_ARGUMENT (param
 * "state"). */
enum status stream_slot_check_snapshot(const struct stream_snapshot *s, const struct engine *e, struct error *err);

#endif
