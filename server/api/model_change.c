/* model_change.c - see model_change.h. */
#include "server/api/model_change.h"

#include <string.h>

#include "config/limits.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/request/job.h"
#include "server/request/service.h"

enum status model_change_submit(struct request *x, enum loader_action action, const char *model, request_step *next,
                                struct error *err)
{
    const uint64_t deadline_ns = x->received_ns + x->service->settings->timeout_ms_max * CLOCK_NS_PER_MS;
    if (strlen(model) > MODEL_NAME_MAX)
        return error_set_param(err, ERR_NOT_FOUND, "model",
                               "the name of the model is too long; expected at most %d bytes", MODEL_NAME_MAX);
    enum status st = loader_begin(&x->job, action, model, err);
    if (st != OK)
        return st;
    st = job_submit(&x->job, loader_queue(x->service->loader), 0, deadline_ns);
    if (st != OK)
        return error_set(
            err, st, st == ERR_FULL ? "too many changes are waiting; try again later" : "the server is shutting down");
    request_drop_body(x);
    request_watch_job(x, next);
    return OK;
}
