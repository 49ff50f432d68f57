/* job_text.c - the texts of a generate job, between the engine thread that draws their bytes and the HTTP thread that
 * reads them. See job.h.
 *
 * Each sample has a ring. Invariant: from `start` on lie first `bytes` that may be read, then those that its matcher
 * holds because a stop string may have begun with them; of the former at most ring_limit, of the latter fewer than
 * GENERATE_STOP_BYTES_MAX, and ring_size has room for both. Only the engine thread writes behind the former. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/job/job_inner.h"

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* calloc of a * b * c; NULL too where that is 0 or beyond what can be counted. */
static void *array_of(size_t a, size_t b, size_t c, size_t size)
{
    size_t count, bytes;
    if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
        __builtin_mul_overflow(count, size, &bytes) || bytes == 0)
        return NULL;
    return malloc(bytes);
}

enum status job_text_init(struct job *j, const struct generate_input *in, size_t ring_bytes)
{
    const size_t numbers = in->logprobs, likeliest = numbers > 0 ? numbers - 1 : 0;
    const size_t prompt = in->prompt_logprobs ? in->prompt_bytes : 0;
    assert(ring_bytes > 0 && (in->stream || ring_bytes >= in->max_tokens));
    assert(in->prompt_count >= 1 && in->prompt_count <= GENERATE_PROMPTS_MAX && in->n >= 1);
    assert(in->prompt_count * in->n <= GENERATE_SAMPLES_MAX && likeliest <= GENERATE_LIKELIEST_MAX);
    assert(in->ends[in->prompt_count - 1] == in->prompt_bytes);
    j->in.text = *in;
    j->item.priority = in->priority;
    j->sample_count = in->prompt_count * in->n;
    j->ring_limit = ring_bytes;
    j->ring_size = ring_bytes + GENERATE_STOP_BYTES_MAX;
    j->samples = calloc(j->sample_count, sizeof *j->samples);
    j->ring = array_of(j->sample_count, j->ring_size, 1, 1);
    j->ring_logprobs = array_of(j->sample_count, j->ring_size, numbers, sizeof *j->ring_logprobs);
    j->ring_likeliest = array_of(j->sample_count, j->ring_size, likeliest, 1);
    j->prompt_logprobs = array_of(prompt, numbers, 1, sizeof *j->prompt_logprobs);
    j->prompt_likeliest = array_of(prompt, likeliest, 1, 1);
    if (j->samples == NULL || j->ring == NULL || (numbers > 0 && j->ring_logprobs == NULL) ||
        (likeliest > 0 && j->ring_likeliest == NULL) || (prompt * numbers > 0 && j->prompt_logprobs == NULL) ||
        (prompt * likeliest > 0 && j->prompt_likeliest == NULL)) {
        job_text_clear(j);
        return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < j->sample_count; i++)
        stop_matcher_init(&j->samples[i].matcher, &j->in.text.stops);
    for (size_t i = 0; i < prompt * numbers; i++)
        j->prompt_logprobs[i] = NAN;
    return OK;
}

void job_text_clear(struct job *j)
{
    free(j->prompt_likeliest);
    free(j->prompt_logprobs);
    free(j->ring_likeliest);
    free(j->ring_logprobs);
    free(j->ring);
    free(j->samples);
}

struct job_prompt job_prompt(const struct job *j, uint32_t sample)
{
    const struct generate_input *in = &j->in.text;
    const uint32_t prompt = sample / in->n;
    const size_t from = prompt > 0 ? in->ends[prompt - 1] : 0;
    return (struct job_prompt){
        .bytes = in->prompt != NULL ? in->prompt + from : NULL,
        .size = in->ends[prompt] - from,
        .offset = from,
    };
}

/* ---- reading: HTTP threads ------------------------------------------------------------------------------------- */

/* Copy `size` rows of `width` bytes each out of a ring of rows. */
static void copy_rows(void *to, const void *ring, size_t width, size_t ring_size, size_t start, size_t size)
{
    const size_t to_end = ring_size - start, first = size < to_end ? size : to_end;
    if (width == 0)
        return;
    memcpy(to, (const uint8_t *)ring + start * width, first * width);
    if (size > first)
        memcpy((uint8_t *)to + first * width, ring, (size - first) * width);
}

static void take_locked(struct job *j, uint32_t sample, struct job_reading *r)
{
    struct job_sample *s = &j->samples[sample];
    const size_t numbers = j->in.text.logprobs, ring = (size_t)sample * j->ring_size;
    r->sample = sample;
    r->size = s->bytes < r->size_max ? s->bytes : r->size_max;
    copy_rows(r->bytes, j->ring + ring, 1, j->ring_size, s->start, r->size);
    if (numbers > 0)
        copy_rows(r->logprobs, j->ring_logprobs + ring * numbers, numbers * sizeof *r->logprobs, j->ring_size, s->start,
                  r->size);
    if (numbers > 1)
        copy_rows(r->likeliest, j->ring_likeliest + ring * (numbers - 1), numbers - 1, j->ring_size, s->start, r->size);
    s->start = (s->start + r->size) % j->ring_size;
    s->bytes -= r->size;
}

/* What a sample has to say, if anything. */
static bool read_sample_locked(struct job *j, uint32_t sample, struct job_reading *r, enum job_event *event)
{
    struct job_sample *s = &j->samples[sample];
    if (s->bytes > 0) {
        take_locked(j, sample, r);
        *event = JOB_EVENT_BYTES;
        return true;
    }
    if (!s->is_over || s->is_told)
        return false;
    s->is_told = true;
    r->sample = sample;
    r->finish = s->finish;
    *event = JOB_EVENT_SAMPLE_END;
    return true;
}

enum job_event job_read(struct job *j, struct job_reading *r)
{
    enum job_event event;
    bool found = false;
    assert(r->size_max > 0);
    (void)pthread_mutex_lock(&j->lock);
    for (uint32_t i = 0; i < j->sample_count && !found; i++) {
        const uint32_t sample = (j->next_sample + i) % j->sample_count;
        found = read_sample_locked(j, sample, r, &event);
        if (found)
            j->next_sample = (sample + 1) % j->sample_count;
    }
    if (!found)
        event = job_other_event_locked(j);
    j->ping = false;
    (void)pthread_mutex_unlock(&j->lock);
    return event;
}

/* ---- writing: the engine thread -------------------------------------------------------------------------------- */

/* Behind all that the ring has, readable or not. */
static void put_locked(struct job *j, uint32_t sample, uint8_t byte, const float *logprobs, const uint8_t *likeliest)
{
    const struct job_sample *s = &j->samples[sample];
    const size_t numbers = j->in.text.logprobs, ring = (size_t)sample * j->ring_size;
    const size_t at = ring + (s->start + s->bytes + s->matcher.held_bytes) % j->ring_size;
    j->ring[at] = byte;
    if (numbers > 0)
        memcpy(j->ring_logprobs + at * numbers, logprobs, numbers * sizeof *logprobs);
    if (numbers > 1)
        memcpy(j->ring_likeliest + at * (numbers - 1), likeliest, numbers - 1);
}

/* Bytes that were withheld are text. False if they would be too many; then none is. */
static bool release_locked(const struct job *j, struct job_sample *s, size_t size)
{
    if (s->bytes + size > j->ring_limit)
        return false;
    s->bytes += size;
    return true;
}

enum job_next job_emit(struct job *j, uint32_t sample, uint8_t byte, const float *logprobs, const uint8_t *likeliest,
                       uint64_t gap_ns, uint64_t now_ns)
{
    struct job_sample *s = &j->samples[sample];
    uint8_t text[GENERATE_STOP_BYTES_MAX];
    size_t size;

    (void)pthread_mutex_lock(&j->lock);
    const bool first = j->state == JOB_RUNNING;
    assert((first || j->state == JOB_STREAMING) && !s->is_over);
    if (first) {
        j->state = JOB_STREAMING;
        j->result.first_ns = now_ns;
    }
    j->result.generated++;
    put_locked(j, sample, byte, logprobs, likeliest);
    const bool stopped = stop_matcher_feed(&s->matcher, byte, text, &size);
    const bool fits = release_locked(j, s, size);
    if (job_streams(j) && j->suspended && (first || (s->bytes > 0 && now_ns - j->resumed_ns >= gap_ns))) {
        job_resume_locked(j);
        j->resumed_ns = now_ns;
    }
    (void)pthread_mutex_unlock(&j->lock);
    if (!fits)
        s->matcher.held_bytes = 0; /* what follows a gap is not handed out, even where it would fit */
    return !fits ? JOB_OVERRUN : stopped ? JOB_STOPPED : JOB_CONTINUE;
}

static void end_locked(struct job *j, struct job_sample *s, enum job_finish finish)
{
    uint8_t text[GENERATE_STOP_BYTES_MAX];
    if (s->is_over)
        return;
    /* if they do not fit, the reader was too slow for the last bytes too */
    s->finish = release_locked(j, s, stop_matcher_flush(&s->matcher, text)) ? finish : FINISH_CANCELLED;
    s->is_over = true;
}

void job_end_sample(struct job *j, uint32_t sample, enum job_finish finish)
{
    (void)pthread_mutex_lock(&j->lock);
    end_locked(j, &j->samples[sample], finish);
    if (job_streams(j) && j->state == JOB_STREAMING)
        job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
}

enum job_finish job_text_end_locked(struct job *j, enum job_finish finish)
{
    enum job_finish whole = FINISH_STOP;
    for (uint32_t i = 0; i < j->sample_count; i++) {
        end_locked(j, &j->samples[i], finish);
        whole = j->samples[i].finish > whole ? j->samples[i].finish : whole;
    }
    return whole;
}
