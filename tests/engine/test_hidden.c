/* test_hidden.c - hidden states after the final norm: sums over a stream's bytes, and what a classifier pools. The head
 * makes of them the logits that the engine gives; and their bits do not depend on company, chunks, threads or cuts, for
 * any instruction set and precision. That they are the reference's is tests/clients/test_embeddings.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/linear_floats.h"
#include "tests/support/program.h"
#include "tests/support/random.h"

#define GOLDEN "tests/data/golden/"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { STREAMS = 9, LENGTH = 40, ROWS = 60, INPUTS = 5 };

static const char *isa; /* NULL: the best */
static enum engine_precision precision;

static struct model *load(const char *dir)
{
    struct model *m = NULL;
    struct error err;
    if (model_load(&m, dir, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    return m;
}

static struct engine *open_engine(const struct model *m, const struct engine_options *options)
{
    struct engine *e = NULL;
    struct error err;
    struct engine_options o = *options;
    o.isa = isa;
    o.precision = precision;
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(engine_info(e)->dim, m->config.dim);
    return e;
}

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n, size);
    assert_non_null(p);
    return p;
}

/* The head's logits of `hidden`, in double, are those that the engine gave. */
static void assert_heads_input(const char *dir, const struct model *m, const double *hidden, const float *logits)
{
    const struct linear *head = &m->head;
    float *weight = linear_floats(head);
    for (size_t o = 0; o < head->out; o++) {
        double sum = head->bias != NULL ? (double)head->bias[o] : 0.0;
        for (size_t c = 0; c < head->in; c++)
            sum += (double)weight[o * head->in + c] * hidden[c];
        if (!(fabs(sum - (double)logits[o]) <= 1e-5 * fmax(1.0, fabs(sum))))
            fail_msg("%s: logit %zu is %g, the hidden state gives %g", dir, o, (double)logits[o], sum);
    }
    free(weight);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static const char *const text_models[] = {GOLDEN "lm-local-8",
                                          GOLDEN "lm-full",
                                          GOLDEN "lm-simple",
                                          GOLDEN "lm-attention",
                                          GOLDEN "lm-conv-heads4-k5",
                                          GOLDEN "pixels-local",
                                          "tests/data/odd-shapes/causal-conv-dim72-heads9",
                                          "tests/data/models/enwik8-aft-local"};

/* The last byte adds what its logits come from; a start embedding, which the first byte of a stream stands for, adds
 * nothing. */
static void the_head_makes_logits_of_a_bytes_hidden_state(void **state)
{
    (void)state;
    struct random rng = {11};
    for (size_t i = 0; i < ARRAY_LEN(text_models); i++) {
        struct model *m = load(text_models[i]);
        const struct engine_options o = {.threads = 1, .streams_max = 1, .rows_max = 1};
        struct engine *e = open_engine(m, &o);
        const size_t dim = m->config.dim;
        double *sums = zeroed(dim, sizeof *sums), *before = zeroed(dim, sizeof *before);
        for (size_t b = 0; b < LENGTH; b++) {
            const uint8_t byte = (uint8_t)random_below(&rng, BYTE_VALUES);
            float logits[BYTE_VALUES];
            const struct engine_part part = {.count = 1, .bytes = &byte, .logits = logits, .sums = sums};
            memcpy(before, sums, dim * sizeof *sums);
            engine_feed(e, &part, 1);
            if (b == 0 && engine_info(e)->starts) {
                assert_memory_equal(sums, before, dim * sizeof *sums);
                continue;
            }
            for (size_t c = 0; c < dim; c++)
                before[c] = sums[c] - before[c];
            assert_heads_input(text_models[i], m, before, logits);
        }
        free(before);
        free(sums);
        engine_close(e);
        model_free(m);
    }
}

/* Random passes, in which some parts want sums, some logits, some both, until all streams are fed; streams of an odd
 * number want no sums. */
static void feed_in_company(struct engine *e, const uint8_t *bytes, const double *want, size_t length, size_t dim,
                            struct random *rng)
{
    double *got = zeroed(STREAMS * dim, sizeof *got);
    float *logits = zeroed((size_t)ROWS * BYTE_VALUES, sizeof *logits);
    size_t fed[STREAMS] = {0};
    for (uint32_t s = 0; s < STREAMS; s++)
        engine_stream_reset(e, s);
    for (size_t left = STREAMS * length; left > 0;) {
        struct engine_part parts[STREAMS];
        size_t n = 0, rows = 0;
        const bool step = random_below(rng, 3) == 0;
        for (uint32_t s = 0; s < STREAMS && rows < ROWS; s++) {
            const size_t rest = length - fed[s], most = rest < ROWS - rows ? rest : ROWS - rows;
            if (most == 0 || random_below(rng, 4) == 0)
                continue;
            const uint32_t count = step ? 1 : 1 + random_below(rng, (uint32_t)most);
            parts[n++] = (struct engine_part){.stream = s,
                                              .count = count,
                                              .bytes = bytes + (size_t)s * LENGTH + fed[s],
                                              .every = random_below(rng, 2) == 0,
                                              .logits = random_below(rng, 2) == 0 ? logits + rows * BYTE_VALUES : NULL,
                                              .sums = s % 2 == 0 ? got + s * dim : NULL};
            fed[s] += count;
            rows += count;
            left -= count;
        }
        engine_feed(e, parts, n);
    }
    for (size_t s = 0; s < STREAMS; s += 2)
        assert_memory_equal(got + s * dim, want + s * dim, dim * sizeof *got);
    free(logits);
    free(got);
}

static void expect_streams_alone(const char *const dirs[], size_t count)
{
    struct random rng = {12};
    for (size_t i = 0; i < count; i++) {
        struct model *m = load(dirs[i]);
        const struct engine_options alone = {.threads = 1, .streams_max = 1, .rows_max = 1};
        const struct engine_options together = {.threads = 2, .streams_max = STREAMS, .rows_max = ROWS};
        struct engine *one = open_engine(m, &alone), *many = open_engine(m, &together);
        const size_t dim = m->config.dim, length = m->config.context < LENGTH ? m->config.context : LENGTH;
        uint8_t *bytes = zeroed((size_t)STREAMS * LENGTH, 1);
        double *want = zeroed(STREAMS * dim, sizeof *want);
        for (size_t b = 0; b < (size_t)STREAMS * LENGTH; b++)
            bytes[b] = (uint8_t)random_below(&rng, BYTE_VALUES);
        for (size_t s = 0; s < STREAMS; s++) {
            engine_stream_reset(one, 0);
            for (size_t b = 0; b < length; b++) {
                const struct engine_part part = {.count = 1, .bytes = bytes + s * LENGTH + b, .sums = want + s * dim};
                engine_feed(one, &part, 1);
            }
        }
        for (int repeat = 0; repeat < test_work(5); repeat++)
            feed_in_company(many, bytes, want, length, dim, &rng);
        free(want);
        free(bytes);
        engine_close(many);
        engine_close(one);
        model_free(m);
    }
}

static void sums_do_not_depend_on_company_or_chunks(void **state)
{
    (void)state;
    expect_streams_alone(text_models, ARRAY_LEN(text_models));
}

/* ---- pictures and texts to classify ----------------------------------------------------------------------------- */

static const char *const classifiers[] = {GOLDEN "conv-heads8-k5",
                                          GOLDEN "image-aft-full-class-token",
                                          GOLDEN "image-sima",
                                          GOLDEN "text-fastformer",
                                          GOLDEN "text-attention",
                                          "tests/data/odd-shapes/conv-dim33-heads11",
                                          "weights/models/cifar10-aft-conv"};

static void begin_inputs(struct engine *e, const struct model *m, const uint8_t *const inputs[], size_t n)
{
    const uint32_t *size = m->config.size;
    if (m->config.input == INPUT_IMAGE)
        engine_pictures_begin(e, inputs, n, size[0], size[1]);
    else
        engine_texts_begin(e, inputs, n, m->config.context);
}

/* Alone the head makes the logits of it; in a batch that is cut in any way it has the same bits. */
static void expect_pooled_alone(const char *const dirs[], size_t count)
{
    struct random rng = {13};
    for (size_t i = 0; i < count; i++) {
        struct model *m = load(dirs[i]);
        const struct model_config *c = &m->config;
        const size_t size = c->input == INPUT_IMAGE ? (size_t)3 * c->size[0] * c->size[1] : c->context;
        const struct engine_options alone = {.threads = 1, .pictures_max = 1};
        const struct engine_options together = {.threads = 3, .pictures_max = INPUTS};
        struct engine *one = open_engine(m, &alone), *many = open_engine(m, &together);
        uint8_t *bytes = zeroed(INPUTS, size);
        const uint8_t *inputs[INPUTS];
        double *hidden = zeroed(c->dim, sizeof *hidden);
        for (size_t b = 0; b < INPUTS * size; b++)
            bytes[b] = (uint8_t)random_below(&rng, 256);
        for (size_t p = 0; p < INPUTS; p++)
            inputs[p] = bytes + p * size;
        begin_inputs(many, m, inputs, INPUTS);
        while (!engine_batch_step_part(many, 1 + random_below(&rng, (uint32_t)engine_batch_left(many))))
            ;
        for (size_t p = 0; p < INPUTS; p++) {
            begin_inputs(one, m, inputs + p, 1);
            while (!engine_batch_step(one))
                ;
            const float *pooled = engine_batch_pooled(one, 0);
            assert_memory_equal(engine_batch_pooled(many, p), pooled, c->dim * sizeof *pooled);
            for (size_t d = 0; d < c->dim; d++)
                hidden[d] = (double)pooled[d];
            assert_heads_input(dirs[i], m, hidden, engine_batch_logits(one, 0));
        }
        free(hidden);
        free(bytes);
        engine_close(many);
        engine_close(one);
        model_free(m);
    }
}

static void the_head_makes_logits_of_what_is_pooled(void **state)
{
    (void)state;
    expect_pooled_alone(classifiers, ARRAY_LEN(classifiers));
}

static void each_instruction_set_and_precision_keeps_that(void **state)
{
    (void)state;
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    for (size_t i = 0; i < count; i++)
        for (int p = 0; p < ENGINE_PRECISION_COUNT; p++) {
            isa = tables[i]->isa;
            precision = (enum engine_precision)p;
            print_message("  %s, %s\n", isa, engine_precision_word(precision));
            expect_streams_alone(text_models, ARRAY_LEN(text_models) - 1);
            expect_pooled_alone(classifiers, ARRAY_LEN(classifiers) - 1);
        }
    isa = NULL;
    precision = ENGINE_F32;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_head_makes_logits_of_a_bytes_hidden_state),
        cmocka_unit_test(sums_do_not_depend_on_company_or_chunks),
        cmocka_unit_test(the_head_makes_logits_of_what_is_pooled),
        cmocka_unit_test(each_instruction_set_and_precision_keeps_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
