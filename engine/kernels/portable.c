/* portable.c - the element-wise kernels in plain C on registers of WIDTH lanes. Compiled once for each instruction set
 * (KERNELS_ISA names the table); what each function computes stands in kernels.h. Engine threads only. */
#include <assert.h>
#include <math.h>

#include "engine/kernels/lanes.h"

static void norm(float *y, const float *x, const float *weight, const float *bias, size_t dim, float eps)
{
    const size_t whole = dim / WIDTH * WIDTH, padded = lanes_padded(dim);
    lanes acc = {0};
    for (size_t i = 0; i < whole; i += WIDTH)
        acc += lanes_load(x + i);
    float sum = lanes_sum(acc);
    for (size_t i = whole; i < dim; i++)
        sum += x[i];
    const float mean = sum / (float)dim;

    acc = lanes_set(0.0f);
    for (size_t i = 0; i < whole; i += WIDTH) {
        const lanes d = lanes_load(x + i) - mean;
        acc += d * d;
    }
    float squares = lanes_sum(acc);
    for (size_t i = whole; i < dim; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(squares / (float)dim + eps);

    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(y + i, lanes_load(weight + i) * ((lanes_load(x + i) - mean) * scale) + lanes_load(bias + i));
}

#define EPILOGUE_LOOP(expression)                                                \
    for (size_t r = 0; r < rows; r++)                                            \
        for (size_t c = 0; c < cols; c += WIDTH) {                               \
            const lanes x = lanes_load(acc + r * ld + c) + lanes_load(bias + c); \
            float *to = y + r * stride + c;                                      \
            lanes_store(to, expression);                                         \
        }

static void epilogue(float *y, size_t stride, const float *acc, size_t ld, const float *bias, size_t rows, size_t cols,
                     enum epilogue kind)
{
    switch (kind) {
    case EPILOGUE_BIAS:
        EPILOGUE_LOOP(x)
        return;
    case EPILOGUE_GELU:
        EPILOGUE_LOOP(lanes_gelu(x))
        return;
    case EPILOGUE_GELU_TANH:
        EPILOGUE_LOOP(lanes_gelu_tanh(x))
        return;
    case EPILOGUE_RELU:
        EPILOGUE_LOOP(lanes_relu(x))
        return;
    case EPILOGUE_ADD:
        EPILOGUE_LOOP(lanes_load(to) + x)
        return;
    }
}

/* y = sigmoid(q) * num / den, the end of every AFT mixer. den > 0: the largest key's term never underflows. */
LANES_INLINE lanes gated_mean(const float *q, lanes num, lanes den, bool gate)
{
    const lanes mean = num / den;
    return gate ? lanes_sigmoid(lanes_load(q)) * mean : mean;
}

/* ---- AFT-local -------------------------------------------------------------------------------------------------- */

/* A group's state is rows of LANES floats: S of e, S of e*v, r, then the ring. These work on WIDTH columns of it. */
enum { ROW_SUM_E, ROW_SUM_EV, ROW_REFERENCE, ROW_RING };

/* Where the window's terms of position t lie in the ring. */
struct ring_span {
    uint32_t here, oldest, terms;
};

LANES_INLINE struct ring_span ring_at(uint32_t t, uint32_t span)
{
    const uint32_t here = t % span;
    return t < span ? (struct ring_span){here, 0, t + 1} : (struct ring_span){here, (here + 1) % span, span};
}

LANES_INLINE float *state_row(float *state, size_t row)
{
    return state + row * LANES;
}

LANES_INLINE float *ring_term(float *state, uint32_t slot)
{
    return state_row(state, ROW_RING + 2 * (size_t)slot);
}

/* Multiply S and `rows` terms of the ring by 2^-rise lane by lane, in two halves because 2^-rise itself may be below
 * float32's range while the products are not. Exact but for what falls below that range. Out of line: it runs a few
 * times in a stream's life. */
static __attribute__((noinline)) void local_rescale(float *state, const lanes *rise, uint32_t rows)
{
    const lanes half = lanes_round(*rise * 0.5f);
    const lanes scale = lanes_power_of_2(-half), rest = lanes_power_of_2(half - *rise);
    for (size_t row = 0; row < ROW_RING + 2 * (size_t)rows; row++)
        if (row != ROW_REFERENCE)
            lanes_store(state_row(state, row), lanes_load(state_row(state, row)) * scale * rest);
}

/* Raise the state's reference where exp(k) = p 2^n would not fit, and return exp(k) / 2^r. `rows` of the ring are in
 * that reference. */
LANES_INLINE lanes local_refer(float *state, lanes p, lanes n, bool first, uint32_t rows)
{
    lanes r = first ? n - (float)KEY_RAISED : lanes_load(state_row(state, ROW_REFERENCE));
    const ilanes over = n - r > (float)KEY_TOP;
    int any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= over[i];
    if (any != 0) {
        const lanes raised = lanes_pick(over, n - (float)KEY_RAISED, r);
        const lanes rise = raised - r;
        local_rescale(state, &rise, rows);
        r = raised;
    }
    lanes_store(state_row(state, ROW_REFERENCE), r);
    return p * lanes_power_of_2(n - r);
}

static void local_clear_sums(float *state)
{
    lanes_store(state_row(state, ROW_SUM_E), (lanes){0});
    lanes_store(state_row(state, ROW_SUM_EV), (lanes){0});
}

static void local_add_sums(float *state, lanes e, lanes ev)
{
    float *sum_e = state_row(state, ROW_SUM_E), *sum_ev = state_row(state, ROW_SUM_EV);
    lanes_store(sum_e, lanes_load(sum_e) + e);
    lanes_store(sum_ev, lanes_load(sum_ev) + ev);
}

/* What a lag counts for in the WIDTH channels from c: one number for all (stride 0), or each its own. */
LANES_INLINE lanes lag_weight(const float *weights, size_t stride, uint32_t lag, size_t c)
{
    return stride == 0 ? lanes_set(weights[lag]) : lanes_load(weights + lag * stride + c);
}

LANES_INLINE void local_factored_by(float *y, const float *q, const float *k, const float *v, float *group_state,
                                    const float *factors, size_t stride, uint32_t span, uint32_t t, size_t groups,
                                    bool gate)
{
    const struct ring_span ring = ring_at(t, span);
    for (size_t c = 0; c < groups * LANES; c += WIDTH) {
        float *state = group_state + c / LANES * local_state_floats(span) + c % LANES;
        float *here = ring_term(state, ring.here);
        lanes n;
        const lanes p = lanes_exp_parts(lanes_load(k + c), &n);
        if (t == 0) /* the ring is read only where it was written since */
            local_clear_sums(state);
        const lanes e = local_refer(state, p, n, t == 0, span);
        if (t >= span) /* what was in this slot leaves the window */
            local_add_sums(state, lanes_load(here), lanes_load(here + LANES));
        lanes_store(here, e);
        lanes_store(here + LANES, e * lanes_load(v + c));

        lanes den = lanes_load(state_row(state, ROW_SUM_E)), num = lanes_load(state_row(state, ROW_SUM_EV));
        uint32_t slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            const float *term = ring_term(state, slot);
            const lanes w = lag_weight(factors, stride, lag, c);
            den += w * lanes_load(term);
            num += w * lanes_load(term + LANES);
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        lanes_store(y + c, gated_mean(q + c, num, den, gate));
    }
}

static void local_factored(float *y, const float *q, const float *k, const float *v, float *state, const float *factors,
                           size_t stride, uint32_t span, uint32_t t, size_t groups, bool gate)
{
    if (stride == 0)
        local_factored_by(y, q, k, v, state, factors, 0, span, t, groups, gate);
    else
        local_factored_by(y, q, k, v, state, factors, stride, span, t, groups, gate);
}

/* The key and value that leave the window go to S as exp(k) / 2^r. The ring itself holds keys, in no reference. */
LANES_INLINE void local_leave(float *state, const float *here, bool first)
{
    lanes n;
    const lanes p = lanes_exp_parts(lanes_load(here), &n);
    if (first)
        local_clear_sums(state);
    const lanes e = local_refer(state, p, n, first, 0);
    local_add_sums(state, e, e * lanes_load(here + LANES));
}

/* What S is relative to may be above all of the window's terms: *top becomes the larger of both; returns what S counts
 * for, exp(r ln 2 - *top), 1 where it is the larger. ln 2 comes in two parts as in lanes_exp_parts. */
LANES_INLINE lanes local_weigh_sums(lanes r, lanes *top)
{
    const lanes high = r * 0.693359375f, low = r * -2.12194440e-4f, level = high + low;
    const ilanes above = level > *top;
    *top = lanes_pick(above, level, *top);
    const lanes below = lanes_exp(lanes_min((high - *top) + low, lanes_set(0.0f)));
    return lanes_pick(above, lanes_set(1.0f), below);
}

LANES_INLINE void local_exact_by(float *y, const float *q, const float *k, const float *v, float *group_state,
                                 const float *bias, size_t stride, uint32_t span, uint32_t t, size_t groups, bool gate,
                                 bool global)
{
    const struct ring_span ring = ring_at(t, span);
    const bool beyond = global && t >= span; /* is there anything beyond the window? */
    for (size_t c = 0; c < groups * LANES; c += WIDTH) {
        float *state = group_state + c / LANES * local_state_floats(span) + c % LANES;
        float *here = ring_term(state, ring.here);
        if (beyond)
            local_leave(state, here, t == span);
        lanes_store(here, lanes_load(k + c));
        lanes_store(here + LANES, lanes_load(v + c));

        lanes top = lanes_load(here) + lag_weight(bias, stride, 0, c);
        uint32_t slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            top = lanes_max(top, lanes_load(ring_term(state, slot)) + lag_weight(bias, stride, lag, c));
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        lanes den = {0}, num = {0};
        if (beyond) { /* the terms in S do not pass 2^(r + KEY_TOP) */
            const lanes r = lanes_load(state_row(state, ROW_REFERENCE)) + (float)KEY_TOP;
            const lanes scale = local_weigh_sums(r, &top) * 0x1p-64f;
            den = lanes_load(state_row(state, ROW_SUM_E)) * scale;
            num = lanes_load(state_row(state, ROW_SUM_EV)) * scale;
        }
        slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            const float *term = ring_term(state, slot);
            const lanes e = lanes_exp(lanes_load(term) + lag_weight(bias, stride, lag, c) - top);
            den += e;
            num += e * lanes_load(term + LANES);
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        lanes_store(y + c, gated_mean(q + c, num, den, gate));
    }
}

static void local_exact(float *y, const float *q, const float *k, const float *v, float *state, const float *bias,
                        size_t stride, uint32_t span, uint32_t t, size_t groups, bool gate, bool global)
{
    if (stride == 0)
        local_exact_by(y, q, k, v, state, bias, 0, span, t, groups, gate, global);
    else
        local_exact_by(y, q, k, v, state, bias, stride, span, t, groups, gate, global);
}

/* ---- AFT-conv --------------------------------------------------------------------------------------------------- */

LANES_INLINE lanes gather(const float *row, const uint32_t *index)
{
    float a[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        a[i] = row[index[i]];
    return lanes_load(a);
}

static void conv_keys(float *e, const float *k, const struct conv_shape *s, size_t head)
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

static void conv_values(float *ev, const float *e, const float *v, const uint32_t *head_of, const struct conv_shape *s,
                        size_t channel)
{
    const size_t tokens = (size_t)s->height * s->width;
    for (size_t p = 0; p < tokens; p++)
        for (size_t c = channel; c < channel + LANES; c += WIDTH)
            lanes_store(ev + p * s->channels + c,
                        gather(e + p * s->heads, head_of + c) * lanes_load(v + p * s->stride + c));
}

/* Exclusive sums: left[y][x] of the row's positions before x, right[y][x] of those from x on, above[y] of the rows
 * before y, below[y] of the rows from y on; right has width + 1 entries a row, below height + 1. */
struct conv_prefix {
    float *left, *right, *above, *below;
};

static void conv_sum_rows(const struct conv_prefix *f, const float *x, const struct conv_shape *s, size_t columns)
{
    const size_t height = s->height, width = s->width;
    lanes total = {0};
    for (size_t y = 0; y < height; y++) {
        const float *row = x + y * width * columns;
        lanes sum = {0};
        for (size_t i = 0; i < width; i++) {
            lanes_store(f->left + (y * width + i) * WIDTH, sum);
            sum += lanes_load(row + i * columns);
        }
        lanes_store(f->above + y * WIDTH, total);
        total += sum;
        sum = lanes_set(0.0f);
        lanes_store(f->right + (y * (width + 1) + width) * WIDTH, sum);
        for (size_t i = width; i-- > 0;) {
            sum += lanes_load(row + i * columns);
            lanes_store(f->right + (y * (width + 1) + i) * WIDTH, sum);
        }
    }
    total = lanes_set(0.0f);
    lanes_store(f->below + height * WIDTH, total);
    for (size_t y = height; y-- > 0;) {
        total += lanes_load(f->right + y * (width + 1) * WIDTH);
        lanes_store(f->below + y * WIDTH, total);
    }
}

/* conv_sums for the WIDTH columns that x, taps and out begin with. */
static void conv_sum_register(float *out, const float *x, const float *taps, const struct conv_shape *s, size_t columns,
                              float *scratch)
{
    const size_t height = s->height, width = s->width, ry = s->kh / 2, rx = s->kw / 2, tokens = height * width;
    const struct conv_prefix f = {scratch, scratch + tokens * WIDTH, scratch + (2 * tokens + height) * WIDTH,
                                  scratch + (2 * tokens + 2 * height) * WIDTH};
    conv_sum_rows(&f, x, s, columns);
    for (size_t y = 0; y < height; y++) {
        const size_t y0 = y > ry ? y - ry : 0, y1 = y + s->kh - ry < height ? y + s->kh - ry : height;
        for (size_t i = 0; i < width; i++) {
            const size_t x0 = i > rx ? i - rx : 0, x1 = i + s->kw - rx < width ? i + s->kw - rx : width;
            lanes outside = lanes_load(f.above + y0 * WIDTH) + lanes_load(f.below + y1 * WIDTH);
            lanes inside = {0};
            for (size_t a = y0; a < y1; a++) {
                outside += lanes_load(f.left + (a * width + x0) * WIDTH) +
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

static void conv_sums(float *out, const float *x, const float *taps, const struct conv_shape *s, size_t columns,
                      size_t column, float *scratch)
{
    for (size_t c = column; c < column + LANES; c += WIDTH)
        conv_sum_register(out + c, x + c, taps + c, s, columns, scratch);
}

static void conv_finish(float *y, const float *q, const float *num, const float *den, const uint32_t *head_of,
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

static void conv_exact(float *y, const float *q, const float *k, const float *v, const float *bias,
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

/* ---- every token with every token -------------------------------------------------------------------------------- */

static void aft_exact(float *y, const float *q, const float *k, const float *v, const float *bias, size_t tokens,
                      size_t stride, size_t channels, bool gate)
{
    for (size_t c = 0; c < channels; c += WIDTH) {
        lanes top = lanes_load(k + c) + bias[0], den = {0}, num = {0};
        for (size_t s = 1; s < tokens; s++)
            top = lanes_max(top, lanes_load(k + s * stride + c) + bias[s]);
        for (size_t s = 0; s < tokens; s++) {
            const lanes e = lanes_exp(lanes_load(k + s * stride + c) + bias[s] - top);
            den += e;
            num += e * lanes_load(v + s * stride + c);
        }
        lanes_store(y + c, gated_mean(q + c, num, den, gate));
    }
}

static void softmax(float *x, size_t n)
{
    const size_t padded = lanes_padded(n);
    for (size_t i = n; i < padded; i++)
        x[i] = -INFINITY;
    lanes most = lanes_load(x), sums = {0};
    for (size_t i = WIDTH; i < padded; i += WIDTH)
        most = lanes_max(most, lanes_load(x + i));
    float top = most[0];
    for (int i = 1; i < WIDTH; i++)
        top = fmaxf(top, most[i]);
    for (size_t i = 0; i < padded; i += WIDTH) {
        const lanes e = lanes_exp(lanes_load(x + i) - top);
        sums += e;
        lanes_store(x + i, e);
    }
    const float scale = 1.0f / lanes_sum(sums);
    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(x + i, lanes_load(x + i) * scale);
}

/* Heads may be narrower than a register, or no whole number of them: the rest goes one by one. */
static float dot(const float *a, const float *b, size_t n)
{
    const size_t whole = n / WIDTH * WIDTH;
    lanes acc = {0};
    for (size_t i = 0; i < whole; i += WIDTH)
        acc += lanes_load(a + i) * lanes_load(b + i);
    float sum = lanes_sum(acc);
    for (size_t i = whole; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void attend(float *y, const float *q, const float *k, const float *v, size_t count, size_t width, size_t stride,
                   float scale, float *scores)
{
    for (size_t s = 0; s < count; s++)
        scores[s] = scale * dot(q, k + s * stride, width);
    softmax(scores, count);
    const size_t whole = width / WIDTH * WIDTH;
    for (size_t c = 0; c < whole; c += WIDTH) {
        lanes sum = {0};
        for (size_t s = 0; s < count; s++)
            sum += scores[s] * lanes_load(v + s * stride + c);
        lanes_store(y + c, sum);
    }
    for (size_t c = whole; c < width; c++) {
        float sum = 0.0f;
        for (size_t s = 0; s < count; s++)
            sum += scores[s] * v[s * stride + c];
        y[c] = sum;
    }
}

_Static_assert(KEY_TOP == 64, "0x1p-64f in local_exact is 2^-KEY_TOP");

#define TABLE_NAME(isa) kernels_##isa
#define TABLE_OF(isa) TABLE_NAME(isa)
#define TABLE_TEXT(isa) #isa
#define TABLE_TEXT_OF(isa) TABLE_TEXT(isa)

extern const struct kernels TABLE_OF(KERNELS_ISA);
const struct kernels TABLE_OF(KERNELS_ISA) = {
    .isa = TABLE_TEXT_OF(KERNELS_ISA),
    .norm = norm,
    .epilogue = epilogue,
    .local_factored = local_factored,
    .local_exact = local_exact,
    .attend = attend,
    .aft_exact = aft_exact,
    .softmax = softmax,
    .conv_keys = conv_keys,
    .conv_values = conv_values,
    .conv_sums = conv_sums,
    .conv_finish = conv_finish,
    .conv_exact = conv_exact,
};
