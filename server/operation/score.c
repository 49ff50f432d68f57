/* score.c - see score.h. */
#include "server/operation/score.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "engine/logits.h"
#include "server/operation/stream_kind.h"

enum { NUMBER_BYTES = 56 }; /* of a number of the answer, while that is built */

/* ---- the job --------------------------------------------------------------------------------------------------- */

enum status score_begin(struct job *j, const struct score_input *in, struct error *err)
{
    assert(in->count > in->first);
    struct score_job *c = job_begin(j, &job_kind_score, sizeof *c, err);
    if (c == NULL || (c->log2_probs = job_alloc(j, (in->count - in->first) * sizeof *c->log2_probs, err)) == NULL)
        return ERR_NOMEM;
    c->in = *in;
    j->input_len = in->count;
    j->answer_bytes = in->count * (1 + sizeof *c->log2_probs + NUMBER_BYTES);
    return OK;
}

/* ---- its stream ------------------------------------------------------------------------------------------------ */

/* The last element is not fed: nothing comes after it. */
static void score_stream_begin(struct stream_slot *s)
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

static enum stream_after score_stream_commit(struct stream_slot *s, struct stream_turn *turn)
{
    struct score_job *c = score_job_of(s->job);
    const struct score_input *in = &c->in;
    (void)turn;
    for (uint32_t i = 0; i < s->fed; i++, c->scored++)
        c->log2_probs[c->scored] =
            (float)fmax(-(double)FLT_MAX, logits_log2(s->rows + (size_t)i * BYTE_VALUES, BYTE_VALUES,
                                                      in->elements[in->first + c->scored]));
    if (c->scored == in->count - in->first)
        return STREAM_SAMPLE_OVER;
    if (s->window.fed == s->window.length)
        next_window(s, c->scored);
    return STREAM_GOES_ON;
}

/* ---- the kind -------------------------------------------------------------------------------------------------- */

static const struct stream_kind stream = {
    .begin = score_stream_begin,
    .commit = score_stream_commit,
};

const struct job_kind job_kind_score = {
    .stream = &stream,
};
