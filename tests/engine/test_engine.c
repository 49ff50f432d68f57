/* test_engine.c - the engine on whole models: the promise of engine.h that bits do not depend on company, chunking or
 * threads, and the guards of its boundary. Agreement with the oracle's logits is `aft verify` (tests/cli). */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define LM "tests/data/models/enwik8-aft-local"
#define CLASSIFIER "weights/models/cifar10-aft-conv"

static struct model *load(const char *dir)
{
    struct model *m = NULL;
    struct error err;
    if (model_load(&m, dir, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    return m;
}

/* What all engines of a test use. */
static const char *isa; /* NULL: the best */
static enum engine_precision precision;

static struct engine *open_engine(const struct model *m, const struct engine_options *options)
{
    struct engine *e = NULL;
    struct error err;
    struct engine_options o = *options;
    o.isa = isa;
    o.precision = precision;
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

/* So many that two threads take whole streams, where each has a byte (block_rows_of_task). */
enum { STREAMS = 56, WHOLE_STEP = 48, LENGTH = 70, BYTES = STREAMS * LENGTH, ROWS = 160 };
enum { CHOOSING_MODELS = 2 }; /* fed so many single rows that some are one thread's and some are all threads' */

static const char *const text_models[] = {LM,
                                          "tests/data/golden/lm-local-8",
                                          "tests/data/golden/lm-local-large-keys",
                                          "tests/data/golden/lm-local-no-global",
                                          "tests/data/golden/lm-local-past-context",
                                          "tests/data/golden/lm-full",
                                          "tests/data/golden/lm-simple",
                                          "tests/data/golden/lm-conv-heads4-k5",
                                          "tests/data/odd-shapes/causal-conv-dim8-sparse",
                                          "tests/data/odd-shapes/causal-conv-dim72-heads9",
                                          "tests/data/golden/lm-attention",
                                          "tests/data/golden/pixels-local"};

/* Logits after every byte of each stream, fed alone and byte by byte. */
static void feed_alone(struct engine *e, const uint8_t *bytes, float *want, size_t length)
{
    for (size_t s = 0; s < STREAMS; s++) {
        engine_stream_reset(e, 0);
        for (size_t i = 0; i < length; i++) {
            const struct engine_part part = {
                .count = 1, .bytes = bytes + s * LENGTH + i, .logits = want + (s * LENGTH + i) * BYTE_VALUES};
            engine_feed(e, &part, 1);
        }
    }
}

/* Random passes: any subset of the streams, each with a part of any length, or all of them with a byte, in any order
 * and any slot, until all are fed. Some ask for every byte's logits, some for the last one's. */
static void feed_in_company(struct engine *e, const uint8_t *bytes, const float *want, size_t length,
                            struct random *rng)
{
    float *got = zeroed((size_t)ROWS * BYTE_VALUES, sizeof *got);
    uint32_t fed[STREAMS] = {0}, slot[STREAMS], whole_steps = 0;
    for (uint32_t s = 0; s < STREAMS; s++)
        slot[s] = s;
    for (uint32_t s = STREAMS - 1; s > 0; s--) {
        const uint32_t other = random_below(rng, s + 1), kept = slot[s];
        slot[s] = slot[other];
        slot[other] = kept;
    }
    for (uint32_t s = 0; s < STREAMS; s++)
        engine_stream_reset(e, s);
    for (size_t left = STREAMS * length; left > 0;) {
        struct engine_part parts[STREAMS];
        uint32_t who[STREAMS];
        size_t n = 0, rows = 0;
        const uint32_t first = random_below(rng, STREAMS);
        const bool step = left == STREAMS * length || random_below(rng, 2) == 0;
        for (uint32_t i = 0; i < STREAMS && rows < ROWS; i++) {
            const uint32_t s = (first + i) % STREAMS;
            const uint32_t most = (uint32_t)(length - fed[s] < ROWS - rows ? length - fed[s] : ROWS - rows);
            if (most == 0 || (!step && random_below(rng, 3) == 0))
                continue;
            const uint32_t count = step || random_below(rng, 2) == 0 ? 1 : 1 + random_below(rng, most);
            parts[n] = (struct engine_part){.stream = slot[s],
                                            .count = count,
                                            .bytes = bytes + (size_t)s * LENGTH + fed[s],
                                            .every = random_below(rng, 2) == 0,
                                            .logits = got + rows * BYTE_VALUES};
            who[n++] = s;
            rows += count;
        }
        engine_feed(e, parts, n);
        whole_steps += step && n >= WHOLE_STEP;
        for (size_t i = 0; i < n; i++) {
            const struct engine_part *p = &parts[i];
            const float *expected = want + (who[i] * (size_t)LENGTH + fed[who[i]]) * BYTE_VALUES;
            const size_t skip = p->every ? 0 : (size_t)(p->count - 1) * BYTE_VALUES;
            const size_t floats = p->every ? (size_t)p->count * BYTE_VALUES : BYTE_VALUES;
            assert_memory_equal(p->logits, expected + skip, floats * sizeof *expected);
            fed[who[i]] += p->count;
            assert_int_equal(engine_stream_position(e, p->stream), fed[who[i]]);
            left -= p->count;
        }
    }
    assert_true(whole_steps > 0);
    free(got);
}

static void expect_streams_alone(const char *const dirs[], size_t count)
{
    struct random rng = {1};
    for (size_t i = 0; i < count; i++) {
        struct model *m = load(dirs[i]);
        const struct engine_options alone = {.threads = 1, .streams_max = 1, .rows_max = 1};
        const struct engine_options together = {.threads = 2, .streams_max = STREAMS, .rows_max = ROWS};
        struct engine *one = open_engine(m, &alone), *many = open_engine(m, &together);
        const size_t most = LENGTH / (program_slowness() > 4   ? 4U
                                      : program_slowness() > 1 ? 2U
                                                               : 1U),
                     length = m->config.context < most ? m->config.context : most;
        uint8_t *bytes = zeroed(BYTES, 1);
        float *want = zeroed((size_t)BYTES * BYTE_VALUES, sizeof *want);
        for (size_t b = 0; b < BYTES; b++)
            bytes[b] = (uint8_t)random_below(&rng, BYTE_VALUES);
        feed_alone(one, bytes, want, length);
        for (int repeat = 0; repeat < test_work(3); repeat++)
            feed_in_company(many, bytes, want, length, &rng);
        if (i < CHOOSING_MODELS) {
            float *got = zeroed((size_t)BYTES * BYTE_VALUES, sizeof *got);
            feed_alone(many, bytes, got, length);
            assert_memory_equal(got, want, (size_t)BYTES * BYTE_VALUES * sizeof *got);
            free(got);
        }
        free(want);
        free(bytes);
        engine_close(many);
        engine_close(one);
        model_free(m);
    }
}

static void a_streams_bits_do_not_depend_on_company_or_chunks(void **state)
{
    (void)state;
    expect_streams_alone(text_models, sizeof text_models / sizeof text_models[0]);
}

static void a_slot_remembers_nothing_after_reset(void **state)
{
    (void)state;
    struct model *m = load(LM);
    const struct engine_options o = {.streams_max = 1, .rows_max = 64};
    struct engine *fresh = open_engine(m, &o), *used = open_engine(m, &o);
    uint8_t junk[64], bytes[40] = "the same bytes in both";
    float a[BYTE_VALUES], b[BYTE_VALUES];
    memset(junk, 0xFF, sizeof junk);
    const struct engine_part dirt = {.count = sizeof junk, .bytes = junk};
    const struct engine_part in_a = {.count = sizeof bytes, .bytes = bytes, .logits = a};
    const struct engine_part in_b = {.count = sizeof bytes, .bytes = bytes, .logits = b};
    engine_feed(used, &dirt, 1);
    engine_stream_reset(used, 0);
    assert_int_equal(engine_stream_position(used, 0), 0);
    engine_feed(fresh, &in_a, 1);
    engine_feed(used, &in_b, 1);
    assert_memory_equal(a, b, sizeof a);
    engine_close(used);
    engine_close(fresh);
    model_free(m);
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

enum { PICTURES = 11 };

static const char *const picture_models[] = {CLASSIFIER,
                                             "tests/data/golden/conv-k3x7-oblong",
                                             "tests/data/golden/conv-local-only-large-keys",
                                             "tests/data/golden/conv-cancelling",
                                             "tests/data/odd-shapes/conv-dim24-sparse",
                                             "tests/data/golden/image-aft-full-class-token",
                                             "tests/data/golden/image-aft-local",
                                             "tests/data/golden/image-aft-simple",
                                             "tests/data/golden/image-attention",
                                             "tests/data/golden/image-sima",
                                             "tests/data/golden/image-sima-wide"};

static void expect_pictures_alone(const char *const dirs[], size_t count)
{
    struct random rng = {2};
    for (size_t i = 0; i < count; i++) {
        struct model *m = load(dirs[i]);
        const struct engine_options alone = {.threads = 1, .pictures_max = 1};
        /* Fewer threads than pictures, or a thread more. */
        const struct engine_options together = {.threads = i % 2 == 0 ? PICTURES + 1 : 3, .pictures_max = PICTURES};
        struct engine *one = open_engine(m, &alone), *many = open_engine(m, &together);
        const uint32_t height = m->config.size[0], width = m->config.size[1], classes = m->config.classes;
        const size_t size = (size_t)3 * height * width;
        uint8_t *pixels = zeroed(PICTURES, size);
        float *want = zeroed((size_t)PICTURES * classes, sizeof *want);
        for (size_t b = 0; b < PICTURES * size; b++)
            pixels[b] = (uint8_t)random_below(&rng, 256);
        for (size_t p = 0; p < PICTURES; p++) {
            const uint8_t *batch[1] = {pixels + p * size};
            engine_pictures_begin(one, batch, 1, height, width);
            uint32_t steps = 1;
            while (!engine_batch_step(one))
                steps++;
            assert_int_equal(steps, m->config.depth); /* it returns after each block */
            memcpy(want + p * classes, engine_batch_logits(one, 0), classes * sizeof *want);
        }
        for (size_t n = 1; n <= PICTURES; n++) {
            const uint8_t *batch[PICTURES];
            size_t who[PICTURES];
            for (size_t p = 0; p < n; p++) {
                who[p] = random_below(&rng, PICTURES);
                batch[p] = pixels + who[p] * size;
            }
            engine_pictures_begin(many, batch, n, height, width);
            while (!engine_batch_step(many))
                ;
            for (size_t p = 0; p < n; p++)
                assert_memory_equal(engine_batch_logits(many, p), want + who[p] * classes, classes * sizeof *want);
        }
        free(want);
        free(pixels);
        engine_close(many);
        engine_close(one);
        model_free(m);
    }
}

/* Parts of any size. Returns how many there were. */
static uint32_t step_in_random_parts(struct engine *e, struct random *rng)
{
    uint32_t parts = 1;
    while (!engine_batch_step_part(e, 1 + random_below(rng, (uint32_t)engine_batch_left(e))))
        parts++;
    return parts;
}

/* Pictures of CUT_TIMES the trained height and width where the model takes them. */
enum { CUT = 5, CUT_TIMES = 2, CUT_REPEATS = 3 };

static void begin_inputs(struct engine *e, const struct model *m, const uint8_t *const inputs[], size_t n,
                         uint32_t times)
{
    const uint32_t *size = m->config.size;
    if (m->config.input == INPUT_IMAGE)
        engine_pictures_begin(e, inputs, n, times * size[0], times * size[1]);
    else
        engine_texts_begin(e, inputs, n, m->config.context);
}

/* With maps of some pictures, for they are drawn in the middle of a block. */
static void expect_any_cut(const char *const dirs[], size_t count, uint32_t threads)
{
    struct random rng = {9};
    for (size_t i = 0; i < count; i++) {
        struct model *m = load(dirs[i]);
        const struct model_config *c = &m->config;
        const bool picture = c->input == INPUT_IMAGE,
                   fixed = !picture || model_config_fixed_size(c, m->pos_embed != NULL);
        const uint32_t times = fixed ? 1 : CUT_TIMES;
        const uint32_t tokens = picture ? times * times * (c->size[0] / c->patch[0]) * (c->size[1] / c->patch[1]) : 0;
        const size_t size = picture ? (size_t)3 * times * times * c->size[0] * c->size[1] : c->context;
        const struct engine_options o = {.threads = threads, .pictures_max = CUT * times * times, .tokens_max = tokens};
        struct engine *e = open_engine(m, &o);
        uint8_t *bytes = zeroed(CUT, size);
        const uint8_t *inputs[CUT];
        float *want = zeroed((size_t)CUT * c->classes, sizeof *want), *map = zeroed(tokens + 1, sizeof *map),
              *first_map = zeroed(tokens + 1, sizeof *map);
        for (size_t b = 0; b < CUT * size; b++)
            bytes[b] = (uint8_t)random_below(&rng, 256);
        for (size_t p = 0; p < CUT; p++)
            inputs[p] = bytes + p * size;
        uint32_t parts = 0;
        for (int repeat = 0; repeat < 1 + test_work(CUT_REPEATS); repeat++) {
            begin_inputs(e, m, inputs, CUT, times);
            if (picture)
                engine_batch_want_map(e, 1, &(struct engine_map){.layer = c->depth - 1, .layers = 1, .out = map});
            if (repeat > 0)
                parts += step_in_random_parts(e, &rng);
            else
                while (!engine_batch_step(e))
                    ;
            for (size_t p = 0; p < CUT; p++) {
                float *logits = want + p * c->classes;
                if (repeat == 0)
                    memcpy(logits, engine_batch_logits(e, p), c->classes * sizeof *logits);
                assert_memory_equal(engine_batch_logits(e, p), logits, c->classes * sizeof *logits);
            }
            if (picture && repeat == 0)
                memcpy(first_map, map, tokens * sizeof *map);
            assert_memory_equal(first_map, map, tokens * sizeof *map);
        }
        assert_true(parts > c->depth);
        free(map);
        free(first_map);
        free(want);
        free(bytes);
        engine_close(e);
        model_free(m);
    }
}

static const char *const cut_models[] = {"tests/data/golden/conv-heads8-k5",
                                         "tests/data/golden/conv-local-only-large-keys",
                                         "tests/data/golden/image-aft-full-class-token",
                                         "tests/data/golden/image-aft-local",
                                         "tests/data/golden/image-aft-simple",
                                         "tests/data/golden/image-attention",
                                         "tests/data/golden/image-sima",
                                         "tests/data/golden/text-fastformer",
                                         "tests/data/golden/text-simple-attention",
                                         "tests/data/odd-shapes/conv-dim33-heads11"};

static void a_batch_gives_the_same_logits_however_it_is_cut(void **state)
{
    (void)state;
    static const char *const shipped[] = {CLASSIFIER};
    for (uint32_t threads = 1; threads <= 3; threads++)
        expect_any_cut(cut_models, sizeof cut_models / sizeof cut_models[0], threads);
    expect_any_cut(shipped, 1, 2);
}

static void a_pictures_bits_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    expect_pictures_alone(picture_models, sizeof picture_models / sizeof picture_models[0]);
}

/* The same promise for every instruction set that this machine runs, in every precision. */
static void each_instruction_set_and_precision_keeps_that(void **state)
{
    (void)state;
    static const char *const texts[] = {"tests/data/golden/lm-attention", "tests/data/odd-shapes/local-dim33"};
    static const char *const pictures[] = {"tests/data/golden/image-sima", "tests/data/odd-shapes/conv-dim33-heads11"};
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    for (size_t i = 0; i < count; i++)
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
            isa = tables[i]->isa;
            precision = (enum engine_precision)p;
            print_message("  %s, %s\n", isa, engine_precision_word(precision));
            expect_streams_alone(texts, sizeof texts / sizeof texts[0]);
            expect_pictures_alone(pictures, sizeof pictures / sizeof pictures[0]);
            expect_any_cut(cut_models, sizeof cut_models / sizeof cut_models[0], 1 + (uint32_t)p % 2);
        }
    isa = NULL;
    precision = ENGINE_F32;
}

/* One engine, whose memory is for pictures of the trained size or one large one: each size gives the bits that it gives
 * in an engine for it alone, in batches as large as fit. */
static void an_engine_takes_pictures_of_any_size(void **state)
{
    (void)state;
    enum { LARGEST = 300, BATCH = 4 };
    static const uint32_t grids[][2] = {{8, 8}, {1, 1}, {3, 7}, {12, 25}, {16, 8}, {1, 40}, {8, 8}, {20, 15}, {2, 2}};
    static const char *const dirs[] = {CLASSIFIER, "tests/data/golden/conv-heads32-k11",
                                       "tests/data/golden/conv-local-only"};
    struct random rng = {8};
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        struct model *m = load(dirs[i]);
        const struct engine_options any = {.threads = 2, .pictures_max = BATCH, .tokens_max = LARGEST};
        struct engine *e = open_engine(m, &any);
        const uint32_t classes = m->config.classes, patch = m->config.patch[0];
        assert_int_equal(engine_info(e)->elements_max, LARGEST);
        assert_false(engine_info(e)->fixed_size);
        assert_int_equal(engine_batch_max(e, 64), BATCH);
        assert_int_equal(engine_batch_max(e, 1), BATCH);
        assert_int_equal(engine_batch_max(e, 150), 2);
        assert_int_equal(engine_batch_max(e, LARGEST), 1);
        for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
            const uint32_t tokens = grids[g][0] * grids[g][1], height = grids[g][0] * patch,
                           width = grids[g][1] * patch;
            const uint32_t n = engine_batch_max(e, tokens);
            const size_t size = (size_t)height * width * 3;
            const struct engine_options alone = {.threads = 1, .pictures_max = 1, .tokens_max = tokens};
            struct engine *one = open_engine(m, &alone);
            uint8_t *pixels = zeroed(BATCH, size);
            const uint8_t *batch[BATCH];
            for (size_t b = 0; b < BATCH * size; b++)
                pixels[b] = (uint8_t)random_below(&rng, 256);
            for (size_t p = 0; p < BATCH; p++)
                batch[p] = pixels + p * size;
            engine_pictures_begin(e, batch, n, height, width);
            while (!engine_batch_step(e))
                ;
            for (size_t p = 0; p < n; p++) {
                engine_pictures_begin(one, batch + p, 1, height, width);
                while (!engine_batch_step(one))
                    ;
                assert_memory_equal(engine_batch_logits(e, p), engine_batch_logits(one, 0), classes * sizeof(float));
            }
            free(pixels);
            engine_close(one);
        }
        engine_close(e);
        model_free(m);
    }
}

/* ---- texts to classify ------------------------------------------------------------------------------------------ */

enum { TEXTS = 9 };

static const char *const classified_models[] = {"tests/data/golden/text-attention", "tests/data/golden/text-fastformer",
                                                "tests/data/golden/text-simple-attention"};

static void a_texts_bits_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    struct random rng = {4};
    for (size_t i = 0; i < sizeof classified_models / sizeof classified_models[0]; i++) {
        struct model *m = load(classified_models[i]);
        const struct engine_options alone = {.threads = 1, .pictures_max = 1};
        const struct engine_options together = {.threads = 3, .pictures_max = TEXTS};
        struct engine *one = open_engine(m, &alone), *many = open_engine(m, &together);
        const uint32_t classes = m->config.classes;
        for (uint32_t length = 1; length <= m->config.context; length += 5) {
            uint8_t *bytes = zeroed(TEXTS, length);
            const uint8_t *batch[TEXTS];
            for (size_t b = 0; b < (size_t)TEXTS * length; b++)
                bytes[b] = (uint8_t)random_below(&rng, 256);
            for (size_t t = 0; t < TEXTS; t++)
                batch[t] = bytes + t * length;
            engine_texts_begin(many, batch, TEXTS, length);
            while (!engine_batch_step(many))
                ;
            for (size_t t = 0; t < TEXTS; t++) {
                engine_texts_begin(one, batch + t, 1, length);
                while (!engine_batch_step(one))
                    ;
                assert_memory_equal(engine_batch_logits(many, t), engine_batch_logits(one, 0), classes * sizeof(float));
            }
            free(bytes);
        }
        engine_close(many);
        engine_close(one);
        model_free(m);
    }
}

/* ---- the boundary ----------------------------------------------------------------------------------------------- */

static void an_unknown_instruction_set_is_named(void **state)
{
    (void)state;
    const struct engine_options o = {.streams_max = 1, .rows_max = 1, .isa = "avx9"};
    struct model *m = load(LM);
    struct engine *e = NULL;
    struct error err;
    assert_int_equal(engine_open(&e, m, &o, &err), ERR_ARGUMENT);
    assert_null(e);
    assert_string_equal(err.param, "isa");
    assert_non_null(strstr(err.message, "avx9"));
    model_free(m);
}

static void info_tells_what_a_stream_costs(void **state)
{
    (void)state;
    struct model *m = load(LM);
    const struct engine_options o = {.threads = 2, .streams_max = 3, .rows_max = 4};
    struct engine *e = open_engine(m, &o);
    const struct engine_info *info = engine_info(e);
    /* L d (8 s + 20): a ring of e and e*v, their sums beyond the window, two numbers each, the keys' reference */
    assert_int_equal(info->stream_bytes, 6 * 192 * (8 * 32 + 20));
    assert_int_equal(info->threads, 2);
    /* L (4 d^2 + 2 d 4d) + 256 d */
    assert_int_equal(info->macs, 6 * (4 * 192 * 192 + 2 * 192 * 768) + 256 * 192);
    assert_int_equal(info->mixer_macs, 6 * 192 * (1 + 2 * 32)); /* L d (1 + 2 s): e v, then both sums */
    assert_true(info->weight_bytes >= info->macs * sizeof(float));
    assert_true(info->workspace_bytes >= 3 * info->stream_bytes);
    engine_close(e);
    model_free(m);
}

/* By hand, from each mixer's equation, for one block; T, d, h and the window are those of the models. */
static const struct {
    const char *model;
    int macs;
} mixings[] = {
    {"lm-full", 32 * (1 + 2 * 48)}, /* a step: T = 48 terms of numerator and denominator */
    {"lm-simple", 32 * (1 + 2)},
    {"lm-conv-heads4-k5", 32 * (1 + 2 * 5)},
    {"lm-attention", 2 * 48 * 32}, /* a step: scores and values of T positions */
    {"image-aft-simple", 64 * 32}, /* sequences from here on: T = 64 patches; e v alone */
    {"image-aft-full-class-token", 65 * 32 * (1 + 2 * 65)},
    {"image-sima", 2 * 64 * 32 * 8}, /* h products of width 8: k^T v, then q (k^T v) */
    {"text-fastformer", 6 * 48 * 32},
    {"conv-k15-wider-than-grid", 64 * (32 + 8 * 8 * (32 + 16))}, /* no more taps than positions */
};

static void info_tells_what_mixing_costs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mixings / sizeof mixings[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "tests/data/golden/%s", mixings[i].model);
        struct model *m = load(path);
        const struct engine_options o = {.threads = 1, .pictures_max = 1, .streams_max = 1, .rows_max = 1};
        struct engine *e = open_engine(m, &o);
        const int got = (int)(engine_info(e)->mixer_macs / m->config.depth);
        if (got != mixings[i].macs)
            fail_msg("%s: %d a block, expected %d", mixings[i].model, got, mixings[i].macs);
        engine_close(e);
        model_free(m);
    }
}

/* What the engine is the first to read: the matrices of blocks, of the head and of the patches. */
static void weights_that_are_none_are_refused(void **state)
{
    static const struct {
        const char *tensor;
        enum dtype dtype;
        enum status want;
        const char *piece;
    } cases[] = {
        {"blocks.1.mlp.fc2.weight", DTYPE_F32, ERR_FORMAT,
         "model.safetensors: tensor \"blocks.1.mlp.fc2.weight\" holds a NaN at element 1"},
        {"patch_embed.weight", DTYPE_F32, ERR_FORMAT, "tensor \"patch_embed.weight\" holds a NaN at element 1"},
        {"head.weight", DTYPE_F32, ERR_FORMAT, "tensor \"head.weight\" holds a NaN at element 1"},
        {"head.weight", DTYPE_U8, ERR_FORMAT, "tensor \"head.weight\" has dtype U8, expected F32, F16 or BF16"},
        {NULL, DTYPE_F32, ERR_IO, "model.safetensors: was written to while being read"},
    };
    static float numbers[128 * 32] = {0.0f, NAN};
    const struct engine_options o = {.pictures_max = 1};
    char dir[PATH_MAX], path[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "model.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_copy c;
        struct engine *e = NULL;
        struct error err = {.message = ""};
        model_copy_read(&c, "tests/data/golden/conv-heads8-k5");
        if (cases[i].tensor != NULL) {
            struct tensor *t = model_copy_tensor(&c, cases[i].tensor);
            assert_true(t->elements <= sizeof numbers / sizeof numbers[0]);
            t->data = (const uint8_t *)numbers;
            t->dtype = cases[i].dtype;
            t->bytes = t->elements * dtype_bytes(t->dtype);
        }
        model_copy_write(&c, dir);
        struct model *m = load(dir);
        if (cases[i].tensor == NULL)
            assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[2]){{0, 0}, {1, 0}}, 0), 0);
        const enum status got = engine_open(&e, m, &o, &err);
        if (got != cases[i].want || strstr(err.message, cases[i].piece) == NULL || e != NULL)
            fail_msg("%s: %s \"%s\", expected %s \"%s\"", cases[i].tensor, status_name(got), err.message,
                     status_name(cases[i].want), cases[i].piece);
        model_free(m);
        model_copy_clear(&c);
    }
    temp_dir_remove(dir);
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    engine_close(NULL);
    model_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_streams_bits_do_not_depend_on_company_or_chunks),
        cmocka_unit_test(a_slot_remembers_nothing_after_reset),
        cmocka_unit_test(a_batch_gives_the_same_logits_however_it_is_cut),
        cmocka_unit_test(a_pictures_bits_do_not_depend_on_the_batch),
        cmocka_unit_test(each_instruction_set_and_precision_keeps_that),
        cmocka_unit_test(an_engine_takes_pictures_of_any_size),
        cmocka_unit_test(a_texts_bits_do_not_depend_on_the_batch),
        cmocka_unit_test(an_unknown_instruction_set_is_named),
        cmocka_unit_test(info_tells_what_a_stream_costs),
        cmocka_unit_test(info_tells_what_mixing_costs),
        cmocka_unit_test(weights_that_are_none_are_refused),
        cmocka_unit_test(closing_nothing_is_fine),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
