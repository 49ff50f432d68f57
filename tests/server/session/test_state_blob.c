/* test_state_blob.c - a stopped stream as a blob: it comes back as it was, and goes on as if it had never been stopped;
 * whatever else is sent is refused, naming what is wrong, and what is made to fit does no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/logits.h"
#include "server/session/state_blob.h"
#include "tests/support/random.h"
#include "tests/support/state_seal.h"

#define LM "tests/data/golden/lm-local-8"

enum { TEXT = 12, GONE_ON = 20, MUTATED = 1000 };

/* A model, one stream of it, and that as a blob. */
struct part {
    struct model *model;
    struct engine *engine;
    struct model_identity id;
    struct sampler sampler;
    uint8_t pending, *blob;
    size_t size;
};

/* Draw n bytes behind `next`, which is not fed yet; returns the last of them. */
static uint8_t draw(struct engine *e, struct sampler *s, uint8_t next, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float logits[BYTE_VALUES];
        const struct engine_part part = {.count = 1, .bytes = &next, .logits = logits};
        engine_feed(e, &part, 1);
        if (!logits_are_finite(logits, BYTE_VALUES))
            return next;
        next = sampler_draw(s, logits);
        out[i] = next;
    }
    return next;
}

static int set_up(void **state)
{
    static const uint8_t prompt[] = "The history of ";
    struct part *p = calloc(1, sizeof *p);
    struct stream_snapshot snapshot;
    struct sampler_options o;
    struct error err;
    uint8_t text[TEXT];
    uint8_t digest[PRECISION_DIGEST_BYTES];
    const struct engine_options options = {.threads = 1, .streams_max = 1, .rows_max = 32};
    assert_non_null(p);
    if (model_load(&p->model, LM, NULL, NULL, &err) != OK || engine_open(&p->engine, p->model, &options, &err) != OK ||
        precision_digest(digest, LM, &err) != OK)
        fail_msg("%s", err.message);
    model_identity_init(&p->id, digest, engine_info(p->engine));
    sampler_options_default(&o);
    o.seed = 7;
    o.top_p = 0.9f;
    o.repetition_penalty = 1.1f;
    sampler_init(&p->sampler, &o);
    const struct engine_part fed = {.count = sizeof prompt - 2, .bytes = prompt};
    engine_feed(p->engine, &fed, 1);
    p->pending = draw(p->engine, &p->sampler, ' ', text, TEXT);
    const uint32_t position = engine_stream_position(p->engine, 0);
    assert_int_equal(
        stream_snapshot_create(&snapshot, position, 1, engine_stream_saved_bytes(p->engine, position), &err), OK);
    snapshot.position = position;
    snapshot.sampler = p->sampler;
    memcpy(snapshot.memory, prompt, sizeof prompt - 1);
    memcpy(snapshot.memory + sizeof prompt - 1, text, TEXT); /* the last of them is pending */
    engine_stream_save(p->engine, 0, stream_snapshot_state(&snapshot));
    assert_int_equal(state_blob_make(&p->blob, &p->size, &snapshot, &p->id, &err), OK);
    stream_snapshot_clear(&snapshot);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct part *p = *state;
    engine_close(p->engine);
    model_free(p->model);
    free(p->blob);
    free(p);
    return 0;
}

static enum status read_checked(struct stream_snapshot *ret, const struct part *p, const uint8_t *blob, size_t size,
                                struct error *err)
{
    struct stream_snapshot s;
    enum status st = state_blob_read(&s, blob, size, &p->id, err);
    if (st != OK)
        return st;
    st = stream_snapshot_check(&s, p->engine, err);
    if (st == OK)
        *ret = s;
    else
        stream_snapshot_clear(&s);
    return st;
}

static uint8_t go_on(struct part *p, const struct stream_snapshot *s, uint8_t *out, size_t n)
{
    struct sampler sampler = s->sampler;
    engine_stream_restore(p->engine, 0, s->position, stream_snapshot_state(s));
    return draw(p->engine, &sampler, *stream_snapshot_pending(s), out, n);
}

static void a_blob_goes_on_as_if_it_had_never_been_one(void **state)
{
    struct part *p = *state;
    struct sampler sampler = p->sampler;
    struct stream_snapshot s, copy;
    struct error err;
    uint8_t want[GONE_ON], got[GONE_ON], *again;
    size_t size;
    (void)draw(p->engine, &sampler, p->pending, want, GONE_ON);
    if (read_checked(&s, p, p->blob, p->size, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(stream_snapshot_copy(&copy, &s, &err), OK);
    assert_int_equal(state_blob_make(&again, &size, &copy, &p->id, &err), OK);
    assert_int_equal(size, p->size);
    assert_memory_equal(again, p->blob, size);
    (void)go_on(p, &copy, got, GONE_ON);
    assert_memory_equal(got, want, GONE_ON);
    stream_snapshot_clear(&copy);
    stream_snapshot_clear(&s);
    free(again);
}

static void the_sampler_comes_back_whole(void **state)
{
    struct part *p = *state;
    struct stream_snapshot s, again;
    struct error err;
    uint8_t *blob;
    size_t size;
    if (read_checked(&s, p, p->blob, p->size, &err) != OK)
        fail_msg("%s", err.message);
    struct sampler_options *o = &s.sampler.options;
    const struct sampler_options *got = &again.sampler.options;
    o->presence_penalty = -1.5f;
    o->frequency_penalty = 0.25f;
    o->utf8 = true;
    o->allowed[3] = 0x5a;
    o->is_biased = true;
    o->bias[0] = 100.0f;
    o->bias[255] = -0.5f;
    assert_int_equal(state_blob_make(&blob, &size, &s, &p->id, &err), OK);
    assert_int_equal(read_checked(&again, p, blob, size, &err), OK);
    assert_true(got->presence_penalty == -1.5f && got->frequency_penalty == 0.25f);
    assert_true(got->utf8 && got->is_biased && got->top_p == 0.9f && got->seed == 7);
    assert_memory_equal(got->allowed, o->allowed, sizeof o->allowed);
    assert_memory_equal(got->bias, o->bias, sizeof o->bias);
    stream_snapshot_clear(&again);
    stream_snapshot_clear(&s);
    free(blob);
}

static void every_mutated_blob_is_refused(void **state)
{
    struct part *p = *state;
    struct random rng = {21};
    uint8_t *blob = malloc(p->size + 64);
    assert_non_null(blob);
    for (int i = 0; i < MUTATED; i++) {
        struct stream_snapshot s;
        struct error err = {.message = ""};
        size_t size = p->size;
        memcpy(blob, p->blob, p->size);
        memset(blob + p->size, 0, 64);
        switch (i % 5) {
        case 0: /* a bit anywhere */
            blob[random_below(&rng, (uint32_t)size)] ^= (uint8_t)(1u << random_below(&rng, 8));
            break;
        case 1: /* a byte of the header */
            blob[random_below(&rng, STATE_BLOB_HEADER_BYTES)] += (uint8_t)(1 + random_below(&rng, 255));
            break;
        case 2:
            size = random_below(&rng, (uint32_t)size);
            break;
        case 3:
            size += 1 + random_below(&rng, 64);
            break;
        default: { /* a part is another's */
            const uint32_t n = 1 + random_below(&rng, 64), at = random_below(&rng, (uint32_t)(size - n));
            for (uint32_t b = 0; b < n; b++)
                blob[at + b] ^= (uint8_t)(1 + random_below(&rng, 255));
        }
        }
        uint8_t *exact = malloc(size + (size == 0)); /* so that reading beyond it is found */
        assert_non_null(exact);
        memcpy(exact, blob, size);
        assert_int_equal(read_checked(&s, p, exact, size, &err), ERR_ARGUMENT);
        assert_string_equal(err.param, "state");
        assert_true(strlen(err.message) > 10);
        free(exact);
    }
    free(blob);
}

/* Whoever signs what he changed gets a stream of his own making: never a crash, never what would reach others. */
static void what_is_made_to_fit_does_no_harm(void **state)
{
    struct part *p = *state;
    struct random rng = {22};
    uint8_t *blob = malloc(p->size), out[4];
    int taken = 0;
    assert_non_null(blob);
    for (int i = 0; i < MUTATED; i++) {
        struct stream_snapshot s;
        struct error err = {.message = ""};
        memcpy(blob, p->blob, p->size);
        for (uint32_t n = 1 + random_below(&rng, 3); n > 0; n--) {
            const bool header = random_below(&rng, 4) == 0;
            blob[random_below(&rng, header ? STATE_BLOB_HEADER_BYTES : (uint32_t)p->size)] =
                (uint8_t)random_below(&rng, 256);
        }
        state_seal(blob, p->size);
        if (read_checked(&s, p, blob, p->size, &err) != OK) {
            assert_string_equal(err.param, "state");
            continue;
        }
        taken++;
        (void)go_on(p, &s, out, sizeof out);
        stream_snapshot_clear(&s);
    }
    assert_in_range(taken, MUTATED / 4, MUTATED - 1);
    free(blob);
}

/* A field, changed and signed, and what the answer must name. */
static const struct {
    const char *name;
    size_t at;
    uint8_t bytes[8];
    size_t count;
    const char *word;
} fields[] = {
    {"magic", 0, "A", 1, "not an aftd state"},
    {"an older version", 8, {4}, 1, "version is 4, expected 5: another version of aftd made it"},
    {"a later version", 8, {6}, 1, "version is 6, expected 5: another version of aftd made it"},
    {"no pending byte", 12, {0}, 1, "pending bytes is 0"},
    {"many pending bytes", 12, {0xFF, 0xFF, 0xFF, 0xFF}, 4, "pending bytes is 4294967295"},
    {"much text", 16, {0xFF, 0xFF, 0xFF, 0xFF}, 4, "bytes of text is 4294967295"},
    {"position", 20, {0xFF, 0xFF, 0xFF, 0xFF}, 4, "position is 4294967295, expected 0 to"},
    {"position and text", 20, {1}, 1, "expected 1: its position is 1"},
    {"a state of no position", 20, {0}, 1, "bytes of the engine is"},
    {"size of the state", 24, {0, 0, 0, 0, 0, 0, 0, 0xFF}, 8, "bytes of the engine is"},
    {"size by the header", 24, {1, 0, 0, 0, 0, 0, 0, 0}, 8, "according to its header"},
    {"another model", 32, {1, 2, 3, 4}, 4, "of another model: its digest begins with 01020304"},
    {"another arithmetic", 48, "xyz", 3, "\"xyz"},
    {"seed", 208, {0, 0, 0, 0, 0, 0, 0, 1}, 8, "seed is"},
    {"top_k", 220, {1, 1}, 2, "top_k is 257"},
    {"temperature is negative", 224, {0, 0, 0x80, 0xBF}, 4, "temperature is -1"},
    {"temperature is no number", 224, {0, 0, 0xC0, 0x7F}, 4, "temperature is nan"},
    {"top_p", 228, {0, 0, 0, 0}, 4, "top_p is 0"},
    {"min_p", 232, {0, 0, 0, 0x40}, 4, "min_p is 2"},
    {"repetition_penalty", 236, {0, 0, 0, 0}, 4, "repetition_penalty is 0"},
    {"draws", 240, {0, 0, 0, 0, 0, 0, 0, 0x80}, 8, "number of draws is"},
    {"bytes seen", 248, {0, 0, 0, 0, 0, 0, 0, 0x80}, 8, "number of bytes is"},
    {"presence_penalty", 320, {0, 0, 0x40, 0x40}, 4, "presence_penalty is 3"},
    {"frequency_penalty", 324, {0, 0, 0xC0, 0x7F}, 4, "frequency_penalty is nan"},
    {"utf8", 328, {2}, 1, "utf8 is 2, expected 0 to 1"},
    {"logit_bias", 364 + 4 * 65, {0, 0, 0xCA, 0xC2}, 4, "logit_bias is -101"},
};

static void each_field_has_its_own_error(void **state)
{
    struct part *p = *state;
    uint8_t *blob = malloc(p->size);
    struct stream_snapshot s;
    struct error err;
    assert_non_null(blob);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        memcpy(blob, p->blob, p->size);
        memcpy(blob + fields[i].at, fields[i].bytes, fields[i].count);
        state_seal(blob, p->size);
        err.message[0] = '\0';
        const enum status st = read_checked(&s, p, blob, p->size, &err);
        if (st != ERR_ARGUMENT || strcmp(err.param, "state") != 0 || strstr(err.message, fields[i].word) == NULL)
            fail_msg("%s: \"%s\", expected \"%s\"", fields[i].name, err.message, fields[i].word);
    }
    memcpy(blob, p->blob, p->size);
    memset(blob + 332, 0, BYTE_VALUES / 8);
    state_seal(blob, p->size);
    assert_int_equal(read_checked(&s, p, blob, p->size, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "allowed_bytes"));
    memcpy(blob, p->blob, p->size);
    memset(blob + 48, 'x', MODEL_ARITHMETIC_BYTES);
    state_seal(blob, p->size);
    assert_int_equal(read_checked(&s, p, blob, p->size, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "does not end"));
    memcpy(blob, p->blob, p->size);
    memset(blob + p->size - STATE_BLOB_CHECKSUM_BYTES - 4, 0xFF, 4);
    assert_int_equal(read_checked(&s, p, blob, p->size, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "checksum"));
    state_seal(blob, p->size);
    assert_int_equal(read_checked(&s, p, blob, p->size, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "finite"));
    free(blob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_goes_on_as_if_it_had_never_been_one),
        cmocka_unit_test(the_sampler_comes_back_whole),
        cmocka_unit_test(every_mutated_blob_is_refused),
        cmocka_unit_test(what_is_made_to_fit_does_no_harm),
        cmocka_unit_test(each_field_has_its_own_error),
    };
    return cmocka_run_group_tests_name("state_blob", tests, set_up, tear_down);
}
