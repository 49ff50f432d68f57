/* active_requests.c - the requests in progress as other threads see them: a list in the order in which they were shown.
 * See request.h.
 *
 * Runs on HTTP threads, and requests_see_all on the main one. The lock is held for a few instructions by those who
 * enter and leave, and by who sees all of them: a millisecond for some thousand. What is listed has not ended: the
 * request, its job and its connection stay until the lock is given up. Lock order: the list's -> watcher, the list's ->
 * job. */
#include <assert.h>

#include "server/core/clock.h"
#include "server/request/request_inner.h"
#include "server/request/requests.h"

/* ---- the request's own thread ----------------------------------------------------------------------------------- */

void request_show(struct request *x)
{
    assert(!x->is_shown);
    x->is_shown = true;
    (void)pthread_mutex_lock(&x->all->active.lock);
    TAILQ_INSERT_TAIL(&x->all->active.list, x, link);
    (void)pthread_mutex_unlock(&x->all->active.lock);
}

void active_leave(struct request *x)
{
    if (!x->is_shown)
        return;
    (void)pthread_mutex_lock(&x->all->active.lock);
    TAILQ_REMOVE(&x->all->active.list, x, link);
    (void)pthread_mutex_unlock(&x->all->active.lock);
}

/* ---- another request's thread ----------------------------------------------------------------------------------- */

/* Up to `end`; NULL: all. */
static void see_until(struct requests *all, const struct http *http, const struct request *end, request_see *see,
                      void *arg)
{
    struct request *x;
    (void)pthread_mutex_lock(&all->active.lock);
    for (x = TAILQ_FIRST(&all->active.list); x != end; x = TAILQ_NEXT(x, link))
        see(arg, x);
    (void)pthread_mutex_unlock(&all->active.lock);
    mailbox_notify(http->mailboxes); /* of what request_cancel has resumed */
}

void requests_see_before(struct request *asker, request_see *see, void *arg)
{
    assert(asker->is_shown);
    see_until(asker->all, asker->http, asker, see, arg); /* all->http may not be there yet */
}

void requests_see_all(struct requests *all, request_see *see, void *arg)
{
    see_until(all, all->http, NULL, see, arg);
}

enum request_stage request_stage(const struct request *x)
{
    return (enum request_stage)atomic_load_explicit(&x->stage, memory_order_relaxed);
}

void request_cancel(struct request *x, enum status st)
{
    const enum job_state state = job_look(&x->job).state; /* first: a stream that ends by this is not cut */
    job_cancel(&x->job, st);                              /* or the one to come, see request_watch_job */
    if ((state == JOB_NONE || state == JOB_DONE) && request_stage(x) != REQUEST_WORKING) /* as if it were late */
        watcher_set_time(x->http->watcher, &x->connection->watch, clock_now_ns());
}
