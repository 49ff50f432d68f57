/* test_fold.c - the folded kernels and bands against plain double loops over the files' tensors, and the position
 * biases that are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/model_copy.h"
#include "tests/support/temp_dir.h"
#include "weights/model.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char folder[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(folder);
    return 0;
}

static struct model *load(const char *path)
{
    struct model *m = NULL;
    struct error err = {.message = ""};

    if (model_load(&m, path, NULL, NULL, &err) != OK)
        fail_msg("%s: %s", path, err.message);
    return m;
}

static void expect_refusal(const struct model_copy *c, const char *param, const char *piece)
{
    struct model *m = NULL;
    struct error err = {.message = ""};

    model_copy_write(c, folder);
    const enum status st = model_load(&m, folder, NULL, NULL, &err);
    if (st != ERR_FORMAT || strstr(err.message, piece) == NULL || strcmp(err.param, param) != 0)
        fail_msg("%s \"%s\", expected \"%s\"", status_name(st), err.message, piece);
}

/* "blocks.B.mixer.NAME" of the original as float32; free it. */
static float *widen(struct model_copy *c, uint32_t block, const char *name)
{
    char full[TENSOR_NAME_MAX];

    (void)snprintf(full, sizeof full, "blocks.%u.mixer.%s", block, name);
    const struct tensor *t = model_copy_tensor(c, full);
    float *out = malloc(t->elements * sizeof *out);
    assert_non_null(out);
    assert_int_equal(tensor_to_f32(t, 0, t->elements, out, NULL), OK);
    return out;
}

static void assert_close(float got, double want)
{
    if (!(fabs(got - want) <= 1e-7 * (1.0 + fabs(want))))
        fail_msg("got %.9g, expected %.9g", (double)got, want);
}

/* ---- aft-conv --------------------------------------------------------------------------------------------------- */

static void kernels_are_reparameterised_as_the_equation_says(void **state)
{
    static const char *const folders[] = {"tests/data/golden/conv-heads8-k5", "tests/data/golden/conv-k3x7-oblong",
                                          "tests/data/golden/conv-heads32-k11", "weights/models/cifar10-aft-conv"};

    (void)state;
    for (size_t f = 0; f < LENGTH(folders); f++) {
        struct model_copy c;
        struct model *m = load(folders[f]);
        const uint32_t taps = m->config.mixer.kernel[0] * m->config.mixer.kernel[1];
        model_copy_read(&c, folders[f]);
        for (uint32_t b = 0; b < m->config.depth; b++) {
            float *r = widen(&c, b, "conv.weight"), *gain = widen(&c, b, "conv.gain"),
                  *bias = widen(&c, b, "conv.bias");
            for (uint32_t h = 0; h < m->config.mixer.heads; h++) {
                const float *head = r + (size_t)h * taps;
                double mean = 0.0, variance = 0.0;
                for (uint32_t i = 0; i < taps; i++)
                    mean += (double)head[i] / taps;
                for (uint32_t i = 0; i < taps; i++)
                    variance += pow(head[i] - mean, 2.0) / (taps - 1);
                for (uint32_t i = 0; i < taps; i++)
                    assert_close(m->blocks[b].biases[(size_t)h * taps + i],
                                 gain[h] * (head[i] - mean) / sqrt(variance) + bias[h]);
            }
            free(r);
            free(gain);
            free(bias);
        }
        model_copy_clear(&c);
        model_free(m);
    }
}

static void kernels_without_gain_stay_as_they_are(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads1-k3-raw");
    struct model *m = load("tests/data/golden/conv-heads1-k3-raw");
    assert_memory_equal(m->blocks[1].biases, model_copy_tensor(&c, "blocks.1.mixer.conv.weight")->data,
                        sizeof(float) * 9);
    model_free(m);
    model_copy_clear(&c);
}

/* A kernel [1, 3, 3] for block 1 of the one-head model. */
static void set_kernel(struct model_copy *c, const float *taps)
{
    model_copy_tensor(c, "blocks.1.mixer.conv.weight")->data = (const uint8_t *)taps;
}

static void kernel_biases_beyond_60_are_refused(void **state)
{
    static const float edge[9] = {60.0f, -60.0f}, above[9] = {[5] = 60.01f}, below[9] = {[2] = -61.0f};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads1-k3-raw");
    set_kernel(&c, edge);
    model_copy_write(&c, folder);
    model_free(load(folder));
    set_kernel(&c, above);
    expect_refusal(&c, "blocks.1.mixer.conv.weight",
                   "the position bias of head 0 at tap [1, 2] is 60.01, expected -60..60");
    set_kernel(&c, below);
    expect_refusal(&c, "blocks.1.mixer.conv.weight", "at tap [0, 2] is -61");
    model_copy_clear(&c);
}

static void a_gain_is_judged_by_the_folded_kernel(void **state)
{
    /* mean 0, sum of squares 8 over n - 1 = 8: std 1, so the gain is the largest bias. */
    static const float spread[9] = {2.0f, -2.0f}, small[1] = {29.0f}, large[1] = {31.0f}, zero[1] = {0.0f};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads1-k3-raw");
    set_kernel(&c, spread);
    model_copy_set(&c, "blocks.1.mixer.conv.gain", small, 1, 0);
    model_copy_set(&c, "blocks.1.mixer.conv.bias", zero, 1, 0);
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    assert_close(m->blocks[1].biases[0], 58.0);
    assert_close(m->blocks[1].biases[1], -58.0);
    assert_close(m->blocks[1].biases[2], 0.0);
    model_free(m);
    model_copy_set(&c, "blocks.1.mixer.conv.gain", large, 1, 0);
    expect_refusal(&c, "blocks.1.mixer.conv.weight",
                   "at tap [0, 0] is 62 after conv.gain and conv.bias, expected -60..60");
    model_copy_clear(&c);
}

static void a_gain_needs_a_kernel_with_spread(void **state)
{
    static const float flat[9] = {0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f}, one[1] = {1.0f};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads1-k3-raw");
    set_kernel(&c, flat);
    model_copy_write(&c, folder);
    model_free(load(folder)); /* a flat kernel alone is fine */
    model_copy_set(&c, "blocks.1.mixer.conv.gain", one, 1, 0);
    model_copy_set(&c, "blocks.1.mixer.conv.bias", one, 1, 0);
    expect_refusal(&c, "blocks.1.mixer.conv.gain",
                   "head 0 of blocks.1.mixer.conv.weight has none: all its taps are equal");
    model_copy_clear(&c);
}

static void a_gain_needs_two_taps(void **state)
{
    static const float one[1] = {1.0f};
    static const char *const kernels[] = {"blocks.0.mixer.conv.weight", "blocks.1.mixer.conv.weight"};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/conv-heads1-k3-raw");
    assert_int_equal(json_object_set_new(json_object_get(c.config, "mixer"), "kernel", json_integer(1)), 0);
    for (size_t i = 0; i < LENGTH(kernels); i++) {
        struct tensor *t = model_copy_tensor(&c, kernels[i]);
        t->shape[1] = t->shape[2] = 1;
        t->bytes = sizeof(float);
    }
    model_copy_write(&c, folder);
    model_free(load(folder));
    model_copy_set(&c, "blocks.0.mixer.conv.gain", one, 1, 0);
    model_copy_set(&c, "blocks.0.mixer.conv.bias", one, 1, 0);
    expect_refusal(&c, "blocks.0.mixer.conv.gain", "it is a single tap, expected at least 2 different taps");
    model_copy_clear(&c);
}

/* ---- aft-local -------------------------------------------------------------------------------------------------- */

/* w(t, t - lag) straight from the tensors. */
static double bias_of(const float *u, const float *v, uint32_t factors, uint32_t t, uint32_t other)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < factors; i++)
        sum += (double)u[(size_t)t * factors + i] * (double)v[(size_t)other * factors + i];
    return sum;
}

static void bands_are_the_product_of_the_factors(void **state)
{
    static const struct {
        const char *folder;
        uint32_t factors, span;
    } rows[] = {
        {"tests/data/golden/lm-local-1", 8, 1},
        {"tests/data/golden/lm-local-8", 8, 8},
        {"tests/data/golden/lm-local-past-context", 8, 48},
        {"tests/data/models/enwik8-aft-local", 64, 32},
    };

    (void)state;
    for (size_t r = 0; r < LENGTH(rows); r++) {
        struct model_copy c;
        struct model *m = load(rows[r].folder);
        model_copy_read(&c, rows[r].folder);
        assert_int_equal(model_config_span(&m->config), rows[r].span);
        for (uint32_t b = 0; b < m->config.depth; b++) {
            float *u = widen(&c, b, "pos_u"), *v = widen(&c, b, "pos_v");
            for (uint32_t t = 0; t < m->config.context; t++) {
                for (uint32_t lag = 0; lag < rows[r].span; lag++)
                    assert_close(m->blocks[b].biases[(size_t)t * rows[r].span + lag],
                                 lag > t ? 0.0 : bias_of(u, v, rows[r].factors, t, t - lag));
            }
            free(u);
            free(v);
        }
        model_copy_clear(&c);
        model_free(m);
    }
}

static void bands_are_cut_from_a_plain_matrix(void **state)
{
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-plain-bias");
    struct model *m = load("tests/data/golden/lm-local-plain-bias");
    for (uint32_t b = 0; b < 2; b++) {
        float *w = widen(&c, b, "pos_bias");
        for (uint32_t t = 0; t < 48; t++) {
            for (uint32_t lag = 0; lag < 8; lag++) {
                const float want = lag > t ? 0.0f : w[(size_t)t * 48 + t - lag];
                assert_true(m->blocks[b].biases[(size_t)t * 8 + lag] == want);
            }
        }
        free(w);
    }
    model_free(m);
    model_copy_clear(&c);
}

/* Only what a causal model of this window reads is judged. */
static void matrix_biases_beyond_60_are_refused_where_they_are_read(void **state)
{
    static const struct {
        uint32_t t, other;
        bool is_read;
    } places[] = {{0, 0, true}, {47, 40, true}, {47, 47, true}, {47, 39, false}, {47, 0, false}, {0, 47, false}};
    static float w[48 * 48];
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-plain-bias");
    model_copy_set(&c, "blocks.1.mixer.pos_bias", w, 48, 48);
    for (size_t i = 0; i < LENGTH(places); i++) {
        char piece[64];
        float *place = &w[(size_t)places[i].t * 48 + places[i].other];
        (void)snprintf(piece, sizeof piece, "the position bias at [%u, %u] is -60.5", places[i].t, places[i].other);
        *place = -60.5f;
        if (places[i].is_read)
            expect_refusal(&c, "blocks.1.mixer.pos_bias", piece);
        *place = places[i].is_read ? 60.0f : -60.5f;
        model_copy_write(&c, folder);
        model_free(load(folder));
        *place = 0.0f;
    }
    model_copy_clear(&c);
}

static void factors_are_judged_by_their_products(void **state)
{
    static float u[48 * 8], v[48 * 8];
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/lm-local-8");
    model_copy_set(&c, "blocks.0.mixer.pos_u", u, 48, 8);
    model_copy_set(&c, "blocks.0.mixer.pos_v", v, 48, 8);
    /* Long rows at a right angle: their product is 0 though the product of their lengths is 1e6. */
    for (size_t t = 0; t < 48; t++) {
        u[t * 8] = 1000.0f;
        v[t * 8 + 1] = 1000.0f;
    }
    model_copy_write(&c, folder);
    struct model *m = load(folder);
    for (size_t i = 0; i < 48u; i++)
        assert_true(m->blocks[0].biases[i * 8] == 0.0f);
    model_free(m);
    float *later = &v[(size_t)40 * 8]; /* the query at 47 sees it, and those before 40 do not */
    *later = 0.0625f;
    expect_refusal(&c, "blocks.0.mixer.pos_u",
                   "blocks.0.mixer.pos_u times pos_v: the position bias at [40, 40] is 62.5");
    *later = 0.059f;
    model_copy_write(&c, folder);
    model_free(load(folder));
    model_copy_clear(&c);
}

/* A classifier reads all of the window, on both sides of a position. */
static void pairs_of_a_classifier_are_judged_within_the_window(void **state)
{
    enum { TOKENS = 64, FACTORS = 8, WINDOW = 5 };
    static float u[TOKENS * FACTORS], v[TOKENS * FACTORS];
    static const struct {
        uint32_t t, other;
        bool is_read;
    } places[] = {{0, WINDOW - 1, true}, {WINDOW - 1, 0, true}, {0, WINDOW, false}, {WINDOW, 0, false}};
    struct model_copy c;

    (void)state;
    model_copy_read(&c, "tests/data/golden/image-aft-local");
    model_copy_set(&c, "blocks.0.mixer.pos_u", u, TOKENS, FACTORS);
    model_copy_set(&c, "blocks.0.mixer.pos_v", v, TOKENS, FACTORS);
    for (size_t i = 0; i < LENGTH(places); i++) {
        float *one = &u[(size_t)places[i].t * FACTORS], *other = &v[(size_t)places[i].other * FACTORS];
        *one = 1.0f;
        *other = 61.0f;
        if (places[i].is_read) {
            expect_refusal(&c, "blocks.0.mixer.pos_u", "is 61, expected -60..60");
        } else {
            model_copy_write(&c, folder);
            model_free(load(folder));
        }
        *one = *other = 0.0f;
    }
    model_copy_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_reparameterised_as_the_equation_says),
        cmocka_unit_test(kernels_without_gain_stay_as_they_are),
        cmocka_unit_test(kernel_biases_beyond_60_are_refused),
        cmocka_unit_test(a_gain_is_judged_by_the_folded_kernel),
        cmocka_unit_test(a_gain_needs_a_kernel_with_spread),
        cmocka_unit_test(a_gain_needs_two_taps),
        cmocka_unit_test(bands_are_the_product_of_the_factors),
        cmocka_unit_test(bands_are_cut_from_a_plain_matrix),
        cmocka_unit_test(matrix_biases_beyond_60_are_refused_where_they_are_read),
        cmocka_unit_test(factors_are_judged_by_their_products),
        cmocka_unit_test(pairs_of_a_classifier_are_judged_within_the_window),
    };

    return cmocka_run_group_tests_name("fold", tests, setup, temp_dirs_end);
}
