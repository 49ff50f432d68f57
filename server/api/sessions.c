/* sessions.c - /v1/sessions: texts that the daemon keeps, for /generate to continue, listed, looked at, forked,
 * moved and ended; session_begin.c makes them. HTTP threads. */
#include "server/api/route_table.h"

#include <string.h>

#include "config/json_memory.h"
#include "server/api/generate_request.h"
#include "server/api/generate_state.h"
#include "server/api/session_work.h"
#include "server/models/registry.h"
#include "server/request/authorise.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/request_job.h"
#include "server/request/request_model.h"
#include "server/request/service.h"
#include "server/session/session_record.h"
#include "server/session/sessions.h"
#include "server/session/state_blob.h"

enum { SESSIONS_LISTED = 20 }; /* in one answer, unless the request says it */

/* ---- finding one ------------------------------------------------------------------------------------------------ */

/* The session that the path names, or of a store that is shared its id alone. */
static enum status find(struct session_work **ret, struct request *x, struct error *err)
{
    const enum status st = session_work_create(ret, x, 1, err);
    return st == OK ? sessions_find((*ret)->sessions, &x->client, x->segments[0], &(*ret)->infos[0], err) : st;
}

/* ---- GET /v1/sessions ------------------------------------------------------------------------------------------- */

struct list_request {
    int64_t limit, before;
};
static const struct field list_table[] = {
    {"limit", FIELD_INTEGER, .offset = offsetof(struct list_request, limit), FIELD_RANGE(1, SESSIONS_LISTED_MAX)},
    {"before", FIELD_INTEGER, .offset = offsetof(struct list_request, before), FIELD_RANGE(1, SEED_MAX)},
};
const struct field_list sessions_query = FIELDS_OF(list_table);

/* NULL for want of memory. */
static json_t *describe_page(struct request *x, const struct list_request *r, struct session_info *infos)
{
    uint64_t next = 0, total = 0;
    const size_t count =
        sessions_list(x->service->sessions, &x->client, (uint64_t)r->before, (size_t)r->limit, infos, &next, &total);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        json_append(list, session_describe(&infos[i]));
        session_info_clear(&infos[i]);
    }
    return json_pack("{s:o, s:I, s:o}", "sessions", list, "total", (json_int_t)total, "next",
                     next != 0 ? json_integer((json_int_t)next) : json_null());
}

/* Without keys an id is all that protects a session: many clients may share an address, as behind a proxy. */
static enum status check_key(const struct request *x, struct error *err)
{
    if (sessions_are_shared(x->service->sessions))
        return error_set(err, ERR_FORBIDDEN, "sessions in a store that daemons share are not listed; keep the ids");
    if (x->grant.key != NULL)
        return OK;
    return error_set(
        err, ERR_FORBIDDEN,
        "sessions are listed for those of a key, and this daemon needs none (keys_file): whoever shares an "
        "address would see the ids of others; keep those that POST /v1/sessions gives you");
}

enum status api_sessions(struct request *x, struct error *err)
{
    struct list_request r = {.limit = SESSIONS_LISTED};
    enum status st = check_key(x, err);
    if (st == OK)
        st = fields_read(&sessions_query, x->query, x->service->settings, &r, err);
    if (st != OK)
        return st;
    struct session_info *infos = job_alloc(&x->job, (size_t)r.limit * sizeof *infos, err);
    return infos != NULL ? reply_send_json(x, 200, describe_page(x, &r, infos)) : ERR_NOMEM;
}

/* ---- using one -------------------------------------------------------------------------------------------------- */

static enum status fetched(struct request *x, struct error *err)
{
    const struct session_work *k = session_work_of(&x->job);
    return k->use(x, &k->infos[0], err);
}

/* Use the session that the path names. Its state, if that is needed, may have to be fetched. A client that reads its
 * answer slowly does not keep it in memory. */
static enum status with_session(struct request *x, bool needs_state, session_work_use *use, struct error *err)
{
    struct session_work *k;
    enum status st = find(&k, x, err);
    if (st != OK)
        return st;
    k->use = use;
    if (needs_state && k->infos[0].state == NULL)
        return session_work_run(x, k, session_work_fetch, fetched, err);
    st = use(x, &k->infos[0], err);
    session_work_let_go(k);
    return st;
}

/* ---- one session ------------------------------------------------------------------------------------------------ */

static enum status sessions_tell(struct request *x, const struct session_info *i, struct error *err)
{
    (void)err;
    return reply_send_json(x, 200, session_describe(i));
}

/* Of a store that is shared, it is asked what the session is. */
enum status api_session(struct request *x, struct error *err)
{
    return with_session(x, sessions_are_shared(x->service->sessions), sessions_tell, err);
}

static enum status removed(struct request *x, struct error *err)
{
    (void)err;
    return request_reply(x, 204, NULL, NULL, 0);
}

enum status api_session_delete(struct request *x, struct error *err)
{
    const char *id = x->segments[0];
    struct session_work *k;
    if (!sessions_are_shared(x->service->sessions) || !session_id_is_fine(id)) {
        const enum status st = sessions_remove(x->service->sessions, &x->client, id, err);
        return st == OK ? request_reply(x, 204, NULL, NULL, 0) : st;
    }
    const enum status st = find(&k, x, err);
    return st == OK ? session_work_run(x, k, session_work_remove, removed, err) : st;
}

/* ---- POST /v1/sessions/ID/fork ---------------------------------------------------------------------------------- */

struct fork_request {
    int64_t n;
};
static const struct field fork_table[] = {
    {"n", FIELD_INTEGER, .offset = offsetof(struct fork_request, n), FIELD_RANGE(1, SESSION_FORKS_MAX)}};
const struct field_list fork_fields = FIELDS_OF(fork_table);

static enum status list_forks(struct request *x, struct session_info *forks, size_t n)
{
    json_t *list = json_array();
    if (n == 1) /* as for a session that is begun; a header names one only */
        request_add_header(x, SESSION_HEADER, forks[0].head.id);
    for (size_t i = 0; i < n; i++) {
        json_append(list, session_describe(&forks[i]));
        sessions_end(x->service->sessions, &forks[i]);
    }
    return reply_send_json(x, 201, json_pack("{s:o}", "sessions", list));
}

static enum status forks_written(struct request *x, struct error *err)
{
    struct session_work *k = session_work_of(&x->job);
    (void)err;
    return list_forks(x, k->infos, k->count);
}

/* `of` has its state. */
static enum status fork_session(struct request *x, const struct session_info *of, struct error *err)
{
    struct fork_request f = {.n = 1};
    struct session_work *k;
    enum status st = request_read_fields(x, &fork_fields, &f, err);
    if (st == OK)
        st = session_work_create(&k, x, (size_t)f.n, err);
    if (st == OK)
        st = authorise_model(x, of->head.model, of->head.model, err);
    if (st == OK)
        st = sessions_fork(x->service->sessions, &x->client, of, k->count, k->infos, err);
    if (st != OK)
        return st;
    return sessions_are_stored(k->sessions) ? session_work_run(x, k, session_work_write_new, forks_written, err)
                                            : list_forks(x, k->infos, k->count);
}

enum status api_session_fork(struct request *x, struct error *err)
{
    return with_session(x, true, fork_session, err);
}

/* ---- /v1/sessions/ID/state -------------------------------------------------------------------------------------- */

static enum status send_state(struct request *x, const struct session_info *i, struct error *err)
{
    uint8_t *blob;
    size_t size;
    enum status st = authorise_model(x, i->head.model, i->head.model, err);
    if (st == OK)
        st = state_blob_make(&blob, &size, &i->snapshot, &i->head.state.identity, err);
    return st == OK ? request_reply(x, 200, "application/octet-stream", (char *)blob, size) : st;
}

enum status api_session_state(struct request *x, struct error *err)
{
    return with_session(x, true, send_state, err);
}

static enum status moved(struct request *x, struct error *err)
{
    session_work_let_go(session_work_of(&x->job));
    return api_session(x, err);
}

/* Replace the state of the session that is held by the body. */
static enum status put_state(struct request *x, struct session_work *k, struct error *err)
{
    struct session_info *i = &k->infos[0];
    struct hosted_model *e;
    enum status st = request_model_acquire(x, i->head.model, TASK_TEXT_GENERATION, &e, err);
    if (st == OK)
        st = session_info_check_model(i, e, err);
    if (st == OK)
        st = generate_state_open(&k->snapshot, x->body.bytes, x->body.size, e, err);
    if (st == OK && sessions_are_stored(k->sessions))
        return session_work_run(x, k, session_work_move, moved, err);
    if (st == OK)
        st = session_work_write(k, err);
    session_work_let_go(k);
    return st == OK ? api_session(x, err) : st;
}

static enum status put_fetched(struct request *x, struct error *err)
{
    return put_state(x, session_work_of(&x->job), err);
}

enum status api_session_put(struct request *x, struct error *err)
{
    struct session_work *k;
    enum status st = session_work_create(&k, x, 1, err);
    if (st == OK)
        st = sessions_begin(k->sessions, &x->client, x->segments[0], &k->infos[0], err);
    if (st != OK)
        return st;
    if (sessions_are_shared(k->sessions)) /* its model is not known yet */
        return session_work_run(x, k, session_work_fetch, put_fetched, err);
    return put_state(x, k, err);
}
