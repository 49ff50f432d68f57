/* api.c - see api.h. */
#include "server/api/api.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "server/access/auth.h"
#include "server/api/authorise.h"
#include "server/batch/batcher.h"
#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/core/text.h"
#include "server/job/job.h"
#include "server/models/registry.h"

enum status api_use_model(struct exchange *x, struct hosted_model *e, struct error *err)
{
    const enum status st = authorise_model(x, e->model->name, err);
    if (st != OK)
        return st;
    hosted_model_reference(e);
    x->api->hosted = e;
    x->api->model = e->metrics_label;
    return OK;
}

static enum status pick_named_for_key(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                      struct error *err)
{
    char bare[MODEL_NAME_MAX + 1]; /* keys are of models, whatever their versions */
    registry_name_of(bare, name);
    enum status st = authorise_model(x, bare, err);
    if (st == OK)
        st = registry_acquire_for(api_service(x)->registry, name, task, ret, err);
    if (st == ERR_NOT_FOUND || st == ERR_ARGUMENT)
        st = error_set_param(err, st, "model", "the model \"%s\" is not there, or is not for this",
                             json_quote(name).text);
    return st;
}

/* For a key of some models: the one that it means without naming it, and errors that tell of no others. */
static enum status pick_for_key(struct exchange *x, const char *name, int task, struct hosted_model **ret,
                                struct error *err)
{
    const struct key *k = x->api->grant.key;
    struct hosted_model *only = NULL;
    struct error why;
    enum status st = OK;
    size_t found = 0;
    if (name != NULL)
        return pick_named_for_key(x, name, task, ret, err);
    for (size_t i = 0; i < k->model_count; i++) {
        struct hosted_model *e = NULL;
        struct error wrong;
        const enum status picked = registry_acquire_for(api_service(x)->registry, k->models[i], task, &e, &wrong);
        if (picked == ERR_NOT_FOUND || picked == ERR_ARGUMENT)
            continue;
        hosted_model_release(only);
        only = e;
        st = picked;
        why = wrong;
        found++;
    }
    if (found == 1 && st == OK) {
        *ret = only;
        return OK;
    }
    hosted_model_release(only);
    if (found == 1)
        return error_set_param(err, st, why.param, "%s", why.message);
    return error_set_param(err, ERR_ARGUMENT, "model", "\"model\" is missing and the key \"%s\" may use %zu for this",
                           k->name, found);
}

enum status api_pick_model(struct exchange *x, const char *name, int task, struct hosted_model **ret, struct error *err)
{
    struct hosted_model *e = NULL;
    enum status st = x->api->grant.key != NULL && x->api->grant.key->model_count > 0
                         ? pick_for_key(x, name, task, &e, err)
                         : registry_acquire_for(api_service(x)->registry, name, task, &e, err);
    assert(st != OK || e != NULL);
    if (st == OK)
        st = api_use_model(x, e, err);
    if (st == OK)
        *ret = e; /* the exchange holds it now */
    hosted_model_release(e);
    return st;
}

static void refuse_full(struct exchange *x)
{
    struct error err;
    (void)error_set(&err, ERR_FULL, "the queue is full: %u jobs are waiting", api_service(x)->settings->queue_jobs_max);
    api_refuse(x, &err);
}

bool api_refuse_if_full(struct exchange *x)
{
    const struct service *s = api_service(x);
    if (queue_count(s->queue) < s->settings->queue_jobs_max)
        return false;
    refuse_full(x);
    return true;
}

/* Whose prompts a job's may begin with. Where the daemon asks for no keys all clients are one. */
static const char *prefix_owner(const struct exchange *x)
{
    const char *name = api_service(x)->settings->prefix_cache_shared ? NULL : auth_name(&x->api->grant);
    return name != NULL ? name : "";
}

void api_submit(struct exchange *x, struct job *j, uint32_t timeout_ms, http_handler *next)
{
    const uint64_t deadline_ns = x->received_ns + timeout_ms * CLOCK_NS_PER_MS;
    if (!authorise_job(x, j)) {
        job_release(j);
        return;
    }
    if (j->kind == JOB_GENERATE)
        job_keep_prefixes(j, prefix_owner(x));
    const enum status st = job_submit(j, api_service(x)->queue, j->model->lane, deadline_ns);
    if (st == OK)
        http_await(x, j, next);
    else
        authorise_no_job(x);
    if (st == ERR_FULL) {
        refuse_full(x);
    } else if (st != OK) {
        struct error err;
        (void)error_set(&err, st, "the server is shutting down");
        api_refuse(x, &err);
    }
    job_release(j);
}

void api_submit_or_refuse(struct exchange *x, enum status st, const struct error *err, struct job *j,
                          uint32_t timeout_ms, http_handler *next)
{
    if (st == OK) {
        http_drop_body(x);
        api_submit(x, j, timeout_ms, next);
    } else {
        job_release(j);
        api_refuse(x, err);
    }
}

double api_milliseconds(uint64_t from_ns, uint64_t to_ns)
{
    return round(clock_ms_between(from_ns, to_ns) * 1000.0) / 1000.0;
}

json_t *api_timings(const struct exchange *x)
{
    const struct job_result *r = job_result(x->job);
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "queue_ms", api_milliseconds(r->queued_ns, r->started_ns),
                     "prefill_ms", api_milliseconds(r->started_ns, r->first_ns), "decode_ms",
                     api_milliseconds(r->first_ns, r->done_ns), "total_ms",
                     api_milliseconds(x->received_ns, r->done_ns), "first_byte_ms",
                     api_milliseconds(x->received_ns, r->first_ns));
}

void api_note_times(struct exchange *x)
{
    const struct job_result *r = job_result(x->job);
    x->api->queue_ms = api_milliseconds(r->queued_ns, r->started_ns != 0 ? r->started_ns : r->done_ns);
    x->api->compute_ms = api_milliseconds(r->started_ns, r->done_ns);
}
