/* aft_local_step.c - AFT-local, one step of one stream by factors, and with it the causal form of every AFT mixer.
 * Engine threads only. */
#include "engine/mixers/aft_local_state.h"

/* The new term enters the ring, and what was in its slot is added to S, which is returned. */
LANES_INLINE struct sums local_enter(float *state, uint32_t slot, const float *k, const float *v,
                                     const struct local_step *s, bool half)
{
    float *here = ring_term(state, slot, half);
    lanes n;
    const lanes p = lanes_exp_parts(lanes_load(k), &n);
    if (s->t == 0) /* the ring is read only where it was written since */
        local_clear_sums(state);
    const lanes e = local_refer(state, p, n, s->t == 0, s->span, half);
    struct sums sums;
    if (s->t >= s->span) {
        const struct term leaves = term_load(here, half);
        sums = local_add_sums(state, leaves.e, leaves.ev, s->t);
    } else {
        sums = sums_load(state);
    }
    term_store(here, (struct term){e, e * lanes_load(v)}, half);
    return sums;
}

#define SIDES_MAX 2 /* registers of channels side by side: their sums wait for themselves, not for each other */

/* n registers, at channel[i] each. Constants once inlined: n, half, cut, whether s->stride is 0. */
LANES_INLINE void local_factored_sides(float *y, const float *q, const float *k, const float *v, float *all_state,
                                       const struct local_step *s, const size_t channel[SIDES_MAX], size_t n, bool half,
                                       bool by_channel, bool cut)
{
    if (by_channel && s->stride == 0)
        __builtin_unreachable(); /* tells lag_weight, which then has no branch for each term */
    const struct ring_span ring = ring_at(s->t, s->span);
    float *state[SIDES_MAX];
    struct term sum[SIDES_MAX];
    struct sums sums[SIDES_MAX];
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        const size_t c = channel[i];
        state[i] = all_state + c / LANES * local_state_floats(s->span, half) + c % LANES;
        sums[i] = local_enter(state[i], ring.here, k + c, v + c, s, half);
        begin_window(&sums[i], cut);
        sum[i] = first_part(&sums[i], cut);
    }
    const ptrdiff_t ahead = (const char *)s->next - (const char *)all_state;
    uint32_t slot = ring.oldest;
    for (uint32_t lag = ring.terms; lag-- > 0;) {
        if (begins_part(slot, cut)) {
#pragma GCC unroll 2
            for (size_t i = 0; i < n; i++)
                end_part(&sums[i], &sum[i]);
        }
#pragma GCC unroll 2
        for (size_t i = 0; i < n; i++) {
            const float *at = ring_term(state[i], slot, half);
            const struct term term = term_load(at, half);
            const lanes w = lag_weight(s->weights, by_channel ? s->stride : 0, lag, channel[i]);
            __builtin_prefetch((const char *)at + ahead);
            if (!half)
                __builtin_prefetch((const char *)(at + LANES) + ahead);
            sum[i].e = lanes_fma(w, term.e, sum[i].e);
            sum[i].ev = lanes_fma(w, term.ev, sum[i].ev);
        }
        slot = slot + 1 == s->span ? 0 : slot + 1;
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < n; i++) {
        end_window(&sums[i], &sum[i], cut);
        lanes_store(y + channel[i], gated_mean(q + channel[i], sums[i].ev.sum, sums[i].e.sum, s->gate));
    }
}

LANES_INLINE void local_factored_by(float *y, const float *q, const float *k, const float *v, float *state,
                                    const struct local_step *s, bool half, bool by_channel, bool cut)
{
    const size_t channels = s->groups * LANES;
    size_t c = 0;
    for (; c + (size_t)2 * WIDTH <= channels; c += (size_t)2 * WIDTH)
        local_factored_sides(y, q, k, v, state, s, (const size_t[SIDES_MAX]){c, c + WIDTH}, 2, half, by_channel, cut);
    if (c < channels)
        local_factored_sides(y, q, k, v, state, s, (const size_t[SIDES_MAX]){c}, 1, half, by_channel, cut);
}

LANES_INLINE void local_factored_of(float *y, const float *q, const float *k, const float *v, float *state,
                                    const struct local_step *s, bool cut)
{
    if (s->half && s->stride == 0)
        local_factored_by(y, q, k, v, state, s, true, false, cut);
    else if (s->half)
        local_factored_by(y, q, k, v, state, s, true, true, cut);
    else if (s->stride == 0)
        local_factored_by(y, q, k, v, state, s, false, false, cut);
    else
        local_factored_by(y, q, k, v, state, s, false, true, cut);
}

void KERNEL(local_factored)(float *y, const float *q, const float *k, const float *v, float *state,
                            const struct local_step *s)
{
    if (is_cut(s->span))
        local_factored_of(y, q, k, v, state, s, true);
    else
        local_factored_of(y, q, k, v, state, s, false);
}
