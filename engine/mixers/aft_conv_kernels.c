/* aft_conv_kernels.c - AFT-conv over one picture: keys, values, sums over windows and what is outside them, and the
 * exact form; and AFT's over any sequence. Engine threads only. */
#include "engine/mixers/aft_kernels.h"

LANES_INLINE lanes gather(const float *p, const uint32_t *index)
{
    float a[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        a[i] = p[index[i]];
    return lanes_load(a);
}

/* ---- tiles: LANES columns of all tokens ------------------------------------------------------------------------- */

void KERNEL(conv_keys)(float *e, const float *k, const struct conv_shape *s)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t h = 0; h < LANES; h += WIDTH) {
        lanes n, top;
        (void)lanes_exp_parts(lanes_load(k + h), &top);
        for (size_t p = 1; p < tokens; p++) {
            (void)lanes_exp_parts(lanes_load(k + p * s->stride + h), &n);
            top = lanes_max(top, n);
        }
        const lanes r = top - (float)KEY_RAISED;
        for (size_t p = 0; p < tokens; p++) {
            const lanes m = lanes_exp_parts(lanes_load(k + p * s->stride + h), &n);
            lanes_store(e + p * s->token + h, m * lanes_power_of_2(n - r));
        }
    }
}

/* Where WIDTH channels' heads stand in tiles. */
struct conv_heads {
    uint32_t at[WIDTH];
    bool in_order; /* from at[0] on: one load */
};

LANES_INLINE struct conv_heads conv_heads_of(const uint32_t *head_of, const struct conv_shape *s)
{
    struct conv_heads heads = {.in_order = head_of[0] % WIDTH == 0};
    for (uint32_t i = 0; i < WIDTH; i++) {
        heads.at[i] = (uint32_t)(head_of[i] / LANES * s->group + head_of[i] % LANES);
        heads.in_order = heads.in_order && head_of[i] == head_of[0] + i;
    }
    return heads;
}

LANES_INLINE lanes conv_heads_load(const struct conv_heads *heads, const float *tiles)
{
    return heads->in_order ? lanes_load(tiles + heads->at[0]) : gather(tiles, heads->at);
}

void KERNEL(conv_values)(float *ev, const float *e, const float *v, const uint32_t *head_of, const struct conv_shape *s)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t c = 0; c < LANES; c += WIDTH) {
        const struct conv_heads heads = conv_heads_of(head_of + c, s);
        for (size_t p = 0; p < tokens; p++)
            lanes_store(ev + p * s->token + c,
                        conv_heads_load(&heads, e + p * s->token) * lanes_load(v + p * s->stride + c));
    }
}

void KERNEL(conv_finish)(float *y, const float *q, const float *num, const float *den, const uint32_t *head_of,
                         const struct conv_shape *s, bool gate)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t c = 0; c < LANES; c += WIDTH) {
        const struct conv_heads heads = conv_heads_of(head_of + c, s);
        for (size_t p = 0; p < tokens; p++)
            lanes_store(y + p * s->channels + c, gated_mean(q + p * s->stride + c, lanes_load(num + p * s->token + c),
                                                            conv_heads_load(&heads, den + p * s->token), gate));
    }
}

/* ---- sums over windows and beyond ------------------------------------------------------------------------------- */

/* Where position + offset - radius lies on a side of n positions. */
LANES_INLINE size_t conv_clip(size_t position, size_t offset, size_t radius, size_t n)
{
    const size_t at = position + offset;
    return at < radius ? 0 : at - radius < n ? at - radius : n;
}

#define BLOCK_MAX (WIDTH == 16 ? 14 : 8) /* positions side by side whose sums stay in registers */

/* How far windows reach beyond a position of a row without leaving the picture, and the rows of it with that many zeros
 * before and after them: what a tap meets there counts for nothing. */
struct conv_margin {
    size_t left, right, taps; /* left + 1 + right */
    size_t pitch;             /* registers of a row: left + width + right */
};

static struct conv_margin conv_margin_of(const struct conv_shape *s)
{
    const size_t rx = s->kw / 2, behind = s->kw - 1 - rx, last = s->width - 1;
    struct conv_margin m = {.left = rx < last ? rx : last, .right = behind < last ? behind : last};
    m.taps = m.left + 1 + m.right;
    m.pitch = m.left + s->width + m.right;
    return m;
}

/* Parts of the scratch, in registers: the rows with their margins; sums of the rows above and below each, height + 1 of
 * them; of a row of the output, sums of the window's rows by column, and of all that is beyond each window. */
struct conv_parts {
    float *rows, *above, *below, *columns, *beyond;
};

static struct conv_parts conv_parts_in(float *scratch, const struct conv_shape *s, const struct conv_margin *m)
{
    const size_t tail = BLOCK_MAX; /* a block may end past its row; what it reads there is discarded */
    struct conv_parts f = {.rows = scratch};
    f.above = f.rows + (s->height * m->pitch + tail) * WIDTH;
    f.below = f.above + (s->height + (size_t)1) * WIDTH;
    f.columns = f.below + (s->height + (size_t)1) * WIDTH;
    f.beyond = f.columns + (size_t)s->width * WIDTH;
    return f;
}

static void conv_lay_rows(const struct conv_parts *f, const float *x, const struct conv_shape *s,
                          const struct conv_margin *m)
{
    float *to = f->rows;
    struct long_sum total = {{0}, {0}};
    for (size_t y = 0; y < s->height; y++, to += m->pitch * WIDTH) {
        struct running_sum sum = {.terms = 0};
        memset(to, 0, m->left * WIDTH * sizeof *to);
        for (size_t i = 0; i < s->width; i++) {
            const lanes value = lanes_load(x + (y * s->width + i) * s->token);
            lanes_store(to + (m->left + i) * WIDTH, value);
            running_sum_add(&sum, value);
        }
        memset(to + (m->left + s->width) * WIDTH, 0, m->right * WIDTH * sizeof *to);
        lanes_store(f->above + y * WIDTH, total.sum);
        lanes_store(f->below + y * WIDTH, running_sum_of(&sum));
        long_sum_add(&total, running_sum_of(&sum));
    }
    memset(to, 0, (size_t)BLOCK_MAX * WIDTH * sizeof *to);
    lanes_store(f->above + (size_t)s->height * WIDTH, total.sum);
    total = (struct long_sum){{0}, {0}};
    lanes_store(f->below + (size_t)s->height * WIDTH, total.sum);
    for (size_t y = s->height; y-- > 0;) {
        long_sum_add(&total, lanes_load(f->below + y * WIDTH));
        lanes_store(f->below + y * WIDTH, total.sum);
    }
}

/* The sums of what is beyond the windows of the positions of a row, whose windows have the rows [y0, y1). */
static void conv_beyond(const struct conv_parts *f, const struct conv_shape *s, const struct conv_margin *m, size_t y0,
                        size_t y1)
{
    const size_t width = s->width, rx = s->kw / 2, behind = s->kw - rx;
    const lanes rows = lanes_load(f->above + y0 * WIDTH) + lanes_load(f->below + y1 * WIDTH);
    for (size_t b = 0; b < width; b++) {
        lanes sum = {0};
        for (size_t a = y0; a < y1; a++)
            sum += lanes_load(f->rows + (a * m->pitch + m->left + b) * WIDTH);
        lanes_store(f->columns + b * WIDTH, sum);
    }
    struct running_sum right = {.terms = 0}, left = {.terms = 0};
    for (size_t i = width; i-- > 0;) {
        if (i + behind < width)
            running_sum_add(&right, lanes_load(f->columns + (i + behind) * WIDTH));
        lanes_store(f->beyond + i * WIDTH, rows + running_sum_of(&right));
    }
    for (size_t i = rx + 1; i < width; i++) {
        running_sum_add(&left, lanes_load(f->columns + (i - rx - 1) * WIDTH));
        lanes_store(f->beyond + i * WIDTH, lanes_load(f->beyond + i * WIDTH) + running_sum_of(&left));
    }
}

/* Write the sums of n positions side by side, those that are there: x: the first window's first row and column. Each
 * tap is loaded once for all of them and meets as many columns, straight from memory. */
LANES_INLINE void conv_block(float *out, size_t token, size_t there, const float *beyond, const float *x, size_t pitch,
                             const float *taps, size_t kw, size_t rows, size_t columns, size_t n)
{
    lanes inside[BLOCK_MAX];
#pragma GCC unroll 14
    for (size_t i = 0; i < n; i++)
        inside[i] = lanes_set(0.0f);
    for (size_t a = 0; a < rows; a++, x += pitch * WIDTH, taps += kw * LANES)
        for (size_t j = 0; j < columns; j++) {
            const lanes tap = lanes_load(taps + j * LANES);
#pragma GCC unroll 14
            for (size_t i = 0; i < n; i++)
                inside[i] = lanes_fma(tap, lanes_load(x + (i + j) * WIDTH), inside[i]);
        }
#pragma GCC unroll 14
    for (size_t i = 0; i < n; i++)
        if (i < there)
            lanes_store(out + i * token, lanes_load(beyond + i * WIDTH) + inside[i]);
}

/* conv_sums for the WIDTH columns that x, taps and out begin with. */
static void conv_sum_columns(float *out, const float *x, const float *taps, const struct conv_shape *s, float *scratch)
{
    const size_t height = s->height, width = s->width, ry = s->kh / 2;
    const struct conv_margin m = conv_margin_of(s);
    const struct conv_parts f = conv_parts_in(scratch, s, &m);
    conv_lay_rows(&f, x, s, &m);
    for (size_t y = 0; y < height; y++) {
        const size_t y0 = conv_clip(y, 0, ry, height), y1 = conv_clip(y, s->kh, ry, height);
        const float *row = f.rows + y0 * m.pitch * WIDTH;
        const float *tap = taps + ((y0 + ry - y) * s->kw + s->kw / 2 - m.left) * LANES;
        conv_beyond(&f, s, &m, y0, y1);
        for (size_t i = 0, n; i < width; i += n) {
            const size_t left = width - i;
            float *to = out + (y * width + i) * s->token;
            n = left <= 4 ? 4 : left <= 8 ? 8 : BLOCK_MAX;
#define CONV_BLOCK(n) \
    conv_block(to, s->token, left, f.beyond + i * WIDTH, row + i * WIDTH, m.pitch, tap, s->kw, y1 - y0, m.taps, n)
            if (n == 4)
                CONV_BLOCK(4);
            else if (n == 8)
                CONV_BLOCK(8);
            else
                CONV_BLOCK(BLOCK_MAX);
#undef CONV_BLOCK
        }
    }
}

/* Write the sums of n positions of row y side by side from column i on, those that are there, by few taps. */
LANES_INLINE void conv_block_few(float *out, size_t i, size_t y, const struct conv_parts *f,
                                 const struct conv_margin *m, const float *taps, const uint32_t *few,
                                 const struct conv_shape *s, size_t n)
{
    lanes inside[BLOCK_MAX];
#pragma GCC unroll 14
    for (size_t p = 0; p < n; p++)
        inside[p] = lanes_set(0.0f);
    for (const uint32_t *at = few + 1, *end = at + few[0]; at < end; at++) {
        const size_t down = *at >> 16, across = *at & 0xffff;
        const size_t row = y + down - s->kh / 2, column = m->left + across - s->kw / 2; /* below 0: very large */
        if (row >= s->height || column >= m->taps)
            continue;
        const lanes surplus = lanes_load(taps + (down * s->kw + across) * LANES) - 1.0f;
        const float *x = f->rows + (row * m->pitch + i + column) * WIDTH;
#pragma GCC unroll 14
        for (size_t p = 0; p < n; p++)
            inside[p] = lanes_fma(surplus, lanes_load(x + p * WIDTH), inside[p]);
    }
    const lanes all = lanes_load(f->above + (size_t)s->height * WIDTH);
#pragma GCC unroll 14
    for (size_t p = 0; p < n; p++)
        if (i + p < s->width)
            lanes_store(out + (y * s->width + i + p) * s->token, all + inside[p]);
}

/* conv_sum_columns where few taps differ from exp(0): they are all that windows are looked at for. */
static void conv_sum_few(float *out, const float *x, const float *taps, const uint32_t *few, const struct conv_shape *s,
                         float *scratch)
{
    const struct conv_margin m = conv_margin_of(s);
    const struct conv_parts f = conv_parts_in(scratch, s, &m);
    conv_lay_rows(&f, x, s, &m);
    for (size_t y = 0; y < s->height; y++)
        for (size_t i = 0, n; i < s->width; i += n) {
            const size_t left = s->width - i;
            n = left <= 4 ? 4 : left <= 8 ? 8 : BLOCK_MAX;
            if (n == 4)
                conv_block_few(out, i, y, &f, &m, taps, few, s, 4);
            else if (n == 8)
                conv_block_few(out, i, y, &f, &m, taps, few, s, 8);
            else
                conv_block_few(out, i, y, &f, &m, taps, few, s, BLOCK_MAX);
        }
}

void KERNEL(conv_sums)(float *out, const float *x, const float *taps, const uint32_t *few, const struct conv_shape *s,
                       float *scratch)
{
    for (size_t c = 0; c < LANES; c += WIDTH)
        if (few != NULL)
            conv_sum_few(out + c, x + c, taps + c, few, s, scratch);
        else
            conv_sum_columns(out + c, x + c, taps + c, s, scratch);
}

/* ---- exactly ---------------------------------------------------------------------------------------------------- */

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
        lanes top = conv_exponent(k, bias, s, r, r->y0, r->x0, h);
        struct running_sum den = {.terms = 0};
        for (size_t a = r->y0; a < r->y1; a++)
            for (size_t b = r->x0; b < r->x1; b++)
                top = lanes_max(top, conv_exponent(k, bias, s, r, a, b, h));
        float *to = weights + h;
        for (size_t a = r->y0; a < r->y1; a++)
            for (size_t b = r->x0; b < r->x1; b++, to += s->heads) {
                const lanes e = lanes_exp(conv_exponent(k, bias, s, r, a, b, h) - top);
                running_sum_add(&den, e);
                lanes_store(to, e);
            }
        lanes_store(to, running_sum_of(&den));
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
        struct running_sum num = {.terms = 0};
        for (size_t a = r.y0; a < r.y1; a++)
            for (size_t b = r.x0; b < r.x1; b++, weight += s->heads)
                running_sum_add(&num, gather(weight, head_of + c) * lanes_load(v + (a * s->width + b) * s->stride + c));
        const lanes den = gather(weight, head_of + c);
        lanes_store(y + p * s->channels + c, gated_mean(q + p * s->stride + c, running_sum_of(&num), den, gate));
    }
}

/* ---- AFT over a sequence, exactly ------------------------------------------------------------------------------- */

void KERNEL(aft_exact)(float *y, const float *q, const float *k, const float *v, const float *bias, size_t tokens,
                       size_t stride, size_t channels, bool gate)
{
    for (size_t c = 0; c < channels; c += WIDTH) {
        lanes top = lanes_load(k + c) + bias[0];
        struct long_sum dens = {{0}, {0}}, nums = dens;
        for (size_t s = 1; s < tokens; s++)
            top = lanes_max(top, lanes_load(k + s * stride + c) + bias[s]);
        for (size_t begin = 0; begin < tokens; begin += SUM_BLOCK) {
            const size_t end = tokens - begin < SUM_BLOCK ? tokens : begin + SUM_BLOCK;
            lanes den = {0}, num = {0};
            for (size_t s = begin; s < end; s++) {
                const lanes e = lanes_exp(lanes_load(k + s * stride + c) + bias[s] - top);
                den += e;
                num = lanes_fma(e, lanes_load(v + s * stride + c), num);
            }
            long_sum_add(&dens, den);
            long_sum_add(&nums, num);
        }
        lanes_store(y + c, gated_mean(q + c, nums.sum, dens.sum, gate));
    }
}
