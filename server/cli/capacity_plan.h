/* capacity_plan.h - what is simulated: what passes cost, what requests are like, what daemons run on. */
#ifndef SERVER_CLI_CAPACITY_PLAN_H
#define SERVER_CLI_CAPACITY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"

/* Seconds that something takes, or how many times as long, for `count` of what it is done to, measured at some numbers,
 * which rise. */
struct capacity_curve {
    uint32_t points;
    uint32_t count[CAPACITY_POINTS_MAX];
    double value[CAPACITY_POINTS_MAX];
};

/* What lies between two points is on the line between them, and what lies beyond the last goes on with its slope; from
 * 0 to the first it is as much as that. */
double capacity_curve_at(const struct capacity_curve *c, uint32_t count);
/* How much of what a core has in its caches, and of its clock, is lost after so many seconds without work: 0 to 1. */
double capacity_lost_share(double idle_s);
/* The largest number of the curve. */
uint32_t capacity_curve_end(const struct capacity_curve *c);

/* How many times as long the same work takes as on average, in windows one after the other. A virtual processor shares
 * a core for some tenths of a second, or stands still for milliseconds: the mean is the same, but requests queue behind
 * that, and are the slowest. Played again and again. */
struct capacity_slowness {
    uint32_t windows; /* 0: it is always 1 */
    double window_s;
    float times[CAPACITY_WINDOWS_MAX]; /* [windows] > 0 */
};

/* `from` is where it is at the time 0: 0 to 1 of all windows. */
double capacity_slowness_at(const struct capacity_slowness *s, double from, double at_s);

/* What a model costs with so many threads, each on a core of its own. */
struct capacity_costs {
    bool generates;                 /* it has streams, else batches */
    uint32_t context;               /* elements after which a stream begins anew with half of them; 0: never */
    bool starts;                    /* the first of these is a start of the model's own */
    bool ahead;                     /* the half is fed beside the elements before it */
    uint32_t per_machine;           /* engines beside each other that crowding was measured for */
    struct capacity_curve step;     /* a pass of one byte for each of so many streams, the next ones drawn */
    struct capacity_curve prompt;   /* a pass of so many bytes of one prompt */
    struct capacity_curve batch;    /* a batch of so many pictures or texts */
    struct capacity_curve crowding; /* >= 1: how many times as long a pass of so many takes while all other cores
                                      * compute others of as many, with weights of their own in the same caches */
    struct capacity_slowness slowness;
    double idle_s;                   /* more that the passes after a long idle time take together, until caches and the
                                      * clock of a core are as they were */
    double waker_s;                  /* of a thread that wakes another one, on an idle core ... */
    double wake_s;                   /* ... which works so long after that */
    double pass_s;                   /* of each pass and batch, besides: the thread between two of them */
    double request_s, event_s;       /* of a core: a request, and an event of a stream, outside of the engine */
    double beside_s, beside_event_s; /* the same of others on that machine, as balancers are: cores lost to them */
};

struct capacity_kind {
    uint32_t prompt_bytes, max_tokens;
    double weight; /* > 0 */
};

struct capacity_plan {
    struct capacity_costs costs;
    struct capacity_kind kinds[CAPACITY_KINDS_MAX]; /* of a model that generates; a request's is drawn by weight */
    uint32_t kind_count;
    double rate;      /* requests a second at random times; 0: clients that each wait for an answer ... */
    uint32_t clients; /* ... so many */
    bool whole;       /* an answer comes in one piece, not as events */
    uint64_t requests, seed;
    uint32_t cores, threads, per_machine; /* of a machine; of a replica's engine; replicas on a machine */
    uint32_t streams_max, pass_rows_max, rows_max, batch_max, queue_max; /* settings of aftd */
};

/* Streams or places in a batch that a replica has. */
uint32_t capacity_slots(const struct capacity_plan *p);
/* Of its kinds, by weight. */
struct capacity_kind capacity_mean_kind(const struct capacity_plan *p);

#endif
