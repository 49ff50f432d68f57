/* test_synthetic.c - models made in memory: their sizes are the papers', their weights always the same, and what the
 * engine makes of them is ordinary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "weights/synthetic.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    double gmacs;     /* of a picture, or of a thousand bytes, in linear layers */
    double megabytes; /* of weights in the engine */
} models[] = {
    {"aft-conv-small-224", 4.22, 90.0},
    {"aft-local-24x256", 18.9, 76.0},
    {"aft-local-12x512", 37.9, 152.0},
};

static struct model *make(const char *name)
{
    struct model *m = NULL;
    struct error err;
    if (synthetic_model(&m, name, &err) != OK)
        fail_msg("%s: %s", name, err.message);
    return m;
}

static void expect_ordinary(const char *name, const float *logits, size_t n)
{
    double squares = 0.0;
    for (size_t i = 0; i < n; i++)
        squares += (double)logits[i] * (double)logits[i];
    const double size = sqrt(squares / (double)n);
    if (!(size > 0.1 && size < 10.0)) /* false for a NaN */
        fail_msg("%s: logits of about %g", name, size);
}

static void run_picture(const char *name, struct engine *e, const struct model_config *c)
{
    const size_t size = (size_t)3 * c->size[0] * c->size[1];
    uint8_t *pixels = malloc(size);
    assert_non_null(pixels);
    for (size_t i = 0; i < size; i++)
        pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    engine_pictures_begin(e, (const uint8_t *const[]){pixels}, 1, c->size[0], c->size[1]);
    while (!engine_batch_step(e))
        ;
    expect_ordinary(name, engine_batch_logits(e, 0), c->classes);
    free(pixels);
}

/* More bytes than the window. */
static void run_text(const char *name, struct engine *e)
{
    uint8_t bytes[48];
    float logits[BYTE_VALUES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    engine_feed(e, &(struct engine_part){.stream = 0, .count = sizeof bytes, .bytes = bytes, .logits = logits}, 1);
    expect_ordinary(name, logits, BYTE_VALUES);
}

static void models_have_their_size_and_ordinary_values(void **state)
{
    (void)state;
    const struct engine_options options = {.threads = 2, .pictures_max = 1, .streams_max = 1, .rows_max = 48};
    for (size_t i = 0; i < LENGTH(models); i++) {
        struct model *m = make(models[i].name);
        struct engine *e = NULL;
        struct error err;
        const bool text = model_config_causal(&m->config);
        assert_true(synthetic_has(models[i].name));
        assert_string_equal(m->name, models[i].name);
        if (engine_open(&e, m, &options, &err) != OK)
            fail_msg("%s: %s", models[i].name, err.message);
        const struct engine_info *info = engine_info(e);
        const double gmacs = (double)info->macs / (text ? 1e6 : 1e9);
        if (fabs(gmacs / models[i].gmacs - 1.0) > 0.01 ||
            fabs((double)info->weight_bytes / 1e6 / models[i].megabytes - 1.0) > 0.05)
            fail_msg("%s: %g GMAC, %llu bytes of weights", models[i].name, gmacs,
                     (unsigned long long)info->weight_bytes);
        if (text)
            run_text(models[i].name, e);
        else
            run_picture(models[i].name, e, &m->config);
        engine_close(e);
        model_free(m);
    }
}

static void weights_are_always_the_same(void **state)
{
    (void)state;
    struct model *a = make("aft-local-24x256"), *b = make("aft-local-24x256");
    assert_ptr_not_equal(a->arena, b->arena);
    assert_memory_equal(a->tok_embed, b->tok_embed, sizeof(float) * BYTE_VALUES * a->config.dim);
    assert_memory_equal(a->head.weight.data, b->head.weight.data, a->head.weight.bytes);
    assert_true(a->parameters * sizeof(float) <= a->arena_bytes);
    model_free(a);
    model_free(b);
}

static void no_bias_leads_before_the_first_byte(void **state)
{
    (void)state;
    struct model *m = make("aft-local-12x512");
    const float *band = m->blocks[m->config.depth - 1].biases;
    const uint32_t span = model_config_span(&m->config);
    assert_int_equal(span, 32);
    for (uint32_t t = 0; t < span; t++)
        for (uint32_t lag = 0; lag < span; lag++)
            assert_true((band[t * span + lag] == 0.0f) == (lag > t));
    model_free(m);
}

static void an_unknown_name_is_answered_with_the_known_ones(void **state)
{
    (void)state;
    struct model *m = NULL;
    struct error err;
    assert_false(synthetic_has("aft-local"));
    assert_int_equal(synthetic_model(&m, "aft-local", &err), ERR_ARGUMENT);
    assert_null(m);
    assert_string_equal(err.message, "unknown synthetic model \"aft-local\"; expected one of aft-conv-small-224, "
                                     "aft-local-24x256, aft-local-12x512");
    assert_string_equal(synthetic_names(), "aft-conv-small-224, aft-local-24x256, aft-local-12x512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_size_and_ordinary_values),
        cmocka_unit_test(weights_are_always_the_same),
        cmocka_unit_test(no_bias_leads_before_the_first_byte),
        cmocka_unit_test(an_unknown_name_is_answered_with_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
