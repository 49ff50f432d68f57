/* test_explain.c - maps and position biases of an engine, against the model's own tensors: the first block's keys are
 * computed here once more, in double, the plain way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "tests/support/linear_floats.h"
#include "tests/support/random.h"

#define GOLDEN "tests/data/golden/"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { PIXELS_MAX = 32 * 32 * 3, TOKENS_MAX = 65, DIM_MAX = 64, TILE_MAX = 121, PICTURES = 4 };

static struct model *load(const char *dir)
{
    struct model *m = NULL;
    struct error err;
    if (model_load(&m, dir, NULL, NULL, &err) != OK)
        fail_msg("%s", err.message);
    return m;
}

static struct engine *open_engine(const struct model *m)
{
    struct engine *e = NULL;
    struct error err;
    const struct engine_options o = {.threads = 2, .pictures_max = PICTURES, .streams_max = 1, .rows_max = 1};
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

static void draw_pictures(uint8_t pictures[PICTURES][PIXELS_MAX], struct random *rng)
{
    for (size_t p = 0; p < PICTURES; p++)
        for (size_t i = 0; i < PIXELS_MAX; i++)
            pictures[p][i] = (uint8_t)random_below(rng, 256);
}

/* ---- the first block's keys ------------------------------------------------------------------------------------ */

static double embed(const struct model *m, const float *weight, const uint8_t *pixels, size_t patch, size_t channel)
{
    const struct model_config *c = &m->config;
    const size_t ph = c->patch[0], pw = c->patch[1], across = c->size[1] / pw;
    const float *w = weight + channel * m->patch_embed.in;
    double sum = m->patch_embed.bias != NULL ? (double)m->patch_embed.bias[channel] : 0.0;
    for (size_t rgb = 0; rgb < 3; rgb++)
        for (size_t y = 0; y < ph; y++)
            for (size_t x = 0; x < pw; x++) {
                const size_t at = (patch / across * ph + y) * c->size[1] + patch % across * pw + x;
                sum += (double)*w++ * (pixels[at * 3 + rgb] / 255.0 - (double)c->mean[rgb]) / (double)c->std[rgb];
            }
    return sum;
}

/* keys [tokens, k.out]; returns the tokens, the class token first if there is one. */
static size_t compute_keys(const struct model *m, const uint8_t *pixels, double *keys)
{
    const struct model_config *c = &m->config;
    const struct block_weights *b = &m->blocks[0];
    const size_t tokens = model_config_tokens(c), before = m->cls_token != NULL ? 1 : 0;
    float *patches = linear_floats(&m->patch_embed), *key = linear_floats(&b->k);
    assert_true(tokens <= TOKENS_MAX && c->dim <= DIM_MAX);
    for (size_t t = 0; t < tokens; t++) {
        double x[DIM_MAX], mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < c->dim; i++) {
            x[i] = t < before ? (double)m->cls_token[i] : embed(m, patches, pixels, t - before, i);
            x[i] += m->pos_embed != NULL ? (double)m->pos_embed[t * c->dim + i] : 0.0;
            mean += x[i] / c->dim;
        }
        for (size_t i = 0; i < c->dim; i++)
            variance += (x[i] - mean) * (x[i] - mean) / c->dim;
        for (size_t i = 0; i < c->dim; i++)
            x[i] = (double)b->norm1.weight[i] * (x[i] - mean) / sqrt(variance + (double)c->norm_eps) +
                   (double)b->norm1.bias[i];
        for (size_t k = 0; k < b->k.out; k++) {
            double sum = b->k.bias != NULL ? (double)b->k.bias[k] : 0.0;
            for (size_t i = 0; i < c->dim; i++)
                sum += (double)key[k * c->dim + i] * x[i];
            keys[t * b->k.out + k] = sum;
        }
    }
    free(patches);
    free(key);
    return tokens;
}

/* map [patches] of keys [tokens, n], columns begin to end of them. */
static void expect_map(const struct model *m, const double *keys, size_t tokens, size_t begin, size_t end, double *map)
{
    const size_t n = m->blocks[0].k.out, before = m->cls_token != NULL ? 1 : 0;
    double least = HUGE_VAL, most = 0.0;
    for (size_t t = before; t < tokens; t++)
        map[t - before] = 0.0;
    for (size_t k = begin; k < end; k++) {
        double largest = -HUGE_VAL, norm = 0.0;
        for (size_t t = 0; t < tokens; t++)
            norm += fabs(keys[t * n + k]);
        for (size_t t = before; t < tokens; t++)
            largest = fmax(largest, keys[t * n + k]);
        for (size_t t = before; t < tokens; t++) {
            const double key = keys[t * n + k], x = m->config.mixer.type == MIXER_SIMA ? key / norm : key;
            map[t - before] +=
                model_config_scalar_keys(&m->config) ? exp(key - largest) / (double)(end - begin) : x * x;
        }
    }
    if (model_config_scalar_keys(&m->config))
        return;
    for (size_t t = 0; t < tokens - before; t++) {
        map[t] = sqrt(map[t]);
        least = fmin(least, map[t]);
        most = fmax(most, map[t]);
    }
    for (size_t t = 0; t < tokens - before; t++)
        map[t] = (map[t] - least) / (most - least);
}

static void maps_are_what_the_keys_say(void **state)
{
    static const char *const dirs[] = {GOLDEN "conv-heads8-k5",   GOLDEN "conv-k3x7-oblong",
                                       GOLDEN "conv-local-only",  GOLDEN "image-aft-full-class-token",
                                       GOLDEN "image-aft-simple", GOLDEN "image-sima",
                                       GOLDEN "image-sima-wide",  GOLDEN "image-attention"};
    static uint8_t pictures[PICTURES][PIXELS_MAX];
    static double keys[TOKENS_MAX * DIM_MAX];
    const uint8_t *const batch[PICTURES] = {pictures[0], pictures[1], pictures[2], pictures[3]};
    struct random rng = {.state = 5};
    double map[TOKENS_MAX];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        struct model *m = load(dirs[i]);
        struct engine *e = open_engine(m);
        const struct model_config *c = &m->config;
        float maps[PICTURES][TOKENS_MAX];
        struct engine_map wanted[PICTURES] = {{.heads = 1},
                                              {.head = engine_heads(e) - 1, .heads = 1},
                                              {.heads = 0},
                                              {.heads = 1}}; /* the last is taken back */
        draw_pictures(pictures, &rng);
        engine_pictures_begin(e, batch, PICTURES, c->size[0], c->size[1]);
        for (size_t p = 0; p < PICTURES; p++) {
            wanted[p].layers = 1;
            wanted[p].out = maps[p];
            engine_batch_want_map(e, p, &wanted[p]);
        }
        engine_batch_want_map(e, PICTURES - 1, NULL);
        memset(maps[PICTURES - 1], 0, sizeof maps[0]);
        while (!engine_batch_step(e))
            ;
        for (size_t p = 0; p + 1 < PICTURES; p++) {
            const size_t tokens = compute_keys(m, pictures[p], keys), before = m->cls_token != NULL ? 1 : 0;
            const size_t width = m->blocks[0].k.out / engine_heads(e);
            const size_t begin = wanted[p].head * width, end = begin + wanted[p].heads * width;
            expect_map(m, keys, tokens, begin, wanted[p].heads == 0 ? m->blocks[0].k.out : end, map);
            for (size_t t = 0; t < tokens - before; t++) {
                const double got = (double)maps[p][t];
                if (!(fabs(got - map[t]) < 1e-4 && got >= 0.0 && got <= 1.0))
                    fail_msg("%s, picture %zu, patch %zu: %g, expected %g", dirs[i], p, t, got, map[t]);
            }
        }
        for (size_t t = 0; t < TOKENS_MAX; t++)
            assert_true(maps[PICTURES - 1][t] == 0.0f);
        engine_close(e);
        model_free(m);
    }
}

/* Of several layers and heads at once each map is the one that it is alone. */
static void maps_are_the_same_side_by_side(void **state)
{
    enum { LAYERS = 2, HEADS_MAX = 32 };
    static const char *const dirs[] = {GOLDEN "conv-heads8-k5", GOLDEN "image-aft-full-class-token",
                                       GOLDEN "image-sima"};
    static uint8_t pictures[PICTURES][PIXELS_MAX];
    static float sheet[LAYERS * HEADS_MAX * TOKENS_MAX], one[TOKENS_MAX];
    struct random rng = {.state = 9};
    (void)state;
    draw_pictures(pictures, &rng);
    for (size_t i = 0; i < 2 * ARRAY_LEN(dirs); i++) {
        struct model *m = load(dirs[i / 2]);
        struct engine *e = open_engine(m);
        const uint32_t heads = engine_heads(e), patches = 64;
        const bool queries = i % 2 == 1 && !model_config_scalar_keys(&m->config);
        const uint8_t *const batch[] = {pictures[0]};
        engine_pictures_begin(e, batch, 1, 32, 32);
        engine_batch_want_map(e, 0,
                              &(struct engine_map){.layers = LAYERS, .heads = heads, .queries = queries, .out = sheet});
        while (!engine_batch_step(e))
            ;
        for (uint32_t at = 0; at < LAYERS * heads; at++) {
            engine_pictures_begin(e, batch, 1, 32, 32);
            engine_batch_want_map(
                e, 0,
                &(struct engine_map){
                    .layer = at / heads, .layers = 1, .head = at % heads, .heads = 1, .queries = queries, .out = one});
            while (!engine_batch_step(e))
                ;
            assert_memory_equal(one, sheet + (size_t)at * patches, patches * sizeof *one);
        }
        engine_close(e);
        model_free(m);
    }
}

static void a_map_changes_nothing_else(void **state)
{
    static uint8_t pictures[PICTURES][PIXELS_MAX];
    const uint8_t *const batch[2] = {pictures[0], pictures[1]};
    struct random rng = {.state = 6};
    (void)state;
    struct model *m = load(GOLDEN "image-sima");
    struct engine *e = open_engine(m);
    const size_t size = m->config.classes * sizeof(float);
    float before[2][16], map[2][TOKENS_MAX], first[TOKENS_MAX];
    draw_pictures(pictures, &rng);
    for (uint32_t map_requests = 0; map_requests <= 2; map_requests++) {
        engine_pictures_begin(e, batch, 2, 32, 32);
        for (uint32_t i = 0; i < map_requests; i++)
            engine_batch_want_map(e, i,
                                  &(struct engine_map){.layer = 1, .layers = 1, .head = 2, .heads = 1, .out = map[i]});
        while (!engine_batch_step(e))
            ;
        for (size_t i = 0; i < 2; i++) {
            if (map_requests > 0)
                assert_memory_equal(engine_batch_logits(e, i), before[i], size);
            memcpy(before[i], engine_batch_logits(e, i), size);
        }
        if (map_requests == 2) /* company does not change it either */
            assert_memory_equal(first, map[0], 64 * sizeof(float));
        if (map_requests > 0)
            memcpy(first, map[0], 64 * sizeof(float));
    }
    engine_close(e);
    model_free(m);
}

/* ---- biases ---------------------------------------------------------------------------------------------------- */

/* w of a tile's cell as the model has it. */
static double bias_of(const struct model *m, const struct engine_biases *s, uint32_t layer, uint32_t head, size_t cell)
{
    const struct block_weights *b = &m->blocks[layer];
    const size_t tokens = model_config_tokens(&m->config), before = m->cls_token != NULL ? 1 : 0;
    if (m->config.mixer.type == MIXER_AFT_CONV)
        return (double)b->biases[(size_t)head * s->height * s->width + cell];
    if (model_config_causal(&m->config))
        return (double)b->biases[tokens * s->width - 1 - cell];
    return (double)b->biases[(before + head) * tokens + before + cell];
}

static void biases_are_the_models(void **state)
{
    static const struct {
        const char *dir;
        uint32_t heads, height, width;
    } cases[] = {
        {GOLDEN "conv-heads8-k5", 8, 5, 5},
        {GOLDEN "conv-k3x7-oblong", 4, 3, 7},
        {GOLDEN "conv-heads32-k11", 32, 11, 11},
        {GOLDEN "conv-cancelling", 8, 5, 5},
        {GOLDEN "conv-local-only", 4, 3, 3},
        {GOLDEN "lm-conv-heads4-k5", 4, 1, 5},
        {GOLDEN "image-aft-full-class-token", 1, 8, 8},
        {GOLDEN "image-aft-local", 1, 8, 8},
        {GOLDEN "lm-local-8", 1, 1, 8},
        {GOLDEN "lm-local-past-context", 1, 1, 48},
        {GOLDEN "lm-local-no-global", 1, 1, 8},
        {GOLDEN "lm-full", 1, 1, 48},
        {GOLDEN "image-aft-simple", 0, 0, 0},
        {GOLDEN "image-sima", 0, 0, 0},
        {GOLDEN "text-attention", 0, 0, 0},
    };
    float tile[TILE_MAX];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct model *m = load(cases[i].dir);
        struct engine *e = open_engine(m);
        const struct engine_biases s = engine_biases_shape(e);
        if (s.heads != cases[i].heads || s.height != cases[i].height || s.width != cases[i].width)
            fail_msg("%s: %u tiles of %u x %u", cases[i].dir, s.heads, s.height, s.width);
        for (uint32_t layer = 0; layer < s.layers; layer++)
            for (uint32_t head = 0; head < (s.by_position ? s.height * s.width : s.heads); head++) {
                engine_biases_read(e, layer, head, tile);
                for (size_t cell = 0; cell < (size_t)s.height * s.width; cell++) {
                    const double want = exp(bias_of(m, &s, layer, head, cell)) - 1.0;
                    if (!(fabs((double)tile[cell] - want) <= 1e-5 * (1.0 + fabs(want))))
                        fail_msg("%s, layer %u, head %u, cell %zu: %g, expected %g", cases[i].dir, layer, head, cell,
                                 (double)tile[cell], want);
                }
            }
        engine_close(e);
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_what_the_keys_say),
        cmocka_unit_test(maps_are_the_same_side_by_side),
        cmocka_unit_test(a_map_changes_nothing_else),
        cmocka_unit_test(biases_are_the_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
