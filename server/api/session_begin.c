/* session_begin.c - POST /v1/sessions, PUT /v1/sessions/ID: a text that the daemon keeps, for /generate to continue.
 * HTTP threads. It begins with a prompt, which the engine is fed except for its last byte (that stays pending until
 * more follows), with a state, or with nothing. */
#include "server/api/route_table.h"

#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
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

/* The request's state. */
struct beginning {
    struct session_work *work; /* the session that is to be there */
    size_t prompt_bytes, dropped;
};

/* The id that the path of a PUT names; NULL: the daemon chooses one. */
static const char *chosen_id(const struct request *x)
{
    return strcmp(x->method, "PUT") == 0 ? x->segments[0] : NULL;
}

/* A header names it too, for balancers: then it must be the same. */
static enum status check_id(const struct request *x, struct error *err)
{
    const char *id = chosen_id(x), *header = request_header(x, SESSION_HEADER);
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
static enum status read_beginning(struct generate_request *ret, const struct request *x, struct error *err)
{
    const bool is_empty = x->body.size == 0 && chosen_id(x) != NULL;
    const uint8_t *body = is_empty ? (const uint8_t *)"{}" : x->body.bytes;
    return generate_request_parse_session(ret, body, is_empty ? 2 : x->body.size, x->service->settings, err);
}

/* Browsers send it along with whatever they ask next, and a balancer may go by it; nobody here reads it. */
static void set_cookie(struct request *x, const char *id)
{
    char cookie[sizeof "aftd-session=; Path=/; HttpOnly; SameSite=Strict" + SESSION_ID_BYTES];
    (void)snprintf(cookie, sizeof cookie, "aftd-session=%s; Path=/; HttpOnly; SameSite=Strict", id);
    if (x->service->settings->session_cookie)
        request_add_header(x, "Set-Cookie", cookie);
}

/* It is there, and nobody has it yet; `info` is cleared, and let go if it is held. */
static enum status tell_created(struct request *x, struct session_info *info)
{
    const struct beginning *b = x->state;
    char location[sizeof "/v1/sessions/" + SESSION_ID_BYTES];
    (void)snprintf(location, sizeof location, "/v1/sessions/%s", info->head.id);
    request_add_header(x, "Location", location);
    request_add_header(x, SESSION_HEADER, info->head.id);
    set_cookie(x, info->head.id);
    json_t *answer = session_describe(info);
    sessions_end(x->service->sessions, info);
    const json_int_t prompt = (json_int_t)b->prompt_bytes;
    json_put(answer, "usage",
             json_pack("{s:I, s:i, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", 0, "total_tokens", prompt,
                       "prompt_tokens_dropped", (json_int_t)b->dropped));
    return reply_send_json(x, 201, answer);
}

static enum status answer_written(struct request *x, struct error *err)
{
    (void)err;
    return tell_created(x, &session_work_of(&x->job)->infos[0]);
}

/* The snapshot's memory is taken on OK. */
static enum status reply_created(struct request *x, struct stream_snapshot *snapshot, struct error *err)
{
    struct session_work *k = ((struct beginning *)x->state)->work;
    const enum status st =
        sessions_add(k->sessions, &x->client, chosen_id(x), x->job.model, snapshot, &k->infos[0], err);
    if (st != OK)
        return st;
    *snapshot = (struct stream_snapshot){.memory = NULL}; /* the session's */
    return k->infos[0].held != NULL ? session_work_run(x, k, session_work_write_new, answer_written, err)
                                    : tell_created(x, &k->infos[0]);
}

/* The prompt has been fed. */
static enum status answer_fed(struct request *x, struct error *err)
{
    return reply_created(x, &generate_job_of(&x->job)->saved, err);
}

/* Begins the job that feeds the prompt, or sets the work's snapshot, where the session begins. */
static enum status preprocess(struct request *x, struct generate_request *r, struct error *err)
{
    struct beginning *b = x->state;
    struct stream_snapshot *snapshot = &b->work->snapshot;
    struct hosted_model *e;
    enum status st = request_model_acquire(x, r->model[0] != '\0' ? r->model : NULL, TASK_TEXT_GENERATION, &e, err);
    if (st == OK) /* although nothing may have to be fed, and nothing to wait for a turn */
        st = authorise_priority(x, r->in.priority, err);
    if (st == OK)
        st = sessions_check(x->service->sessions, &x->client, e, 1, err);
    if (st != OK)
        return st;
    if (r->state != NULL) {
        st = generate_state_open(snapshot, r->state, r->state_size, e, err);
        if (st == OK)
            st = generate_state_take_options(r, &snapshot->sampler.options, err);
        snapshot->sampler.options = r->in.sampler;
        return st;
    }
    st = generate_check_room(&r->in, e, err);
    if (st != OK)
        return st;
    b->prompt_bytes = r->in.prompt_bytes;
    const size_t kept = generate_state_kept(&r->in, e);
    b->dropped = r->in.prompt_bytes - kept;
    if (kept <= 1)
        return generate_state_begin(snapshot, &r->in, e, err);
    st = generate_begin(&x->job, &r->in, 1, err);
    if (st == OK)
        r->in.prompt = NULL; /* the job's now */
    return st;
}

enum status api_sessions_create(struct request *x, struct error *err)
{
    struct generate_request r = {0};
    struct beginning *b = x->state = job_alloc(&x->job, sizeof *b, err);
    enum status st = b != NULL ? session_work_create(&b->work, x, 1, err) : ERR_NOMEM;
    if (st == OK)
        st = check_id(x, err);
    if (st == OK)
        st = read_beginning(&r, x, err);
    if (st == OK)
        st = preprocess(x, &r, err);
    x->timeout_ms = r.timeout_ms;
    if (st == OK)
        st = x->job.kind != NULL ? request_job_made(x, answer_fed) : reply_created(x, &b->work->snapshot, err);
    generate_request_clear(&r);
    return st;
}
