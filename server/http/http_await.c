/* http_await.c - an exchange that waits for a job: what resumes it and what cancels the job. See http.h.
 * The functions run on the exchange's HTTP thread, but watch_exchange on the watcher's: it reads what was constant when
 * the watch was added, and `spoke_ns`. Lock order: watcher -> job -> MHD. */
#include "server/http/http.h"

#include <assert.h>

#include "server/core/clock.h"
#include "server/core/mailbox.h"
#include "server/http/http_inner.h"
#include "server/job/job.h"

static uint64_t note_event(struct exchange *x, enum watch_event event, uint64_t now_ns)
{
    const uint64_t ping_ns = x->settings->ping_ms * CLOCK_NS_PER_MS;
    const uint64_t spoke_ns = atomic_load_explicit(&x->spoke_ns, memory_order_relaxed);
    uint64_t next_ns = x->job->deadline_ns;
    if (event == WATCH_CLIENT_LEFT)
        job_cancel(x->job, ERR_CANCELLED);
    if (now_ns >= x->job->deadline_ns) {
        job_cancel(x->job, ERR_TIMEOUT);
        next_ns = 0;
    }
    if (spoke_ns == 0)
        return next_ns;
    uint64_t due_ns = spoke_ns + ping_ns;
    if (now_ns >= due_ns) {
        job_ping(x->job);
        due_ns = now_ns + ping_ns;
    }
    return next_ns == 0 || due_ns < next_ns ? due_ns : next_ns;
}

static uint64_t watch_exchange(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct exchange *x = arg;
    const uint64_t next_ns = note_event(x, event, now_ns);
    mailbox_notify(x->http->mailboxes);
    return next_ns;
}

void http_go_on(struct exchange *x)
{
    if (job_await(x->job))
        x->next(x);
}

void http_await(struct exchange *x, struct job *job, http_handler *next)
{
    assert(x->job == NULL);
    job_reference(job);
    x->job = job;
    x->next = next;
    job_attach(job, &x->waiter);
    x->watch = (struct watch){.notify = watch_exchange, .arg = x, .fd = x->fd, .due_ns = job->deadline_ns};
    if (watcher_add(x->watcher, &x->watch) != OK)
        job_cancel(job, ERR_NOMEM); /* unwatched it could outlive its client */
    http_go_on(x);
}

void http_watch_silence(struct exchange *x)
{
    const uint64_t ping_ns = clock_now_ns() + x->settings->ping_ms * CLOCK_NS_PER_MS;
    if (x->watch.is_added)
        watcher_set_time(x->watcher, &x->watch, ping_ns < x->job->deadline_ns ? ping_ns : x->job->deadline_ns);
}
