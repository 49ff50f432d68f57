/* stream_slot.h - a place in a stream lane, and what the sample in it is fed: the elements of the request, then those
 * that its kind draws (stream_kind.h), through the stream's window. Engine thread only; nothing here allocates. */
#ifndef SERVER_OPERATION_STREAM_SLOT_H
#define SERVER_OPERATION_STREAM_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/operation/stream_window.h"

struct client_id;
struct job;
struct stream_snapshot;

struct stream_slot {
    struct stream_window window;
    uint32_t index;  /* among the lane's slots */
    struct job *job; /* NULL: free */
    uint32_t sample; /* which one of the job */
    bool is_fine;    /* the pass's logits are finite */

    /* What the kind sets when the sample begins; zeroed before. */
    const uint8_t *given; /* [given_count] of the request: those before `at` are in the window, or are not fed */
    size_t given_count, at;
    bool every;   /* it looks at the logits after every element given, not only after the last */
    bool chooses; /* it draws from the logits after the last */
    double *sums; /* as in struct engine_part, of all elements given; NULL: not wanted */
    uint32_t
        shifting_draws; /* its window shifts, and it draws at most so many elements; 0: its window does not shift */
    uint32_t prompt;    /* samples of a job with one prompt have the same number */
    const struct client_id
        *state_owner; /* the prompt may start from states that prompts of this owner left; NULL: from none */
    uint32_t *cached; /* grows by the elements given that are not fed, since the state after them is there; or NULL */

    /* What the pass gave it: the logits after each of the elements fed if it wants `every`, else only after the last. A
     * follower that has just got its leader's state has fed none itself. */
    const float *rows; /* [fed, 256], or [256]; NULL: none were wanted */
    uint32_t fed;      /* elements */
    float *choice;     /* of these, what the next element is drawn from, which followers get too; NULL: it draws none */

    uint32_t drawn; /* elements, so far */

    /* Samples with the same prompt feed it once: the first that has a slot feeds it, and meanwhile the others wait in
     * their slots for a copy of its state. */
    bool follows; /* it waits for the slot `leader` */
    uint32_t leader;
    uint32_t followers; /* slots that wait for this one */
};

/* Feed what is given from `at` on: from scratch or, once all of the window is fed, after what the state holds. */
void stream_slot_begin(struct stream_slot *s);
void stream_slot_go_on(struct stream_slot *s);
/* The same after a snapshot; what there is no room for is left out, from the beginning of what is given. */
void stream_slot_resume(struct stream_slot *s, const struct stream_snapshot *from);

/* The slot has just begun. Skip the first `size` elements of what it is given from `from` on: `state` is what the
 * engine saved after them. Something is left to feed. */
void stream_slot_skip(struct stream_slot *s, size_t from, size_t size, const uint8_t *state);

/* Is `leader` feeding what the sample of `s`, which has just begun, would feed too? If so, `s` waits for it. */
bool stream_slot_follow(struct stream_slot *s, struct stream_slot *leader);
/* All that `leader` was given is fed, including the `fed` elements of this pass: copy its state to the follower `s`. */
void stream_slot_fork(struct stream_slot *s, struct stream_slot *leader, uint32_t fed);

#endif
