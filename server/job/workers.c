/* workers.c - see workers.h.
 *
 * Threads: workers, at a lower priority than all others; workers_submit, workers_give_back and the freeing of jobs run
 * on any thread, and the engine's calls go_on for the jobs that are to be drawn.
 * Locks: the pool's, under which only a queue's is taken; never together with a job's.
 *
 * A job that is popped, and for which there is no room yet, is the `next` one: nothing else is prepared before it, or
 * small ones would keep a large one waiting forever. It looks for room whenever memory is given back. Room comes in any
 * case: all that holds memory is being worked on, or waits for the engine, or to be concluded, which needs no more.
 * job_cancel does not find `next` in the queue; a worker looks every LOOK_MS whether it is still wanted. */
#include "server/job/workers.h"

#include <assert.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/mailbox.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/job/work_turns.h"
#include "server/models/hosted_model.h"

#define TRIM_BYTES (UINT64_C(16) << 20) /* taken since the memory was last returned to the system: worth a look */

enum { LOOK_MS = 50 }; /* at a job that waits for room */

struct workers {
    struct workers_purpose purpose;
    const struct settings *settings;
    struct mailboxes *mailboxes;
    uint64_t bytes_max;
    atomic_bool is_cancelled;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    uint64_t held;      /* of the budget */
    uint64_t untrimmed; /* taken since the last malloc_trim */
    uint32_t running;   /* workers at work */
    struct work_turns *turns;
    struct job *next; /* popped, its memory is not there yet; NULL: none */
    bool next_concludes;
    bool is_closed;
    uint32_t begun; /* threads: each takes the next place among `turns` */
    /* the starting thread's */
    uint32_t started;
    pthread_t threads[]; /* [purpose.threads] */
};

/* What a worker does next. */
struct task {
    struct job *job;
    bool concludes;
};

/* ---- the budget -------------------------------------------------------------------------------------------------- */

static bool has_room_locked(const struct workers *w, uint64_t bytes)
{
    return bytes <= w->bytes_max && w->held <= w->bytes_max - bytes;
}

static void take_room_locked(struct workers *w, struct job_work *k, uint64_t bytes)
{
    k->held += bytes;
    w->held += bytes;
}

/* After a storm: pictures leave holes that the next request may never fill. */
static bool is_worth_trimming_locked(const struct workers *w)
{
    return w->running == 0 && w->untrimmed >= TRIM_BYTES && w->held < TRIM_BYTES && w->next == NULL;
}

/* Keep no more than `kept` of what is held. A worker is woken only for what may be of use to it: most pictures are
 * small, and no worker has to do with them. */
static void keep_locked(struct workers *w, struct job_work *k, uint64_t kept)
{
    const bool opens = kept == 0 && k->is_ahead;
    w->held -= k->held;
    k->held = kept < k->held ? kept : k->held;
    w->held += k->held;
    if (opens) {
        w->turns->ahead[k->lane] -= k->pictures;
        k->is_ahead = false;
    }
    if (opens || w->next != NULL || is_worth_trimming_locked(w))
        (void)pthread_cond_signal(&w->changed);
}

static void keep(struct job_work *k, uint64_t kept)
{
    struct workers *w = k->workers;
    if (w == NULL || (k->held == 0 && !k->is_ahead))
        return;
    (void)pthread_mutex_lock(&w->lock);
    keep_locked(w, k, kept);
    (void)pthread_mutex_unlock(&w->lock);
}

void workers_give_back(struct job *j)
{
    if (j->work != NULL)
        keep(j->work, 0);
}

/* Only what overtakes nobody. */
static bool take_room_at_once(struct workers *w, struct job_work *k)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool fits = w->next == NULL && has_room_locked(w, k->prepare_bytes);
    if (fits)
        take_room_locked(w, k, k->prepare_bytes);
    (void)pthread_mutex_unlock(&w->lock);
    return fits;
}

/* ---- what is next ----------------------------------------------------------------------------------------------- */

/* Find something to do, and take the memory for it. */
static bool find_locked(struct workers *w, struct task *t)
{
    struct job *kept = work_turns_pop_kept(w->turns);
    if (kept != NULL) {
        *t = (struct task){kept, true};
        return true;
    }
    if (w->next == NULL) {
        uint32_t lane;
        w->next = work_turns_pop(w->turns, w->is_cancelled, &lane);
        if (w->next == NULL)
            return false;
        w->next_concludes = lane == WORK_LANE_DRAW;
    }
    struct job_work *k = w->next->work;
    const uint64_t bytes = w->next_concludes ? k->conclude_bytes : k->prepare_bytes;
    if (!w->is_cancelled && job_stop_reason(w->next, clock_now_ns()) == OK) {
        if (!has_room_locked(w, bytes))
            return false;
        take_room_locked(w, k, bytes);
        w->untrimmed += bytes;
        if (!w->next_concludes && k->pictures > 0) {
            w->turns->ahead[k->lane] += k->pictures;
            k->is_ahead = true;
        }
    }
    *t = (struct task){w->next, w->next_concludes};
    w->next = NULL;
    return true;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static unsigned label_of(const struct job *j)
{
    return j->model != NULL ? j->model->metrics_label : METRICS_MODEL_NONE;
}

static enum status prepare(struct job *j, struct error *err)
{
    const uint64_t start_ns = clock_now_ns();
    const enum status st = j->work->prepare(j, err);
    metrics_histogram_observe(j->work->workers->purpose.prepare, label_of(j), clock_now_ns() - start_ns);
    keep(j->work, st == OK ? j->work->kept : 0);
    return st;
}

static enum status conclude(struct job *j, struct error *err)
{
    const uint64_t start_ns = clock_now_ns();
    const enum status st = j->work->conclude(j, err);
    j->work->is_concluded = true;
    metrics_histogram_observe(j->work->workers->purpose.conclude, label_of(j), clock_now_ns() - start_ns);
    keep(j->work, 0);
    return st;
}

/* End a job that cannot go on; err: what was wrong with it, NULL: only that it must stop. */
static void abandon(struct job *j, enum status st, const struct error *err)
{
    const uint64_t now_ns = clock_now_ns();
    /* What could not be committed is an error, however late it is: the client must not think that it was. */
    const enum status stop = j->work->commits && j->work->is_concluded ? OK : job_stop_reason(j, now_ns);
    keep(j->work, 0);
    if (stop == OK && err != NULL)
        (void)snprintf(j->result.param, sizeof j->result.param, "%s", err->param);
    job_abort(j, stop != OK ? stop : st, stop == OK && err != NULL ? err->message : NULL, now_ns);
}

static void run(struct workers *w, const struct task *t)
{
    struct job *j = t->job;
    struct job_work *k = j->work;
    struct error err;
    enum status st = job_stop_reason(j, clock_now_ns());
    if (st == OK && w->is_cancelled) /* never unset: if it is just being set, the job is among the last that run */
        st = ERR_UNAVAILABLE;
    if (st != OK && !(t->concludes && k->commits)) {
        abandon(j, st, NULL);
        return;
    }
    st = t->concludes ? conclude(j, &err) : prepare(j, &err);
    if (st != OK) {
        abandon(j, st, &err);
    } else if (t->concludes) {
        job_complete(j, k->finish, clock_now_ns());
    } else {
        j->item.cost = j->engine_cost;
        st = job_pass(j, k->engine, k->lane);
        if (st == ERR_FULL)
            (void)error_set(&err, st, "the queue is full: %u jobs are waiting", w->settings->queue_jobs_max);
        if (st != OK)
            abandon(j, st, st == ERR_FULL ? &err : NULL);
    }
}

/* ---- the threads ------------------------------------------------------------------------------------------------- */

static void wait_locked(struct workers *w)
{
    if (w->next == NULL) {
        (void)pthread_cond_wait(&w->changed, &w->lock);
        return;
    }
    const struct timespec until = clock_timespec(clock_now_ns() + LOOK_MS * CLOCK_NS_PER_MS);
    (void)pthread_cond_clockwait(&w->changed, &w->lock, CLOCK_MONOTONIC, &until);
}

static void *worker_thread(void *arg)
{
    struct workers *w = arg;
    const int before = getpriority(PRIO_PROCESS, (id_t)gettid());
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(),
                      before + w->purpose.nice); /* at most the lowest; needs no privilege */
    struct task t;
    (void)pthread_mutex_lock(&w->lock);
    struct work_thread *self = &w->turns->threads[w->begun++];
    for (;;) {
        if (find_locked(w, &t)) {
            w->running++;
            *self = (struct work_thread){.client = t.job->item.client, .is_busy = true};
            (void)pthread_cond_signal(&w->changed); /* there may be something for another as well */
            (void)pthread_mutex_unlock(&w->lock);
            run(w, &t);
            mailbox_notify(w->mailboxes);
            (void)pthread_mutex_lock(&w->lock);
            w->running--;
            self->is_busy = false;
        } else if (w->is_closed) {
            break;
        } else if (is_worth_trimming_locked(w)) {
            w->untrimmed = 0;
            (void)pthread_mutex_unlock(&w->lock);
            (void)malloc_trim(0);
            (void)pthread_mutex_lock(&w->lock);
        } else {
            wait_locked(w);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- start and end ----------------------------------------------------------------------------------------------- */

enum status workers_start(struct workers **ret, const struct workers_purpose *p, const struct settings *s,
                          struct mailboxes *mailboxes, struct error *err)
{
    struct workers *w = calloc(1, sizeof *w + p->threads * sizeof w->threads[0]);
    if (w == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the threads that %s", p->work);
    w->purpose = *p;
    w->settings = s;
    w->mailboxes = mailboxes;
    w->bytes_max = (uint64_t)s->pictures_memory_max_mb << 20;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    if (work_turns_create(&w->turns, s, p->threads, p->kept_max) != OK) {
        workers_stop(w);
        workers_free(w);
        return error_set(err, ERR_NOMEM, "no memory for the queue of the threads that %s", p->work);
    }
    for (; w->started < p->threads; w->started++) {
        if (pthread_create(&w->threads[w->started], NULL, worker_thread, w) != 0) {
            const enum status st =
                error_set(err, ERR_NOMEM, "thread %u of %u that %s cannot be started; expected room for %s",
                          w->started + 1, p->threads, p->work, p->setting);
            workers_stop(w);
            workers_free(w);
            return st;
        }
        (void)pthread_setname_np(w->threads[w->started], p->name);
    }
    *ret = w;
    return OK;
}

void workers_cancel(struct workers *w)
{
    if (w->turns != NULL) {
        queue_close(w->turns->waiting);
        queue_close(w->turns->kept);
    }
    (void)pthread_mutex_lock(&w->lock);
    atomic_store(&w->is_cancelled, true);
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

void workers_stop(struct workers *w)
{
    if (w == NULL)
        return;
    workers_cancel(w);
    (void)pthread_mutex_lock(&w->lock);
    w->is_closed = true;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->started; i++)
        (void)pthread_join(w->threads[i], NULL);
    w->started = 0;
}

void workers_free(struct workers *w)
{
    if (w == NULL)
        return;
    assert(w->held == 0 && w->next == NULL);
    work_turns_free(w->turns);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static enum status push_and_wake(struct workers *w, enum status st)
{
    if (st != OK)
        return st;
    (void)pthread_mutex_lock(&w->lock); /* or a worker that has just found nothing would miss it */
    (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    return OK;
}

/* In units that all of a worker's queues have in common: microseconds. */
static uint32_t cost_of(uint64_t ns)
{
    const uint64_t us = ns / 1000;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static bool concludes_later(const struct job_work *k)
{
    return k->conclude != NULL && k->conclude_ns > WORKERS_AT_ONCE_NS;
}

/* job_way.goes_on: what takes no time is left to the thread that answers. */
static bool goes_on(struct job_work *k, struct job *j, enum job_finish finish, uint64_t now_ns)
{
    if (!concludes_later(k) || j->result.computed_ns != 0)
        return false; /* or it has been there */
    struct workers *w = k->workers;
    k->finish = finish;
    j->result.computed_ns = now_ns;
    j->item.cost = cost_of(k->conclude_ns);
    const enum status st = k->commits ? job_commit(j, w->turns->kept, 0) : job_pass(j, w->turns->kept, 0);
    if (push_and_wake(w, st) != OK)
        abandon(j, st, NULL);
    return true;
}

static void free_work(struct job_work *k)
{
    keep(k, 0);
    k->free(k);
}

static const struct job_way way = {.goes_on = goes_on, .free = free_work};

void job_set_work(struct job *j, struct job_work *k)
{
    j->work = k;
    j->way = &way;
}

static enum status check_bytes(const struct workers *w, uint64_t bytes, struct error *err)
{
    if (bytes <= w->bytes_max)
        return OK;
    return error_set(err, ERR_PICTURE,
                     "the picture takes %llu bytes of memory; expected at most %llu for all pictures together",
                     (unsigned long long)bytes, (unsigned long long)w->bytes_max);
}

enum status workers_submit(struct workers *w, struct job *j, struct queue *engine, uint32_t lane, uint64_t deadline_ns,
                           struct error *err)
{
    struct job_work *k = j->work;
    k->workers = w;
    k->engine = engine;
    k->lane = lane;
    j->deadline_ns = deadline_ns;
    enum status st = check_bytes(w, k->prepare_bytes, err);
    if (st == OK)
        st = check_bytes(w, k->conclude_bytes, err);
    if (st != OK)
        return st;
    j->item.cost = j->engine_cost;
    if (engine != NULL && k->prepare == NULL)
        return job_submit(j, engine, lane, deadline_ns);
    j->item.cost = cost_of(k->prepare_ns + k->conclude_ns);
    if (engine == NULL)
        return push_and_wake(w, job_submit(j, w->turns->waiting, WORK_LANE_DRAW, deadline_ns));
    if (k->prepare_ns > WORKERS_AT_ONCE_NS || concludes_later(k) || !take_room_at_once(w, k))
        return push_and_wake(w, job_submit(j, w->turns->waiting, lane, deadline_ns));
    st = prepare(j, err);
    j->item.cost = j->engine_cost;
    return st == OK ? job_submit(j, engine, lane, deadline_ns) : st;
}

enum status workers_conclude(struct job *j, struct error *err)
{
    return j->work->is_concluded ? OK : conclude(j, err);
}

uint32_t workers_waiting(struct workers *w)
{
    (void)pthread_mutex_lock(&w->lock); /* under which a job is taken up, and has its memory or waits for it */
    const uint32_t waiting = queue_count(w->turns->waiting);
    (void)pthread_mutex_unlock(&w->lock);
    return waiting;
}

void workers_measure(struct workers *w)
{
    const uint32_t waiting = queue_count(w->turns->waiting) + queue_count(w->turns->kept);
    (void)pthread_mutex_lock(&w->lock);
    metrics_gauge_set(METRIC_PICTURES_WAITING, 0, waiting + (w->next != NULL ? 1 : 0));
    metrics_gauge_set(METRIC_PICTURES_RUNNING, 0, w->running);
    metrics_gauge_set(METRIC_PICTURE_BYTES, 0, w->held);
    metrics_gauge_set(METRIC_PICTURE_LIMIT, 0, w->bytes_max);
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- jobs without the engine ------------------------------------------------------------------------------------- */

static void free_job(struct job *j)
{
    free(j);
}

const struct job_kind job_kind_work = {.free = free_job};

enum status work_job_create(struct job **ret, struct hosted_model *model, struct job_work *k)
{
    struct job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return ERR_NOMEM;
    const enum status st = job_init(j, &job_kind_work, model);
    if (st != OK) {
        free(j);
        return st;
    }
    job_set_work(j, k);
    *ret = j;
    return OK;
}
