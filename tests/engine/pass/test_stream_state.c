/* test_stream_state.c - states of streams on the move: one that was saved in one engine and restored in another, or
 * copied, goes on with the bits of one that was never moved; and what is no state is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/random.h"

#define LM "tests/data/models/enwik8-aft-local"

enum { LENGTH = 96, ROWS = 40 };

/* Every mixer that has streams, in each way that it keeps them: factored and exact, with sums and without. */
static const char *const models[] = {LM,
                                     "tests/data/golden/lm-local-8",
                                     "tests/data/golden/lm-local-large-keys",
                                     "tests/data/golden/lm-local-no-global",
                                     "tests/data/golden/lm-local-past-context",
                                     "tests/data/golden/lm-full",
                                     "tests/data/golden/lm-simple",
                                     "tests/data/golden/lm-conv-heads4-k5",
                                     "tests/data/odd-shapes/causal-conv-dim8-sparse",
                                     "tests/data/odd-shapes/local-dim33",
                                     "tests/data/golden/lm-attention",
                                     "tests/data/golden/pixels-local"};

static struct engine *open_engine(const struct model *m, const char *isa, int precision, uint32_t streams)
{
    struct engine *e = NULL;
    struct error err;
    const struct engine_options o = {.isa = isa,
                                     .precision = (enum engine_precision)precision,
                                     .threads = 2,
                                     .streams_max = streams,
                                     .rows_max = ROWS};
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

static void feed(struct engine *e, uint32_t stream, const uint8_t *bytes, size_t n, float *logits)
{
    for (size_t at = 0; at < n;) {
        const size_t count = n - at < ROWS ? n - at : ROWS;
        const struct engine_part part = {
            .stream = stream, .count = (uint32_t)count, .bytes = bytes + at, .logits = logits};
        engine_feed(e, &part, 1);
        at += count;
    }
}

static void fill_slot_with_another(struct engine *e, uint32_t stream, size_t n)
{
    uint8_t junk[LENGTH];
    memset(junk, 0xEE, sizeof junk);
    engine_stream_reset(e, stream);
    feed(e, stream, junk, n, NULL);
}

/* Feed `cut` bytes, move the state into another engine's slot and within it to one more, both used before, and go
 * on. */
static void move_at(struct engine *from, struct engine *to, const uint8_t *bytes, size_t length, size_t cut,
                    const float *want)
{
    float got[2][BYTE_VALUES];
    struct error err;
    engine_stream_reset(from, 0);
    if (cut > 0)
        feed(from, 0, bytes, cut, NULL);
    const size_t size = engine_stream_saved_bytes(from, (uint32_t)cut);
    uint8_t *saved = malloc(size + 1), *again = malloc(size + 1);
    assert_true(saved != NULL && again != NULL && size <= engine_info(from)->stream_bytes);
    engine_stream_save(from, 0, saved);
    fill_slot_with_another(to, 1, length);
    fill_slot_with_another(to, 2, length / 2);
    if (engine_stream_check(to, (uint32_t)cut, saved, size, &err) != OK)
        fail_msg("%s", err.message);
    engine_stream_restore(to, 1, (uint32_t)cut, saved);
    engine_stream_copy(to, 1, 2);
    assert_int_equal(engine_stream_position(to, 1), cut);
    assert_int_equal(engine_stream_position(to, 2), cut);
    engine_stream_save(to, 2, again); /* nothing of the slot's earlier stream is in it */
    assert_memory_equal(saved, again, size);
    for (uint32_t i = 0; i < 2 && cut < length; i++) {
        feed(to, 1 + i, bytes + cut, length - cut, got[i]);
        assert_memory_equal(got[i], want, sizeof got[i]);
    }
    free(again);
    free(saved);
}

static void move_states(const char *dir, const char *isa, int precision, struct random *rng)
{
    struct model *m = NULL;
    struct error err;
    if (model_load(&m, dir, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    struct engine *one = open_engine(m, isa, precision, 1), *other = open_engine(m, isa, precision, 3);
    const size_t length = m->config.context < LENGTH ? m->config.context : LENGTH;
    uint8_t bytes[LENGTH];
    float want[BYTE_VALUES];
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_below(rng, 256);
    engine_stream_reset(one, 0);
    feed(one, 0, bytes, length, want);
    const size_t cuts[] = {0, 1, 7, 8, 9, 16, 31, 33, length / 2, length - 1, length};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        move_at(one, other, bytes, length, cuts[i] < length ? cuts[i] : length, want);
    engine_close(other);
    engine_close(one);
    model_free(m);
}

static void a_moved_stream_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    struct random rng = {11};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++)
            move_states(models[i], NULL, p, &rng);
}

static void it_does_so_with_each_instruction_set(void **state)
{
    (void)state;
    struct random rng = {12};
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    for (size_t i = 0; i < count; i++)
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
            move_states("tests/data/odd-shapes/local-dim33", tables[i]->isa, p, &rng);
            move_states("tests/data/golden/lm-attention", tables[i]->isa, p, &rng);
        }
}

/* What has left the window is in sums: a state costs the same at every position behind it, but for mixers that keep all
 * keys. */
static void a_saved_state_has_what_is_in_use(void **state)
{
    (void)state;
    struct error err;
    struct model *local = NULL, *attention = NULL;
    assert_int_equal(model_load(&local, LM, NULL, NULL, &err), OK);
    assert_int_equal(model_load(&attention, "tests/data/golden/lm-attention", NULL, NULL, &err), OK);
    struct engine *e = open_engine(local, NULL, ENGINE_F32, 1), *a = open_engine(attention, NULL, ENGINE_F32, 1);
    assert_int_equal(engine_stream_saved_bytes(e, 0), 0);
    assert_int_equal(engine_stream_saved_bytes(e, 1), 6 * 192 * (8 + 20)); /* L d (8 n + 20) */
    assert_int_equal(engine_stream_saved_bytes(e, 32), engine_info(e)->stream_bytes);
    assert_int_equal(engine_stream_saved_bytes(e, 100), engine_info(e)->stream_bytes);
    for (uint32_t n = 0; n <= 48; n++) /* keys and values: L d 8 n */
        assert_int_equal(engine_stream_saved_bytes(a, n), attention->config.depth * attention->config.dim * 8 * n);
    engine_close(a);
    engine_close(e);
    model_free(attention);
    model_free(local);
}

static void refused(const struct engine *e, uint32_t position, const uint8_t *in, size_t size, const char *word)
{
    struct error err;
    assert_int_equal(engine_stream_check(e, position, in, size, &err), ERR_ARGUMENT);
    assert_string_equal(err.param, "state");
    assert_non_null(strstr(err.message, word));
}

static void what_is_no_state_is_refused(void **state)
{
    (void)state;
    static const char *const dirs[] = {LM, "tests/data/golden/lm-simple", "tests/data/golden/lm-attention"};
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        struct model *m = NULL;
        struct error err;
        assert_int_equal(model_load(&m, dirs[i], NULL, NULL, &err), OK);
        for (int p = ENGINE_F32; p <= ENGINE_BF16; p++) {
            struct engine *e = open_engine(m, NULL, p, 1);
            const uint32_t position = 40;
            const size_t size = engine_stream_saved_bytes(e, position);
            uint8_t *in = calloc(size + 4, 1);
            assert_non_null(in);
            refused(e, position, in, size - 1, "expected");
            refused(e, position, in, size + 4, "expected");
            refused(e, UINT32_MAX, in, size, "position");
            refused(e, ENGINE_POSITION_MAX + 1, in, size, "position");
            if (engine_info(e)->context != ENGINE_CONTEXT_UNLIMITED)
                refused(e, engine_info(e)->context + 1, in, size, "position");
            assert_int_equal(engine_stream_check(e, position, in, size, &err), OK);
            memset(in + size - 4, 0xFF, 4);
            refused(e, position, in, size, "finite");
            memset(in + size - 4, 0, 4);
            memset(in, 0xFF, 4);
            refused(e, position, in, size, "finite");
            if (p == ENGINE_BF16 && i == 0) { /* the lower half of a pair of the ring */
                memset(in, 0, 4);
                in[size - 4] = 0x80;
                in[size - 3] = 0x7F;
                refused(e, position, in, size, "finite");
            }
            free(in);
            engine_close(e);
        }
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_stream_goes_on_with_the_same_bits),
        cmocka_unit_test(it_does_so_with_each_instruction_set),
        cmocka_unit_test(a_saved_state_has_what_is_in_use),
        cmocka_unit_test(what_is_no_state_is_refused),
    };
    return cmocka_run_group_tests_name("stream_state", tests, NULL, NULL);
}
