/* stream_snapshot.c - see stream_snapshot.h. */
#include "server/job/stream_snapshot.h"

#include <stdlib.h>
#include <string.h>

enum status stream_snapshot_create(struct stream_snapshot *ret, uint32_t fed_count, uint32_t pending_count,
                                   size_t state_bytes, struct error *err)
{
    struct stream_snapshot made = {.fed_count = fed_count, .pending_count = pending_count, .state_bytes = state_bytes};
    made.memory = malloc(stream_snapshot_bytes(&made) + 1);
    if (made.memory == NULL)
        return error_set(err, ERR_NOMEM, "there is no memory for the state of a stream at the moment");
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
    memcpy(made.memory, s->memory, stream_snapshot_bytes(s));
    *ret = made;
    return OK;
}

void stream_snapshot_clear(struct stream_snapshot *s)
{
    free(s->memory);
    *s = (struct stream_snapshot){.memory = NULL};
}
