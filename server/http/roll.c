/* roll.c - the exchanges in progress as other threads see them: a list in the order in which they were shown. See
 * http.h.
 *
 * Runs on HTTP threads. The lock is held for a few instructions by those who enter and leave, and by those who walk for
 * HTTP_WALK_STEP exchanges at a time; a walker leaves a place of its own in the list, from which it goes on. What is on
 * the roll has not ended: its exchange, its job and its connection stay until the lock is given up.
 * Lock order: roll -> watcher, roll -> job. */
#include <assert.h>

#include "server/core/clock.h"
#include "server/http/http_inner.h"

static void insert_before(struct http_place *at, struct http_place *p)
{
    p->next = at;
    p->previous = at->previous;
    at->previous->next = p;
    at->previous = p;
}

static void take_out(struct http_place *p)
{
    p->previous->next = p->next;
    p->next->previous = p->previous;
    p->next = p->previous = NULL;
}

/* ---- the exchange's own thread ----------------------------------------------------------------------------------- */

void http_roll_begin(struct http *h)
{
    (void)pthread_mutex_init(&h->roll.lock, NULL);
    h->roll.ends.next = h->roll.ends.previous = &h->roll.ends;
}

void http_roll_end(struct http *h)
{
    assert(h->roll.ends.next == &h->roll.ends);
    (void)pthread_mutex_destroy(&h->roll.lock);
}

void http_show(struct exchange *base)
{
    struct http_exchange *x = http_exchange_of(base);
    struct http *h = x->http;
    assert(x->place.exchange == NULL);
    x->place.exchange = base;
    (void)pthread_mutex_lock(&h->roll.lock);
    insert_before(&h->roll.ends, &x->place);
    (void)pthread_mutex_unlock(&h->roll.lock);
}

void http_roll_leave(struct http_exchange *x)
{
    if (x->place.exchange == NULL)
        return;
    (void)pthread_mutex_lock(&x->http->roll.lock);
    take_out(&x->place);
    (void)pthread_mutex_unlock(&x->http->roll.lock);
}

void http_roll_set_job(struct http_exchange *x, struct job *job)
{
    (void)pthread_mutex_lock(&x->http->roll.lock);
    x->base.job = job;
    (void)pthread_mutex_unlock(&x->http->roll.lock);
}

/* ---- another exchange's thread ----------------------------------------------------------------------------------- */

/* Up to `end`. */
static bool walk(struct http *h, const struct http_place *end, struct http_place *walker, http_see *see, void *arg)
{
    (void)pthread_mutex_lock(&h->roll.lock);
    if (walker->next == NULL)
        insert_before(h->roll.ends.next, walker);
    for (int i = 0; i < HTTP_WALK_STEP && walker->next != end; i++) {
        struct http_place *at = walker->next;
        take_out(walker);
        insert_before(at->next, walker);
        if (at->exchange != NULL) /* rather than another walker */
            see(arg, at->exchange);
    }
    const bool goes_on = walker->next != end;
    if (!goes_on)
        take_out(walker);
    (void)pthread_mutex_unlock(&h->roll.lock);
    mailbox_notify(h->mailboxes); /* of what http_cancel has resumed */
    return goes_on;
}

bool http_walk(struct exchange *asker, struct http_place *walker, http_see *see, void *arg)
{
    struct http_exchange *me = http_exchange_of(asker);
    assert(me->place.exchange == asker);
    return walk(me->http, &me->place, walker, see, arg);
}

void http_see_all(struct http *h, http_see *see, void *arg)
{
    struct http_place walker = {.next = NULL};
    bool goes_on;
    do {
        goes_on = walk(h, &h->roll.ends, &walker, see, arg);
    } while (goes_on);
}

enum http_stage http_stage(const struct exchange *x)
{
    return (enum http_stage)atomic_load_explicit(&http_exchange_of(x)->stage, memory_order_relaxed);
}

void http_cancel(struct exchange *base, enum status st)
{
    struct http_exchange *x = http_exchange_of(base);
    if (base->job != NULL && !job_is_done(base->job)) {
        job_cancel(base->job, st);
        return;
    }
    atomic_store_explicit(&x->cancelled, (int)st, memory_order_relaxed); /* for http_await, which takes the lock too */
    if (http_stage(base) != HTTP_WORKING)                                /* as if it were late */
        watcher_set_time(x->http->watcher, &x->connection->watch, clock_now_ns());
}
