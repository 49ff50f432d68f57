/* picture_lane.h - the pictures, or texts, of one classifier: forms batches of waiting jobs and encodes them block by
 * block, or in smaller parts, so that other models get their turn in between. Engine thread only. All memory is
 * allocated by picture_lane_create. */
#ifndef SERVER_OPERATION_PICTURE_LANE_H
#define SERVER_OPERATION_PICTURE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct hosted_model;
struct picture_lane;
struct queue;
struct settings;

/* `model` (a picture model with an open engine) and `q` outlive the lane. *ret is set only on OK; free with
 * picture_lane_free. Errors: ERR_NOMEM. */
enum status picture_lane_create(struct picture_lane **ret, struct hosted_model *model, struct queue *q,
                                const struct settings *s, struct error *err);
void picture_lane_free(struct picture_lane *l); /* NULL is a no-op; no batch may be running */

#define PICTURE_LANE_NO_HURRY UINT64_MAX

/* One unit of work: begin a batch, or run one block of the one that is running; where most_ns is less than that takes,
 * for as many of its inputs as fit by the time that they took lately, but at least for one of each thread. A
 * batch that is not full waits for more inputs, at most for batch_wait_us and only while the engine is `busy` with
 * other work. Returns the number of jobs that ended. */
uint32_t picture_lane_step(struct picture_lane *l, bool busy, uint64_t most_ns);
/* Would a step do anything? */
bool picture_lane_has_work(const struct picture_lane *l, bool busy);
/* Pictures of the running batch. */
uint32_t picture_lane_running(const struct picture_lane *l);
/* Ask every picture of the running batch to end for the reason `st`; the next step does it. */
void picture_lane_cancel(struct picture_lane *l, enum status st);

#endif
