/* test_aft_conv.c - the kernels of AFT-conv, in every instruction set that this machine runs, against their plain
 * twin (plain.h), position by position. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/engine/mixers/kernels.h"
#include "tests/engine/mixers/plain.h"
#include "tests/support/random.h"

enum way { FACTORED, EXACT, WINDOW }; /* the factors, conv_exact with and without what is outside the window */

enum { ALL_TAPS = 0, NO_TAPS = -1, TOKENS_MAX = 196 };

static const struct {
    const char *name;
    uint32_t height, width, kh, kw, heads, dim;
    enum way way;
    bool gate;
    float key_size, bias_size;
    double tolerance;
    int active; /* how many taps of a head are not 0, anywhere. ALL_TAPS, NO_TAPS */
} conv_cases[] = {
    {"ordinary", 8, 8, 5, 5, 4, 32, FACTORED, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"one head", 4, 6, 3, 3, 1, 20, FACTORED, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"as many heads as channels", 5, 7, 3, 7, 36, 36, FACTORED, false, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"kernel wider than the grid", 4, 3, 15, 15, 4, 16, FACTORED, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"a single token", 1, 1, 5, 5, 2, 16, FACTORED, false, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"1 x 1 kernel", 3, 5, 1, 1, 2, 16, FACTORED, false, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"even kernel", 6, 7, 4, 2, 4, 32, FACTORED, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"rows of several blocks", 3, 33, 3, 5, 4, 32, FACTORED, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"rows of several blocks, even kernel", 2, 17, 2, 6, 16, 16, FACTORED, false, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"even kernel, window only", 6, 7, 2, 4, 4, 32, WINDOW, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"large keys", 8, 8, 5, 5, 4, 32, FACTORED, false, 80.0f, 1.0f, 2e-5, ALL_TAPS},
    {"a large key whose bias is very negative", 8, 8, 5, 5, 4, 32, FACTORED, false, 30.0f, BIAS_FACTORED, 2e-5,
     ALL_TAPS},
    {"exactly", 8, 8, 5, 5, 4, 32, EXACT, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"exactly, kernel wider than the grid", 4, 3, 15, 15, 4, 16, EXACT, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"large keys, extreme biases", 6, 7, 5, 3, 4, 32, EXACT, false, 200.0f, 60.0f, 1e-4, ALL_TAPS},
    {"window only", 6, 6, 3, 3, 4, 32, WINDOW, true, 2.0f, 1.0f, 1e-6, ALL_TAPS},
    {"window only, large keys, extreme biases", 6, 6, 3, 3, 4, 32, WINDOW, false, 200.0f, 60.0f, 1e-4, ALL_TAPS},
    {"one tap a head", 14, 14, 11, 11, 8, 32, FACTORED, true, 2.0f, 2.0f, 1e-6, 1},
    {"one tap a head, many heads", 7, 5, 5, 9, 36, 36, FACTORED, false, 2.0f, 2.0f, 1e-6, 1},
    {"three taps a head, even kernel", 6, 9, 4, 6, 4, 36, FACTORED, false, 2.0f, 2.0f, 1e-6, 3},
    {"one tap a head, kernel wider than the grid", 4, 3, 15, 15, 4, 16, FACTORED, true, 2.0f, 2.0f, 1e-6, 1},
    {"one tap a head, a single token", 1, 1, 5, 5, 2, 16, FACTORED, false, 2.0f, 2.0f, 1e-6, 1},
    {"one tap a head, large keys", 8, 8, 7, 7, 4, 32, FACTORED, false, 30.0f, BIAS_FACTORED, 2e-5, 1},
    {"one tap a head, rows of several blocks", 3, 33, 3, 5, 4, 32, FACTORED, true, 2.0f, 2.0f, 1e-6, 1},
    {"one tap a head, too small for few", 8, 8, 7, 7, 4, 32, FACTORED, true, 2.0f, 4.0f, 1e-6, 1},
    {"no tap counts", 8, 6, 5, 3, 4, 32, FACTORED, false, 2.0f, 2.0f, 1e-6, NO_TAPS},
};

/* One channel of eq. 6 at position p. */
static double plain_conv(const float *k, size_t k_stride, const float *v, size_t v_stride, const float *w, size_t at,
                         size_t p)
{
    const size_t width = conv_cases[at].width, tokens = conv_cases[at].height * width;
    const int kh = (int)conv_cases[at].kh, kw = (int)conv_cases[at].kw;
    double z[TOKENS_MAX];
    for (size_t s = 0; s < tokens; s++) {
        const int dy = (int)(s / width) - (int)(p / width) + kh / 2, dx = (int)(s % width) - (int)(p % width) + kw / 2;
        const bool inside = dy >= 0 && dy < kh && dx >= 0 && dx < kw;
        const double beyond = conv_cases[at].way == WINDOW ? -INFINITY : 0.0;
        z[s] = (double)k[s * k_stride] + (inside ? (double)w[dy * kw + dx] : beyond);
    }
    return plain_mean(z, v, v_stride, tokens);
}

/* One picture with everything that the kernels want beside it. */
struct conv_run {
    struct conv_shape shape;
    float *qkv, *w, *head_taps, *channel_taps, *e, *den, *ev, *num, *y, *scratch;
    uint32_t *head_of, *head_few, *channel_few; /* of few: [columns / LANES, kh * kw + 1], or NULL */
};

static float *floats(size_t n)
{
    float *p = calloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Leave a head's taps as they are, or `active` of them. */
static void thin_out(float *w, uint32_t taps, int active, struct random *rng)
{
    if (active == ALL_TAPS)
        return;
    for (uint32_t left = taps; left > (active == NO_TAPS ? 0 : (uint32_t)active);) {
        float *tap = w + random_below(rng, taps);
        left -= *tap != 0.0f ? 1 : 0;
        *tap = 0.0f;
    }
}

/* Row j of column c in tiles of `rows` rows. */
static size_t tile(size_t rows, size_t j, size_t c)
{
    return (c / LANES * rows + j) * LANES + c % LANES;
}

/* Lists of the taps of LANES columns each that are not exp(0), for kernels that may be summed by them. */
static uint32_t *find_few(const float *tiles, size_t columns, size_t at)
{
    const uint32_t kw = conv_cases[at].kw, taps = conv_cases[at].kh * kw;
    uint32_t *few = calloc(columns / LANES * (taps + 1), sizeof *few);
    assert_non_null(few);
    for (size_t g = 0; g < columns / LANES; g++)
        for (uint32_t j = 0; j < taps; j++) {
            uint32_t *list = few + g * (taps + 1);
            bool any = false;
            for (size_t c = g * LANES; c < (g + 1) * LANES; c++)
                any = any || tiles[tile(taps, j, c)] != 1.0f;
            if (any)
                list[++list[0]] = CONV_TAP(j / kw, j % kw);
        }
    return few;
}

static void conv_run_init(struct conv_run *r, size_t at, struct random *rng)
{
    const uint32_t heads = conv_cases[at].heads, dim = conv_cases[at].dim, taps = conv_cases[at].kh * conv_cases[at].kw;
    struct conv_shape *s = &r->shape;
    *s = (struct conv_shape){.height = conv_cases[at].height,
                             .width = conv_cases[at].width,
                             .kh = conv_cases[at].kh,
                             .kw = conv_cases[at].kw,
                             .heads = (uint32_t)lanes_padded(heads),
                             .channels = (uint32_t)lanes_padded(dim)};
    s->stride = 2 * (size_t)s->channels + s->heads;
    const size_t tokens = (size_t)s->height * s->width;
    s->token = LANES;
    s->group = tokens * LANES;
    r->qkv = floats(tokens * s->stride);
    r->w = floats((size_t)heads * taps);
    r->head_taps = floats((size_t)taps * s->heads);
    r->channel_taps = floats((size_t)taps * s->channels);
    r->e = floats(tokens * s->heads);
    r->den = floats(tokens * s->heads);
    r->ev = floats(tokens * s->channels);
    r->num = floats(tokens * s->channels);
    r->y = floats(tokens * s->channels);
    const size_t window = (tokens + 1) * s->heads, sums = conv_scratch_floats(s->height, s->width);
    r->scratch = floats(window > sums ? window : sums);
    r->head_of = calloc(s->channels, sizeof *r->head_of);
    assert_non_null(r->head_of);
    for (size_t t = 0; t < tokens; t++) {
        float *row = r->qkv + t * s->stride;
        for (size_t c = 0; c < dim; c++) {
            row[c] = random_float(rng, 3.0f);
            row[s->channels + s->heads + c] = random_float(rng, 1.0f);
        }
        for (size_t h = 0; h < heads; h++)
            row[s->channels + h] = random_float(rng, conv_cases[at].key_size);
    }
    for (uint32_t c = 0; c < dim; c++)
        r->head_of[c] = c * heads / dim;
    for (size_t h = 0; h < heads; h++) {
        float *w = r->w + h * taps;
        for (size_t j = 0; j < taps; j++)
            w[j] = random_float(rng, conv_cases[at].bias_size);
        thin_out(w, taps, conv_cases[at].active, rng);
        for (size_t j = 0; j < taps; j++)
            if (conv_cases[at].way == FACTORED)
                r->head_taps[tile(taps, j, h)] = (float)exp((double)w[j]);
            else
                r->head_taps[j * s->heads + h] = w[j];
    }
    for (size_t c = 0; c < s->channels && conv_cases[at].way == FACTORED; c++)
        for (size_t j = 0; j < taps; j++)
            r->channel_taps[tile(taps, j, c)] = r->head_taps[tile(taps, j, r->head_of[c])];
    const bool few = conv_cases[at].active != ALL_TAPS && conv_cases[at].bias_size <= -FEW_LEAST;
    r->head_few = few ? find_few(r->head_taps, s->heads, at) : NULL;
    r->channel_few = few ? find_few(r->channel_taps, s->channels, at) : NULL;
}

static void conv_run_clear(struct conv_run *r)
{
    float *all[] = {r->qkv, r->w, r->head_taps, r->channel_taps, r->e, r->den, r->ev, r->num, r->y, r->scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(r->head_of);
    free(r->head_few);
    free(r->channel_few);
}

static void conv_run_mix(const struct conv_run *r, const struct kernels *kn, size_t at)
{
    const enum way way = conv_cases[at].way;
    const bool gate = conv_cases[at].gate;
    const struct conv_shape *s = &r->shape;
    const float *q = r->qkv, *k = q + s->channels, *v = k + s->heads;
    if (way != FACTORED) {
        for (size_t p = 0; p < (size_t)s->height * s->width; p++)
            mixer_kernels(kn)->conv_exact(r->y, q, k, v, r->head_taps, r->head_of, s, p, gate, way == EXACT,
                                          r->scratch);
        return;
    }
    const size_t taps = (size_t)s->kh * s->kw * LANES, list = (size_t)s->kh * s->kw + 1;
    for (size_t g = 0; g < s->heads / LANES; g++) {
        mixer_kernels(kn)->conv_keys(r->e + g * s->group, k + g * LANES, s);
        mixer_kernels(kn)->conv_sums(r->den + g * s->group, r->e + g * s->group, r->head_taps + g * taps,
                                     r->head_few != NULL ? r->head_few + g * list : NULL, s, r->scratch);
    }
    for (size_t g = 0; g < s->channels / LANES; g++) {
        const size_t c = g * LANES;
        mixer_kernels(kn)->conv_values(r->ev, r->e, v + c, r->head_of + c, s);
        mixer_kernels(kn)->conv_sums(r->num, r->ev, r->channel_taps + g * taps,
                                     r->channel_few != NULL ? r->channel_few + g * list : NULL, s, r->scratch);
        mixer_kernels(kn)->conv_finish(r->y + c, q + c, r->num, r->den, r->head_of + c, s, gate);
    }
}

/* What was mixed is what equation 6 says. */
static void expect_equation_6(const struct conv_run *r, size_t at, const char *what)
{
    const struct conv_shape *s = &r->shape;
    const float *k = r->qkv + s->channels, *v = k + s->heads;
    for (size_t p = 0; p < (size_t)s->height * s->width; p++)
        for (size_t c = 0; c < conv_cases[at].dim; c++) {
            const size_t head = c * conv_cases[at].heads / conv_cases[at].dim;
            const double mean = plain_conv(k + head, s->stride, v + c, s->stride, r->w + head * s->kh * s->kw, at, p);
            const double q = (double)r->qkv[p * s->stride + c];
            const double want = conv_cases[at].gate ? mean * plain_sigmoid(q) : mean;
            const double got = (double)r->y[p * s->channels + c];
            if (!(fabs(got - want) <= conv_cases[at].tolerance))
                fail_msg("%s, %s: position %zu channel %zu is %g, expected %g", what, conv_cases[at].name, p, c, got,
                         want);
        }
}

static void conv_agrees_with_equation_6(void **state)
{
    (void)state;
    struct random rng = {5};
    const struct kernels *tables[TABLES];
    for (size_t n = runnable(tables), a = 0; a < n; a++)
        for (size_t i = 0; i < sizeof conv_cases / sizeof conv_cases[0]; i++)
            for (int repeat = 0; repeat < 5; repeat++) {
                struct conv_run r;
                conv_run_init(&r, i, &rng);
                conv_run_mix(&r, tables[a], i);
                expect_equation_6(&r, i, tables[a]->isa);
                conv_run_clear(&r);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_agrees_with_equation_6),
    };
    return cmocka_run_group_tests_name("kernels of AFT-conv", tests, NULL, NULL);
}
