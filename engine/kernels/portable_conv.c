/* portable_conv.c - AFT-conv over one picture: keys, values, sums over windows and what is outside them, and the exact
 * form. Engine threads only. */
#include "engine/kernels/portable.h"

LANES_INLINE lanes gather(const float *row, const uint32_t *index)
{
    float a[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        a[i] = row[index[i]];
    return lanes_load(a);
}

void KERNEL(conv_keys)(float *e, const float *k, const struct conv_shape *s, size_t head)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t h = head; h < head + LANES; h += WIDTH) {
        lanes n, top;
        (void)lanes_exp_parts(lanes_load(k + h), &top);
        for (size_t p = 1; p < tokens; p++) {
            (void)lanes_exp_parts(lanes_load(k + p * s->stride + h), &n);
            top = lanes_max(top, n);
        }
        const lanes r = top - (float)KEY_RAISED;
        for (size_t p = 0; p < tokens; p++) {
            const lanes m = lanes_exp_parts(lanes_load(k + p * s->stride + h), &n);
            lanes_store(e + p * s->heads + h, m * lanes_power_of_2(n - r));
        }
    }
}

void KERNEL(conv_values)(float *ev, const float *e, const float *v, const uint32_t *head_of, const struct conv_shape *s,
                         size_t channel)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t p = 0; p < tokens; p++)
        for (size_t c = channel; c < channel + LANES; c += WIDTH)
            lanes_store(ev + p * s->channels + c,
                        gather(e + p * s->heads, head_of + c) * lanes_load(v + p * s->stride + c));
}

/* Sums: left[y][x] of the row's positions before x, right[y][x] of those from x on, width + 1 entries a row; above[y]
 * of the rows before y, below[y] of the rows from y on, height + 1 entries. */
struct conv_prefix {
    float *left, *right, *above, *below;
};

static struct conv_prefix conv_prefix_in(float *scratch, const struct conv_shape *s)
{
    const size_t rows = (size_t)s->height * (s->width + 1) * WIDTH, column = (size_t)(s->height + 1) * WIDTH;
    return (struct conv_prefix){scratch, scratch + rows, scratch + 2 * rows, scratch + 2 * rows + column};
}

static void conv_sum_rows(const struct conv_prefix *f, const float *x, const struct conv_shape *s, size_t columns)
{
    const size_t height = s->height, width = s->width;
    lanes total = {0};
    for (size_t y = 0; y < height; y++) {
        const float *row = x + y * width * columns;
        float *left = f->left + y * (width + 1) * WIDTH, *right = f->right + y * (width + 1) * WIDTH;
        lanes sum = {0};
        for (size_t i = 0; i < width; i++) {
            lanes_store(left + i * WIDTH, sum);
            sum += lanes_load(row + i * columns);
        }
        lanes_store(left + width * WIDTH, sum);
        lanes_store(f->above + y * WIDTH, total);
        total += sum;
        sum = lanes_set(0.0f);
        lanes_store(right + width * WIDTH, sum);
        for (size_t i = width; i-- > 0;) {
            sum += lanes_load(row + i * columns);
            lanes_store(right + i * WIDTH, sum);
        }
    }
    lanes_store(f->above + height * WIDTH, total);
    total = lanes_set(0.0f);
    lanes_store(f->below + height * WIDTH, total);
    for (size_t y = height; y-- > 0;) {
        total += lanes_load(f->right + y * (width + 1) * WIDTH);
        lanes_store(f->below + y * WIDTH, total);
    }
}

/* Where position + offset - radius lies on a side of n positions. */
LANES_INLINE size_t conv_clip(size_t position, size_t offset, size_t radius, size_t n)
{
    const size_t at = position + offset;
    return at < radius ? 0 : at - radius < n ? at - radius : n;
}

#define BLOCK 4      /* positions side by side that share their loads */
#define BLOCK_TAPS 7 /* of a row of the kernel, from which on they have enough of them in common */

/* Add a row of the window to inside[j] for the positions i + j of a row, tap by tap in order: those that all of them
 * have in common by columns of x, of which each meets BLOCK taps, one of them new; the others one by one. */
LANES_INLINE void conv_block_row(lanes inside[BLOCK], const float *row, const float *taps, const struct conv_shape *s,
                                 size_t i, size_t columns)
{
    const size_t rx = s->kw / 2, first = conv_clip(i + BLOCK - 1, 0, rx, s->width);
    const size_t end = conv_clip(i, s->kw, rx, s->width);
#pragma GCC unroll 4
    for (size_t j = 0; j < BLOCK; j++)
        for (size_t b = conv_clip(i + j, 0, rx, s->width); b < first; b++)
            inside[j] += lanes_load(taps + (b + rx - i - j) * columns) * lanes_load(row + b * columns);
    lanes tap[BLOCK]; /* tap[j]: of position i + j at column b */
#pragma GCC unroll 4
    for (size_t j = 1; j < BLOCK; j++)
        tap[j - 1] = lanes_load(taps + (first + rx - i - j) * columns);
#pragma GCC unroll 4
    for (size_t b = first; b < end; b++) {
        const lanes value = lanes_load(row + b * columns);
#pragma GCC unroll 4
        for (size_t j = BLOCK - 1; j > 0; j--)
            tap[j] = tap[j - 1];
        tap[0] = lanes_load(taps + (b + rx - i) * columns);
#pragma GCC unroll 4
        for (size_t j = 0; j < BLOCK; j++)
            inside[j] += tap[j] * value;
    }
#pragma GCC unroll 4
    for (size_t j = 1; j < BLOCK; j++)
        for (size_t b = end, last = conv_clip(i + j, s->kw, rx, s->width); b < last; b++)
            inside[j] += lanes_load(taps + (b + rx - i - j) * columns) * lanes_load(row + b * columns);
}

/* conv_sums for BLOCK positions of a row from i on, every tap. */
LANES_INLINE void conv_sum_block(float *out, const float *x, const float *taps, const struct conv_prefix *f,
                                 const struct conv_shape *s, size_t y, size_t i, size_t columns)
{
    const size_t width = s->width, ry = s->kh / 2, rx = s->kw / 2;
    const size_t y0 = conv_clip(y, 0, ry, s->height), y1 = conv_clip(y, s->kh, ry, s->height);
    lanes inside[BLOCK] = {{0}}, outside[BLOCK];
#pragma GCC unroll 4
    for (size_t j = 0; j < BLOCK; j++)
        outside[j] = lanes_load(f->above + y0 * WIDTH) + lanes_load(f->below + y1 * WIDTH);
    for (size_t a = y0; a < y1; a++) {
        const float *left = f->left + a * (width + 1) * WIDTH, *right = f->right + a * (width + 1) * WIDTH;
#pragma GCC unroll 4
        for (size_t j = 0; j < BLOCK; j++)
            outside[j] += lanes_load(left + conv_clip(i + j, 0, rx, width) * WIDTH) +
                          lanes_load(right + conv_clip(i + j, s->kw, rx, width) * WIDTH);
        conv_block_row(inside, x + a * width * columns, taps + (a + ry - y) * s->kw * columns, s, i, columns);
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < BLOCK; j++)
        lanes_store(out + (y * width + i + j) * columns, outside[j] + inside[j]);
}

/* conv_sums for the WIDTH columns that x, taps and out begin with. spans NULL: every tap of every row counts. */
LANES_INLINE void conv_sum_register(float *out, const float *x, const float *taps, const struct conv_span *spans,
                                    const struct conv_shape *s, size_t columns, float *scratch)
{
    const size_t height = s->height, width = s->width, ry = s->kh / 2, rx = s->kw / 2;
    const struct conv_prefix f = conv_prefix_in(scratch, s);
    const struct conv_span all_rows = {0, s->kh}, all_taps = {0, s->kw};
    const struct conv_span rows = spans != NULL ? spans[s->kh] : all_rows;
    conv_sum_rows(&f, x, s, columns);
    for (size_t y = 0; y < height; y++) {
        const size_t y0 = conv_clip(y, rows.first, ry, height), y1 = conv_clip(y, rows.end, ry, height);
        size_t i = 0;
        if (spans == NULL && s->kw >= BLOCK_TAPS)
            for (; i + BLOCK <= width && conv_clip(i + BLOCK - 1, 0, rx, width) < conv_clip(i, s->kw, rx, width);
                 i += BLOCK)
                conv_sum_block(out, x, taps, &f, s, y, i, columns);
        for (; i < width; i++) {
            lanes outside = lanes_load(f.above + y0 * WIDTH) + lanes_load(f.below + y1 * WIDTH);
            lanes inside = {0};
            for (size_t a = y0; a < y1; a++) {
                const struct conv_span span = spans != NULL ? spans[a + ry - y] : all_taps;
                const size_t x0 = conv_clip(i, span.first, rx, width), x1 = conv_clip(i, span.end, rx, width);
                outside += lanes_load(f.left + (a * (width + 1) + x0) * WIDTH) +
                           lanes_load(f.right + (a * (width + 1) + x1) * WIDTH);
                const float *row = x + a * width * columns;
                const float *tap = taps + ((a + ry - y) * s->kw + (x0 + rx - i)) * columns;
                for (size_t b = x0; b < x1; b++, tap += columns)
                    inside += lanes_load(tap) * lanes_load(row + b * columns);
            }
            lanes_store(out + (y * width + i) * columns, outside + inside);
        }
    }
}

void KERNEL(conv_sums)(float *out, const float *x, const float *taps, const struct conv_span *spans,
                       const struct conv_shape *s, size_t columns, size_t column, float *scratch)
{
    for (size_t c = column; c < column + LANES; c += WIDTH)
        if (spans == NULL)
            conv_sum_register(out + c, x + c, taps + c, NULL, s, columns, scratch);
        else
            conv_sum_register(out + c, x + c, taps + c, spans, s, columns, scratch);
}

void KERNEL(conv_finish)(float *y, const float *q, const float *num, const float *den, const uint32_t *head_of,
                         const struct conv_shape *s, size_t channel, bool gate)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t p = 0; p < tokens; p++)
        for (size_t c = channel; c < channel + LANES; c += WIDTH)
            lanes_store(y + p * s->channels + c,
                        gated_mean(q + p * s->stride + c, lanes_load(num + p * s->channels + c),
                                   gather(den + p * s->heads, head_of + c), gate));
}

/* The positions that p is a mean of, and the window among them, whose corner has the tap first_tap. */
struct conv_reach {
    size_t y0, y1, x0, x1; /* positions */
    size_t wy0, wy1, wx0, wx1;
    size_t first_tap;
};

static struct conv_reach conv_reach_of(const struct conv_shape *s, size_t p, bool global)
{
    const size_t py = p / s->width, px = p % s->width, ry = s->kh / 2, rx = s->kw / 2;
    struct conv_reach r = {
        .wy0 = py > ry ? py - ry : 0,
        .wy1 = py + s->kh - ry < s->height ? py + s->kh - ry : s->height,
        .wx0 = px > rx ? px - rx : 0,
        .wx1 = px + s->kw - rx < s->width ? px + s->kw - rx : s->width,
    };
    r.first_tap = (r.wy0 + ry - py) * s->kw + (r.wx0 + rx - px);
    r.y0 = global ? 0 : r.wy0;
    r.y1 = global ? s->height : r.wy1;
    r.x0 = global ? 0 : r.wx0;
    r.x1 = global ? s->width : r.wx1;
    return r;
}

/* k + w of position (a, b) for the WIDTH heads from h. */
LANES_INLINE lanes conv_exponent(const float *k, const float *bias, const struct conv_shape *s,
                                 const struct conv_reach *r, size_t a, size_t b, size_t h)
{
    const lanes key = lanes_load(k + (a * s->width + b) * s->stride + h);
    if (a < r->wy0 || a >= r->wy1 || b < r->wx0 || b >= r->wx1)
        return key;
    const size_t tap = r->first_tap + (a - r->wy0) * s->kw + (b - r->wx0);
    return key + lanes_load(bias + tap * s->heads + h);
}

/* a_j for every head into weights [positions, heads], their sums into its last row. */
static void conv_weigh(float *weights, const float *k, const float *bias, const struct conv_shape *s,
                       const struct conv_reach *r)
{
    for (size_t h = 0; h < s->heads; h += WIDTH) {
        lanes top = conv_exponent(k, bias, s, r, r->y0, r->x0, h), den = {0};
        for (size_t a = r->y0; a < r->y1; a++)
            for (size_t b = r->x0; b < r->x1; b++)
                top = lanes_max(top, conv_exponent(k, bias, s, r, a, b, h));
        float *to = weights + h;
        for (size_t a = r->y0; a < r->y1; a++)
            for (size_t b = r->x0; b < r->x1; b++, to += s->heads) {
                const lanes e = lanes_exp(conv_exponent(k, bias, s, r, a, b, h) - top);
                den += e;
                lanes_store(to, e);
            }
        lanes_store(to, den);
    }
}

void KERNEL(conv_exact)(float *y, const float *q, const float *k, const float *v, const float *bias,
                        const uint32_t *head_of, const struct conv_shape *s, size_t p, bool gate, bool global,
                        float *weights)
{
    const struct conv_reach r = conv_reach_of(s, p, global);
    conv_weigh(weights, k, bias, s, &r);
    for (size_t c = 0; c < s->channels; c += WIDTH) {
        const float *weight = weights;
        lanes num = {0};
        for (size_t a = r.y0; a < r.y1; a++)
            for (size_t b = r.x0; b < r.x1; b++, weight += s->heads)
                num += gather(weight, head_of + c) * lanes_load(v + (a * s->width + b) * s->stride + c);
        const lanes den = gather(weight, head_of + c);
        lanes_store(y + p * s->channels + c, gated_mean(q + p * s->stride + c, num, den, gate));
    }
}
