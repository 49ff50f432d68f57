/* work_turns.c - see work_turns.h. */
#include "server/job/work_turns.h"

#include <stdlib.h>

#include "config/settings.h"
#include "server/job/job.h"

uint32_t work_turns_ahead(const struct settings *s)
{
    return BATCHER_LANES_MAX * WORK_AHEAD_BATCHES * s->batch_images_max;
}

enum status work_turns_create(struct work_turns **ret, const struct settings *s, uint32_t threads, uint32_t kept_max)
{
    struct work_turns *t = calloc(1, sizeof *t + threads * sizeof t->threads[0]);
    if (t == NULL)
        return ERR_NOMEM;
    t->thread_count = threads;
    t->each_max = threads > 1 ? threads - 1 : 1;
    t->ahead_max = WORK_AHEAD_BATCHES * s->batch_images_max;
    if (queue_create(&t->waiting, WORK_LANES, s->queue_jobs_max) != OK || queue_create(&t->kept, 1, kept_max) != OK) {
        work_turns_free(t);
        return ERR_NOMEM;
    }
    *ret = t;
    return OK;
}

void work_turns_free(struct work_turns *t)
{
    if (t == NULL)
        return;
    queue_free(t->waiting);
    queue_free(t->kept);
    free(t);
}

/* queue_load: how many threads are at work for a client. */
static int64_t threads_of(void *arg, const struct client_id *client)
{
    const struct work_turns *t = arg;
    uint32_t busy = 0;
    for (uint32_t i = 0; i < t->thread_count; i++)
        busy += t->threads[i].is_busy && client_id_is_same(&t->threads[i].client, client) ? 1 : 0;
    return busy < t->each_max ? (int64_t)busy : -1;
}

static struct job *pop(struct work_turns *t, struct queue *q, uint32_t lane)
{
    struct queue_item *item = queue_pop_least(q, lane, threads_of, t);
    return item != NULL ? job_of_item(item) : NULL;
}

struct job *work_turns_pop_kept(struct work_turns *t)
{
    return pop(t, t->kept, 0);
}

struct job *work_turns_pop(struct work_turns *t, bool all, uint32_t *lane)
{
    if (queue_count(t->waiting) == 0)
        return NULL;
    for (uint32_t i = 0; i < WORK_LANES; i++) {
        const uint32_t at = (t->turn + i) % WORK_LANES;
        if (at != WORK_LANE_DRAW && t->ahead[at] >= t->ahead_max && !all)
            continue;
        struct job *j = pop(t, t->waiting, at);
        if (j == NULL)
            continue;
        t->turn = (at + 1) % WORK_LANES;
        *lane = at;
        return j;
    }
    return NULL;
}
