/* request_job.c - see request_job.h. */
#include "server/request/request_job.h"

#include <stdio.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/request/authorise.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/service.h"
#include "server/request/workers.h"

static enum status refuse_full(const struct request *x, struct error *err)
{
    return error_set(err, ERR_FULL, "the queue is full: %u jobs are waiting", x->service->settings->queue_jobs_max);
}

enum status request_job_check_room(const struct request *x, struct error *err)
{
    return queue_has_room(x->service->queue, &x->client) ? OK : refuse_full(x, err);
}

enum status request_job_made(struct request *x, request_step *next)
{
    if (!x->keeps_body)
        request_drop_body(x);
    x->is_made = true;
    x->step = next;
    return OK;
}

void request_job_charge_pixels(struct request *x, uint64_t pixels)
{
    const uint64_t least = pixels / PICTURE_BLOCK_PIXELS, received = x->body.received;
    x->picture_bytes = least > received ? least - received : 0;
}

static enum status submit(const struct service *s, struct job *j, uint64_t deadline_ns, struct error *err)
{
    const bool needs_engine = j->kind != &job_kind_work;
    j->item.cost = j->engine_cost;
    if (j->work.preprocess == NULL && j->work.postprocess == NULL)
        return job_submit(j, s->queue, j->model->lane, deadline_ns);
    return workers_submit(j->work.commits ? s->keepers : s->workers, j, needs_engine ? s->queue : NULL,
                          needs_engine ? j->model->lane : 0, deadline_ns, err);
}

enum status request_job_submit(struct request *x, struct error *err)
{
    const struct service *s = x->service;
    const uint64_t timeout_ms = x->timeout_ms != 0 ? x->timeout_ms : s->settings->timeout_ms;
    struct job *j = &x->job;
    x->is_made = false;
    j->keeps_prefixes = true;
    if (x->grant.key != NULL && !s->settings->prefix_cache_shared)
        j->prefix_owner = x->client; /* without keys all clients count as one */
    j->item.client = x->client;
    const enum status st = submit(s, j, x->received_ns + timeout_ms * CLOCK_NS_PER_MS, err);
    if (st == OK)
        request_watch_job(x, x->step);
    if (st == ERR_UNAVAILABLE)
        return error_set(err, st, "the server is shutting down");
    return st == ERR_FULL ? refuse_full(x, err) : st;
}

struct request_times request_job_times(struct request *x)
{
    const struct job_result *r = job_result(&x->job);
    if (!job_is_done(&x->job))
        return (struct request_times){0.0, 0.0};
    return (struct request_times){
        reply_milliseconds(r->queued_ns, r->started_ns != 0 ? r->started_ns : r->done_ns),
        reply_milliseconds(r->started_ns, r->computed_ns != 0 ? r->computed_ns : r->done_ns),
    };
}

json_t *request_job_timings(const struct request *x)
{
    const struct job_result *r = job_result(&x->job);
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "queue_ms", reply_milliseconds(r->queued_ns, r->started_ns),
                     "prefill_ms", reply_milliseconds(r->started_ns, r->first_ns), "decode_ms",
                     reply_milliseconds(r->first_ns, r->done_ns), "total_ms",
                     reply_milliseconds(x->received_ns, r->done_ns), "first_byte_ms",
                     reply_milliseconds(x->received_ns, r->first_ns));
}

void request_job_tell_dropped(struct request *x)
{
    char count[16];
    if (x->job.dropped == 0)
        return;
    (void)snprintf(count, sizeof count, "%u", x->job.dropped);
    request_add_header(x, "X-Prompt-Tokens-Dropped", count);
}
