/* stream_lane.h - the streams of one generating model, of text or of pictures: admits jobs to slots, feeds their
 * elements (bytes, sub-pixels) pass by pass, draws the next one of each or tells how probable it was. Engine thread
 * only. All memory is allocated by stream_lane_create. */
#ifndef SERVER_OPERATION_STREAM_LANE_H
#define SERVER_OPERATION_STREAM_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"

struct hosted_model;
struct queue;
struct settings;
struct stream_lane;

/* `model` (a generating model with an open engine) and `q` outlive the lane. *ret is set only on OK; free with
 * stream_lane_free. Errors: ERR_NOMEM. */
enum status stream_lane_create(struct stream_lane **ret, struct hosted_model *model, struct queue *q,
                               const struct settings *s, struct error *err);
void stream_lane_free(struct stream_lane *l); /* NULL is a no-op; no stream may be running */

/* One pass: end the jobs that were cancelled or are late, admit waiting ones to free slots, feed every stream and give
 * each its next element. Returns the number of jobs that it ended. */
uint32_t stream_lane_step(struct stream_lane *l);
/* Streams that hold a slot, and samples that wait for one. */
uint32_t stream_lane_running(const struct stream_lane *l);
/* Ask every running job to end for the reason `st`; the next step does it. */
void stream_lane_cancel(struct stream_lane *l, enum status st);

#endif
