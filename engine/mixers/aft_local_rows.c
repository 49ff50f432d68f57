/* aft_local_rows.c - AFT-local, several positions of one stream at once, with the bits of steps
 * (aft_local_step.c). Engine threads only. */
#include "engine/mixers/aft_local_state.h"

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
        sum[i].e = lanes_fma(w, term[i].e, sum[i].e);
        sum[i].ev = lanes_fma(w, term[i].ev, sum[i].ev);
    }
}

/* How the rows begin, for the WIDTH channels of one state: their terms enter the ring; *left is what was in their
 * slots, if all windows are full, and *ends what has left each row's window. */
LANES_INLINE void rows_enter(struct term left[LOCAL_ROWS], struct sums ends[LOCAL_ROWS], float *state, const float *k,
                             const float *v, const struct local_rows *rows, const struct local_step *s, bool half,
                             bool cut)
{
    struct sums sums = sums_load(state);
    const lanes reference = lanes_load(state_row(state, ROW_REFERENCE));
#pragma GCC unroll 1
    for (uint32_t r = 0; r < LOCAL_ROWS; r++) {
        float *slot = ring_term(state, (s->t + r) % s->span, half);
        if (s->t >= s->span) {
            left[r] = term_load(slot, half);
            sums_leave(&sums, left[r].e, left[r].ev, s->t + r);
        }
        ends[r] = sums;
        begin_window(&ends[r], cut);
        lanes n;
        const lanes p = lanes_exp_parts(lanes_load(k + r * rows->k_stride), &n),
                    e = p * lanes_power_of_2(n - reference);
        term_store(slot, (struct term){e, e * lanes_load(v + r * rows->v_stride)}, half);
    }
    sums_store(state, &sums);
}

/* A part ends for all rows, if it has begun for them. */
LANES_INLINE void rows_end_part(struct sums ends[ROWS_SIDES][LOCAL_ROWS], struct term sum[LOCAL_ROWS][ROWS_SIDES],
                                size_t n)
{
#pragma GCC unroll 4
    for (uint32_t r = 0; r < LOCAL_ROWS; r++)
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            end_part(&ends[i][r], &sum[r][i]);
}

/* The rows' means, from all that their windows came to. */
LANES_INLINE void rows_divide(const struct local_rows *rows, struct sums ends[ROWS_SIDES][LOCAL_ROWS], size_t c,
                              size_t n, bool gate)
{
#pragma GCC unroll 1
    for (size_t i = 0; i < n; i++)
#pragma GCC unroll 1
        for (size_t r = 0; r < LOCAL_ROWS; r++) {
            const size_t at = c + i * WIDTH;
            lanes_store(rows->y + r * rows->y_stride + at,
                        gated_mean(rows->q + r * rows->q_stride + at, ends[i][r].ev.sum, ends[i][r].e.sum, gate));
        }
}

/* n registers of channels from c, where all windows are full, or stay partly empty, and no reference is raised.
 * Constants once inlined: n, half, cut, whether s->stride is 0. */
LANES_INLINE void local_rows_sides(const struct local_rows *rows, float *all_state, const struct local_step *s,
                                   size_t c, size_t n, bool half, bool by_channel, bool cut)
{
    const size_t stride = by_channel ? s->stride : 0;
    if (by_channel && stride == 0)
        __builtin_unreachable(); /* tells lag_weight */
    const bool full = s->t >= s->span;
    struct term left[ROWS_SIDES][LOCAL_ROWS]; /* in memory, the sums not */
    struct sums ends[ROWS_SIDES][LOCAL_ROWS];
    struct term sum[LOCAL_ROWS][ROWS_SIDES], term[ROWS_SIDES];
    const float *weights[LOCAL_ROWS];
    float *state[ROWS_SIDES];
#pragma GCC unroll 1
    for (size_t i = 0; i < n; i++) {
        const size_t at = c + i * WIDTH;
        state[i] = all_state + at / LANES * local_state_floats(s->span, half) + at % LANES;
        rows_enter(left[i], ends[i], state[i], rows->k + at, rows->v + at, rows, s, half, cut);
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < LOCAL_ROWS; r++) {
        weights[r] = s->weights + r * rows->weights_stride;
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++)
            sum[r][i] = first_part(&ends[i][r], cut);
    }
    if (full)
#pragma GCC unroll 4
        for (uint32_t old = 1; old < LOCAL_ROWS; old++) {
            if (begins_part((s->t + old) % s->span, cut))
                rows_end_part(ends, sum, n);
#pragma GCC unroll 2
            for (size_t i = 0; i < n; i++)
                term[i] = left[i][old];
#pragma GCC unroll 4
            for (uint32_t r = 0; r < old; r++)
                rows_add(sum[r], term, weights[r], stride, s->span + r - old, c, n);
        }
    uint32_t slot = full ? (s->t + LOCAL_ROWS) % s->span : 0;
    for (uint32_t lag = full ? s->span - LOCAL_ROWS + 1 : s->t + 1; lag-- > 0;) {
        if (begins_part(slot, cut))
            rows_end_part(ends, sum, n);
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
        if (begins_part(slot, cut))
            rows_end_part(ends, sum, n);
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
            end_window(&ends[i][r], &sum[r][i], cut);
    rows_divide(rows, ends, c, n, s->gate);
}

LANES_INLINE void local_rows_by(const struct local_rows *rows, float *state, const struct local_step *s, bool half,
                                bool by_channel, bool cut)
{
    const size_t channels = s->groups * LANES;
    size_t c = 0;
    for (; c + (size_t)ROWS_SIDES * WIDTH <= channels; c += (size_t)ROWS_SIDES * WIDTH)
        local_rows_sides(rows, state, s, c, ROWS_SIDES, half, by_channel, cut);
    if (c < channels)
        local_rows_sides(rows, state, s, c, 1, half, by_channel, cut);
}

LANES_INLINE void local_rows_of(const struct local_rows *rows, float *state, const struct local_step *s, bool cut)
{
    if (s->half && s->stride == 0)
        local_rows_by(rows, state, s, true, false, cut);
    else if (s->half)
        local_rows_by(rows, state, s, true, true, cut);
    else if (s->stride == 0)
        local_rows_by(rows, state, s, false, false, cut);
    else
        local_rows_by(rows, state, s, false, true, cut);
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
    if (is_cut(s->span))
        local_rows_of(rows, state, s, true);
    else
        local_rows_of(rows, state, s, false);
}
