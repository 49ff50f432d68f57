/* routes.c - see routes.h. */
#include "server/api/routes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"
#include "server/api/api.h"
#include "server/api/authorise.h"
#include "server/api/request_query.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/http/cors.h"
#include "server/job/job.h"
#include "server/models/registry.h"
#include "server/request/field_lists.h"

/*   path, as the metrics' label; {} stands for one segment, which the handler gets as x->api->segments[i] */
#define PATHS(X)                                                       \
    X(PATH_CLASSIFY, "/classify")                                      \
    X(PATH_COMPLETE, "/complete")                                      \
    X(PATH_EXPLAIN, "/explain")                                        \
    X(PATH_GENERATE, "/generate")                                      \
    X(PATH_SCORE, "/score")                                            \
    X(PATH_COMPLETIONS, "/v1/completions")                             \
    X(PATH_COMPRESS, "/v1/compress")                                   \
    X(PATH_DECOMPRESS, "/v1/decompress")                               \
    X(PATH_SESSIONS, "/v1/sessions")                                   \
    X(PATH_SESSION, "/v1/sessions/{}")                                 \
    X(PATH_SESSION_FORK, "/v1/sessions/{}/fork")                       \
    X(PATH_SESSION_STATE, "/v1/sessions/{}/state")                     \
    X(PATH_MODELS, "/v1/models")                                       \
    X(PATH_MODEL, "/v1/models/{}")                                     \
    X(PATH_HEALTHZ, "/healthz")                                        \
    X(PATH_READYZ, "/readyz")                                          \
    X(PATH_METRICS, "/metrics")                                        \
    X(PATH_OPENAPI, "/openapi.json")                                   \
    X(PATH_PAGE, "/")                                                  \
    X(PATH_PAGE_FILE, "/page/{}")                                      \
    X(PATH_ADMIN_MODELS, "/admin/models")                              \
    X(PATH_ADMIN_MODEL, "/admin/models/{}")                            \
    X(PATH_ADMIN_CONFIG, "/admin/config")                              \
    X(PATH_ADMIN_RELOAD, "/admin/config/reload")                       \
    X(PATH_ADMIN_DRAIN, "/admin/drain")                                \
    X(PATH_INFERENCE, "/v2")                                           \
    X(PATH_INFERENCE_LIVE, "/v2/health/live")                          \
    X(PATH_INFERENCE_READY, "/v2/health/ready")                        \
    X(PATH_INFERENCE_MODEL, "/v2/models/{}")                           \
    X(PATH_INFERENCE_MODEL_READY, "/v2/models/{}/ready")               \
    X(PATH_INFERENCE_INFER, "/v2/models/{}/infer")                     \
    X(PATH_INFERENCE_VERSION, "/v2/models/{}/versions/{}")             \
    X(PATH_INFERENCE_VERSION_READY, "/v2/models/{}/versions/{}/ready") \
    X(PATH_INFERENCE_VERSION_INFER, "/v2/models/{}/versions/{}/infer")

enum path {
#define X(constant, text) constant,
    PATHS(X)
#undef X
        PATH_COUNT
};
_Static_assert(PATH_COUNT <= METRICS_ENDPOINTS_MAX, "every path is a label of the metrics");

static const char *const paths[] = {
#define X(constant, text) text,
    PATHS(X)
#undef X
};

enum body_rule { NO_BODY, BODY, MAYBE_BODY };

/* Each method of a path once; HEAD goes where GET goes, OPTIONS is answered here. What clients read of them at
 * /openapi.json is in openapi.json, and make test-openapi wants every route there. */
static const struct route {
    const char *method;
    enum path path;
    enum api_kind api;
    enum body_rule body;
    http_handler *begin, *handler;  /* before the body is read, may be NULL; and after */
    const struct field_list *query; /* the parameters that it knows; NULL: none */
} routes[] = {
    {"POST", PATH_CLASSIFY, API_NATIVE, BODY, api_classify_begin, api_classify, &classify_query},
    {"POST", PATH_COMPLETE, API_NATIVE, BODY, api_complete_begin, api_complete, &complete_query},
    {"POST", PATH_EXPLAIN, API_NATIVE, BODY, api_explain_begin, api_explain, &explain_query},
    {"POST", PATH_GENERATE, API_NATIVE, BODY, api_generate_begin, api_generate, NULL},
    {"POST", PATH_SCORE, API_NATIVE, BODY, api_score_begin, api_score, &score_query},
    {"POST", PATH_COMPLETIONS, API_OPENAI, BODY, api_generate_begin, api_openai_completions, NULL},
    {"GET", PATH_MODEL, API_OPENAI, NO_BODY, NULL, api_model, NULL},
    {"POST", PATH_COMPRESS, API_NATIVE, BODY, NULL, api_compress, &compress_query},
    {"POST", PATH_DECOMPRESS, API_NATIVE, BODY, NULL, api_decompress, &compress_query},
    {"POST", PATH_SESSIONS, API_NATIVE, BODY, api_generate_begin, api_sessions_create, NULL},
    {"GET", PATH_SESSION, API_NATIVE, NO_BODY, NULL, api_session, NULL},
    {"DELETE", PATH_SESSION, API_NATIVE, NO_BODY, NULL, api_session_delete, NULL},
    {"POST", PATH_SESSION_FORK, API_NATIVE, MAYBE_BODY, api_generate_begin, api_session_fork, NULL},
    {"GET", PATH_SESSION_STATE, API_NATIVE, NO_BODY, NULL, api_session_state, NULL},
    {"PUT", PATH_SESSION_STATE, API_NATIVE, BODY, api_session_put_begin, api_session_put, NULL},
    {"GET", PATH_MODELS, API_OPENAI, NO_BODY, NULL, api_models, NULL},
    {"GET", PATH_HEALTHZ, API_OPEN, NO_BODY, NULL, api_healthz, NULL},
    {"GET", PATH_READYZ, API_OPEN, NO_BODY, NULL, api_readyz, NULL},
    {"GET", PATH_METRICS, API_OPEN, NO_BODY, NULL, api_metrics, NULL},
    {"GET", PATH_OPENAPI, API_OPEN, NO_BODY, NULL, api_openapi, NULL},
    {"GET", PATH_PAGE, API_OPEN, NO_BODY, NULL, api_page, NULL},
    {"GET", PATH_PAGE_FILE, API_OPEN, NO_BODY, NULL, api_page_file, NULL},
    {"GET", PATH_ADMIN_MODELS, API_ADMIN, NO_BODY, NULL, api_admin_models, NULL},
    {"POST", PATH_ADMIN_MODEL, API_ADMIN, BODY, api_admin_model_begin, api_admin_model, NULL},
    {"GET", PATH_ADMIN_CONFIG, API_ADMIN, NO_BODY, NULL, api_admin_config, NULL},
    {"POST", PATH_ADMIN_RELOAD, API_ADMIN, MAYBE_BODY, NULL, api_admin_reload, NULL},
    {"POST", PATH_ADMIN_DRAIN, API_ADMIN, MAYBE_BODY, NULL, api_admin_drain, NULL},
    {"GET", PATH_INFERENCE, API_INFERENCE, NO_BODY, NULL, api_inference_server, NULL},
    {"GET", PATH_INFERENCE_LIVE, API_INFERENCE, NO_BODY, NULL, api_inference_live, NULL},
    {"GET", PATH_INFERENCE_READY, API_INFERENCE, NO_BODY, NULL, api_inference_ready, NULL},
    {"GET", PATH_INFERENCE_MODEL, API_INFERENCE, NO_BODY, NULL, api_inference_model, NULL},
    {"GET", PATH_INFERENCE_MODEL_READY, API_INFERENCE, NO_BODY, NULL, api_inference_model_ready, NULL},
    {"POST", PATH_INFERENCE_INFER, API_INFERENCE, BODY, api_inference_infer_begin, api_inference_infer, NULL},
    {"GET", PATH_INFERENCE_VERSION, API_INFERENCE, NO_BODY, NULL, api_inference_model, NULL},
    {"GET", PATH_INFERENCE_VERSION_READY, API_INFERENCE, NO_BODY, NULL, api_inference_model_ready, NULL},
    {"POST", PATH_INFERENCE_VERSION_INFER, API_INFERENCE, BODY, api_inference_infer_begin, api_inference_infer, NULL},
};
enum { ROUTE_COUNT = sizeof routes / sizeof routes[0] };

const char *const *routes_paths(size_t *count)
{
    *count = PATH_COUNT;
    return paths;
}

static bool needs_key(const struct route *r, const struct settings *s)
{
    return r->api != API_OPEN || (r->path == PATH_METRICS && !s->metrics_open);
}

/* What is open to everybody is asked by balancers, monitors and links, which bring parameters of their own. */
static bool ignores_query(const struct route *r)
{
    return r->api == API_OPEN;
}

bool routes_serves(enum api_kind api, bool is_admin)
{
    return api == API_OPEN || (api == API_ADMIN) == is_admin;
}

bool routes_at(size_t i, const struct settings *s, struct route_info *ret)
{
    if (i >= ROUTE_COUNT)
        return false;
    const struct route *r = &routes[i];
    *ret = (struct route_info){
        .method = r->method,
        .path = paths[r->path],
        .api = r->api,
        .takes_body = r->body != NO_BODY,
        .needs_body = r->body == BODY,
        .needs_key = needs_key(r, s),
        .query = r->query,
    };
    return true;
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

/* A request target may name the server too (RFC 9112, 3.2.2). */
static const char *path_of(const char *target)
{
    const size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    if (scheme == 0)
        return target;
    const char *slash = strchr(target + scheme, '/');
    return slash != NULL ? slash : "/";
}

/* Is `path` of the form of `pattern`? Then what stands at its {} is copied to x->api->segments. */
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

/* The route of a path that takes `method`; else NULL, and *allowed lists those that are taken. */
static const struct route *route_of(unsigned path, const char *method, char *allowed, size_t size)
{
    const struct route *found = NULL;
    size_t used = 0;
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        const struct route *r = &routes[i];
        if (r->path != path)
            continue;
        const bool gets = strcmp(r->method, "GET") == 0;
        if (strcmp(r->method, method) == 0 || (gets && strcmp(method, "HEAD") == 0))
            found = r;
        if (used < size)
            used += (size_t)snprintf(allowed + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     gets ? "GET, HEAD" : r->method);
    }
    return found;
}

/* No such method at this path; OPTIONS wants to know those that there are. */
static void refuse_method(struct exchange *x, const char *allowed)
{
    struct error err;
    char all[HTTP_HEADER_VALUE_MAX];
    (void)snprintf(all, sizeof all, "%s, OPTIONS", allowed);
    http_add_header(x, "Allow", all);
    if (strcmp(x->method, "OPTIONS") == 0) {
        if (!x->is_admin && cors_answer(api_service(x)->settings->cors_origins, http_header(x, "Origin")) != NULL) {
            http_add_header(x, "Access-Control-Allow-Methods", all);
            http_add_header(x, "Access-Control-Allow-Headers", CORS_ALLOWED);
            http_add_header(x, "Access-Control-Max-Age", CORS_MAX_AGE_S);
        }
        http_reply(x, 204, NULL, NULL, 0);
        return;
    }
    (void)error_set(&err, ERR_METHOD, "%s does not take %s; expected %s", paths[x->api->endpoint],
                    json_quote(x->method).text, all);
    api_refuse(x, &err);
}

static bool is_served_here(const struct exchange *x, unsigned path)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (routes[i].path == path)
            return routes_serves(routes[i].api, x->is_admin);
    return false;
}

/* Whose words are spoken there. */
static enum api_kind api_of(unsigned path)
{
    size_t i = 0;
    while (routes[i].path != path)
        i++;
    return routes[i].api;
}

/* Where no route is known: clients of the Open Inference Protocol read no errors but its own. */
static void set_api_by_path(struct exchange *x)
{
    const char *path = path_of(x->path);
    if (strcmp(path, "/v2") == 0 || strncmp(path, "/v2/", strlen("/v2/")) == 0)
        x->api->kind = API_INFERENCE;
}

static void begin(struct exchange *x)
{
    struct error err;
    char allowed[HTTP_HEADER_VALUE_MAX / 2] = "";
    x->path = path_of(x->path);
    x->api->is_routed = true;
    for (x->api->endpoint = 0; x->api->endpoint < PATH_COUNT; x->api->endpoint++)
        if (path_matches(paths[x->api->endpoint], x->path, x) && is_served_here(x, x->api->endpoint))
            break;
    if (x->api->endpoint == PATH_COUNT) {
        set_api_by_path(x);
        (void)error_set(&err, ERR_NOT_FOUND, "there is nothing at \"%s\"", json_quote(x->path).text);
        api_refuse(x, &err);
        return;
    }
    x->api->kind = api_of(x->api->endpoint);
    const struct route *r = route_of(x->api->endpoint, x->method, allowed, sizeof allowed);
    if (r == NULL) {
        refuse_method(x, allowed);
        return;
    }
    if (needs_key(r, api_service(x)->settings) && !authorise(x))
        return;
    if (!ignores_query(r) && request_query_check(r->query, x, &err) != OK) {
        api_refuse(x, &err);
        return;
    }
    if (r->body == BODY && !x->has_body) {
        (void)error_set(&err, ERR_LENGTH, "the request has no body: neither Content-Length nor Transfer-Encoding");
        api_refuse(x, &err);
        return;
    }
    http_set_handler(x, r->handler);
    if (r->begin != NULL)
        r->begin(x);
}

/* An error found by http.c: before `begin`, or instead of the handler. */
static void refuse(struct exchange *x, const struct error *err)
{
    if (!x->api->is_routed) {
        x->api->endpoint = PATH_COUNT;
        set_api_by_path(x);
    }
    api_refuse(x, err);
}

static void add_headers(struct exchange *x)
{
    char timing[96];
    (void)snprintf(timing, sizeof timing, "queue;dur=%.3f, compute;dur=%.3f", x->api->queue_ms, x->api->compute_ms);
    http_add_header(x, "Server-Timing", timing);
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
        return atomic_load(&api_service(x)->draining) ? METRICS_REASON_DRAINING : METRICS_REASON_OTHER;
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
    if (r->status == ERR_CANCELLED)
        return job_finish_word(FINISH_CANCELLED);
    if (r->status != OK)
        return "error";
    return j->kind == JOB_GENERATE || j->kind == JOB_COMPLETE ? job_finish_word(r->finish) : "ok";
}

static void count(const struct exchange *x, unsigned status, const char *outcome)
{
    metrics_request(x->api->endpoint, x->api->model, status);
    metrics_histogram_observe(METRIC_REQUEST_DURATION, x->api->endpoint, clock_now_ns() - x->start_ns);
    metrics_counter_add(METRIC_RECEIVED_BYTES, 0, x->body.received);
    if (strcmp(outcome, job_finish_word(FINISH_CANCELLED)) == 0)
        metrics_counter_add(METRIC_CANCELLED, 0, 1);
    else if (strcmp(outcome, job_finish_word(FINISH_TIMEOUT)) == 0)
        metrics_counter_add(METRIC_TIMED_OUT, 0, 1);
    else if (x->api->error != OK && x->job == NULL && status != 0)
        metrics_counter_add(METRIC_REJECTED, reason_of(x), 1);
}

/* Where there are no keys a session is whose who knows its id: the log has none. NULL: there is no path. */
static const char *path_to_log(const struct exchange *x, char out[LOG_PATH_MAX + 1])
{
    static const char sessions[] = "/v1/sessions/";
    const char *path = x->path != NULL ? path_of(x->path) : "";
    if (strncmp(path, sessions, strlen(sessions)) != 0)
        return x->path;
    const char *id = path + strlen(sessions);
    (void)snprintf(out, LOG_PATH_MAX + 1, "%s{}%s", sessions, id + strcspn(id, "/"));
    return out;
}

static void log_end(const struct exchange *x, unsigned status, const char *outcome)
{
    char client[64], path[LOG_PATH_MAX + 1];
    http_client(x, client, sizeof client);
    struct log_request line = {
        .id = x->id,
        .client = client,
        .method = x->method,
        .path = path_to_log(x, path),
        .key = auth_name(&x->api->grant),
        .model = x->api->hosted != NULL ? x->api->hosted->model->name : NULL,
        .outcome = outcome,
        .error = x->api->error != OK ? status_code(x->api->error) : NULL,
        .status = status,
        .bytes_in = x->body.received,
        .bytes_out = x->bytes_out,
        .queue_ms = x->api->queue_ms,
        .compute_ms = x->api->compute_ms,
        .first_byte_ms = -1.0,
        .total_ms = clock_ms_between(x->start_ns, clock_now_ns()),
    };
    if (x->job != NULL && x->job->kind != JOB_CLASSIFY && x->job->kind != JOB_CHANGE) {
        uint32_t generated;
        uint64_t first_ns;
        job_progress(x->job, &generated, &first_ns);
        line.prompt_tokens = job_given(x->job);
        line.tokens = generated;
        if (first_ns != 0)
            line.first_byte_ms = clock_ms_between(x->received_ns, first_ns);
    }
    log_request(&line);
}

static uint64_t generated_bytes(const struct exchange *x)
{
    uint32_t generated = 0;
    uint64_t first_ns;
    if (x->job != NULL)
        job_progress(x->job, &generated, &first_ns);
    return generated;
}

static void end(struct exchange *x)
{
    const char *outcome = x->job != NULL ? outcome_of_job(x->job) : x->api->error != OK ? "error" : "ok";
    unsigned status = x->status;
    if (status == 0) { /* the client left before there was an answer */
        status = status_http(ERR_CANCELLED);
        outcome = job_finish_word(FINISH_CANCELLED);
    }
    count(x, status, outcome);
    if (api_service(x)->settings->log_requests)
        log_end(x, status, outcome);
    authorise_end(x, x->body.received + generated_bytes(x));
    hosted_model_release(x->api->hosted);
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
