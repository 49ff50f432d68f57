/* workers.c - see workers.h.
 *
 * Threads: workers, at a lower priority than all others; workers_submit, workers_give_back and the freeing of jobs run
 * on any thread; the engine's calls hand_off for a job that is to be postprocessed.
 * Locks: the pool's, under which only a queue's is taken; never together with a job's.
 *
 * A job that is popped, and for which there is no room yet, is the `next` one: nothing else is preprocessed before it,
 * or small ones would keep a large one waiting forever. It looks for room whenever memory is given back. Room comes in
 * any case: all that holds memory is being worked on, or waits for the engine, or to be postprocessed, which needs no
 * more. job_cancel does not find `next` in the queue; a worker looks every LOOK_MS whether it is still wanted. */
#include "server/request/workers.h"

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
#include "server/models/hosted_model.h"

#define TRIM_BYTES (UINT64_C(16) << 20) /* taken since the memory was last returned to the system: worth a look */

enum { LOOK_MS = 50 };          /* at a job that waits for room */
enum { AHEAD_BATCHES_MAX = 3 }; /* one runs, one is next, one is being made */

/* Lanes of `waiting`: jobs to preprocess, one lane for each of the engine's, and such as are only postprocessed. */
enum { LANE_POSTPROCESS = BATCHER_LANES_MAX, WAITING_LANES };

struct worker {
    struct workers *pool;
    pthread_t thread;
    bool is_busy;            /* under the pool's lock, as is: */
    struct client_id client; /* for whom */
};

struct workers {
    struct workers_purpose purpose;
    const struct settings *settings;
    struct mailboxes *mailboxes;
    uint64_t bytes_max;
    struct queue *waiting;        /* for memory, and their turn */
    struct queue *postprocessing; /* back from the engine, to be postprocessed with what they kept */
    uint32_t ahead_max;           /* pictures of a lane that may be ready before another job is preprocessed */
    atomic_bool is_cancelled;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    uint64_t held;                     /* of the budget */
    uint64_t untrimmed;                /* taken since the last malloc_trim */
    uint32_t running;                  /* workers at work */
    uint32_t turn;                     /* the lane of `waiting` that is next */
    uint32_t ahead[BATCHER_LANES_MAX]; /* pictures of a lane that are ready for the engine, or soon will be */
    struct job *next;                  /* popped, its memory is not there yet; NULL: none */
    bool next_postprocesses;
    bool is_closed;
    /* the starting thread's */
    uint32_t started;
    struct worker threads[]; /* [purpose.threads] */
};

/* ---- the budget ------------------------------------------------------------------------------------------------- */

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
static void keep(struct job_work *k, uint64_t kept)
{
    struct workers *w = k->workers;
    if (w == NULL || (k->held == 0 && !k->is_ahead))
        return;
    (void)pthread_mutex_lock(&w->lock);
    const bool opens = kept == 0 && k->is_ahead;
    w->held -= k->held;
    k->held = kept < k->held ? kept : k->held;
    w->held += k->held;
    if (opens) {
        w->ahead[k->lane] -= k->pictures;
        k->is_ahead = false;
    }
    if (opens || w->next != NULL || is_worth_trimming_locked(w))
        (void)pthread_cond_signal(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
}

void workers_give_back(struct job *j)
{
    keep(&j->work, 0);
}

static void give_back(void *job)
{
    workers_give_back(job);
}

/* Only what overtakes nobody. */
static bool take_room_at_once(struct workers *w, struct job_work *k)
{
    (void)pthread_mutex_lock(&w->lock);
    const bool fits = w->next == NULL && has_room_locked(w, k->preprocess_bytes);
    if (fits)
        take_room_locked(w, k, k->preprocess_bytes);
    (void)pthread_mutex_unlock(&w->lock);
    return fits;
}

/* ---- what is next ----------------------------------------------------------------------------------------------- */

uint32_t workers_ahead(const struct settings *s)
{
    return BATCHER_LANES_MAX * AHEAD_BATCHES_MAX * s->batch_images_max;
}

/* queue_load, under the lock: how many threads are at work for a client. */
static int64_t threads_of(void *arg, const struct client_id *client)
{
    const struct workers *w = arg;
    const uint32_t most = w->purpose.threads > 1 ? w->purpose.threads - 1 : 1;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < w->purpose.threads; i++)
        busy += w->threads[i].is_busy && client_id_is_same(&w->threads[i].client, client) ? 1 : 0;
    return busy < most ? (int64_t)busy : -1;
}

static struct job *pop_locked(struct workers *w, struct queue *q, uint32_t lane)
{
    struct queue_item *item = queue_pop_least(q, lane, threads_of, w);
    return item != NULL ? job_of_item(item) : NULL;
}

/* The lanes take turns; while all is cancelled also those of which the engine wants nothing soon. NULL: none may be
 * taken now. */
static struct job *pop_waiting_locked(struct workers *w, bool *postprocesses)
{
    struct job *j = NULL;
    for (uint32_t i = 0; i < WAITING_LANES && j == NULL && queue_count(w->waiting) > 0; i++) {
        const uint32_t at = (w->turn + i) % WAITING_LANES;
        if (at != LANE_POSTPROCESS && w->ahead[at] >= w->ahead_max && !w->is_cancelled)
            continue;
        j = pop_locked(w, w->waiting, at);
        *postprocesses = at == LANE_POSTPROCESS;
        if (j != NULL)
            w->turn = (at + 1) % WAITING_LANES;
    }
    return j;
}

/* Find something to do, and take the memory for it. NULL: there is nothing. */
static struct job *find_locked(struct workers *w, bool *postprocesses)
{
    struct job *j = pop_locked(w, w->postprocessing, 0);
    *postprocesses = true;
    if (j != NULL)
        return j;
    if (w->next == NULL)
        w->next = pop_waiting_locked(w, &w->next_postprocesses);
    j = w->next;
    if (j == NULL)
        return NULL;
    struct job_work *k = &j->work;
    const uint64_t bytes = w->next_postprocesses ? k->postprocess_bytes : k->preprocess_bytes;
    if (!w->is_cancelled && job_stop_reason(j, clock_now_ns()) == OK) {
        if (!has_room_locked(w, bytes))
            return NULL;
        take_room_locked(w, k, bytes);
        w->untrimmed += bytes;
        if (!w->next_postprocesses && k->pictures > 0) {
            w->ahead[k->lane] += k->pictures;
            k->is_ahead = true;
        }
    }
    *postprocesses = w->next_postprocesses;
    w->next = NULL;
    return j;
}

/* ---- work ------------------------------------------------------------------------------------------------------- */

static unsigned label_of(const struct job *j)
{
    return j->model != NULL ? j->model->metrics_label : METRICS_MODEL_NONE;
}

static enum status preprocess(struct job *j, struct error *err)
{
    const uint64_t start_ns = clock_now_ns();
    const enum status st = j->work.preprocess(j, err);
    metrics_histogram_observe(j->work.workers->purpose.preprocess, label_of(j), clock_now_ns() - start_ns);
    keep(&j->work, st == OK ? j->work.retained : 0);
    return st;
}

static enum status postprocess(struct job *j, struct error *err)
{
    const uint64_t start_ns = clock_now_ns();
    const enum status st = j->work.postprocess(j, err);
    j->work.is_postprocessed = true;
    metrics_histogram_observe(j->work.workers->purpose.postprocess, label_of(j), clock_now_ns() - start_ns);
    keep(&j->work, 0);
    return st;
}

/* End a job that cannot go on; err: what was wrong with it, NULL: only that it must stop. */
static void abandon(struct job *j, enum status st, const struct error *err)
{
    const uint64_t now_ns = clock_now_ns();
    /* What could not be committed is an error, however late it is: the client must not think that it was. */
    const enum status stop = j->work.commits && j->work.is_postprocessed ? OK : job_stop_reason(j, now_ns);
    keep(&j->work, 0);
    if (stop == OK && err != NULL)
        j->result.error = *err;
    job_abort(j, stop != OK ? stop : st, stop == OK && err != NULL ? err->message : NULL, now_ns);
}

static void workers_run(struct workers *w, struct job *j, bool postprocesses)
{
    struct job_work *k = &j->work;
    struct error err;
    enum status st = job_stop_reason(j, clock_now_ns());
    if (st == OK && w->is_cancelled) /* never unset: if it is just being set, the job is among the last that run */
        st = ERR_UNAVAILABLE;
    if (st != OK && !(postprocesses && k->commits)) {
        abandon(j, st, NULL);
        return;
    }
    st = postprocesses ? postprocess(j, &err) : preprocess(j, &err);
    if (st != OK) {
        abandon(j, st, &err);
    } else if (postprocesses) {
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

/* ---- the threads ------------------------------------------------------------------------------------------------ */

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
    struct worker *self = arg;
    struct workers *w = self->pool;
    const int before = getpriority(PRIO_PROCESS, (id_t)gettid());
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(),
                      before + w->purpose.nice); /* at most the lowest; needs no privilege */
    (void)pthread_mutex_lock(&w->lock);
    for (;;) {
        bool postprocesses;
        struct job *j = find_locked(w, &postprocesses);
        if (j != NULL) {
            w->running++;
            self->client = j->item.client;
            self->is_busy = true;
            (void)pthread_cond_signal(&w->changed); /* there may be something for another as well */
            (void)pthread_mutex_unlock(&w->lock);
            workers_run(w, j, postprocesses);
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

/* ---- start and end ---------------------------------------------------------------------------------------------- */

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
    w->ahead_max = AHEAD_BATCHES_MAX * s->batch_images_max;
    if (queue_create(&w->waiting, WAITING_LANES, s->queue_jobs_max) != OK ||
        queue_create(&w->postprocessing, 1, p->postprocess_max) != OK) {
        workers_free(w);
        return error_set(err, ERR_NOMEM, "no memory for the queue of the threads that %s", p->work);
    }
    for (; w->started < p->threads; w->started++) {
        struct worker *one = &w->threads[w->started];
        one->pool = w;
        if (pthread_create(&one->thread, NULL, worker_thread, one) != 0) {
            const enum status st =
                error_set(err, ERR_NOMEM, "thread %u of %u that %s cannot be started; expected room for %s",
                          w->started + 1, p->threads, p->work, p->setting);
            workers_stop(w);
            workers_free(w);
            return st;
        }
        (void)pthread_setname_np(one->thread, p->name);
    }
    *ret = w;
    return OK;
}

void workers_cancel(struct workers *w)
{
    queue_close(w->waiting);
    queue_close(w->postprocessing);
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
        (void)pthread_join(w->threads[i].thread, NULL);
    w->started = 0;
}

void workers_free(struct workers *w)
{
    if (w == NULL)
        return;
    assert(w->held == 0 && w->next == NULL);
    queue_free(w->waiting);
    queue_free(w->postprocessing);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- jobs ------------------------------------------------------------------------------------------------------- */

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

static bool postprocesses_later(const struct job_work *k)
{
    return k->postprocess != NULL && k->postprocess_ns > WORKERS_AT_ONCE_NS;
}

/* What takes no time is left to the thread that answers. */
static bool hand_off(struct job *j, enum job_finish finish, uint64_t now_ns)
{
    struct job_work *k = &j->work;
    if (!postprocesses_later(k) || j->result.computed_ns != 0)
        return false; /* or it has been there */
    struct workers *w = k->workers;
    k->finish = finish;
    j->result.computed_ns = now_ns;
    j->item.cost = cost_of(k->postprocess_ns);
    const enum status st = k->commits ? job_commit(j, w->postprocessing, 0) : job_pass(j, w->postprocessing, 0);
    if (push_and_wake(w, st) != OK)
        abandon(j, st, NULL);
    return true;
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
    struct job_work *k = &j->work;
    if (job_defer(j, give_back, j, err) != OK)
        return ERR_NOMEM;
    k->workers = w;
    k->hand_off = hand_off;
    k->engine = engine;
    k->lane = lane;
    enum status st = check_bytes(w, k->preprocess_bytes, err);
    if (st == OK)
        st = check_bytes(w, k->postprocess_bytes, err);
    if (st != OK)
        return st;
    j->item.cost = j->engine_cost;
    if (engine != NULL && k->preprocess == NULL)
        return job_submit(j, engine, lane, deadline_ns);
    j->item.cost = cost_of(k->preprocess_ns + k->postprocess_ns);
    if (engine == NULL)
        return push_and_wake(w, job_submit(j, w->waiting, LANE_POSTPROCESS, deadline_ns));
    if (k->preprocess_ns > WORKERS_AT_ONCE_NS || postprocesses_later(k) || !take_room_at_once(w, k))
        return push_and_wake(w, job_submit(j, w->waiting, lane, deadline_ns));
    st = preprocess(j, err);
    j->item.cost = j->engine_cost;
    return st == OK ? job_submit(j, engine, lane, deadline_ns) : st;
}

enum status workers_postprocess(struct job *j, struct error *err)
{
    return j->work.is_postprocessed ? OK : postprocess(j, err);
}

uint32_t workers_waiting(struct workers *w)
{
    (void)pthread_mutex_lock(&w->lock); /* under which a job is taken up, and has its memory or waits for it */
    const uint32_t waiting = queue_count(w->waiting);
    (void)pthread_mutex_unlock(&w->lock);
    return waiting;
}

void workers_measure(struct workers *w)
{
    const uint32_t waiting = queue_count(w->waiting) + queue_count(w->postprocessing);
    (void)pthread_mutex_lock(&w->lock);
    metrics_gauge_set(METRIC_PICTURES_WAITING, 0, waiting + (w->next != NULL ? 1 : 0));
    metrics_gauge_set(METRIC_PICTURES_RUNNING, 0, w->running);
    metrics_gauge_set(METRIC_PICTURE_BYTES, 0, w->held);
    metrics_gauge_set(METRIC_PICTURE_LIMIT, 0, w->bytes_max);
    (void)pthread_mutex_unlock(&w->lock);
}

const struct job_kind job_kind_work = {.tells_finish = false};
