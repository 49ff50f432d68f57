/* aft_local_exact.c - AFT-local, one step of one stream for biases of any size. Engine threads only. */
#include "engine/mixers/aft_local_state.h"

/* The key and value that leave the window go to S as exp(k) / 2^r. The ring itself holds keys, relative to nothing. */
LANES_INLINE void local_leave(float *state, const float *here, bool first, uint32_t t)
{
    lanes n;
    const lanes p = lanes_exp_parts(lanes_load(here), &n);
    if (first)
        local_clear_sums(state);
    const lanes e = local_refer(state, p, n, first, 0, false);
    local_add_sums(state, e, e * lanes_load(here + LANES), t);
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
            local_leave(state, here, s->t == span, s->t);
        lanes_store(here, lanes_load(k + c));
        lanes_store(here + LANES, lanes_load(v + c));

        lanes top = lanes_load(here) + lag_weight(bias, stride, 0, c);
        uint32_t slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            top = lanes_max(top, lanes_load(ring_term(state, slot, false)) + lag_weight(bias, stride, lag, c));
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        struct term sum = {{0}, {0}};
        struct sums sums = {{{0}, {0}}, {{0}, {0}}};
        if (beyond) { /* the terms in S do not pass 2^(r + KEY_TOP) */
            const lanes r = lanes_load(state_row(state, ROW_REFERENCE)) + (float)KEY_TOP;
            const lanes scale = local_weigh_sums(r, &top) * 0x1p-64f;
            const struct sums left = sums_load(state);
            sums.e.sum = (left.e.sum + left.e.rest) * scale;
            sums.ev.sum = (left.ev.sum + left.ev.rest) * scale;
        }
        slot = ring.oldest;
        for (uint32_t lag = ring.terms; lag-- > 0;) {
            const float *term = ring_term(state, slot, false);
            const lanes e = lanes_exp(lanes_load(term) + lag_weight(bias, stride, lag, c) - top);
            if (begins_part(slot, is_cut(span)))
                end_part(&sums, &sum);
            sum.e += e;
            sum.ev = lanes_fma(e, lanes_load(term + LANES), sum.ev);
            slot = slot + 1 == span ? 0 : slot + 1;
        }
        end_window(&sums, &sum, is_cut(span));
        lanes_store(y + c, gated_mean(q + c, sums.ev.sum, sums.e.sum, s->gate));
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
