/* complete.c - see complete.h. */
#include "server/operation/complete.h"

#include <assert.h>
#include <string.h>

#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_kind.h"

/* ---- the job --------------------------------------------------------------------------------------------------- */

void complete_fill(struct job *j, const uint8_t *known)
{
    struct complete_job *c = complete_job_of(j);
    c->in.known = known;
    for (uint32_t i = 0; i < c->in.samples; i++)
        memcpy(c->pixels + (size_t)i * c->in.total, known, c->in.known_count);
}

enum status complete_begin(struct job *j, const struct complete_input *in, struct error *err)
{
    assert(in->samples >= 1 && in->samples <= COMPLETE_SAMPLES_MAX && in->known_count < in->total);
    struct complete_job *c = job_begin(j, &job_kind_complete, sizeof *c, err);
    if (c == NULL || (c->pixels = job_alloc(j, (size_t)in->samples * in->total, err)) == NULL)
        return ERR_NOMEM;
    c->in = *in;
    j->input_len = in->known_count;
    j->samples = in->samples;
    j->max_output = (uint64_t)in->samples * (in->total - in->known_count);
    j->answer_bytes = (size_t)in->samples * in->total;
    j->streams = in->stream;
    for (uint32_t i = 0; i < in->samples; i++)
        c->drawn[i] = in->known_count;
    if (in->known != NULL)
        complete_fill(j, in->known);
    return OK;
}

enum job_event complete_read_rows(struct job *j, const uint32_t *read, uint32_t *sample, uint32_t *rows)
{
    const struct complete_job *c = complete_job_of(j);
    uint32_t i = 0;
    (void)pthread_mutex_lock(&j->lock);
    while (i < c->in.samples && c->drawn[i] / c->in.row_count == read[i])
        i++;
    enum job_event event = JOB_EVENT_BYTES;
    if (i < c->in.samples) {
        *sample = i;
        *rows = c->drawn[i] / c->in.row_count;
    } else {
        event = job_other_event_locked(j);
    }
    j->ping = false;
    (void)pthread_mutex_unlock(&j->lock);
    return event;
}

/* ---- its streams ----------------------------------------------------------------------------------------------- */

static void complete_stream_begin(struct stream_slot *s)
{
    struct complete_job *c = complete_job_of(s->job);
    struct sampler_options options = c->in.sampler;
    options.sample = s->sample;
    sampler_init(&c->streams[s->sample].sampler, &options);
    s->given = c->in.known;
    s->given_count = c->in.known_count;
    s->chooses = true;
    stream_slot_begin(s);
}

static void complete_stream_draw(struct stream_slot *s)
{
    struct complete_job *c = complete_job_of(s->job);
    struct sampler *sampler = &c->streams[s->sample].sampler;
    if (s->choice == NULL)
        return;
    const uint8_t value = sampler_draw(sampler, s->choice);
    c->streams[s->sample].drawn = value;
}

/* The next sub-pixel of a sample was drawn. The waiter is resumed for the very first one and for the last of each
 * row. */
static void add(struct job *j, uint32_t sample, uint8_t value, uint64_t now_ns)
{
    struct complete_job *c = complete_job_of(j);
    (void)pthread_mutex_lock(&j->lock);
    assert(c->drawn[sample] < c->in.total);
    const bool first = job_generated_locked(j, now_ns);
    c->pixels[(size_t)sample * c->in.total + c->drawn[sample]++] = value;
    if (j->streams && (first || c->drawn[sample] % c->in.row_count == 0))
        job_resume_locked(j);
    (void)pthread_mutex_unlock(&j->lock);
}

static enum stream_after complete_stream_commit(struct stream_slot *s, struct stream_turn *turn)
{
    struct complete_job *c = complete_job_of(s->job);
    const uint8_t value = c->streams[s->sample].drawn;
    s->drawn++;
    add(s->job, s->sample, value, turn->now_ns);
    if (c->in.known_count + s->drawn == c->in.total) {
        metrics_counter_add(METRIC_PICTURES_COMPLETED, s->job->model->metrics_label, 1);
        return STREAM_SAMPLE_OVER;
    }
    const bool room = stream_window_push(&s->window, value, false); /* it fits: loading the model has checked that */
    assert(room);
    (void)room;
    return STREAM_GOES_ON;
}

/* ---- the kind -------------------------------------------------------------------------------------------------- */

static const struct stream_kind streams = {
    .begin = complete_stream_begin,
    .draw = complete_stream_draw,
    .commit = complete_stream_commit,
};

const struct job_kind job_kind_complete = {
    .tells_finish = true,
    .stream = &streams,
};
