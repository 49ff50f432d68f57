/* text_lane.c - continuous batching. See text_lane.h.
 *
 * A slot's `window` is what its engine state is made of: window[0 .. fed) was fed since the last reset, window[fed ..
 * length) is still to be fed. A prompt, a byte just drawn and a context that starts again are the same thing: bytes
 * not yet fed. When all are, the logits of the last one choose the next byte.
 *
 * Waking an HTTP thread for every byte of every stream would cost more than a step does; so the more streams run, the
 * more bytes a client gets at a time (STREAM_WAKE_NS).
 *
 * A pass gives one row to each stream that has one byte to feed, so decoding never waits for a prompt, and shares
 * pass_rows_max rows evenly among the others, so that a short prompt does not wait for a long one. */
#include "server/text_lane.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "server/clock.h"
#include "server/job.h"
#include "server/logits.h"
#include "server/metrics.h"
#include "server/queue.h"
#include "server/registry.h"

struct slot {
    struct job *job; /* NULL: free; otherwise the engine side's reference */
    struct sampler sampler;
    uint8_t *window; /* [context] */
    float *logits;   /* [BYTE_VALUES] */
    uint32_t fed, length;
    uint32_t generated;
    uint64_t byte_ns; /* when the latest byte was drawn */
};

struct text_lane {
    struct entry *model;
    struct queue *queue;
    uint32_t context, streams_max, prompt_rows_max;
    uint32_t running;
    uint32_t *order; /* [streams_max]: the first `running` are the taken slots, by admission */
    uint32_t *spare; /* [streams_max]: the last streams_max - running are the free slots */
    struct slot *slots;
    struct engine_part *parts; /* [streams_max] */
    uint8_t *windows;
    float *logits;
};

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status text_lane_create(struct text_lane **ret, struct entry *model, struct queue *q, const struct settings *s,
                             struct error *err)
{
    const uint32_t rows_left = ENGINE_ROWS_MAX - s->streams_max; /* of a pass, beside a row for each stream */
    struct text_lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        goto no_memory;
    l->model = model;
    l->queue = q;
    l->context = model->model->config.context;
    l->streams_max = s->streams_max;
    l->prompt_rows_max = s->pass_rows_max < rows_left ? s->pass_rows_max : rows_left;
    l->order = calloc(l->streams_max, sizeof *l->order);
    l->spare = calloc(l->streams_max, sizeof *l->spare);
    l->slots = calloc(l->streams_max, sizeof *l->slots);
    l->parts = calloc(l->streams_max, sizeof *l->parts);
    l->windows = calloc(l->streams_max, l->context);
    l->logits = calloc((size_t)l->streams_max * BYTE_VALUES, sizeof *l->logits);
    if (l->order == NULL || l->spare == NULL || l->slots == NULL || l->parts == NULL || l->windows == NULL ||
        l->logits == NULL)
        goto no_memory;
    for (uint32_t i = 0; i < l->streams_max; i++) {
        l->spare[i] = i;
        l->slots[i].window = l->windows + (size_t)i * l->context;
        l->slots[i].logits = l->logits + (size_t)i * BYTE_VALUES;
    }
    *ret = l;
    return OK;
no_memory:
    text_lane_free(l);
    return error_set(err, ERR_NOMEM, "%s: no memory for %u streams", model->model->name, s->streams_max);
}

void text_lane_free(struct text_lane *l)
{
    if (l == NULL)
        return;
    assert(l->running == 0);
    free(l->logits);
    free(l->windows);
    free(l->parts);
    free(l->slots);
    free(l->spare);
    free(l->order);
    free(l);
}

uint32_t text_lane_running(const struct text_lane *l)
{
    return l->running;
}

void text_lane_cancel(struct text_lane *l, enum status st)
{
    for (uint32_t i = 0; i < l->running; i++)
        job_cancel(l->slots[l->order[i]].job, st);
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

/* How many bytes at the end of a prompt are fed. One more than the context is fed only for a stream that shifts. */
static uint32_t kept_prompt(const struct generate_input *in, uint32_t context)
{
    const uint32_t whole = in->shift ? context : context > 1 ? context - 1 : 1;
    const uint32_t part = !in->shift ? whole : context > 1 ? context / 2 : 1;
    return in->prompt_bytes > whole ? part : (uint32_t)in->prompt_bytes;
}

static void slot_start(struct text_lane *l, struct job *j, uint64_t now_ns)
{
    const struct generate_input *in = &j->in.text;
    const uint32_t index = l->spare[l->running];
    struct slot *s = &l->slots[index];
    const uint32_t kept = kept_prompt(in, l->context);
    const uint8_t *from = kept > 0 ? in->prompt + in->prompt_bytes - kept : NULL;

    sampler_init(&s->sampler, &in->sampler);
    /* The penalty looks at the prompt's last bytes, those that the model does not get included. */
    for (size_t i = in->prompt_bytes > SAMPLER_HISTORY ? in->prompt_bytes - SAMPLER_HISTORY : 0; i < in->prompt_bytes;
         i++)
        sampler_accept(&s->sampler, in->prompt[i]);
    if (kept > 0)
        memcpy(s->window, from, kept);
    else
        s->window[0] = '\n'; /* a prompt must have a byte; this one is not echoed and not counted */
    s->length = kept > 0 ? kept : 1;
    s->fed = 0;
    s->generated = 0;
    s->byte_ns = 0;
    s->job = j;
    engine_stream_reset(l->model->engine, index);
    l->order[l->running++] = index;

    job_start(j, (uint32_t)(in->prompt_bytes - kept), now_ns);
    metrics_histogram_observe(METRIC_QUEUE_WAIT, METRICS_KIND_STREAMS, now_ns - j->result.queued_ns);
    metrics_counter_add(METRIC_PROMPT_BYTES, l->model->metrics_label, kept);
    metrics_gauge_add(METRIC_STREAMS_RUNNING, l->model->metrics_label, 1);
}

/* Forget the stream at `place` of the order; its job has been given its end. */
static void slot_stop(struct text_lane *l, uint32_t place)
{
    const uint32_t index = l->order[place];
    l->slots[index].job = NULL;
    l->running--;
    memmove(l->order + place, l->order + place + 1, (l->running - place) * sizeof *l->order);
    l->spare[l->running] = index;
    metrics_gauge_add(METRIC_STREAMS_RUNNING, l->model->metrics_label, -1);
}

static uint32_t stop_streams(struct text_lane *l, uint64_t now_ns)
{
    uint32_t ended = 0;
    for (uint32_t place = 0; place < l->running;) {
        struct job *j = l->slots[l->order[place]].job;
        const enum status st = job_stop_reason(j, now_ns);
        if (st == OK) {
            place++;
            continue;
        }
        job_abort(j, st, NULL, now_ns);
        slot_stop(l, place);
        ended++;
    }
    return ended;
}

static uint32_t admit_jobs(struct text_lane *l, uint64_t now_ns)
{
    uint32_t ended = 0;
    while (l->running < l->streams_max) {
        struct queue_item *item = queue_pop(l->queue, l->model->lane);
        if (item == NULL)
            break;
        struct job *j = job_of_item(item);
        const enum status st = job_stop_reason(j, now_ns);
        if (st == OK) {
            slot_start(l, j, now_ns);
        } else {
            job_abort(j, st, NULL, now_ns);
            ended++;
        }
    }
    return ended;
}

/* ---- a pass ---------------------------------------------------------------------------------------------------- */

static uint32_t count_prompts(const struct text_lane *l)
{
    uint32_t prompts = 0;
    for (uint32_t place = 0; place < l->running; place++) {
        const struct slot *s = &l->slots[l->order[place]];
        prompts += s->length - s->fed > 1;
    }
    return prompts;
}

/* Fill parts; returns how many. *prompts: does one of them feed more than the byte just drawn? */
static uint32_t plan_pass(struct text_lane *l, bool *prompts)
{
    uint32_t count = 0, rows = l->prompt_rows_max, sharers = count_prompts(l);
    *prompts = false;
    for (uint32_t place = 0; place < l->running; place++) {
        const uint32_t index = l->order[place];
        struct slot *s = &l->slots[index];
        const uint32_t waiting = s->length - s->fed;
        uint32_t take = 1;
        if (waiting > 1) { /* what one leaves of its share is for those after it */
            const uint32_t share = (rows + sharers - 1) / sharers;
            take = waiting < share ? waiting : share;
            rows -= take;
            sharers--;
        }
        if (take == 0)
            continue;
        *prompts = *prompts || s->generated == 0 || take > 1;
        l->parts[count++] = (struct engine_part){
            .stream = index,
            .count = take,
            .bytes = s->window + s->fed,
            .logits = take == waiting ? s->logits : NULL,
        };
    }
    return count;
}

/* The context is full: go on from the last half of it, of which the byte just drawn will be the last. */
static void start_again(struct text_lane *l, struct slot *s, uint32_t index)
{
    const uint32_t keep = l->context > 1 ? l->context / 2 - 1 : 0;
    memmove(s->window, s->window + l->context - keep, keep);
    s->length = keep;
    s->fed = 0;
    engine_stream_reset(l->model->engine, index);
}

/* All of a slot's bytes are fed: draw the next one. True if the stream has ended. */
static bool next_byte(struct text_lane *l, uint32_t index, uint64_t now_ns)
{
    struct slot *s = &l->slots[index];
    struct job *j = s->job;
    if (!logits_are_finite(s->logits, BYTE_VALUES)) {
        job_abort(j, ERR_INTERNAL, "the model gave a logit that is not a number", now_ns);
        return true;
    }
    const uint8_t byte = sampler_draw(&s->sampler, s->logits);
    sampler_accept(&s->sampler, byte);
    if (s->generated++ == 0)
        metrics_histogram_observe(METRIC_FIRST_BYTE, 0, now_ns - j->result.queued_ns);
    else
        metrics_histogram_observe(METRIC_BETWEEN_BYTES, 0, now_ns - s->byte_ns);
    s->byte_ns = now_ns;

    const enum job_next next = job_emit(j, byte, l->running * STREAM_WAKE_NS, now_ns);
    const bool full = s->length == l->context;
    if (next == JOB_OVERRUN)
        job_finish(j, FINISH_CANCELLED, now_ns);
    else if (next == JOB_STOPPED)
        job_finish(j, FINISH_STOP, now_ns);
    else if (s->generated == j->in.text.max_tokens || (full && !j->in.text.shift))
        job_finish(j, FINISH_LENGTH, now_ns);
    else {
        if (full)
            start_again(l, s, index);
        s->window[s->length++] = byte;
        return false;
    }
    return true;
}

static uint32_t draw_bytes(struct text_lane *l, uint32_t parts, uint64_t now_ns)
{
    uint32_t ended = 0, drawn = 0;
    for (uint32_t i = 0, place = 0; i < parts; i++) {
        const struct engine_part *p = &l->parts[i];
        struct slot *s = &l->slots[p->stream];
        while (l->order[place] != p->stream) /* the order is that of the parts, some left out */
            place++;
        s->fed += p->count;
        if (s->fed < s->length)
            continue;
        drawn++;
        if (next_byte(l, p->stream, now_ns)) {
            slot_stop(l, place);
            ended++;
        }
    }
    metrics_counter_add(METRIC_GENERATED_BYTES, l->model->metrics_label, drawn);
    return ended;
}

uint32_t text_lane_step(struct text_lane *l)
{
    const uint64_t start_ns = clock_now_ns();
    uint32_t ended = stop_streams(l, start_ns);
    ended += admit_jobs(l, start_ns);
    if (l->running == 0)
        return ended;

    bool prompts;
    const uint32_t parts = plan_pass(l, &prompts);
    assert(parts > 0);
    engine_feed(l->model->engine, l->parts, parts);
    const uint64_t end_ns = clock_now_ns();
    metrics_histogram_observe(prompts ? METRIC_PREFILL : METRIC_DECODE, 0, end_ns - start_ns);
    metrics_histogram_observe(METRIC_BATCH_SIZE, METRICS_KIND_STREAMS, parts);
    return ended + draw_bytes(l, parts, end_ns);
}
