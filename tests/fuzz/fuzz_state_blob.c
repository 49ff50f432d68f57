/* fuzz_state_blob.c - the state of a stream, of any bytes, is refused with a reason, or every number of it is in its
 * bounds and all that it says is there. The first byte chooses whether the checksum is made to fit. */
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/session/state_blob.h"
#include "tests/support/state_seal.h"

static void check_snapshot(const struct stream_snapshot *s)
{
    const struct sampler_options *o = &s->sampler.options;
    fuzz_check(s->pending_count > 0 || s->position == 0, "something is pending where something was fed");
    fuzz_check(s->pending_count <= STATE_PENDING_MAX, "what is pending is in its bounds");
    fuzz_check(s->fed_count <= MODEL_CONTEXT_MAX && s->position <= ENGINE_POSITION_MAX, "its length is in its bounds");
    fuzz_check(o->seed <= SEED_MAX && o->top_k <= BYTE_VALUES, "seed and top_k are in their bounds");
    fuzz_check(o->temperature >= 0.0f && o->temperature <= 100.0f, "the temperature is in its bounds");
    fuzz_check(o->top_p > 0.0f && o->top_p <= 1.0f && o->min_p >= 0.0f && o->min_p <= 1.0f,
               "top_p and min_p are in their bounds");
    fuzz_check(o->repetition_penalty > 0.0f && o->repetition_penalty <= 100.0f,
               "the repetition penalty is in its bounds");
    fuzz_check(fabsf(o->presence_penalty) <= 2.0f && fabsf(o->frequency_penalty) <= 2.0f,
               "the other penalties are in their bounds");
    for (size_t b = 0; b < BYTE_VALUES; b++)
        fuzz_check(fabsf(o->bias[b]) <= 100.0f && (o->is_biased || o->bias[b] == 0.0f), "biases are in their bounds");
    fuzz_check(sampler_can_draw(o), "a byte can be drawn");
    for (size_t i = 0; i < stream_snapshot_bytes(s); i++) { /* all of it is there to be read */
        const volatile uint8_t byte = s->memory[i];
        (void)byte;
    }
}

/* What is found by chance alone: magic, version, digest and arithmetic of zeros, lengths, a position, the
 * checksum. */
static void make_fit(uint8_t *blob, size_t size)
{
    static const uint8_t beginning[] = {'a', 'f', 't', 'd', 's', 't', 'a', 't', STATE_BLOB_VERSION, 0, 0, 0, 1};
    const size_t frame = STATE_BLOB_HEADER_BYTES + STATE_BLOB_CHECKSUM_BYTES;
    if (size < frame + 1)
        return;
    memset(blob, 0, STATE_BLOB_HEAD_BYTES - 8);
    memcpy(blob, beginning, sizeof beginning);
    blob[20] = 1; /* the position */
    for (unsigned i = 0; i < 4; i++)
        blob[24 + i] = (uint8_t)((size - frame - 1) >> 8 * i);
    state_seal(blob, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    const struct model_identity id = {{0}, ""};
    struct stream_snapshot s;
    struct error err = {.message = ""};
    if (size == 0)
        return 0;
    uint8_t *blob = malloc(size);
    if (blob == NULL)
        return 0;
    memcpy(blob, data + 1, size - 1);
    if (data[0] % 2 == 1)
        make_fit(blob, size - 1);
    const enum status st = state_blob_read(&s, blob, size - 1, &id, &err);
    if (st == OK) {
        check_snapshot(&s);
        stream_snapshot_clear(&s);
    } else {
        fuzz_check_error(st, &err, allowed, 1);
    }
    free(blob);
    return 0;
}
