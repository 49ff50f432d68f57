/* queue.h - bounded queues between the HTTP threads (push) and the engine thread (pop): one lane for each model, one
 * bound for all of them together. An item's turn is the time when it was pushed minus QUEUE_PRIORITY_NS for each step
 * of its priority: it overtakes items of lower priority that were pushed at most that much earlier, so none waits
 * forever, and items of equal priority are first in, first out.
 * That holds among the items of one client. Clients are served in turn, by the cost of what they were given (start-time
 * fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996): whoever comes to the queue begins where the others are, so neither
 * what a client had before nor how much it has waiting puts it before or behind another.
 * The queue links items that others own; it never owns one. The queue's lock is a leaf: no other lock is taken under
 * it. */
#ifndef SERVER_CORE_QUEUE_H
#define SERVER_CORE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config/status.h"
#include "server/core/client_id.h"

struct queue;

/* Embedded in what is queued; zeroed before its first use. Its fields belong to the queue, except the first four, which
 * are set before the push. */
struct queue_item {
    uint64_t kind;           /* items that may be batched together have the same kind */
    int32_t priority;        /* QUEUE_PRIORITY_MIN .. QUEUE_PRIORITY_MAX; 0: normal */
    uint32_t cost;           /* in any unit that all items have in common; 0 counts as 1 */
    struct client_id client; /* whose it is */
    TAILQ_ENTRY(queue_item) in_lane;
    uint64_t pushed_ns;
    int64_t turn_ns; /* pushed_ns minus what the priority is worth */
    uint32_t lane;
    uint32_t client_at; /* among the queue's clients */
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
/* What a client has of that which the items wait for; below 0: it can be given nothing now. Called under the queue's
 * lock: it must be brief, and call no function of the queue. */
typedef int64_t queue_load(void *arg, const struct client_id *client);
/* The item whose turn it is among those of the clients that have least; NULL if no client can be given anything. */
struct queue_item *queue_pop_least(struct queue *q, uint32_t lane, queue_load *load, void *arg);
/* After ERR_FULL: take out the newest item of the client that has most items in all lanes, if it has at least two more
 * than this client, so that one client cannot keep others out of the queue; NULL: there is none. The caller owns it.
 * Any thread. */
struct queue_item *queue_make_room(struct queue *q, const struct client_id *client);
/* Would an item of the client be taken now, by itself or after queue_make_room? Any thread. */
bool queue_has_room(struct queue *q, const struct client_id *client);
/* Remove an item out of turn. True if it was waiting: then it is the caller's alone. Any thread. */
bool queue_remove(struct queue *q, struct queue_item *item);

/* Sleep until an item waits in any lane or somebody calls queue_wake, and return true; false once the queue is closed
 * and empty. For the thread that pops. */
bool queue_wait(struct queue *q);
/* Make queue_wait return, now or at its next call. Any thread. */
void queue_wake(struct queue *q);
/* Refuse every later push. Any thread. */
void queue_close(struct queue *q);

/* So many items are done with, all at once: for the next. Engine thread. */
void queue_note_done(struct queue *q, uint32_t items, uint64_t now_ns);
/* Seconds after which who found the queue full may find room, estimated from how fast items have been done with lately:
 * 1 .. HTTP_RETRY_AFTER_MAX_S. Any thread. */
uint32_t queue_retry_after_s(struct queue *q);

struct queue_view {
    uint32_t count, lane_count; /* of all lanes, and of that one */
    uint64_t lane_oldest_ns;    /* when the item whose turn it is in that lane was pushed; 0 if none waits */
    uint64_t waiting_since_ns;  /* something has waited in any lane without a break; 0 if nothing does */
};
/* Any thread. */
struct queue_view queue_look(struct queue *q, uint32_t lane);
uint32_t queue_count(struct queue *q);

#endif
