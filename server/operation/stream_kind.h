/* stream_kind.h - what a kind of job provides to run in the slots of a lane of streams: which elements each of its
 * samples is fed, and what becomes of the logits. One table for each kind, in its file; the lane
 * (server/operation/stream_lane.c) admits, feeds and ends samples, and knows none of the kinds.
 * Engine thread, except for `draw`; nothing here allocates. A pass calls two functions for each stream. */
#ifndef SERVER_OPERATION_STREAM_KIND_H
#define SERVER_OPERATION_STREAM_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/operation/stream_slot.h"
#include "server/request/job.h"

/* A pass of the lane that has its logits. */
struct stream_turn {
    uint64_t now_ns;
    uint32_t running;       /* streams of the lane */
    bool is_last;           /* the job's other samples have ended: with this one it does */
    enum job_finish finish; /* how the sample ended, if it has; `commit` sets it unless it is FINISH_STOP */
};

/* A sample after a pass: it goes on; it has ended; or its whole job has been ended. */
enum stream_after { STREAM_GOES_ON, STREAM_SAMPLE_OVER, STREAM_JOB_OVER };

struct stream_kind {
    /* A slot was taken for the sample: set what it is given, and begin to feed it. */
    void (*begin)(struct stream_slot *s);
    /* Draw from the slot's logits, all finite, before `commit`, or note what is wanted of them: called for several
     * slots at a time, for each on one thread. NULL: not needed. */
    void (*draw)(struct stream_slot *s);
    /* Elements were fed: use their logits, all finite, and set what to feed next, if anything. A slot that chooses or
     * sums gets here once nothing that it was given is left to feed. */
    enum stream_after (*commit)(struct stream_slot *s, struct stream_turn *turn);
    /* The job, which saves, ends in the middle, by its deadline or because it was cancelled, and its client is there to
     * read of it: save what there is to save. NULL: nothing. */
    void (*interrupt)(struct stream_slot *s);
};

#endif
