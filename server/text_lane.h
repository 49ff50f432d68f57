/* text_lane.h - the streams of one text model: admits jobs to slots, feeds their bytes pass by pass, draws the next
 * byte of each. Engine thread only. All memory is taken by text_lane_create. */
#ifndef SERVER_TEXT_LANE_H
#define SERVER_TEXT_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"

struct entry;
struct queue;
struct text_lane;

/* `model` (a text model with an open engine) and `q` outlive the lane. *ret is set only on OK; free with
 * text_lane_free. Errors: ERR_NOMEM. */
enum status text_lane_create(struct text_lane **ret, struct entry *model, struct queue *q, const struct settings *s,
                             struct error *err);
void text_lane_free(struct text_lane *l); /* NULL is a no-op; no stream may be running */

/* One pass: end the streams that were cancelled or are late, admit waiting jobs to free slots, feed every stream and
 * give each its next byte. Returns the number of jobs that it ended. */
uint32_t text_lane_step(struct text_lane *l);
/* Streams that hold a slot. */
uint32_t text_lane_running(const struct text_lane *l);
/* Ask every running stream to end for the reason `st`; the next step does it. */
void text_lane_cancel(struct text_lane *l, enum status st);

#endif
