/* stream_lane.c - continuous batching. See stream_lane.h.
 *
 * A prompt, an element just drawn and a context that starts again are the same thing: elements of a slot that are not
 * yet fed (stream_slot.h), except for those that a cached state replaces (stream_prefix.h). When all are fed, the
 * logits of the last one choose the next. The kind of its job says what a slot is given and what becomes of the logits
 * (stream_kind.h). A job may have several samples, each in a slot of its own; they enter as slots become free, and what
 * ends the job ends them all.
 *
 * A pass gives one row to each stream that has one element to feed, so decoding never waits for a prompt, and shares
 * pass_rows_max rows evenly among the others, so that a short prompt does not wait for a long one. If there are only
 * streams with more to feed, no stream would be delayed by them, and they get all rows that a pass has. */
#include "server/batch/stream_lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/logits.h"
#include "server/batch/stream_prefix.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/core/queue.h"
#include "server/job/job.h"
#include "server/models/hosted_model.h"
#include "server/stream/stream_kind.h"

#define DRAWS_TO_SHARE 8 /* fewer streams are drawn faster on one thread than it takes to start others */

struct stream_lane {
    struct hosted_model *model;
    struct queue *queue;
    struct stream_model shape;
    struct stream_prefixes *prefixes;
    uint32_t threads;                                /* the engine's */
    uint32_t streams_max, prompt_rows_max, rows_max; /* rows_max: of a pass without a stream that has one row to feed */
    uint32_t running;
    uint32_t *order; /* [streams_max]: the first `running` are the taken slots, by admission */
    uint32_t *spare; /* [streams_max]: the last streams_max - running are the free slots */
    struct stream_slot *slots;
    uint32_t *taken;           /* [streams_max] rows of the pass, by place in the order */
    uint32_t first_sharer;     /* the place that a pass begins to share its rows for prompts at */
    struct engine_part *parts; /* [streams_max] */
    uint8_t *windows;
    float *logits; /* [rows_max, BYTE_VALUES] of the pass */
    /* The job whose samples are being given slots, by number; NULL: none waits. */
    struct job *entering;
    uint32_t next_sample;
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status stream_lane_create(struct stream_lane **ret, struct hosted_model *model, struct queue *q,
                               const struct settings *s, struct error *err)
{
    const struct engine_info *info = engine_info(model->engine);
    struct stream_lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        goto no_memory;
    l->model = model;
    l->queue = q;
    l->shape = stream_model_of(model->engine, model->model->config.context);
    l->threads = info->threads;
    l->streams_max = s->streams_max;
    l->rows_max = model->rows_max;
    l->prompt_rows_max =
        s->pass_rows_max < l->rows_max - l->streams_max ? s->pass_rows_max : l->rows_max - l->streams_max;
    l->order = calloc(l->streams_max, sizeof *l->order);
    l->spare = calloc(l->streams_max, sizeof *l->spare);
    l->slots = calloc(l->streams_max, sizeof *l->slots);
    l->taken = calloc(l->streams_max, sizeof *l->taken);
    l->parts = calloc(l->streams_max, sizeof *l->parts);
    l->windows = calloc(l->streams_max, l->shape.window_size);
    l->logits = calloc((size_t)l->rows_max * BYTE_VALUES, sizeof *l->logits);
    if (l->order == NULL || l->spare == NULL || l->slots == NULL || l->taken == NULL || l->parts == NULL ||
        l->windows == NULL || l->logits == NULL)
        goto no_memory;
    const enum status st = stream_prefixes_create(&l->prefixes, model, &l->shape, s, err);
    if (st != OK) {
        stream_lane_free(l);
        return st;
    }
    for (uint32_t i = 0; i < l->streams_max; i++) {
        l->spare[i] = i;
        l->slots[i].window = (struct stream_window){
            .model = &l->shape, .stream = i, .elements = l->windows + (size_t)i * l->shape.window_size};
    }
    *ret = l;
    return OK;
no_memory:
    stream_lane_free(l);
    return error_set(err, ERR_NOMEM, "%s: no memory for %u streams", model->model->name, s->streams_max);
}

void stream_lane_free(struct stream_lane *l)
{
    if (l == NULL)
        return;
    assert(l->running == 0 && l->entering == NULL);
    stream_prefixes_free(l->prefixes);
    free(l->logits);
    free(l->windows);
    free(l->parts);
    free(l->taken);
    free(l->slots);
    free(l->spare);
    free(l->order);
    free(l);
}

uint32_t stream_lane_running(const struct stream_lane *l)
{
    return l->running + (l->entering != NULL ? 1 : 0);
}

void stream_lane_cancel(struct stream_lane *l, enum status st)
{
    for (uint32_t i = 0; i < l->running; i++)
        job_cancel(l->slots[l->order[i]].job, st);
    if (l->entering != NULL)
        job_cancel(l->entering, st);
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static const struct stream_kind *kind_of(const struct job *j)
{
    return j->kind->stream;
}

static void enter_job(struct stream_lane *l, struct job *j, uint64_t now_ns)
{
    assert(kind_of(j) != NULL); /* jobs of other kinds are for other models */
    const size_t given = kind_of(j)->enter(j, &l->shape);
    job_start(j, now_ns);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, l->model->metrics_label, now_ns - j->result.queued_ns);
    metrics_counter_add(METRIC_PROMPT_BYTES, l->model->metrics_label, given);
    l->entering = j;
    l->next_sample = 0;
}

/* Give a free slot to the next sample of the job that is entering. */
static void enter_sample(struct stream_lane *l)
{
    const uint32_t index = l->spare[l->running];
    struct stream_slot *s = &l->slots[index];
    struct job *j = l->entering;
    const struct stream_kind *kind = kind_of(j);
    stream_slot_take(s, j, l->next_sample++);
    kind->begin(s);
    for (uint32_t place = 0; place < l->running; place++)
        if (stream_slot_follow(s, &l->slots[l->order[place]]))
            break;
    const size_t skipped = stream_prefix_begin(l->prefixes, s);
    if (skipped > 0)
        kind->skip(s, skipped);
    if (l->next_sample == (kind->samples != NULL ? kind->samples(j) : 1))
        l->entering = NULL;
    l->order[l->running++] = index;
    metrics_gauge_add(METRIC_STREAMS_RUNNING, l->model->metrics_label, 1);
}

/* Forget the stream at `place` of the order. */
static void slot_stop(struct stream_lane *l, uint32_t place)
{
    const uint32_t index = l->order[place];
    l->slots[index].job = NULL;
    l->running--;
    memmove(l->order + place, l->order + place + 1, (l->running - place) * sizeof *l->order);
    l->spare[l->running] = index;
    metrics_gauge_add(METRIC_STREAMS_RUNNING, l->model->metrics_label, -1);
}

/* Forget all streams of a job that is about to be ended. */
static void forget_job(struct stream_lane *l, const struct job *j)
{
    for (uint32_t place = 0; place < l->running;)
        if (l->slots[l->order[place]].job == j)
            slot_stop(l, place);
        else
            place++;
    if (l->entering == j)
        l->entering = NULL;
}

/* Does the job of a slot have other samples, in slots or yet to come? */
static bool has_others(const struct stream_lane *l, const struct stream_slot *s)
{
    bool has = l->entering == s->job;
    for (uint32_t place = 0; place < l->running && !has; place++) {
        const struct stream_slot *other = &l->slots[l->order[place]];
        has = other != s && other->job == s->job;
    }
    return has;
}

/* A job's deadline has passed. */
static void cut_samples(struct stream_lane *l, const struct job *j)
{
    for (uint32_t place = 0; place < l->running && kind_of(j)->cut != NULL; place++)
        if (l->slots[l->order[place]].job == j)
            kind_of(j)->cut(&l->slots[l->order[place]]);
}

static uint32_t stop_jobs(struct stream_lane *l, uint64_t now_ns)
{
    uint32_t ended = 0;
    for (uint32_t place = 0; place <= l->running;) {
        struct job *j = place < l->running ? l->slots[l->order[place]].job : l->entering;
        const enum status st = j != NULL ? job_stop_reason(j, now_ns) : OK;
        if (st == OK) {
            place++;
            continue;
        }
        if (st == ERR_TIMEOUT)
            cut_samples(l, j);
        forget_job(l, j); /* a stream that moved up is looked at here, or in the next step */
        job_abort(j, st, NULL, now_ns);
        ended++;
    }
    return ended;
}

static uint32_t admit_jobs(struct stream_lane *l, uint64_t now_ns)
{
    uint32_t ended = 0;
    while (l->running < l->streams_max) {
        struct queue_item *item = l->entering == NULL ? queue_pop(l->queue, l->model->lane) : NULL;
        if (item != NULL) {
            struct job *j = job_of_item(item);
            const enum status st = job_stop_reason(j, now_ns);
            if (st != OK) {
                job_abort(j, st, NULL, now_ns);
                ended++;
                continue;
            }
            enter_job(l, j, now_ns);
        }
        if (l->entering == NULL)
            break;
        enter_sample(l);
    }
    return ended;
}

/* ---- a pass ---------------------------------------------------------------------------------------------------- */

/* Number of slots with a prompt to feed. *others: is there a slot with a single element to feed? */
static uint32_t count_prompts(const struct stream_lane *l, bool *others)
{
    uint32_t prompts = 0;
    *others = false;
    for (uint32_t place = 0; place < l->running; place++) {
        const struct stream_slot *s = &l->slots[l->order[place]];
        const bool prompt = !s->follows && s->window.length - s->window.fed > 1;
        prompts += prompt;
        *others = *others || !(prompt || s->follows);
    }
    return prompts;
}

/* Share the pass's rows for prompts among the slots that have one to feed, in taken[place]; what a slot leaves of its
 * share goes to those after it. Which one comes first changes from pass to pass, so that none goes without while others
 * always get some. */
static void share_rows(struct stream_lane *l)
{
    bool others;
    uint32_t sharers = count_prompts(l, &others);
    uint32_t rows = others ? l->prompt_rows_max : l->rows_max;
    l->first_sharer = l->first_sharer + 1 < l->running ? l->first_sharer + 1 : 0;
    for (uint32_t i = 0; i < l->running; i++) {
        const uint32_t place = (l->first_sharer + i) % l->running;
        const struct stream_slot *s = &l->slots[l->order[place]];
        const uint32_t waiting = s->window.length - s->window.fed;
        l->taken[place] = s->follows ? 0 : 1;
        if (s->follows || waiting <= 1)
            continue;
        assert(sharers > 0);
        const uint32_t share = (rows + sharers - 1) / sharers;
        l->taken[place] = stream_prefix_take(l->prefixes, s, waiting < share ? waiting : share);
        rows -= l->taken[place];
        sharers--;
    }
}

/* Fill parts, in the slots' order; returns how many. *prompts: does one of them feed more than the element just
 * drawn? */
static uint32_t plan_pass(struct stream_lane *l, bool *prompts)
{
    uint32_t count = 0;
    float *logits = l->logits;
    *prompts = false;
    share_rows(l);
    for (uint32_t place = 0; place < l->running; place++) {
        const uint32_t index = l->order[place], take = l->taken[place];
        struct stream_slot *s = &l->slots[index];
        if (take == 0)
            continue;
        const bool chooses = s->chooses && take == s->window.length - s->window.fed && s->at == s->given_count;
        const bool wanted = s->every || chooses;
        s->choice = chooses ? logits + (size_t)(s->every ? take - 1 : 0) * BYTE_VALUES : NULL;
        *prompts = *prompts || s->drawn == 0 || take > 1;
        l->parts[count++] = (struct engine_part){
            .stream = index,
            .count = take,
            .bytes = s->window.elements + s->window.fed,
            .every = s->every,
            .logits = wanted ? logits : NULL,
        };
        logits += wanted ? (size_t)(s->every ? take : 1) * BYTE_VALUES : 0;
    }
    return count;
}

/* Add parts for the slots whose leaders have fed all that they were given; the engine does not see these. Returns the
 * new number of parts. */
static uint32_t fork_followers(struct stream_lane *l, uint32_t parts)
{
    uint32_t count = parts;
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        struct stream_slot *leader = &l->slots[p->stream];
        for (uint32_t place = 0; leader->followers > 0 && leader->choice != NULL && place < l->running; place++) {
            struct stream_slot *s = &l->slots[l->order[place]];
            if (!s->follows || s->leader != leader->window.stream)
                continue;
            stream_slot_fork(s, leader, p->count);
            l->parts[count++] =
                (struct engine_part){.stream = s->window.stream, .logits = l->logits + (s->choice - l->logits)};
        }
    }
    return count;
}

static struct stream_logits logits_of(const struct engine_part *p)
{
    return (struct stream_logits){.rows = p->logits, .count = p->count};
}

/* Look at the logits of all parts, and draw the next element where all of a slot's are fed. That takes some
 * microseconds per stream, which the engine's threads share: for many streams it would be noticeable next to a small
 * model's step. */
static void look_at_all(struct stream_lane *l, uint32_t parts)
{
#pragma omp parallel for schedule(static) num_threads(l->threads) if (parts >= DRAWS_TO_SHARE)
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        const struct stream_logits logits = logits_of(p);
        struct stream_slot *s = &l->slots[p->stream];
        const struct stream_kind *kind = kind_of(s->job);
        s->is_fine = p->logits == NULL || logits_are_finite(p->logits, (size_t)(p->every ? p->count : 1) * BYTE_VALUES);
        if (s->is_fine && p->logits != NULL && kind->look != NULL)
            kind->look(s, &logits);
    }
}

/* Use the logits of a part. *finish: how the sample ended, if it did. */
static enum stream_after use_part(struct stream_lane *l, const struct engine_part *p, const struct stream_turn *turn,
                                  enum job_finish *finish)
{
    struct stream_slot *s = &l->slots[p->stream];
    const struct stream_logits logits = logits_of(p);
    s->window.fed += p->count;
    *finish = FINISH_STOP;
    if (!s->is_fine) {
        job_abort(s->job, ERR_INTERNAL, "the model gave a logit that is not a number", turn->now_ns);
        return STREAM_JOB_OVER;
    }
    stream_prefix_keep(l->prefixes, s);
    return kind_of(s->job)->use(s, &logits, turn, finish);
}

/* A slot's sample has ended. True if its job has, too. */
static bool end_sample(struct stream_lane *l, uint32_t index, enum job_finish finish, uint64_t now_ns)
{
    struct stream_slot *s = &l->slots[index];
    struct job *j = s->job;
    const bool last = !has_others(l, s);
    uint32_t place = 0;
    if (kind_of(j)->end != NULL)
        kind_of(j)->end(s, finish, last);
    while (l->order[place] != index)
        place++;
    slot_stop(l, place);
    if (last)
        job_finish(j, finish, now_ns);
    return last;
}

static uint32_t use_parts(struct stream_lane *l, uint32_t parts, uint64_t now_ns)
{
    uint32_t ended = 0, drawn = 0;
    look_at_all(l, parts);
    for (uint32_t i = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        struct stream_slot *s = &l->slots[p->stream];
        struct job *j = s->job;
        if (j == NULL) /* another sample of its job has ended the job */
            continue;
        const struct stream_turn turn = {.now_ns = now_ns, .running = l->running};
        const uint32_t before = s->drawn;
        enum job_finish finish;
        const enum stream_after after = use_part(l, p, &turn, &finish);
        drawn += s->drawn - before;
        if (after == STREAM_SAMPLE_OVER && end_sample(l, p->stream, finish, now_ns))
            ended++;
        if (after == STREAM_JOB_OVER) {
            forget_job(l, j);
            ended++;
        }
    }
    metrics_counter_add(METRIC_GENERATED_BYTES, l->model->metrics_label, drawn);
    return ended;
}

uint32_t stream_lane_step(struct stream_lane *l)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t ended = stop_jobs(l, start_ns);
    ended += admit_jobs(l, start_ns);
    if (l->running == 0)
        return ended;

    bool prompts;
    const uint32_t parts = plan_pass(l, &prompts);
    assert(parts > 0);
    engine_feed(l->model->engine, l->parts, parts);
    const uint64_t end_ns = clock_now_ns();
    metrics_histogram_observe(prompts ? METRIC_PREFILL : METRIC_DECODE, l->model->metrics_label, end_ns - start_ns);
    metrics_histogram_observe(METRIC_BATCH_SIZE, l->model->metrics_label, parts);
    return ended + use_parts(l, fork_followers(l, parts), end_ns);
}
