/* routes.c - see routes.h. */
#include "server/routes.h"

#include <string.h>
#include <strings.h>

#include "server/api.h"
#include "server/clock.h"
#include "server/job.h"
#include "server/log.h"
#include "server/metrics.h"
#include "weights/json.h"

/*   method  path           before the body      handler
 * Each path once; HEAD goes where GET goes. */
#define ROUTES(X)                                            \
    X("POST", "/classify", api_classify_begin, api_classify) \
    X("POST", "/complete", api_complete_begin, api_complete) \
    X("POST", "/explain", api_explain_begin, api_explain)    \
    X("POST", "/generate", api_generate_begin, api_generate) \
    X("POST", "/score", api_score_begin, api_score)          \
    X("GET", "/v1/models", NULL, api_models)                 \
    X("GET", "/healthz", NULL, api_healthz)                  \
    X("GET", "/readyz", NULL, api_readyz)                    \
    X("GET", "/metrics", NULL, api_metrics)

static const struct route {
    const char *method, *path;
    http_handler *begin, *handler;
} routes[] = {
#define X(method, path, begin, handler) {method, path, begin, handler},
    ROUTES(X)
#undef X
};

static const char *const paths[] = {
#define X(method, path, begin, handler) path,
    ROUTES(X)
#undef X
};

enum { ROUTE_COUNT = sizeof routes / sizeof routes[0] };
_Static_assert(ROUTE_COUNT <= METRICS_ENDPOINTS_MAX, "every route is a label of the metrics");

const char *const *routes_paths(size_t *count)
{
    *count = ROUTE_COUNT;
    return paths;
}

/* ---- the beginning --------------------------------------------------------------------------------------------- */

/* A request target may name the server too (RFC 9112, 3.2.2). */
static const char *path_of(const char *target)
{
    if (strncasecmp(target, "http://", 7) != 0)
        return target;
    const char *slash = strchr(target + 7, '/');
    return slash != NULL ? slash : "/";
}

static void refuse_method(struct exchange *x, const struct route *r)
{
    struct error err;
    const char *allowed = strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method;
    http_add_header(x, "Allow", allowed);
    (void)error_set(&err, ERR_METHOD, "%s does not take %s; expected %s", r->path, json_quote(x->method).text, allowed);
    api_refuse(x, &err);
}

static void begin(struct exchange *x)
{
    struct error err;
    x->path = path_of(x->path);
    for (x->endpoint = 0; x->endpoint < ROUTE_COUNT; x->endpoint++)
        if (strcmp(routes[x->endpoint].path, x->path) == 0)
            break;
    if (x->endpoint == ROUTE_COUNT) {
        (void)error_set(&err, ERR_NOT_FOUND, "there is nothing at \"%s\"", json_quote(x->path).text);
        api_refuse(x, &err);
        return;
    }
    const struct route *r = &routes[x->endpoint];
    const bool is_get = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;
    if (strcmp(is_get ? "GET" : x->method, r->method) != 0) {
        refuse_method(x, r);
        return;
    }
    if (!is_get && !x->has_body) {
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
    if (x->handler == NULL)
        x->endpoint = ROUTE_COUNT;
    api_refuse(x, err);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static enum metrics_reason reason_of(const struct exchange *x)
{
    switch (x->error) {
    case ERR_FULL:
        return METRICS_REASON_QUEUE_FULL;
    case ERR_NOMEM:
        return METRICS_REASON_OUT_OF_MEMORY;
    case ERR_UNAVAILABLE:
        return atomic_load(&api_service(x)->draining) ? METRICS_REASON_DRAINING : METRICS_REASON_OTHER;
    case ERR_TOO_LARGE:
        return METRICS_REASON_BODY_TOO_LARGE;
    case ERR_ARGUMENT:
    case ERR_NOT_FOUND:
    case ERR_METHOD:
    case ERR_LENGTH:
    case ERR_MEDIA_TYPE:
    case ERR_PICTURE:
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
    metrics_request(x->endpoint, x->model, status);
    metrics_histogram_observe(METRIC_REQUEST_DURATION, x->endpoint, clock_now_ns() - x->start_ns);
    metrics_counter_add(METRIC_RECEIVED_BYTES, 0, x->body.received);
    if (strcmp(outcome, job_finish_word(FINISH_CANCELLED)) == 0)
        metrics_counter_add(METRIC_CANCELLED, 0, 1);
    else if (strcmp(outcome, job_finish_word(FINISH_TIMEOUT)) == 0)
        metrics_counter_add(METRIC_TIMED_OUT, 0, 1);
    else if (x->error != OK && x->job == NULL && status != 0)
        metrics_counter_add(METRIC_REJECTED, reason_of(x), 1);
}

static void end(struct exchange *x)
{
    const struct service *s = api_service(x);
    const char *outcome = x->job != NULL ? outcome_of_job(x->job) : x->error != OK ? "error" : "ok";
    unsigned status = x->status;
    if (status == 0) { /* the client left before there was an answer */
        status = status_http(ERR_CANCELLED);
        outcome = job_finish_word(FINISH_CANCELLED);
    }
    count(x, status, outcome);
    if (!s->settings->log_requests)
        return;
    char client[64];
    http_client(x, client, sizeof client);
    struct log_request line = {
        .id = x->id,
        .client = client,
        .method = x->method,
        .path = x->path,
        .model = x->model_name,
        .outcome = outcome,
        .error = x->error != OK ? status_code(x->error) : NULL,
        .status = status,
        .bytes_in = x->body.received,
        .bytes_out = x->bytes_out,
        .queue_ms = x->queue_ms,
        .compute_ms = x->compute_ms,
        .first_byte_ms = -1.0,
        .total_ms = clock_ms_between(x->start_ns, clock_now_ns()),
    };
    if (x->job != NULL && x->job->kind != JOB_CLASSIFY) {
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

struct http_app routes_app(struct service *service)
{
    return (struct http_app){.arg = service, .begin = begin, .end = end, .refuse = refuse};
}
