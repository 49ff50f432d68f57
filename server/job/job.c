/* job.c - see job.h. Every transition is made by one function, under the job's lock:
 *
 *            job_submit          job_start            job_emit, first byte
 *   (created) ------> QUEUED ---------------> RUNNING ---------------------> STREAMING
 *                       |                        |                               |
 *                       | job_cancel,            | job_finish, job_abort         | job_finish, job_abort
 *                       | through job_abort      |                               |
 *                       +------------------------+------------> DONE <-----------+
 *
 * Whoever takes the job out of the queue (the engine thread with queue_pop, or job_cancel with queue_remove) owns the
 * engine side's reference and makes the rest of the transitions; so DONE is reached once.
 *
 * Waiting: the HTTP thread looks, and if there is nothing to do marks `suspended` and suspends its connection; who
 * makes news clears `suspended` and resumes. Both happen under the lock, so news is never missed, no connection is
 * resumed twice, and none after job_detach. job_text.c has the bytes of texts. */
#include "server/job/job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/clock.h"
#include "server/job/job_inner.h"
#include "server/models/registry.h"

const char *job_finish_word(enum job_finish finish)
{
#define X(constant, word) word,
    static const char *const words[] = {JOB_FINISHES(X)};
#undef X
    return words[finish];
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* All but the reference to the model, which the caller takes when nothing can fail any more. */
static enum status job_create(struct job **ret, enum job_kind kind, size_t logits, size_t pixels)
{
    struct job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return ERR_NOMEM;
    j->kind = kind;
    j->logits = logits > 0 ? calloc(logits, sizeof *j->logits) : NULL;
    j->pixels = pixels > 0 ? malloc(pixels) : NULL;
    if ((logits > 0 && j->logits == NULL) || (pixels > 0 && j->pixels == NULL) ||
        pthread_mutex_init(&j->lock, NULL) != 0) {
        free(j->pixels);
        free(j->logits);
        free(j);
        return ERR_NOMEM;
    }
    atomic_init(&j->references, 1);
    atomic_init(&j->cancelled, OK);
    *ret = j;
    return OK;
}

enum status job_create_classify(struct job **ret, struct hosted_model *model, const struct classify_input *in)
{
    return job_create_classify_many(ret, model, in, 1);
}

enum status job_create_classify_many(struct job **ret, struct hosted_model *model, const struct classify_input *inputs,
                                     uint32_t count)
{
    const size_t values = inputs[0].map.values;
    assert(count >= 1 && count <= CLASSIFY_INPUTS_MAX && (count == 1 || values == 0));
    struct job *j = NULL;
    struct classify_input *copies = malloc(count * sizeof *copies);
    float *map = values > 0 ? calloc(values, sizeof *map) : NULL;
    enum status st = copies == NULL || (values > 0 && map == NULL) ? ERR_NOMEM : OK;
    if (st == OK)
        st = job_create(&j, JOB_CLASSIFY, (size_t)count * inputs[0].classes, 0);
    if (st != OK) {
        free(map);
        free(copies);
        return st;
    }
    memcpy(copies, inputs, count * sizeof *copies);
    j->map = map;
    j->item.kind = job_input_kind(&copies[0]);
    hosted_model_reference(model);
    j->model = model;
    j->in.pictures.inputs = copies;
    j->in.pictures.count = count;
    *ret = j;
    return OK;
}

enum status job_create_generate(struct job **ret, struct hosted_model *model, const struct generate_input *in,
                                size_t ring_bytes)
{
    struct job *j = NULL;
    enum status st = job_create(&j, JOB_GENERATE, 0, 0);
    if (st != OK)
        return st;
    if (in->saves) { /* as much as it can come to: the engine's thread allocates nothing */
        const struct engine_info *info = engine_info(model->engine);
        const uint32_t fed = info->context == ENGINE_CONTEXT_UNLIMITED ? 0 : info->context;
        st = stream_snapshot_create(&j->saved, fed, 1, info->stream_bytes, NULL);
    }
    if (st == OK)
        st = job_text_init(j, in, ring_bytes);
    if (st != OK) {
        stream_snapshot_clear(&j->saved);
        (void)pthread_mutex_destroy(&j->lock);
        free(j);
        return st;
    }
    hosted_model_reference(model);
    j->model = model;
    *ret = j;
    return OK;
}

enum status job_create_complete(struct job **ret, struct hosted_model *model, const struct complete_input *in)
{
    assert(in->samples >= 1 && in->samples <= COMPLETE_SAMPLES_MAX && in->known_count < in->total);
    struct job *j = NULL;
    const enum status st = job_create(&j, JOB_COMPLETE, 0, (size_t)in->samples * in->total);
    if (st != OK)
        return st;
    hosted_model_reference(model);
    j->model = model;
    j->in.completion = *in;
    for (uint32_t i = 0; i < in->samples; i++) {
        if (in->known_count > 0)
            memcpy(j->pixels + (size_t)i * in->total, in->known, in->known_count);
        j->drawn[i] = in->known_count;
    }
    *ret = j;
    return OK;
}

enum status job_create_score(struct job **ret, struct hosted_model *model, const struct score_input *in)
{
    assert(in->count > in->first);
    struct job *j = NULL;
    const enum status st = job_create(&j, JOB_SCORE, in->count - in->first, 0);
    if (st != OK)
        return st;
    hosted_model_reference(model);
    j->model = model;
    j->in.score = *in;
    *ret = j;
    return OK;
}

enum status job_create_change(struct job **ret, const struct change_input *in)
{
    struct job *j = NULL;
    const enum status st = job_create(&j, JOB_CHANGE, 0, 0);
    if (st != OK)
        return st;
    j->in.change = *in;
    *ret = j;
    return OK;
}

static enum status create_coding(struct job **ret, enum job_kind kind, struct hosted_model *model,
                                 const struct coding_input *in)
{
    assert(in->block_count >= 1);
    struct job *j = NULL;
    const enum status st = job_create(&j, kind, 0, 0);
    if (st != OK)
        return st;
    hosted_model_reference(model);
    j->model = model;
    j->in.coding = *in;
    *ret = j;
    return OK;
}

enum status job_create_compress(struct job **ret, struct hosted_model *model, const struct coding_input *in)
{
    return create_coding(ret, JOB_COMPRESS, model, in);
}

enum status job_create_decompress(struct job **ret, struct hosted_model *model, const struct coding_input *in)
{
    return create_coding(ret, JOB_DECOMPRESS, model, in);
}

static void free_input(struct job *j)
{
    switch (j->kind) {
    case JOB_CHANGE:
        j->in.change.free(j->in.change.what);
        break;
    case JOB_CLASSIFY:
        for (uint32_t i = 0; i < j->in.pictures.count; i++)
            free(j->in.pictures.inputs[i].pixels);
        free(j->in.pictures.inputs);
        break;
    case JOB_GENERATE:
        free(j->in.text.prompt);
        stream_snapshot_clear(&j->in.text.from);
        stream_snapshot_clear(&j->saved);
        job_text_clear(j);
        break;
    case JOB_COMPLETE:
        free(j->in.completion.known);
        break;
    case JOB_SCORE:
        free(j->in.score.elements);
        break;
    case JOB_COMPRESS:
    case JOB_DECOMPRESS:
        free(j->in.coding.text);
        free(j->in.coding.code);
        free(j->in.coding.blocks);
        break;
    }
}

void job_reference(struct job *j)
{
    (void)atomic_fetch_add_explicit(&j->references, 1, memory_order_relaxed);
}

void job_release(struct job *j)
{
    if (j == NULL || atomic_fetch_sub_explicit(&j->references, 1, memory_order_acq_rel) != 1)
        return;
    free_input(j);
    hosted_model_release(j->model);
    (void)pthread_mutex_destroy(&j->lock);
    free(j->pixels);
    free(j->map);
    free(j->logits);
    free(j);
}

void job_keep_prefixes(struct job *j, const char *owner)
{
    j->keeps_prefixes = true;
    (void)snprintf(j->prefix_owner, sizeof j->prefix_owner, "%s", owner);
}

enum status job_submit(struct job *j, struct queue *q, uint32_t lane, uint64_t deadline_ns)
{
    j->queue = q;
    j->deadline_ns = deadline_ns;
    j->result.queued_ns = clock_now_ns();
    job_reference(j); /* before the push: the engine may be done with it when that returns */
    const enum status st = queue_push(q, lane, &j->item);
    if (st != OK)
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

void job_suspend_locked(struct job *j)
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

bool job_streams(const struct job *j)
{
    return (j->kind == JOB_GENERATE && j->in.text.stream) || (j->kind == JOB_COMPLETE && j->in.completion.stream);
}

bool job_await(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    const bool ready = j->state == JOB_DONE || (j->state == JOB_STREAMING && job_streams(j));
    if (!ready)
        job_suspend_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
    return ready;
}

/* News other than data. */
enum job_event job_other_event_locked(struct job *j)
{
    if (j->state == JOB_DONE)
        return JOB_EVENT_END;
    if (j->ping)
        return JOB_EVENT_PING;
    job_suspend_locked(j);
    return JOB_EVENT_LATER;
}

enum job_event job_read_rows(struct job *j, const uint32_t *read, uint32_t *sample, uint32_t *rows)
{
    const struct complete_input *in = &j->in.completion;
    uint32_t i = 0;
    (void)pthread_mutex_lock(&j->lock);
    while (i < in->samples && j->drawn[i] / in->row_count == read[i])
        i++;
    enum job_event event = JOB_EVENT_BYTES;
    if (i < in->samples) {
        *sample = i;
        *rows = j->drawn[i] / in->row_count;
    } else {
        event = job_other_event_locked(j);
    }
    j->ping = false;
    (void)pthread_mutex_unlock(&j->lock);
    return event;
}

const struct job_result *job_result(const struct job *j)
{
    return &j->result;
}

bool job_is_done(struct job *j)
{
    (void)pthread_mutex_lock(&j->lock);
    const bool done = j->state == JOB_DONE;
    (void)pthread_mutex_unlock(&j->lock);
    return done;
}

size_t job_given(const struct job *j)
{
    switch (j->kind) {
    case JOB_GENERATE:
        return j->in.text.prompt_bytes - j->in.text.from.pending_count;
    case JOB_COMPLETE:
        return j->in.completion.known_count;
    case JOB_SCORE:
        return j->in.score.count;
    case JOB_COMPRESS:
        return j->in.coding.text_bytes;
    default:
        return 0;
    }
}

void job_progress(struct job *j, uint32_t *generated, uint64_t *first_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    *generated = j->result.generated;
    *first_ns = j->result.first_ns;
    (void)pthread_mutex_unlock(&j->lock);
}

/* ---- any thread ------------------------------------------------------------------------------------------------ */

void job_cancel(struct job *j, enum status st)
{
    int none = OK;
    (void)atomic_compare_exchange_strong(&j->cancelled, &none, (int)st);
    if (queue_remove(j->queue, &j->item))
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

/* ---- engine thread --------------------------------------------------------------------------------------------- */

struct job *job_of_item(struct queue_item *item)
{
    return (struct job *)(void *)((char *)item - offsetof(struct job, item));
}

enum status job_stop_reason(const struct job *j, uint64_t now_ns)
{
    const enum status st = (enum status)atomic_load_explicit(&j->cancelled, memory_order_relaxed);
    return st == OK && now_ns >= j->deadline_ns ? ERR_TIMEOUT : st;
}

void job_start(struct job *j, uint32_t prompt_dropped, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    assert(j->state == JOB_QUEUED);
    j->state = JOB_RUNNING;
    j->result.started_ns = now_ns;
    j->result.prompt_dropped = prompt_dropped;
    (void)pthread_mutex_unlock(&j->lock);
}

void job_note_cached(struct job *j, uint32_t bytes)
{
    (void)pthread_mutex_lock(&j->lock);
    j->result.prompt_cached += bytes;
    (void)pthread_mutex_unlock(&j->lock);
}

void job_draw(struct job *j, uint32_t sample, uint8_t value, uint64_t now_ns)
{
    const struct complete_input *in = &j->in.completion;
    (void)pthread_mutex_lock(&j->lock);
    const bool first = j->state == JOB_RUNNING;
    assert(j->drawn[sample] < in->total);
    if (first) {
        j->state = JOB_STREAMING;
        j->result.first_ns = now_ns;
    }
    j->result.generated++;
    j->pixels[(size_t)sample * in->total + j->drawn[sample]++] = value;
    if (job_streams(j) && (first || j->drawn[sample] % in->row_count == 0))
        job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
}

/* DONE. Takes the result's end and gives up the engine side's reference. */
static void job_end(struct job *j, enum status st, enum job_finish finish, const char *message, uint64_t now_ns)
{
    (void)pthread_mutex_lock(&j->lock);
    assert(j->state != JOB_DONE);
    if (j->kind == JOB_GENERATE)
        finish = job_text_end_locked(j, finish);
    if (j->kind == JOB_DECOMPRESS && st == OK)
        j->result.generated = (uint32_t)j->in.coding.text_bytes;
    if (finish == FINISH_CANCELLED) /* not all of the text was there to be read: nobody goes on behind the rest */
        j->has_saved = false;
    j->state = JOB_DONE;
    j->result.status = st;
    j->result.finish = finish;
    j->result.done_ns = now_ns;
    (void)snprintf(j->result.message, sizeof j->result.message, "%s", message);
    job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
    job_release(j);
}

void job_finish(struct job *j, enum job_finish finish, uint64_t now_ns)
{
    job_end(j, OK, finish, "", now_ns);
}

static const char *reason_text(enum status st)
{
    switch (st) {
    case ERR_TIMEOUT:
        return "the request's deadline passed before there was an answer";
    case ERR_CANCELLED:
        return "the client closed the connection";
    case ERR_UNAVAILABLE:
        return "the server is shutting down";
    default:
        return "the request could not be completed";
    }
}

void job_abort(struct job *j, enum status st, const char *message, uint64_t now_ns)
{
    assert(st != OK);
    const bool begun = j->result.generated > 0;
    if (begun && st == ERR_TIMEOUT && (j->kind == JOB_GENERATE || job_streams(j)))
        job_end(j, OK, FINISH_TIMEOUT, "", now_ns);
    else if (begun && job_streams(j) && (st == ERR_CANCELLED || st == ERR_UNAVAILABLE))
        job_end(j, OK, FINISH_CANCELLED, "", now_ns);
    else
        job_end(j, st, FINISH_CANCELLED, message != NULL ? message : reason_text(st), now_ns);
}
