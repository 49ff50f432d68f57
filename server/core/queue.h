/* queue.h - bounded queues between the HTTP threads (push) and the engine thread (pop): one lane for each model, one
 * bound for all of them together. An item's turn is when it came, less QUEUE_PRIORITY_NS for each step of its priority:
 * it goes before those of a lower one that came at most so much earlier, so none waits for ever, and among equals who
 * came first goes first.
 * Links items that others own and never owns one. The queue's lock is a leaf: nothing else is taken under it. */
#ifndef SERVER_CORE_QUEUE_H
#define SERVER_CORE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct queue;

/* Embedded in what waits; zeroed before its first use. Its fields belong to the queue, but for `kind` and
 * `priority`. */
struct queue_item {
    uint64_t kind;    /* set before the push: what may be taken together is of one kind */
    int32_t priority; /* set before the push: QUEUE_PRIORITY_MIN .. QUEUE_PRIORITY_MAX; 0: usual */
    struct queue_item *next, *previous;
    uint64_t pushed_ns;
    int64_t turn_ns; /* pushed_ns less what the priority is worth */
    uint32_t lane;
    bool linked;
};

/* *ret is set only on OK; free with queue_free. Errors: ERR_NOMEM. */
enum status queue_create(struct queue **ret, uint32_t lanes, uint32_t items_max);
void queue_free(struct queue *q); /* NULL is a no-op; must be empty */

/* Any thread; never blocks. lane < lanes. Errors: ERR_FULL, ERR_UNAVAILABLE (closed). */
enum status queue_push(struct queue *q, uint32_t lane, struct queue_item *item);
/* The item whose turn it is in a lane; NULL if none waits. Engine thread. */
struct queue_item *queue_pop(struct queue *q, uint32_t lane);
/* Of those of one kind the item whose turn it is in a lane; NULL if there is none. Looks at all that wait. */
struct queue_item *queue_pop_kind(struct queue *q, uint32_t lane, uint64_t kind);
/* Take an item out of turn. True if it was waiting: then the caller, and nobody else, has it. Any thread. */
bool queue_remove(struct queue *q, struct queue_item *item);

/* Sleep until an item waits in any lane, or somebody calls queue_wake: true. False once the queue is closed and empty.
 * The thread that pops. */
bool queue_wait(struct queue *q);
/* Have queue_wait return, now or at its next call. Any thread. */
void queue_wake(struct queue *q);
/* Refuse every later push. Any thread. */
void queue_close(struct queue *q);

/* Any thread. */
uint32_t queue_count(struct queue *q);
uint32_t queue_lane_count(struct queue *q, uint32_t lane);
/* When the item whose turn it is in a lane was pushed; 0 if none waits. */
uint64_t queue_lane_oldest_ns(struct queue *q, uint32_t lane);
/* Since when something has been waiting in any lane without a break; 0 if nothing waits. */
uint64_t queue_waiting_since_ns(struct queue *q);

#endif
