/* sessions.c - /v1/sessions: texts that the daemon keeps, for /generate to continue. HTTP threads.
 * A session begins with a prompt, which the engine is fed except for its last byte (that stays pending until more
 * follows), with a state, or with nothing. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/api/api_request.h"
#include "server/api/authorise.h"
#include "server/api/generate_state.h"
#include "server/api/reply.h"
#include "server/api/request_client.h"
#include "server/api/request_job.h"
#include "server/api/request_model.h"
#include "server/api/request_query.h"
#include "server/api/service.h"
#include "server/api/session_work.h"
#include "server/models/registry.h"
#include "server/request/generate_request.h"
#include "server/request/request_json.h"
#include "server/session/session_record.h"
#include "server/session/sessions.h"
#include "server/session/state_blob.h"

enum { SESSIONS_LISTED = 20 }; /* in one answer, unless the request says it */

/* A prompt that is being fed: the exchange's state. */
struct beginning {
    size_t prompt_bytes, dropped;
};

static struct sessions *sessions_of(const struct exchange *x)
{
    return service_of(x)->sessions;
}

/* ---- shared answers --------------------------------------------------------------------------------------------- */

/* A new one: wait_s is when there may be room for it; 0: that is not what is wrong. */
static void refuse(struct exchange *x, const struct error *err, unsigned wait_s)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%u", wait_s);
    if (wait_s > 0)
        http_add_header(x, "Retry-After", seconds);
    reply_send_error(x, err);
}

/* NULL for want of memory. */
static json_t *describe(const struct session_info *i)
{
    const struct session_place *p = &i->place;
    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "id", i->id, "model", i->model, "created",
                     (json_int_t)i->created_s, "expires_in_s", (json_int_t)i->expires_in_s, "busy", i->is_busy ? 1 : 0,
                     "position", (json_int_t)p->position, "state_bytes", (json_int_t)p->blob_bytes, "seed",
                     (json_int_t)p->seed, "turn", (json_int_t)p->turn);
}

/* Answer with the session's description, and clear `i`. */
static void reply_session(struct exchange *x, unsigned status, struct session_info *i)
{
    reply_send_json(x, status, describe(i));
    session_info_clear(i);
}

/* The session that the path names; false: it was answered with an error. */
static bool find(struct exchange *x, struct session_info *ret)
{
    const struct client_id who = request_client(x);
    struct error err;
    enum status st = sessions_find(sessions_of(x), &who, x->api->segments[0], ret, &err);
    if (st == OK)
        return true;
    reply_send_error(x, &err);
    return false;
}

/* The id that the path of a PUT names; NULL: the daemon chooses one. */
static const char *chosen_id(const struct exchange *x)
{
    return strcmp(x->method, "PUT") == 0 ? x->api->segments[0] : NULL;
}

/* A header names it too, for balancers: then it must be the same. */
static enum status check_id(const struct exchange *x, struct error *err)
{
    const char *id = chosen_id(x), *header = http_header(x, SESSION_HEADER);
    if (id == NULL)
        return OK;
    if (!session_id_is_fine(id))
        return error_set_param(err, ERR_ARGUMENT, "session",
                               "the session's id is \"%s\", expected 1 to %d letters, digits and any of -._~",
                               json_quote(id).text, SESSION_ID_MAX);
    if (header != NULL && strcmp(header, id) != 0)
        return error_set_param(err, ERR_ARGUMENT, SESSION_HEADER,
                               "the header " SESSION_HEADER " is \"%s\" and the path names \"%s\"; expected the same",
                               json_quote(header).text, id);
    return OK;
}

/* A PUT without a body begins an empty text. */
static enum status read_beginning(struct generate_request *ret, const struct exchange *x, struct error *err)
{
    const bool is_empty = x->body.size == 0 && chosen_id(x) != NULL;
    const uint8_t *body = is_empty ? (const uint8_t *)"{}" : x->body.bytes;
    return generate_request_parse_session(ret, body, is_empty ? 2 : x->body.size, service_of(x)->settings, err);
}

/* Browsers send it along with whatever they ask next, and a balancer may go by it; nobody here reads it. */
static void set_cookie(struct exchange *x, const char *id)
{
    char cookie[sizeof "aftd-session=; Path=/; HttpOnly; SameSite=Strict" + SESSION_ID_BYTES];
    (void)snprintf(cookie, sizeof cookie, "aftd-session=%s; Path=/; HttpOnly; SameSite=Strict", id);
    if (service_of(x)->settings->session_cookie)
        http_add_header(x, "Set-Cookie", cookie);
}

/* ---- POST /v1/sessions, PUT /v1/sessions/ID ------------------------------------------------------------------------------------------ */

/* It is there, and nobody has it yet; `info` is cleared, and let go if it is held. */
static void tell_created(struct exchange *x, struct session_info *info)
{
    const struct beginning *b = x->api->state;
    char location[sizeof "/v1/sessions/" + SESSION_ID_BYTES];
    (void)snprintf(location, sizeof location, "/v1/sessions/%s", info->id);
    http_add_header(x, "Location", location);
    http_add_header(x, SESSION_HEADER, info->id);
    set_cookie(x, info->id);
    json_t *answer = describe(info);
    if (info->held != NULL)
        (void)sessions_end(sessions_of(x), info, NULL);
    else
        session_info_clear(info);
    const json_int_t prompt = (json_int_t)b->prompt_bytes;
    if (json_object_set_new(answer, "usage",
                            json_pack("{s:I, s:i, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", 0,
                                      "total_tokens", prompt, "prompt_tokens_dropped", (json_int_t)b->dropped)) != 0) {
        json_decref(answer);
        answer = NULL;
    }
    reply_send_json(x, 201, answer);
}

static void answer_written(struct exchange *x)
{
    struct session_work *k = session_work_done(x);
    if (k != NULL)
        tell_created(x, &k->infos[0]);
}

/* The snapshot's memory is taken. */
static void reply_created(struct exchange *x, struct stream_snapshot *snapshot)
{
    const struct client_id who = request_client(x);
    struct session_info info;
    struct error err;
    unsigned wait_s = 0;
    struct session_work *k = session_work_create(x, 1);
    enum status st = k != NULL ? OK : error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK)
        st = sessions_add(sessions_of(x), &who, chosen_id(x), x->api->hosted, snapshot, &info, &wait_s, &err);
    if (st != OK) {
        session_work_free(k);
        stream_snapshot_clear(snapshot);
        refuse(x, &err, wait_s);
        return;
    }
    *snapshot = (struct stream_snapshot){.memory = NULL}; /* the session's */
    if (info.held == NULL) {
        session_work_free(k);
        tell_created(x, &info);
        return;
    }
    k->infos[0] = info;
    session_work_run(x, k, session_work_write_new, answer_written);
}

/* The prompt has been fed. */
static void answer_fed(struct exchange *x)
{
    struct job *j = x->job;
    request_job_note_times(x);
    if (job_result(j)->status != OK)
        reply_send_job_error(x, j);
    else
        reply_created(x, &generate_job_of(j)->saved);
}

/* *job: the job that feeds the prompt; left NULL if *snapshot is where the session begins. */
static enum status prepare(struct exchange *x, struct generate_request *r, struct beginning *b, struct job **job,
                           struct stream_snapshot *snapshot, unsigned *wait_s, struct error *err)
{
    const struct client_id who = request_client(x);
    struct hosted_model *e;
    enum status st = request_model_acquire(x, r->model[0] != '\0' ? r->model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st == OK) /* although nothing may have to be fed, and nothing to wait for a turn */
        st = authorise_priority(x, r->in.priority, err);
    if (st == OK)
        st = sessions_check(sessions_of(x), &who, e, 1, wait_s, err);
    if (st != OK)
        return st;
    if (r->state != NULL) {
        st = generate_state_open(snapshot, r->state, r->state_size, e, err);
        if (st != OK)
            return st;
        st = generate_state_take_options(r, &snapshot->sampler.options, err);
        snapshot->sampler.options = r->in.sampler;
        if (st != OK)
            stream_snapshot_clear(snapshot);
        return st;
    }
    b->prompt_bytes = r->in.prompt_bytes;
    b->dropped = r->in.prompt_bytes - generate_state_kept(&r->in, e);
    if (!generate_state_feeds(&r->in, e))
        return generate_state_begin(snapshot, &r->in, e, err);
    if (generate_job_create(job, e, &r->in, 1) != OK)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    r->in.prompt = NULL; /* the job's now */
    return OK;
}

void api_sessions_create(struct exchange *x)
{
    struct generate_request r = {0};
    struct stream_snapshot snapshot = {.memory = NULL};
    struct job *j = NULL;
    struct error err;
    unsigned wait_s = 0;
    if (request_job_refuse_if_full(x))
        return;
    struct beginning *b = calloc(1, sizeof *b);
    x->api->state = b;
    x->api->state_free = free;
    if (b == NULL) {
        (void)error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
        reply_send_error(x, &err);
        return;
    }
    enum status st = check_id(x, &err);
    if (st == OK)
        st = read_beginning(&r, x, &err);
    if (st == OK)
        st = prepare(x, &r, b, &j, &snapshot, &wait_s, &err);
    if (st != OK) {
        refuse(x, &err, wait_s);
    } else if (j == NULL) {
        reply_created(x, &snapshot);
    } else {
        http_drop_body(x);
        request_job_submit(x, j, r.timeout_ms, answer_fed);
    }
    generate_request_clear(&r);
}

/* ---- GET /v1/sessions ------------------------------------------------------------------------------------------- */

struct list_request {
    int64_t limit, before;
};
static const struct field list_table[] = {
    {"limit", FIELD_INTEGER, .offset = offsetof(struct list_request, limit), FIELD_RANGE(1, SESSIONS_LISTED_MAX)},
    {"before", FIELD_INTEGER, .offset = offsetof(struct list_request, before), FIELD_RANGE(1, SEED_MAX)},
};
const struct field_list sessions_query = {list_table, 2};

static enum status read_list(struct list_request *ret, struct exchange *x, struct error *err)
{
    json_t *query = NULL;
    enum status st = request_query_parse(&query, list_table, 2, x, err);
    if (st == OK)
        st = fields_read(list_table, 2, query, service_of(x)->settings, ret, err);
    json_decref(query);
    return st;
}

/* NULL for want of memory. */
static json_t *describe_page(struct exchange *x, const struct list_request *r, struct session_info *infos)
{
    const struct client_id who = request_client(x);
    uint64_t next = 0, total = 0;
    const size_t count =
        sessions_list(sessions_of(x), &who, (uint64_t)r->before, (size_t)r->limit, infos, &next, &total);
    json_t *list = json_array();
    int failed = list == NULL;
    for (size_t i = 0; i < count; i++) {
        failed |= json_array_append_new(list, describe(&infos[i]));
        session_info_clear(&infos[i]);
    }
    json_t *page = failed == 0 ? json_pack("{s:O, s:I, s:o}", "sessions", list, "total", (json_int_t)total, "next",
                                           next != 0 ? json_integer((json_int_t)next) : json_null())
                               : NULL;
    json_decref(list);
    return page;
}

/* Without keys an id is all that protects a session: many clients may share an address, as behind a proxy. */
static enum status check_key(const struct exchange *x, struct error *err)
{
    if (x->api->grant.key != NULL)
        return OK;
    return error_set(
        err, ERR_FORBIDDEN,
        "sessions are listed for those of a key, and this daemon needs none (keys_file): whoever shares an "
        "address would see the ids of others; keep those that POST /v1/sessions gives you");
}

void api_sessions(struct exchange *x)
{
    struct list_request r = {.limit = SESSIONS_LISTED};
    struct error err;
    enum status st = check_key(x, &err);
    if (st == OK)
        st = read_list(&r, x, &err);
    if (st != OK) {
        reply_send_error(x, &err);
        return;
    }
    struct session_info *infos = calloc((size_t)r.limit, sizeof *infos);
    reply_send_json(x, 200, infos != NULL ? describe_page(x, &r, infos) : NULL);
    free(infos);
}

/* ---- with its state ---------------------------------------------------------------------------------------------- */

typedef void session_use(struct exchange *x, const struct session_info *i);

/* What is to be done once the state was fetched: the exchange's state. */
struct fetching {
    session_use *use;
};

static void fetched(struct exchange *x)
{
    const struct fetching *f = x->api->state;
    struct session_work *k = session_work_done(x);
    if (k != NULL)
        f->use(x, &k->infos[0]);
}

/* Use the session that the path names, with its state, which may have to be fetched; or answer why not. */
static void with_state(struct exchange *x, session_use *use)
{
    struct session_info info;
    struct error err;
    if (!find(x, &info))
        return;
    if (info.state != NULL) {
        use(x, &info);
        session_info_clear(&info);
        return;
    }
    struct fetching *f = malloc(sizeof *f);
    struct session_work *k = session_work_create(x, 1);
    if (f == NULL || k == NULL) {
        free(f);
        session_work_free(k);
        session_info_clear(&info);
        (void)error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
        reply_send_error(x, &err);
        return;
    }
    f->use = use;
    x->api->state = f;
    x->api->state_free = free;
    k->infos[0] = info;
    session_work_run(x, k, session_work_fetch, fetched);
}

/* ---- one session ------------------------------------------------------------------------------------------------ */

void api_session(struct exchange *x)
{
    struct session_info info;
    if (find(x, &info))
        reply_session(x, 200, &info);
}

void api_session_delete(struct exchange *x)
{
    const struct client_id who = request_client(x);
    struct error err;
    if (sessions_remove(sessions_of(x), &who, x->api->segments[0], &err) == OK)
        http_reply(x, 204, NULL, NULL, 0);
    else
        reply_send_error(x, &err);
}

/* ---- POST /v1/sessions/ID/fork ---------------------------------------------------------------------------------- */

struct fork_request {
    int64_t n;
};
static const struct field fork_table[] = {
    {"n", FIELD_INTEGER, .offset = offsetof(struct fork_request, n), FIELD_RANGE(1, SESSION_FORKS_MAX)}};
const struct field_list fork_fields = {fork_table, 1};

/* The number of forks; 1 if there is no body. */
static enum status read_fork(const struct exchange *x, size_t *n, struct error *err)
{
    struct fork_request f = {.n = 1};
    json_t *object = NULL;
    enum status st = x->body.size > 0 ? request_json_parse(&object, x->body.bytes, x->body.size, err) : OK;
    if (st == OK && object != NULL)
        st = fields_read(fork_table, 1, object, service_of(x)->settings, &f, err);
    json_decref(object);
    *n = (size_t)f.n;
    return st;
}

static void list_forks(struct exchange *x, struct session_info *forks, size_t n)
{
    json_t *list = json_array();
    bool fine = list != NULL;
    for (size_t i = 0; i < n; i++) {
        fine = fine && json_array_append_new(list, describe(&forks[i])) == 0;
        if (forks[i].held != NULL)
            (void)sessions_end(sessions_of(x), &forks[i], NULL);
        else
            session_info_clear(&forks[i]);
    }
    reply_send_json(x, 201, fine ? json_pack("{s:O}", "sessions", list) : NULL);
    json_decref(list);
}

static void forks_written(struct exchange *x)
{
    struct session_work *k = session_work_done(x);
    if (k == NULL)
        return;
    if (k->parent.held != NULL)
        (void)sessions_end(k->sessions, &k->parent, NULL);
    list_forks(x, k->infos, k->count);
}

/* `of` has its state. */
static void fork_session(struct exchange *x, const struct session_info *of)
{
    const struct client_id who = request_client(x);
    struct error err;
    unsigned wait_s = 0;
    size_t n = 0;
    enum status st = read_fork(x, &n, &err);
    struct session_work *k = st == OK ? session_work_create(x, n) : NULL;
    if (st == OK && k == NULL)
        st = error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK)
        st = authorise_model(x, of->model, &err);
    if (st == OK)
        st = sessions_fork(sessions_of(x), &who, of, n, k->infos, &k->parent, &wait_s, &err);
    if (st != OK) {
        session_work_free(k);
        refuse(x, &err, wait_s);
    } else if (sessions_are_stored(sessions_of(x))) {
        session_work_run(x, k, session_work_write_new, forks_written);
    } else {
        list_forks(x, k->infos, n);
        session_work_free(k);
    }
}

void api_session_fork(struct exchange *x)
{
    with_state(x, fork_session);
}

/* ---- /v1/sessions/ID/state -------------------------------------------------------------------------------------- */

static void send_state(struct exchange *x, const struct session_info *i)
{
    struct error err;
    uint8_t *blob;
    size_t size;
    enum status st = authorise_model(x, i->model, &err);
    if (st == OK)
        st = state_blob_make(&blob, &size, &i->snapshot, &i->identity, &err);
    if (st == OK)
        http_reply(x, 200, "application/octet-stream", (char *)blob, size);
    else
        reply_send_error(x, &err);
}

void api_session_state(struct exchange *x)
{
    with_state(x, send_state);
}

static void tell_moved(struct exchange *x)
{
    struct session_info info;
    if (find(x, &info))
        reply_session(x, 200, &info);
}

static void moved(struct exchange *x)
{
    struct session_work *k = session_work_done(x);
    if (k == NULL)
        return;
    session_work_let_go(k);
    tell_moved(x);
}

/* To k->snapshot. */
static void move_session(struct exchange *x, struct session_work *k)
{
    struct error err;
    if (sessions_are_stored(k->sessions)) {
        session_work_run(x, k, session_work_move, moved);
        return;
    }
    const bool fine = sessions_end(k->sessions, &k->infos[0], &k->snapshot);
    if (fine)
        k->snapshot = (struct stream_snapshot){.memory = NULL}; /* the session's */
    session_work_free(k);
    if (fine) {
        tell_moved(x);
        return;
    }
    (void)error_set(&err, ERR_NOMEM, "out of memory for the state; try again later");
    reply_send_error(x, &err);
}

/* Replace the session's state by the body. */
void api_session_put(struct exchange *x)
{
    const struct client_id who = request_client(x);
    struct session_work *k = session_work_create(x, 1);
    struct error err;
    struct hosted_model *e;
    enum status st = k != NULL ? OK : error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK)
        st = sessions_begin(k->sessions, &who, x->api->segments[0], &k->infos[0], &err);
    if (st == OK)
        st = request_model_acquire(x, k->infos[0].model, TASK_TEXT_GENERATION, &e, &err);
    if (st == OK)
        st = session_info_check_model(&k->infos[0], e, &err);
    if (st == OK)
        st = generate_state_open(&k->snapshot, x->body.bytes, x->body.size, e, &err);
    if (st == OK) {
        move_session(x, k);
        return;
    }
    session_work_free(k);
    reply_send_error(x, &err);
}
