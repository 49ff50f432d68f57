/* session_record.h - a session as bytes, for a store (session_store.h), which the daemon that wrote them reads
 * again, or another of the same version:
 *
 *     offset  bytes
 *          0      8  "aftdsess"
 *          8      4  format's version, SESSION_RECORD_VERSION
 *         12      4  I: bytes of the id
 *         16      4  M: bytes of the model's name
 *         20      4  sample
 *         24      4  sample + 1: earlier versions number forks from there
 *         28      4  whether a state of the text ever came from outside
 *         32      8  turn
 *         40      8  when it was made, Unix time
 *         48      8  most memory that it can take
 *         56      4  owner: its kind (client_id.h)
 *         60     16  and its bytes
 *         76    I+M  id, model's name
 *     76+I+M     32  SHA-256 of all before
 *    108+I+M         where its text is (state_blob.h), which has a checksum of its own
 *
 * Numbers are little-endian. Nothing is encrypted: whoever may read a record may read the text's last part, and, as of
 * a state, checksums find accidents, not forgery; so what comes of a record is checked like what comes from a client.
 * Any thread; no state. */
#ifndef SERVER_SESSION_SESSION_RECORD_H
#define SERVER_SESSION_SESSION_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/core/client_id.h"
#include "server/models/model_identity.h"
#include "server/operation/stream_snapshot.h"
#include "server/session/session_store.h"
#include "server/session/state_blob.h"

enum {
    SESSION_RECORD_VERSION = 1,
    SESSION_RECORD_HEADER_BYTES = 76,
    SESSION_RECORD_CHECKSUM_BYTES = 32,
    /* Enough of a record to read its head. */
    SESSION_RECORD_HEAD_MAX = SESSION_RECORD_HEADER_BYTES + SESSION_ID_MAX + MODEL_NAME_MAX +
                              SESSION_RECORD_CHECKSUM_BYTES + STATE_BLOB_HEAD_BYTES
};

/* What a session is, in memory too. */
struct session_head {
    char id[SESSION_ID_MAX + 1];
    char model[MODEL_NAME_MAX + 1];
    struct client_id owner;
    uint32_t sample;
    bool is_foreign;
    uint64_t turn;                /* rises by one whenever the text goes on; the first is 1 */
    int64_t created_s;            /* Unix time */
    uint64_t memory_bytes;        /* most that it can take */
    uint64_t blob_bytes;          /* of its state; with the state, and not known of a record's beginning */
    struct state_blob_head state; /* its identity is the model's; not written by itself, but part of the state */
};

/* It has gone on to there. */
void session_head_move(struct session_head *h, const struct stream_snapshot *s);

/* Is it an id that a client may choose: 1 to SESSION_ID_MAX letters, digits, and any of "-._~"? */
bool session_id_is_fine(const char *id);

/* Where a session of that id is kept: each key has ids of its own, and those without keys share theirs. */
struct session_key session_key_of(const struct client_id *owner, const char *id);

/* Errors: ERR_NOMEM. */
enum status session_record_make(struct session_bytes *ret, const struct session_head *h,
                                const struct stream_snapshot *s, struct error *err);
/* Of the first `size` bytes of a record, SESSION_RECORD_HEAD_MAX of them unless it has fewer; which is that of `key`.
 * *blob_at: where its state begins. Errors: ERR_FORMAT. */
enum status session_record_head(struct session_head *ret, size_t *blob_at, const uint8_t *bytes, size_t size,
                                const struct session_key *key, struct error *err);
/* Does it begin as a record does that another version of aftd made? */
bool session_record_is_of_another_version(const uint8_t *bytes, size_t size);
/* All of it; the snapshot, which is set only on OK, is the caller's. Errors: ERR_FORMAT, ERR_NOMEM. */
enum status session_record_read(struct session_head *ret, struct stream_snapshot *snapshot,
                                const struct session_bytes *record, const struct session_key *key, struct error *err);

#endif
