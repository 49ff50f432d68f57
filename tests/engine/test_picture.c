/* test_picture.c - the resize against what Pillow made of the same pictures, byte for byte, and against a twin in plain
 * double precision; the crop's geometry; and that thin pictures cost no more than they hold. */
#include "engine/picture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "config/limits.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct resize_case {
    const char *name;
    uint32_t width, height, resize_to, crop_width, crop_height;
    enum interpolation how;
    uint32_t seed, crc32;
} cases[] = {
#include "tests/data/images/resize_cases.inc"
};

/* The same pictures as make_resize_cases.py computes. */
static struct picture picture_of_noise(uint32_t width, uint32_t height, uint32_t seed)
{
    const size_t size = (size_t)width * height * 3;
    struct picture p = {.pixels = malloc(size), .width = width, .height = height};
    assert_non_null(p.pixels);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        p.pixels[i] = (uint8_t)(seed >> 24);
    }
    return p;
}

static uint32_t crc32_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

/* picture_prepare into a fresh buffer that is not black beforehand. */
static uint8_t *prepare(const struct picture *in, uint32_t width, uint32_t height, uint32_t resize_to,
                        enum interpolation how)
{
    const size_t size = (size_t)width * height * 3;
    uint8_t *out = malloc(size);
    assert_non_null(out);
    memset(out, 0xa5, size);
    assert_int_equal(picture_prepare(out, width, height, in, resize_to, how, NULL), OK);
    return out;
}

static void every_case_equals_pillow(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct resize_case *c = &cases[i];
        struct picture in = picture_of_noise(c->width, c->height, c->seed);
        uint8_t *out = prepare(&in, c->crop_width, c->crop_height, c->resize_to, c->how);
        const uint32_t crc = crc32_of(out, (size_t)c->crop_width * c->crop_height * 3);
        if (crc != c->crc32) {
            print_error("%s: CRC-32 %08x, Pillow has %08x\n", c->name, crc, c->crc32);
            failed++;
        }
        free(out);
        picture_clear(&in);
    }
    assert_int_equal(failed, 0);
}

/* ---- the twin ----------------------------------------------------------------------------------------------- */

struct geometry {
    uint32_t width, height; /* resized */
    int left, top;          /* of the crop */
    bool columns_first;
};

static struct geometry geometry_of(const struct picture *in, uint32_t width, uint32_t height, uint32_t resize_to)
{
    const double w = in->width, h = in->height, shorter = fmin(w, h);
    struct geometry g = {in->width, in->height, 0, 0, false};
    if (shorter != (double)resize_to) {
        g.width = w <= h ? resize_to : (uint32_t)fmax(1.0, floor(resize_to * w / h));
        g.height = w <= h ? (uint32_t)fmax(1.0, floor(resize_to * h / w)) : resize_to;
    }
    g.left = (int)rint(((double)g.width - width) / 2.0); /* rint rounds a half to even */
    g.top = (int)rint(((double)g.height - height) / 2.0);
    g.columns_first = h > g.height && h - g.height > 2.0 * (w - g.width);
    return g;
}

static double kernel(enum interpolation how, double x)
{
    x = fabs(x);
    if (how == INTERPOLATION_BILINEAR)
        return fmax(0.0, 1.0 - x);
    if (x < 1.0)
        return 1.5 * x * x * x - 2.5 * x * x + 1.0;
    return x < 2.0 ? -0.5 * x * x * x + 2.5 * x * x - 4.0 * x + 2.0 : 0.0;
}

/* The weight of every input pixel of a side in one output pixel; most are 0. The caller frees. */
static double *twin_weights(uint32_t in, uint32_t out, uint32_t pixel, enum interpolation how)
{
    double *weights = calloc(in, sizeof(*weights)), sum = 0.0;
    assert_non_null(weights);
    const double scale = (double)in / out;
    for (uint32_t i = 0; i < in; i++) {
        weights[i] = kernel(how, (i + 0.5 - (pixel + 0.5) * scale) / fmax(1.0, scale));
        sum += weights[i];
    }
    for (uint32_t i = 0; i < in; i++)
        weights[i] /= sum;
    return weights;
}

static double to_8_bits(double x)
{
    return floor(fmin(fmax(x, 0.0), 255.0) + 0.5);
}

/* Channel c of the resized picture's pixel (x, y). */
static double twin_pixel(const struct picture *in, const struct geometry *g, uint32_t x, uint32_t y, unsigned c,
                         enum interpolation how)
{
    double *across = twin_weights(in->width, g->width, x, how), *down = twin_weights(in->height, g->height, y, how);
    const double *outer = g->columns_first ? across : down, *inner = g->columns_first ? down : across;
    const uint32_t outers = g->columns_first ? in->width : in->height;
    const uint32_t inners = g->columns_first ? in->height : in->width;
    double sum = 0.0;
    for (uint32_t o = 0; o < outers; o++) {
        double pass = 0.0;
        for (uint32_t i = 0; i < inners && outer[o] != 0.0; i++) {
            const size_t at = g->columns_first ? (size_t)i * in->width + o : (size_t)o * in->width + i;
            pass += inner[i] * in->pixels[at * 3 + c];
        }
        sum += outer[o] * to_8_bits(pass);
    }
    free(across);
    free(down);
    return to_8_bits(sum);
}

/* Every step-th value of the crop is within 1 of the twin, or black where the crop lies outside. */
static void assert_near_twin(const struct picture *in, uint32_t width, uint32_t height, uint32_t resize_to,
                             enum interpolation how, size_t step)
{
    const struct geometry g = geometry_of(in, width, height, resize_to);
    uint8_t *out = prepare(in, width, height, resize_to, how);
    for (size_t i = 0; i < (size_t)width * height * 3; i += step) {
        const int64_t x = (int64_t)(i / 3 % width) + g.left, y = (int64_t)(i / 3 / width) + g.top;
        const bool inside = x >= 0 && x < g.width && y >= 0 && y < g.height;
        const double want = inside ? twin_pixel(in, &g, (uint32_t)x, (uint32_t)y, (unsigned)(i % 3), how) : 0.0;
        if (fabs(out[i] - want) > (inside ? 1.0 : 0.0))
            fail_msg("%u x %u to %u, crop %u x %u: value %zu is %d, twin has %.0f", in->width, in->height, resize_to,
                     width, height, i, out[i], want);
    }
    free(out);
}

static void fixed_point_stays_within_one_level_of_double_precision(void **state)
{
    (void)state;
    uint32_t random = 42;
    for (int i = 0; i < 60; i++) {
        uint32_t side[5];
        for (size_t s = 0; s < ARRAY_LEN(side); s++) {
            random = random * 1664525u + 1013904223u;
            side[s] = 1 + (random >> 16) % 48;
        }
        struct picture in = picture_of_noise(side[0], side[1], random);
        assert_near_twin(&in, side[2], side[3], side[4], i % 2 == 0 ? INTERPOLATION_BICUBIC : INTERPOLATION_BILINEAR,
                         5);
        picture_clear(&in);
    }
}

/* ---- bounds and geometry ------------------------------------------------------------------------------------ */

static long peak_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* Resized as a whole these would have 10^9 to 10^11 pixels. */
static void thin_pictures_cost_what_they_hold(void **state)
{
    (void)state;
    static const struct {
        uint32_t width, height, resize_to;
    } thin[] = {
        {1, PICTURE_SIDE_MAX, 256},
        {PICTURE_SIDE_MAX, 1, 256},
        {1, PICTURE_SIDE_MAX, MODEL_PICTURE_SIDE_MAX},
        {PICTURE_SIDE_MAX, 1, MODEL_PICTURE_SIDE_MAX},
        {PICTURE_SIDE_MAX, 3, MODEL_PICTURE_SIDE_MAX},
    };
    const long before = peak_kib();
    for (size_t i = 0; i < ARRAY_LEN(thin); i++) {
        struct picture in = picture_of_noise(thin[i].width, thin[i].height, 7);
        assert_near_twin(&in, 224, 224, thin[i].resize_to, INTERPOLATION_BICUBIC, 1511);
        picture_clear(&in);
    }
    const long grown = peak_kib() - before;
    print_message("memory grew by %ld KiB\n", grown);
    assert_true(grown < 256L * 1024); /* the smallest of them as a whole: 3 GiB */
}

/* A row of pixels 1, 2, 3, ... that is not resized (the height is resize_to): the crop shows where it begins. */
static void crop_offset_rounds_half_to_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t width, crop;
        uint8_t want[8];
    } rows[] = {
        {4, 4, {1, 2, 3, 4}},
        {6, 4, {2, 3, 4, 5}},
        {5, 4, {1, 2, 3, 4}},       /* 0.5 -> 0 */
        {7, 4, {3, 4, 5, 6}},       /* 1.5 -> 2 */
        {9, 4, {3, 4, 5, 6}},       /* 2.5 -> 2 */
        {4, 5, {1, 2, 3, 4, 0}},    /* -0.5 -> 0 */
        {3, 6, {0, 0, 1, 2, 3, 0}}, /* -1.5 -> -2 */
        {2, 7, {0, 0, 1, 2, 0, 0}}, /* -2.5 -> -2 */
        {1, 2, {1, 0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t pixels[9 * 3];
        for (size_t c = 0; c < sizeof(pixels); c++)
            pixels[c] = (uint8_t)(c / 3 + 1);
        const struct picture in = {.pixels = pixels, .width = rows[i].width, .height = 1};
        uint8_t *out = prepare(&in, rows[i].crop, 1, 1, INTERPOLATION_BICUBIC);
        for (size_t c = 0; c < (size_t)rows[i].crop * 3; c++)
            assert_int_equal(out[c], rows[i].want[c / 3]);
        free(out);
    }
}

static void outside_of_the_picture_is_black(void **state)
{
    (void)state;
    static const struct {
        uint32_t width, height, resize_to;
    } whites[] = {{30, 20, 20}, {90, 60, 20}, {3, 2, 20}, {20, 30, 20}};
    const uint32_t side = 41;
    for (size_t i = 0; i < ARRAY_LEN(whites); i++) {
        struct picture in = picture_of_noise(whites[i].width, whites[i].height, 1);
        memset(in.pixels, 255, (size_t)in.width * in.height * 3);
        const struct geometry g = geometry_of(&in, side, side, whites[i].resize_to);
        uint8_t *out = prepare(&in, side, side, whites[i].resize_to, INTERPOLATION_BICUBIC);
        for (int at = 0; at < (int)(side * side * 3); at++) {
            const int x = at / 3 % (int)side + g.left, y = at / 3 / (int)side + g.top;
            const bool inside = x >= 0 && x < (int)g.width && y >= 0 && y < (int)g.height;
            assert_int_equal(out[at], inside ? 255 : 0);
        }
        free(out);
        picture_clear(&in);
    }
}

static void clearing_takes_nothing_zeroes_and_twice(void **state)
{
    (void)state;
    struct picture p = {0};
    picture_clear(NULL);
    picture_clear(&p);
    p = picture_of_noise(2, 2, 1);
    picture_clear(&p);
    assert_null(p.pixels);
    assert_int_equal(p.width, 0);
    picture_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_equals_pillow),
        cmocka_unit_test(fixed_point_stays_within_one_level_of_double_precision),
        cmocka_unit_test(thin_pictures_cost_what_they_hold),
        cmocka_unit_test(crop_offset_rounds_half_to_even),
        cmocka_unit_test(outside_of_the_picture_is_black),
        cmocka_unit_test(clearing_takes_nothing_zeroes_and_twice),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
