/* await.c - a request that waits for a job: what resumes it and what cancels the job. See request.h.
 * The functions run on the request's HTTP thread, except watch_request, which runs on the watcher's: it reads only
 * what has been constant since the watch was added, and `spoke_ns`; and suspend and resume, which are called under the
 * job's lock. Lock order: watcher -> job -> the library or a mailbox. */

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/request/request_inner.h"
#include "server/request/service.h"

/* Pings come after this much silence. */
static uint64_t ping_ns_of(const struct request *x)
{
    return x->service->settings->ping_ms * CLOCK_NS_PER_MS;
}

static uint64_t note_event(struct request *x, enum watch_event event, uint64_t now_ns)
{
    struct job *j = &x->job;
    const uint64_t ping_ns = ping_ns_of(x), spoke_ns = atomic_load_explicit(&x->spoke_ns, memory_order_relaxed);
    uint64_t next_ns = j->deadline_ns;
    if (event == WATCH_CLIENT_LEFT)
        job_cancel(j, ERR_CLIENT_GONE);
    if (now_ns >= j->deadline_ns) {
        job_cancel(j, ERR_TIMEOUT);
        next_ns = 0;
    }
    if (spoke_ns == 0)
        return next_ns;
    uint64_t due_ns = spoke_ns + ping_ns;
    if (now_ns >= due_ns) {
        job_ping(j);
        due_ns = now_ns + ping_ns;
    }
    return next_ns == 0 || due_ns < next_ns ? due_ns : next_ns;
}

static uint64_t watch_request(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct request *x = arg;
    const uint64_t next_ns = note_event(x, event, now_ns);
    mailbox_notify(x->http->mailboxes);
    return next_ns;
}

static void suspend(void *arg)
{
    MHD_suspend_connection(((struct request *)arg)->mhd);
}

/* Its own thread will do it, once mailbox_notify wakes it. */
static void resume(void *arg)
{
    struct request *x = arg;
    mailbox_post(x->http->mailboxes, x->connection->loop->box, &x->mail.item);
}

void request_watch_job(struct request *x, request_step *next)
{
    const struct job_waiter waiter = {suspend, resume, x};
    struct job *j = &x->job;
    x->step = next;
    job_attach(j, &waiter);
    x->watch = (struct watch){.notify = watch_request, .arg = x, .fd = x->connection->fd, .due_ns = j->deadline_ns};
    if (watcher_add(x->http->watcher, &x->watch) != OK)
        job_cancel(j, ERR_NOMEM); /* unwatched it could outlive its client */
    if (job_cancelled(j) != OK)   /* before there was a job */
        job_cancel(j, job_cancelled(j));
}

bool request_ready_or_suspend(struct request *x)
{
    if (!job_ready_or_suspend(&x->job))
        return false;
    if (job_is_done(&x->job)) /* the next job has a deadline of its own */
        watcher_remove(x->http->watcher, &x->watch);
    return true;
}

void request_watch_silence(struct request *x)
{
    if (!x->watch.is_added)
        return;
    const uint64_t ping_ns = clock_now_ns() + ping_ns_of(x), deadline_ns = x->job.deadline_ns;
    watcher_set_time(x->http->watcher, &x->watch, ping_ns < deadline_ns ? ping_ns : deadline_ns);
}
