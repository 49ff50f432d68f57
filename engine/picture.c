/* picture.c - resize and crop as Pillow does it, so that a picture becomes the very bytes that the model was trained
 * and measured on.
 *
 * Pillow resizes in two passes, one for each direction, each a convolution whose weights are computed in double
 * precision and then rounded to fixed point; between the passes every value is rounded to 8 bits. An output pixel's
 * weights depend on nothing but its own position, so leaving out the pixels that the crop throws away changes no bit
 * of the others. That is what bounds the work: a picture of 1 x 16384 whose shorter side becomes 256 would be 256 x 4
 * million pixels, of which the crop shows 224 x 224. Time and memory follow the picture's size and the crop's, never
 * the resized size.
 *
 * Equal to Pillow 13.0 in every byte on x86-64, over some thousand random pictures: enlarged, reduced, 1 pixel thin,
 * crops larger than the picture (tests/data/images/make_resize_cases.py keeps a sample). Earlier Pillows never begin
 * with the columns, see vertical_first.
 *
 * Any thread; no state. Invariant: sides are 1 to PICTURE_SIDE_MAX, the model's too. */
#include "engine/picture.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/limits.h"

#define CHANNELS 3u
#define FRACTION_BITS 22 /* of a weight; 8 bits of pixel and 2 of sign and overshoot fill an int32_t */
#define ONE_HALF (1 << (FRACTION_BITS - 1))

_Static_assert((uint64_t)PICTURE_SIDE_MAX *PICTURE_SIDE_MAX <= INT32_MAX, "a resized side fits an int32_t");
_Static_assert((uint64_t)PICTURE_SIDE_MAX *PICTURE_SIDE_MAX *CHANNELS <= UINT32_MAX, "size_t holds every buffer");
_Static_assert(MODEL_PICTURE_SIDE_MAX <= PICTURE_SIDE_MAX, "models' sizes are among those that are prepared");

struct span {
    uint32_t begin, count;
};

/* One direction of the resize and of the crop. Visible is the part of the resized picture that lies in the crop.
 * Visible pixel i is the sum over t of weights[i * stride + t] * input[reach.begin + taps[i].begin + t]. */
struct axis {
    uint32_t in, out;    /* pixels before and after */
    double extent;       /* of `in` that becomes `out`: less than all of the last pixel of a reduced side */
    struct span visible; /* of the `out` pixels */
    uint32_t first;      /* where in the crop the first of them lies */
    struct span reach;   /* the input pixels that visible ones use: contiguous, as taps rise with i */
    struct span *taps;   /* [visible.count], counted from reach.begin */
    int32_t *weights;    /* [visible.count, stride], FRACTION_BITS after the point */
    uint32_t stride;
};

void picture_clear(struct picture *p)
{
    if (p == NULL)
        return;
    free(p->pixels);
    *p = (struct picture){0};
}

static void axis_clear(struct axis *a)
{
    free(a->taps);
    free(a->weights);
    *a = (struct axis){0};
}

/* The filter's weight is zero from here on, and from minus that down. */
static double filter_support(enum interpolation how)
{
    return how == INTERPOLATION_BICUBIC ? 2.0 : 1.0;
}

/* Keys' cubic convolution with a = -1/2, or a triangle. */
static double filter_weight(enum interpolation how, double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x >= filter_support(how))
        return 0.0;
    if (how == INTERPOLATION_BILINEAR)
        return 1.0 - x;
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
}

/* (resized - wanted) / 2, a half rounded to the even neighbour as Python's round does. */
static int64_t crop_offset(uint32_t resized, uint32_t wanted)
{
    const int64_t spare = (int64_t)resized - (int64_t)wanted;
    if (spare % 2 == 0)
        return spare / 2;
    const int64_t below = (spare - 1) / 2;
    return below % 2 == 0 ? below : below + 1;
}

/* The visible part of a side of `in` pixels that becomes `out`, cropped to `wanted`. Weights come later. */
static void axis_lay(struct axis *a, uint32_t in, double extent, uint32_t out, uint32_t wanted)
{
    const int64_t offset = crop_offset(out, wanted);
    const int64_t begin = offset > 0 ? offset : 0;
    const int64_t end = offset + wanted < out ? offset + wanted : out;
    *a = (struct axis){.in = in, .out = out, .extent = extent};
    a->visible = (struct span){(uint32_t)begin, (uint32_t)(end - begin)};
    a->first = (uint32_t)(begin - offset);
    assert(begin < end && a->first + a->visible.count <= wanted);
}

/* Rounds half away from zero, as the rest of the arithmetic expects; |weight| stays below 2. */
static int32_t fixed_point(double weight)
{
    const double scaled = weight * (1 << FRACTION_BITS);
    return (int32_t)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

/* The taps of one pixel of the resized picture, counted from the side's start, and their weights.
 * weights [stride] and exact [stride], which is scratch; stretch is what widens the filter. */
static struct span weigh_pixel(int32_t *weights, double *exact, const struct axis *a, uint32_t pixel,
                               enum interpolation how, double stretch)
{
    const double centre = ((double)pixel + 0.5) * (a->extent / (double)a->out);
    const double support = filter_support(how) * stretch;
    const double squeeze = 1.0 / stretch; /* dividing each time would round differently */
    const double low = centre - support + 0.5, high = centre + support + 0.5;
    const uint32_t begin = low > 0.0 ? (uint32_t)low : 0;
    const uint32_t end = high < (double)a->in ? (uint32_t)high : a->in;
    const uint32_t count = end - begin;
    assert(begin < end && count <= a->stride);
    double sum = 0.0;
    for (uint32_t t = 0; t < count; t++) {
        exact[t] = filter_weight(how, ((double)(begin + t) - centre + 0.5) * squeeze);
        sum += exact[t];
    }
    for (uint32_t t = 0; t < count; t++)
        weights[t] = fixed_point(sum != 0.0 ? exact[t] / sum : exact[t]);
    return (struct span){begin, count};
}

/* Taps, weights and reach of the visible pixels. Where the side shrinks, the filter widens by the same factor, which
 * keeps fine texture from aliasing. */
static enum status axis_weigh(struct axis *a, enum interpolation how, struct error *err)
{
    const double scale = a->extent / (double)a->out;
    const double stretch = scale < 1.0 ? 1.0 : scale;
    const uint32_t count = a->visible.count;

    a->stride = (uint32_t)ceil(filter_support(how) * stretch) * 2 + 1;
    a->taps = calloc(count, sizeof(*a->taps));
    a->weights = calloc((size_t)count * a->stride, sizeof(*a->weights));
    double *exact = calloc(a->stride, sizeof(*exact));
    if (a->taps == NULL || a->weights == NULL || exact == NULL) {
        free(exact);
        return error_set(err, ERR_NOMEM, "not enough memory for a resize filter of %u pixels with %u weights each",
                         count, a->stride);
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t *weights = a->weights + (size_t)i * a->stride;
        a->taps[i] = weigh_pixel(weights, exact, a, a->visible.begin + i, how, stretch);
    }
    free(exact);

    const struct span *last = &a->taps[count - 1];
    const uint32_t begin = a->taps[0].begin;
    a->reach = (struct span){begin, last->begin + last->count - begin};
    for (uint32_t i = 0; i < count; i++)
        a->taps[i].begin -= begin;
    return OK;
}

/* Drop the fraction of a sum that began at one half. */
static uint8_t to_byte(int32_t sum)
{
    if (sum < 0)
        return 0;
    const int32_t whole = sum >> FRACTION_BITS;
    return whole > 255 ? 255 : (uint8_t)whole;
}

/* One row, horizontally: in [reach, 3] -> out [visible, 3]. */
static void resize_row(uint8_t *restrict out, const uint8_t *restrict in, const struct axis *x)
{
    for (uint32_t i = 0; i < x->visible.count; i++) {
        const uint8_t *pixel = in + (size_t)x->taps[i].begin * CHANNELS;
        const int32_t *weights = x->weights + (size_t)i * x->stride;
        int32_t r = ONE_HALF, g = ONE_HALF, b = ONE_HALF;
        for (uint32_t t = 0; t < x->taps[i].count; t++, pixel += CHANNELS) {
            r += pixel[0] * weights[t];
            g += pixel[1] * weights[t];
            b += pixel[2] * weights[t];
        }
        *out++ = to_byte(r);
        *out++ = to_byte(g);
        *out++ = to_byte(b);
    }
}

/* Visible row i, vertically: in [reach, size], pitch bytes from row to row -> out [size]; sums [size] is scratch. */
static void resize_column(uint8_t *restrict out, const uint8_t *restrict in, size_t pitch, int32_t *restrict sums,
                          size_t size, const struct axis *y, uint32_t i)
{
    const int32_t *weights = y->weights + (size_t)i * y->stride;
    in += y->taps[i].begin * pitch;
    for (size_t c = 0; c < size; c++)
        sums[c] = ONE_HALF;
    for (uint32_t t = 0; t < y->taps[i].count; t++, in += pitch) {
        for (size_t c = 0; c < size; c++)
            sums[c] += in[c] * weights[t];
    }
    for (size_t c = 0; c < size; c++)
        out[c] = to_byte(sums[c]);
}

/* The order of the passes shows in the last bits. Rows are first unless the height loses more than twice the pixels
 * that the width does (Pillow 13; before, rows were first always). */
static bool vertical_first(const struct axis *x, const struct axis *y)
{
    const int64_t narrower = (int64_t)x->in - (int64_t)x->out, lower = (int64_t)y->in - (int64_t)y->out;
    return lower > 0 && lower > 2 * narrower;
}

/* Both passes, into the crop's visible part: `out` is its first pixel, `pitch` the bytes from row to row. */
static enum status resize(uint8_t *out, size_t pitch, const struct picture *in, struct axis *x, struct axis *y,
                          enum interpolation how, struct error *err)
{
    enum status st = axis_weigh(x, how, err);
    if (st != OK)
        return st;
    st = axis_weigh(y, how, err);
    if (st != OK)
        return st;

    const bool tall = vertical_first(x, y);
    const uint32_t rows = tall ? y->visible.count : y->reach.count;
    const size_t size = (size_t)(tall ? x->reach.count : x->visible.count) * CHANNELS;
    assert(rows > 0 && size > 0);
    uint8_t *between = calloc(rows, size); /* [rows, size] after the first pass */
    int32_t *sums = calloc(size, sizeof(*sums));
    if (between == NULL || sums == NULL) {
        st = error_set(err, ERR_NOMEM, "not enough memory to resize a picture of %u x %u: %zu bytes", in->width,
                       in->height, rows * size);
        goto done;
    }

    const size_t in_pitch = (size_t)in->width * CHANNELS;
    const uint8_t *pixels = in->pixels + y->reach.begin * in_pitch + (size_t)x->reach.begin * CHANNELS;
    if (tall) {
        for (uint32_t i = 0; i < rows; i++)
            resize_column(between + i * size, pixels, in_pitch, sums, size, y, i);
        for (uint32_t i = 0; i < rows; i++)
            resize_row(out + i * pitch, between + i * size, x);
    } else {
        for (uint32_t i = 0; i < rows; i++)
            resize_row(between + i * size, pixels + i * in_pitch, x);
        for (uint32_t i = 0; i < y->visible.count; i++)
            resize_column(out + i * pitch, between, size, sums, size, y, i);
    }
done:
    free(sums);
    free(between);
    return st;
}

/* The longer side after the shorter one became `to`: truncated, and never below `to`. */
static uint32_t longer_side(uint32_t longer, uint32_t shorter, uint32_t to)
{
    return (uint32_t)((uint64_t)to * longer / shorter);
}

struct sides {
    uint32_t width, height;
};

/* The whole picture's sides after the shorter became resize_to. */
static struct sides resized_sides(const struct picture *p, uint32_t resize_to)
{
    const uint32_t width = picture_whole_width(p), height = picture_whole_height(p);
    if (width <= height)
        return (struct sides){resize_to, longer_side(height, width, resize_to)};
    return (struct sides){longer_side(width, height, resize_to), resize_to};
}

/* How many of its pixels a side of `whole` pixels fills. */
static double extent_of(const struct picture *p, uint32_t whole)
{
    return p->reduced != 0 ? (double)whole / (double)p->reduced : (double)whole;
}

/* Blacken what lies outside the picture in the crop, out [height, pitch]. */
static void blacken_outside(uint8_t *out, size_t pitch, uint32_t height, const struct axis *x, const struct axis *y)
{
    const uint32_t below = y->first + y->visible.count;
    const size_t left = (size_t)x->first * CHANNELS, right = left + (size_t)x->visible.count * CHANNELS;
    memset(out, 0, y->first * pitch);
    memset(out + below * pitch, 0, (height - below) * pitch);
    for (uint32_t i = y->first; i < below; i++) {
        memset(out + i * pitch, 0, left);
        memset(out + i * pitch + right, 0, pitch - right);
    }
}

enum status picture_prepare(uint8_t *out, uint32_t width, uint32_t height, const struct picture *in, uint32_t resize_to,
                            enum interpolation how, struct error *err)
{
    const uint32_t w = in->width, h = in->height;
    assert(in->pixels != NULL && w > 0 && w <= PICTURE_SIDE_MAX && h > 0 && h <= PICTURE_SIDE_MAX);
    assert(width > 0 && width <= PICTURE_SIDE_MAX && height > 0 && height <= PICTURE_SIDE_MAX);
    assert(resize_to > 0 && resize_to <= PICTURE_SIDE_MAX);

    const struct sides to = resized_sides(in, resize_to);
    const bool keep = to.width == w && to.height == h;
    struct axis x, y;
    axis_lay(&x, w, extent_of(in, picture_whole_width(in)), to.width, width);
    axis_lay(&y, h, extent_of(in, picture_whole_height(in)), to.height, height);

    const size_t pitch = (size_t)width * CHANNELS;
    uint8_t *visible = out + y.first * pitch + (size_t)x.first * CHANNELS;
    enum status st = OK;
    if (keep) {
        for (uint32_t i = 0; i < y.visible.count; i++)
            memcpy(visible + i * pitch, in->pixels + ((size_t)(y.visible.begin + i) * w + x.visible.begin) * CHANNELS,
                   (size_t)x.visible.count * CHANNELS);
    } else {
        st = resize(visible, pitch, in, &x, &y, how, err);
    }
    if (st == OK)
        blacken_outside(out, pitch, height, &x, &y);
    axis_clear(&x);
    axis_clear(&y);
    return st;
}

struct picture_box picture_crop_box(const struct picture *of, uint32_t resize_to, uint32_t width, uint32_t height)
{
    const struct sides to = resized_sides(of, resize_to);
    const double x = (double)picture_whole_width(of) / (double)to.width,
                 y = (double)picture_whole_height(of) / (double)to.height;
    return (struct picture_box){
        .left = x * (double)crop_offset(to.width, width),
        .top = y * (double)crop_offset(to.height, height),
        .width = x * (double)width,
        .height = y * (double)height,
    };
}

enum status picture_resize(uint8_t *out, uint32_t width, uint32_t height, const struct picture *in,
                           enum interpolation how, struct error *err)
{
    struct axis x, y;
    assert(in->pixels != NULL && in->width > 0 && in->height > 0 && width > 0 && height > 0);
    axis_lay(&x, in->width, extent_of(in, picture_whole_width(in)), width, width);
    axis_lay(&y, in->height, extent_of(in, picture_whole_height(in)), height, height);
    const enum status st = resize(out, (size_t)width * CHANNELS, in, &x, &y, how, err);
    axis_clear(&x);
    axis_clear(&y);
    return st;
}
