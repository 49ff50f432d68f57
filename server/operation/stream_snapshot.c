/* stream_snapshot.c - see stream_snapshot.h. */
#include "server/operation/stream_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum status stream_snapshot_create(struct stream_snapshot *ret, uint32_t fed_count, uint32_t pending_count,
                                   size_t state_bytes, struct error *err)
{
    struct stream_snapshot made = {.fed_count = fed_count, .pending_count = pending_count, .state_bytes = state_bytes};
    made.memory = malloc(stream_snapshot_bytes(&made) + 1);
    if (made.memory == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the state of a stream; try again later");
    *ret = made;
    return OK;
}

enum status stream_snapshot_copy(struct stream_snapshot *ret, const struct stream_snapshot *s, struct error *err)
{
    struct stream_snapshot made = {.memory = NULL};
    const enum status st = stream_snapshot_create(&made, s->fed_count, s->pending_count, s->state_bytes, err);
    if (made.memory == NULL)
        return st;
    made.position = s->position;
    made.sampler = s->sampler;
    made.is_foreign = s->is_foreign;
    memcpy(made.memory, s->memory, stream_snapshot_bytes(s));
    *ret = made;
    return OK;
}

void stream_snapshot_clear(struct stream_snapshot *s)
{
    free(s->memory);
    *s = (struct stream_snapshot){.memory = NULL};
}

enum status stream_snapshot_check(const struct stream_snapshot *s, const struct engine *e, struct error *err)
{
    const bool ends = engine_info(e)->context != ENGINE_CONTEXT_UNLIMITED;
    const uint32_t fed = ends ? s->position : 0;
    if (s->fed_count != fed)
        return error_set_param(
            err, ERR_ARGUMENT, "state",
            "the state has %u bytes of text, expected %u: its position is %u and the model's context is %s",
            s->fed_count, fed, s->position, ends ? "limited" : "unlimited");
    const size_t most = ends ? (size_t)engine_info(e)->context + 1 : 1;
    if (s->fed_count + (size_t)s->pending_count > most)
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "the state has %u bytes of text and %u pending, expected at most %zu together",
                               s->fed_count, s->pending_count, most);
    if (s->position == 0)
        return OK;
    return engine_stream_check(e, s->position, stream_snapshot_state(s), s->state_bytes, err);
}
