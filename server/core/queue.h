/* queue.h - bounded queues between the HTTP threads (push) and the engine thread (pop): one lane for each model, one
 * bound for all of them together. An item's turn is the time when it was pushed minus QUEUE_PRIORITY_NS for each step
 * of its priority: it overtakes items of lower priority that were pushed at most that much earlier, so none waits
 * forever, and items of equal priority are first in, first out.
 * The queue links items that others own; it never owns one. The queue's lock is a leaf: no other lock is taken under
 * it. */
#ifndef SERVER_CORE_QUEUE_H
#define SERVER_CORE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"

struct queue;

/* Embedded in what is queued; zeroed before its first use. Its fields belong to the queue, except `kind` and
 * `priority`. */
struct queue_item {
    uint64_t kind;    /* set before the push: items that may be batched together have the same kind */
    int32_t priority; /* set before the push: QUEUE_PRIORITY_MIN .. QUEUE_PRIORITY_MAX; 0: normal */
    struct queue_item *next, *previous;
    uint64_t pushed_ns;
    int64_t turn_ns; /* pushed_ns minus what the priority is worth */
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
/* The item of one kind whose turn it is in a lane; NULL if there is none. May search all items that wait in the
 * lane. */
struct queue_item *queue_pop_kind(struct queue *q, uint32_t lane, uint64_t kind);
/* Remove an item out of turn. True if it was waiting: then it is the caller's alone. Any thread. */
bool queue_remove(struct queue *q, struct queue_item *item);

/* Sleep until an item waits in any lane or somebody calls queue_wake, and return true; false once the queue is closed
 * and empty. For the thread that pops. */
bool queue_wait(struct queue *q);
/* Make queue_wait return, now or at its next call. Any thread. */
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
