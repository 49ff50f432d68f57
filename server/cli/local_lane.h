/* local_lane.h - a lane of streams (server/operation/stream_lane.h) with an engine of our own: a verb that needs no
 * daemon makes the same jobs as its requests (server/operation/), and this thread does what the daemon's engine thread
 * does. So what comes of them is the same. Single threaded. */
#ifndef SERVER_CLI_LOCAL_LANE_H
#define SERVER_CLI_LOCAL_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/cli/cli.h"
#include "server/models/hosted_model.h"
#include "server/request/job.h"

enum { LOCAL_ROWS = 256 }; /* bytes of a pass beside one for each stream: a compromise between memory and full tiles */

struct local_lane {
    struct hosted_model *model; /* and its engine */
    struct queue *queue;
    struct stream_lane *streams;
    struct job *job; /* the one that it is for, which has its model and is yet to be begun */
};

/* Load a generating model for that task, and open an engine and a lane for so many streams of it, in a zeroed *l;
 * `shifts`: texts may go on where the context ends. Prints why not and returns CLI_FAILED; close it in any case. */
int local_lane_open(struct local_lane *l, const char *name, enum model_task task, const struct cli_engine *with,
                    uint32_t streams, bool shifts);
void local_lane_close(struct local_lane *l); /* what was submitted must have ended; zeroed is fine */

/* Submit the job that was begun, if it was. Prints why not and returns CLI_FAILED. */
int local_lane_submit(struct local_lane *l, enum status begun);
/* One pass. False: the job is done. */
bool local_lane_step(struct local_lane *l);
/* End the job where it is. Prints why if there is no answer, and returns CLI_FAILED. */
int local_lane_end(struct local_lane *l);

#endif
