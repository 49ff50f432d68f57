/* routes.c - see routes.h. */
#include "server/api/routes.h"

#include <stdio.h>
#include <string.h>

#include "config/json.h"
#include "config/settings.h"
#include "server/api/api_request.h"
#include "server/api/authorise.h"
#include "server/api/reply.h"
#include "server/api/request_host.h"
#include "server/api/request_job.h"
#include "server/api/request_query.h"
#include "server/api/route_table.h"
#include "server/api/service.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/log_line.h"
#include "server/core/metrics.h"
#include "server/http/cors.h"
#include "server/job/job.h"
#include "server/models/registry.h"

enum body_rule { NO_BODY, BODY, MAYBE_BODY };

/* A row of the table. Its description for /openapi.json is in openapi.json; make test-openapi checks that every route
 * has one. */
static const struct route {
    const char *method, *path;
    enum api_kind api;
    enum body_rule body;
    unsigned types;
    size_t most;
    http_handler *handler;
    const struct field_list *query, *fields;
    const char *query_name, *fields_name;
} routes[] = {
#define X(method, path, api, body, types, most, handler, query, fields) \
    {method, path, api, body, types, most, handler, &(query), &(fields), #query, #fields},
    ROUTES(X)
#undef X
};
enum {
    LOGGED_DIGITS_MAX = 8, /* of a path that no route knows; an id has four times as many */
    ROUTE_COUNT = sizeof routes / sizeof routes[0],
    NO_ENDPOINT = ROUTE_COUNT, /* beyond every path's label */
};
_Static_assert(ROUTE_COUNT <= METRICS_ENDPOINTS_MAX, "every path is a label of the metrics");

const struct field_list no_fields = {NULL, 0};

/* Is it the first row of its path? */
static bool begins_path(const struct route *r)
{
    return r == routes || strcmp(r->path, r[-1].path) != 0;
}

size_t routes_paths(const char *out[METRICS_ENDPOINTS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (begins_path(&routes[i]))
            out[count++] = routes[i].path;
    return count;
}

static bool needs_key(const struct route *r, const struct settings *s)
{
    return r->api != API_OPEN || (strcmp(r->path, "/metrics") == 0 && !s->metrics_open);
}

static bool is_of_page(const char *path)
{
    return strcmp(path, "/") == 0 || strncmp(path, "/page/", strlen("/page/")) == 0;
}

bool routes_serves(const char *path, enum api_kind api, bool is_admin)
{
    return api == API_OPEN ? !is_admin || !is_of_page(path) : (api == API_ADMIN) == is_admin;
}

bool routes_at(size_t i, const struct settings *s, struct route_info *ret)
{
    if (i >= ROUTE_COUNT)
        return false;
    const struct route *r = &routes[i];
    *ret = (struct route_info){
        .method = r->method,
        .path = r->path,
        .api = r->api,
        .takes_body = r->body != NO_BODY,
        .needs_body = r->body == BODY,
        .needs_key = needs_key(r, s),
        .query = r->query->count > 0 ? r->query : NULL,
        .fields = r->fields->count > 0 ? r->fields : NULL,
        .query_name = r->query->count > 0 ? r->query_name : NULL,
    };
    return true;
}

const struct field_list *routes_fields(const char *name)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (strcmp(routes[i].query_name, name) == 0)
            return routes[i].query;
        if (strcmp(routes[i].fields_name, name) == 0)
            return routes[i].fields;
    }
    return NULL;
}

/* The first MONITORED are all that there is on the listener for monitors. */
enum { MONITORED = 3 };
static const char *const probed[] = {"/metrics", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"};

static bool is_probed(const char *path, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(path, probed[i]) == 0)
            return true;
    return false;
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

/* Does `path` match `pattern`? Then the segments in place of {} are copied to x->api->segments. */
static bool path_matches(const char *pattern, const char *path, struct exchange *x)
{
    unsigned segment = 0;
    while (*pattern != '\0') {
        if (pattern[0] != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        const size_t size = strcspn(path, "/");
        if (size == 0 || size >= sizeof x->api->segments[segment])
            return false;
        memcpy(x->api->segments[segment], path, size);
        x->api->segments[segment++][size] = '\0';
        path += size;
        pattern += strlen("{}");
    }
    return *path == '\0';
}

/* The first route of the requested path, if this listener serves it; sets the path's label. NULL: there is none. */
static const struct route *path_of_request(struct exchange *x)
{
    unsigned endpoint = 0;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const struct route *r = &routes[i];
        if (!begins_path(r))
            continue;
        if (path_matches(r->path, x->path, x) &&
            (x->is_metrics ? is_probed(r->path, MONITORED) : routes_serves(r->path, r->api, x->is_admin))) {
            x->api->endpoint = endpoint;
            x->api->route = r->path;
            return r;
        }
        endpoint++;
    }
    x->api->endpoint = NO_ENDPOINT;
    return NULL;
}

/* The route of the path of `first` that takes `method`, or NULL; `allowed` lists the methods that are accepted. */
static const struct route *route_of(const struct route *first, const char *method, char *allowed, size_t size)
{
    const struct route *found = NULL;
    size_t used = 0;
    for (const struct route *r = first; r < routes + ROUTE_COUNT && (r == first || !begins_path(r)); r++) {
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
static void refuse_method(struct exchange *x, const char *path, const char *allowed)
{
    char all[HTTP_HEADER_VALUE_MAX];
    (void)snprintf(all, sizeof all, "%s, OPTIONS", allowed);
    http_add_header(x, "Allow", all);
    if (strcmp(x->method, "OPTIONS") == 0) {
        if (!x->is_admin && !x->is_metrics &&
            cors_answer(service_of(x)->settings->cors_origins, http_header(x, "Origin")) != NULL) {
            http_add_header(x, "Access-Control-Allow-Methods", all);
            http_add_header(x, "Access-Control-Allow-Headers", CORS_ALLOWED);
            http_add_header(x, "Access-Control-Max-Age", CORS_MAX_AGE_S);
        }
        http_reply(x, 204, NULL, NULL, 0);
        return;
    }
    (void)reply_refuse(x, ERR_METHOD, "", "%s does not take %s; expected %s", path, json_quote(x->method).text, all);
}

/* Clients of the Open Inference Protocol can read only its own form of errors. */
static bool is_below_v2(const char *path)
{
    return strcmp(path, "/v2") == 0 || strncmp(path, "/v2/", strlen("/v2/")) == 0;
}

/* What to ask for instead of what other servers have there. */
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

/* What can be told before the body is read; keeps the query. What is open to everybody is requested by balancers,
 * monitors and links, which add parameters of their own. */
static enum status check_head(struct exchange *x, const struct route *r, struct error *err)
{
    enum status st = r->api == API_OPEN ? OK : request_query_parse(&x->api->query, r->query, x, err);
    if (st == OK && r->body == BODY && !x->has_body)
        st = error_set(err, ERR_LENGTH, "the request has no body: neither Content-Length nor Transfer-Encoding");
    if (st == OK)
        st = request_type_check_encoding(x, err);
    if (st == OK)
        st = request_type_check(x, r->types, err);
    return st == OK ? request_type_check_size(x->body_bytes, r->most, err) : st;
}

static void begin(struct exchange *x)
{
    struct error err;
    char allowed[HTTP_HEADER_VALUE_MAX / 2] = "";
    const char *target = x->path;
    x->path = request_host_path(target);
    x->api->is_routed = true;
    metrics_gauge_add(METRIC_IN_FLIGHT, 0, 1);
    x->api->is_below_v2 = is_below_v2(x->path);
    const struct route *first = path_of_request(x);
    if (first != NULL)
        x->api->kind = first->api;
    if (!request_host_check(x, target))
        return;
    if (first == NULL) {
        (void)reply_refuse(x, ERR_NOT_FOUND, "", "there is nothing at \"%s\"%s", json_quote(x->path).text,
                           instead_of(x->path));
        return;
    }
    const struct route *r = route_of(first, x->method, allowed, sizeof allowed);
    if (r == NULL) {
        refuse_method(x, first->path, allowed);
        return;
    }
    if (needs_key(r, service_of(x)->settings)) {
        if (!authorise(x))
            return;
        http_count_as(x, &x->api->client);
    }
    if (check_head(x, r, &err) != OK) {
        reply_send_error(x, &err);
        return;
    }
    http_set_handler(x, r->handler);
    http_show(x); /* all that requests.c looks at is known */
}

/* Answer an error that http.c found: before `begin`, or instead of the handler. */
static void refuse(struct exchange *x, const struct error *err)
{
    if (!x->api->is_routed) {
        x->api->endpoint = NO_ENDPOINT;
        x->api->is_below_v2 = is_below_v2(request_host_path(x->path));
    }
    reply_send_error(x, err);
}

static void add_headers(struct exchange *x)
{
    char timing[96];
    (void)snprintf(timing, sizeof timing, "queue;dur=%.3f, compute;dur=%.3f", x->api->queue_ms, x->api->compute_ms);
    http_add_header(x, "Server-Timing", timing);
    if (x->api->hosted != NULL)
        http_add_header(x, "X-Model", x->api->hosted->model->name);
    request_job_tell_dropped(x);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static enum metrics_reason reason_of(const struct exchange *x)
{
    switch (x->api->error) {
    case ERR_FULL:
        return METRICS_REASON_QUEUE_FULL;
    case ERR_SESSIONS:
        return METRICS_REASON_SESSIONS_FULL;
    case ERR_NOMEM:
        return METRICS_REASON_OUT_OF_MEMORY;
    case ERR_LOADING:
        return METRICS_REASON_LOADING;
    case ERR_UNAVAILABLE:
        return atomic_load(&service_of(x)->draining) ? METRICS_REASON_DRAINING : METRICS_REASON_OTHER;
    case ERR_KEY:
    case ERR_FORBIDDEN:
        return METRICS_REASON_NOT_ALLOWED;
    case ERR_RATE:
        return METRICS_REASON_CLIENT_LIMIT;
    case ERR_TOO_LARGE:
        return METRICS_REASON_BODY_TOO_LARGE;
    case ERR_ARGUMENT:
    case ERR_NOT_FOUND:
    case ERR_METHOD:
    case ERR_CONFLICT:
    case ERR_LENGTH:
    case ERR_URL:
    case ERR_MEDIA_TYPE:
    case ERR_PICTURE:
    case ERR_REFUSED:
        return METRICS_REASON_INVALID;
    default:
        return METRICS_REASON_OTHER;
    }
}

/* How a request that had a job went. */
static const char *outcome_of_job(struct job *j)
{
    if (!job_is_done(j))
        return job_finish_word(FINISH_CANCELLED); /* the connection broke before the answer was complete */
    const struct job_result *r = job_result(j);
    if (r->status == ERR_TIMEOUT)
        return job_finish_word(FINISH_TIMEOUT);
    if (r->status == ERR_CANCELLED || r->status == ERR_STOPPED)
        return job_finish_word(FINISH_CANCELLED);
    if (r->status != OK)
        return "error";
    return j->kind->tells_finish ? job_finish_word(r->finish) : "ok";
}

static void count(const struct exchange *x, unsigned status, const char *outcome)
{
    metrics_request(x->api->endpoint, x->api->model, status, clock_now_ns() - x->start_ns);
    metrics_counter_add(METRIC_RECEIVED_BYTES, 0, x->body.received);
    if (strcmp(outcome, job_finish_word(FINISH_CANCELLED)) == 0)
        metrics_counter_add(METRIC_CANCELLED, x->api->model, 1);
    else if (strcmp(outcome, job_finish_word(FINISH_TIMEOUT)) == 0)
        metrics_counter_add(METRIC_TIMED_OUT, x->api->model, 1);
    else if (x->api->error != OK && x->job == NULL && status != 0)
        metrics_counter_add(METRIC_REJECTED, reason_of(x), 1);
}

/* Append to out [*used], as far as that has room, and `path` with {} in place of what could be an id or a key: many
 * hexadecimal digits in a row. */
static void append_masked(char out[LOG_PATH_MAX + 1], size_t used, const char *path)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    while (*path != '\0' && used < LOG_PATH_MAX) {
        const size_t run = strspn(path, digits), end = path[run] != '\0';
        const bool is_long = run >= LOGGED_DIGITS_MAX;
        used += (size_t)snprintf(out + used, LOG_PATH_MAX + 1 - used, "%.*s%.*s", is_long ? 2 : (int)run,
                                 is_long ? "{}" : path, (int)end, path + run);
        path += run + end;
    }
}

/* Without keys, whoever knows a session's id owns it, so ids are not logged; and where no route says what is one,
 * nothing that looks like it. NULL: there is no path. */
static const char *path_to_log(const struct exchange *x, char out[LOG_PATH_MAX + 1])
{
    static const char sessions[] = "/v1/sessions/";
    const char *path = x->path != NULL ? request_host_path(x->path) : "";
    const bool is_session = strncmp(path, sessions, strlen(sessions)) == 0;
    if (x->path == NULL)
        return NULL;
    (void)snprintf(out, LOG_PATH_MAX + 1, "%s", is_session ? "/v1/sessions/{}" : x->api->route != NULL ? x->path : "");
    if (is_session)
        path += strlen(sessions) + strcspn(path + strlen(sessions), "/");
    if (is_session || x->api->route == NULL)
        append_masked(out, strlen(out), path);
    out[strcspn(out, "?")] = '\0'; /* a query may contain secrets, also one whose '?' was escaped */
    return out;
}

static void log_end(const struct exchange *x, unsigned status, const char *outcome)
{
    char client[HTTP_CLIENT_BYTES], path[LOG_PATH_MAX + 1];
    const struct api_request *api = x->api;
    const bool is_probe = api->route != NULL && is_probed(api->route, sizeof probed / sizeof probed[0]);
    const bool is_traced = x->trace.trace[0] != '\0';
    const struct job_look look = x->job != NULL ? job_look(x->job) : (struct job_look){.first_ns = 0};
    http_client(x, client);
    const struct log_field fields[] = {
        {"method", LOG_FIELD_TEXT, .is_column = true, .text = x->method},
        {"path", LOG_FIELD_TEXT, .is_column = true, .text = path_to_log(x, path)},
        {"status", LOG_FIELD_NUMBER, .is_column = true, .number = status},
        {"outcome", LOG_FIELD_TEXT, .is_column = true, .text = outcome},
        {"total_ms", LOG_FIELD_MS, .is_column = true, .ms = clock_ms_between(x->start_ns, clock_now_ns())},
        {"model", LOG_FIELD_TEXT, .text = api->hosted != NULL ? api->hosted->model->name : NULL},
        {"error", LOG_FIELD_TEXT, .text = api->error != OK ? status_code(api->error) : NULL},
        {"prompt_tokens", LOG_FIELD_NUMBER, .number = x->job != NULL ? x->job->given : 0},
        {"tokens", LOG_FIELD_NUMBER, .number = look.generated},
        {"queue_ms", LOG_FIELD_MS, .ms = api->queue_ms},
        {"compute_ms", LOG_FIELD_MS, .ms = api->compute_ms},
        {"first_byte_ms", LOG_FIELD_MS,
         .ms = look.first_ns != 0 ? clock_ms_between(x->received_ns, look.first_ns) : -1.0},
        {"bytes_in", LOG_FIELD_NUMBER, .number = x->body.received},
        {"bytes_out", LOG_FIELD_NUMBER, .number = x->bytes_out},
        {"client", LOG_FIELD_TEXT, .text = service_of(x)->settings->log_clients ? client : NULL},
        {"key", LOG_FIELD_TEXT, .text = auth_name(&api->grant)},
        {"id", LOG_FIELD_TEXT, .text = x->id},
        {"trace", LOG_FIELD_TEXT, .text = is_traced ? x->trace.trace : NULL},
        {"span", LOG_FIELD_TEXT, .text = is_traced ? x->trace.span : NULL},
    };
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    _Static_assert(FIELDS <= LOG_FIELDS_MAX, "a line's bound counts them");
    log_fields(is_probe && status < 400 ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "request", fields, FIELDS);
}

static void end(struct exchange *x)
{
    const char *outcome = x->job != NULL ? outcome_of_job(x->job) : x->api->error != OK ? "error" : "ok";
    unsigned status = x->status;
    if (status == 0) /* the client left before there was an answer */
        status = status_http(ERR_CANCELLED);
    if (x->status == 0 || x->cut != OK)
        outcome = job_finish_word(FINISH_CANCELLED);
    if (x->cut != OK)
        x->api->error = x->cut;
    count(x, status, outcome);
    if (x->api->is_routed)
        metrics_gauge_add(METRIC_IN_FLIGHT, 0, -1);
    if (service_of(x)->settings->log_requests)
        log_end(x, status, outcome);
    authorise_end(x, x->body.received + (x->job != NULL ? job_look(x->job).generated : 0));
    hosted_model_release(x->api->hosted);
    json_decref(x->api->query);
    if (x->api->state != NULL)
        x->api->state_free(x->api->state);
}

struct http_app routes_app(struct service *service)
{
    return (struct http_app){
        .arg = service,
        .request_bytes = sizeof(struct api_request),
        .begin = begin,
        .end = end,
        .add_headers = add_headers,
        .refuse = refuse,
    };
}
