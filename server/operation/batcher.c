/* batcher.c - the engine thread's loop. See batcher.h.
 *
 * A model that is served is on one of three lists: arriving (under the lock; made by batcher_serve, not yet seen by the
 * thread), streams or pictures (the thread's), gone (under the lock; to be freed by batcher_reap). At the start of each
 * round, and so before it looks for their jobs, the thread takes in arriving models; at the end it checks for abandoned
 * ones, for which their last users have woken it. The lock is a leaf except for the queue's.
 *
 * A round gives each generating model one pass, and one of the classifiers, which take turns, one block, so that no
 * stream waits for more than a step of each such model and one block of an encoder, however many pictures there are.
 * With nothing to do the thread sleeps on the queue. A round allocates nothing.
 *
 * `running` and `progress_ns` are written by this thread and read by any; each is meaningful alone. */
#include "server/operation/batcher.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/mailbox.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/operation/picture_lane.h"
#include "server/operation/stream_lane.h"
#include "server/request/job.h"

/* A model's place in the loop: one of the two lanes. */
struct served {
    struct hosted_model *hosted;
    struct stream_lane *streams;
    struct picture_lane *pictures;
    struct served *next; /* in the lists of arriving and gone ones */
};

struct batcher {
    const struct settings *settings;
    struct mailboxes *mailboxes; /* NULL: none */
    pthread_t thread;
    struct queue *queue;
    /* the engine thread's */
    struct served *streams[BATCHER_LANES_MAX];
    struct served *pictures[BATCHER_LANES_MAX];
    uint32_t stream_count, picture_count;
    uint32_t picture_turn; /* which of them runs the next block */
    /* any thread's */
    atomic_uint running;          /* jobs in slots and batches */
    _Atomic uint64_t progress_ns; /* when a round last ended, or work was found */
    atomic_bool cancel;
    atomic_bool changed; /* there are arriving models */
    pthread_mutex_t lock;
    /* under the lock */
    struct served *arriving, *gone;
    const struct hosted_model *lane_model[BATCHER_LANES_MAX]; /* NULL: the lane is free */
    struct queue *wake;
};

/* ---- the loop -------------------------------------------------------------------------------------------------- */

static uint32_t count_streams(const struct batcher *b)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < b->stream_count; i++)
        running += stream_lane_running(b->streams[i]->streams);
    return running;
}

static uint32_t count_running(const struct batcher *b)
{
    uint32_t running = count_streams(b);
    for (uint32_t i = 0; i < b->picture_count; i++)
        running += picture_lane_running(b->pictures[i]->pictures);
    return running;
}

static void cancel_all(struct batcher *b)
{
    for (uint32_t i = 0; i < b->stream_count; i++)
        stream_lane_cancel(b->streams[i]->streams, ERR_UNAVAILABLE);
    for (uint32_t i = 0; i < b->picture_count; i++)
        picture_lane_cancel(b->pictures[i]->pictures, ERR_UNAVAILABLE);
    const uint64_t now_ns = clock_now_ns();
    for (uint32_t lane = 0; lane < BATCHER_LANES_MAX; lane++)
        for (struct queue_item *item; (item = queue_pop(b->queue, lane)) != NULL;)
            job_abort(job_of_item(item), ERR_UNAVAILABLE, NULL, now_ns);
}

/* One unit of work of the next picture model that has any: a block where no stream waits for it. */
static uint32_t run_pictures(struct batcher *b)
{
    const uint64_t most_ns =
        count_streams(b) > 0 ? b->settings->picture_step_us * CLOCK_NS_PER_US : PICTURE_LANE_NO_HURRY;
    const uint32_t running = count_running(b);
    for (uint32_t i = 0; i < b->picture_count; i++) {
        const uint32_t turn = (b->picture_turn + i) % b->picture_count;
        struct picture_lane *l = b->pictures[turn]->pictures;
        const bool busy = running > picture_lane_running(l); /* is there work besides that? */
        if (!picture_lane_has_work(l, busy))
            continue;
        b->picture_turn = (turn + 1) % b->picture_count;
        return picture_lane_step(l, busy, most_ns);
    }
    return 0;
}

/* Notify all mailboxes of what a step has posted, at once, before the next step begins. */
static void notify_all(const struct batcher *b)
{
    if (b->mailboxes != NULL)
        mailbox_notify(b->mailboxes);
}

static uint32_t run_round(struct batcher *b)
{
    uint32_t ended = 0;
    for (uint32_t i = 0; i < b->stream_count; i++) {
        ended += stream_lane_step(b->streams[i]->streams);
        notify_all(b);
    }
    ended += run_pictures(b);
    notify_all(b);
    return ended;
}

/* ---- models that come and go ----------------------------------------------------------------------------------- */

static void admit(struct batcher *b)
{
    (void)pthread_mutex_lock(&b->lock);
    atomic_store(&b->changed, false);
    for (struct served *s = b->arriving, *next; s != NULL; s = next) {
        next = s->next;
        if (s->streams != NULL)
            b->streams[b->stream_count++] = s;
        else
            b->pictures[b->picture_count++] = s;
    }
    b->arriving = NULL;
    (void)pthread_mutex_unlock(&b->lock);
}

static void add_gone(struct batcher *b, struct served *s)
{
    (void)pthread_mutex_lock(&b->lock);
    b->lane_model[s->hosted->lane] = NULL;
    s->next = b->gone;
    b->gone = s;
    if (b->wake != NULL)
        queue_wake(b->wake);
    (void)pthread_mutex_unlock(&b->lock);
}

static uint32_t retire(struct batcher *b, struct served **list, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (hosted_model_is_abandoned(list[i]->hosted)) /* no job of it waits or runs, and none will come */
            add_gone(b, list[i]);
        else
            list[kept++] = list[i];
    return kept;
}

static void let_go(struct batcher *b)
{
    b->stream_count = retire(b, b->streams, b->stream_count);
    b->picture_count = retire(b, b->pictures, b->picture_count);
    if (b->picture_turn >= b->picture_count)
        b->picture_turn = 0;
}

static void free_served(struct served *s)
{
    stream_lane_free(s->streams);
    picture_lane_free(s->pictures);
    hosted_model_let_go(s->hosted, HOSTED_BY_LANE);
    free(s);
}

void batcher_reap(struct batcher *b)
{
    (void)pthread_mutex_lock(&b->lock);
    struct served *gone = b->gone;
    b->gone = NULL;
    (void)pthread_mutex_unlock(&b->lock);
    const bool any = gone != NULL;
    while (gone != NULL) {
        struct served *next = gone->next;
        free_served(gone);
        gone = next;
    }
    if (any)
        (void)malloc_trim(0); /* memory of a size that is unlikely to be needed again */
}

void batcher_wake_for_gone(struct batcher *b, struct queue *q)
{
    (void)pthread_mutex_lock(&b->lock);
    b->wake = q;
    (void)pthread_mutex_unlock(&b->lock);
}

/* False: none is free. */
static bool take_lane(struct batcher *b, const struct hosted_model *e, uint32_t *ret)
{
    uint32_t lane = 0;
    (void)pthread_mutex_lock(&b->lock);
    while (lane < BATCHER_LANES_MAX && b->lane_model[lane] != NULL)
        lane++;
    if (lane < BATCHER_LANES_MAX)
        b->lane_model[lane] = e;
    (void)pthread_mutex_unlock(&b->lock);
    *ret = lane;
    return lane < BATCHER_LANES_MAX;
}

enum status batcher_serve(struct batcher *b, struct hosted_model *e, struct error *err)
{
    struct served *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_NOMEM, "%s: no memory to serve it", e->model->name);
    uint32_t lane;
    if (!take_lane(b, e, &lane)) {
        free(s);
        return error_set(err, ERR_UNAVAILABLE,
                         "%s: all %d places are taken by models that still have requests; try again later",
                         e->model->name, BATCHER_LANES_MAX);
    }
    e->lane = lane;
    const bool streams = model_config_causal(&e->model->config);
    const enum status st = streams ? stream_lane_create(&s->streams, e, b->queue, b->settings, err)
                                   : picture_lane_create(&s->pictures, e, b->queue, b->settings, err);
    (void)pthread_mutex_lock(&b->lock);
    if (st == OK) {
        hosted_model_hold(e, HOSTED_BY_LANE);
        e->queue = b->queue;
        s->hosted = e;
        s->next = b->arriving;
        b->arriving = s;
        atomic_store_explicit(&b->changed, true, memory_order_release);
    } else {
        b->lane_model[lane] = NULL;
    }
    (void)pthread_mutex_unlock(&b->lock);
    if (st == OK)
        queue_wake(b->queue);
    else
        free(s);
    return st;
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static void *engine_thread(void *arg)
{
    struct batcher *b = arg;
    for (;;) {
        if (atomic_load(&b->running) == 0) {
            if (!queue_wait(b->queue))
                return NULL;
            atomic_store(&b->progress_ns, clock_now_ns());
            atomic_store(&b->running, 1); /* the true number is counted after the round */
        }
        if (atomic_load_explicit(&b->cancel, memory_order_relaxed))
            cancel_all(b);
        if (atomic_load_explicit(&b->changed, memory_order_acquire))
            admit(b);
        const uint32_t ended = run_round(b);
        let_go(b);
        const uint64_t now_ns = clock_now_ns();
        queue_note_done(b->queue, ended, now_ns);
        atomic_store(&b->progress_ns, now_ns);
        atomic_store(&b->running, count_running(b));
    }
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

enum status batcher_start(struct batcher **ret, const struct settings *s, struct mailboxes *mailboxes,
                          struct error *err)
{
    struct batcher *b = calloc(1, sizeof *b);
    if (b == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the engine thread");
    b->settings = s;
    b->mailboxes = mailboxes;
    (void)pthread_mutex_init(&b->lock, NULL);
    if (queue_create(&b->queue, BATCHER_LANES_MAX, s->queue_jobs_max) != OK ||
        pthread_create(&b->thread, NULL, engine_thread, b) != 0) {
        batcher_free(b);
        return error_set(err, ERR_NOMEM, "no memory for the queue of jobs or for the engine thread");
    }
    (void)pthread_setname_np(b->thread, "engine");
    metrics_gauge_set(METRIC_QUEUE_CAPACITY, 0, s->queue_jobs_max);
    *ret = b;
    return OK;
}

void batcher_stop(struct batcher *b)
{
    queue_close(b->queue);
    (void)pthread_join(b->thread, NULL);
}

void batcher_free(struct batcher *b)
{
    if (b == NULL)
        return;
    admit(b);
    for (uint32_t i = 0; i < b->stream_count; i++)
        free_served(b->streams[i]);
    for (uint32_t i = 0; i < b->picture_count; i++)
        free_served(b->pictures[i]);
    batcher_reap(b);
    queue_free(b->queue);
    (void)pthread_mutex_destroy(&b->lock);
    free(b);
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

struct queue *batcher_queue(const struct batcher *b)
{
    return b->queue;
}

void batcher_cancel(struct batcher *b)
{
    queue_close(b->queue);
    atomic_store(&b->cancel, true);
}

/* For how long there has been work without a step that ended; 0: there is none. */
static uint64_t step_age_ns(const struct batcher *b, uint64_t now_ns)
{
    const uint64_t waiting_since_ns = queue_look(b->queue, 0).waiting_since_ns;
    if (atomic_load(&b->running) == 0 && waiting_since_ns == 0)
        return 0;
    const uint64_t progress_ns = atomic_load(&b->progress_ns);
    const uint64_t since_ns = waiting_since_ns > progress_ns ? waiting_since_ns : progress_ns;
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

bool batcher_is_stuck(const struct batcher *b, uint64_t now_ns)
{
    return step_age_ns(b, now_ns) > b->settings->stuck_after_ms * CLOCK_NS_PER_MS;
}

/* A model that was replaced counts with the one in its place, whose name it has. */
void batcher_measure(struct batcher *b, uint64_t now_ns)
{
    uint64_t waiting[METRICS_MODEL_LABELS] = {0};
    (void)pthread_mutex_lock(&b->lock);
    for (uint32_t lane = 0; lane < BATCHER_LANES_MAX; lane++)
        if (b->lane_model[lane] != NULL)
            waiting[b->lane_model[lane]->metrics_label] += queue_look(b->queue, lane).lane_count;
    (void)pthread_mutex_unlock(&b->lock);
    for (unsigned model = 0; model < METRICS_MODEL_LABELS; model++)
        metrics_gauge_set(METRIC_QUEUE_DEPTH, model, waiting[model]);
    metrics_gauge_set(METRIC_STEP_AGE, 0, step_age_ns(b, now_ns));
}
