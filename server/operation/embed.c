/* embed.c - see embed.h. */
#include "server/operation/embed.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "engine/engine.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_kind.h"

/* ---- the job --------------------------------------------------------------------------------------------------- */

enum status embed_begin(struct job *j, const struct embed_input *in, struct error *err)
{
    assert(in->count >= 1 && in->count <= GENERATE_PROMPTS_MAX);
    const uint32_t dim = engine_info(j->model->engine)->dim;
    struct embed_job *c = job_begin(j, &job_kind_embed, sizeof *c, err);
    if (c == NULL || (c->sums = job_alloc(j, (size_t)in->count * dim * sizeof *c->sums, err)) == NULL)
        return ERR_NOMEM;
    c->in = *in;
    c->dim = dim;
    j->input_len = in->ends[in->count - 1];
    j->samples = in->count;
    return OK;
}

static size_t start_of(const struct embed_input *in, uint32_t text)
{
    return text > 0 ? in->ends[text - 1] : 0;
}

static size_t size_of(const struct embed_input *in, uint32_t text)
{
    return in->ends[text] - start_of(in, text);
}

void embed_job_mean(const struct job *j, uint32_t text, float *out)
{
    const struct embed_job *c = embed_job_of(j);
    const double *sums = c->sums + (size_t)text * c->dim, size = (double)size_of(&c->in, text);
    for (uint32_t i = 0; i < c->dim; i++)
        out[i] = (float)(sums[i] / size);
}

/* ---- its streams ----------------------------------------------------------------------------------------------- */

static void embed_stream_begin(struct stream_slot *s)
{
    const struct embed_job *c = embed_job_of(s->job);
    s->given = c->in.texts + start_of(&c->in, s->sample);
    s->given_count = size_of(&c->in, s->sample);
    s->prompt = s->sample;
    s->sums = c->sums + (size_t)s->sample * c->dim;
    stream_slot_begin(s);
}

static bool are_finite(const double *sums, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (!isfinite(sums[i]))
            return false;
    return true;
}

static enum stream_after embed_stream_commit(struct stream_slot *s, struct stream_turn *turn)
{
    if (are_finite(s->sums, embed_job_of(s->job)->dim))
        return STREAM_SAMPLE_OVER;
    job_abort(s->job, ERR_INTERNAL, "the model gave a hidden state that is not a number", turn->now_ns);
    return STREAM_JOB_OVER;
}

/* ---- the kind -------------------------------------------------------------------------------------------------- */

static const struct stream_kind streams = {
    .begin = embed_stream_begin,
    .commit = embed_stream_commit,
};

const struct job_kind job_kind_embed = {
    .stream = &streams,
};
