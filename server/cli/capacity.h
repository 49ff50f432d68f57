/* capacity.h - what the parts of aft capacity share. Single threaded.
 *
 *   capacity.c           the command line, and how many replicas are tried
 *   capacity_costs.c     measures what a model costs here
 *   capacity_wakes.c     measures what it takes to wake a thread here
 *   capacity_record.c    these costs as JSON, and back
 *   capacity_plan.c      what is simulated
 *   capacity_sim.c       a simulation, of lanes (capacity_lane.c) on machines (capacity_machine.c)
 *   capacity_report.c    what came of it, for people and as JSON */
#ifndef SERVER_CLI_CAPACITY_H
#define SERVER_CLI_CAPACITY_H

#include <jansson.h>

#include "server/cli/capacity_sim.h"
#include "server/cli/cli.h"

#define CAPACITY_ROWS_MAX 64 /* numbers of replicas that are tried */

/* Whose costs they are, and on what. */
struct capacity_whose {
    char model[MODEL_NAME_MAX + 1], isa[32], precision[8];
    uint32_t threads;
};

struct capacity_report {
    const struct capacity_plan *plan;
    const struct capacity_whose *whose;
    double p99_s;                /* the goal; infinite: there is none */
    double alone_s, alone_p99_s; /* time of a whole answer where there is one request at a time, median and 99th */
    double most;                 /* requests a second of a machine where there are always more */
    uint32_t needed;             /* replicas; 0: none of the rows holds, or there is no goal */
    struct capacity_row rows[CAPACITY_ROWS_MAX]; /* [count], by replicas */
    uint32_t count;
    bool json;
};

/* Measure what p->costs says of a model's passes or batches, for engines with w->threads threads as p has it, and for
 * `watch_s` how steady the machine is. Prints why and returns the exit code if it cannot. */
int capacity_measure(struct capacity_plan *p, struct capacity_whose *w, const struct model *m,
                     const struct cli_engine *with, double watch_s);

/* Measure c->wake_s and c->waker_s, in a second. Prints why and returns the exit code if it cannot. */
int capacity_measure_wakes(struct capacity_costs *c);

/* The object "costs" of --json; NULL: out of memory. */
json_t *capacity_record_make(const struct capacity_costs *c, const struct capacity_whose *w);
/* Back from a file that has one line of --json. Prints why and returns the exit code if it cannot. */
int capacity_record_read(struct capacity_costs *c, struct capacity_whose *w, const char *path);

/* Does the row keep the goal, with no request refused? */
bool capacity_holds(const struct capacity_report *r, const struct capacity_row *row);
/* Print it. Returns the exit code. */
int capacity_tell_all(const struct capacity_report *r);

#endif
