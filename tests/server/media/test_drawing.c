/* test_drawing.c - maps over pictures: where colour lies, what is brightest, what is only darker, and where the frame
 * runs; by pictures of a few pixels; and which biases are red or blue. */
#include "server/media/drawing.h"

#include <math.h>
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

static const struct picture_box whole = {.left = 0, .top = 0, .width = SIDE, .height = SIDE};

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
    static const struct picture_box box = {.left = 2, .top = 3, .width = 4, .height = 2};
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
    static const struct picture_box box = {.left = 2.5, .top = 2.5, .width = 3, .height = 3};
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
    static const struct picture_box box = {.left = -4, .top = -4, .width = 16, .height = 16};
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

/* ---- biases ---------------------------------------------------------------------------------------------------- */

enum { CELLS_MAX = 64, DRAWN = 128, GAP_GREY = 64 };

static void assert_cell(const struct picture *p, uint32_t y, uint32_t x, float share)
{
    static const uint8_t ends[3][3] = {{33, 68, 172}, {247, 247, 247}, {178, 18, 36}};
    const uint8_t *pixel = p->pixels + ((size_t)y * p->width + x) * 3;
    const bool is_end = fabsf(share) > 0.999999f || share == 0.0f;
    const uint8_t *want = ends[share > 0.0f ? 2 : share < 0.0f ? 0 : 1];
    if (is_end ? memcmp(pixel, want, 3) != 0 : share > 0.0f ? pixel[0] <= pixel[2] : pixel[0] >= pixel[2])
        fail_msg("%u, %u: %u %u %u for %g of the largest", y, x, pixel[0], pixel[1], pixel[2], (double)share);
}

/* Each tile by its own largest value, from blue for less than without a bias to red for more. */
static void assert_tile(const struct engine *e, uint32_t layer, uint32_t head)
{
    const struct engine_biases shape = engine_biases_shape(e);
    float cells[CELLS_MAX], largest = 0.0f;
    struct picture p = {.pixels = NULL};
    assert_true(shape.height * shape.width <= CELLS_MAX);
    engine_biases_read(e, layer, head, cells);
    for (uint32_t i = 0; i < shape.height * shape.width; i++)
        largest = fmaxf(largest, fabsf(cells[i]));
    const struct sheet sheet = {.engine = e,
                                .layer = layer,
                                .layers = 1,
                                .head = head,
                                .heads = 1,
                                .down = shape.height,
                                .across = shape.width};
    assert_int_equal(draw_sheet(&p, &sheet, DRAWN, NULL), OK);
    assert_true(p.width <= DRAWN && p.height <= DRAWN && p.pixels[0] == GAP_GREY);
    for (uint32_t y = 0; y < shape.height; y++)
        for (uint32_t x = 0; x < shape.width; x++)
            assert_cell(&p, (2 * y + 1) * p.height / (2 * shape.height), (2 * x + 1) * p.width / (2 * shape.width),
                        cells[y * shape.width + x] / largest);
    picture_clear(&p);
}

static void more_is_red_and_less_is_blue_than_without_a_bias(void **state)
{
    static const char *const models[] = {"tests/data/golden/conv-heads8-k5", "tests/data/golden/lm-local-8"};
    const struct engine_options options = {.threads = 1, .pictures_max = 1, .streams_max = 1, .rows_max = 1};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct model *m = NULL;
        struct engine *e = NULL;
        assert_int_equal(model_load(&m, models[i], NULL, NULL, NULL), OK);
        assert_int_equal(engine_open(&e, m, &options, NULL), OK);
        const struct engine_biases shape = engine_biases_shape(e);
        for (uint32_t layer = 0; layer < shape.layers; layer++)
            for (uint32_t head = 0; head < shape.heads; head++)
                assert_tile(e, layer, head);
        engine_close(e);
        model_free(m);
    }
}

/* Maps of 2 layers and 6 heads: the layout that is most like a square has each layer's heads in two rows. */
static void a_sheet_has_a_block_of_rows_for_each_layer(void **state)
{
    enum { LAYERS = 2, HEADS = 6, CELLS = 4 };
    static const uint8_t yellow[3] = {252, 255, 164}, violet[3] = {20, 11, 52};
    float maps[LAYERS][HEADS][CELLS];
    struct picture p = {.pixels = NULL};
    const struct sheet sheet = {.maps = maps[0][0], .layers = LAYERS, .heads = HEADS, .down = 2, .across = 2};
    (void)state;
    for (size_t tile = 0; tile < (size_t)LAYERS * HEADS; tile++)
        for (size_t cell = 0; cell < CELLS; cell++)
            maps[tile / HEADS][tile % HEADS][cell] = cell == tile % CELLS ? 0.1f * (float)(tile + 1) : 0.0f;
    assert_int_equal(draw_sheet(&p, &sheet, DRAWN, NULL), OK);
    const uint32_t columns = 3, size = (p.width - 1) / columns;
    assert_true(p.width <= DRAWN && p.height <= DRAWN && p.height > p.width);
    for (uint32_t tile = 0; tile < LAYERS * HEADS; tile++)
        for (uint32_t cell = 0; cell < CELLS; cell++) {
            const uint32_t y = tile / columns * size + (cell / 2 * 2 + 1) * size / 4,
                           x = tile % columns * size + (cell % 2 * 2 + 1) * size / 4;
            /* The largest of its own tile, however small beside others'. */
            assert_memory_equal(p.pixels + ((size_t)y * p.width + x) * 3, cell == tile % CELLS ? yellow : violet, 3);
        }
    picture_clear(&p);
    const struct sheet many = {.maps = maps[0][0], .layers = 256, .heads = 512, .down = 11, .across = 11};
    struct error err;
    assert_int_equal(draw_sheet(&p, &many, DRAWN, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "less than a pixel for each of"));
}

/* AFT-conv small of Zhai et al. 2021, table 7: 12 layers of 384 heads of 11 x 11 taps. */
static void a_sheet_of_many_heads_can_be_read(void **state)
{
    (void)state;
    const struct sheet sheet = {.layers = 12, .heads = 384, .down = 11, .across = 11};
    assert_in_range(draw_sheet_side(&sheet), 1584, 1920);
    const struct sheet few = {.layers = 6, .heads = 16, .down = 5, .across = 5};
    assert_int_equal(draw_sheet_side(&few), EXPLAIN_SIDE_DEFAULT);
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
        cmocka_unit_test(a_sheet_has_a_block_of_rows_for_each_layer),
        cmocka_unit_test(a_sheet_of_many_heads_can_be_read),
        cmocka_unit_test(more_is_red_and_less_is_blue_than_without_a_bias),
    };
    return cmocka_run_group_tests_name("drawing", tests, NULL, NULL);
}
