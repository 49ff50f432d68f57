/* capacity_lane.h - one replica of a simulation: its queue, its streams or its batch, and what its engine does next.
 * Single threaded. It is server/batch/stream_lane.c and picture_lane.c without their work; what they do among several
 * clients, or for prompts that they have seen before, is left out. */
#ifndef SERVER_CLI_CAPACITY_LANE_H
#define SERVER_CLI_CAPACITY_LANE_H

#include "server/cli/capacity_plan.h"

/* A stream that runs, or a place in a batch. */
struct capacity_slot {
    uint32_t request, position, waiting; /* elements fed, and to be fed */
    uint32_t left;                       /* bytes to be drawn */
    uint32_t ahead;                      /* elements fed ahead of the end of the context */
    uint32_t taken;                      /* of `waiting`, by the pass that runs */
    bool begun;                          /* a byte was drawn */
    double woken_s;                      /* when its client was last told of bytes */
};

/* What a pass has given. The first event of a stream is its first byte. */
enum capacity_news { CAPACITY_EVENT, CAPACITY_FIRST, CAPACITY_LAST };

struct capacity_lane {
    struct capacity_slot *queue; /* [queue_max] ring of those that wait for a slot */
    uint32_t queue_at, queued;
    struct capacity_slot *slots; /* [slots_max] */
    uint32_t running, sharer;    /* slots that are taken; where a pass begins to share its rows for prompts */
    double cold_s, ended_s;      /* how much longer than usual the next passes take together; when the last one ended */
    double owed_s;      /* to wake those that it told of bytes, before its next pass; dropped where there is none */
    uint32_t in_flight; /* requests that the balancer has sent here and that are not answered */
    uint64_t passes, in_passes; /* so far, and streams, pictures or texts in them together */
};

/* False: out of memory. Clear it in any case. */
bool capacity_lane_init(struct capacity_lane *l, const struct capacity_plan *p);
void capacity_lane_clear(struct capacity_lane *l);
/* False: the queue is full. */
bool capacity_lane_push(struct capacity_lane *l, const struct capacity_plan *p, uint32_t request, uint8_t kind);
/* What a pass or batch takes alone, 0 where there is nothing to do, and how many times as long while all other cores
 * compute, too. */
struct capacity_pass {
    double seconds, crowding;
};
/* Begin the next one. */
struct capacity_pass capacity_lane_begin(struct capacity_lane *l, const struct capacity_plan *p, double now_s);
/* The pass has ended: `tell` is called with what it gave, and the slots that it ended are free. */
typedef void capacity_tell(void *arg, uint32_t request, enum capacity_news news);
void capacity_lane_end(struct capacity_lane *l, const struct capacity_plan *p, double now_s, capacity_tell *tell,
                       void *arg);

#endif
