/* session_record.c - see session_record.h. */
#include "server/session/session_record.h"

#include <nettle/base16.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "config/json.h"
#include "server/core/little_endian.h"

static const char magic[8] = {'a', 'f', 't', 'd', 's', 'e', 's', 's'};

_Static_assert(SESSION_RECORD_CHECKSUM_BYTES == SHA256_DIGEST_SIZE, "the checksum is SHA-256");
_Static_assert(SESSION_RECORD_HEADER_BYTES == 8 + 6 * 4 + 3 * 8 + 4 + CLIENT_ID_BYTES, "the header is its fields");

bool session_id_is_fine(const char *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    const size_t length = strlen(id);
    return length >= 1 && length <= SESSION_ID_MAX && strspn(id, allowed) == length;
}

void session_head_move(struct session_head *h, const struct stream_snapshot *s)
{
    h->turn++;
    h->sample = s->sampler.options.sample;
    h->is_foreign = s->is_foreign;
    h->blob_bytes = state_blob_bytes(s);
    h->state.position = s->position;
    h->state.pending_count = s->pending_count;
    h->state.seed = s->sampler.options.seed;
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

struct session_key session_key_of(const struct client_id *owner, const char *id)
{
    static const struct client_id without_key = {.kind = CLIENT_UNKNOWN};
    const struct client_id *space = owner->kind == CLIENT_KEY ? owner : &without_key;
    struct session_key key;
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, sizeof magic, (const uint8_t *)magic);
    sha256_update(&sha, 1, &space->kind);
    sha256_update(&sha, sizeof space->bytes, space->bytes);
    sha256_update(&sha, strlen(id), (const uint8_t *)id);
    sha256_digest(&sha, sizeof key.bytes, key.bytes);
    return key;
}

void session_key_print(const struct session_key *key, char out[SESSION_KEY_TEXT])
{
    base16_encode_update(out, sizeof key->bytes, key->bytes);
    out[SESSION_KEY_TEXT - 1] = '\0';
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

static void checksum_of(uint8_t out[SESSION_RECORD_CHECKSUM_BYTES], const uint8_t *bytes, size_t n)
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, n, bytes);
    sha256_digest(&sha, SESSION_RECORD_CHECKSUM_BYTES, out);
}

enum status session_record_make(struct session_bytes *ret, const struct session_head *h,
                                const struct stream_snapshot *s, struct error *err)
{
    const size_t id = strlen(h->id), model = strlen(h->model);
    const size_t head = SESSION_RECORD_HEADER_BYTES + id + model + SESSION_RECORD_CHECKSUM_BYTES;
    const size_t size = head + state_blob_bytes(s);
    uint8_t *bytes = malloc(size), *at = bytes;
    if (bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the record of a session; try again later");
    le_put_bytes(&at, magic, sizeof magic);
    le_put(&at, SESSION_RECORD_VERSION, 4);
    le_put(&at, id, 4);
    le_put(&at, model, 4);
    le_put(&at, h->sample, 4);
    le_put(&at, (uint64_t)h->sample + 1, 4);
    le_put(&at, h->is_foreign ? 1 : 0, 4);
    le_put(&at, h->turn, 8);
    le_put(&at, (uint64_t)h->created_s, 8);
    le_put(&at, h->memory_bytes, 8);
    le_put(&at, h->owner.kind, 4);
    le_put_bytes(&at, h->owner.bytes, sizeof h->owner.bytes);
    le_put_bytes(&at, h->id, id);
    le_put_bytes(&at, h->model, model);
    checksum_of(at, bytes, head - SESSION_RECORD_CHECKSUM_BYTES);
    state_blob_put(bytes + head, s, &h->state.identity);
    *ret = (struct session_bytes){bytes, size};
    return OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static enum status session_record_refuse(struct error *err, const char *what, uint64_t found, uint64_t min,
                                         uint64_t max)
{
    return error_set(err, ERR_FORMAT, "the record's %s is %llu, expected %llu to %llu", what, (unsigned long long)found,
                     (unsigned long long)min, (unsigned long long)max);
}

static enum status refuse_size(struct error *err, size_t found, size_t least)
{
    return error_set(err, ERR_FORMAT, "the record has %zu bytes, expected at least %zu", found, least);
}

static enum status take_text(char *to, const uint8_t **at, size_t size, const char *what, struct error *err)
{
    le_take_bytes(at, to, size);
    to[size] = '\0';
    return strlen(to) == size ? OK : error_set(err, ERR_FORMAT, "the record's %s has a NUL in it", what);
}

/* The numbers, which are part of what the checksum is of. */
static enum status take_numbers(struct session_head *h, const uint8_t *at, struct error *err)
{
    h->sample = (uint32_t)le_take(&at, 4);
    (void)le_take(&at, 4);
    const uint64_t foreign = le_take(&at, 4);
    h->turn = le_take(&at, 8);
    const uint64_t created_s = le_take(&at, 8);
    h->memory_bytes = le_take(&at, 8);
    const uint64_t kind = le_take(&at, 4);
    memcpy(h->owner.bytes, at, sizeof h->owner.bytes);
    h->is_foreign = foreign == 1;
    h->created_s = (int64_t)created_s;
    h->owner.kind = (uint8_t)kind;
    if (foreign > 1)
        return session_record_refuse(err, "origin", foreign, 0, 1);
    if (h->turn == 0 || h->turn > STATE_SEEN_MAX)
        return session_record_refuse(err, "turn", h->turn, 1, STATE_SEEN_MAX);
    if (created_s > INT64_MAX)
        return session_record_refuse(err, "time", created_s, 0, INT64_MAX);
    if (h->memory_bytes == 0 || h->memory_bytes > 2 * (uint64_t)STATE_BYTES_MAX)
        return session_record_refuse(err, "memory", h->memory_bytes, 1, 2 * (uint64_t)STATE_BYTES_MAX);
    return kind > CLIENT_KEY ? session_record_refuse(err, "kind of owner", kind, 0, CLIENT_KEY) : OK;
}

static enum status check_key(const struct session_head *h, const struct session_key *key, struct error *err)
{
    const struct session_key own = session_key_of(&h->owner, h->id);
    char text[SESSION_KEY_TEXT];
    session_key_print(&own, text);
    return memcmp(own.bytes, key->bytes, sizeof own.bytes) == 0
               ? OK
               : error_set(err, ERR_FORMAT, "the record is another session's, of key %s", text);
}

bool session_record_is_of_another_version(const uint8_t *bytes, size_t size)
{
    const uint8_t *at = bytes + sizeof magic;
    return size >= SESSION_RECORD_HEADER_BYTES && memcmp(bytes, magic, sizeof magic) == 0 &&
           le_take(&at, 4) != SESSION_RECORD_VERSION;
}

/* Sizes, the checksum and what it is of. *blob_at: where the state begins. */
static enum status take_head(struct session_head *h, size_t *blob_at, const uint8_t *bytes, size_t size,
                             struct error *err)
{
    const uint8_t *at = bytes + sizeof magic;
    uint8_t checksum[SESSION_RECORD_CHECKSUM_BYTES];
    if (size < SESSION_RECORD_HEADER_BYTES)
        return refuse_size(err, size, SESSION_RECORD_HEADER_BYTES);
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return error_set(err, ERR_FORMAT, "not an aftd session");
    const uint64_t version = le_take(&at, 4), id = le_take(&at, 4), model = le_take(&at, 4);
    if (session_record_is_of_another_version(bytes, size))
        return error_set(err, ERR_FORMAT, "the record's version is %llu, expected %d: another version of aftd made it",
                         (unsigned long long)version, SESSION_RECORD_VERSION);
    if (id < 1 || id > SESSION_ID_MAX)
        return session_record_refuse(err, "length of the id", id, 1, SESSION_ID_MAX);
    if (model < 1 || model > MODEL_NAME_MAX)
        return session_record_refuse(err, "length of the model's name", model, 1, MODEL_NAME_MAX);
    const size_t covered = SESSION_RECORD_HEADER_BYTES + (size_t)id + (size_t)model;
    if (size < covered + sizeof checksum)
        return refuse_size(err, size, covered + sizeof checksum);
    checksum_of(checksum, bytes, covered);
    if (memcmp(checksum, bytes + covered, sizeof checksum) != 0)
        return error_set(err, ERR_FORMAT, "the record's checksum is wrong: it was changed or truncated");
    enum status st = take_numbers(h, at, err);
    at = bytes + SESSION_RECORD_HEADER_BYTES;
    if (st == OK)
        st = take_text(h->id, &at, (size_t)id, "id", err);
    if (st == OK)
        st = take_text(h->model, &at, (size_t)model, "model", err);
    if (st == OK && !session_id_is_fine(h->id))
        st = error_set(err, ERR_FORMAT, "the record's id is \"%s\", expected letters, digits and any of -._~",
                       json_quote(h->id).text);
    *blob_at = covered + sizeof checksum;
    return st;
}

/* What is wrong with the state, as what is wrong with the record. */
static enum status as_format(enum status st, const struct error *why, struct error *err)
{
    return st == OK || st == ERR_NOMEM ? error_set(err, st, "%s", why->message)
                                       : error_set(err, ERR_FORMAT, "%s", why->message);
}

enum status session_record_head(struct session_head *ret, size_t *blob_at, const uint8_t *bytes, size_t size,
                                const struct session_key *key, struct error *err)
{
    struct session_head h = {.turn = 0};
    struct error why;
    size_t at = 0;
    enum status st = take_head(&h, &at, bytes, size, err);
    if (st == OK)
        st = check_key(&h, key, err);
    if (st != OK)
        return st;
    st = state_blob_peek(&h.state, bytes + at, size - at, &why);
    if (st != OK)
        return as_format(st, &why, err);
    *ret = h;
    *blob_at = at;
    return OK;
}

enum status session_record_read(struct session_head *ret, struct stream_snapshot *snapshot,
                                const struct session_bytes *record, const struct session_key *key, struct error *err)
{
    struct session_head h = {.turn = 0};
    struct error why;
    size_t at = 0;
    enum status st = session_record_head(&h, &at, record->bytes, record->size, key, err);
    if (st != OK)
        return st;
    st = state_blob_read(snapshot, record->bytes + at, record->size - at, &h.state.identity, &why);
    if (st != OK)
        return as_format(st, &why, err);
    snapshot->is_foreign = h.is_foreign;
    h.blob_bytes = record->size - at;
    *ret = h;
    return OK;
}
