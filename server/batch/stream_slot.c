/* stream_slot.c - see stream_slot.h. */
#include "server/batch/stream_slot.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/logits.h"
#include "server/job/job.h"
#include "server/job/stream_snapshot.h"

static bool is_limited(const struct stream_model *m)
{
    return m->context != ENGINE_CONTEXT_UNLIMITED;
}

/* Put what the request gives next behind what the window has. */
static void fill_room(const struct stream_model *m, struct stream_slot *s)
{
    const size_t left = s->given_count - s->at, room = m->window_size - s->length;
    const size_t n = left < room ? left : room;
    if (n > 0)
        memcpy(s->window + s->length, s->given + s->at, n);
    s->length += (uint32_t)n;
    s->at += n;
}

/* Put what the request gives next into the window, all of which was fed; `anew` in front of everything, or behind what
 * the state holds. */
static void fill_window(const struct stream_model *m, struct stream_slot *s, bool anew)
{
    s->fed = s->length = 0;
    if (anew)
        engine_stream_reset(m->engine, s->index);
    if (anew && m->starts)
        s->window[s->length++] = 0;
    fill_room(m, s);
}

uint32_t stream_slot_room(const struct stream_model *m, uint32_t position)
{
    return m->context - (position == 0 && m->starts ? 1 : position);
}

/* One more than the context is fed only for a stream that shifts. */
size_t stream_slot_kept(const struct stream_model *m, const struct generate_input *in, size_t size)
{
    if (!is_limited(m) || (in->from.memory != NULL && size <= stream_slot_room(m, in->from.position)))
        return size;
    const uint32_t most = m->context - (m->starts ? 1 : 0);
    const bool all = in->shift || m->starts || (in->max_tokens == 0 && !in->saves);
    const uint32_t whole = all ? most : most > 1 ? most - 1 : 1;
    const uint32_t half = m->context > 1 ? m->context / 2 : most;
    if (in->from.memory != NULL)
        return size < half ? size : half;
    return size <= whole ? size : in->shift ? half : whole;
}

uint32_t stream_slot_samples(const struct job *j)
{
    switch (j->kind) {
    case JOB_GENERATE:
        return j->sample_count;
    case JOB_COMPLETE:
        return j->in.completion.samples;
    case JOB_COMPRESS:
    case JOB_DECOMPRESS:
        return j->in.coding.block_count;
    default:
        return 1;
    }
}

size_t stream_slot_given(const struct stream_model *m, const struct job *j)
{
    size_t kept = 0;
    if (j->kind == JOB_SCORE)
        return j->in.score.count;
    if (j->kind == JOB_COMPRESS || j->kind == JOB_DECOMPRESS)
        return j->kind == JOB_COMPRESS ? j->in.coding.text_bytes : 0;
    if (j->kind == JOB_COMPLETE)
        return (size_t)j->in.completion.known_count * j->in.completion.samples;
    for (uint32_t i = 0; i < j->sample_count; i += j->in.text.n)
        kept += stream_slot_kept(m, &j->in.text, job_prompt(j, i).size);
    return kept;
}

static void begin_text(const struct stream_model *m, struct stream_slot *s)
{
    static const uint8_t newline[1] = {'\n'};
    const struct generate_input *in = &s->job->in.text;
    const struct job_prompt prompt = job_prompt(s->job, s->sample);
    struct sampler_options options = in->sampler;
    options.sample = s->sample % in->n;
    sampler_init(&s->sampler, &options);
    size_t seen = prompt.size > SAMPLER_HISTORY ? prompt.size - SAMPLER_HISTORY : 0;
    if (in->from.memory != NULL) {
        const struct sampler *before = &in->from.sampler;
        options.sample = in->n > 1 ? options.sample : before->options.sample;
        s->sampler = *before;
        s->sampler.options = options;
        seen = in->from.pending_count > seen ? in->from.pending_count : seen; /* it has seen what is pending */
    }
    /* The penalty looks at the prompt's last bytes, those that the model does not get included. */
    for (size_t i = seen; i < prompt.size; i++)
        sampler_accept(&s->sampler, prompt.bytes[i]);
    s->given = prompt.bytes;
    s->given_count = prompt.size;
    s->at = prompt.size - stream_slot_kept(m, in, prompt.size);
    s->scored = s->at + (m->starts ? 0 : 1); /* the first byte fed has a probability only behind the start */
    s->tells = in->prompt_logprobs && options.sample == 0 && prompt.size > 0;
    if (prompt.size == 0 && !m->starts) { /* something must be fed; this is not echoed and not counted */
        s->given = newline;
        s->given_count = 1;
    }
    if (in->saves && in->max_tokens == 0) { /* the last byte waits for what is to follow it */
        s->drawn = prompt.bytes[--s->given_count];
        assert(s->at < s->given_count);
    }
}

/* Go on from a snapshot, with what is given behind it. Where both do not fit into the context, begin again with the
 * last half of it, as start_again does. */
static void resume(const struct stream_model *m, struct stream_slot *s, const struct stream_snapshot *from)
{
    const size_t given = s->given_count;
    s->at = 0;
    s->fed = s->length = 0;
    if (from->position == 0 && (!is_limited(m) || given <= stream_slot_room(m, 0))) {
        engine_stream_reset(m->engine, s->index);
        if (m->starts)
            s->window[s->length++] = 0;
    } else if (!is_limited(m) || given <= stream_slot_room(m, from->position)) {
        engine_stream_restore(m->engine, s->index, from->position, stream_snapshot_state(from));
        if (is_limited(m)) {
            memcpy(s->window, from->memory, from->fed_count);
            s->fed = s->length = from->fed_count;
        }
    } else {
        const uint32_t first = m->starts ? 1 : 0;
        const size_t half = m->context > 1 ? m->context / 2 : 1 - first;
        const size_t text = from->fed_count > first ? from->fed_count - first : 0;
        const size_t left = given < half ? half - given : 0, tail = left < text ? left : text;
        engine_stream_reset(m->engine, s->index);
        if (m->starts)
            s->window[s->length++] = 0;
        memcpy(s->window + s->length, from->memory + from->fed_count - tail, tail);
        s->length += (uint32_t)tail;
        s->at = given > half ? given - half : 0;
    }
    fill_room(m, s);
}

static void begin_picture(struct stream_slot *s, const struct complete_input *in)
{
    struct sampler_options options = in->sampler;
    options.sample = s->sample;
    sampler_init(&s->sampler, &options);
    s->given = in->known;
    s->given_count = in->known_count;
    s->at = 0;
}

/* The last element is not fed: nothing comes after it. */
static void begin_score(struct stream_slot *s, const struct score_input *in)
{
    s->given = in->elements;
    s->given_count = in->count - 1;
    s->at = 0;
    s->scored = 0;
}

void stream_slot_begin(const struct stream_model *m, struct stream_slot *s, struct job *j, uint32_t sample)
{
    s->job = j;
    s->sample = sample;
    s->generated = s->followers = 0;
    s->tells = s->follows = false;
    if (j->kind == JOB_GENERATE)
        begin_text(m, s);
    else if (j->kind == JOB_COMPLETE)
        begin_picture(s, &j->in.completion);
    else if (j->kind == JOB_SCORE)
        begin_score(s, &j->in.score);
    else if (j->kind == JOB_COMPRESS)
        stream_coding_begin_encode(m, s, &j->in.coding.blocks[sample]);
    else
        stream_coding_begin_decode(m, s, &j->in.coding.blocks[sample]);
    if (j->kind == JOB_GENERATE && j->in.text.from.memory != NULL)
        resume(m, s, &j->in.text.from);
    else if (j->kind != JOB_COMPRESS && j->kind != JOB_DECOMPRESS)
        fill_window(m, s, true);
}

void stream_slot_skip(const struct stream_model *m, struct stream_slot *s, size_t from, size_t size,
                      const uint8_t *state)
{
    const uint32_t position = (uint32_t)size + (m->starts ? 1 : 0);
    assert(s->fed == 0 && size < s->given_count - from);
    engine_stream_restore(m->engine, s->index, position, state);
    if (is_limited(m)) { /* the window has all of it */
        s->fed = position;
        return;
    }
    s->at = from + size;
    fill_window(m, s, false);
}

bool stream_slot_follow(struct stream_slot *s, struct stream_slot *leader)
{
    const struct job *j = s->job;
    const uint32_t n = j->kind == JOB_GENERATE ? j->in.text.n : j->kind == JOB_COMPLETE ? j->in.completion.samples : 1;
    if (leader->job != j || leader->sample / n != s->sample / n || leader->follows || leader->generated > 0)
        return false;
    s->follows = true;
    s->leader = leader->index;
    leader->followers++;
    return true;
}

void stream_slot_fork(const struct stream_model *m, struct stream_slot *s, struct stream_slot *leader, uint32_t fed)
{
    assert(s->follows && s->leader == leader->index && leader->followers > 0);
    engine_stream_copy(m->engine, leader->index, s->index);
    memcpy(s->window, leader->window, leader->length);
    s->length = leader->length;
    s->fed = leader->fed + fed;
    s->at = leader->at;
    s->choice = leader->choice;
    s->follows = false;
    leader->followers--;
}

bool stream_slot_draws(const struct stream_slot *s)
{
    return s->job->kind != JOB_GENERATE || s->job->in.text.max_tokens > 0;
}

void stream_slot_draw(struct stream_slot *s)
{
    const uint32_t numbers = s->job->kind == JOB_GENERATE ? s->job->in.text.logprobs : 0;
    if (s->job->kind == JOB_DECOMPRESS) {
        s->drawn = stream_coding_decode(s, s->choice);
        return;
    }
    s->drawn = sampler_draw(&s->sampler, s->choice);
    sampler_accept(&s->sampler, s->drawn);
    if (numbers > 0)
        logits_logprobs(s->logprobs, s->likeliest, numbers - 1, s->choice, s->drawn);
}

void stream_slot_go_on(const struct stream_model *m, struct stream_slot *s)
{
    fill_window(m, s, false);
}

/* The context is full: go on from the last half of it, of which the byte just drawn will be the last. */
static void start_again(const struct stream_model *m, struct stream_slot *s)
{
    const uint32_t first = m->starts ? 1 : 0;
    const uint32_t keep = m->context > 1 ? m->context / 2 - 1 : 0;
    memmove(s->window + first, s->window + m->context - keep, keep);
    s->length = first + keep;
    s->fed = 0;
    engine_stream_reset(m->engine, s->index);
}

bool stream_slot_push(const struct stream_model *m, struct stream_slot *s, uint8_t element, bool shift)
{
    if (s->length == m->window_size) {
        if (!is_limited(m))
            s->length = s->fed = 0;
        else if (shift)
            start_again(m, s);
        else
            return false;
    }
    if (s->length < m->window_size) /* a context of one has room for the start alone */
        s->window[s->length++] = element;
    return true;
}

/* Windows of a text longer than the context are scored from scratch, each beginning with the last byte of the one
 * before, which for a model with a start embedding is the start instead. */
bool stream_slot_score(const struct stream_model *m, struct stream_slot *s, const float *logits, uint32_t count)
{
    const struct score_input *in = &s->job->in.score;
    for (uint32_t i = 0; i < count; i++, s->scored++)
        s->job->logits[s->scored] =
            (float)fmax(-(double)FLT_MAX, logits_log2(logits + (size_t)i * BYTE_VALUES, BYTE_VALUES,
                                                      in->elements[in->first + s->scored]));
    if (s->scored == in->count - in->first)
        return true;
    if (s->fed < s->length)
        return false;
    if (is_limited(m) && m->starts)
        s->at = s->scored;
    fill_window(m, s, is_limited(m));
    return false;
}

static void save(const struct stream_model *m, const struct stream_slot *s, struct stream_snapshot *to)
{
    const uint32_t position = engine_stream_position(m->engine, s->index);
    const bool is_pushed = s->length > s->fed;
    const uint32_t first = position == 0 && m->starts ? 1 : s->fed; /* the start is no byte of the text */
    assert(is_limited(m) || !is_pushed || s->length - s->fed == 1);
    to->position = position;
    to->sampler = s->sampler;
    to->fed_count = is_limited(m) ? s->fed : 0;
    to->pending_count = is_pushed ? s->length - first : 1;
    to->state_bytes = position > 0 ? engine_stream_saved_bytes(m->engine, position) : 0;
    memcpy(to->memory, s->window, to->fed_count);
    if (is_pushed)
        memcpy(stream_snapshot_pending(to), s->window + first, to->pending_count);
    else
        *stream_snapshot_pending(to) = s->drawn;
    if (position > 0)
        engine_stream_save(m->engine, s->index, stream_snapshot_state(to));
}

void stream_slot_keep(const struct stream_model *m, const struct stream_slot *s)
{
    struct job *j = s->job;
    if (j->kind != JOB_GENERATE || !j->in.text.saves)
        return;
    const bool is_fed = s->fed == s->length && s->at == s->given_count; /* else there is no room for what is pending */
    if (j->in.text.max_tokens > 0 ? s->generated == 0 : !is_fed)
        return;
    save(m, s, &j->saved);
    j->has_saved = true;
}

enum status stream_slot_check_snapshot(const struct stream_snapshot *s, const struct engine *e, struct error *err)
{
    const bool ends = engine_info(e)->context != ENGINE_CONTEXT_UNLIMITED;
    const uint32_t fed = ends ? s->position : 0;
    if (s->fed_count != fed)
        return error_set_param(
            err, ERR_ARGUMENT, "state",
            "the state has %u bytes of text, expected %u: its position is %u and the model's context "
            "has %s end",
            s->fed_count, fed, s->position, ends ? "an" : "no");
    const size_t most = ends ? (size_t)engine_info(e)->context + 1 : 1;
    if (s->fed_count + (size_t)s->pending_count > most)
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "the state has %u bytes of text and %u pending, expected at most %zu together",
                               s->fed_count, s->pending_count, most);
    if (s->position == 0)
        return OK;
    return engine_stream_check(e, s->position, stream_snapshot_state(s), s->state_bytes, err);
}

void stream_slot_tell(struct stream_slot *s, const float *logits, uint32_t count)
{
    struct job *j = s->job;
    const struct job_prompt prompt = job_prompt(j, s->sample);
    const size_t numbers = j->in.text.logprobs;
    for (uint32_t i = 0; i < count && s->scored < prompt.size; i++, s->scored++) {
        const size_t at = prompt.offset + s->scored;
        uint8_t none[1];
        logits_logprobs(j->prompt_logprobs + at * numbers,
                        numbers > 1 ? j->prompt_likeliest + at * (numbers - 1) : none, (uint32_t)numbers - 1,
                        logits + (size_t)i * BYTE_VALUES, prompt.bytes[s->scored]);
    }
}
