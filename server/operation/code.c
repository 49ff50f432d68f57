/* code.c - see code.h. Each block has a slot of its own, in whose window its coder works. */
#include "server/operation/code.h"

#include <assert.h>

#include "server/operation/stream_kind.h"

/* ---- the jobs -------------------------------------------------------------------------------------------------- */

enum status code_begin(struct job *j, const struct job_kind *kind, struct archive_blocks *in, struct error *err)
{
    assert(in->count >= 1);
    struct code_job *c = job_begin(j, kind, sizeof *c, err);
    if (c == NULL || (c->coders = job_alloc(j, in->count * sizeof *c->coders, err)) == NULL)
        return ERR_NOMEM;
    c->in = in;
    j->samples = in->count;
    if (kind == &job_kind_compress)
        j->input_len = in->text_bytes;
    else
        j->max_output = in->text_bytes; /* restoring a byte is as much work as drawing one */
    j->answer_bytes = 2 * in->text_bytes + in->count * sizeof *c->coders; /* the archive has a text's size */
    return OK;
}

static enum job_finish end_restoring_locked(struct job *j, enum status st, enum job_finish finish)
{
    if (st == OK)
        j->result.generated = (uint32_t)code_job_of(j)->in->text_bytes;
    return finish;
}

/* ---- their streams --------------------------------------------------------------------------------------------- */

static struct block_coder *coder_of(const struct stream_slot *s)
{
    return &code_job_of(s->job)->coders[s->sample];
}

static void begin_encoding(struct stream_slot *s)
{
    s->prompt = s->sample;
    s->every = true;
    block_coder_begin_encode(coder_of(s), &s->window, &code_job_of(s->job)->in->blocks[s->sample]);
}

static void begin_decoding(struct stream_slot *s)
{
    s->prompt = s->sample;
    s->chooses = true;
    block_coder_begin_decode(coder_of(s), &s->window, &code_job_of(s->job)->in->blocks[s->sample]);
}

static enum stream_after encode(struct stream_slot *s, struct stream_turn *turn)
{
    (void)turn;
    return block_coder_encode(coder_of(s), &s->window, s->rows, s->fed) ? STREAM_SAMPLE_OVER : STREAM_GOES_ON;
}

static void decode(struct stream_slot *s)
{
    if (s->choice != NULL)
        block_coder_decode(coder_of(s), s->choice);
}

static enum stream_after go_on_decoding(struct stream_slot *s, struct stream_turn *turn)
{
    (void)turn;
    return block_coder_go_on(coder_of(s), &s->window) ? STREAM_SAMPLE_OVER : STREAM_GOES_ON;
}

/* ---- the kinds ------------------------------------------------------------------------------------------------- */

static const struct stream_kind encoding = {
    .begin = begin_encoding,
    .commit = encode,
};

static const struct stream_kind decoding = {
    .begin = begin_decoding,
    .draw = decode,
    .commit = go_on_decoding,
};

const struct job_kind job_kind_compress = {
    .stream = &encoding,
};

const struct job_kind job_kind_decompress = {
    .end_locked = end_restoring_locked,
    .stream = &decoding,
};
