/* capacity_sim.h - what so many daemons behind a balancer would do under a load, by simulating each pass of theirs.
 * Nothing here is measured or printed, and the same plan always gives the same row. Single threaded.
 *
 * A request goes to the replica with the fewest under way, of several in turn, as balancers do with leastconn. Replicas
 * stand on machines, `per_machine` on each, and what computes on one shares its cores evenly: the engines, whose passes
 * take the seconds that were measured for them, with their threads; a queue of what each daemon does outside of its
 * engine, requests and events; and a queue of what others do there for the same requests. Each replica forms its passes
 * and batches as server/batch does (capacity_lane.c). */
#ifndef SERVER_CLI_CAPACITY_SIM_H
#define SERVER_CLI_CAPACITY_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"

/* Seconds that something takes for `count` of what it is done to, measured at some numbers, which rise. */
struct capacity_curve {
    uint32_t points;
    uint32_t count[CAPACITY_POINTS_MAX];
    double seconds[CAPACITY_POINTS_MAX];
};

/* What lies between two points is on the line between them, and what lies beyond the last goes on with its slope; from
 * 0 to the first it is as much as that. */
double capacity_curve_at(const struct capacity_curve *c, uint32_t count);

/* What a model costs with so many threads, each on a core of its own. */
struct capacity_costs {
    bool generates;                  /* it has streams, else batches */
    uint32_t context;                /* elements after which a stream begins anew with half of them; 0: never */
    struct capacity_curve step;      /* a pass of one byte for each of so many streams, the next ones drawn */
    struct capacity_curve prompt;    /* a pass of so many bytes of one prompt */
    struct capacity_curve batch;     /* a batch of so many pictures or texts */
    double crowding;                 /* >= 1: how much longer a pass takes while all other cores compute, too */
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

struct capacity_times {
    double mean, p50, p99; /* seconds */
};

struct capacity_row {
    uint32_t replicas;
    uint64_t answered, refused; /* all requests, and those that a full queue answered 503 */
    double per_second;          /* answered, after a tenth of the requests has come and until the last has */
    double engine_share;        /* of that time in which an engine was in a pass; mean over replicas */
    double core_share;          /* of the machines' cores that computed */
    double request_s;            /* that engines had for a request in its passes, with others' share of these left out */
    struct capacity_times first, whole; /* time of the first byte and of the whole answer, of what came after a tenth */
};

/* *ret is set only if true is returned; false: out of memory. 1 <= replicas <= CAPACITY_REPLICAS_MAX, and every number
 * of the plan is at least 1 but for seconds, rate and clients, of which one is. */
bool capacity_simulate(struct capacity_row *ret, const struct capacity_plan *p, uint32_t replicas);

#endif
