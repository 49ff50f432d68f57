/* stream_slot.h - what one stream is fed: the elements that a request gave, then those drawn, in a window of as many as
 * the model's context. Engine thread only; nothing here allocates. */
#ifndef SERVER_BATCH_STREAM_SLOT_H
#define SERVER_BATCH_STREAM_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "server/batch/stream_prefix.h"
#include "server/coding/stream_coding.h"

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
    /* Samples with one prompt feed it once: it is fed by the first that has a slot, and while it is, the others wait in
     * theirs for a copy of its state. */
    bool follows; /* it waits for the slot `leader` */
    uint32_t leader;
    uint32_t followers; /* slots that wait for this one */
    struct sampler sampler;
    uint8_t *window; /* [window_size] */
    uint32_t fed, length;
    const uint8_t *given; /* [given_count] of the request: those before `at` have been in the window */
    size_t given_count, at;
    size_t scored;       /* of what is to be scored: logits used so far; of a prompt that is told: its bytes so far */
    bool tells;          /* logprobs of the prompt's bytes, of which some are still to come */
    const float *choice; /* logits of the pass that the next element is drawn from; NULL: it draws none */
    struct stream_coding coding; /* of a block to compress or to restore */
    struct stream_prefix prefix;
    uint32_t generated;
    uint8_t drawn;                              /* the latest element */
    float logprobs[1 + GENERATE_LIKELIEST_MAX]; /* of that, where the job tells them */
    uint8_t likeliest[GENERATE_LIKELIEST_MAX];
    bool is_fine;      /* the pass's logits are finite */
    uint64_t drawn_ns; /* when the latest element was drawn */
};

/* Elements that a stream of a model whose context ends can still be fed at a position; at 0 it is yet to begin. */
uint32_t stream_slot_room(const struct stream_model *m, uint32_t position);

/* Samples of a job, each of which takes a slot. */
uint32_t stream_slot_samples(const struct job *j);
/* Elements of what a job was given that are fed. */
size_t stream_slot_given(const struct stream_model *m, const struct job *j);
/* How many bytes at the end of a prompt of `size` bytes are fed. */
size_t stream_slot_kept(const struct stream_model *m, const struct generate_input *in, size_t size);

/* Begin a sample of a job from a reset state; index and window are set. */
void stream_slot_begin(const struct stream_model *m, struct stream_slot *s, struct job *j, uint32_t sample);

/* Of what the slot, which has just begun, is given from `from` on the first `size` are fed already: `state` is what the
 * engine saved then. Something is left to feed. */
void stream_slot_skip(const struct stream_model *m, struct stream_slot *s, size_t from, size_t size,
                      const uint8_t *state);

/* Is `leader` feeding what the sample of `s`, which has just begun, would feed as well? Then have that wait for it. */
bool stream_slot_follow(struct stream_slot *s, struct stream_slot *leader);

/* All that `leader` was given is fed, the `fed` elements of this pass included: the follower `s` has fed it, too. */
void stream_slot_fork(const struct stream_model *m, struct stream_slot *s, struct stream_slot *leader, uint32_t fed);

/* Does it draw elements? Of a prompt that is only looked at nothing is drawn. */
bool stream_slot_draws(const struct stream_slot *s);

/* Draw the next element from `choice`, with what is to be told of it. As stream_slot_tell. */
void stream_slot_draw(struct stream_slot *s);

/* All of the window is fed, but not all that was given: the next of it, behind what the state holds. Only a stream
 * without an end comes to this, and one to score. */
void stream_slot_go_on(const struct stream_model *m, struct stream_slot *s);

/* Have the element just drawn fed next. False where the context is full and must not `shift`. */
bool stream_slot_push(const struct stream_model *m, struct stream_slot *s, uint8_t element, bool shift);

/* Take the log2 probabilities out of a part's logits [count, 256] and go on. True when all elements have theirs. */
bool stream_slot_score(const struct stream_model *m, struct stream_slot *s, const float *logits, uint32_t count);

/* Where the job wants it, keep in job.saved what the stream is now that its last element is drawn and not fed, pushed
 * or not; of a job that draws none its prompt's last byte takes that one's place. Of a stream that is yet to draw its
 * first, or to be fed all before that byte, nothing is kept. */
void stream_slot_keep(const struct stream_model *m, const struct stream_slot *s);

/* Can a slot of this engine go on from a snapshot that came from outside? Any thread. Errors: ERR_ARGUMENT (param
 * "state"). */
enum status stream_slot_check_snapshot(const struct stream_snapshot *s, const struct engine *e, struct error *err);

/* Take what is to be told of the prompt's bytes out of a part's logits [count, 256]. Not the engine's thread alone:
 * slots of a pass may be looked at in parallel. */
void stream_slot_tell(struct stream_slot *s, const float *logits, uint32_t count);

#endif
