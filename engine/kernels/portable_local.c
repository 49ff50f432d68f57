/* portable_local.c - AFT-local, one step of one stream, and with it the causal form of every AFT mixer: a ring of the
 * window's terms and the sums of what has left it. Engine threads only. */
#include "engine/kernels/portable.h"

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

LANES_INLINE float *ring_term(float *state, uint32_t slot, bool half)
{
    return state_row(state, ROW_RING + (half ? 1 : 2) * (size_t)slot);
}

/* A term of the window, e and e*v. */
struct term {
    lanes e, ev;
};

LANES_INLINE struct term term_load(const float *at, bool half)
{
    if (!half)
        return (struct term){lanes_load(at), lanes_load(at + LANES)};
    const ilanes pair = (ilanes)lanes_load(at);
    return (struct term){lower_bf16(pair), upper_bf16(pair)};
}

LANES_INLINE void term_store(float *at, struct term term, bool half)
{
    if (half) {
        lanes_store(at, (lanes)((ilanes)lanes_to_bf16(term.e) | lanes_to_bf16(term.ev) << 16));
    } else {
        lanes_store(at, term.e);
        lanes_store(at + LANES, term.ev);
    }
}

/* Multiply S and `terms` of the ring by 2^-rise lane by lane, in two halves because 2^-rise itself may be below
 * float32's range while the products are not. Exact but for what falls below that range. Out of line: it runs a few
 * times in a stream's life. */
static __attribute__((noinline)) void local_rescale(float *state, const lanes *rise, uint32_t terms, bool half)
{
    const lanes lower = lanes_round(*rise * 0.5f);
    const lanes scale = lanes_power_of_2(-lower), rest = lanes_power_of_2(lower - *rise);
    for (size_t row = ROW_SUM_E; row <= ROW_SUM_EV; row++)
        lanes_store(state_row(state, row), lanes_load(state_row(state, row)) * scale * rest);
    for (uint32_t slot = 0; slot < terms; slot++) {
        float *at = ring_term(state, slot, half);
        const struct term term = term_load(at, half);
        term_store(at, (struct term){term.e * scale * rest, term.ev * scale * rest}, half);
    }
}

/* Raise the state's reference where exp(k) = p 2^n would not fit, and return exp(k) / 2^r. `terms` of the ring are in
 * that reference. */
LANES_INLINE lanes local_refer(float *state, lanes p, lanes n, bool first, uint32_t terms, bool half)
{
    lanes r = first ? n - (float)KEY_RAISED : lanes_load(state_row(state, ROW_REFERENCE));
    const ilanes over = n - r > (float)KEY_TOP;
    int any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= over[i];
    if (any != 0) {
        const lanes raised = lanes_pick(over, n - (float)KEY_RAISED, r);
        const lanes rise = raised - r;
        local_rescale(state, &rise, terms, half);
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

/* The new term enters the ring, and what was in its slot is added to S. */
LANES_INLINE void local_enter(float *state, uint32_t slot, const float *k, const float *v, const struct local_step *s,
                              bool half)
{
    float *here = ring_term(state, slot, half);
    lanes n;
    const lanes p = lanes_exp_parts(lanes_load(k), &n);
    if (s->t == 0) /* the ring is read only where it was written since */
        local_clear_sums(state);
    const lanes e = local_refer(state, p, n, s->t == 0, s->span, half);
    if (s->t >= s->span) {
        const struct term leaves = term_load(here, half);
        local_add_sums(state, leaves.e, leaves.ev);
    }
    term_store(here, (struct term){e, e * lanes_load(v)}, half);
}

#define SIDES_MAX 2 /* registers of channels side by side: their sums wait for themselves, not for each other */

/* n registers, at channel[i] each. Constants once inlined: n, half, whether s->stride is 0. */
LANES_INLINE void local_factored_sides(float *y, const float *q, const float *k, const float *v, float *all_state,
                                       const struct local_step *s, const size_t channel[SIDES_MAX], size_t n, bool half,
                                       bool by_channel)
{
    if (by_channel && s->stride == 0)
        __builtin_unreachable(); /* tells lag_weight: a branch between a product and its sum would separate them */
    const struct ring_span ring = ring_at(s->t, s->span);
    float *state[SIDES_MAX];
    struct term sum[SIDES_MAX];
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        const size_t c = channel[i];
        state[i] = all_state + c / LANES * local_state_floats(s->span, half) + c % LANES;
        local_enter(state[i], ring.here, k + c, v + c, s, half);
        sum[i] = (struct term){lanes_load(state_row(state[i], ROW_SUM_E)), lanes_load(state_row(state[i], ROW_SUM_EV))};
    }
    const ptrdiff_t ahead = (const char *)s->next - (const char *)all_state;
    uint32_t slot = ring.oldest;
    for (uint32_t lag = ring.terms; lag-- > 0;) {
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++) {
            const float *at = ring_term(state[i], slot, half);
            const struct term term = term_load(at, half);
            const lanes w = lag_weight(s->weights, by_channel ? s->stride : 0, lag, channel[i]);
            __builtin_prefetch((const char *)at + ahead);
            if (!half)
                __builtin_prefetch((const char *)(at + LANES) + ahead);
            sum[i].e += w * term.e;
            sum[i].ev += w * term.ev;
        }
        slot = slot + 1 == s->span ? 0 : slot + 1;
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++)
        lanes_store(y + channel[i], gated_mean(q + channel[i], sum[i].ev, sum[i].e, s->gate));
}

LANES_INLINE void local_factored_by(float *y, const float *q, const float *k, const float *v, float *state,
                                    const struct local_step *s, bool half, bool by_channel)
{
    const size_t channels = s->groups * LANES;
    size_t c = 0;
    for (; c + (size_t)2 * WIDTH <= channels; c += (size_t)2 * WIDTH)
        local_factored_sides(y, q, k, v, state, s, (const size_t[SIDES_MAX]){c, c + WIDTH}, 2, half, by_channel);
    if (c < channels)
        local_factored_sides(y, q, k, v, state, s, (const size_t[SIDES_MAX]){c}, 1, half, by_channel);
}

void KERNEL(local_factored)(float *y, const float *q, const float *k, const float *v, float *state,
                            const struct local_step *s)
{
    if (s->half && s->stride == 0)
        local_factored_by(y, q, k, v, state, s, true, false);
    else if (s->half)
        local_factored_by(y, q, k, v, state, s, true, true);
    else if (s->stride == 0)
        local_factored_by(y, q, k, v, state, s, false, false);
    else
        local_factored_by(y, q, k, v, state, s, false, true);
}

/* ---- several positions at once ----------------------------------------------------------------------------------- */

/* A position by itself reads two registers of its window for two multiply-adds, and each sum waits for itself.
 * LOCAL_ROWS of them share what lies in all their windows:
 *
 *     term of position    t-span+1 t-span+2 t-span+3 | t-span+4 .. t | t+1  t+2  t+3
 *     row t                  x        x        x     |   x      x  x |
 *     row t + 1                       x        x     |   x      x  x |  x
 *     row t + 2                                x     |   x      x  x |  x    x
 *     row t + 3                                      |   x      x  x |  x    x    x
 *
 * Each row's sums run over its terms oldest first, as in the step by itself: the bits are the same. The rows' own terms
 * go to the slots of those on the left, which are therefore taken out first. */

/* Registers of channels side by side: with 16 registers the rows' sums take half of them. */
#define ROWS_SIDES (REGISTERS == 32 ? 2 : 1)

/* sum += w term of a lag, for n registers of channels from c. */
LANES_INLINE void rows_add(struct term *sum, const struct term *term, const float *weights, size_t stride, uint32_t lag,
                           size_t c, size_t n)
{
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        const lanes w = lag_weight(weights, stride, lag, c + i * WIDTH);
        sum[i].e += w * term[i].e;
        sum[i].ev += w * term[i].ev;
    }
}

/* How the rows begin, for the WIDTH channels of one state: their terms enter the ring; *left is what was in their
 * slots, if all windows are full, and *sum what has left each row's window. */
LANES_INLINE void rows_enter(struct term left[LOCAL_ROWS], struct term sum[LOCAL_ROWS], float *state, const float *k,
                             const float *v, const struct local_rows *rows, const struct local_step *s, bool half)
{
    struct term sums = {lanes_load(state_row(state, ROW_SUM_E)), lanes_load(state_row(state, ROW_SUM_EV))};
    const lanes reference = lanes_load(state_row(state, ROW_REFERENCE));
#pragma GCC unroll 1
    for (uint32_t r = 0; r < LOCAL_ROWS; r++) {
        float *slot = ring_term(state, (s->t + r) % s->span, half);
        if (s->t >= s->span) {
            left[r] = term_load(slot, half);
            sums.e += left[r].e;
            sums.ev += left[r].ev;
        }
        sum[r] = sums;
        lanes n;
        const lanes p = lanes_exp_parts(lanes_load(k + r * rows->k_stride), &n),
                    e = p * lanes_power_of_2(n - reference);
        term_store(slot, (struct term){e, e * lanes_load(v + r * rows->v_stride)}, half);
    }
    lanes_store(state_row(state, ROW_SUM_E), sums.e);
    lanes_store(state_row(state, ROW_SUM_EV), sums.ev);
}

/* n registers of channels from c, where all windows are full, or stay partly empty, and no reference is raised.
 * Constants once inlined: n, half, whether s->stride is 0. */
LANES_INLINE void local_rows_sides(const struct local_rows *rows, float *all_state, const struct local_step *s,
                                   size_t c, size_t n, bool half, bool by_channel)
{
    const size_t stride = by_channel ? s->stride : 0;
    if (by_channel && stride == 0)
        __builtin_unreachable(); /* tells lag_weight */
    const bool full = s->t >= s->span;
    struct term left[ROWS_SIDES][LOCAL_ROWS], ends[ROWS_SIDES][LOCAL_ROWS]; /* in memory, the sums not */
    struct term sum[LOCAL_ROWS][ROWS_SIDES], term[ROWS_SIDES];
    const float *weights[LOCAL_ROWS];
    float *state[ROWS_SIDES];
#pragma GCC unroll 1
    for (size_t i = 0; i < n; i++) {
        const size_t at = c + i * WIDTH;
        state[i] = all_state + at / LANES * local_state_floats(s->span, half) + at % LANES;
        rows_enter(left[i], ends[i], state[i], rows->k + at, rows->v + at, rows, s, half);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < LOCAL_ROWS; r++) {
        weights[r] = s->weights + r * rows->weights_stride;
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            sum[r][i] = ends[i][r];
    }
    if (full)
#pragma GCC unroll 4
        for (uint32_t old = 1; old < LOCAL_ROWS; old++) {
#pragma GCC unroll 2
            for (size_t i = 0; i < n; i++)
                term[i] = left[i][old];
#pragma GCC unroll 4
            for (uint32_t r = 0; r < old; r++)
                rows_add(sum[r], term, weights[r], stride, s->span + r - old, c, n);
        }
    uint32_t slot = full ? (s->t + LOCAL_ROWS) % s->span : 0;
    for (uint32_t lag = full ? s->span - LOCAL_ROWS + 1 : s->t + 1; lag-- > 0;) {
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            term[i] = term_load(ring_term(state[i], slot, half), half);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < LOCAL_ROWS; r++)
            rows_add(sum[r], term, weights[r], stride, lag + r, c, n);
        slot = slot + 1 == s->span ? 0 : slot + 1;
    }
#pragma GCC unroll 4
    for (uint32_t own = 1; own < LOCAL_ROWS; own++) { /* the slots of the rows' own terms */
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            term[i] = term_load(ring_term(state[i], slot, half), half);
#pragma GCC unroll 4
        for (uint32_t r = own; r < LOCAL_ROWS; r++)
            rows_add(sum[r], term, weights[r], stride, r - own, c, n);
        slot = slot + 1 == s->span ? 0 : slot + 1;
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < LOCAL_ROWS; r++)
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            ends[i][r] = sum[r][i];
#pragma GCC unroll 1
    for (size_t i = 0; i < n; i++)
#pragma GCC unroll 1
        for (size_t r = 0; r < LOCAL_ROWS; r++) {
            const size_t at = c + i * WIDTH;
            lanes_store(rows->y + r * rows->y_stride + at,
                        gated_mean(rows->q + r * rows->q_stride + at, ends[i][r].ev, ends[i][r].e, s->gate));
        }
}

LANES_INLINE void local_rows_by(const struct local_rows *rows, float *state, const struct local_step *s, bool half,
                                bool by_channel)
{
    const size_t channels = s->groups * LANES;
    size_t c = 0;
    for (; c + (size_t)ROWS_SIDES * WIDTH <= channels; c += (size_t)ROWS_SIDES * WIDTH)
        local_rows_sides(rows, state, s, c, ROWS_SIDES, half, by_channel);
    if (c < channels)
        local_rows_sides(rows, state, s, c, 1, half, by_channel);
}

/* Does the first of the rows begin the state, does something leave the window of some but not of the first, or does one
 * raise a reference? */
static bool rows_are_apart(const struct local_rows *rows, const float *state, const struct local_step *s)
{
    if (s->t == 0 || (s->t < s->span && s->t + LOCAL_ROWS > s->span))
        return true;
    ilanes over = {0};
    for (size_t c = 0; c < s->groups * LANES; c += WIDTH) {
        const float *own = state + c / LANES * local_state_floats(s->span, s->half) + c % LANES;
        const lanes r = lanes_load(own + (size_t)ROW_REFERENCE * LANES);
        for (size_t i = 0; i < LOCAL_ROWS; i++) {
            lanes n;
            (void)lanes_exp_parts(lanes_load(rows->k + i * rows->k_stride + c), &n);
            over |= n - r > (float)KEY_TOP;
        }
    }
    int any = 0;
    for (int i = 0; i < WIDTH; i++)
        any |= over[i];
    return any != 0;
}

void KERNEL(local_factored_rows)(const struct local_rows *rows, float *state, const struct local_step *s)
{
    if (rows_are_apart(rows, state, s)) {
        struct local_step step = *s;
        for (size_t r = 0; r < LOCAL_ROWS; r++) {
            const float *q = rows->q + r * rows->q_stride, *k = rows->k + r * rows->k_stride;
            KERNEL(local_factored)(rows->y + r * rows->y_stride, q, k, rows->v + r * rows->v_stride, state, &step);
            step.t++;
            step.weights += rows->weights_stride;
        }
        return;
    }
    if (s->half && s->stride == 0)
        local_rows_by(rows, state, s, true, false);
    else if (s->half)
        local_rows_by(rows, state, s, true, true);
    else if (s->stride == 0)
        local_rows_by(rows, state, s, false, false);
    else
        local_rows_by(rows, state, s, false, true);
}

/* ---- exactly ----------------------------------------------------------------------------------------------------- */

/* The key and value that leave the window go to S as exp(k) / 2^r. The ring itself holds keys, relative to nothing. */
LANES_INLINE void local_leave(float *state, const float *here, bool first)
{
    lanes n;
    const lanes p = lanes_exp_parts(lanes_load(here), &n);
    if (first)
        local_clear_sums(state);
    const lanes e = local_refer(state, p, n, first, 0, false);
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
                                 const struct local_step *s, size_t stride)
{
    const float *bias = s->weights;
    const uint32_t span = s->span;
    const struct ring_span ring = ring_at(s->t, span);
    const bool beyond = s->global && s->t >= span; /* is there anything beyond the window? */
    for (size_t c = 0; c < s->groups * LANES; c += WIDTH) {
        float *state = group_state + c / LANES * local_state_floats(span, false) + c % LANES;
        float *here = ring_term(state, ring.here, false);
        if (beyond)
            local_leave(state, here, s->t == span);
        lanes_store(here, lanes_load(k + c));
        lanes_store(here + LANES, lanes_load(v + c));

        lanes top = lanes_load(here) + lag_weight(bias, stride, 0, c);
        uint32_t slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            top = lanes_max(top, lanes_load(ring_term(state, slot, false)) + lag_weight(bias, stride, lag, c));
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
            const float *term = ring_term(state, slot, false);
            const lanes e = lanes_exp(lanes_load(term) + lag_weight(bias, stride, lag, c) - top);
            den += e;
            num += e * lanes_load(term + LANES);
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        lanes_store(y + c, gated_mean(q + c, num, den, s->gate));
    }
}

void KERNEL(local_exact)(float *y, const float *q, const float *k, const float *v, float *state,
                         const struct local_step *s)
{
    if (s->stride == 0)
        local_exact_by(y, q, k, v, state, s, 0);
    else
        local_exact_by(y, q, k, v, state, s, s->stride);
}

_Static_assert(KEY_TOP == 64, "0x1p-64f in local_exact is 2^-KEY_TOP");
