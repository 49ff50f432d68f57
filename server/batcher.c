/* batcher.c - the engine thread's loop. See batcher.h.
 *
 * A round gives each generating model one pass and one of the classifiers, in turn, one block, so that no stream waits
 * for more than a step of each such model and one block of an encoder, however many pictures there are. With nothing
 * to do the thread sleeps on the queue. A round allocates nothing.
 *
 * `running`, `progress_ns` and `ns_per_job` are written by this thread and read by any; each is meaningful alone. */
#include "server/batcher.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "server/clock.h"
#include "server/job.h"
#include "server/news.h"
#include "server/picture_lane.h"
#include "server/queue.h"
#include "server/registry.h"
#include "server/stream_lane.h"

struct batcher {
    const struct settings *settings;
    struct news *news; /* NULL: none */
    pthread_t thread;
    struct registry *registry;
    struct queue *queue;
    /* the engine thread's */
    struct stream_lane *streams[REGISTRY_MODELS_MAX];
    struct picture_lane *pictures[REGISTRY_MODELS_MAX];
    uint32_t stream_count, picture_count;
    uint32_t picture_turn; /* whose block is next */
    uint64_t ended_ns;     /* when a job last ended while others waited or ran; 0: not since the engine was idle */
    /* any thread's */
    atomic_uint running;          /* jobs in slots and batches */
    _Atomic uint64_t progress_ns; /* when a round last ended, or work was found */
    _Atomic uint64_t ns_per_job;  /* running mean of the time from one job's end to the next */
    atomic_bool cancel;
    /* under the lock: the start */
    pthread_mutex_t lock;
    pthread_cond_t started;
    bool is_started;
    enum status start_status;
    struct error start_error;
};

/* ---- the loop -------------------------------------------------------------------------------------------------- */

static uint32_t count_running(const struct batcher *b)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < b->stream_count; i++)
        running += stream_lane_running(b->streams[i]);
    for (uint32_t i = 0; i < b->picture_count; i++)
        running += picture_lane_running(b->pictures[i]);
    return running;
}

static void cancel_all(struct batcher *b)
{
    for (uint32_t i = 0; i < b->stream_count; i++)
        stream_lane_cancel(b->streams[i], ERR_UNAVAILABLE);
    for (uint32_t i = 0; i < b->picture_count; i++)
        picture_lane_cancel(b->pictures[i], ERR_UNAVAILABLE);
    const uint64_t now_ns = clock_now_ns();
    for (uint32_t lane = 0; lane < registry_count(b->registry); lane++)
        for (struct queue_item *item; (item = queue_pop(b->queue, lane)) != NULL;)
            job_abort(job_of_item(item), ERR_UNAVAILABLE, NULL, now_ns);
}

/* Is there work beside that of the picture model `lane`? */
static bool is_busy_beside(const struct batcher *b, uint32_t lane)
{
    return count_running(b) > picture_lane_running(b->pictures[lane]);
}

/* One unit of work of the next picture model that has any. */
static uint32_t run_pictures(struct batcher *b)
{
    for (uint32_t i = 0; i < b->picture_count; i++) {
        const uint32_t turn = (b->picture_turn + i) % b->picture_count;
        const bool busy = is_busy_beside(b, turn);
        if (!picture_lane_has_work(b->pictures[turn], busy))
            continue;
        b->picture_turn = (turn + 1) % b->picture_count;
        return picture_lane_step(b->pictures[turn], busy);
    }
    return 0;
}

/* What a step had to say is heard before the next begins, in one go. */
static void ring(const struct batcher *b)
{
    if (b->news != NULL)
        news_ring(b->news);
}

static uint32_t run_round(struct batcher *b)
{
    uint32_t ended = 0;
    for (uint32_t i = 0; i < b->stream_count; i++) {
        ended += stream_lane_step(b->streams[i]);
        ring(b);
    }
    ended += run_pictures(b);
    ring(b);
    return ended;
}

static void note_ended(struct batcher *b, uint32_t ended, uint64_t now_ns)
{
    if (ended == 0)
        return;
    if (b->ended_ns != 0) {
        const uint64_t latest = (now_ns - b->ended_ns) / ended;
        const uint64_t mean = atomic_load(&b->ns_per_job);
        atomic_store(&b->ns_per_job, mean == 0 ? latest : mean - mean / 8 + latest / 8);
    }
    b->ended_ns = now_ns;
}

static void loop(struct batcher *b)
{
    for (;;) {
        if (atomic_load(&b->running) == 0) {
            if (queue_count(b->queue) == 0)
                b->ended_ns = 0;
            if (!queue_wait(b->queue))
                return;
            atomic_store(&b->progress_ns, clock_now_ns());
            atomic_store(&b->running, 1); /* what it is will be counted after the round */
        }
        if (atomic_load_explicit(&b->cancel, memory_order_relaxed))
            cancel_all(b);
        const uint32_t ended = run_round(b);
        const uint64_t now_ns = clock_now_ns();
        note_ended(b, ended, now_ns);
        atomic_store(&b->progress_ns, now_ns);
        atomic_store(&b->running, count_running(b));
    }
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

static enum status create_lanes(struct batcher *b, struct error *err)
{
    enum status st = OK;
    for (size_t i = 0; i < registry_count(b->registry) && st == OK; i++) {
        struct entry *e = registry_at(b->registry, i);
        if (model_config_causal(&e->model->config)) {
            st = stream_lane_create(&b->streams[b->stream_count], e, b->queue, b->settings, err);
            b->stream_count += st == OK;
        } else {
            st = picture_lane_create(&b->pictures[b->picture_count], e, b->queue, b->settings, err);
            b->picture_count += st == OK;
        }
    }
    return st;
}

static enum status set_up(struct batcher *b, struct error *err)
{
    enum status st = registry_load(&b->registry, b->settings, err);
    if (st != OK)
        return st;
    st = queue_create(&b->queue, (uint32_t)registry_count(b->registry), b->settings->queue_jobs_max);
    if (st != OK)
        return error_set(err, st, "no memory for the queue");
    return create_lanes(b, err);
}

static void *engine_thread(void *arg)
{
    struct batcher *b = arg;
    struct error err;
    const enum status st = set_up(b, &err);
    (void)pthread_mutex_lock(&b->lock);
    b->start_status = st;
    if (st != OK)
        b->start_error = err;
    b->is_started = true;
    (void)pthread_cond_signal(&b->started);
    (void)pthread_mutex_unlock(&b->lock);
    if (st == OK)
        loop(b);
    return NULL;
}

enum status batcher_start(struct batcher **ret, const struct settings *s, struct news *news, struct error *err)
{
    struct batcher *b = calloc(1, sizeof *b);
    if (b == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the engine thread");
    b->settings = s;
    b->news = news;
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)pthread_cond_init(&b->started, NULL);
    if (pthread_create(&b->thread, NULL, engine_thread, b) != 0) {
        batcher_free(b);
        return error_set(err, ERR_NOMEM, "the engine thread cannot be started");
    }
    (void)pthread_mutex_lock(&b->lock);
    while (!b->is_started)
        (void)pthread_cond_wait(&b->started, &b->lock);
    (void)pthread_mutex_unlock(&b->lock);
    if (b->start_status != OK) {
        const enum status st = b->start_status;
        if (err != NULL)
            *err = b->start_error;
        (void)pthread_join(b->thread, NULL);
        batcher_free(b);
        return st;
    }
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
    for (uint32_t i = 0; i < b->stream_count; i++)
        stream_lane_free(b->streams[i]);
    for (uint32_t i = 0; i < b->picture_count; i++)
        picture_lane_free(b->pictures[i]);
    queue_free(b->queue);
    registry_free(b->registry);
    (void)pthread_cond_destroy(&b->started);
    (void)pthread_mutex_destroy(&b->lock);
    free(b);
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

struct queue *batcher_queue(const struct batcher *b)
{
    return b->queue;
}

const struct registry *batcher_registry(const struct batcher *b)
{
    return b->registry;
}

void batcher_cancel(struct batcher *b)
{
    queue_close(b->queue);
    atomic_store(&b->cancel, true);
}

bool batcher_is_stuck(const struct batcher *b, uint64_t now_ns)
{
    const uint64_t waiting_since_ns = queue_waiting_since_ns(b->queue);
    if (atomic_load(&b->running) == 0 && waiting_since_ns == 0)
        return false;
    const uint64_t progress_ns = atomic_load(&b->progress_ns);
    const uint64_t since_ns = waiting_since_ns > progress_ns ? waiting_since_ns : progress_ns;
    return now_ns > since_ns && now_ns - since_ns > b->settings->stuck_after_ms * CLOCK_NS_PER_MS;
}

uint32_t batcher_retry_after_s(const struct batcher *b)
{
    const uint64_t wait_ns = queue_count(b->queue) * atomic_load(&b->ns_per_job);
    const uint64_t wait_s = (wait_ns + CLOCK_NS_PER_S - 1) / CLOCK_NS_PER_S;
    return wait_s < 1 ? 1 : wait_s > HTTP_RETRY_AFTER_MAX_S ? HTTP_RETRY_AFTER_MAX_S : (uint32_t)wait_s;
}
