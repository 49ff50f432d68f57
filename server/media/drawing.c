/* drawing.c - see drawing.h. */
#include "server/media/drawing.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAP_SHARE 0.5f      /* of a map's colour in a pixel; the picture has the rest */
#define OUTSIDE_SHARE 0.35f /* of a pixel that is left where the model does not look */
#define FRAME_GREY 200
#define GAP_GREY 64 /* between tiles */

enum { RAMP_COLOURS = 5 };

struct colour {
    float red, green, blue;
};

/* The colour at 0..1 of a ramp. */
static struct colour ramp_at(const struct colour ramp[RAMP_COLOURS], float at)
{
    const float colour = fminf(fmaxf(at, 0.0f), 1.0f) * (RAMP_COLOURS - 1); /* NaN becomes 0 */
    const size_t i = colour < RAMP_COLOURS - 1 ? (size_t)colour : RAMP_COLOURS - 2;
    const float f = colour - (float)i;
    return (struct colour){
        ramp[i].red + f * (ramp[i + 1].red - ramp[i].red),
        ramp[i].green + f * (ramp[i + 1].green - ramp[i].green),
        ramp[i].blue + f * (ramp[i + 1].blue - ramp[i].blue),
    };
}

static uint8_t to_byte(float value)
{
    return (uint8_t)(fminf(fmaxf(value, 0.0f), 255.0f) + 0.5f);
}

/* `share` of a colour, on that much grey. */
static void put_pixel(uint8_t *pixel, const struct colour *c, float share, float grey)
{
    pixel[0] = to_byte(share * c->red + grey);
    pixel[1] = to_byte(share * c->green + grey);
    pixel[2] = to_byte(share * c->blue + grey);
}

/* ---- maps ------------------------------------------------------------------------------------------------------ */

/* Lightness rises all the way, so that the order of values is seen without colours too. */
static const struct colour heat[RAMP_COLOURS] = {
    {20, 11, 52}, {101, 21, 110}, {187, 55, 84}, {249, 142, 9}, {252, 255, 164}};

/* Where a pixel's centre lies between the centres of n cells that fill [begin, begin + size). */
struct between {
    size_t cell; /* and the next, if there is one */
    float share; /* of the next */
    bool inside;
};

static struct between lies_between(uint32_t pixel, double begin, double size, uint32_t n)
{
    const double at = ((double)pixel + 0.5 - begin) / size * n, centre = fmin(fmax(at - 0.5, 0.0), n - 1.0);
    return (struct between){
        .cell = (size_t)centre, .share = (float)(centre - floor(centre)), .inside = at >= 0.0 && at < n};
}

static float map_at(const float *map, uint32_t down, uint32_t across, const struct between *y, const struct between *x)
{
    const size_t right = x->cell + 1 < across ? 1 : 0, below = y->cell + 1 < down ? across : 0;
    const float *m = map + y->cell * across + x->cell;
    const float upper = m[0] + x->share * (m[right] - m[0]);
    const float lower = m[below] + x->share * (m[below + right] - m[below]);
    return upper + y->share * (lower - upper);
}

/* Under the map the picture is grey, so that all colour is the map's. */
static void colour_pixel(uint8_t *pixel, float value)
{
    const struct colour c = ramp_at(heat, value);
    put_pixel(pixel, &c, MAP_SHARE,
              (1.0f - MAP_SHARE) * (0.299f * (float)pixel[0] + 0.587f * (float)pixel[1] + 0.114f * (float)pixel[2]));
}

/* Of a row or column of pixels: within the box, right beside it, or further away. */
enum where { AWAY, BESIDE, WITHIN };

static enum where where_is(uint32_t pixel, double begin, double size, uint32_t n)
{
    if (lies_between(pixel, begin, size, n).inside)
        return WITHIN;
    const bool before = pixel > 0 && lies_between(pixel - 1, begin, size, n).inside;
    return before || lies_between(pixel + 1, begin, size, n).inside ? BESIDE : AWAY;
}

void draw_map(struct picture *onto, const struct picture_box *box, const float *map, uint32_t down, uint32_t across)
{
    float largest = 0.0f;
    for (size_t i = 0; i < (size_t)down * across; i++)
        largest = fmaxf(largest, map[i]);
    const float scale = largest > 0.0f ? 1.0f / largest : 0.0f;
    uint8_t *pixel = onto->pixels;
    for (uint32_t row = 0; row < onto->height; row++) {
        const struct between y = lies_between(row, box->top, box->height, down);
        const enum where of_row = where_is(row, box->top, box->height, down);
        for (uint32_t column = 0; column < onto->width; column++, pixel += 3) {
            const struct between x = lies_between(column, box->left, box->width, across);
            const enum where of_column = where_is(column, box->left, box->width, across);
            const enum where is = of_column < of_row ? of_column : of_row;
            if (is == WITHIN)
                colour_pixel(pixel, scale * map_at(map, down, across, &y, &x));
            for (size_t i = 0; i < 3 && is != WITHIN; i++)
                pixel[i] = is == BESIDE ? FRAME_GREY : to_byte(OUTSIDE_SHARE * (float)pixel[i]);
        }
    }
}

/* ---- sheets ---------------------------------------------------------------------------------------------------- */

/* Blue for -1, white for 0, red for 1. */
static const struct colour diverging[RAMP_COLOURS] = {
    {33, 68, 172}, {120, 166, 224}, {247, 247, 247}, {240, 138, 104}, {178, 18, 36}};

struct tiles {
    uint32_t columns, rows; /* of tiles */
    uint32_t down, across;  /* of cells in one */
    uint32_t height, width; /* of one, in pixels */
    uint32_t gap;           /* around and between them, in pixels */
};

/* Pixels that each of n tiles may have on a side. */
static uint32_t share_of(uint32_t side, uint32_t n, uint32_t gap)
{
    const uint32_t gaps = gap * (n + 1);
    return n > 0 && side > gaps ? (side - gaps) / n : 0;
}

/* Make the tiles as large as they can be, with cells of whole pixels if there is a pixel for each: these are worth more
 * than wide gaps, narrow gaps more than large tiles. False: there is not one pixel for each tile. */
static bool tiles_fit(struct tiles *t, uint32_t side)
{
    const bool strip = t->down == 1;
    const uint32_t most =
        side / (t->columns > t->rows ? t->columns : t->rows) / 12 + 1; /* between small tiles: little */
    for (int gap = (int)(side / 256 < most ? side / 256 + 1 : most); gap >= 0; gap--) {
        const uint32_t width = share_of(side, t->columns, (uint32_t)gap),
                       height = share_of(side, t->rows, (uint32_t)gap);
        const double across = (double)width / t->across, down = (double)height / t->down;
        const double fits = strip ? across : fmin(across, down), cell = fits >= 1.0 ? floor(fits) : fits;
        if (cell < 1.0 && gap > 1)
            continue;
        /* One cell in height is hard to see when there are many in width. */
        const uint32_t seen = side / 16;
        const double tall = strip ? fmin(height, fmax(cell, seen)) : cell * t->down;
        t->gap = (uint32_t)gap;
        t->width = (uint32_t)(cell * t->across + 0.5);
        t->height = (uint32_t)(tall + 0.5);
        if (t->width > 0 && t->height > 0)
            return true;
    }
    return false;
}

/* The mean of the cells that a pixel covers, or the cell that it lies in. */
static float cells_at(const float *cells, const struct tiles *t, uint32_t y, uint32_t x)
{
    const size_t top = (size_t)y * t->down / t->height, bottom = ((size_t)y + 1) * t->down / t->height;
    const size_t left = (size_t)x * t->across / t->width, right = ((size_t)x + 1) * t->across / t->width;
    float sum = 0.0f;
    size_t count = 0;
    for (size_t i = top; i == top || i < bottom; i++)
        for (size_t j = left; j == left || j < right; j++, count++)
            sum += cells[i * t->across + j];
    return sum / (float)count;
}

static void draw_tile(const struct picture *onto, const struct tiles *t, uint32_t row, uint32_t column,
                      const float *cells, bool biases)
{
    const size_t top = t->gap + (size_t)row * (t->height + t->gap),
                 left = t->gap + (size_t)column * (t->width + t->gap);
    float largest = 0.0f;
    for (size_t i = 0; i < (size_t)t->down * t->across; i++)
        largest = fmaxf(largest, fabsf(cells[i]));
    for (uint32_t y = 0; y < t->height; y++)
        for (uint32_t x = 0; x < t->width; x++) {
            const float value = largest > 0.0f ? cells_at(cells, t, y, x) / largest : 0.0f;
            const struct colour c = biases ? ramp_at(diverging, 0.5f + 0.5f * value) : ramp_at(heat, value);
            put_pixel(onto->pixels + ((top + y) * onto->width + left + x) * 3, &c, 1.0f, 0.0f);
        }
}

/* A layer's heads in as many rows as make the sheet most like a square: their number. */
static uint32_t rows_of_layer(const struct sheet *s)
{
    const uint64_t down = s->down > 1 ? s->down : (s->across + 7) / 8; /* strips are drawn higher than they are */
    uint64_t least = UINT64_MAX;
    uint32_t best = 1;
    for (uint32_t rows = 1; rows <= s->heads; rows++) {
        const uint64_t across = (uint64_t)(s->heads + rows - 1) / rows * s->across,
                       below = (uint64_t)s->layers * rows * down;
        const uint64_t longer = across > below ? across : below;
        if (longer < least) {
            least = longer;
            best = rows;
        }
    }
    return best;
}

static struct tiles tiles_of(const struct sheet *s)
{
    const uint32_t rows = rows_of_layer(s);
    return (struct tiles){
        .columns = (s->heads + rows - 1) / rows, .rows = s->layers * rows, .down = s->down, .across = s->across};
}

uint32_t draw_sheet_side(const struct sheet *s)
{
    uint32_t side = EXPLAIN_SIDE_DEFAULT;
    for (struct tiles t = tiles_of(s); side < EXPLAIN_SIDE_MAX; side += EXPLAIN_SIDE_DEFAULT / 4)
        if (tiles_fit(&t, side) && t.width >= 2 * t.across)
            break;
    return side < EXPLAIN_SIDE_MAX ? side : EXPLAIN_SIDE_MAX;
}

enum status draw_sheet(struct picture *ret, const struct sheet *s, uint32_t side, struct error *err)
{
    struct tiles t = tiles_of(s);
    const size_t values = (size_t)t.down * t.across;
    assert(t.columns > 0 && t.rows > 0 && values > 0);
    if (!tiles_fit(&t, side))
        return error_set_param(err, ERR_ARGUMENT, "side",
                               "\"side\" is %u, less than a pixel for each of %u x %u tiles of %u x %u cells; expected "
                               "more, or one \"layer\" or \"head\"",
                               side, t.columns, t.rows, t.across, t.down);
    struct picture p = {.width = t.gap + t.columns * (t.width + t.gap), .height = t.gap + t.rows * (t.height + t.gap)};
    const size_t bytes = (size_t)p.width * p.height * 3;
    float *biases = calloc(values, sizeof *biases);
    p.pixels = malloc(bytes);
    if (p.pixels == NULL || biases == NULL) {
        free(biases);
        picture_clear(&p);
        return error_set(err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels", p.width, p.height);
    }
    memset(p.pixels, GAP_GREY, bytes);
    for (uint32_t layer = 0; layer < s->layers; layer++)
        for (uint32_t head = 0; head < s->heads; head++) {
            const uint32_t row = layer * (t.rows / s->layers) + head / t.columns;
            if (s->engine != NULL)
                engine_biases_read(s->engine, s->layer + layer, s->head + head, biases);
            draw_tile(&p, &t, row, head % t.columns,
                      s->engine != NULL ? biases : s->maps + ((size_t)layer * s->heads + head) * values,
                      s->engine != NULL);
        }
    free(biases);
    *ret = p;
    return OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

enum status draw_table_of_counts(struct picture *ret, const uint32_t *counts, uint32_t n, uint32_t side,
                                 struct error *err)
{
    const uint32_t cell = side > n ? side / n : 1;
    struct picture p = {.width = n * cell, .height = n * cell};
    const size_t line = (size_t)p.width * 3;
    p.pixels = malloc(line * p.height);
    if (p.pixels == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for a picture of %u x %u pixels", p.width, p.height);
    for (size_t y = 0; y < n; y++) {
        const uint32_t *row = counts + y * n;
        uint64_t sum = 0;
        for (size_t x = 0; x < n; x++)
            sum += row[x];
        for (size_t x = 0; x < n; x++) {
            const double share = sum > 0 ? (double)row[x] / (double)sum : 0.0;
            memset(p.pixels + y * cell * line + x * cell * 3, 255 - (int)(255.0 * sqrt(share)), (size_t)cell * 3);
        }
        for (size_t i = 1; i < cell; i++)
            memcpy(p.pixels + (y * cell + i) * line, p.pixels + y * cell * line, line);
    }
    *ret = p;
    return OK;
}
