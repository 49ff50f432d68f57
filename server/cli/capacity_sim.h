/* capacity_sim.h - what so many daemons behind a balancer would do under a load, by simulating each pass of theirs.
 * Nothing here is measured or printed, and the same plan always gives the same row. Single threaded.
 *
 * A request goes to the replica with the fewest under way, of several in turn, as balancers do with leastconn. Replicas
 * stand on machines, `per_machine` on each, and what computes on one takes turns on the cores (capacity_machine.c): the
 * engines, whose passes take the seconds that were measured for them, with their threads; what each daemon's other
 * threads do, requests and events; and what others do there for the same requests. Each replica forms its passes and
 * batches as server/batch does (capacity_lane.c). */
#ifndef SERVER_CLI_CAPACITY_SIM_H
#define SERVER_CLI_CAPACITY_SIM_H

#include "server/cli/capacity_plan.h"

struct capacity_times {
    double mean, p50, p99; /* seconds */
};

struct capacity_row {
    uint32_t replicas;
    uint64_t answered, refused;         /* all requests, and those that a full queue answered 503 */
    double per_second;                  /* answered, after a tenth of the requests has come and until the last has */
    double engine_share;                /* of that time in which an engine was in a pass; mean over replicas */
    double core_share;                  /* of the machines' cores that computed */
    double request_s;                   /* that engines had their cores, for a request */
    double pass_s, pass_size;           /* the same for a pass, and streams, pictures or texts in one; means */
    struct capacity_times first, whole; /* time of the first byte and of the whole answer, of what came after a tenth */
};

/* *ret is set only if true is returned; false: out of memory. 1 <= replicas <= CAPACITY_REPLICAS_MAX, and every number
 * of the plan is at least 1 but for seconds, rate and clients, of which one is. */
bool capacity_simulate(struct capacity_row *ret, const struct capacity_plan *p, uint32_t replicas);

#endif
