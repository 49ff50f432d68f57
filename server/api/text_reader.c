/* text_reader.c - see text_reader.h. The bytes of an incomplete character at the end of what was read of a sample
 * are held, with their log probabilities, until more of that sample comes. A prompt is echoed before the first event of
 * its sample, so that nothing is sent for a request that was refused or never began. */
#include "server/api/text_reader.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/text.h"

/* Bytes and the log probabilities of each. */
struct rows {
    uint8_t *bytes;
    float *logprobs;
    uint8_t *likeliest;
};

struct sample {
    size_t held;   /* bytes that wait for the rest of a character */
    size_t echoed; /* bytes of the prompt that were echoed */
    size_t said;   /* bytes that were passed on, the prompt's included */
};

enum pending { NOTHING, BYTES, ENDED };

struct text_reader {
    struct generate_job *job;
    bool echo;
    size_t numbers;         /* reported for each byte */
    size_t size_max;        /* bytes that are read at a time */
    struct sample *samples; /* [sample_count] */
    struct rows held;       /* [sample_count, UTF8_INCOMPLETE_MAX] */
    struct rows read;       /* [UTF8_INCOMPLETE_MAX + size_max]: room for what is held, and what was read */
    struct rows prompt;     /* likewise for a prompt, if it is echoed */
    char *text;             /* [UTF8_GROWTH * (UTF8_INCOMPLETE_MAX + size_max)] */
    enum pending pending;   /* what was read and is to be passed on next */
    struct generate_reading reading;
};

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static bool rows_create(struct rows *r, size_t count, size_t numbers)
{
    r->bytes = malloc(count);
    r->logprobs = numbers > 0 ? malloc(count * numbers * sizeof *r->logprobs) : NULL;
    r->likeliest = numbers > 1 ? malloc(count * (numbers - 1)) : NULL;
    return r->bytes != NULL && (numbers == 0 || r->logprobs != NULL) && (numbers <= 1 || r->likeliest != NULL);
}

static void rows_free(struct rows *r)
{
    free(r->bytes);
    free(r->logprobs);
    free(r->likeliest);
}

static struct rows rows_at(const struct rows *r, size_t at, size_t numbers)
{
    return (struct rows){
        .bytes = r->bytes + at,
        .logprobs = numbers > 0 ? r->logprobs + at * numbers : NULL,
        .likeliest = numbers > 1 ? r->likeliest + at * (numbers - 1) : NULL,
    };
}

static void rows_copy(const struct rows *to, const struct rows *from, size_t count, size_t numbers)
{
    if (count == 0)
        return;
    memcpy(to->bytes, from->bytes, count);
    if (numbers > 0)
        memcpy(to->logprobs, from->logprobs, count * numbers * sizeof *to->logprobs);
    if (numbers > 1)
        memcpy(to->likeliest, from->likeliest, count * (numbers - 1));
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

enum status text_reader_create(struct text_reader **ret, struct job *j, bool echo)
{
    struct generate_job *g = generate_job_of(j);
    const size_t numbers = g->in.logprobs;
    struct text_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ERR_NOMEM;
    r->job = g;
    r->echo = echo;
    r->numbers = numbers;
    r->size_max = STREAM_EVENT_BYTES_MAX / (numbers > 0 ? numbers : 1);
    assert(!echo || numbers == 0 || g->in.prompt_logprobs);
    const size_t most = UTF8_INCOMPLETE_MAX + r->size_max;
    r->samples = calloc(g->sample_count, sizeof *r->samples);
    r->text = malloc(UTF8_GROWTH * most);
    const bool fine = rows_create(&r->held, (size_t)g->sample_count * UTF8_INCOMPLETE_MAX, numbers) &&
                      rows_create(&r->read, most, numbers) && rows_create(&r->prompt, echo ? most : 1, numbers);
    if (!fine || r->samples == NULL || r->text == NULL) {
        text_reader_free(r);
        return ERR_NOMEM;
    }
    *ret = r;
    return OK;
}

void text_reader_free(struct text_reader *r)
{
    if (r == NULL)
        return;
    rows_free(&r->prompt);
    rows_free(&r->read);
    rows_free(&r->held);
    free(r->text);
    free(r->samples);
    free(r);
}

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

/* Make a piece of the whole characters in what is held of a sample and the `size` bytes after it in `rows`; `last`: no
 * more will come. False: there are none. */
static bool make_piece(struct text_reader *r, const struct rows *rows, uint32_t sample, size_t size, bool last,
                       struct text_piece *p)
{
    struct sample *s = &r->samples[sample];
    const size_t prompt = r->echo ? generate_prompt(r->job, sample).size : 0;
    const struct rows held = rows_at(&r->held, (size_t)sample * UTF8_INCOMPLETE_MAX, r->numbers),
                      from = rows_at(rows, UTF8_INCOMPLETE_MAX - s->held, r->numbers);
    rows_copy(&from, &held, s->held, r->numbers);
    const size_t whole = s->held + size, used = utf8_repair(r->text, &p->text_bytes, from.bytes, whole, last);
    const struct rows left = rows_at(&from, used, r->numbers);
    s->held = whole - used;
    rows_copy(&held, &left, s->held, r->numbers);
    if (used == 0)
        return false;
    const size_t of_prompt = s->said >= prompt ? 0 : prompt - s->said < used ? prompt - s->said : used;
    p->sample = sample;
    p->text = r->text;
    p->bytes = from.bytes;
    p->size = used;
    p->generated = used - of_prompt;
    p->offset = s->said;
    p->logprobs = from.logprobs;
    p->likeliest = from.likeliest;
    s->said += used;
    return true;
}

/* A piece of the next bytes of a sample's prompt, which is not yet all echoed. */
static bool echo_piece(struct text_reader *r, uint32_t sample, const struct generate_prompt *prompt,
                       struct text_piece *p)
{
    struct sample *s = &r->samples[sample];
    const struct generate_job *g = r->job;
    const size_t left = prompt->size - s->echoed, size = left < r->size_max ? left : r->size_max;
    const struct rows to = rows_at(&r->prompt, UTF8_INCOMPLETE_MAX, r->numbers),
                      all = {.bytes = g->in.prompt, .logprobs = g->prompt_logprobs, .likeliest = g->prompt_likeliest},
                      from = rows_at(&all, prompt->offset + s->echoed, r->numbers);
    rows_copy(&to, &from, size, r->numbers);
    s->echoed += size;
    return make_piece(r, &r->prompt, sample, size, false, p);
}

static enum job_event read_job(struct text_reader *r)
{
    const struct rows to = rows_at(&r->read, UTF8_INCOMPLETE_MAX, r->numbers);
    r->reading = (struct generate_reading){
        .size_max = r->size_max, .bytes = to.bytes, .logprobs = to.logprobs, .likeliest = to.likeliest};
    const enum job_event event = generate_read(&r->job->job, &r->reading);
    r->pending = event == JOB_EVENT_BYTES ? BYTES : event == JOB_EVENT_SAMPLE_END ? ENDED : NOTHING;
    return event;
}

enum job_event text_reader_next(struct text_reader *r, struct text_piece *p)
{
    for (;;) {
        if (r->pending == NOTHING) {
            const enum job_event event = read_job(r);
            if (r->pending == NOTHING)
                return event;
        }
        const uint32_t sample = r->reading.sample;
        const struct generate_prompt prompt = generate_prompt(r->job, sample);
        if (r->echo && r->samples[sample].echoed < prompt.size) {
            if (echo_piece(r, sample, &prompt, p))
                return JOB_EVENT_BYTES;
        } else if (r->pending == BYTES) {
            r->pending = NOTHING;
            if (make_piece(r, &r->read, sample, r->reading.size, false, p))
                return JOB_EVENT_BYTES;
        } else if (r->samples[sample].held > 0) {
            (void)make_piece(r, &r->read, sample, 0, true, p);
            return JOB_EVENT_BYTES;
        } else {
            r->pending = NOTHING;
            p->sample = sample;
            p->finish = r->reading.finish;
            return JOB_EVENT_SAMPLE_END;
        }
    }
}
