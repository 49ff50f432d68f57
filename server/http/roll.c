/* roll.c - the exchanges in progress as other threads see them: a list in the order in which they were shown. See
 * http.h.
 *
 * Runs on HTTP threads, and http_see_all on the main one. The lock is held for a few instructions by those who enter
 * and leave, and by who sees all of them: a millisecond for some thousand. What is on the roll has not ended: its
 * exchange, its job and its connection stay until the lock is given up.
 * Lock order: roll -> watcher, roll -> job. */
#include <assert.h>

#include "server/core/clock.h"
#include "server/http/http_inner.h"

/* ---- the exchange's own thread ----------------------------------------------------------------------------------- */

void http_roll_begin(struct http *h)
{
    (void)pthread_mutex_init(&h->roll.lock, NULL);
    TAILQ_INIT(&h->roll.shown);
}

void http_roll_end(struct http *h)
{
    assert(TAILQ_EMPTY(&h->roll.shown));
    (void)pthread_mutex_destroy(&h->roll.lock);
}

void http_show(struct exchange *base)
{
    struct http_exchange *x = http_exchange_of(base);
    assert(!x->is_shown);
    x->is_shown = true;
    (void)pthread_mutex_lock(&x->http->roll.lock);
    TAILQ_INSERT_TAIL(&x->http->roll.shown, x, on_roll);
    (void)pthread_mutex_unlock(&x->http->roll.lock);
}

void http_roll_leave(struct http_exchange *x)
{
    if (!x->is_shown)
        return;
    (void)pthread_mutex_lock(&x->http->roll.lock);
    TAILQ_REMOVE(&x->http->roll.shown, x, on_roll);
    (void)pthread_mutex_unlock(&x->http->roll.lock);
}

void http_roll_set_job(struct http_exchange *x, struct job *job)
{
    (void)pthread_mutex_lock(&x->http->roll.lock);
    x->base.job = job;
    (void)pthread_mutex_unlock(&x->http->roll.lock);
}

/* ---- another exchange's thread ----------------------------------------------------------------------------------- */

/* Up to `end`; NULL: all. */
static void see_until(struct http *h, const struct http_exchange *end, http_see *see, void *arg)
{
    struct http_exchange *x;
    (void)pthread_mutex_lock(&h->roll.lock);
    for (x = TAILQ_FIRST(&h->roll.shown); x != end; x = TAILQ_NEXT(x, on_roll))
        see(arg, &x->base);
    (void)pthread_mutex_unlock(&h->roll.lock);
    mailbox_notify(h->mailboxes); /* of what http_cancel has resumed */
}

void http_see_before(struct exchange *asker, http_see *see, void *arg)
{
    struct http_exchange *me = http_exchange_of(asker);
    assert(me->is_shown);
    see_until(me->http, me, see, arg);
}

void http_see_all(struct http *h, http_see *see, void *arg)
{
    see_until(h, NULL, see, arg);
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
