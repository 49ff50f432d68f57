/* test_drawing.c - maps over pictures: where colour lies, what is brightest, what is only darker, and where the frame
 * runs; by pictures of a few pixels. */
#include "server/media/drawing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 8, FRAME = 200 };

/* All of one colour. */
static void paint(struct picture *p, uint8_t pixels[SIDE][SIDE][3], uint8_t red, uint8_t green, uint8_t blue)
{
    for (int i = 0; i < SIDE * SIDE; i++)
        memcpy(pixels[i / SIDE][i % SIDE], (const uint8_t[]){red, green, blue}, 3);
    *p = (struct picture){.pixels = &pixels[0][0][0], .width = SIDE, .height = SIDE};
}

static void assert_pixel(uint8_t pixels[SIDE][SIDE][3], int y, int x, int red, int green, int blue)
{
    const uint8_t *p = pixels[y][x];
    if (p[0] != red || p[1] != green || p[2] != blue)
        fail_msg("pixel %d, %d is %u %u %u, expected %d %d %d", y, x, p[0], p[1], p[2], red, green, blue);
}

static const struct image_box whole = {.left = 0, .top = 0, .width = SIDE, .height = SIDE};

/* Half of each: the ramp ends at 20 11 52 and at 252 255 164. */
static void the_least_is_violet_and_the_most_yellow(void **state)
{
    static const float map[4] = {0.0f, 3.0f, 0.0f, 3.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 0, 0, 0);
    draw_map(&p, &whole, map, 2, 2);
    for (int y = 0; y < SIDE; y++) {
        assert_pixel(pixels, y, 0, 10, 6, 26);
        assert_pixel(pixels, y, 1, 10, 6, 26); /* up to the first cell's centre */
        assert_pixel(pixels, y, 6, 126, 128, 82);
        assert_pixel(pixels, y, 7, 126, 128, 82);
    }
}

/* Between the centres, which lie at 2 and 6: pixel 3, whose centre is 3.5, has three eighths of the way to the largest,
 * which is one and a half steps of the ramp. */
static void between_two_cells_values_are_linear(void **state)
{
    static const float map[2] = {0.0f, 1.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 0, 0, 0);
    draw_map(&p, &whole, map, 1, 2);
    assert_pixel(pixels, 0, 3, 72, 19, 49); /* (101 21 110 + 187 55 84) / 2, and half of that */
    paint(&p, pixels, 0, 0, 0);
    draw_map(&p, &whole, map, 2, 1); /* the same from top to bottom */
    assert_pixel(pixels, 3, 0, 72, 19, 49);
    assert_pixel(pixels, 3, 7, 72, 19, 49);
}

static void under_a_map_the_picture_is_grey(void **state)
{
    static const float map[1] = {0.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 200, 100, 50);
    draw_map(&p, &whole, map, 1, 1); /* all zero: all violet */
    const float grey = 0.5f * (0.299f * 200 + 0.587f * 100 + 0.114f * 50);
    assert_pixel(pixels, 4, 4, (int)(10 + grey + 0.5f), (int)(5.5f + grey + 0.5f), (int)(26 + grey + 0.5f));
}

/* A box of 2 x 4 pixels from row 3 and column 2 on: a frame of one pixel around it, and the rest is darker. */
static void what_lies_outside_is_darker_behind_a_frame(void **state)
{
    static const struct image_box box = {.left = 2, .top = 3, .width = 4, .height = 2};
    static const float map[1] = {1.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 100, 200, 40);
    draw_map(&p, &box, map, 1, 1);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const bool inside = y >= 3 && y <= 4 && x >= 2 && x <= 5;
            const bool frame = !inside && y >= 2 && y <= 5 && x >= 1 && x <= 6;
            if (frame)
                assert_pixel(pixels, y, x, FRAME, FRAME, FRAME);
            else if (!inside)
                assert_pixel(pixels, y, x, 35, 70, 14); /* 0.35 of it */
            else
                assert_int_not_equal(pixels[y][x][0], 35);
        }
}

/* A pixel belongs to the box that its centre lies in, at the beginning and not at the end. */
static void a_pixel_is_where_its_centre_is(void **state)
{
    static const struct image_box box = {.left = 2.5, .top = 2.5, .width = 3, .height = 3};
    static const float map[1] = {1.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 0, 0, 0);
    draw_map(&p, &box, map, 1, 1);
    assert_pixel(pixels, 2, 2, 126, 128, 82);
    assert_pixel(pixels, 4, 4, 126, 128, 82);
    assert_pixel(pixels, 4, 5, FRAME, FRAME, FRAME);
    assert_pixel(pixels, 5, 4, FRAME, FRAME, FRAME);
}

/* A crop that reaches beyond the picture: no frame within it. */
static void a_box_may_reach_outside(void **state)
{
    static const struct image_box box = {.left = -4, .top = -4, .width = 16, .height = 16};
    static const float map[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    uint8_t pixels[SIDE][SIDE][3];
    struct picture p;
    (void)state;
    paint(&p, pixels, 0, 0, 0);
    draw_map(&p, &box, map, 2, 2);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_pixel(pixels, y, x, 126, 128, 82);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_is_violet_and_the_most_yellow),
        cmocka_unit_test(between_two_cells_values_are_linear),
        cmocka_unit_test(under_a_map_the_picture_is_grey),
        cmocka_unit_test(what_lies_outside_is_darker_behind_a_frame),
        cmocka_unit_test(a_pixel_is_where_its_centre_is),
        cmocka_unit_test(a_box_may_reach_outside),
    };
    return cmocka_run_group_tests_name("drawing", tests, NULL, NULL);
}
