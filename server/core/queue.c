/* queue.c - see queue.h. A lane is a doubly linked list in the order of turns, so that a job whose client has left is
 * removed from the middle at once. Invariants, under the lock: `count` is the number of linked items, and never above
 * `items_max`; a client is in the table as long as it has items linked. Looking for a client or for an item takes a
 * walk through as many as there are: a microsecond for the 256 that wait by default. */
#include "server/core/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "config/limits.h"
#include "server/core/clock.h"

struct lane {
    TAILQ_HEAD(items, queue_item) items;
    uint32_t count;
};

/* A client with items that wait. */
struct waiting_client {
    struct client_id id;
    uint32_t items;  /* of all lanes; 0: a free place */
    uint64_t served; /* virtual time: where its next item starts */
    int64_t load;    /* while one pops */
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t pushed;
    uint32_t lanes, items_max;
    uint32_t count;            /* of all lanes */
    uint64_t waiting_since_ns; /* 0 while count is 0 */
    bool closed, woken;
    uint64_t served;                /* virtual time: where the latest item that was popped started */
    struct waiting_client *clients; /* [items_max] */
    uint32_t clients_end;           /* after the last that is taken */
    uint64_t done_ns;               /* when items were last done with; 0: never */
    uint64_t ns_per_item;           /* running mean of the time from one that was done to the next */
    struct lane lane[];
};

enum status queue_create(struct queue **ret, uint32_t lanes, uint32_t items_max)
{
    assert(lanes > 0 && items_max > 0);
    struct queue *q = calloc(1, sizeof *q + lanes * sizeof q->lane[0]);
    if (q == NULL)
        return ERR_NOMEM;
    q->clients = calloc(items_max, sizeof *q->clients);
    if (q->clients == NULL) {
        free(q);
        return ERR_NOMEM;
    }
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->pushed, NULL);
    q->lanes = lanes;
    for (uint32_t i = 0; i < lanes; i++)
        TAILQ_INIT(&q->lane[i].items);
    q->items_max = items_max;
    *ret = q;
    return OK;
}

void queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    assert(q->count == 0);
    (void)pthread_cond_destroy(&q->pushed);
    (void)pthread_mutex_destroy(&q->lock);
    free(q->clients);
    free(q);
}

/* The place of a client, which is taken if it is new. There is one: fewer items are linked than there are places. */
static uint32_t enter_client_locked(struct queue *q, const struct client_id *id)
{
    uint32_t vacant = q->clients_end;
    for (uint32_t i = 0; i < q->clients_end; i++)
        if (q->clients[i].items == 0)
            vacant = i < vacant ? i : vacant;
        else if (client_id_is_same(&q->clients[i].id, id))
            return i;
    if (vacant == q->clients_end)
        q->clients_end++;
    q->clients[vacant] = (struct waiting_client){.id = *id, .served = q->served};
    return vacant;
}

static void leave_client_locked(struct queue *q, uint32_t at)
{
    q->clients[at].items--;
    while (q->clients_end > 0 && q->clients[q->clients_end - 1].items == 0)
        q->clients_end--;
}

static void link_locked(struct queue *q, struct queue_item *item)
{
    struct lane *l = &q->lane[item->lane];
    struct queue_item *before = TAILQ_LAST(&l->items, items); /* from the end: most have the same priority */
    while (before != NULL && before->turn_ns > item->turn_ns)
        before = TAILQ_PREV(before, items, in_lane);
    if (before != NULL)
        TAILQ_INSERT_AFTER(&l->items, before, item, in_lane);
    else
        TAILQ_INSERT_HEAD(&l->items, item, in_lane);
    item->linked = true;
    item->client_at = enter_client_locked(q, &item->client);
    q->clients[item->client_at].items++;
    l->count++;
    if (q->count++ == 0)
        q->waiting_since_ns = item->pushed_ns;
}

static void unlink_locked(struct queue *q, struct queue_item *item)
{
    struct lane *l = &q->lane[item->lane];
    TAILQ_REMOVE(&l->items, item, in_lane);
    item->linked = false;
    leave_client_locked(q, item->client_at);
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

/* It is served: its client's next item starts after it. */
static void serve_locked(struct queue *q, struct queue_item *item)
{
    struct waiting_client *c = &q->clients[item->client_at];
    q->served = c->served > q->served ? c->served : q->served;
    c->served += item->cost > 0 ? item->cost : 1;
    unlink_locked(q, item);
}

/* The first item of the client whose turn it is: of that kind unless that is NULL; of those clients that have least
 * unless `load` is NULL, as if all had the same. */
static struct queue_item *pop(struct queue *q, uint32_t lane, const uint64_t *kind, queue_load *load, void *arg)
{
    assert(lane < q->lanes);
    struct queue_item *next = NULL;
    const struct waiting_client *best = NULL;
    (void)pthread_mutex_lock(&q->lock);
    for (uint32_t i = 0; i < q->clients_end && q->lane[lane].count > 0; i++)
        if (q->clients[i].items > 0)
            q->clients[i].load = load != NULL ? load(arg, &q->clients[i].id) : 0;
    for (struct queue_item *item = TAILQ_FIRST(&q->lane[lane].items); item != NULL; item = TAILQ_NEXT(item, in_lane)) {
        const struct waiting_client *c = &q->clients[item->client_at];
        if ((kind != NULL && item->kind != *kind) || c->load < 0)
            continue;
        if (best == NULL || c->load < best->load || (c->load == best->load && c->served < best->served)) {
            next = item;
            best = c;
        }
    }
    if (next != NULL)
        serve_locked(q, next);
    (void)pthread_mutex_unlock(&q->lock);
    return next;
}

struct queue_item *queue_pop(struct queue *q, uint32_t lane)
{
    return pop(q, lane, NULL, NULL, NULL);
}

struct queue_item *queue_pop_kind(struct queue *q, uint32_t lane, uint64_t kind)
{
    return pop(q, lane, &kind, NULL, NULL);
}

struct queue_item *queue_pop_least(struct queue *q, uint32_t lane, queue_load *load, void *arg)
{
    return pop(q, lane, NULL, load, arg);
}

/* The client that has most items in a queue that is full, if it has at least two more than `client`; else NULL. */
static const struct waiting_client *heaviest_client_locked(const struct queue *q, const struct client_id *client)
{
    const struct waiting_client *most = NULL;
    uint32_t theirs = 0;
    for (uint32_t i = 0; i < q->clients_end; i++) {
        const struct waiting_client *c = &q->clients[i];
        if (c->items > 0 && client_id_is_same(&c->id, client))
            theirs = c->items;
        most = most == NULL || c->items > most->items ? c : most;
    }
    return most != NULL && most->items >= theirs + 2 ? most : NULL;
}

bool queue_has_room(struct queue *q, const struct client_id *client)
{
    (void)pthread_mutex_lock(&q->lock);
    const bool has_room = q->count < q->items_max || heaviest_client_locked(q, client) != NULL;
    (void)pthread_mutex_unlock(&q->lock);
    return has_room;
}

struct queue_item *queue_make_room(struct queue *q, const struct client_id *client)
{
    struct queue_item *newest = NULL;
    (void)pthread_mutex_lock(&q->lock);
    const struct waiting_client *most = heaviest_client_locked(q, client);
    for (uint32_t lane = 0; most != NULL && lane < q->lanes; lane++)
        for (struct queue_item *item = TAILQ_FIRST(&q->lane[lane].items); item != NULL;
             item = TAILQ_NEXT(item, in_lane))
            if (&q->clients[item->client_at] == most && (newest == NULL || item->turn_ns >= newest->turn_ns))
                newest = item;
    if (newest != NULL)
        unlink_locked(q, newest);
    (void)pthread_mutex_unlock(&q->lock);
    return newest;
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
    if (q->count == 0)
        q->done_ns = 0; /* the next is not late for having come late */
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

struct queue_view queue_look(struct queue *q, uint32_t lane)
{
    assert(lane < q->lanes);
    (void)pthread_mutex_lock(&q->lock);
    const struct queue_item *first = TAILQ_FIRST(&q->lane[lane].items);
    const struct queue_view v = {
        .count = q->count,
        .lane_count = q->lane[lane].count,
        .lane_oldest_ns = first != NULL ? first->pushed_ns : 0,
        .waiting_since_ns = q->waiting_since_ns,
    };
    (void)pthread_mutex_unlock(&q->lock);
    return v;
}

void queue_note_done(struct queue *q, uint32_t items, uint64_t now_ns)
{
    if (items == 0)
        return;
    (void)pthread_mutex_lock(&q->lock);
    if (q->done_ns != 0) {
        const uint64_t latest = (now_ns - q->done_ns) / items, mean = q->ns_per_item;
        q->ns_per_item = mean == 0 ? latest : mean - mean / 8 + latest / 8;
    }
    q->done_ns = now_ns;
    (void)pthread_mutex_unlock(&q->lock);
}

uint32_t queue_retry_after_s(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    const uint64_t wait_ns = q->count * q->ns_per_item;
    (void)pthread_mutex_unlock(&q->lock);
    const uint64_t wait_s = (wait_ns + CLOCK_NS_PER_S - 1) / CLOCK_NS_PER_S;
    return wait_s < 1 ? 1 : wait_s > HTTP_RETRY_AFTER_MAX_S ? HTTP_RETRY_AFTER_MAX_S : (uint32_t)wait_s;
}

uint32_t queue_count(struct queue *q)
{
    return queue_look(q, 0).count;
}
