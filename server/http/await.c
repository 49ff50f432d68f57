/* await.c - an exchange that waits for a job: what resumes it and what cancels the job. See http.h.
 * The functions run on the exchange's HTTP thread, except watch_exchange, which runs on the watcher's: it reads only
 * what has been constant since the watch was added, and `spoke_ns`. Lock order: watcher -> job -> MHD. */
#include <assert.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/http/http_inner.h"

/* Pings come after this much silence. */
static uint64_t ping_ns_of(const struct http_exchange *x)
{
    return x->http->settings->ping_ms * CLOCK_NS_PER_MS;
}

static uint64_t note_event(struct http_exchange *x, enum watch_event event, uint64_t now_ns)
{
    struct job *j = x->base.job;
    const uint64_t ping_ns = ping_ns_of(x), spoke_ns = atomic_load_explicit(&x->spoke_ns, memory_order_relaxed);
    uint64_t next_ns = j->deadline_ns;
    if (event == WATCH_CLIENT_LEFT)
        job_cancel(j, ERR_CANCELLED);
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

static uint64_t watch_exchange(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct http_exchange *x = arg;
    const uint64_t next_ns = note_event(x, event, now_ns);
    mailbox_notify(x->http->mailboxes);
    return next_ns;
}

void http_go_on(struct http_exchange *x)
{
    if (job_await(x->base.job))
        x->next(&x->base);
}

void http_await(struct exchange *base, struct job *job, http_handler *next)
{
    struct http_exchange *x = http_exchange_of(base);
    struct job *before = base->job;
    assert(before == NULL || job_is_done(before));
    watcher_remove(x->http->watcher, &x->watch); /* which looks at that job */
    job_reference(job);
    http_roll_set_job(x, job);
    if (before != NULL) {
        job_detach(before);
        job_release(before);
    }
    x->next = next;
    job_attach(job, &x->waiter);
    x->watch = (struct watch){.notify = watch_exchange, .arg = x, .fd = x->connection->fd, .due_ns = job->deadline_ns};
    if (watcher_add(x->http->watcher, &x->watch) != OK)
        job_cancel(job, ERR_NOMEM); /* unwatched it could outlive its client */
    const enum status cancelled = (enum status)atomic_load_explicit(&x->cancelled, memory_order_relaxed);
    if (cancelled != OK)
        job_cancel(job, cancelled);
    http_go_on(x);
}

void http_watch_silence(struct http_exchange *x)
{
    if (!x->watch.is_added)
        return;
    const uint64_t ping_ns = clock_now_ns() + ping_ns_of(x), deadline_ns = x->base.job->deadline_ns;
    watcher_set_time(x->http->watcher, &x->watch, ping_ns < deadline_ns ? ping_ns : deadline_ns);
}
