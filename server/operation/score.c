/* score.c - see score.h. */
#include "server/operation/score.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "engine/logits.h"
#include "server/operation/stream_kind.h"

enum { NUMBER_BYTES = 56 }; /* of a number of the answer, while that is built */

/* ---- the job --------------------------------------------------------------------------------------------------- */

struct score_job *score_job_of(const struct job *j)
{
    assert(j->kind == &job_kind_score);
    return (struct score_job *)j;
}

enum status score_job_create(struct job **ret, struct hosted_model *model, const struct score_input *in)
{
    assert(in->count > in->first);
    struct score_job *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ERR_NOMEM;
    c->log2_probs = calloc(in->count - in->first, sizeof *c->log2_probs);
    if (c->log2_probs == NULL || job_init(&c->job, &job_kind_score, model) != OK) {
        free(c->log2_probs);
        free(c);
        return ERR_NOMEM;
    }
    c->in = *in;
    c->job.given = in->count;
    c->job.answer_bytes = in->count * (1 + sizeof *c->log2_probs + NUMBER_BYTES);
    *ret = &c->job;
    return OK;
}

void score_job_fill(struct job *j, uint8_t *elements)
{
    struct score_job *c = score_job_of(j);
    assert(c->in.elements == NULL);
    c->in.elements = elements;
}

static void free_job(struct job *j)
{
    struct score_job *c = score_job_of(j);
    free(c->in.elements);
    free(c->log2_probs);
    free(c);
}

/* ---- its stream ------------------------------------------------------------------------------------------------ */

/* The last element is not fed: nothing comes after it. */
static void begin(struct stream_slot *s)
{
    const struct score_input *in = &score_job_of(s->job)->in;
    s->given = in->elements;
    s->given_count = in->count - 1;
    s->every = true;
    stream_slot_begin(s);
}

/* A text longer than the context is scored in windows, each from scratch and beginning with the last byte of the one
 * before or, if the model has one, with the start embedding. */
static void next_window(struct stream_slot *s, size_t scored)
{
    const struct stream_model *m = s->window.model;
    if (!stream_model_is_limited(m)) {
        stream_slot_go_on(s);
        return;
    }
    if (m->starts)
        s->at = scored;
    stream_slot_begin(s);
}

static enum stream_after use(struct stream_slot *s, const struct stream_logits *logits, const struct stream_turn *turn,
                             enum job_finish *finish)
{
    struct score_job *c = score_job_of(s->job);
    const struct score_input *in = &c->in;
    (void)turn;
    (void)finish;
    for (uint32_t i = 0; i < logits->count; i++, c->scored++)
        c->log2_probs[c->scored] =
            (float)fmax(-(double)FLT_MAX, logits_log2(logits->rows + (size_t)i * BYTE_VALUES, BYTE_VALUES,
                                                      in->elements[in->first + c->scored]));
    if (c->scored == in->count - in->first)
        return STREAM_SAMPLE_OVER;
    if (s->window.fed == s->window.length)
        next_window(s, c->scored);
    return STREAM_GOES_ON;
}

/* ---- the kind -------------------------------------------------------------------------------------------------- */

static const struct stream_kind stream = {
    .begin = begin,
    .use = use,
};

const struct job_kind job_kind_score = {
    .free = free_job,
    .stream = &stream,
};
