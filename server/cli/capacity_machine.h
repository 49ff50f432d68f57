/* capacity_machine.h - what works on one machine of a simulation, and how fast: all that has something to do shares the
 * cores evenly, an engine with as many threads as it has. Single threaded. */
#ifndef SERVER_CLI_CAPACITY_MACHINE_H
#define SERVER_CLI_CAPACITY_MACHINE_H

#include "server/cli/capacity_plan.h"

/* What is to be done for a request outside of engines, in this order. Half of a request's cost comes before the engine,
 * the other half behind it. */
enum capacity_step {
    CAPACITY_TO_DAEMON,
    CAPACITY_TO_QUEUE,
    CAPACITY_EVENT_OUT,
    CAPACITY_FIRST_OUT,
    CAPACITY_LAST_OUT,
    CAPACITY_EVENT_SEEN,
    CAPACITY_FIRST_SEEN,
    CAPACITY_LAST_SEEN
};

struct capacity_work {
    double seconds;
    uint32_t request;
    enum capacity_step step;
};

/* An engine, whose pass is `left`, or one that does what is in its ring, of which `left` is of the first. */
struct capacity_worker {
    double left;  /* seconds of work at full speed; < 0: none */
    double speed; /* of that, until something begins or ends on the machine */
    double busy_s;
    struct capacity_work *ring; /* [room], 0 or a power of two */
    uint32_t room, at, count;
};

struct capacity_machine {
    const struct capacity_plan *plan;
    struct capacity_worker *workers; /* the replicas' engines, as many outsides, and one for all others */
    uint32_t first, replicas;        /* of all replicas, those from `first` on */
    double at_s;                     /* what is left is as of then */
    double next_s;                   /* when `next` is done; infinite: nothing works */
    uint32_t next;
    double core_s; /* of its cores that worked */
};

/* False: out of memory. Clear it in any case. */
bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first,
                           uint32_t replicas);
void capacity_machine_clear(struct capacity_machine *m);

/* Before anything begins or ends: do what was done until now. */
void capacity_machine_settle(struct capacity_machine *m, double now_s);
/* After that: how fast all goes on, and what is done first. */
void capacity_machine_pace(struct capacity_machine *m);

/* Which worker is a replica's outside, and which are the others; `place` < m->replicas is its engine. */
uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place);
uint32_t capacity_machine_others(const struct capacity_machine *m);

/* More to do for one that has a ring. False: out of memory. */
bool capacity_machine_add(struct capacity_machine *m, uint32_t worker, struct capacity_work work);
/* m->next, which has a ring, is done with the first of that; it is taken out. */
struct capacity_work capacity_machine_take(struct capacity_machine *m);

#endif
