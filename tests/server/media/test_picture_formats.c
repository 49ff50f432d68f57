/* test_picture_formats.c - PNG and WebP: every form of them comes out with Pillow's pixels; what is cut or damaged is
 * refused; bounds hold before anything is unpacked. JPEGs have tests of their own (test_picture*.c). */
#include "server/media/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <webp/encode.h>
#include <webp/mux_types.h>

#include "config/limits.h"
#include "tests/support/pictures.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define FORMATS_DIR PICTURES_DIR "formats/"

static const struct golden {
    const char *file;
    uint32_t width, height, crc32;
} goldens[] = {
#include "tests/data/images/formats.inc"
};

static uint8_t *golden_read(const struct golden *g, size_t *size)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", FORMATS_DIR, g->file);
    return picture_file_read(path, size);
}

static bool is_png(const struct golden *g)
{
    return strstr(g->file, ".png") != NULL;
}

/* ---- sound ------------------------------------------------------------------------------------------------------ */

static void every_form_has_pillows_pixels(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goldens); i++) {
        const struct golden *g = &goldens[i];
        struct picture p = {0};
        struct error err = {0};
        size_t size;
        uint8_t *bytes = golden_read(g, &size);
        if (picture_decode(&p, bytes, size, NULL, &err) != OK)
            fail_msg("%s: %s", g->file, err.message);
        assert_string_equal(picture_media_type(bytes, size), is_png(g) ? "image/png" : "image/webp");
        assert_int_equal(p.width, g->width);
        assert_int_equal(p.height, g->height);
        const uint32_t crc = picture_crc32(p.pixels, (size_t)p.width * p.height * 3);
        if (crc != g->crc32) {
            print_error("%s: CRC-32 %08x, Pillow has %08x; begins %d %d %d\n", g->file, crc, g->crc32, p.pixels[0],
                        p.pixels[1], p.pixels[2]);
            wrong++;
        }
        picture_clear(&p);
        free(bytes);
    }
    assert_int_equal(wrong, 0);
}

static void put_32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* A PNG whose header is followed by a chunk that says how it is to be turned. */
static struct picture decode_turned(const uint8_t *png, size_t size, unsigned orientation)
{
    enum { HEADER = 8 + 25, CHUNK = 12 + EXIF_SIZE - 6 };
    static const uint8_t type[4] = {'e', 'X', 'I', 'f'};
    uint8_t exif[EXIF_SIZE], *turned = malloc(size + CHUNK);
    struct picture p = {0};
    assert_non_null(turned);
    exif_write(exif, true, EXIF_SHORT, orientation);
    memcpy(turned, png, HEADER);
    uint8_t *chunk = turned + HEADER;
    put_32(chunk, EXIF_SIZE - 6); /* a PNG's has no "Exif" before it */
    memcpy(chunk + 4, type, sizeof type);
    memcpy(chunk + 8, exif + 6, EXIF_SIZE - 6);
    put_32(chunk + 8 + EXIF_SIZE - 6, picture_crc32(chunk + 4, 4 + EXIF_SIZE - 6));
    memcpy(chunk + CHUNK, png + HEADER, size - HEADER);
    assert_int_equal(picture_decode(&p, turned, size + CHUNK, NULL, NULL), OK);
    free(turned);
    return p;
}

static void every_orientation_that_a_png_can_have_is_applied(void **state)
{
    static const struct {
        bool swap, mirror_x, mirror_y; /* where a pixel comes from: swap x and y, then mirror */
    } turns[8] = {{false, false, false}, {false, true, false}, {false, true, true}, {false, false, true},
                  {true, false, false},  {true, false, true},  {true, true, true},  {true, true, false}};
    size_t size;
    (void)state;
    uint8_t *png = picture_file_read(FORMATS_DIR "rgb-8.png", &size);
    struct picture upright = decode_turned(png, size, 1);
    for (unsigned i = 0; i < ARRAY_LEN(turns); i++) {
        struct picture p = decode_turned(png, size, i + 1);
        assert_int_equal(p.width, turns[i].swap ? upright.height : upright.width);
        assert_int_equal(p.height, turns[i].swap ? upright.width : upright.height);
        for (uint32_t y = 0; y < p.height; y++)
            for (uint32_t x = 0; x < p.width; x++) {
                uint32_t from_x = turns[i].swap ? y : x, from_y = turns[i].swap ? x : y;
                from_x = turns[i].mirror_x ? upright.width - 1 - from_x : from_x;
                from_y = turns[i].mirror_y ? upright.height - 1 - from_y : from_y;
                if (memcmp(p.pixels + ((size_t)y * p.width + x) * 3,
                           upright.pixels + ((size_t)from_y * upright.width + from_x) * 3, 3) != 0)
                    fail_msg("orientation %u: pixel %u, %u is not that at %u, %u", i + 1, x, y, from_x, from_y);
            }
        picture_clear(&p);
    }
    picture_clear(&upright);
    free(png);
}

static void bytes_after_the_end_are_not_ours(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goldens); i++) {
        struct picture p = {0};
        size_t size;
        uint8_t *bytes = golden_read(&goldens[i], &size), *longer = malloc(size + 1000);
        assert_non_null(longer);
        memcpy(longer, bytes, size);
        memset(longer + size, 0x5a, 1000);
        assert_int_equal(picture_decode(&p, longer, size + 1000, NULL, NULL), OK);
        assert_int_equal(picture_crc32(p.pixels, (size_t)p.width * p.height * 3), goldens[i].crc32);
        picture_clear(&p);
        free(longer);
        free(bytes);
    }
}

/* ---- cut, damaged ----------------------------------------------------------------------------------------------- */

static void a_cut_file_is_refused_at_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goldens); i++) {
        const struct golden *g = &goldens[i];
        size_t size;
        uint8_t *bytes = golden_read(g, &size);
        for (size_t length = 12; length < size; length += length < 300 || size - length < 30 ? 1 : 29) {
            uint8_t *cut = malloc(length); /* its own block, so that a read beyond it is seen */
            assert_non_null(cut);
            memcpy(cut, bytes, length);
            picture_assert_refused(g->file, cut, length, "does not decode");
            free(cut);
        }
        free(bytes);
    }
}

static void damaged_files_decode_or_say_why(void **state)
{
    enum { ROUNDS = 400 };
    uint32_t random = 7;
    size_t good = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goldens) * ROUNDS; i++) {
        struct picture p = {0};
        struct error err = {0};
        size_t size;
        uint8_t *bytes = golden_read(&goldens[i / ROUNDS], &size);
        for (uint32_t n = 0; n <= i % 4; n++) {
            random = random * 1664525u + 1013904223u;
            bytes[12 + (random >> 8) % (n % 2 == 0 || size < 100 ? size - 12 : 60)] ^=
                (uint8_t)(1u + (random >> 5) % 255);
        }
        const enum status st = picture_decode(&p, bytes, size, NULL, &err);
        if (st == OK) {
            good++;
            volatile uint8_t last = p.pixels[(size_t)p.width * p.height * 3 - 1]; /* all of it is there */
            (void)last;
        } else {
            assert_int_equal(st, ERR_PICTURE);
            assert_true(err.message[0] != '\0');
            assert_null(p.pixels);
        }
        picture_clear(&p);
        free(bytes);
    }
    print_message("%zu of %zu damaged files decode all the same\n", good, ARRAY_LEN(goldens) * ROUNDS);
}

/* ---- bounds ----------------------------------------------------------------------------------------------------- */

static void a_png_is_bounded_by_its_header(void **state)
{
    static const struct {
        uint32_t width, height;
        const char *said;
    } cases[] = {
        {PICTURE_SIDE_MAX + 1, 1, "16385 x 1; at most 16384 pixels per side"},
        {1, INT32_MAX, "at most 16384 pixels per side"},
        {INT32_MAX, INT32_MAX, "at most 16384 pixels per side"},
        {PICTURE_SIDE_MAX, 2049, "33.6 megapixels; at most 33.6 are accepted, and more only of a JPEG"},
        {PICTURE_SIDE_MAX, 2048, "does not decode"}, /* allowed; there is no such amount of data */
        {0, 5, "does not decode"},
        {5, UINT32_MAX, "does not decode"},
    };
    size_t size;
    (void)state;
    uint8_t *bytes = picture_file_read(FORMATS_DIR "rgb-16.png", &size);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        png_set_size(bytes, cases[i].width, cases[i].height);
        picture_assert_refused("header", bytes, size, cases[i].said);
    }
    free(bytes);
}

/* A row of pixels that is there again and again: what libwebp needs to write a picture of any size. */
static uint8_t *webp_write(uint32_t width, uint32_t height, size_t *size)
{
    uint8_t *pixels = calloc(height, (size_t)width * 3), *webp = NULL;
    assert_non_null(pixels);
    *size = WebPEncodeLosslessRGB(pixels, (int)width, (int)height, (int)width * 3, &webp);
    assert_true(*size > 0);
    uint8_t *copy = malloc(*size + 1); /* never nothing */
    assert_non_null(copy);
    memcpy(copy, webp, *size);
    WebPFree(webp);
    free(pixels);
    return copy;
}

static void a_webp_is_bounded_by_its_header(void **state)
{
    size_t size;
    (void)state;
    uint8_t *bytes = webp_write(16383, 2100, &size);
    print_message("a WebP of 16383 x 2100 pixels in %zu bytes\n", size);
    picture_assert_refused("a bomb", bytes, size, "16383 x 2100, 34.4 megapixels; at most 33.6 are accepted");
    free(bytes);
}

static void an_animation_is_refused(void **state)
{
    size_t size;
    (void)state;
    uint8_t *bytes = picture_file_read(FORMATS_DIR "turned.webp", &size);
    assert_memory_equal(bytes + 12, "VP8X", 4);
    bytes[20] |= ANIMATION_FLAG;
    picture_assert_refused("animation", bytes, size, "animation");
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_has_pillows_pixels),
        cmocka_unit_test(every_orientation_that_a_png_can_have_is_applied),
        cmocka_unit_test(bytes_after_the_end_are_not_ours),
        cmocka_unit_test(a_cut_file_is_refused_at_every_length),
        cmocka_unit_test(damaged_files_decode_or_say_why),
        cmocka_unit_test(a_png_is_bounded_by_its_header),
        cmocka_unit_test(a_webp_is_bounded_by_its_header),
        cmocka_unit_test(an_animation_is_refused),
    };
    return cmocka_run_group_tests_name("picture, formats", tests, NULL, NULL);
}
