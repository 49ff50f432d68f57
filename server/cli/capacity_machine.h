/* capacity_machine.h - what works on one machine of a simulation, and when. Each thread has a core, on which it takes
 * turns with the others there as Linux has them (EEVDF, kernel/sched/fair.c): who has had no more of it than the mean
 * of those who want it is eligible, and of these the one whose slice ends first has it. That is looked at when somebody
 * wakes there or falls asleep, and at a tick of the clock when a slice is over. A thread wakes where it last ran even
 * where another core is idle, as it does on virtual processors, which look taken while they are halted; now and then it
 * moves to the core of who wakes it, or a core takes a thread that waits at another one. The threads of an engine meet
 * at barriers, so that it goes on only while all of them have a core. Single threaded. */
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
    uint32_t on;           /* of its threads, those that have a core */
    bool is_awake;
    struct capacity_work *ring; /* [room], 0 or a power of two */
    uint32_t room, at, count;
};

/* Times called virtual are what a thread has had of its core, and compare on that core only. */
struct capacity_thread {
    uint32_t worker, core;
    double had_s, deadline_s; /* virtual: until now, and when its slice is over */
    double lag_s;             /* asleep: by how much it had less than the mean when it went */
    double off_s;             /* it last had a core until then */
    bool is_there;            /* wants its core */
    double load, load_s;      /* how much of the last time it wanted one, 0 to 1, as of then */
};

#define CAPACITY_NOBODY UINT32_MAX

struct capacity_core {
    uint32_t on;    /* the thread that has it, or CAPACITY_NOBODY */
    bool is_due;    /* who has it is to be chosen */
    double works_s; /* it was idle, and works only from then on */
};

struct capacity_machine {
    const struct capacity_plan *plan;
    struct capacity_worker *workers; /* [count] the replicas' engines, their other threads, and those of all others */
    uint32_t count;
    uint32_t first, replicas;        /* of all replicas, those from `first` on */
    struct capacity_thread *threads; /* [thread_count] worker by worker */
    uint32_t thread_count;
    struct capacity_core *cores; /* [plan->cores] */
    uint32_t idles;              /* how often a core had nothing to do */
    uint32_t wakes;              /* from cores that may keep the thread */
    uint64_t tick;               /* the next one */
    double crowd;                /* how much of the cores beside an engine's is at work, 0 to 1 */
    double at_s;                 /* what is left is as of then */
    double next_s;               /* when `next` is done, or a tick at which somebody waits; infinite: nothing works */
    uint32_t next;               /* CAPACITY_NOBODY: a tick */
    double core_s;               /* of its cores that worked */
};

/* False: out of memory. Clear it in any case. */
bool capacity_machine_init(struct capacity_machine *m, const struct capacity_plan *p, uint32_t first,
                           uint32_t replicas);
void capacity_machine_clear(struct capacity_machine *m);

/* Before anything begins or ends: do what was done until now. */
void capacity_machine_settle(struct capacity_machine *m, double now_s);
/* After that: who has the cores from now on, and what is done first. What has something to do since then was woken by
 * that worker, or CAPACITY_NOBODY: from elsewhere. */
void capacity_machine_pace(struct capacity_machine *m, uint32_t waker);

/* Which workers have to do with a request, outside of its replica's engine, which is `place` < m->replicas, and of what
 * is not the replica. */
uint32_t capacity_machine_outside(const struct capacity_machine *m, uint32_t place, uint32_t request);
uint32_t capacity_machine_others(const struct capacity_machine *m, uint32_t request);

bool capacity_machine_sleeps(const struct capacity_machine *m, uint32_t worker);
/* More to do for one that has a ring. False: out of memory. */
bool capacity_machine_add(struct capacity_machine *m, uint32_t worker, struct capacity_work work);
/* m->next, which has a ring, is done with the first of that; it is taken out. */
struct capacity_work capacity_machine_take(struct capacity_machine *m);

#endif
