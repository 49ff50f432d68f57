/* test_length.c - the engine after any number of equal bytes or patches. Each mean over them is then what it is of one:
 * the logits must not change by more than rounding does, and the roundings of equal sums go one way for longest.
 * AFTD_TORTURE=long goes as far as the format allows, where less is shown otherwise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/model_copy.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden/"
#define ODD "tests/data/odd-shapes/"
#define LIMIT 1e-6

enum { TENSORS_MAX = 16, LABELS_MAX = 16 };

/* A model made longer, and how far it is fed: here, in the long form. */
struct length_case {
    const char *source;
    uint32_t usual, far;
    int window; /* of aft-local instead of its own; 0: its own */
    float bias; /* the largest number of position tensors; 0: 0.3 */
};

static bool goes_far(void)
{
    const char *torture = getenv("AFTD_TORTURE");
    return torture != NULL && strcmp(torture, "long") == 0;
}

static int announce(void **state)
{
    (void)state;
    if (!goes_far())
        print_message("with AFTD_TORTURE=long texts and pictures are longer\n");
    return 0;
}

/* Give all position tensors `tokens` rows, and those of pairs as many columns, with numbers of up to `size`. */
static size_t lengthen(struct model_copy *c, uint32_t tokens, float size, float *made[TENSORS_MAX])
{
    struct random rng = {1};
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct tensor *t = &c->tensors[i];
        const bool pairs = strstr(t->name, ".pos_bias") != NULL;
        if (!pairs && strstr(t->name, ".pos_u") == NULL && strstr(t->name, ".pos_v") == NULL)
            continue;
        const size_t columns = pairs ? tokens : (size_t)t->shape[1];
        float *to = malloc((size_t)tokens * columns * sizeof *to);
        assert_true(to != NULL && n < TENSORS_MAX);
        for (size_t j = 0; j < (size_t)tokens * columns; j++)
            to[j] = random_float(&rng, size);
        made[n++] = to;
        model_copy_set(c, t->name, to, tokens, columns);
    }
    return n;
}

static bool has_tensor(const struct model_copy *c, const char *name)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* The model of a case without learnt positions; of bytes: with room for so many. */
static struct model *load_longer(const struct length_case *lc, uint32_t tokens)
{
    char dir[PATH_MAX];
    struct model *m = NULL;
    struct error err;
    struct model_copy c;
    float *made[TENSORS_MAX];
    temp_dir_create(dir);
    model_copy_read(&c, lc->source);
    if (has_tensor(&c, "pos_embed"))
        model_copy_drop(&c, "pos_embed");
    json_t *input = json_object_get(c.config, "input");
    if (json_object_get(input, "context") != NULL)
        assert_int_equal(json_object_set_new(input, "context", json_integer(tokens)), 0);
    if (lc->window != 0)
        assert_int_equal(json_object_set_new(json_object_get(c.config, "mixer"), "window", json_integer(lc->window)),
                         0);
    const size_t n = lengthen(&c, tokens, lc->bias != 0.0f ? lc->bias : 0.3f, made);
    model_copy_write(&c, dir);
    if (model_load(&m, dir, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++)
        free(made[i]);
    model_copy_clear(&c);
    temp_dir_remove(dir);
    return m;
}

/* Each instruction set that has functions of its own. */
static size_t isas_of(const char *found[TABLES])
{
    const struct kernels *tables[TABLES];
    size_t n = 0;
    for (size_t count = runnable(tables), i = 0; i < count; i++)
        if (strncmp(tables[i]->isa, "avx512", 6) != 0 || strcmp(tables[i]->isa, "avx512") == 0)
            found[n++] = tables[i]->isa;
    return n;
}

static struct engine *open_engine(const struct model *m, const char *isa, uint32_t tokens)
{
    struct engine *e = NULL;
    struct error err;
    const struct engine_options o = {
        .isa = isa, .threads = 2, .pictures_max = 1, .tokens_max = tokens, .streams_max = 1, .rows_max = 256};
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

/* How far apart logits are, relative to max(1, the largest), as aft verify compares. */
static double apart(const float *a, const float *b, size_t n)
{
    double most = 1.0, worst = 0.0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)b[i]));
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst / most;
}

static void expect_small(double worst, const struct length_case *lc, const char *isa, uint32_t tokens)
{
    if (goes_far())
        print_message("%s, %s, %u: %.2g\n", lc->source, isa, tokens, worst);
    if (!(worst <= LIMIT))
        fail_msg("%s, %s: off by %.3g within %u equal ones, expected %g", lc->source, isa, worst, tokens, LIMIT);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static const struct length_case streams[] = {
    {ODD "causal-simple-endless", 1u << 18, 1u << 24, 0, 0.0f},
    {ODD "causal-conv-endless", 1u << 18, 1u << 24, 0, 0.0f},
    {GOLDEN "lm-local-8", 1u << 16, 1u << 16, 0, 0.0f},
    {GOLDEN "lm-local-8", 1u << 14, 1u << 16, 300, 0.0f},
    {GOLDEN "lm-local-no-global", 1u << 14, 1u << 16, 300, 0.0f},
    {GOLDEN "lm-full", 1u << 11, 1u << 13, 0, 0.0f},
    {GOLDEN "lm-attention", 1u << 12, 1u << 16, 0, 0.0f},
};

static double worst_of_stream(struct engine *e, uint32_t tokens)
{
    enum { ROWS = 256 };
    static float first[BYTE_VALUES], logits[BYTE_VALUES];
    uint8_t bytes[ROWS];
    double worst = 0.0;
    memset(bytes, 'e', sizeof bytes);
    const struct engine_part one = {.count = 1, .bytes = bytes, .logits = first};
    engine_feed(e, &one, 1);
    for (uint32_t at = 1, n; at < tokens; at += n) {
        n = tokens - at < ROWS ? tokens - at : ROWS - at % 3;
        const struct engine_part part = {.count = n, .bytes = bytes, .logits = logits};
        engine_feed(e, &part, 1);
        worst = fmax(worst, apart(logits, first, BYTE_VALUES));
    }
    return worst;
}

static void a_text_of_equal_bytes_keeps_its_logits(void **state)
{
    (void)state;
    const char *isas_here[TABLES];
    for (size_t count = isas_of(isas_here), i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        const uint32_t tokens = goes_far() ? streams[i].far : (uint32_t)test_work((int)streams[i].usual);
        const uint32_t context = streams[i].usual > 1u << 16 ? 1u << 16 : tokens;
        struct model *m = load_longer(&streams[i], context);
        for (size_t a = 0; a < count; a++) {
            struct engine *e = open_engine(m, isas_here[a], 0);
            assert_true(tokens <= engine_info(e)->context);
            expect_small(worst_of_stream(e, tokens), &streams[i], isas_here[a], tokens);
            engine_close(e);
        }
        model_free(m);
    }
}

/* ---- classifiers ------------------------------------------------------------------------------------------------ */

/* SimA and simple attention are no means: their values have the length in them. */
static const struct length_case texts[] = {
    {ODD "text-simple-dim20", 1u << 16, 1u << 16, 0, 0.0f},
    {ODD "text-conv-dim24", 1u << 16, 1u << 16, 0, 0.0f},
    {GOLDEN "text-fastformer", 1u << 16, 1u << 16, 0, 0.0f},
    {ODD "text-full-dim20", 1u << 10, 1u << 13, 0, 0.0f},
    {ODD "text-local-dim33-extreme", 1u << 9, 1u << 12, 0, 25.0f},
    {ODD "text-attention-dim20", 1u << 12, 1u << 16, 0, 0.0f},
};

static void classify_text(float *out, struct engine *e, uint32_t length, size_t classes)
{
    uint8_t *text = malloc(length);
    assert_non_null(text);
    memset(text, 'e', length);
    engine_texts_begin(e, (const uint8_t *const[]){text}, 1, length);
    while (!engine_batch_step(e))
        ;
    memcpy(out, engine_batch_logits(e, 0), classes * sizeof *out);
    free(text);
}

static void a_text_of_equal_bytes_is_one_of_one_byte(void **state)
{
    (void)state;
    const char *isas_here[TABLES];
    for (size_t count = isas_of(isas_here), i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const uint32_t tokens = goes_far() ? texts[i].far : texts[i].usual;
        struct model *m = load_longer(&texts[i], tokens);
        const size_t classes = m->config.classes;
        assert_true(classes <= LABELS_MAX);
        for (size_t a = 0; a < count; a++) {
            struct engine *e = open_engine(m, isas_here[a], 0);
            float one[LABELS_MAX], all[LABELS_MAX];
            double worst = 0.0;
            classify_text(one, e, 1, classes);
            for (uint32_t length = tokens; length > 1; length = (length - 1) / 4) {
                classify_text(all, e, length, classes);
                worst = fmax(worst, apart(all, one, classes));
            }
            expect_small(worst, &texts[i], isas_here[a], tokens);
            engine_close(e);
        }
        model_free(m);
    }
}

static const struct length_case pictures[] = {
    {GOLDEN "image-aft-simple", 1u << 12, 1u << 16, 0, 0.0f}, {GOLDEN "conv-heads8-k5", 1u << 12, 1u << 16, 0, 0.0f},
    {GOLDEN "conv-heads32-k11", 1u << 12, 1u << 16, 0, 0.0f}, {ODD "conv-dim24-sparse", 1u << 12, 1u << 16, 0, 0.0f},
    {ODD "conv-dim24-extreme", 1u << 10, 1u << 12, 0, 0.0f},
};

static void classify_picture(float *out, struct engine *e, const struct model *m, uint32_t down, uint32_t across)
{
    const uint32_t height = down * m->config.patch[0], width = across * m->config.patch[1];
    uint8_t *pixels = malloc((size_t)height * width * 3);
    assert_non_null(pixels);
    memset(pixels, 77, (size_t)height * width * 3);
    engine_pictures_begin(e, (const uint8_t *const[]){pixels}, 1, height, width);
    while (!engine_batch_step(e))
        ;
    memcpy(out, engine_batch_logits(e, 0), m->config.classes * sizeof *out);
    free(pixels);
}

static void a_picture_of_equal_patches_is_one_of_one_patch(void **state)
{
    (void)state;
    const char *isas_here[TABLES];
    for (size_t count = isas_of(isas_here), i = 0; i < sizeof pictures / sizeof pictures[0]; i++) {
        const uint32_t tokens = goes_far() ? pictures[i].far : pictures[i].usual;
        struct model *m = load_longer(&pictures[i], tokens);
        const size_t classes = m->config.classes;
        const uint32_t side = (uint32_t)lrint(sqrt((double)tokens)) - 1; /* a power of two is divided by exactly */
        assert_true(classes <= LABELS_MAX);
        for (size_t a = 0; a < count; a++) {
            struct engine *e = open_engine(m, isas_here[a], tokens);
            float one[LABELS_MAX], all[LABELS_MAX];
            assert_false(engine_info(e)->fixed_size);
            classify_picture(one, e, m, 1, 1);
            classify_picture(all, e, m, side, side);
            double worst = apart(all, one, classes);
            classify_picture(all, e, m, 1, side);
            worst = fmax(worst, apart(all, one, classes));
            expect_small(worst, &pictures[i], isas_here[a], tokens);
            engine_close(e);
        }
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_of_equal_bytes_keeps_its_logits),
        cmocka_unit_test(a_text_of_equal_bytes_is_one_of_one_byte),
        cmocka_unit_test(a_picture_of_equal_patches_is_one_of_one_patch),
    };
    return cmocka_run_group_tests_name("length", tests, announce, NULL);
}
