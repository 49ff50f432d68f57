/* generate.c - the texts of a job, between the engine thread that draws their bytes and the HTTP thread that reads
 * them. See generate.h.
 *
 * Each sample has a ring. Invariant: from `start` on it has `bytes` bytes that may be read, at most ring_limit, and
 * then those that its matcher holds because a stop string may have begun with them, fewer than GENERATE_STOP_BYTES_MAX;
 * ring_size has room for both. Only the engine thread writes after the readable bytes. */
#include "server/operation/generate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_window.h"

/* In a whole answer: of a byte's text, escaped as many are, and of a logprob with its byte, as JSON. */
enum { TEXT_BYTES = 2, NUMBER_BYTES = 45 };

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* a * b * c elements of `size` bytes, of which there may be none, for *to. */
static bool make(struct job *j, void *to, size_t a, size_t b, size_t c, size_t size, struct error *err)
{
    size_t count, bytes;
    if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
        __builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    void *made = job_alloc(j, bytes, err);
    memcpy(to, &made, sizeof made);
    return made != NULL;
}

enum status generate_rows_create(struct generate_rows *r, struct job *j, size_t a, size_t b, size_t numbers,
                                 struct error *err)
{
    r->numbers = numbers;
    if (!make(j, &r->bytes, a, b, 1, 1, err) || !make(j, &r->logprobs, a, b, numbers, sizeof *r->logprobs, err) ||
        !make(j, &r->likeliest, a, b, numbers > 1 ? numbers - 1 : 0, 1, err))
        return ERR_NOMEM;
    return OK;
}

struct generate_rows generate_rows_at(const struct generate_rows *r, size_t at)
{
    return (struct generate_rows){
        .bytes = r->bytes + at,
        .logprobs = r->numbers > 0 ? r->logprobs + at * r->numbers : NULL,
        .likeliest = r->numbers > 1 ? r->likeliest + at * (r->numbers - 1) : NULL,
        .numbers = r->numbers,
    };
}

void generate_rows_copy(const struct generate_rows *to, const struct generate_rows *from, size_t count)
{
    const size_t numbers = to->numbers;
    assert(count == 0 || numbers == 0 || numbers == from->numbers);
    if (count == 0)
        return;
    memcpy(to->bytes, from->bytes, count);
    if (numbers > 0)
        memcpy(to->logprobs, from->logprobs, count * numbers * sizeof *to->logprobs);
    if (numbers > 1)
        memcpy(to->likeliest, from->likeliest, count * (numbers - 1));
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static enum status create_rings(struct job *j, struct generate_job *g, struct error *err)
{
    const size_t numbers = g->in.logprobs, likeliest = numbers > 0 ? numbers - 1 : 0, n = g->sample_count;
    const size_t prompt = g->in.prompt_logprobs ? g->in.prompt_bytes : 0;
    if (!make(j, &g->streams, n, 1, 1, generate_stream_bytes(), err) ||
        !make(j, &g->samples, n, 1, 1, sizeof *g->samples, err) ||
        generate_rows_create(&g->ring, j, n, g->ring_size, numbers, err) != OK ||
        !make(j, &g->prompt_logprobs, prompt, numbers, 1, sizeof *g->prompt_logprobs, err) ||
        !make(j, &g->prompt_likeliest, prompt, likeliest, 1, 1, err))
        return ERR_NOMEM;
    for (uint32_t i = 0; i < g->sample_count; i++)
        g->samples[i].matcher.stops = &g->in.stops;
    for (size_t i = 0; i < prompt * numbers; i++)
        g->prompt_logprobs[i] = NAN;
    return OK;
}

static void clear_snapshot(void *s)
{
    stream_snapshot_clear(s);
}

/* Allocate the most that the saved state can take: the engine thread allocates nothing. */
static enum status create_saved(struct job *j, struct generate_job *g, struct error *err)
{
    if (!g->in.saves)
        return OK;
    const struct engine_info *info = engine_info(j->model->engine);
    const uint32_t fed = info->context == ENGINE_CONTEXT_UNLIMITED ? 0 : info->context;
    const enum status st = job_defer(j, clear_snapshot, &g->saved, err);
    return st == OK ? stream_snapshot_create(&g->saved, fed, 1, info->stream_bytes, err) : st;
}

/* Of the prompts, the rings, the saved state, also in base64, and a whole answer's text. */
static size_t answer_bytes(const struct generate_job *g, const struct hosted_model *model)
{
    const size_t numbers = g->in.logprobs, ring = g->sample_count * g->ring_size * (1 + 5 * numbers);
    const size_t whole = (size_t)g->sample_count * g->in.max_tokens * (TEXT_BYTES + NUMBER_BYTES * numbers);
    const size_t saved = g->in.saves ? 3 * engine_info(model->engine)->stream_bytes : 0;
    return g->in.prompt_bytes + ring + saved + (g->in.stream ? 0 : whole);
}

enum status generate_check_room(const struct generate_input *in, const struct hosted_model *model, struct error *err)
{
    const struct stream_model m = stream_model_of(model->engine, model->model->config.context);
    for (uint32_t i = 0; i < in->prompt_count && in->refuses; i++) {
        const size_t size = in->ends[i] - (i > 0 ? in->ends[i - 1] : 0), kept = generate_kept(&m, in, size);
        if (kept < size)
            return error_set_param(
                err, ERR_ARGUMENT, "prompt",
                "the prompt has %zu bytes, of which the context of \"%s\" has room for %zu; expected "
                "at most that, or \"context_overflow\" \"stop\" or \"shift\", which leave out its "
                "beginning",
                size, model->model->name, kept);
    }
    return OK;
}

/* What the context has no room for; what was pending comes first, and is of an earlier prompt or answer. */
static uint32_t dropped(const struct generate_job *g, const struct stream_model *m)
{
    size_t kept = 0;
    for (uint32_t i = 0; i < g->sample_count; i += g->in.n)
        kept += generate_kept(m, &g->in, generate_prompt(g, i).size);
    const size_t left_out = g->in.prompt_bytes - kept,
                 earlier = g->in.from.memory != NULL ? g->in.from.pending_count : 0;
    return left_out > earlier ? (uint32_t)(left_out - earlier) : 0;
}

enum status generate_begin(struct job *j, const struct generate_input *in, size_t ring_bytes, struct error *err)
{
    assert(ring_bytes > 0 && (in->stream || ring_bytes >= in->max_tokens));
    assert(in->prompt_count >= 1 && in->prompt_count <= GENERATE_PROMPTS_MAX && in->n >= 1);
    assert(in->prompt_count * in->n <= GENERATE_SAMPLES_MAX && in->logprobs <= 1 + GENERATE_LIKELIEST_MAX);
    assert(in->ends[in->prompt_count - 1] == in->prompt_bytes);
    const enum status st = generate_check_room(in, j->model, err);
    if (st != OK)
        return st;
    struct generate_job *g = job_begin(j, &job_kind_generate, sizeof *g, err);
    if (g == NULL)
        return ERR_NOMEM;
    g->job = j;
    g->in = *in;
    g->sample_count = in->prompt_count * in->n;
    g->ring_limit = ring_bytes;
    g->ring_size = ring_bytes + GENERATE_STOP_BYTES_MAX;
    if (create_rings(j, g, err) != OK || create_saved(j, g, err) != OK ||
        job_defer(j, clear_snapshot, &g->in.from, err) != OK || job_defer(j, free, in->prompt, err) != OK) {
        g->in.from.memory = NULL; /* not taken */
        return ERR_NOMEM;
    }
    const struct stream_model m = stream_model_of(j->model->engine, j->model->model->config.context);
    j->input_len = in->prompt_bytes - in->from.pending_count; /* what a state has pending was given before */
    j->dropped = dropped(g, &m);
    j->samples = g->sample_count;
    j->is_from_outside = in->from.is_foreign;
    j->saves = in->saves;
    j->max_output = (uint64_t)g->sample_count * in->max_tokens;
    j->streams = in->stream;
    j->resumable = in->stream && in->resumable;
    j->answer_bytes = answer_bytes(g, j->model);
    j->item.priority = in->priority;
    return OK;
}

struct generate_prompt generate_prompt(const struct generate_job *g, uint32_t sample)
{
    const struct generate_input *in = &g->in;
    const uint32_t prompt = sample / in->n;
    const size_t from = prompt > 0 ? in->ends[prompt - 1] : 0;
    return (struct generate_prompt){
        .bytes = in->prompt != NULL ? in->prompt + from : NULL,
        .size = in->ends[prompt] - from,
        .offset = from,
    };
}

/* ---- reading: HTTP threads ------------------------------------------------------------------------------------- */

static void take_locked(struct generate_job *g, uint32_t sample, struct generate_reading *r)
{
    struct generate_sample *s = &g->samples[sample];
    const size_t ring = (size_t)sample * g->ring_size, to_end = g->ring_size - s->start;
    r->sample = sample;
    r->size = s->bytes < r->size_max ? s->bytes : r->size_max;
    const size_t first = r->size < to_end ? r->size : to_end;
    const struct generate_rows from = generate_rows_at(&g->ring, ring + s->start);
    const struct generate_rows begin = generate_rows_at(&g->ring, ring), rest = generate_rows_at(&r->to, first);
    generate_rows_copy(&r->to, &from, first);
    generate_rows_copy(&rest, &begin, r->size - first);
    s->start = (s->start + r->size) % g->ring_size;
    s->bytes -= r->size;
}

/* The next event of a sample, if it has one. */
static bool read_sample_locked(struct generate_job *g, uint32_t sample, struct generate_reading *r,
                               enum job_event *event)
{
    struct generate_sample *s = &g->samples[sample];
    if (s->bytes > 0) {
        take_locked(g, sample, r);
        *event = JOB_EVENT_BYTES;
        return true;
    }
    if (!s->is_over || s->is_notified)
        return false;
    s->is_notified = true;
    r->sample = sample;
    r->finish = s->finish;
    r->is_cut_off = s->is_cut_off;
    *event = JOB_EVENT_SAMPLE_END;
    return true;
}

enum job_event generate_read(struct job *j, struct generate_reading *r)
{
    struct generate_job *g = generate_job_of(j);
    enum job_event event;
    bool found = false;
    assert(r->size_max > 0);
    (void)pthread_mutex_lock(&j->lock);
    for (uint32_t i = 0; i < g->sample_count && !found; i++) {
        const uint32_t sample = (g->next_sample + i) % g->sample_count;
        found = read_sample_locked(g, sample, r, &event);
        if (found)
            g->next_sample = (sample + 1) % g->sample_count;
    }
    if (!found)
        event = job_other_event_locked(j);
    j->ping = false;
    (void)pthread_mutex_unlock(&j->lock);
    return event;
}

/* ---- writing: the engine thread -------------------------------------------------------------------------------- */

/* Append to the ring, after everything in it, readable or not. */
static void put_locked(struct generate_job *g, uint32_t sample, const struct generate_rows *row)
{
    const struct generate_sample *s = &g->samples[sample];
    const size_t at = (s->start + s->bytes + s->matcher.held_bytes) % g->ring_size;
    const struct generate_rows to = generate_rows_at(&g->ring, (size_t)sample * g->ring_size + at);
    generate_rows_copy(&to, row, 1);
}

/* Make `size` withheld bytes readable: they are text. False, and none of them is, if that exceeds ring_limit. */
static bool release_locked(struct generate_job *g, struct generate_sample *s, size_t size)
{
    if (s->bytes + size > g->ring_limit) {
        g->is_overrun = true;
        return false;
    }
    s->bytes += size;
    return true;
}

enum generate_next generate_emit(struct generate_job *g, uint32_t sample, const struct generate_rows *row,
                                 uint64_t gap_ns, uint64_t now_ns)
{
    struct job *j = g->job;
    struct generate_sample *s = &g->samples[sample];
    size_t size;

    (void)pthread_mutex_lock(&j->lock);
    assert(!s->is_over);
    const bool first = job_generated_locked(j, now_ns);
    put_locked(g, sample, row);
    const bool stopped = stop_matcher_feed(&s->matcher, *row->bytes, &size);
    const bool fits = release_locked(g, s, size);
    if (j->streams && j->suspended && (first || (s->bytes > 0 && now_ns - g->resumed_ns >= gap_ns))) {
        job_resume_locked(j);
        g->resumed_ns = now_ns;
    }
    (void)pthread_mutex_unlock(&j->lock);
    if (!fits)
        s->matcher.held_bytes = 0; /* what follows a gap is not handed out, even where it would fit */
    return !fits ? GENERATE_OVERRUN : stopped ? GENERATE_STOPPED : GENERATE_CONTINUE;
}

static void end_sample_locked(struct generate_job *g, struct generate_sample *s, enum status st, enum job_finish finish)
{
    if (s->is_over)
        return;
    s->is_cut_off = st == OK && finish > FINISH_TIMEOUT && job_cancelled(g->job) == ERR_UNAVAILABLE;
    /* what may be the beginning of a stop string is text only if no more comes */
    const size_t left = s->is_cut_off && g->in.hold_partial_stop ? 0 : s->matcher.held_bytes;
    /* if it does not fit, the reader was too slow for the last bytes too */
    s->finish = release_locked(g, s, left) ? finish : FINISH_CANCELLED;
    s->is_over = true;
}

void generate_end_sample(struct generate_job *g, uint32_t sample, enum job_finish finish)
{
    struct job *j = g->job;
    (void)pthread_mutex_lock(&j->lock);
    end_sample_locked(g, &g->samples[sample], OK, finish);
    if (j->streams && j->state == JOB_STREAMING)
        job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
}

/* End all samples that have not ended yet; returns how the job has. */
static enum job_finish end_all_locked(struct generate_job *g, enum status st, enum job_finish finish)
{
    enum job_finish whole = FINISH_STOP;
    for (uint32_t i = 0; i < g->sample_count; i++) {
        end_sample_locked(g, &g->samples[i], st, finish);
        whole = g->samples[i].finish > whole ? g->samples[i].finish : whole;
    }
    return whole;
}

bool generate_settle(struct job *j, enum job_finish finish)
{
    struct generate_job *g = generate_job_of(j);
    (void)pthread_mutex_lock(&j->lock);
    (void)end_all_locked(g, OK, finish);
    const bool is_whole = !g->is_overrun;
    (void)pthread_mutex_unlock(&j->lock);
    return is_whole;
}

static enum job_finish end_locked(struct job *j, enum status st, enum job_finish finish)
{
    struct generate_job *g = generate_job_of(j);
    const enum job_finish whole = end_all_locked(g, st, finish);
    if (g->is_overrun) /* part of the text could not be read: nobody can continue after it */
        g->has_saved = false;
    return whole;
}

/* ---- the kind -------------------------------------------------------------------------------------------------- */

const struct job_kind job_kind_generate = {
    .end_locked = end_locked,
    .ends_late = true,
    .tells_finish = true,
    .stream = &stream_kind_generate,
};
