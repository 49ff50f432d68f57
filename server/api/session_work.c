/* session_work.c - see session_work.h. */
#include "server/api/session_work.h"

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/operation/generate.h"
#include "server/request/request.h"
#include "server/request/service.h"

#define STORED_NS (2 * WORKERS_AT_ONCE_NS) /* about, to read or write one; in any case not for an HTTP thread to do */

static void let_go(void *work)
{
    struct session_work *k = work;
    session_work_let_go(k);
    stream_snapshot_clear(&k->snapshot);
}

enum status session_work_create(struct session_work **ret, struct request *x, size_t count, struct error *err)
{
    struct session_work *k = job_alloc(&x->job, sizeof *k + count * sizeof k->infos[0], err);
    if (k == NULL || job_defer(&x->job, let_go, k, err) != OK)
        return ERR_NOMEM;
    k->sessions = x->service->sessions;
    k->client = x->client;
    k->count = count;
    *ret = k;
    return OK;
}

void session_work_let_go(struct session_work *k)
{
    for (size_t i = 0; k != NULL && i < k->count; i++)
        sessions_end(k->sessions, &k->infos[i]);
}

enum status session_work_write(struct session_work *k, struct error *err)
{
    const enum status st = sessions_write(k->sessions, &k->infos[0], &k->snapshot, err);
    if (st == OK)
        k->snapshot = (struct stream_snapshot){.memory = NULL}; /* the session's */
    return st;
}

/* ---- in the pool ------------------------------------------------------------------------------------------------ */

enum status session_work_fetch(struct job *j, struct error *err)
{
    struct session_work *k = session_work_of(j);
    return sessions_fetch(k->sessions, &k->infos[0], err);
}

enum status session_work_write_new(struct job *j, struct error *err)
{
    struct session_work *k = session_work_of(j);
    return sessions_write_new(k->sessions, k->infos, k->count, err);
}

enum status session_work_move(struct job *j, struct error *err)
{
    return session_work_write(session_work_of(j), err);
}

enum status session_work_remove(struct job *j, struct error *err)
{
    const struct session_work *k = session_work_of(j);
    return sessions_remove(k->sessions, &k->client, k->infos[0].head.id, err);
}

/* A text that can be read to its end moves its session; the job keeps its own copy of the state, which may be asked
 * for. */
static enum status move_behind_text(struct job *j, struct error *err)
{
    struct session_work *k = session_work_of(j);
    const struct generate_job *g = generate_job_of(j);
    if (!generate_settle(j, j->work.finish) || !g->has_saved)
        return OK;
    const enum status st = stream_snapshot_copy(&k->snapshot, &g->saved, err);
    return st == OK ? session_work_move(j, err) : st;
}

/* ---- HTTP threads ----------------------------------------------------------------------------------------------- */

void session_work_follow(struct session_work *k, struct job *j)
{
    j->work.arg = k;
    if (sessions_are_stored(k->sessions)) {
        j->work.postprocess = move_behind_text;
        j->work.postprocess_ns = STORED_NS;
        j->work.commits = true;
    }
}

enum status session_work_run(struct request *x, struct session_work *k, session_work_do *postprocess,
                             request_step *next, struct error *err)
{
    const struct service *s = x->service;
    struct job *j = &x->job;
    if (job_begin(j, &job_kind_work, 0, err) == NULL)
        return ERR_NOMEM;
    j->work.arg = k;
    j->work.postprocess = postprocess;
    j->work.postprocess_ns = STORED_NS;
    j->item.client = x->client;
    const uint64_t deadline_ns = x->received_ns + s->settings->timeout_ms * CLOCK_NS_PER_MS;
    const enum status st = workers_submit(s->keepers, j, NULL, 0, deadline_ns, err);
    if (st == OK) {
        request_watch_job(x, next);
        return OK;
    }
    if (st == ERR_FULL)
        return error_set(err, st, "too many requests wait for stored sessions; try again later");
    return st == ERR_UNAVAILABLE ? error_set(err, st, "the server is shutting down") : st;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

json_t *session_describe(const struct session_info *i)
{
    const struct session_head *h = &i->head;
    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "id", h->id, "model", h->model, "created",
                     (json_int_t)h->created_s, "expires_in_s", (json_int_t)i->expires_in_s, "busy", i->is_busy ? 1 : 0,
                     "position", (json_int_t)h->state.position + h->state.pending_count, "state_bytes",
                     (json_int_t)h->blob_bytes, "seed", (json_int_t)h->state.seed, "turn", (json_int_t)h->turn);
}
