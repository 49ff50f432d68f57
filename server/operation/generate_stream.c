/* generate_stream.c - the texts of a job in the slots of a lane: how a prompt is fed, and how the next byte is drawn.
 * See generate.h, stream_kind.h. */
#include <assert.h>

#include "engine/logits.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/models/hosted_model.h"
#include "server/operation/generate.h"
#include "server/operation/stream_kind.h"

/* The state of a sample while it has a slot. */
struct generate_stream {
    struct sampler sampler;
    size_t told;                                /* bytes of the prompt whose logprobs are known */
    uint8_t drawn;                              /* the latest byte */
    float logprobs[1 + GENERATE_LIKELIEST_MAX]; /* of that byte, if the job gives them */
    uint8_t likeliest[GENERATE_LIKELIEST_MAX];
    uint64_t drawn_ns; /* when it was drawn */
};

size_t generate_stream_bytes(void)
{
    return sizeof(struct generate_stream);
}

static struct generate_stream *stream_of(const struct stream_slot *s)
{
    return &generate_job_of(s->job)->streams[s->sample];
}

/* ---- beginning ------------------------------------------------------------------------------------------------- */

/* Only a stream that shifts is fed one element more than the context. */
size_t generate_kept(const struct stream_model *m, const struct generate_input *in, size_t size)
{
    if (!stream_model_is_limited(m) || (in->from.memory != NULL && size <= stream_model_room(m, in->from.position)))
        return size;
    const uint32_t most = m->context - (m->starts ? 1 : 0);
    const bool all = in->shift || m->starts || (in->max_tokens == 0 && !in->saves);
    const uint32_t whole = all ? most : most > 1 ? most - 1 : 1;
    const uint32_t half = m->context > 1 ? m->context / 2 : most;
    if (in->from.memory != NULL)
        return size < half ? size : half;
    return size <= whole ? size : in->shift ? half : whole;
}

/* The penalty applies to the prompt's last bytes, including those that the model is not fed. */
static void begin_sampler(struct sampler *sampler, const struct generate_input *in, uint32_t sample,
                          const struct generate_prompt *prompt)
{
    struct sampler_options options = in->sampler;
    size_t seen = prompt->size > SAMPLER_HISTORY ? prompt->size - SAMPLER_HISTORY : 0;
    options.sample = sample;
    sampler_init(sampler, &options);
    if (in->from.memory != NULL) {
        const struct sampler *before = &in->from.sampler;
        options.sample = in->n > 1 ? options.sample : before->options.sample;
        *sampler = *before;
        sampler->options = options;
        seen = in->from.pending_count > seen ? in->from.pending_count : seen; /* it has seen what is pending */
    }
    for (size_t i = seen; i < prompt->size; i++)
        sampler_accept(sampler, prompt->bytes[i]);
}

static void generate_stream_begin(struct stream_slot *s)
{
    static const uint8_t newline[1] = {'\n'};
    struct generate_job *g = generate_job_of(s->job);
    const struct generate_input *in = &g->in;
    const struct stream_model *m = s->window.model;
    const struct generate_prompt prompt = generate_prompt(g, s->sample);
    struct generate_stream *stream = stream_of(s);
    begin_sampler(&stream->sampler, in, s->sample % in->n, &prompt);
    s->chooses = true;
    s->shifting_draws = in->shift ? in->max_tokens : 0;
    s->prompt = s->sample / in->n;
    s->cached = s->sample % in->n == 0 ? &g->prompt_cached : NULL;
    s->given = prompt.bytes;
    s->given_count = prompt.size;
    s->at = prompt.size - generate_kept(m, in, prompt.size);
    stream->told = s->at + (m->starts ? 0 : 1); /* the first byte fed has a probability only after a start embedding */
    s->every = in->prompt_logprobs && stream->sampler.options.sample == 0 && prompt.size > 0;
    if (g->job->keeps_prefixes && in->from.position == 0)
        s->state_owner = &g->job->prefix_owner;
    if (prompt.size == 0 && !m->starts) { /* something must be fed; this is not echoed and not counted */
        s->given = newline;
        s->given_count = 1;
    }
    if (in->saves && in->max_tokens == 0) { /* the last byte stays pending until something follows it */
        stream->drawn = prompt.bytes[--s->given_count];
        assert(s->at < s->given_count);
    }
    if (in->from.memory != NULL)
        stream_slot_resume(s, &in->from);
    else
        stream_slot_begin(s);
}

/* ---- drawing --------------------------------------------------------------------------------------------------- */

/* Nothing is drawn if the prompt is only evaluated. */
static bool draws(const struct generate_job *g)
{
    return g->in.max_tokens > 0;
}

/* Write down the logprobs of the prompt's bytes. */
static void generate_stream_tell(struct stream_slot *s)
{
    struct generate_job *g = generate_job_of(s->job);
    struct generate_stream *stream = stream_of(s);
    const struct generate_prompt prompt = generate_prompt(g, s->sample);
    const size_t numbers = g->in.logprobs;
    for (uint32_t i = 0; i < s->fed && stream->told < prompt.size; i++, stream->told++) {
        const size_t at = prompt.offset + stream->told;
        uint8_t none[1];
        logits_logprobs(g->prompt_logprobs + at * numbers,
                        numbers > 1 ? g->prompt_likeliest + at * (numbers - 1) : none, (uint32_t)numbers - 1,
                        s->rows + (size_t)i * BYTE_VALUES, prompt.bytes[stream->told]);
    }
}

static void generate_stream_draw(struct stream_slot *s)
{
    const struct generate_job *g = generate_job_of(s->job);
    struct generate_stream *stream = stream_of(s);
    if (s->every)
        generate_stream_tell(s);
    if (s->choice == NULL || !draws(g))
        return;
    stream->drawn = sampler_draw(&stream->sampler, s->choice);
    if (g->in.logprobs > 0)
        logits_logprobs(stream->logprobs, stream->likeliest, g->in.logprobs - 1, s->choice, stream->drawn);
}

/* Sending every byte of every stream by itself costs more than a small model's share of a step; so the more streams
 * run, the more bytes a client gets at a time (STREAM_WAKE_NS). */
static enum stream_after next_byte(struct stream_slot *s, struct stream_turn *turn)
{
    struct generate_job *g = generate_job_of(s->job);
    struct generate_stream *stream = stream_of(s);
    const unsigned model = g->job->model->metrics_label;
    if (s->drawn == 1)
        metrics_histogram_observe(METRIC_FIRST_BYTE, model, turn->now_ns - g->job->result.queued_ns);
    else
        metrics_histogram_observe(METRIC_BETWEEN_BYTES, model, turn->now_ns - stream->drawn_ns);
    stream->drawn_ns = turn->now_ns;
    const struct generate_rows row = {&stream->drawn, stream->logprobs, stream->likeliest, g->in.logprobs};
    const enum generate_next next = generate_emit(g, s->sample, &row, turn->running * STREAM_WAKE_NS, turn->now_ns);
    if (next == GENERATE_OVERRUN) {
        job_finish(g->job, FINISH_CANCELLED, turn->now_ns);
        return STREAM_JOB_OVER;
    }
    if (next == GENERATE_STOPPED)
        turn->finish = FINISH_STOP;
    else if (s->drawn == g->in.max_tokens)
        turn->finish = FINISH_LENGTH;
    else if (stream_window_push(&s->window, stream->drawn, g->in.shift))
        return STREAM_GOES_ON;
    else
        turn->finish = FINISH_CONTEXT;
    return STREAM_SAMPLE_OVER;
}

/* Save in job.saved the state of the stream, whose last byte was drawn but not fed, whether pushed or not; if the job
 * draws none, the last byte of its prompt takes the place of that byte. Nothing is saved if the stream has not drawn
 * its first byte yet or, if it draws none, has not been fed everything before the prompt's last byte. */
static void generate_stream_save(struct stream_slot *s)
{
    struct generate_job *g = generate_job_of(s->job);
    const struct generate_stream *stream = stream_of(s);
    if (!g->in.saves)
        return;
    /* else there is no room for what is pending */
    const bool is_fed = s->window.fed == s->window.length && s->at == s->given_count;
    if (g->in.max_tokens > 0 ? s->drawn == 0 : !is_fed)
        return;
    stream_window_save(&s->window, stream->drawn, &g->saved);
    g->saved.sampler = stream->sampler;
    g->saved.is_foreign = g->in.from.is_foreign;
    g->has_saved = true;
}

static enum stream_after generate_stream_commit(struct stream_slot *s, struct stream_turn *turn)
{
    struct generate_job *g = generate_job_of(s->job);
    enum stream_after after = STREAM_SAMPLE_OVER;
    if (draws(g)) {
        s->drawn++;
        s->every = false;
        after = next_byte(s, turn);
    } else {
        turn->finish = FINISH_LENGTH;
    }
    if (after != STREAM_SAMPLE_OVER)
        return after;
    generate_stream_save(s);
    if (!turn->is_last)
        generate_end_sample(g, s->sample, turn->finish);
    return after;
}

const struct stream_kind stream_kind_generate = {
    .begin = generate_stream_begin,
    .draw = generate_stream_draw,
    .commit = generate_stream_commit,
    .interrupt = generate_stream_save, /* a text that is cut off is valid as far as it got */
};
