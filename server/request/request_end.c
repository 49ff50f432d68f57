/* request_end.c - what follows at the end of a request, see phases.h: metrics, and its line in the log. HTTP
 * threads. */
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/log_line.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/request/authorise.h"
#include "server/request/job.h"
#include "server/request/phases.h"
#include "server/request/request.h"
#include "server/request/request_host.h"
#include "server/request/request_job.h"
#include "server/request/route.h"
#include "server/request/service.h"

enum { LOGGED_DIGITS_MAX = 8 }; /* of a path that no route knows; an id has four times as many */

static enum metrics_reason reason_of(const struct request *x)
{
    switch (x->error) {
    case ERR_FULL:
        return METRICS_REASON_QUEUE_FULL;
    case ERR_SESSIONS:
        return METRICS_REASON_SESSIONS_FULL;
    case ERR_NOMEM:
        return METRICS_REASON_OUT_OF_MEMORY;
    case ERR_LOADING:
        return METRICS_REASON_LOADING;
    case ERR_UNAVAILABLE:
        return atomic_load(&x->service->draining) ? METRICS_REASON_DRAINING : METRICS_REASON_OTHER;
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
        return job_finish_words[FINISH_CANCELLED]; /* the connection broke before the answer was complete */
    const struct job_result *r = job_result(j);
    if (r->status == ERR_TIMEOUT)
        return job_finish_words[FINISH_TIMEOUT];
    if (r->status == ERR_CLIENT_GONE || r->status == ERR_CANCELLED_BY_ADMIN)
        return job_finish_words[FINISH_CANCELLED];
    if (r->status != OK)
        return "error";
    return j->kind->tells_finish ? job_finish_words[r->finish] : "ok";
}

static void count(const struct request *x, bool had_job, unsigned status, const char *outcome)
{
    metrics_request_end(x->endpoint, x->model_label, status, clock_now_ns() - x->start_ns, x->body.received);
    if (strcmp(outcome, job_finish_words[FINISH_CANCELLED]) == 0)
        metrics_counter_add(METRIC_CANCELLED, x->model_label, 1);
    else if (strcmp(outcome, job_finish_words[FINISH_TIMEOUT]) == 0)
        metrics_counter_add(METRIC_TIMED_OUT, x->model_label, 1);
    else if (x->error != OK && !had_job && status != 0)
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
static const char *path_to_log(const struct request *x, char out[LOG_PATH_MAX + 1])
{
    static const char sessions[] = "/v1/sessions/";
    const char *path = x->path != NULL ? request_host_path(x->path) : "";
    const bool is_session = strncmp(path, sessions, strlen(sessions)) == 0;
    if (x->path == NULL)
        return NULL;
    (void)snprintf(out, LOG_PATH_MAX + 1, "%s", is_session ? "/v1/sessions/{}" : x->route != NULL ? x->path : "");
    if (is_session)
        path += strlen(sessions) + strcspn(path + strlen(sessions), "/");
    if (is_session || x->route == NULL)
        append_masked(out, strlen(out), path);
    out[strcspn(out, "?")] = '\0'; /* a query may contain secrets, also one whose '?' was escaped */
    return out;
}

static void log_end(struct request *x, const struct job_look *look, unsigned status, const char *outcome)
{
    char client[REQUEST_CLIENT_BYTES], path[LOG_PATH_MAX + 1];
    const bool is_probe = x->route != NULL && route_is_probed(x->route);
    const bool is_traced = x->trace.trace[0] != '\0';
    const struct request_times times = request_job_times(x);
    request_client(x, client);
    const struct log_field fields[] = {
        {"method", LOG_FIELD_TEXT, .is_column = true, .text = x->method},
        {"path", LOG_FIELD_TEXT, .is_column = true, .text = path_to_log(x, path)},
        {"status", LOG_FIELD_NUMBER, .is_column = true, .number = status},
        {"outcome", LOG_FIELD_TEXT, .is_column = true, .text = outcome},
        {"total_ms", LOG_FIELD_MS, .is_column = true, .ms = clock_ms_between(x->start_ns, clock_now_ns())},
        {"model", LOG_FIELD_TEXT, .text = x->job.model != NULL ? x->job.model->model->name : NULL},
        {"error", LOG_FIELD_TEXT, .text = x->error != OK ? status_code(x->error) : NULL},
        {"prompt_tokens", LOG_FIELD_NUMBER, .number = look->state != JOB_NONE ? x->job.input_len : 0},
        {"tokens", LOG_FIELD_NUMBER, .number = look->generated},
        {"queue_ms", LOG_FIELD_MS, .ms = times.queue_ms},
        {"compute_ms", LOG_FIELD_MS, .ms = times.compute_ms},
        {"first_byte_ms", LOG_FIELD_MS,
         .ms = look->first_ns != 0 ? clock_ms_between(x->received_ns, look->first_ns) : -1.0},
        {"bytes_in", LOG_FIELD_NUMBER, .number = x->body.received},
        {"bytes_out", LOG_FIELD_NUMBER, .number = x->bytes_out},
        {"client", LOG_FIELD_TEXT, .text = x->service->settings->log_clients ? client : NULL},
        {"key", LOG_FIELD_TEXT, .text = auth_name(&x->grant)},
        {"id", LOG_FIELD_TEXT, .text = x->id},
        {"trace", LOG_FIELD_TEXT, .text = is_traced ? x->trace.trace : NULL},
        {"span", LOG_FIELD_TEXT, .text = is_traced ? x->trace.span : NULL},
    };
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    _Static_assert(FIELDS <= LOG_FIELDS_MAX, "a line's bound counts them");
    log_fields(is_probe && status < 400 ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "request", fields, FIELDS);
}

void phases_end(struct request *x)
{
    const struct job_look look = job_look(&x->job);
    const bool had_job = look.state != JOB_NONE;
    const char *outcome = had_job ? outcome_of_job(&x->job) : x->error != OK ? "error" : "ok";
    unsigned status = x->http_status;
    if (status == 0) /* the client left before there was an answer */
        status = status_http(ERR_CLIENT_GONE);
    if (x->http_status == 0 || x->cut != OK)
        outcome = job_finish_words[FINISH_CANCELLED];
    if (x->cut != OK)
        x->error = x->cut;
    count(x, had_job, status, outcome);
    if (x->service->settings->log_requests)
        log_end(x, &look, status, outcome);
    authorise_end(x, x->body.received + look.generated);
}
