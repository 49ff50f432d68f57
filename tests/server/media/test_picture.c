/* test_picture.c - what is read, and that it comes out as in Python: Pillow's pixels for every form of JPEG that
 * clients send, the eight orientations, the colour spaces, and a clear refusal of what is no picture. */
#include "server/media/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/pictures.h"
#include "weights/safetensors.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct picture decode(const char *name, const uint8_t *bytes, size_t size)
{
    struct picture p = {0};
    struct error err = {0};
    if (picture_decode(&p, bytes, size, NULL, &err) != OK)
        fail_msg("%s: %s", name, err.message);
    return p;
}

static struct picture decode_recipe(const char *name, const struct jpeg_recipe *recipe)
{
    size_t size;
    uint8_t *bytes = jpeg_write(recipe, &size);
    struct picture p = decode(name, bytes, size);
    free(bytes);
    return p;
}

static void assert_pixel(const char *name, const struct picture *p, uint32_t x, uint32_t y, const uint8_t want[3],
                         int tolerance)
{
    const uint8_t *got = p->pixels + ((size_t)y * p->width + x) * 3;
    for (int c = 0; c < 3; c++) {
        if (abs(got[c] - want[c]) > tolerance)
            fail_msg("%s: pixel (%u, %u) is %d %d %d, expected %d %d %d", name, x, y, got[0], got[1], got[2], want[0],
                     want[1], want[2]);
    }
}

/* ---- Pillow's pixels ---------------------------------------------------------------------------------------- */

/* pixels.NAME of pictures.safetensors is what Pillow made of NAME: upright, RGB, the shorter side resized to 256
 * (bicubic), the centre cropped. Another libjpeg may round differently: at most 2 levels, and rarely. */
static void compare_with_golden(const struct tensor *t)
{
    char path[256];
    size_t size;
    assert_int_equal(t->rank, 3);
    const char *name = t->name + strlen("pixels.");
    (void)snprintf(path, sizeof(path), "%s%s", PICTURES_DIR, name);
    uint8_t *bytes = picture_file_read(path, &size);
    struct picture p = decode(name, bytes, size);
    uint8_t *got = malloc(t->bytes);
    assert_non_null(got);
    assert_int_equal(
        picture_prepare(got, (uint32_t)t->shape[1], (uint32_t)t->shape[0], &p, 256, INTERPOLATION_BICUBIC, NULL), OK);
    int worst = 0;
    double sum = 0.0;
    for (size_t i = 0; i < t->bytes; i++) {
        const int off = abs(got[i] - t->data[i]);
        worst = off > worst ? off : worst;
        sum += off;
    }
    print_message("%-20s %4u x %-4u  worst %d, mean %.4f\n", name, p.width, p.height, worst, sum / (double)t->bytes);
    assert_true(worst <= 2);
    assert_true(sum / (double)t->bytes < 0.3);
    free(got);
    picture_clear(&p);
    free(bytes);
}

static void every_golden_picture_equals_pillow(void **state)
{
    (void)state;
    struct safetensors *golden = NULL;
    struct error err = {0};
    if (safetensors_open(&golden, PICTURES_DIR "pictures.safetensors", &err) != OK ||
        safetensors_read(golden, &err) != OK)
        fail_msg("%s", err.message);
    assert_int_equal(safetensors_count(golden), 10);
    for (size_t i = 0; i < safetensors_count(golden); i++)
        compare_with_golden(safetensors_at(golden, i));
    safetensors_close(golden);
}

/* ---- orientation -------------------------------------------------------------------------------------------- */

enum { WIDTH = 50, HEIGHT = 34 }; /* not square, and no whole number of blocks or strips */

static const uint8_t quarters[4][3] = {{230, 30, 30}, {30, 200, 30}, {30, 30, 230}, {220, 220, 40}}; /* A B C D */

/* A B over C D, stored. */
static void fill_quarters(uint8_t *pixels)
{
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        const int quarter = (i / WIDTH >= HEIGHT / 2 ? 2 : 0) + (i % WIDTH >= WIDTH / 2 ? 1 : 0);
        memcpy(pixels + (size_t)i * 3, quarters[quarter], 3);
    }
}

static struct picture decode_with_exif(const char *name, const uint8_t *exif, size_t exif_size)
{
    uint8_t pixels[WIDTH * HEIGHT * 3];
    fill_quarters(pixels);
    const struct jpeg_recipe recipe = {
        .width = WIDTH, .height = HEIGHT, .components = 3, .pixels = pixels, .exif = exif, .exif_size = exif_size};
    return decode_recipe(name, &recipe);
}

/* `layout` names the quarters as they are seen: top left, top right, bottom left, bottom right. */
static void assert_layout(const char *name, const struct picture *p, bool turned, const char *layout)
{
    assert_int_equal(p->width, turned ? HEIGHT : WIDTH);
    assert_int_equal(p->height, turned ? WIDTH : HEIGHT);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t x = p->width * (1 + 2 * (i % 2)) / 4, y = p->height * (1 + 2 * (i / 2)) / 4;
        assert_pixel(name, p, x, y, quarters[layout[i] - 'A'], 6);
    }
}

static void orientation_is_applied(void **state)
{
    (void)state;
    static const struct {
        const char *name, *layout;
        unsigned orientation, type;
        bool turned;
    } cases[] = {
        {"1 upright", "ABCD", 1, EXIF_SHORT, false},
        {"2 mirrored left to right", "BADC", 2, EXIF_SHORT, false},
        {"3 upside down", "DCBA", 3, EXIF_SHORT, false},
        {"4 mirrored top to bottom", "CDAB", 4, EXIF_SHORT, false},
        {"5 transposed", "ACBD", 5, EXIF_SHORT, true},
        {"6 to be turned clockwise", "CADB", 6, EXIF_SHORT, true},
        {"7 transposed along the other diagonal", "DBCA", 7, EXIF_SHORT, true},
        {"8 to be turned counterclockwise", "BDAC", 8, EXIF_SHORT, true},
        {"6 as a long number", "CADB", 6, EXIF_LONG, true},
        {"0 means nothing", "ABCD", 0, EXIF_SHORT, false},
        {"9 means nothing", "ABCD", 9, EXIF_SHORT, false},
        {"65535 means nothing", "ABCD", 65535, EXIF_SHORT, false},
        {"a type of no number", "ABCD", 6, 2, false},
        {"an unknown type", "ABCD", 6, 99, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases) * 2; i++) {
        uint8_t exif[EXIF_SIZE];
        const char *name = cases[i / 2].name;
        exif_write(exif, i % 2 == 1, cases[i / 2].type, cases[i / 2].orientation);
        struct picture p = decode_with_exif(name, exif, sizeof(exif));
        assert_layout(name, &p, cases[i / 2].turned, cases[i / 2].layout);
        picture_clear(&p);
    }
}

static void broken_exif_is_ignored(void **state)
{
    (void)state;
    uint8_t exif[EXIF_SIZE];
    exif_write(exif, true, EXIF_SHORT, 6);
    for (size_t size = 0; size < 26; size++) { /* cut before the value's end */
        struct picture p = decode_with_exif("cut EXIF", exif, size);
        assert_layout("cut EXIF", &p, false, "ABCD");
        picture_clear(&p);
    }
    memset(exif + 6, 0xff, sizeof(exif) - 6);
    struct picture p = decode_with_exif("EXIF of FF", exif, sizeof(exif));
    assert_layout("EXIF of FF", &p, false, "ABCD");
    picture_clear(&p);
}

/* ---- colours ------------------------------------------------------------------------------------------------ */

/* Adobe's inks are stored inverted: 255 is no ink. Expected is light * black, rounded. */
static void colours_become_rgb_as_in_pillow(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int components, ycck;
        uint8_t stored[4], want[3];
    } cases[] = {
        {"gray", 1, 0, {77}, {77, 77, 77}},
        {"RGB", 3, 0, {200, 100, 50}, {200, 100, 50}},
        {"CMYK without ink", 4, 0, {255, 255, 255, 255}, {255, 255, 255}},
        {"CMYK of black alone", 4, 0, {255, 255, 255, 0}, {0, 0, 0}},
        {"CMYK of cyan", 4, 0, {0, 255, 255, 255}, {0, 255, 255}},
        {"CMYK of everything", 4, 0, {200, 100, 50, 128}, {100, 50, 25}},
        {"YCCK of magenta", 4, 1, {255, 0, 255, 255}, {255, 0, 255}},
        {"YCCK of everything", 4, 1, {200, 100, 50, 128}, {100, 50, 25}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t pixels[16 * 16 * 4];
        const int components = cases[i].components;
        for (int at = 0; at < 16 * 16 * components; at++)
            pixels[at] = cases[i].stored[at % components];
        const struct jpeg_recipe recipe = {
            .width = 16, .height = 16, .components = components, .ycck = cases[i].ycck, .pixels = pixels};
        struct picture p = decode_recipe(cases[i].name, &recipe);
        assert_pixel(cases[i].name, &p, 7, 9, cases[i].want, 2);
        picture_clear(&p);
    }
}

/* ---- no picture --------------------------------------------------------------------------------------------- */

static void what_is_no_picture_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *said;
    } cases[] = {
        {"", 0, "empty"},
        {"\x89PNG\n\x1a\n\0\0\0\rIHDR", 15, "a PNG whose line ends were changed"},
        {"GIF89a\1\0\1\0", 10, "GIF"},
        {"RIFX\x10\0\0\0WEBPVP8 ", 16, "does not begin like any"},
        {"BM\x36\0\0\0\0\0\0\0", 10, "BMP"},
        {"II*\0\x08\0\0\0", 8, "TIFF"},
        {"MM\0*\0\0\0\x08", 8, "TIFF"},
        {"\0\0\0\x18"
         "ftypheic",
         12, "HEIF"},
        {"\xff\x0a\0\0", 4, "JPEG XL"},
        {"%PDF-1.7", 8, "PDF"},
        {"RIFF\x10\0\0\0WAVEfmt ", 16, "not a JPEG"},
        {"{\"image\": 1}", 12, "not a JPEG"},
        {"\xff", 1, "not a JPEG"},
        {"\xff\xd8", 2, "not a JPEG"},
        {"\0\0\0\0", 4, "not a JPEG"},
        {"\x89PN", 3, "not a JPEG"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct picture p = {0};
        struct error err = {0};
        assert_int_equal(picture_decode(&p, (const uint8_t *)cases[i].bytes, cases[i].size, NULL, &err),
                         ERR_MEDIA_TYPE);
        assert_int_equal(err.status, ERR_MEDIA_TYPE);
        if (strstr(err.message, cases[i].said) == NULL || strstr(err.message, "JPEG") == NULL)
            fail_msg("expected \"%s\" in: %s", cases[i].said, err.message);
        assert_null(p.pixels);
        assert_int_equal(picture_decode(&p, (const uint8_t *)cases[i].bytes, cases[i].size, NULL, NULL),
                         ERR_MEDIA_TYPE);
    }
}

static void bytes_after_the_end_are_not_ours(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = picture_file_read(PICTURES_DIR "small-32.jpg", &size);
    uint8_t *longer = malloc(size + 1000);
    assert_non_null(longer);
    memcpy(longer, bytes, size);
    memset(longer + size, 0x5a, 1000);
    struct picture alone = decode("small-32.jpg", bytes, size), followed = decode("with a tail", longer, size + 1000);
    assert_memory_equal(alone.pixels, followed.pixels, (size_t)32 * 32 * 3);
    picture_clear(&alone);
    picture_clear(&followed);
    free(longer);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_picture_equals_pillow),
        cmocka_unit_test(orientation_is_applied),
        cmocka_unit_test(broken_exif_is_ignored),
        cmocka_unit_test(colours_become_rgb_as_in_pillow),
        cmocka_unit_test(what_is_no_picture_is_named),
        cmocka_unit_test(bytes_after_the_end_are_not_ours),
    };
    return cmocka_run_group_tests_name("picture", tests, NULL, NULL);
}
