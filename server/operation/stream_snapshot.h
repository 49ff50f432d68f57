/* stream_snapshot.h - a stream that was stopped, with everything that it needs to go on as if it had not been: the
 * engine's state, how its bytes are drawn, and the bytes that were given or drawn and are not fed yet.
 * One thread at a time; whoever has it owns its memory. */
#ifndef SERVER_OPERATION_STREAM_SNAPSHOT_H
#define SERVER_OPERATION_STREAM_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/sampler.h"

struct engine;

struct stream_snapshot {
    uint32_t position; /* elements fed since the last reset, as the engine counts them; 0: it has no state */
    struct sampler sampler;
    uint32_t fed_count; /* `position` if the model's context is limited; else 0: the text is not needed again */
    uint32_t pending_count;
    size_t state_bytes;
    bool is_foreign; /* it came from outside, or goes on from one that did: the model need not have computed it */
    /* Bytes fed since the last reset, including what stands for the start; pending bytes; the engine's state. NULL:
     * there is no snapshot. */
    uint8_t *memory;
};

/* Memory for a snapshot of these sizes; the rest is the caller's to fill. *ret is set only on OK. Errors: ERR_NOMEM. */
enum status stream_snapshot_create(struct stream_snapshot *ret, uint32_t fed_count, uint32_t pending_count,
                                   size_t state_bytes, struct error *err);
enum status stream_snapshot_copy(struct stream_snapshot *ret, const struct stream_snapshot *s, struct error *err);
void stream_snapshot_clear(struct stream_snapshot *s); /* no-op on a zeroed one; zeroes it */

/* Can a stream of this engine go on from a snapshot that came from outside? Errors: ERR_ARGUMENT (param "state"). */
enum status stream_snapshot_check(const struct stream_snapshot *s, const struct engine *e, struct error *err);

static inline size_t stream_snapshot_bytes(const struct stream_snapshot *s)
{
    return (size_t)s->fed_count + s->pending_count + s->state_bytes;
}

static inline uint8_t *stream_snapshot_pending(const struct stream_snapshot *s)
{
    return s->memory + s->fed_count;
}

static inline uint8_t *stream_snapshot_state(const struct stream_snapshot *s)
{
    return s->memory + s->fed_count + s->pending_count;
}

#endif
