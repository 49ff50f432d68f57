/* model_change.c - see model_change.h. */
#include "server/api/model_change.h"

#include <string.h>

#include "config/limits.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/request/job.h"
#include "server/request/reply.h"
#include "server/request/service.h"

void model_change_submit(struct request *x, enum loader_action action, const char *model, request_handler *next)
{
    struct job *j = NULL;
    struct error err;
    enum status st = OK;
    if (strlen(model) > MODEL_NAME_MAX)
        st = error_set_param(&err, ERR_NOT_FOUND, "model",
                             "the name of the model is too long; expected at most %d bytes", MODEL_NAME_MAX);
    else if (loader_job_create(&j, action, model) != OK)
        st = error_set(&err, ERR_NOMEM, "out of memory for the request; try again later");
    if (st == OK) {
        const uint64_t deadline_ns = x->received_ns + x->service->settings->timeout_ms_max * CLOCK_NS_PER_MS;
        st = job_submit(j, loader_queue(x->service->loader), 0, deadline_ns);
        if (st != OK)
            (void)error_set(&err, st,
                            st == ERR_FULL ? "too many changes are waiting; try again later"
                                           : "the server is shutting down");
    }
    if (st == OK) {
        request_drop_body(x);
        request_await(x, j, next);
    } else {
        reply_send_error(x, &err);
    }
    job_release(j);
}
