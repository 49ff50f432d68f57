/* loader.h - the thread that changes which models are served, while others serve them: what an administrator asks for,
 * what a signal asks for, models that are requested for the first time (models_lazy), and freeing those that were
 * replaced. One change at a time, in the order they came. Reading and packing a model's weights is done on this thread
 * alone, which has no team of threads: streams go on meanwhile.
 *
 * What an administrator asks for is a job (job.h) of a kind of the loader's own, in its own queue, so that its
 * connection waits like any other. A change that has begun is completed even if its client has left. */
#ifndef SERVER_CONTROL_LOADER_H
#define SERVER_CONTROL_LOADER_H

#include <jansson.h>

#include "config/status.h"
#include "server/models/models_dir.h"
#include "server/request/job.h"

struct loader;
struct hosting;
struct mailboxes;
struct queue;
struct reload;

/* What can be asked for; CONFIG is not an action on a model. */
#define LOADER_ACTIONS(X)      \
    X(LOADER_LOAD, "load")     \
    X(LOADER_UNLOAD, "unload") \
    X(LOADER_RELOAD, "reload")
#define X(constant, word) constant,
enum loader_action { LOADER_ACTIONS(X) LOADER_CONFIG };
#undef X

/* Start the thread. All arguments are borrowed until loader_free. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status loader_start(struct loader **ret, struct hosting *h, struct reload *reload, struct mailboxes *mailboxes,
                         struct error *err);
/* Refuse what waits and what comes with ERR_UNAVAILABLE, finish what runs, join the thread. Once. */
void loader_stop(struct loader *l);
/* After loader_stop and hosting_stop, when nobody asks for a model any more. NULL is a no-op. */
void loader_free(struct loader *l);

/* ---- any thread ------------------------------------------------------------------------------------------------ */

/* Begin a job for a change, to be submitted to lane 0 of loader_queue. `model` is copied; "" for LOADER_CONFIG.
 * Errors: ERR_NOMEM. */
enum status loader_begin(struct job *j, enum loader_action action, const char *model, struct error *err);
struct queue *loader_queue(const struct loader *l);
/* What was asked for and, once the job is done and OK, what came of it. */
struct loader_change {
    enum loader_action action;
    char model[MODEL_NAME_MAX + 1];
    json_t *report; /* of LOADER_CONFIG: of reload_run */
};
struct loader_change *loader_job_change(const struct job *j); /* borrowed from the job */

/* Ask for the configuration to be read again and models_dir to be scanned; the outcome is logged. */
void loader_ask_reload(struct loader *l);

#endif
