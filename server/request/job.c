/* job.c - see job.h. Every transition is made by one function, under the job's lock:
 *
 *            job_submit          job_start            job_generated_locked
 *     NONE    ------> QUEUED ---------------> RUNNING ---------------------> STREAMING
 *                       |                        |                               |
 *                       | job_cancel,            | job_finish, job_abort         | job_finish, job_abort
 *                       | through job_abort      |                               |
 *                       +------------------------+------------> DONE <-----------+
 *
 * Whoever takes the job out of a queue (the working thread with queue_pop, or job_cancel with queue_remove) owns the
 * working side's reference and makes the rest of the transitions, or passes it on to another queue (job_pass); so DONE
 * is reached once. A job is QUEUED also while a worker has it before the engine, and RUNNING or STREAMING while it is
 * with one afterwards.
 *
 * Waiting: the HTTP thread looks for an event; if there is none, it sets `suspended` and suspends its connection. The
 * thread that has an event for it clears `suspended` and resumes it. Both happen under the lock, so nothing is missed,
 * no connection is resumed twice, and none after job_detach. */
#include "server/request/job.h"

#include <assert.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/core/clock.h"
#include "server/models/hosted_model.h"

#define X(constant, word) word,
const char *const job_finish_words[] = {JOB_FINISHES(X)};
#undef X

/* ---- life ------------------------------------------------------------------------------------------------------ */

struct job_block {
    struct job_block *next;
    void (*fn)(void *arg); /* NULL: memory alone */
    void *arg;
    alignas(max_align_t) unsigned char bytes[];
};

void *job_create(size_t bytes)
{
    assert(bytes >= sizeof(struct job));
    struct job *j = calloc(1, bytes);
    if (j == NULL || pthread_mutex_init(&j->lock, NULL) != 0) {
        free(j);
        return NULL;
    }
    atomic_init(&j->references, 1);
    return j;
}

void job_reference(struct job *j)
{
    (void)atomic_fetch_add_explicit(&j->references, 1, memory_order_relaxed);
}

void job_release(struct job *j)
{
    if (j == NULL || atomic_fetch_sub_explicit(&j->references, 1, memory_order_acq_rel) != 1)
        return;
    job_undo(j, NULL);
    for (struct job_block *b = j->memory, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    hosted_model_release(j->model);
    (void)pthread_mutex_destroy(&j->lock);
    free(j);
}

static struct job_block *add_block(struct job *j, size_t bytes, struct error *err)
{
    size_t all;
    struct job_block *b = __builtin_add_overflow(sizeof *b, bytes, &all) ? NULL : calloc(1, all);
    if (b == NULL) {
        (void)error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
        return NULL;
    }
    b->next = j->memory;
    j->memory = b;
    return b;
}

void *job_alloc(struct job *j, size_t bytes, struct error *err)
{
    struct job_block *b = add_block(j, bytes, err);
    return b != NULL ? b->bytes : NULL;
}

enum status job_defer(struct job *j, void (*fn)(void *arg), void *arg, struct error *err)
{
    struct job_block *b = add_block(j, 0, err);
    if (b == NULL)
        return ERR_NOMEM;
    b->fn = fn;
    b->arg = arg;
    return OK;
}

void job_undo(struct job *j, const struct job_block *since)
{
    for (struct job_block *b = j->memory; b != since; b = b->next) {
        void (*fn)(void *arg) = b->fn;
        b->fn = NULL;
        if (fn != NULL)
            fn(b->arg);
    }
}

void job_take_model(struct job *j, struct hosted_model *model)
{
    assert(j->model == NULL);
    (void)pthread_mutex_lock(&j->lock); /* others may look */
    j->model = model;
    (void)pthread_mutex_unlock(&j->lock);
}

void *job_begin(struct job *j, const struct job_kind *kind, size_t bytes, struct error *err)
{
    int late = ERR_TIMEOUT;
    void *op = job_alloc(j, bytes, err);
    (void)atomic_compare_exchange_strong(&j->cancelled, &late, OK); /* the job before was; each has its time */
    assert(j->state == JOB_NONE || j->state == JOB_DONE);
    (void)pthread_mutex_lock(&j->lock); /* others may look */
    j->kind = kind;
    j->op = op;
    j->streams = j->resumable = j->is_from_outside = j->saves = j->is_committed = j->ping = false;
    j->engine_cost = j->dropped = j->samples = 0;
    j->input_len = j->answer_bytes = 0;
    j->max_output = 0;
    j->item = (struct queue_item){.kind = 0};
    j->work = (struct job_work){.preprocess = NULL};
    j->result = (struct job_result){.status = OK};
    j->state = JOB_NONE;
    (void)pthread_mutex_unlock(&j->lock);
    return op;
}

/* Of a full queue: end the job that gives way to one of this client; false: there is none. */
static bool make_room(struct queue *q, const struct client_id *client)
{
    struct queue_item *other = queue_make_room(q, client);
    if (other != NULL)
        job_abort(job_of_item(other), ERR_FULL, NULL, clock_now_ns());
    return other != NULL;
}

enum status job_submit(struct job *j, struct queue *q, uint32_t lane, uint64_t deadline_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    j->queue = q;
    j->deadline_ns = deadline_ns;
    j->result.queued_ns = clock_now_ns();
    j->state = JOB_QUEUED;
    (void)pthread_mutex_unlock(&j->lock);
    job_reference(j); /* before the push: the engine may be done with the job when it returns */
    enum status st;
    do {
        st = queue_push(q, lane, &j->item);
    } while (st == ERR_FULL && make_room(q, &j->item.client));
    if (st == OK)
        return OK;
    (void)pthread_mutex_lock(&j->lock);
    j->state = JOB_NONE;
    (void)pthread_mutex_unlock(&j->lock);
    job_release(j);
    return st;
}

/* Under the lock, so that job_cancel looks for the job where it is. */
static enum status pass(struct job *j, struct queue *q, uint32_t lane)
{
    (void)pthread_mutex_lock(&j->lock);
    enum status st = (enum status)atomic_load(&j->cancelled);
    if (st == OK) {
        struct queue *before = j->queue;
        j->queue = q;
        if (j->state == JOB_QUEUED)
            j->result.queued_ns = clock_now_ns();
        st = queue_push(q, lane, &j->item);
        if (st != OK)
            j->queue = before;
    }
    (void)pthread_mutex_unlock(&j->lock);
    return st;
}

enum status job_pass(struct job *j, struct queue *q, uint32_t lane)
{
    enum status st;
    job_reference(j); /* whoever pops it may be done with it before the lock is given up */
    do {
        st = pass(j, q, lane);
    } while (st == ERR_FULL && make_room(q, &j->item.client));
    job_release(j);
    return st;
}

enum status job_commit(struct job *j, struct queue *q, uint32_t lane)
{
    job_reference(j);
    (void)pthread_mutex_lock(&j->lock);
    j->is_committed = true;
    const enum status st = queue_push(q, lane, &j->item);
    (void)pthread_mutex_unlock(&j->lock);
    job_release(j);
    return st;
}

/* ---- waiting and reading --------------------------------------------------------------------------------------- */

void job_attach(struct job *j, const struct job_waiter *waiter)
{
    (void)pthread_mutex_lock(&j->lock);
    j->waiter = *waiter;
    j->attached = true;
    (void)pthread_mutex_unlock(&j->lock);
}

void job_detach(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    j->attached = false;
    j->suspended = false;
    (void)pthread_mutex_unlock(&j->lock);
}

static void suspend_locked(struct job *j)
{
    assert(j->attached && !j->suspended);
    j->suspended = true;
    j->waiter.suspend(j->waiter.arg);
}

void job_resume_locked(struct job *j)
{
    if (!j->suspended)
        return;
    j->suspended = false;
    j->waiter.resume(j->waiter.arg);
}

bool job_ready_or_suspend(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    const bool ready = j->state == JOB_DONE || (j->state == JOB_STREAMING && j->streams);
    if (!ready)
        suspend_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
    return ready;
}

enum job_event job_other_event_locked(struct job *j)
{
    if (j->state == JOB_DONE)
        return JOB_EVENT_END;
    if (j->ping)
        return JOB_EVENT_PING;
    suspend_locked(j);
    return JOB_EVENT_LATER;
}

bool job_is_done(struct job *j)
{
    return job_look(j).state == JOB_DONE;
}

struct job_look job_look(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    const struct job_look look = {
        .state = j->state,
        .queued_ns = j->result.queued_ns,
        .left_queue_ns = j->result.started_ns != 0 ? j->result.started_ns : j->result.done_ns,
        .first_ns = j->result.first_ns,
        .generated = j->result.generated,
        .deadline_ns = j->deadline_ns,
        .resumable = j->state != JOB_NONE && j->resumable, /* what is being made is its thread's alone */
        .model = j->model,
    };
    (void)pthread_mutex_unlock(&j->lock);
    return look;
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

void job_cancel(struct job *j, enum status st)
{
    int none = OK;
    (void)atomic_compare_exchange_strong(&j->cancelled, &none, (int)st);
    (void)pthread_mutex_lock(&j->lock);
    const bool waited =
        j->state != JOB_NONE && j->state != JOB_DONE && !j->is_committed && queue_remove(j->queue, &j->item);
    (void)pthread_mutex_unlock(&j->lock);
    if (waited)
        job_abort(j, (enum status)atomic_load(&j->cancelled), NULL, clock_now_ns());
}

void job_ping(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    if (j->state == JOB_STREAMING && j->suspended) {
        j->ping = true;
        job_resume_locked(j);
    }
    (void)pthread_mutex_unlock(&j->lock);
}

/* ---- the thread that works for it ------------------------------------------------------------------------------ */

void job_start(struct job *j, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    assert(j->state == JOB_QUEUED);
    j->state = JOB_RUNNING;
    j->result.started_ns = now_ns;
    (void)pthread_mutex_unlock(&j->lock);
}

bool job_generated_locked(struct job *j, uint64_t now_ns)
{
    const bool first = j->state == JOB_RUNNING;
    assert(first || j->state == JOB_STREAMING);
    if (first) {
        j->state = JOB_STREAMING;
        j->result.first_ns = now_ns;
    }
    j->result.generated++;
    return first;
}

/* The transition to DONE: completes the result and drops the working side's reference. */
static void job_end(struct job *j, enum status st, enum job_finish finish, const char *message, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    assert(j->state != JOB_DONE);
    if (j->kind->end_locked != NULL)
        finish = j->kind->end_locked(j, st, finish);
    j->state = JOB_DONE;
    j->result.status = st;
    j->result.finish = finish;
    j->result.done_ns = now_ns;
    j->result.error.status = st;
    (void)snprintf(j->result.error.message, sizeof j->result.error.message, "%s", message);
    job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
    job_release(j);
}

void job_finish(struct job *j, enum job_finish finish, uint64_t now_ns)
{
    if (j->work.workers == NULL || !j->work.hand_off(j, finish, now_ns))
        job_complete(j, finish, now_ns);
}

void job_complete(struct job *j, enum job_finish finish, uint64_t now_ns)
{
    job_end(j, OK, finish, "", now_ns);
}

static const char *reason_text(enum status st)
{
    switch (st) {
    case ERR_TIMEOUT:
        return "the request's deadline passed before there was an answer";
    case ERR_CLIENT_GONE:
        return "the client closed the connection";
    case ERR_CANCELLED_BY_ADMIN:
        return "an administrator cancelled the request";
    case ERR_UNAVAILABLE:
        return "the server is shutting down";
    case ERR_FULL:
        return "the queue is full, and another client has fewer jobs in it; try again later";
    default:
        return "the request could not be completed";
    }
}

void job_abort(struct job *j, enum status st, const char *message, uint64_t now_ns)
{
    assert(st != OK);
    const bool begun = j->result.generated > 0;
    if (begun && st == ERR_TIMEOUT && (j->kind->ends_late || j->streams))
        job_finish(j, FINISH_TIMEOUT, now_ns);
    else if (begun && j->streams && (st == ERR_CLIENT_GONE || st == ERR_CANCELLED_BY_ADMIN || st == ERR_UNAVAILABLE))
        job_end(j, OK, st == ERR_UNAVAILABLE && j->resumable ? FINISH_MOVED : FINISH_CANCELLED, "", now_ns);
    else
        job_end(j, st, FINISH_CANCELLED, message != NULL ? message : reason_text(st), now_ns);
}
