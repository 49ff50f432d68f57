/* picture_lane.c - batches of pictures, or of texts to classify. See picture_lane.h.
 * All inputs of a batch have one size, that of the input that has waited longest: those of its size overtake the
 * others, which keep their places in the queue and are cancelled and counted there like any. Every batch takes the
 * oldest input, so that none waits for more batches than there were inputs before it.
 * A job of several inputs is popped once and held by the lane until batches have taken all of them, in order; at most
 * one job is held from one batch to the next, because nothing is popped while there is one. A job ends when all its
 * inputs have their logits or when the first of its batches fails, or it is stopped as a whole.
 * A picture whose client left, or whose deadline passed, loses its job at once; its pixels stay in the batch, because
 * taking them out would cost more than they do, unless no picture of the batch is wanted any more. */
#include "server/operation/picture_lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "engine/engine.h"
#include "engine/logits.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/operation/classify.h"

enum { PACE_PARTS = 8 }; /* over which the pace is a mean */

struct picture_lane {
    struct hosted_model *model;
    struct queue *queue;
    uint32_t pictures_max;
    uint64_t wait_ns;
    struct classify_job *held;  /* has inputs that no batch has taken; NULL: none. The engine side's reference */
    uint32_t count;             /* pictures of the running batch; 0: none is running */
    uint32_t wanted;            /* how many of them still have a job */
    struct classify_job **jobs; /* [pictures_max]; NULL where the job has ended; the engine side's reference, 1 a job */
    uint32_t *inputs;           /* [pictures_max]: which input of the job */
    const uint8_t **pixels;     /* [pictures_max] */
    uint64_t block_ns;          /* spent on the block that the batch is in */
    size_t pace_size;           /* of inputs as large as this one's (classify_input_size) ... */
    uint64_t pace_ns;           /* ... one takes so long in a block, lately; 0: not known */
};

enum status picture_lane_create(struct picture_lane **ret, struct hosted_model *model, struct queue *q,
                                const struct settings *s, struct error *err)
{
    struct picture_lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        goto no_memory;
    l->model = model;
    l->queue = q;
    l->pictures_max = s->batch_images_max;
    l->wait_ns = s->batch_wait_us * CLOCK_NS_PER_US;
    l->jobs = (struct classify_job **)calloc(l->pictures_max, sizeof(struct classify_job *));
    l->pixels = (const uint8_t **)calloc(l->pictures_max, sizeof *l->pixels);
    l->inputs = calloc(l->pictures_max, sizeof *l->inputs);
    if (l->jobs == NULL || l->pixels == NULL || l->inputs == NULL)
        goto no_memory;
    *ret = l;
    return OK;
no_memory:
    picture_lane_free(l);
    return error_set(err, ERR_NOMEM, "%s: no memory for batches of %u pictures", model->model->name,
                     s->batch_images_max);
}

void picture_lane_free(struct picture_lane *l)
{
    if (l == NULL)
        return;
    assert(l->count == 0 && l->held == NULL);
    free(l->inputs);
    free((void *)l->pixels);
    free((void *)l->jobs);
    free(l);
}

uint32_t picture_lane_running(const struct picture_lane *l)
{
    return l->wanted > 0 || l->held == NULL ? l->wanted : 1;
}

void picture_lane_cancel(struct picture_lane *l, enum status st)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->jobs[i] != NULL)
            job_cancel(l->jobs[i]->job, st);
    if (l->held != NULL)
        job_cancel(l->held->job, st);
}

static bool batch_is_due(const struct picture_lane *l, bool busy)
{
    const struct queue_view v = queue_look(l->queue, l->model->lane);
    if (l->held != NULL)
        return true;
    if (v.lane_count == 0)
        return false;
    return !busy || v.lane_count >= l->pictures_max || clock_now_ns() - v.lane_oldest_ns >= l->wait_ns;
}

bool picture_lane_has_work(const struct picture_lane *l, bool busy)
{
    return l->count > 0 || batch_is_due(l, busy);
}

/* How many inputs of this size a batch takes. */
static uint32_t batch_max(const struct picture_lane *l, const struct picture_input *in)
{
    const struct model_config *c = &l->model->model->config;
    const bool is_picture = c->input == INPUT_IMAGE;
    return engine_batch_max(l->model->engine,
                            is_picture ? in->height / c->patch[0] * (in->width / c->patch[1]) : in->width);
}

/* End the job for the reason `st`, wherever its inputs are. */
static void stop_job(struct picture_lane *l, struct classify_job *c, enum status st, const char *message,
                     uint64_t now_ns)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->jobs[i] == c) {
            if (c->map != NULL)
                engine_batch_want_map(l->model->engine, i, NULL);
            l->jobs[i] = NULL;
            l->wanted--;
        }
    if (l->held == c)
        l->held = NULL;
    job_abort(c->job, st, message, now_ns);
}

/* The job whose inputs are next: the one that is held, else the oldest of all or, once the batch has inputs, the oldest
 * of their size; NULL if there is none. Jobs that must stop by the time they are popped are ended and counted in
 * *ended. */
static struct classify_job *next_job(struct picture_lane *l, const struct picture_input *like, uint64_t now_ns,
                                     uint32_t *ended)
{
    while (l->held == NULL) {
        struct queue_item *item = like == NULL ? queue_pop(l->queue, l->model->lane)
                                               : queue_pop_kind(l->queue, l->model->lane, classify_input_size(like));
        if (item == NULL)
            return NULL;
        struct job *j = job_of_item(item);
        const enum status st = job_stop_reason(j, now_ns);
        if (st != OK) {
            job_abort(j, st, NULL, now_ns);
            *ended += 1;
            continue;
        }
        job_start(j, now_ns);
        metrics_histogram_observe(METRIC_QUEUE_WAIT, l->model->metrics_label, now_ns - j->result.queued_ns);
        l->held = classify_job_of(j);
    }
    return l->held;
}

/* Fill the batch, from the held job and the queue. */
static uint32_t collect_batch(struct picture_lane *l)
{
    const uint64_t now_ns = clock_now_ns();
    uint32_t ended = 0;
    const struct picture_input *like = NULL;
    while (like == NULL || l->count < batch_max(l, like)) {
        struct classify_job *c = next_job(l, like, now_ns, &ended);
        if (c == NULL)
            break;
        const struct picture_input *in = &c->in.list[c->begun];
        if (like != NULL && classify_input_size(in) != classify_input_size(like))
            break; /* the held job goes on with another size */
        like = in;
        l->pixels[l->count] = in->pixels;
        l->inputs[l->count] = c->begun++;
        l->jobs[l->count++] = c;
        if (c->begun == c->in.count)
            l->held = NULL;
    }
    l->wanted = l->count;
    return ended;
}

static uint32_t begin_batch(struct picture_lane *l)
{
    const uint32_t ended = collect_batch(l);
    if (l->count == 0)
        return ended;
    const struct picture_input *in = &l->jobs[0]->in.list[l->inputs[0]];
    if (l->model->model->config.input == INPUT_IMAGE)
        engine_pictures_begin(l->model->engine, l->pixels, l->count, in->height, in->width);
    else
        engine_texts_begin(l->model->engine, l->pixels, l->count, in->width);
    for (uint32_t i = 0; i < l->count; i++)
        if (l->jobs[i]->map != NULL)
            engine_batch_want_map(l->model->engine, i, &l->jobs[i]->in.list[l->inputs[i]].map);
    l->block_ns = 0;
    if (classify_input_size(in) != l->pace_size)
        l->pace_ns = 0;
    l->pace_size = classify_input_size(in);
    metrics_histogram_observe(METRIC_BATCH_SIZE, l->model->metrics_label, l->count);
    return ended;
}

/* Stop the jobs of the batch, and the one that is held, that must stop. */
static uint32_t stop_jobs(struct picture_lane *l)
{
    const uint64_t now_ns = clock_now_ns();
    uint32_t ended = 0;
    for (uint32_t i = 0; i <= l->count; i++) {
        struct classify_job *c = i < l->count ? l->jobs[i] : l->held;
        const enum status st = c != NULL ? job_stop_reason(c->job, now_ns) : OK;
        if (st == OK)
            continue;
        stop_job(l, c, st, NULL, now_ns);
        ended++;
    }
    return ended;
}

static uint32_t finish_batch(struct picture_lane *l)
{
    const uint64_t now_ns = clock_now_ns();
    const size_t dim = engine_info(l->model->engine)->dim;
    uint32_t ended = 0;
    uint64_t pictures = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        struct classify_job *c = l->jobs[i];
        if (c == NULL)
            continue;
        const struct picture_input *in = &c->in.list[l->inputs[i]];
        const float *logits = engine_batch_logits(l->model->engine, i);
        pictures++;
        if (!logits_are_finite(logits, in->classes)) {
            stop_job(l, c, ERR_INTERNAL, "the model gave a logit that is not a number", now_ns);
            ended++;
            continue;
        }
        memcpy(c->logits + (size_t)l->inputs[i] * in->classes, logits, in->classes * sizeof *logits);
        if (c->pooled != NULL)
            memcpy(c->pooled + (size_t)l->inputs[i] * dim, engine_batch_pooled(l->model->engine, i),
                   dim * sizeof *c->pooled);
        l->jobs[i] = NULL;
        if (++c->done == c->in.count) {
            job_finish(c->job, FINISH_STOP, now_ns);
            ended++;
        }
    }
    if (l->model->model->config.input == INPUT_IMAGE)
        metrics_counter_add(METRIC_PICTURES_CLASSIFIED, l->model->metrics_label, pictures);
    l->count = 0;
    l->wanted = 0;
    return ended;
}

/* How many of `left` inputs go through a block in that time: a whole number for each thread, and at least one, since
 * fewer inputs than threads take hardly less time than one for each (engine/pass/encoder.c). */
static size_t inputs_within(const struct picture_lane *l, size_t left, uint64_t most_ns)
{
    const uint64_t threads = engine_info(l->model->engine)->threads;
    assert(threads >= 1);
    if (most_ns == PICTURE_LANE_NO_HURRY)
        return left;
    const uint64_t fit = l->pace_ns > 0 ? most_ns / l->pace_ns : 0;
    const uint64_t count = fit < threads ? threads : fit - fit % threads;
    return count < left ? (size_t)count : left;
}

/* True when the batch is done. */
static bool run_part(struct picture_lane *l, uint64_t most_ns)
{
    struct engine *e = l->model->engine;
    const size_t left = engine_batch_left(e), count = inputs_within(l, left, most_ns);
    const uint64_t start_ns = clock_now_ns();
    const bool done = engine_batch_step_part(e, count);
    const uint64_t ns = clock_now_ns() - start_ns, each_ns = ns / count;
    l->pace_ns = l->pace_ns > 0 ? (l->pace_ns * (PACE_PARTS - 1) + each_ns) / PACE_PARTS : each_ns;
    l->block_ns += ns;
    if (count == left) {
        metrics_histogram_observe(METRIC_ENCODE_BLOCK, l->model->metrics_label, l->block_ns);
        l->block_ns = 0;
    }
    return done;
}

uint32_t picture_lane_step(struct picture_lane *l, bool busy, uint64_t most_ns)
{
    if (l->count == 0)
        return stop_jobs(l) + (batch_is_due(l, busy) ? begin_batch(l) : 0);
    const uint32_t stopped = stop_jobs(l);
    if (l->wanted == 0) {
        l->count = 0; /* the engine drops an unfinished batch when the next begins */
        return stopped;
    }
    return stopped + (run_part(l, most_ns) ? finish_batch(l) : 0);
}
