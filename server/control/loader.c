/* loader.c - see loader.h. A job's change is the HTTP thread's until it is submitted, then this thread's until it is
 * done, then again the HTTP thread's. */
#include "server/control/loader.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/file.h"
#include "server/control/hosting.h"
#include "server/control/reload.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/mailbox.h"
#include "server/core/queue.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"
#include "server/request/job.h"

struct loader {
    struct hosting *hosting;
    struct reload *reload;
    struct mailboxes *mailboxes;
    struct queue *queue;
    pthread_t thread;
    atomic_bool reload_asked, stop;
};

/* ---- jobs ------------------------------------------------------------------------------------------------------ */

/* It needs no model and has no elements. */
static const struct job_kind job_kind_change = {.tells_finish = false};

struct loader_change *loader_job_change(const struct job *j)
{
    assert(j->kind == &job_kind_change);
    return j->op;
}

static void free_report(void *change)
{
    json_decref(((struct loader_change *)change)->report);
}

enum status loader_begin(struct job *j, enum loader_action action, const char *model, struct error *err)
{
    struct loader_change *c = job_begin(j, &job_kind_change, sizeof *c, err);
    if (c == NULL || job_defer(j, free_report, c, err) != OK)
        return ERR_NOMEM;
    c->action = action;
    (void)snprintf(c->model, sizeof c->model, "%s", model);
    return OK;
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static enum status make_change(struct loader *l, struct loader_change *c, struct error *err)
{
    switch (c->action) {
    case LOADER_CONFIG:
        return reload_run(l->reload, &c->report, err);
    case LOADER_UNLOAD:
        return hosting_unload(l->hosting, c->model, err);
    default:
        return hosting_load(l->hosting, c->model, c->action == LOADER_RELOAD, err);
    }
}

/* The status for whoever asked: that a file of ours is not accepted, so that nothing was changed, is not a failure of
 * the server. */
static enum status as_answer(enum status st)
{
    return st == ERR_FORMAT || st == ERR_CONFIG || st == ERR_UNSUPPORTED || st == ERR_IO ? ERR_REFUSED : st;
}

static void run_job(struct loader *l, struct job *j)
{
    struct error err;
    enum status st = job_stop_reason(j, clock_now_ns());
    if (st != OK || atomic_load(&l->stop)) {
        job_abort(j, st != OK ? st : ERR_UNAVAILABLE, NULL, clock_now_ns());
        return;
    }
    job_start(j, clock_now_ns());
    st = make_change(l, loader_job_change(j), &err);
    if (st == OK)
        job_finish(j, FINISH_STOP, clock_now_ns());
    else
        job_abort(j, as_answer(st), err.message, clock_now_ns());
}

static void run_reload(struct loader *l)
{
    struct error err;
    json_t *report = NULL;
    if (reload_run(l->reload, &report, &err) != OK)
        log_error("reload: %s", err.message);
    json_decref(report);
}

/* Do one piece of work; false: there is nothing to do. */
static bool work(struct loader *l)
{
    struct queue_item *item = queue_pop(l->queue, 0);
    bool found = true;
    if (item != NULL)
        run_job(l, job_of_item(item));
    else if (atomic_load(&l->stop))
        found = false;
    else if (atomic_exchange(&l->reload_asked, false))
        run_reload(l);
    else
        found = hosting_load_wanted(l->hosting);
    mailbox_notify(l->mailboxes);
    batcher_reap(l->hosting->batcher);
    return found;
}

static void *loader_thread(void *arg)
{
    struct loader *l = arg;
    while (queue_wait(l->queue))
        while (work(l))
            continue;
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

enum status loader_start(struct loader **ret, struct hosting *h, struct reload *reload, struct mailboxes *mailboxes,
                         struct error *err)
{
    struct loader *l = calloc(1, sizeof *l);
    if (l == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the thread that loads models");
    l->hosting = h;
    l->reload = reload;
    l->mailboxes = mailboxes;
    if (queue_create(&l->queue, 1, LOADER_CHANGES_MAX) != OK ||
        pthread_create(&l->thread, NULL, loader_thread, l) != 0) {
        loader_free(l);
        return error_set(err, ERR_NOMEM, "the thread that loads models cannot be started");
    }
    (void)pthread_setname_np(l->thread, "loader");
    batcher_wake_for_gone(h->batcher, l->queue);
    registry_wake_for_wanted(h->registry, l->queue);
    *ret = l;
    return OK;
}

void loader_stop(struct loader *l)
{
    atomic_store(&l->stop, true);
    file_stop_reading();
    queue_close(l->queue);
    (void)pthread_join(l->thread, NULL);
}

void loader_free(struct loader *l)
{
    if (l == NULL)
        return;
    queue_free(l->queue);
    free(l);
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

struct queue *loader_queue(const struct loader *l)
{
    return l->queue;
}

void loader_ask_reload(struct loader *l)
{
    atomic_store(&l->reload_asked, true);
    queue_wake(l->queue);
}
