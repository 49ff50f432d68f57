/* stream_slots.h - which samples of which jobs are in a lane of streams, and where: in a slot, where they run, or
 * parked, where they wait to go on. Parking a sample copies its window and the state of its stream, and what was fed
 * ahead (stream_window.h), out of the slot and back into whichever it is given next, so it goes on with the same bits.
 * A sample that waits for another's prompt (stream_slot.h) has nothing to copy yet: it begins anew. Who runs and who is
 * parked is stream_shares.h's to say. Engine thread only. All memory is allocated at the start; that for parking is
 * used, and so becomes resident, only when somebody is parked. */
#ifndef SERVER_OPERATION_STREAM_SLOTS_H
#define SERVER_OPERATION_STREAM_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/core/client_id.h"
#include "server/operation/stream_slot.h"

struct hosted_model;
struct job;
struct settings;
struct stream_prefixes;

/* What a client has in the lane: stream_shares.c's. */
struct stream_share {
    const struct client_id *client;
    uint32_t running, parked;
};

/* A job with samples in the lane, or yet to come. */
struct lane_job {
    struct job *job;          /* NULL: none */
    uint32_t samples;         /* of the job */
    uint32_t begun;           /* how many of them have been given a slot, in order */
    uint32_t running, parked; /* now */
    uint64_t number;          /* by when it was entered */
    uint32_t first;           /* the first of its client's jobs, which has its ... */
    struct stream_share share;
};

struct parked_sample {
    uint32_t owner;   /* among jobs */
    bool is_retained; /* its state is; else it begins anew */
    uint32_t position;
    uint32_t room; /* which of the rooms in memory */
    struct stream_slot slot;
};

struct stream_slots {
    struct hosted_model *model;
    struct stream_model shape;
    struct stream_prefixes *prefixes;
    uint32_t slots_max, running;
    uint32_t *order; /* [slots_max]: the first `running` are the taken slots, by when they were taken; then the free */
    struct stream_slot *slot; /* [slots_max] */
    uint32_t *owner;          /* [slots_max]: of a slot, among jobs */
    uint64_t *taken_ns;       /* [slots_max]: when a sample was last given the slot */
    uint32_t first_ahead;     /* the place that a pass begins at to feed ahead */
    uint8_t *windows;
    struct lane_job *jobs; /* [jobs_max] */
    uint32_t jobs_max, job_count;
    uint32_t unbegun;             /* jobs with samples that have not begun */
    struct parked_sample *parked; /* [parked_max]: the first parked_count, by when they were parked */
    uint32_t *rooms;              /* [parked_max]: the last parked_max - parked_count are free */
    uint32_t parked_max, parked_count;
    size_t room_bytes;
    uint8_t *memory; /* [parked_max, room_bytes], mapped; NULL: none */
    uint64_t numbers;
};

/* `model` outlives it. *ret is set only on OK; end with stream_slots_free. Errors: ERR_NOMEM. */
enum status stream_slots_create(struct stream_slots **ret, struct hosted_model *model, const struct settings *s,
                                struct error *err);
void stream_slots_free(struct stream_slots *p); /* NULL is a no-op; no job may be left */

/* A job that was popped comes in; there is room for it wherever a slot is or can be made free. Returns its index among
 * jobs. */
uint32_t stream_slots_enter(struct stream_slots *p, struct job *j);
/* Give a free slot to the next sample of a job that has not begun, or to a parked one, by its index. */
void stream_slots_begin(struct stream_slots *p, uint32_t owner, uint64_t now_ns);
void stream_slots_return(struct stream_slots *p, uint32_t parked, uint64_t now_ns);
/* Can the sample in a slot be parked: is there room, and does no other wait for its prompt? */
bool stream_slots_can_park(const struct stream_slots *p, uint32_t slot);
void stream_slots_park(struct stream_slots *p, uint32_t slot);
/* The sample of a slot has ended, or the whole job with all that it has. */
void stream_slots_leave(struct stream_slots *p, uint32_t slot);
void stream_slots_leave_all(struct stream_slots *p, uint32_t owner);

#endif
