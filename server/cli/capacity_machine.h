/* capacity_machine.h - what works on one machine of a simulation, and when. Whoever has something to do waits in line
 * for cores, an engine for as many as it has threads, which meet at barriers and so stand still together. One that has
 * had its slice leaves its cores to who waits, at the next tick of the clock or when somebody wakes, as Linux does
 * (EEVDF, kernel/sched/fair.c); one that waits takes what is free, whichever core that is. Where nothing is free, a
 * thread that wakes takes the core of an engine, but waits if another one has a core: that is soon done, and Linux
 * leaves threads to the core where they last were. Single threaded. */
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

/* An engine, whose pass is `left`, or a thread that does what is in its ring, of which `left` is of the first. */
struct capacity_worker {
    double left;           /* seconds of work at full speed; < 0: none */
    double crowding;       /* of an engine's pass */
    double busy_s, core_s; /* had something to do; had its cores */
    double since_s;        /* has its cores since then, but for the time that others had them in between */
    double had_s;          /* of its slice, before others came */
    bool is_on, is_waiting;
    struct capacity_work *ring; /* [room], 0 or a power of two */
    uint32_t room, at, count;
};

#define CAPACITY_NOBODY UINT32_MAX

struct capacity_machine {
    const struct capacity_plan *plan;
    struct capacity_worker *workers; /* [count] the replicas' engines, their other threads, and those of all others */
    uint32_t count;
    uint32_t first, replicas; /* of all replicas, those from `first` on */
    uint32_t *line;           /* [count] those that wait for cores, in their order */
    uint32_t waiting;
    uint32_t free; /* cores */
    uint64_t tick; /* the next one */
    double crowd;  /* how much of the cores beside an engine's is at work, 0 to 1 */
    double at_s;   /* what is left is as of then */
    double next_s; /* when `next` is done, or at which tick a slice is over; infinite: nothing works */
    uint32_t next; /* CAPACITY_NOBODY: a tick */
    double core_s; /* of its cores that worked */
};

/* False: out of memory. Clear it in any case. */
bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first,
                           uint32_t replicas);
void capacity_machine_clear(struct capacity_machine *m);

/* Before anything begins or ends: do what was done until now. */
void capacity_machine_settle(struct capacity_machine *m, double now_s);
/* After that: who has the cores from now on, and what is done first. */
void capacity_machine_pace(struct capacity_machine *m);

/* Which workers have to do with a request, outside of its replica's engine, which is `place` < m->replicas, and of what
 * is not the replica. */
uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place, uint32_t request);
uint32_t capacity_machine_others(const struct capacity_machine *m, uint32_t request);

/* More to do for one that has a ring. False: out of memory. */
bool capacity_machine_add(struct capacity_machine *m, uint32_t worker, struct capacity_work work);
/* m->next, which has a ring, is done with the first of that; it is taken out. */
struct capacity_work capacity_machine_take(struct capacity_machine *m);

#endif
