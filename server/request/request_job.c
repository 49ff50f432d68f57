/* request_job.c - see request_job.h. */
#include "server/request/request_job.h"

#include <stdio.h>
#include <stdlib.h>

#include "config/settings.h"
#include "server/access/auth.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/request/authorise.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/service.h"
#include "server/request/workers.h"

static void refuse_full(struct request *x)
{
    (void)reply_refuse(x, ERR_FULL, "", "the queue is full: %u jobs are waiting", x->service->settings->queue_jobs_max);
}

bool request_job_refuse_if_full(struct request *x)
{
    if (queue_has_room(x->service->queue, &x->client))
        return false;
    refuse_full(x);
    return true;
}

void *request_job_begin(struct request *x, size_t bytes, void (*state_free)(void *state))
{
    if (request_job_refuse_if_full(x))
        return NULL;
    x->state = calloc(1, bytes);
    x->state_free = state_free;
    if (x->state == NULL)
        (void)reply_refuse(x, ERR_NOMEM, "", "out of memory for the request; try again later");
    return x->state;
}

void request_job_charge_pixels(struct request *x, uint64_t pixels)
{
    const uint64_t least = pixels / PICTURE_BLOCK_PIXELS, received = x->body.received;
    x->picture_bytes = least > received ? least - received : 0;
}

/* The client with whose jobs this one may share prompt prefixes: its key. Without keys all clients count as one. */
static struct client_id prefix_owner(const struct request *x)
{
    return x->service->settings->prefix_cache_shared ? (struct client_id){.kind = CLIENT_UNKNOWN}
                                                     : auth_client_id(&x->grant);
}

static enum status submit(const struct service *s, struct job *j, uint64_t deadline_ns, struct error *err)
{
    const bool needs_engine = j->kind != &job_kind_work;
    j->item.cost = j->engine_cost;
    if (j->work == NULL || (j->work->prepare == NULL && j->work->conclude == NULL))
        return job_submit(j, s->queue, j->model->lane, deadline_ns);
    return workers_submit(j->work->commits ? s->keepers : s->workers, j, needs_engine ? s->queue : NULL,
                          needs_engine ? j->model->lane : 0, deadline_ns, err);
}

void request_job_submit(struct request *x, struct job *j, request_handler *next)
{
    const struct service *s = x->service;
    const uint64_t timeout_ms = x->timeout_ms != 0 ? x->timeout_ms : s->settings->timeout_ms;
    struct error err;
    if (authorise_priority(x, j->item.priority, &err) != OK) {
        job_release(j);
        reply_send_error(x, &err);
        return;
    }
    if (!authorise_job(x, j)) {
        job_release(j);
        return;
    }
    if (request_reserve_answer(x, j->answer_bytes, &err) != OK) {
        authorise_no_job(x);
        job_release(j);
        reply_send_error(x, &err);
        return;
    }
    j->keeps_prefixes = true;
    j->prefix_owner = prefix_owner(x);
    j->item.client = x->client;
    (void)error_set(&err, ERR_UNAVAILABLE, "the server is shutting down");
    const enum status st = submit(s, j, x->received_ns + timeout_ms * CLOCK_NS_PER_MS, &err);
    if (st == OK)
        request_await(x, j, next);
    else
        authorise_no_job(x);
    if (st == ERR_FULL)
        refuse_full(x);
    else if (st != OK)
        reply_send_error(x, &err);
    job_release(j);
}

void request_job_submit_or_refuse(struct request *x, enum status st, const struct error *err, struct job *j,
                                  request_handler *next)
{
    if (st == OK) {
        request_drop_body(x);
        request_job_submit(x, j, next);
    } else {
        job_release(j);
        reply_send_error(x, err);
    }
}

json_t *request_job_timings(const struct request *x)
{
    const struct job_result *r = job_result(x->job);
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "queue_ms", reply_milliseconds(r->queued_ns, r->started_ns),
                     "prefill_ms", reply_milliseconds(r->started_ns, r->first_ns), "decode_ms",
                     reply_milliseconds(r->first_ns, r->done_ns), "total_ms",
                     reply_milliseconds(x->received_ns, r->done_ns), "first_byte_ms",
                     reply_milliseconds(x->received_ns, r->first_ns));
}

void request_job_note_times(struct request *x)
{
    const struct job_result *r = job_result(x->job);
    x->queue_ms = reply_milliseconds(r->queued_ns, r->started_ns != 0 ? r->started_ns : r->done_ns);
    x->compute_ms = reply_milliseconds(r->started_ns, r->computed_ns != 0 ? r->computed_ns : r->done_ns);
}

bool request_job_ended_well(struct request *x)
{
    request_job_note_times(x);
    if (job_result(x->job)->status == OK)
        return true;
    reply_send_job_error(x, x->job);
    return false;
}

void request_job_tell_dropped(struct request *x)
{
    char count[16];
    const uint32_t dropped = x->job != NULL ? x->job->dropped : 0;
    if (dropped == 0)
        return;
    (void)snprintf(count, sizeof count, "%u", dropped);
    request_add_header(x, "X-Prompt-Tokens-Dropped", count);
}
