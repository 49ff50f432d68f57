/* phases.c - see phases.h. Each phase waits until it is ready, and is then a step: unless that has answered, or returns
 * an error, which is answered, the next one follows. A request that waits is run again from the same phase. */
#include "server/request/phases.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/core/metrics.h"
#include "server/request/authorise.h"
#include "server/request/cors.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/request_head.h"
#include "server/request/request_host.h"
#include "server/request/request_inner.h"
#include "server/request/request_job.h"
#include "server/request/route.h"
#include "server/request/service.h"

/* ---- before the body ----------------------------------------------------------------------------------------------
 * If a body follows, an answer here keeps it from being read, at the cost of the connection. */

static enum status check_framing(struct request *x, struct error *err)
{
    const enum status st = request_check_framing(x, err);
    if (st != OK)
        x->closes = true;
    return st;
}

/* Without a body nothing would be saved by an answer before the library has seen its end. */
static bool has_body_or_end(struct request *x)
{
    return x->has_body || x->is_received;
}

/* Does `path` match `pattern`? Then the segments in place of {} are copied to x->segments. */
static bool path_matches(const char *pattern, const char *path, struct request *x)
{
    unsigned segment = 0;
    while (*pattern != '\0') {
        if (pattern[0] != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        const size_t size = strcspn(path, "/");
        if (size == 0 || size >= sizeof x->segments[segment])
            return false;
        memcpy(x->segments[segment], path, size);
        x->segments[segment++][size] = '\0';
        path += size;
        pattern += strlen("{}");
    }
    return *path == '\0';
}

/* The first route of the requested path, if this listener serves it; sets the path's label. A path that it lacks is
 * refused once it is known that the request is for this host. */
static enum status find_path(struct request *x, struct error *err)
{
    (void)err;
    const struct routes *all = x->service->routes;
    unsigned endpoint = 0;
    for (const struct route *r = all->list; r < all->list + all->count; r++) {
        if (!route_begins_path(all, r))
            continue;
        if (path_matches(r->path, x->path, x) &&
            (x->is_metrics ? route_is_monitored(r) : route_is_served(r, x->is_admin))) {
            x->endpoint = endpoint;
            x->route = r;
            x->kind = r->api;
            break;
        }
        endpoint++;
    }
    return OK;
}

static enum status check_host(struct request *x, struct error *err)
{
    return request_host_check(x, err);
}

/* What to ask for instead of a path that other servers have. */
static const char *instead_of(const char *path)
{
#define CHATS \
    ": POST /v1/chat/completions takes messages, if the model has a chat_template; a text goes to /v1/completions"
#define WRITES ": POST /generate or POST /v1/completions continues a text"
#define DESCRIBED ": GET /openapi.json describes all that there is"
#define SESSIONS ": POST /v1/sessions makes a session, and GET /v1/sessions/ID shows it"
    static const char *const others[][2] = {
        {"/chat/completions", CHATS},
        {"/v1/responses", CHATS},
        {"/v1/messages", CHATS},
        {"/api/chat", CHATS},
        {"/completion", WRITES},
        {"/completions", WRITES},
        {"/generate_stream", WRITES},
        {"/api/generate", WRITES},
        {"/predict", ": POST /classify gives labels of a picture or a text"},
        {"/models", ": GET /v1/models lists the models"},
        {"/version", ": GET /v2 tells the version, as /metrics and aftd --version do"},
        {"/docs", DESCRIBED},
        {"/redoc", DESCRIBED},
        {"/swagger.json", DESCRIBED},
        {"/sessions", SESSIONS},
        {"/health", ": GET /healthz says whether the daemon lives, GET /readyz whether it serves"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(path, others[i][0]) == 0)
            return others[i][1];
    return strncmp(path, "/sessions/", strlen("/sessions/")) == 0 ? SESSIONS : "";
}

/* The route of the path of `first` that takes `method`, or NULL; `allowed` lists the methods that are accepted. */
static const struct route *route_of(const struct routes *all, const struct route *first, const char *method,
                                    char *allowed, size_t size)
{
    const struct route *found = NULL;
    size_t used = 0;
    for (const struct route *r = first; r < all->list + all->count && (r == first || !route_begins_path(all, r)); r++) {
        const bool gets = strcmp(r->method, "GET") == 0;
        if (strcmp(r->method, method) == 0 || (gets && strcmp(method, "HEAD") == 0))
            found = r;
        if (used < size)
            used += (size_t)snprintf(allowed + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     gets ? "GET, HEAD" : r->method);
    }
    return found;
}

/* The path does not take this method; OPTIONS asks which it takes. */
static enum status refuse_method(struct request *x, const char *allowed, struct error *err)
{
    char all[HTTP_HEADER_VALUE_MAX];
    (void)snprintf(all, sizeof all, "%s, OPTIONS", allowed);
    request_add_header(x, "Allow", all);
    if (strcmp(x->method, "OPTIONS") != 0)
        return error_set(err, ERR_METHOD, "%s does not take %s; expected %s", x->route->path,
                         json_quote(x->method).text, all);
    if (!x->is_admin && !x->is_metrics &&
        cors_answer(x->service->settings->cors_origins, request_header(x, "Origin")) != NULL) {
        request_add_header(x, "Access-Control-Allow-Methods", all);
        request_add_header(x, "Access-Control-Allow-Headers", CORS_ALLOWED);
        request_add_header(x, "Access-Control-Max-Age", CORS_MAX_AGE_S);
    }
    return request_reply(x, 204, NULL, NULL, 0);
}

static enum status find_method(struct request *x, struct error *err)
{
    char allowed[HTTP_HEADER_VALUE_MAX / 2] = "";
    if (x->route == NULL)
        return error_set(err, ERR_NOT_FOUND, "there is nothing at \"%s\"%s", json_quote(x->path).text,
                         instead_of(x->path));
    const struct route *r = route_of(x->service->routes, x->route, x->method, allowed, sizeof allowed);
    if (r == NULL)
        return refuse_method(x, allowed, err);
    x->route = r;
    x->step = r->step;
    return OK;
}

static enum status check_key(struct request *x, struct error *err)
{
    if (!route_needs_key(x->route, x->service->settings))
        return OK;
    const enum status st = authorise(x, err);
    if (st == OK)
        request_count_as(x, &x->client);
    return st;
}

/* Keeps the query. What is open to everybody is requested by balancers, monitors and links, which add parameters of
 * their own. */
static enum status check_headers(struct request *x, struct error *err)
{
    const struct route *r = x->route;
    enum status st = r->api == API_OPEN ? OK : request_query_parse(&x->query, r->query, x, err);
    if (st == OK && r->body == BODY && !x->has_body)
        st = error_set(err, ERR_LENGTH, "the request has no body: neither Content-Length nor Transfer-Encoding");
    if (st == OK)
        st = request_type_check_encoding(x, err);
    if (st == OK)
        st = request_type_check(x, r->types, err);
    if (st == OK)
        st = request_type_check_size(x->body_bytes, r->most, err);
    return st;
}

static enum status show_request(struct request *x, struct error *err)
{
    (void)err;
    request_show(x);
    return OK;
}

/* ---- with the body ---------------------------------------------------------------------------------------------- */

static bool has_end(struct request *x)
{
    return x->is_received;
}

static enum status check_body(struct request *x, struct error *err)
{
    if (x->body.status == OK) /* one in chunks had no length to check before */
        return request_type_check_size(x->body.size, x->route->most, err);
    body_error(&x->body, x->service->settings->body_bytes_max, err);
    x->closes = true;
    return x->body.status;
}

static enum status check_room(struct request *x, struct error *err)
{
    return x->route->use == TELLS ? OK : request_job_check_room(x, err);
}

static enum status take_step(struct request *x, struct error *err)
{
    const enum status st = x->step(x, err);
    json_decref(x->object);
    x->object = NULL;
    return st;
}

/* ---- with a job that the step has made; what others make is submitted where it is made -------------------------- */

static enum status check_rights(struct request *x, struct error *err)
{
    return x->is_made ? authorise_job(x, err) : OK;
}

static enum status reserve_answer(struct request *x, struct error *err)
{
    return x->is_made ? request_reserve_answer(x, x->job.answer_bytes, err) : OK;
}

static enum status submit(struct request *x, struct error *err)
{
    return x->is_made ? request_job_submit(x, err) : OK;
}

/* If nobody works for its job: what was taken for that is given back before the client can know, and ask again. */
static void give_up(struct request *x)
{
    const enum job_state state = job_look(&x->job).state;
    if (state == JOB_NONE)
        authorise_no_job(x);
    if (state == JOB_NONE || state == JOB_DONE)
        job_undo(&x->job, x->created);
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

enum { STEP = 9 }; /* take_step's index: a request comes back to it with each job */

/* What ends a stream that has begun is said in the stream. */
static enum status check_result(struct request *x, struct error *err)
{
    const struct job_result *r = job_result(&x->job);
    x->phase = STEP;
    if (!job_is_done(&x->job) || r->status == OK || (x->job.streams && r->generated > 0))
        return OK;
    *err = r->error;
    return r->status;
}

static const struct {
    request_step *run;
    bool (*is_ready)(struct request *x); /* NULL: it is */
} phases[] = {
    {check_framing, NULL},        /* one length, or chunks */
    {find_path, has_body_or_end}, /* the route, if this listener has it; without a body once the request has ended */
    {check_host, NULL},           /* is the request for this host? */
    {find_method, NULL},          /* what the route takes */
    {check_key, NULL},            /* who asks, and may they call this API? their rate of requests */
    {check_headers, NULL},        /* query, types, length */
    {show_request, NULL},         /* to those who ask what is under way */
    {check_body, has_end},        /* the body, once it is there */
    {check_room, NULL},           /* in the queue, before any work is spent on it */
    [STEP] = {take_step, NULL},   /* the route's own: model, limits and fields; it begins a job, or answers */
    {check_rights, NULL},         /* of the job: priority, rate of bytes */
    {reserve_answer, NULL},       /* memory for what it will answer */
    {submit, NULL},               /* pictures to the threads that decode, others into the engine's queue */
    {check_result, request_ready_or_suspend}, /* done, or its first bytes are there: the step that it named answers */
};

void phases_run(struct request *x)
{
    struct error err;
    enum status st = OK;
    while (st == OK && x->http_status == 0) {
        if (phases[x->phase].is_ready != NULL && !phases[x->phase].is_ready(x))
            return;
        st = phases[x->phase++].run(x, &err);
    }
    if (st != OK) {
        give_up(x);
        reply_send_error(x, &err);
    }
    assert(x->http_status != 0);
}

/* Clients of the Open Inference Protocol can read only its own form of errors. */
static bool is_below_v2(const char *path)
{
    return strcmp(path, "/v2") == 0 || strncmp(path, "/v2/", strlen("/v2/")) == 0;
}

void phases_begin(struct request *x)
{
    metrics_gauge_add(METRIC_IN_FLIGHT, 0, 1);
    x->path = request_host_path(x->target);
    x->is_below_v2 = is_below_v2(x->path);
    x->endpoint = (unsigned)x->service->routes->count; /* beyond every path's label */
}
