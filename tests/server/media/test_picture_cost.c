/* test_picture_cost.c - what a picture takes is told before it is decoded, never too little, and decoding keeps to it;
 * a large JPEG of which little is wanted takes little. */
#include "server/media/picture_cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/pictures.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct picture_options whole = {0};

static const char *const files[] = {
    "cmyk.jpg",
    "gray.jpg",
    "landscape.jpg",
    "orientation-6.jpg",
    "portrait-420.jpg",
    "progressive-444.jpg",
    "small-32.jpg",
    "tall-thin.jpg",
    "formats/gray-1.png",
    "formats/interlaced-rgba-8.png",
    "formats/lossless-alpha.webp",
    "formats/lossless.webp",
    "formats/lossy-alpha.webp",
    "formats/lossy.webp",
    "formats/rgb-8.png",
    "formats/rgba-16.png",
    "formats/transparent-colour.png",
    "formats/transparent-palette.png",
    "formats/turned-alpha.webp",
    "formats/turned-late.png",
    "formats/turned-rgba.png",
    "formats/turned.webp",
};

static uint8_t *read_file(const char *name, size_t *size)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", PICTURES_DIR, name);
    return picture_file_read(path, size);
}

/* A black one; scans: as of jpeg_recipe. */
static uint8_t *write_jpeg(uint32_t width, uint32_t height, int scans, bool arithmetic, size_t *size)
{
    uint8_t *pixels = calloc(width, height);
    assert_non_null(pixels);
    const struct jpeg_recipe recipe = {
        .width = width, .height = height, .components = 1, .scans = scans, .arithmetic = arithmetic, .pixels = pixels};
    uint8_t *bytes = jpeg_write(&recipe, size);
    free(pixels);
    return bytes;
}

/* ---- what is told ----------------------------------------------------------------------------------------------- */

static void decoding_takes_no_more_than_was_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        size_t size;
        struct picture p = {0};
        struct error err = {0};
        uint8_t *bytes = read_file(files[i], &size);
        const struct picture_cost cost = picture_cost_of(bytes, size, &whole);
        const struct picture_options options = {.bytes_max = cost.bytes};
        if (picture_decode(&p, bytes, size, &options, &err) != OK)
            fail_msg("%s: %s", files[i], err.message);
        assert_int_equal(cost.pixels, (uint64_t)p.width * p.height);
        assert_true((cost.width == p.width && cost.height == p.height) ||
                    (cost.width == p.height && cost.height == p.width));
        assert_true(cost.bytes >= (uint64_t)p.width * p.height * 3);
        assert_true(cost.ns > 0);
        picture_clear(&p);
        free(bytes);
    }
}

static void more_than_was_allowed_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        size_t size;
        struct picture p = {0};
        struct error err = {0};
        uint8_t *bytes = read_file(files[i], &size);
        const struct picture_options options = {.bytes_max = picture_cost_of(bytes, size, &whole).bytes - 1};
        assert_int_equal(picture_decode(&p, bytes, size, &options, &err), ERR_PICTURE);
        assert_non_null(strstr(err.message, "promised"));
        assert_null(p.pixels);
        free(bytes);
    }
}

/* Alpha may be a chunk's doing, and so may a turn, which can stand behind the pixels. */
static void a_png_costs_what_its_chunks_ask_for(void **state)
{
    static const struct {
        const char *name;
        unsigned bytes_pixel;
    } cases[] = {
        {"formats/rgb-8.png", 3},
        {"formats/gray-16.png", 3},
        {"formats/palette-8.png", 3},
        {"formats/gray-alpha-8.png", 4},
        {"formats/rgba-8.png", 4},
        {"formats/transparent-gray.png", 4},
        {"formats/transparent-colour.png", 4},
        {"formats/transparent-palette.png", 4},
        {"formats/turned.png", 6},
        {"formats/turned-late.png", 6},
        {"formats/turned-rgba.png", 6},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t size;
        uint8_t *bytes = read_file(cases[i].name, &size);
        const struct picture_cost cost = picture_cost_of(bytes, size, &whole);
        if (cost.bytes != cost.pixels * cases[i].bytes_pixel)
            fail_msg("%s: %llu bytes of %llu pixels", cases[i].name, (unsigned long long)cost.bytes,
                     (unsigned long long)cost.pixels);
        free(bytes);
    }
}

/* Nothing is decoded of what is refused at once, so it costs nothing; what tells no size may be the largest. */
static void what_tells_no_size_counts_as_the_largest(void **state)
{
    (void)state;
    size_t size;
    uint8_t *jpeg = read_file("landscape.jpg", &size);
    const size_t frame = (size_t)(jpeg_frame(jpeg, size) - jpeg);
    const struct picture_cost cut = picture_cost_of(jpeg, frame + 6, &whole);
    assert_int_equal(cut.pixels, PICTURE_PIXELS_MAX);
    const struct picture_options small = {.shorter = 32};
    assert_int_equal(picture_cost_of(jpeg, frame + 6, &small).pixels, PICTURE_FILE_PIXELS_MAX);
    assert_true(cut.bytes >= (uint64_t)PICTURE_PIXELS_MAX * 3);
    assert_int_equal(picture_cost_of((const uint8_t *)"\x89PNG\r\n\x1a\n", 8, &whole).pixels, PICTURE_PIXELS_MAX);

    jpeg_set_size(jpeg, size, 60000, 60000);
    assert_int_equal(picture_cost_of(jpeg, size, &whole).pixels, 0);
    free(jpeg);
    assert_int_equal(picture_cost_of((const uint8_t *)"GIF89a", 6, &whole).pixels, 0);
    assert_int_equal(picture_cost_of((const uint8_t *)"", 0, &whole).pixels, 0);
}

/* However many blocks stand before the frame's header, only some of them are looked at. */
static void many_blocks_before_the_size_are_not_gone_through(void **state)
{
    enum { BLOCKS = 1000, BLOCK = 4 };
    (void)state;
    size_t size;
    uint8_t *jpeg = read_file("landscape.jpg", &size);
    uint8_t *long_one = malloc(size + (size_t)BLOCKS * BLOCK);
    assert_non_null(long_one);
    memcpy(long_one, jpeg, 2);
    for (size_t i = 0; i < BLOCKS; i++)
        memcpy(long_one + 2 + i * BLOCK, "\xff\xfe\x00\x02", BLOCK); /* an empty comment */
    memcpy(long_one + 2 + (size_t)BLOCKS * BLOCK, jpeg + 2, size - 2);
    const struct picture_cost cost = picture_cost_of(long_one, size + (size_t)BLOCKS * BLOCK, &whole);
    assert_int_equal(cost.pixels, PICTURE_PIXELS_MAX);
    struct picture p = {0};
    const struct picture_options options = {.bytes_max = cost.bytes};
    assert_int_equal(picture_decode(&p, long_one, size + (size_t)BLOCKS * BLOCK, &options, NULL), OK);
    picture_clear(&p);
    free(long_one);
    free(jpeg);
}

/* Behind the chunks that are looked at may be one that asks for it. */
static void a_png_of_many_chunks_costs_the_most(void **state)
{
    enum { CHUNKS = 10000, CHUNK = 12, HEADER = 33 };
    (void)state;
    size_t size;
    uint8_t *png = read_file("formats/rgb-8.png", &size);
    uint8_t *long_one = malloc(size + (size_t)CHUNKS * CHUNK);
    assert_non_null(long_one);
    memcpy(long_one, png, HEADER);
    for (size_t i = 0; i < CHUNKS; i++)
        memcpy(long_one + HEADER + i * CHUNK, "\0\0\0\0prVt\xa6\x87\x8c\x49", CHUNK); /* nobody's, and empty */
    memcpy(long_one + HEADER + (size_t)CHUNKS * CHUNK, png + HEADER, size - HEADER);
    const struct picture_cost cost = picture_cost_of(long_one, size + (size_t)CHUNKS * CHUNK, &whole);
    assert_int_equal(cost.bytes, 6 * cost.pixels);
    free(long_one);
    free(png);
}

static void slower_codings_cost_more_time(void **state)
{
    enum { SIDE = 256 };
    (void)state;
    uint64_t ns[3], bytes[3];
    for (int i = 0; i < 3; i++) {
        size_t size;
        uint8_t *jpeg = write_jpeg(SIDE, SIDE, i == 0 ? 0 : 12, i == 2, &size);
        const struct picture_cost cost = picture_cost_of(jpeg, size, &whole);
        ns[i] = cost.ns;
        bytes[i] = cost.bytes;
        free(jpeg);
    }
    assert_true(ns[0] < ns[1] && ns[1] < ns[2]);
    assert_true(bytes[0] < bytes[1]); /* the coefficients of all scans */
}

/* ---- fewer pixels ----------------------------------------------------------------------------------------------- */

static void a_large_jpeg_is_decoded_to_what_is_wanted(void **state)
{
    static const struct {
        uint32_t width, height, shorter, longer, reduced;
    } cases[] = {
        {1500, 1001, 32, 0, 8},  {1500, 1001, 41, 0, 8},   {1500, 1001, 42, 0, 4}, {1500, 1001, 160, 0, 2},
        {1500, 1001, 167, 0, 0}, {1500, 1001, 32, 512, 0}, {1500, 1001, 0, 60, 8}, {1500, 1001, 0, 0, 0},
        {1024, 1024, 32, 0, 8},  {1024, 1023, 32, 0, 0}, /* too small to matter */
        {1001, 1500, 32, 0, 8},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const uint32_t by = cases[i].reduced > 0 ? cases[i].reduced : 1;
        size_t size;
        struct picture p = {0};
        uint8_t *jpeg = write_jpeg(cases[i].width, cases[i].height, 0, false, &size);
        struct picture_options options = {.shorter = cases[i].shorter, .longer = cases[i].longer};
        const struct picture_cost cost = picture_cost_of(jpeg, size, &options);
        options.bytes_max = cost.bytes;
        assert_int_equal(picture_decode(&p, jpeg, size, &options, NULL), OK);
        assert_int_equal(p.reduced, cases[i].reduced);
        assert_int_equal(p.width, (cases[i].width + by - 1) / by);
        assert_int_equal(p.height, (cases[i].height + by - 1) / by);
        assert_int_equal(picture_whole_width(&p), cases[i].width);
        assert_int_equal(picture_whole_height(&p), cases[i].height);
        assert_int_equal(cost.pixels, (uint64_t)cases[i].width * cases[i].height);
        if (by > 1)
            assert_true(cost.bytes < picture_cost_of(jpeg, size, &whole).bytes / by);
        picture_clear(&p);
        free(jpeg);
    }
}

/* In each orientation, at sides that no divisor divides. */
static void the_model_sees_nearly_the_same_of_fewer_pixels(void **state)
{
    enum { WIDTH = 1203, HEIGHT = 1009, SEES = 32, BYTES = SEES * SEES * 3 };
    (void)state;
    uint8_t *pixels = malloc((size_t)WIDTH * HEIGHT * 3);
    assert_non_null(pixels);
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT * 3; i++)
        pixels[i] = (uint8_t)(i / 3 % WIDTH * (i % 3 + 1) * 60 / WIDTH + i / 3 / WIDTH * 70 / HEIGHT);
    for (unsigned orientation = 1; orientation <= 8; orientation++) {
        size_t size;
        struct picture p[2] = {{0}, {0}};
        uint8_t seen[2][BYTES];
        uint8_t *jpeg = jpeg_write_turned(pixels, WIDTH, HEIGHT, orientation, &size);
        for (int i = 0; i < 2; i++) {
            const struct picture_options options = {.shorter = (uint32_t)i * SEES};
            assert_int_equal(picture_decode(&p[i], jpeg, size, &options, NULL), OK);
            assert_int_equal(p[i].reduced, 8 * i);
            assert_int_equal(picture_prepare(seen[i], SEES, SEES, &p[i], SEES, INTERPOLATION_BICUBIC, NULL), OK);
            picture_clear(&p[i]);
        }
        for (size_t i = 0; i < BYTES; i++)
            assert_in_range(seen[0][i] - seen[1][i] + 2, 0, 4);
        free(jpeg);
    }
    free(pixels);
}

/* ---- stopping --------------------------------------------------------------------------------------------------- */

static void decoding_ends_when_it_is_told_to(void **state)
{
    static const char *const large[] = {"landscape.jpg", "progressive-444.jpg", "formats/rgb-8.png",
                                        "formats/lossy.webp"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        size_t size;
        const atomic_int stop = ERR_CLIENT_GONE;
        struct picture p = {0};
        struct error err = {0};
        uint8_t *bytes = read_file(large[i], &size);
        const struct picture_options options = {.stop = &stop};
        assert_int_equal(picture_decode(&p, bytes, size, &options, &err), ERR_CLIENT_GONE);
        assert_null(p.pixels);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_takes_no_more_than_was_told),
        cmocka_unit_test(more_than_was_allowed_is_refused),
        cmocka_unit_test(a_png_costs_what_its_chunks_ask_for),
        cmocka_unit_test(what_tells_no_size_counts_as_the_largest),
        cmocka_unit_test(many_blocks_before_the_size_are_not_gone_through),
        cmocka_unit_test(a_png_of_many_chunks_costs_the_most),
        cmocka_unit_test(slower_codings_cost_more_time),
        cmocka_unit_test(a_large_jpeg_is_decoded_to_what_is_wanted),
        cmocka_unit_test(the_model_sees_nearly_the_same_of_fewer_pixels),
        cmocka_unit_test(decoding_ends_when_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
