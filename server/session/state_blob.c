/* state_blob.c - see state_blob.h. */
#include "server/session/state_blob.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "server/core/little_endian.h"

static const char magic[8] = {'a', 'f', 't', 'd', 's', 't', 'a', 't'};

_Static_assert(STATE_BLOB_CHECKSUM_BYTES == sizeof(XXH128_canonical_t), "the checksum is XXH3 of 128 bits");
_Static_assert(STATE_BLOB_HEAD_BYTES == 32 + MODEL_DIGEST_BYTES + MODEL_ARITHMETIC_BYTES + 8, "up to the seed");
_Static_assert(STATE_BLOB_HEADER_BYTES ==
                   STATE_BLOB_HEAD_BYTES + 24 + 16 + SAMPLER_HISTORY + 12 + BYTE_VALUES / 8 + 4 * BYTE_VALUES,
               "the header is its fields");

/* In that order of bytes which is the same on all machines. */
static XXH128_canonical_t checksum_of(const uint8_t *bytes, size_t n)
{
    XXH128_canonical_t ret;
    XXH128_canonicalFromHash(&ret, XXH3_128bits(bytes, n));
    return ret;
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

static void put_sampler(uint8_t **at, const struct sampler *s)
{
    const struct sampler_options *o = &s->options;
    le_put(at, o->seed, 8);
    le_put(at, o->sample, 4);
    le_put(at, o->top_k, 4);
    le_put_float(at, o->temperature);
    le_put_float(at, o->top_p);
    le_put_float(at, o->min_p);
    le_put_float(at, o->repetition_penalty);
    le_put(at, s->draws, 8);
    le_put(at, s->seen, 8);
    le_put_bytes(at, s->history, sizeof s->history);
    le_put_float(at, o->presence_penalty);
    le_put_float(at, o->frequency_penalty);
    le_put(at, o->utf8 ? 1 : 0, 4);
    le_put_bytes(at, o->allowed, sizeof o->allowed);
    for (size_t b = 0; b < BYTE_VALUES; b++)
        le_put_float(at, o->bias[b]);
}

size_t state_blob_bytes(const struct stream_snapshot *s)
{
    return STATE_BLOB_HEADER_BYTES + stream_snapshot_bytes(s) + STATE_BLOB_CHECKSUM_BYTES;
}

void state_blob_put(uint8_t *to, const struct stream_snapshot *s, const struct model_identity *id)
{
    uint8_t *at = to;
    le_put_bytes(&at, magic, sizeof magic);
    le_put(&at, STATE_BLOB_VERSION, 4);
    le_put(&at, s->pending_count, 4);
    le_put(&at, s->fed_count, 4);
    le_put(&at, s->position, 4);
    le_put(&at, s->state_bytes, 8);
    le_put_bytes(&at, id->digest, sizeof id->digest);
    le_put_bytes(&at, id->arithmetic, sizeof id->arithmetic);
    put_sampler(&at, &s->sampler);
    le_put_bytes(&at, s->memory, stream_snapshot_bytes(s));
    const XXH128_canonical_t sum = checksum_of(to, (size_t)(at - to));
    le_put_bytes(&at, sum.digest, sizeof sum.digest);
}

enum status state_blob_make(uint8_t **ret, size_t *size, const struct stream_snapshot *s,
                            const struct model_identity *id, struct error *err)
{
    uint8_t *blob = malloc(state_blob_bytes(s));
    if (blob == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the state of a stream; try again later");
    state_blob_put(blob, s, id);
    *ret = blob;
    *size = state_blob_bytes(s);
    return OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static enum status state_blob_refuse(struct error *err, const char *what, uint64_t found, uint64_t min, uint64_t max)
{
    return error_set_param(err, ERR_ARGUMENT, "state", "the state's %s is %llu, expected %llu to %llu", what,
                           (unsigned long long)found, (unsigned long long)min, (unsigned long long)max);
}

static enum status refuse_fraction(struct error *err, const char *what, float found, const char *expected)
{
    return error_set_param(err, ERR_ARGUMENT, "state", "the state's %s is %g, expected %s", what, (double)found,
                           expected);
}

/* The ranges of a request (fields.h). */
static enum status check_sampler(const struct sampler *s, struct error *err)
{
    const struct sampler_options *o = &s->options;
    if (o->seed > SEED_MAX)
        return state_blob_refuse(err, "seed", o->seed, 0, SEED_MAX);
    if (o->top_k > BYTE_VALUES)
        return state_blob_refuse(err, "top_k", o->top_k, 0, BYTE_VALUES);
    if (!(o->temperature >= 0.0f && o->temperature <= (float)SAMPLER_TEMPERATURE_MAX))
        return refuse_fraction(err, "temperature", o->temperature, "0 to 100");
    if (!(o->top_p > 0.0f && o->top_p <= 1.0f))
        return refuse_fraction(err, "top_p", o->top_p, "above 0 to 1");
    if (!(o->min_p >= 0.0f && o->min_p <= 1.0f))
        return refuse_fraction(err, "min_p", o->min_p, "0 to 1");
    if (!(o->repetition_penalty > 0.0f && o->repetition_penalty <= (float)SAMPLER_PENALTY_MAX))
        return refuse_fraction(err, "repetition_penalty", o->repetition_penalty, "above 0 to 100");
    if (!(fabsf(o->presence_penalty) <= SAMPLER_OFFSET_MAX))
        return refuse_fraction(err, "presence_penalty", o->presence_penalty, "-2 to 2");
    if (!(fabsf(o->frequency_penalty) <= SAMPLER_OFFSET_MAX))
        return refuse_fraction(err, "frequency_penalty", o->frequency_penalty, "-2 to 2");
    for (size_t b = 0; b < BYTE_VALUES; b++)
        if (!(fabsf(o->bias[b]) <= SAMPLER_BIAS_MAX))
            return refuse_fraction(err, "logit_bias", o->bias[b], "-100 to 100");
    if (!sampler_can_draw(o))
        return error_set_param(err, ERR_ARGUMENT, "state", "the state's allowed_bytes let no byte be drawn");
    if (s->draws > STATE_SEEN_MAX)
        return state_blob_refuse(err, "number of draws", s->draws, 0, STATE_SEEN_MAX);
    if (s->seen > STATE_SEEN_MAX)
        return state_blob_refuse(err, "number of bytes", s->seen, 0, STATE_SEEN_MAX);
    return OK;
}

/* Errors: ERR_ARGUMENT. */
static enum status take_sampler(const uint8_t **at, struct sampler *s, struct error *err)
{
    struct sampler_options *o = &s->options;
    sampler_options_default(o);
    o->seed = le_take(at, 8);
    o->sample = (uint32_t)le_take(at, 4);
    o->top_k = (uint32_t)le_take(at, 4);
    o->temperature = le_take_float(at);
    o->top_p = le_take_float(at);
    o->min_p = le_take_float(at);
    o->repetition_penalty = le_take_float(at);
    s->draws = le_take(at, 8);
    s->seen = le_take(at, 8);
    le_take_bytes(at, s->history, sizeof s->history);
    o->presence_penalty = le_take_float(at);
    o->frequency_penalty = le_take_float(at);
    const uint64_t utf8 = le_take(at, 4);
    if (utf8 > 1)
        return state_blob_refuse(err, "utf8", utf8, 0, 1);
    o->utf8 = utf8 == 1;
    le_take_bytes(at, o->allowed, sizeof o->allowed);
    for (size_t b = 0; b < BYTE_VALUES; b++) {
        o->bias[b] = le_take_float(at);
        o->is_biased |= o->bias[b] != 0.0f;
    }
    return OK;
}

static enum status check_size(size_t size, size_t least, struct error *err)
{
    return size >= least ? OK
                         : error_set_param(err, ERR_ARGUMENT, "state", "the state has %zu bytes, expected at least %zu",
                                           size, least);
}

static enum status check_version(const uint8_t *blob, struct error *err)
{
    const uint8_t *at = blob + sizeof magic;
    if (memcmp(blob, magic, sizeof magic) != 0)
        return error_set_param(err, ERR_ARGUMENT, "state", "not an aftd state");
    const uint64_t version = le_take(&at, 4);
    if (version != STATE_BLOB_VERSION)
        return error_set_param(
            err, ERR_ARGUMENT, "state",
            "the state's version is %llu, expected %d: another version of aftd made it, whose states "
            "this one cannot read",
            (unsigned long long)version, STATE_BLOB_VERSION);
    return OK;
}

static enum status take_identity(const uint8_t **at, struct model_identity *id, struct error *err)
{
    le_take_bytes(at, id->digest, sizeof id->digest);
    le_take_bytes(at, id->arithmetic, sizeof id->arithmetic);
    if (memchr(id->arithmetic, '\0', sizeof id->arithmetic) == NULL)
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "the state's name of its arithmetic does not end: expected a NUL after it");
    return OK;
}

enum status state_blob_peek(struct state_blob_head *ret, const uint8_t *blob, size_t size, struct error *err)
{
    struct state_blob_head head = {0};
    const uint8_t *at = blob + sizeof magic + 4;
    enum status st = check_size(size, STATE_BLOB_HEAD_BYTES, err);
    if (st == OK)
        st = check_version(blob, err);
    if (st != OK)
        return st;
    head.pending_count = (uint32_t)le_take(&at, 4);
    head.fed_count = (uint32_t)le_take(&at, 4);
    head.position = (uint32_t)le_take(&at, 4);
    head.state_bytes = le_take(&at, 8);
    st = take_identity(&at, &head.identity, err);
    head.seed = le_take(&at, 8);
    if (st == OK)
        *ret = head;
    return st;
}

/* Check the lengths, on which all other offsets depend, and the checksum. */
static enum status check_frame(const struct state_blob_head *h, const uint8_t *blob, size_t size, struct error *err)
{
    const uint32_t least_pending = h->position > 0 ? 1 : 0;
    const uint64_t most_state = h->position > 0 ? STATE_BYTES_MAX : 0;
    if (h->pending_count < least_pending || h->pending_count > STATE_PENDING_MAX)
        return state_blob_refuse(err, "number of pending bytes", h->pending_count, least_pending, STATE_PENDING_MAX);
    if (h->fed_count > MODEL_CONTEXT_MAX)
        return state_blob_refuse(err, "number of bytes of text", h->fed_count, 0, MODEL_CONTEXT_MAX);
    if (h->position > ENGINE_POSITION_MAX)
        return state_blob_refuse(err, "position", h->position, 0, ENGINE_POSITION_MAX);
    if (h->state_bytes > most_state)
        return state_blob_refuse(err, "number of bytes of the engine", h->state_bytes, 0, most_state);
    const size_t expected = STATE_BLOB_HEADER_BYTES + STATE_BLOB_CHECKSUM_BYTES + (size_t)h->fed_count +
                            h->pending_count + (size_t)h->state_bytes;
    if (size != expected)
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "the state has %zu bytes, expected %zu according to its header", size, expected);
    const XXH128_canonical_t sum = checksum_of(blob, size - STATE_BLOB_CHECKSUM_BYTES);
    if (memcmp(sum.digest, blob + size - sizeof sum.digest, sizeof sum.digest) != 0)
        return error_set_param(err, ERR_ARGUMENT, "state",
                               "the state's checksum is wrong: it was changed or truncated");
    return OK;
}

enum status state_blob_read(struct stream_snapshot *ret, const uint8_t *blob, size_t size,
                            const struct model_identity *id, struct error *err)
{
    struct stream_snapshot made = {.memory = NULL};
    struct state_blob_head head;
    struct sampler sampler;
    const uint8_t *at = blob + STATE_BLOB_HEAD_BYTES - 8; /* from the seed */
    enum status st = check_size(size, STATE_BLOB_HEADER_BYTES + STATE_BLOB_CHECKSUM_BYTES, err);
    if (st == OK)
        st = state_blob_peek(&head, blob, size, err);
    if (st == OK)
        st = check_frame(&head, blob, size, err);
    if (st == OK)
        st = take_sampler(&at, &sampler, err);
    if (st == OK)
        st = model_identity_check(id, &head.identity, "the state", "state", err);
    if (st == OK)
        st = check_sampler(&sampler, err);
    if (st == OK)
        st = stream_snapshot_create(&made, head.fed_count, head.pending_count, (size_t)head.state_bytes, err);
    if (st != OK)
        return st;
    made.position = head.position;
    made.sampler = sampler;
    memcpy(made.memory, at, stream_snapshot_bytes(&made));
    *ret = made;
    return OK;
}
