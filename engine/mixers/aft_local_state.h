/* aft_local_state.h - the state of a stream in AFT's recurrent form, by WIDTH channels: a ring of the window's terms,
 * and the sums of what has left it. For aft_local_*.c alone. */
#ifndef ENGINE_MIXERS_AFT_LOCAL_STATE_H
#define ENGINE_MIXERS_AFT_LOCAL_STATE_H

#include "engine/mixers/aft_kernels.h"

/* A group's state is rows of LANES floats: S of e and of e*v, what those two have lost, r, then the ring. These work on
 * WIDTH columns of it. */
enum { ROW_SUM_E, ROW_SUM_EV, ROW_REST_E, ROW_REST_EV, ROW_REFERENCE, ROW_RING };
_Static_assert(ROW_RING == LOCAL_ROWS_BEFORE_RING, "aft_kernels.h has the state's size");

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
static __attribute__((noinline, unused)) void local_rescale(float *state, const lanes *rise, uint32_t terms, bool half)
{
    const lanes lower = lanes_round(*rise * 0.5f);
    const lanes scale = lanes_power_of_2(-lower), rest = lanes_power_of_2(lower - *rise);
    for (size_t row = ROW_SUM_E; row <= ROW_REST_EV; row++)
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
    if (first || any != 0) /* else the row stays as it is: what was not written need not go back to memory */
        lanes_store(state_row(state, ROW_REFERENCE), r);
    return p * lanes_power_of_2(n - r);
}

LANES_INLINE void local_clear_sums(float *state)
{
    for (size_t row = ROW_SUM_E; row <= ROW_REST_EV; row++)
        lanes_store(state_row(state, row), (lanes){0});
}

/* Sums of e and of e*v. */
struct sums {
    struct long_sum e, ev;
};

LANES_INLINE struct sums sums_load(float *state)
{
    return (struct sums){{lanes_load(state_row(state, ROW_SUM_E)), lanes_load(state_row(state, ROW_REST_E))},
                         {lanes_load(state_row(state, ROW_SUM_EV)), lanes_load(state_row(state, ROW_REST_EV))}};
}

LANES_INLINE void sums_store(float *state, const struct sums *s)
{
    lanes_store(state_row(state, ROW_SUM_E), s->e.sum);
    lanes_store(state_row(state, ROW_SUM_EV), s->ev.sum);
    lanes_store(state_row(state, ROW_REST_E), s->e.rest);
    lanes_store(state_row(state, ROW_REST_EV), s->ev.rest);
}

LANES_INLINE void sums_add(struct sums *s, lanes e, lanes ev)
{
    long_sum_add(&s->e, e);
    long_sum_add(&s->ev, ev);
}

/* What leaves the window at position t is added to what S has lost, plainly; at every SUMS_SETTLE positions, the same
 * for all ways to come there, S takes in what fits. */
#define SUMS_SETTLE 16u
LANES_INLINE void sums_leave(struct sums *s, lanes e, lanes ev, uint32_t t)
{
    s->e.rest += e;
    s->ev.rest += ev;
    if (t % SUMS_SETTLE == 0) {
        long_sum_settle(&s->e);
        long_sum_settle(&s->ev);
    }
}

LANES_INLINE struct sums local_add_sums(float *state, lanes e, lanes ev, uint32_t t)
{
    struct sums sums = sums_load(state);
    sums_leave(&sums, e, ev, t);
    if (t % SUMS_SETTLE == 0) {
        sums_store(state, &sums);
    } else { /* half the writing */
        lanes_store(state_row(state, ROW_REST_E), sums.e.rest);
        lanes_store(state_row(state, ROW_REST_EV), sums.ev.rest);
    }
    return sums;
}

/* A window's terms are added up by themselves, then to S. One of more than SUM_BLOCK terms is cut where the ring begins
 * and at each SUM_BLOCK slots of it, which are the same places for all positions: each part is added up by itself, and
 * the parts in a long sum. */
LANES_INLINE bool is_cut(uint32_t span)
{
    return span > SUM_BLOCK;
}

/* In these `cut` is is_cut of the span, a constant once inlined: most windows are not, and have nothing to compare. */
LANES_INLINE bool begins_part(uint32_t slot, bool cut)
{
    return cut && slot % SUM_BLOCK == 0;
}

/* What the parts are added to begins as S; settled, so that an empty part changes nothing. */
LANES_INLINE void begin_window(struct sums *sums, bool cut)
{
    if (cut) {
        long_sum_settle(&sums->e);
        long_sum_settle(&sums->ev);
    }
}

/* What a window's first part begins as: where it is the only one, what S has lost, no larger than terms are. */
LANES_INLINE struct term first_part(const struct sums *sums, bool cut)
{
    return cut ? (struct term){{0}, {0}} : (struct term){sums->e.rest, sums->ev.rest};
}

/* A part ends: *sum goes to *sums, and begins anew. An empty one changes nothing. */
LANES_INLINE void end_part(struct sums *sums, struct term *sum)
{
    sums_add(sums, sum->e, sum->ev);
    *sum = (struct term){{0}, {0}};
}

/* The last part ends: *sums has all there is, and to divide by only its first numbers count. */
LANES_INLINE void end_window(struct sums *sums, const struct term *sum, bool cut)
{
    if (cut) {
        sums_add(sums, sum->e, sum->ev);
    } else {
        sums->e.sum += sum->e;
        sums->ev.sum += sum->ev;
    }
}

/* What a lag counts for in the WIDTH channels from c: one number for all (stride 0), or each its own. */
LANES_INLINE lanes lag_weight(const float *weights, size_t stride, uint32_t lag, size_t c)
{
    return stride == 0 ? lanes_set(weights[lag]) : lanes_load(weights + lag * stride + c);
}

#endif
