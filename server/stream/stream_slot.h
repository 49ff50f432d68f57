/* stream_slot.h - a place in a lane of streams, and what the sample that has it is fed: the elements that a request
 * gave, then those that its kind draws (stream_kind.h), by the stream's window. Engine thread only; nothing here
 * allocates. */
#ifndef SERVER_STREAM_STREAM_SLOT_H
#define SERVER_STREAM_STREAM_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/stream/stream_window.h"

struct job;
struct stream_snapshot;

struct stream_slot {
    struct stream_window window;
    struct job *job; /* NULL: free */
    uint32_t sample; /* of the job's */
    bool is_fine;    /* the pass's logits are finite */

    /* What the kind sets when the sample begins; zeroed before. */
    const uint8_t *given; /* [given_count] of the request: those before `at` are in the window, or are not fed */
    size_t given_count, at;
    bool every;              /* it looks at the logits behind every element given, not only behind the last */
    bool chooses;            /* it draws by the logits behind the last */
    uint32_t prompt;         /* samples of a job with one prompt have the same number */
    const char *state_owner; /* the prompt may begin with states that prompts of this owner left; NULL: with none */

    const float *choice; /* logits of the pass that the next element is drawn from; NULL: it draws none */
    uint32_t drawn;      /* elements, so far */

    /* Samples with one prompt feed it once: it is fed by the first that has a slot, and while it is, the others wait in
     * theirs for a copy of its state. */
    bool follows; /* it waits for the slot `leader` */
    uint32_t leader;
    uint32_t followers; /* slots that wait for this one */
};

/* Give it to a sample of a job, with the window as it is. */
void stream_slot_take(struct stream_slot *s, struct job *j, uint32_t sample);

/* Feed what is given from `at` on: behind nothing at all; or, where all of the window is fed, behind what the state
 * holds. */
void stream_slot_begin(struct stream_slot *s);
void stream_slot_go_on(struct stream_slot *s);
/* The same behind a snapshot, from as far on as there is room for. */
void stream_slot_resume(struct stream_slot *s, const struct stream_snapshot *from);

/* Of what the slot, which has just begun, is given from `from` on the first `size` are fed already: `state` is what the
 * engine saved then. Something is left to feed. */
void stream_slot_skip(struct stream_slot *s, size_t from, size_t size, const uint8_t *state);

/* Is `leader` feeding what the sample of `s`, which has just begun, would feed as well? Then have that wait for it. */
bool stream_slot_follow(struct stream_slot *s, struct stream_slot *leader);
/* All that `leader` was given is fed, the `fed` elements of this pass included: the follower `s` has fed it, too. */
void stream_slot_fork(struct stream_slot *s, struct stream_slot *leader, uint32_t fed);

#endif
