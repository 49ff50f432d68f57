/* fuzz_session_record.c - the record of a session, of any bytes, is refused with a reason, or is of the key that it is
 * read for, with every number in its bounds. The first byte chooses whether the header's checksum is made to fit. */
#include "tests/fuzz/fuzz.h"

#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "server/session/session_record.h"

/* What is found by chance alone: magic, version, short names, the checksum; the key is then that of what it says. */
static void make_fit(uint8_t *record, size_t size, struct session_key *key)
{
    static const uint8_t beginning[] = {'a', 'f', 't', 'd', 's', 'e', 's', 's', SESSION_RECORD_VERSION,
                                        0,   0,   0,   1,   0,   0,   0,   1};
    const size_t covered = SESSION_RECORD_HEADER_BYTES + 2;
    struct client_id owner = {.kind = CLIENT_KEY};
    char id[2] = "a";
    struct sha256_ctx sha;
    if (size < covered + SESSION_RECORD_CHECKSUM_BYTES)
        return;
    memcpy(record, beginning, sizeof beginning);
    memset(record + sizeof beginning, 0, 3);
    sha256_init(&sha);
    sha256_update(&sha, covered, record);
    sha256_digest(&sha, SESSION_RECORD_CHECKSUM_BYTES, record + covered);
    owner.kind = record[56];
    memcpy(owner.bytes, record + 60, sizeof owner.bytes);
    id[0] = (char)record[SESSION_RECORD_HEADER_BYTES];
    *key = session_key_of(&owner, id);
}

static void check_head(const struct session_head *h, const struct session_key *key)
{
    const struct session_key own = session_key_of(&h->owner, h->id);
    fuzz_check(memcmp(own.bytes, key->bytes, sizeof own.bytes) == 0, "it is of the key that it was read for");
    fuzz_check(session_id_is_fine(h->id), "its id is one");
    fuzz_check(h->turn >= 1 && h->created_s >= 0 && h->memory_bytes > 0, "its numbers are in their bounds");
    fuzz_check(h->owner.kind <= CLIENT_KEY && h->model[0] != '\0', "it has an owner and a model");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_FORMAT};
    struct session_key key = {{0}};
    struct stream_snapshot snapshot;
    struct session_head head;
    struct error err = {.message = ""};
    if (size == 0)
        return 0;
    uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        return 0;
    memcpy(bytes, data + 1, size - 1);
    if (data[0] % 2 == 1)
        make_fit(bytes, size - 1, &key);
    const struct session_bytes record = {bytes, size - 1};
    const enum status st = session_record_read(&head, &snapshot, &record, &key, &err);
    if (st == OK) {
        check_head(&head, &key);
        stream_snapshot_clear(&snapshot);
    } else {
        fuzz_check_error(st, &err, allowed, 1);
    }
    free(bytes);
    return 0;
}
