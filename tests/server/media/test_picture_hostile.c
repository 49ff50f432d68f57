/* test_picture_hostile.c - pictures that are cut, damaged, or made to cost more than they look: each ends in a status
 * with a reason, prints nothing and leaks nothing (the address sanitizer's build looks for that). */
#include "server/media/picture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/pictures.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum { SIDE = 64 };

/* Gray, RGB or CMYK noise with soft edges; a progressive file if `scans` is not 0. The caller frees. */
static uint8_t *sample(int components, int scans, size_t *size)
{
    uint8_t pixels[SIDE * SIDE * 4];
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof(pixels); i++) {
        random = random * 1664525u + 1013904223u;
        pixels[i] = (uint8_t)(64 + i / 97 % 100 + (random >> 26));
    }
    const struct jpeg_recipe recipe = {
        .width = SIDE, .height = SIDE, .components = components, .scans = scans, .pixels = pixels};
    return jpeg_write(&recipe, size);
}

/* ---- cut ---------------------------------------------------------------------------------------------------- */

static void a_truncated_picture_is_refused_at_every_length(void **state)
{
    (void)state;
    static const char *const files[] = {"small-32.jpg", "portrait-420.jpg", "progressive-444.jpg", "cmyk.jpg",
                                        "orientation-6.jpg"};
    for (size_t f = 0; f < ARRAY_LEN(files); f++) {
        char path[256];
        size_t size;
        (void)snprintf(path, sizeof(path), "%s%s", PICTURES_DIR, files[f]);
        uint8_t *bytes = picture_file_read(path, &size);
        for (size_t length = 3; length < size; length += length < 700 || size - length < 8 ? 1 : size / 40 + 1) {
            uint8_t *cut = malloc(length); /* its own block, so that a read beyond it is seen */
            assert_non_null(cut);
            memcpy(cut, bytes, length);
            picture_assert_refused(files[f], cut, length, "JPEG");
            free(cut);
        }
        picture_assert_refused(files[f], bytes, size - 1, "JPEG");
        free(bytes);
    }
}

/* ---- damaged ------------------------------------------------------------------------------------------------ */

/* One to four bytes changed, or a stretch moved. */
static void damage(uint8_t *bytes, size_t size, uint32_t *random)
{
    uint32_t r[3];
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        r[i] = (*random = *random * 1664525u + 1013904223u) >> 8;
    if (r[0] % 5 == 4) {
        const size_t from = 2 + r[1] % (size - 2), to = 2 + r[2] % (size - 2);
        const size_t longest = size - (from > to ? from : to);
        memmove(bytes + to, bytes + from, longest < 16 ? longest : 16);
        return;
    }
    for (uint32_t i = 0; i <= r[0] % 4; i++) {
        *random = *random * 1664525u + 1013904223u;
        bytes[2 + (*random >> 8) % (i % 2 == 0 ? size - 2 : 200)] = (uint8_t)(r[1] >> i * 4);
    }
}

static void damaged_pictures_decode_or_say_why(void **state)
{
    (void)state;
    enum { ROUNDS = 500, SAMPLES = 5 };
    uint32_t random = 2024;
    size_t good = 0;
    for (size_t s = 0; s < SAMPLES; s++) {
        size_t size;
        uint8_t *sound = s < 3    ? sample(s == 2 ? 4 : (int)s * 2 + 1, 0, &size)
                         : s == 3 ? sample(1, 12, &size)
                                  : picture_file_read(PICTURES_DIR "orientation-5.jpg", &size);
        uint8_t *bytes = malloc(size);
        assert_non_null(bytes);
        for (int i = 0; i < ROUNDS; i++) {
            struct picture p = {0};
            struct error err = {0};
            memcpy(bytes, sound, size);
            damage(bytes, size, &random);
            const enum status st = picture_decode(&p, bytes, size, NULL, &err);
            if (st == OK) {
                good++;
                assert_non_null(p.pixels);
                assert_in_range(p.width, 1, PICTURE_SIDE_MAX);
                assert_in_range(p.height, 1, PICTURE_SIDE_MAX);
                volatile uint8_t last = p.pixels[(size_t)p.width * p.height * 3 - 1]; /* all of it is there */
                (void)last;
            } else {
                assert_true(st == ERR_PICTURE || st == ERR_MEDIA_TYPE);
                assert_int_equal(err.status, st);
                assert_true(err.message[0] != '\0');
                assert_null(p.pixels);
            }
            picture_clear(&p);
        }
        free(bytes);
        free(sound);
    }
    print_message("%zu of %d damaged pictures decode all the same\n", good, ROUNDS * SAMPLES);
}

static void nothing_is_printed(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = sample(3, 0, &size);
    FILE *caught = tmpfile();
    assert_non_null(caught);
    (void)fflush(stderr);
    const int kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(kept >= 0 && dup2(fileno(caught), STDERR_FILENO) == STDERR_FILENO);
    struct picture p = {0};
    const enum status cut = picture_decode(&p, bytes, size / 2, NULL, NULL);
    jpeg_frame(bytes, size)[4] = 12; /* bits a sample */
    const enum status deep = picture_decode(&p, bytes, size, NULL, NULL);
    (void)fflush(stderr);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    (void)close(kept);
    assert_int_equal(cut, ERR_PICTURE);
    assert_int_equal(deep, ERR_PICTURE);
    assert_int_equal(lseek(fileno(caught), 0, SEEK_END), 0);
    (void)fclose(caught);
    free(bytes);
}

/* ---- beyond the bounds -------------------------------------------------------------------------------------- */

static void sides_and_pixels_are_bounded_by_the_header(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned width, height;
        const char *said;
    } cases[] = {
        {"the largest that JPEG knows", 65535, 65535, "65500"},
        {"the largest that libjpeg reads", 65500, 65500, "65500 x 65500; at most 16384"},
        {"one pixel too wide", PICTURE_SIDE_MAX + 1, 1, "at most 16384 pixels per side"},
        {"one pixel too high", 1, PICTURE_SIDE_MAX + 1, "at most 16384 pixels per side"},
        {"sides within, pixels beyond", PICTURE_SIDE_MAX, 2049, "33.6 megapixels; at most 33.6 are accepted where so"},
        {"more than phones make", PICTURE_SIDE_MAX, 12801, "209.7 megapixels; at most 209.7 are accepted"},
        {"as large as may be, but empty", PICTURE_SIDE_MAX, 2048, "does not decode"},
        {"no width", 0, 64, "does not decode"},
        {"no height", 64, 0, "does not decode"},
    };
    size_t size;
    uint8_t *bytes = sample(3, 0, &size);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        jpeg_set_size(bytes, size, cases[i].width, cases[i].height);
        picture_assert_refused(cases[i].name, bytes, size, cases[i].said);
    }
    free(bytes);
}

static void scans_are_bounded(void **state)
{
    (void)state;
    static const struct {
        int scans;
        enum status want;
    } cases[] = {{10, OK}, {PICTURE_SCANS_MAX, OK}, {PICTURE_SCANS_MAX + 1, ERR_PICTURE}, {128, ERR_PICTURE}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        size_t size;
        uint8_t *bytes = sample(1, cases[i].scans, &size);
        struct picture p = {0};
        struct error err = {0};
        assert_int_equal(picture_decode(&p, bytes, size, NULL, &err), cases[i].want);
        if (cases[i].want != OK)
            assert_non_null(strstr(err.message, "more than 100 scans"));
        picture_clear(&p);
        free(bytes);
    }
}

static void what_the_library_cannot_read_is_named(void **state)
{
    (void)state;
    size_t size;
    uint8_t *bytes = sample(3, 0, &size), *frame = jpeg_frame(bytes, size);
    frame[4] = 12;
    picture_assert_refused("12 bits a sample", bytes, size, "precision 12");
    frame[4] = 8;
    frame[1] = 0xc3;
    picture_assert_refused("lossless", bytes, size, "SOF type 0xc3");
    free(bytes);
    bytes = sample(2, 0, &size);
    picture_assert_refused("two components", bytes, size, "2 colour components");
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_truncated_picture_is_refused_at_every_length),
        cmocka_unit_test(damaged_pictures_decode_or_say_why),
        cmocka_unit_test(nothing_is_printed),
        cmocka_unit_test(sides_and_pixels_are_bounded_by_the_header),
        cmocka_unit_test(scans_are_bounded),
        cmocka_unit_test(what_the_library_cannot_read_is_named),
    };
    return cmocka_run_group_tests_name("picture, hostile", tests, NULL, NULL);
}
