/* state_blob.h - a stopped stream as bytes that can leave the daemon and come back, to this one or another:
 *
 *     offset  bytes
 *          0      8  "aftdstat"
 *          8      4  format's version, STATE_BLOB_VERSION: another whenever that or the engine's state is laid out anew
 *         12      4  P: pending bytes, given or drawn and not yet fed
 *         16      4  F: bytes fed since the last reset, of a model whose context has an end
 *         20      4  position: how many were fed; 0: none, the stream will begin with the pending ones
 *         24      8  S: bytes of the engine's state
 *         32     16  the model's digest (precision.h)
 *         48    160  arithmetic: what computed it, filled up with zeros (model_identity.h)
 *        208     32  sampler: seed (8), sample (4), top_k (4), temperature, top_p, min_p, repetition_penalty (4 each)
 *        240     16  its draws (8), bytes that it has seen (8)
 *        256     64  its history, a ring of the latest bytes
 *        320     12  more of the sampler: presence_penalty, frequency_penalty (4 each), whether text must be UTF-8 (4)
 *        332     32  the bytes that it may draw, a bit each, the lowest first
 *        364   1024  what is added to each byte's logit
 *       1388  F+P+S  the bytes fed, those pending, the engine's state
 *        end     16  XXH3 (128 bits, the higher ones first) of all before
 *
 * Numbers are little-endian, fractions float32. Other versions are not read: a text goes on with the version of aftd
 * alone that it began with (model_identity.h). The checksum finds accidents, in an eighth of the time of SHA-256, which
 * was most of what a stored session cost; whoever can make up a blob can make either match. So every field is checked
 * for its effect, and a state from outside can spoil only its own stream. Any thread; no state. */
#ifndef SERVER_SESSION_STATE_BLOB_H
#define SERVER_SESSION_STATE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/status.h"
#include "server/models/model_identity.h"
#include "server/operation/stream_snapshot.h"

enum {
    STATE_BLOB_VERSION = 5,
    STATE_BLOB_HEADER_BYTES = 1388,
    STATE_BLOB_HEAD_BYTES = 216, /* of these, up to the seed */
    STATE_BLOB_CHECKSUM_BYTES = 16
};

/* What a blob says of itself, unchecked but for its beginning and its version. */
struct state_blob_head {
    uint32_t position, pending_count, fed_count;
    uint64_t state_bytes, seed;
    struct model_identity identity; /* which ends with a NUL */
};
/* `blob` may be the beginning of one, STATE_BLOB_HEAD_BYTES at least. Errors: ERR_ARGUMENT (param "state"). */
enum status state_blob_peek(struct state_blob_head *ret, const uint8_t *blob, size_t size, struct error *err);

/* What it has in state_blob_put, which writes that many bytes. */
size_t state_blob_bytes(const struct stream_snapshot *s);
void state_blob_put(uint8_t *to, const struct stream_snapshot *s, const struct model_identity *id);

/* *ret is malloc'd, *size bytes. Set only on OK. Errors: ERR_NOMEM. */
enum status state_blob_make(uint8_t **ret, size_t *size, const struct stream_snapshot *s,
                            const struct model_identity *id, struct error *err);

/* *ret is set only on OK: stream_snapshot_clear. What only the engine can check is left to stream_snapshot_check.
 * Errors: ERR_ARGUMENT (param "state"): the field at fault, what it is and what was expected; ERR_NOMEM. */
enum status state_blob_read(struct stream_snapshot *ret, const uint8_t *blob, size_t size,
                            const struct model_identity *id, struct error *err);

#endif
