/* queue.c - see queue.h. A lane is a doubly linked list in the order of turns, so that a job whose client has left is
 * removed from the middle at once. Invariant, under the lock: `count` is the number of linked items, and never above
 * `items_max`. */
#include "server/core/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/limits.h"
#include "server/core/clock.h"

struct lane {
    struct queue_item *first, *last;
    uint32_t count;
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t pushed;
    uint32_t lanes, items_max;
    uint32_t count;            /* of all lanes */
    uint64_t waiting_since_ns; /* 0 while count is 0 */
    bool closed, woken;
    struct lane lane[];
};

enum status queue_create(struct queue **ret, uint32_t lanes, uint32_t items_max)
{
    assert(lanes > 0 && items_max > 0);
    struct queue *q = calloc(1, sizeof *q + lanes * sizeof q->lane[0]);
    if (q == NULL)
        return ERR_NOMEM;
    if (pthread_mutex_init(&q->lock, NULL) != 0)
        goto no_lock;
    if (pthread_cond_init(&q->pushed, NULL) != 0)
        goto no_condition;
    q->lanes = lanes;
    q->items_max = items_max;
    *ret = q;
    return OK;
no_condition:
    (void)pthread_mutex_destroy(&q->lock);
no_lock:
    free(q);
    return ERR_NOMEM;
}

void queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    assert(q->count == 0);
    (void)pthread_cond_destroy(&q->pushed);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
}

static void link_locked(struct queue *q, struct queue_item *item)
{
    struct lane *l = &q->lane[item->lane];
    struct queue_item *before = l->last; /* from the end: most have the same priority */
    while (before != NULL && before->turn_ns > item->turn_ns)
        before = before->previous;
    item->previous = before;
    item->next = before != NULL ? before->next : l->first;
    *(before != NULL ? &before->next : &l->first) = item;
    *(item->next != NULL ? &item->next->previous : &l->last) = item;
    item->linked = true;
    l->count++;
    if (q->count++ == 0)
        q->waiting_since_ns = item->pushed_ns;
}

static void unlink_locked(struct queue *q, struct queue_item *item)
{
    struct lane *l = &q->lane[item->lane];
    *(item->previous != NULL ? &item->previous->next : &l->first) = item->next;
    *(item->next != NULL ? &item->next->previous : &l->last) = item->previous;
    item->linked = false;
    l->count--;
    if (--q->count == 0)
        q->waiting_since_ns = 0;
}

enum status queue_push(struct queue *q, uint32_t lane, struct queue_item *item)
{
    assert(lane < q->lanes && !item->linked);
    assert(item->priority >= QUEUE_PRIORITY_MIN && item->priority <= QUEUE_PRIORITY_MAX);
    const uint64_t now_ns = clock_now_ns();
    enum status st = OK;
    (void)pthread_mutex_lock(&q->lock);
    if (q->closed) {
        st = ERR_UNAVAILABLE;
    } else if (q->count == q->items_max) {
        st = ERR_FULL;
    } else {
        item->lane = lane;
        item->pushed_ns = now_ns;
        item->turn_ns = (int64_t)now_ns - item->priority * (int64_t)QUEUE_PRIORITY_NS;
        link_locked(q, item);
        (void)pthread_cond_signal(&q->pushed);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return st;
}

struct queue_item *queue_pop(struct queue *q, uint32_t lane)
{
    assert(lane < q->lanes);
    (void)pthread_mutex_lock(&q->lock);
    struct queue_item *item = q->lane[lane].first;
    if (item != NULL)
        unlink_locked(q, item);
    (void)pthread_mutex_unlock(&q->lock);
    return item;
}

struct queue_item *queue_pop_kind(struct queue *q, uint32_t lane, uint64_t kind)
{
    assert(lane < q->lanes);
    (void)pthread_mutex_lock(&q->lock);
    struct queue_item *item = q->lane[lane].first;
    while (item != NULL && item->kind != kind)
        item = item->next;
    if (item != NULL)
        unlink_locked(q, item);
    (void)pthread_mutex_unlock(&q->lock);
    return item;
}

bool queue_remove(struct queue *q, struct queue_item *item)
{
    (void)pthread_mutex_lock(&q->lock);
    const bool waited = item->linked;
    if (waited)
        unlink_locked(q, item);
    (void)pthread_mutex_unlock(&q->lock);
    return waited;
}

bool queue_wait(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed && !q->woken)
        (void)pthread_cond_wait(&q->pushed, &q->lock);
    const bool goes_on = q->count > 0 || !q->closed;
    q->woken = false;
    (void)pthread_mutex_unlock(&q->lock);
    return goes_on;
}

void queue_wake(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->woken = true;
    (void)pthread_cond_signal(&q->pushed);
    (void)pthread_mutex_unlock(&q->lock);
}

void queue_close(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->closed = true;
    (void)pthread_cond_signal(&q->pushed);
    (void)pthread_mutex_unlock(&q->lock);
}

uint32_t queue_count(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    const uint32_t count = q->count;
    (void)pthread_mutex_unlock(&q->lock);
    return count;
}

uint32_t queue_lane_count(struct queue *q, uint32_t lane)
{
    assert(lane < q->lanes);
    (void)pthread_mutex_lock(&q->lock);
    const uint32_t count = q->lane[lane].count;
    (void)pthread_mutex_unlock(&q->lock);
    return count;
}

uint64_t queue_lane_oldest_ns(struct queue *q, uint32_t lane)
{
    assert(lane < q->lanes);
    (void)pthread_mutex_lock(&q->lock);
    const uint64_t oldest_ns = q->lane[lane].first != NULL ? q->lane[lane].first->pushed_ns : 0;
    (void)pthread_mutex_unlock(&q->lock);
    return oldest_ns;
}

uint64_t queue_waiting_since_ns(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    const uint64_t since_ns = q->waiting_since_ns;
    (void)pthread_mutex_unlock(&q->lock);
    return since_ns;
}
