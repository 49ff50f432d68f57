/* generate_state.c - see generate_state.h. */
#include "server/api/generate_state.h"

#include <stdlib.h>
#include <string.h>

#include "server/models/hosted_model.h"
#include "server/operation/stream_window.h"
#include "server/session/state_blob.h"

static struct stream_model shape_of(const struct hosted_model *e)
{
    return stream_model_of(e->engine, e->model->config.context);
}

enum status generate_state_take_options(struct generate_request *r, const struct sampler_options *from,
                                        struct error *err)
{
    struct sampler_options *o = &r->in.sampler;
    const uint64_t seed = r->is_seeded ? o->seed : from->seed;
    *o = *from;
    generate_set_sampler(o, &r->sampler);
    o->seed = seed;
    return generate_check_sampler(o, err);
}

/* Put the pending bytes before the prompt. */
static enum status join_prompt(struct generate_input *in, struct error *err)
{
    const uint32_t pending = in->from.pending_count;
    uint8_t *prompt = malloc(pending + in->prompt_bytes + 1);
    if (prompt == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the request; try again later");
    memcpy(prompt, stream_snapshot_pending(&in->from), pending);
    if (in->prompt_bytes > 0)
        memcpy(prompt + pending, in->prompt, in->prompt_bytes);
    free(in->prompt);
    in->prompt = prompt;
    in->prompt_bytes += pending;
    in->ends[0] = in->prompt_bytes;
    return OK;
}

/* r->in.from is set, and of this model. */
static enum status go_on(struct generate_request *r, const struct hosted_model *e, struct error *err)
{
    const struct stream_model m = shape_of(e);
    const char *param = r->state != NULL ? "state" : "session";
    struct generate_input *in = &r->in;
    if (in->from.position > ENGINE_POSITION_MAX) /* only a session's can be */
        return error_set_param(err, ERR_ARGUMENT, param,
                               "the state is at position %u, expected at most %u: its text is too long to continue",
                               in->from.position, ENGINE_POSITION_MAX);
    const enum status st = join_prompt(in, err);
    if (st != OK)
        return st;
    if (m.context != ENGINE_CONTEXT_UNLIMITED && !in->shift &&
        in->prompt_bytes > stream_model_room(&m, in->from.position))
        return error_set_param(
            err, ERR_ARGUMENT, param,
            "the state is at position %u and %zu bytes are to follow, which exceeds the model's context of "
            "%u; expected fewer, or \"context_overflow\" \"shift\"",
            in->from.position, in->prompt_bytes, m.context);
    return generate_state_take_options(r, &in->from.sampler.options, err);
}

enum status generate_state_open(struct stream_snapshot *ret, const uint8_t *blob, size_t size,
                                const struct hosted_model *e, struct error *err)
{
    struct stream_snapshot s;
    enum status st = state_blob_read(&s, blob, size, &e->identity, err);
    if (st != OK)
        return st;
    st = stream_snapshot_check(&s, e->engine, err);
    s.is_foreign = true;
    if (st == OK)
        *ret = s;
    else
        stream_snapshot_clear(&s);
    return st;
}

enum status generate_state_read(struct generate_request *r, const struct hosted_model *e, struct error *err)
{
    const enum status st = generate_state_open(&r->in.from, r->state, r->state_size, e, err);
    return st == OK ? go_on(r, e, err) : st;
}

enum status generate_state_continue(struct generate_request *r, const struct hosted_model *e,
                                    const struct stream_snapshot *s, struct error *err)
{
    const enum status st = stream_snapshot_copy(&r->in.from, s, err);
    return st == OK ? go_on(r, e, err) : st;
}

size_t generate_state_kept(const struct generate_input *in, const struct hosted_model *e)
{
    const struct stream_model m = shape_of(e);
    return generate_kept(&m, in, in->prompt_bytes);
}

enum status generate_state_begin(struct stream_snapshot *ret, const struct generate_input *in,
                                 const struct hosted_model *e, struct error *err)
{
    const size_t kept = generate_state_kept(in, e);
    struct stream_snapshot s;
    const enum status st = stream_snapshot_create(&s, 0, (uint32_t)kept, 0, err);
    if (st != OK)
        return st;
    sampler_init(&s.sampler, &in->sampler);
    for (size_t i = in->prompt_bytes > SAMPLER_HISTORY ? in->prompt_bytes - SAMPLER_HISTORY : 0; i < in->prompt_bytes;
         i++)
        sampler_accept(&s.sampler, in->prompt[i]);
    if (kept > 0)
        memcpy(stream_snapshot_pending(&s), in->prompt + in->prompt_bytes - kept, kept);
    *ret = s;
    return OK;
}
