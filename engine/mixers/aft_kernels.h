/* aft_kernels.h - the inner loops of every AFT mixer, compiled for each instruction set. Each function works on its own
 * rows alone, cannot fail and allocates nothing; several threads call it on disjoint rows. */
#ifndef ENGINE_MIXERS_AFT_KERNELS_H
#define ENGINE_MIXERS_AFT_KERNELS_H

#include "engine/kernels/simd.h"

/* Two ways to add up exp(k + w), chosen by a block's largest |w|.
 *
 * Up to BIAS_FACTORED, by factors: a float32 key of any size is held as e = exp(k) / 2^r <= 2^KEY_TOP with r a whole
 * number, so that changing r is exact, and a term is exp(w) * e. A product stays below 2^(64 + 29), which leaves 34
 * powers of two for the number of terms and the size of v; what is lost is 2^(56 + 126 - 58) times smaller than the
 * largest term. A raised reference leaves KEY_TOP - KEY_RAISED powers of two of room, so that a slowly growing key does
 * not rescale the state at every step.
 *
 * Beyond, exactly: float32 has no room for the factors, so a term is exp(k + w - m), m the largest k + w of the sum. */
#define BIAS_FACTORED 20.0f
#define KEY_TOP 64
#define KEY_RAISED 56

/* One picture's mixing by AFT-conv; widths padded to LANES. */
struct conv_shape {
    uint32_t height, width;   /* the token grid */
    uint32_t kh, kw;          /* tap (a, b) of the window holds the offset (a - kh / 2, b - kw / 2) */
    uint32_t heads, channels; /* padded */
    size_t stride;            /* floats from one token's q, k or v to the next one's */
    size_t token, group;      /* floats from a token, from LANES columns to the next ones in what lies between them */
};

/* One position t of a stream by AFT's recurrent form, for `groups` times LANES channels. */
struct local_step {
    const float *weights; /* by lag, exp(w(t, t - lag)) or, exactly, w: [span] for all channels, or [span, stride] */
    size_t stride;        /* 0: for all channels */
    uint32_t span, t;
    size_t groups;
    bool gate;   /* else sigmoid(q) is left out */
    bool global; /* for the exact form: see local_exact */
    bool half;   /* factored: a ring of bf16 */
    /* Factored: the state of the step that comes next, or this one's: it is prefetched meanwhile, except for several
     * positions at once. */
    const float *next;
};

/* LOCAL_ROWS positions of one stream, one after the other, by the same channels; floats from one to the next. */
#define LOCAL_ROWS 4
struct local_rows {
    float *y;
    const float *q, *k, *v;
    size_t y_stride, q_stride, k_stride, v_stride;
    size_t weights_stride; /* of local_step.weights, which are the first one's */
};

/* y = sigmoid(q) * num / den, the end of every AFT mixer, by one division. den > 0: the largest key's term never
 * underflows; and it has room for twice itself (kernels.h). */
LANES_INLINE lanes gated_mean(const float *q, lanes num, lanes den, bool gate)
{
    if (!gate)
        return num / den;
    const lanes x = lanes_load(q);
    const ilanes negative = x < 0.0f;
    const lanes e = lanes_exp(lanes_pick(negative, x, -x)), one = lanes_set(1.0f);
    return num * lanes_pick(negative, e, one) / (den * (one + e));
}

/* ---- streams: a position at a time ------------------------------------------------------------------------------ */

/* The state of LANES channels of one stream and layer: S of e and of e*v, what each of them has lost (lanes.h, "long
 * sums"), r, then the ring [span][e, e*v] (local_factored), or [span][k, v] (local_exact). Half the ring: [span] pairs
 * of bf16, e in the lower halves. Another layout needs another STATE_BLOB_VERSION (server/session/state_blob.h). */
#define LOCAL_ROWS_BEFORE_RING 5
static inline size_t local_state_floats(uint32_t span, bool half)
{
    return LANES * (LOCAL_ROWS_BEFORE_RING + (half ? 1 : 2) * (size_t)span);
}

/* AFT-local (Zhai et al. 2021, eq. 2 and 3.2), causal, one position of one stream, recurrent form:
 *     y = sigmoid(q) * num / den,  num = sum_{s <= t} exp(k_s + w_ts) v_s,  den = sum_{s <= t} exp(k_s + w_ts)
 * where w_ts = 0 beyond the window: S, the sums of what has left the window, plus the window's terms added afresh,
 * oldest first; positive weights only, so nothing cancels.
 * y, q, k, v: [groups * LANES]; state: [groups] of local_state_floats, finite; t = 0 starts it anew. */
void KERNEL(local_factored)(float *y, const float *q, const float *k, const float *v, float *state,
                            const struct local_step *step);

/* The same for LOCAL_ROWS positions, of which step->t is the first, as bits too: each term of the window is read
 * once for all of them. span >= LOCAL_ROWS. */
void KERNEL(local_factored_rows)(const struct local_rows *rows, float *state, const struct local_step *step);

/* The same exactly, for biases of any size. Without `global` there is no S: w is minus infinity beyond the window,
 * and what the terms are relative to follows the window and may decrease. */
void KERNEL(local_exact)(float *y, const float *q, const float *k, const float *v, float *state,
                         const struct local_step *step);

/* ---- whole sequences -------------------------------------------------------------------------------------------- */

/* AFT (eq. 2) exactly, one position, every token s seen: y = sigmoid(q) * sum_s a_s v_s / sum_s a_s with
 * a_s = exp(k_s + w_s - max), by channel. y, q [channels]; k, v [tokens] rows at `stride`; bias [tokens] = w, minus
 * infinity where there is no term, finite for one s at least. */
void KERNEL(aft_exact)(float *y, const float *q, const float *k, const float *v, const float *bias, size_t tokens,
                       size_t stride, size_t channels, bool gate);

/* Rows with margins, which are no wider than themselves on either side, and sums of rows and columns. */
static inline size_t conv_scratch_floats(size_t height, size_t width)
{
    return LANES * (3 * height * width + 4 * height + 2 * width + LANES + 2);
}

/* AFT-conv (eq. 6), one picture, LANES heads or channels at a time. e, den (of heads), ev, num (of channels): LANES
 * columns of all tokens at s->token; those of the next LANES heads at s->group.
 * e = exp(k) / 2^r, r by head such that the picture's largest is about 2^KEY_RAISED; k: of the first head. */
void KERNEL(conv_keys)(float *e, const float *k, const struct conv_shape *s);
/* ev = e[head_of[c]] * v for LANES channels, which v and head_of begin with; e: of all heads. */
void KERNEL(conv_values)(float *ev, const float *e, const float *v, const uint32_t *head_of,
                         const struct conv_shape *s);
/* out[p] = (sum of x outside p's window) + sum_j taps[j] x[p + j - (kh / 2, kw / 2)], LANES columns;
 * taps [kh * kw, LANES] = exp(w). What lies outside is added up from the rows above, the rows below and the ends of
 * the window's own rows, in scratch [conv_scratch_floats]: nothing is subtracted.
 * few: NULL, or the taps that differ from exp(0): their number, then each as CONV_TAP. The sum is then that of all x,
 * which a tap of less than exp(0) takes something from: with none below exp(FEW_LEAST) that costs a factor of 8 in
 * accuracy at most. */
#define FEW_LEAST (-2.0f)
#define CONV_TAP(down, across) ((uint32_t)(down) << 16 | (uint32_t)(across))
void KERNEL(conv_sums)(float *out, const float *x, const float *taps, const uint32_t *few, const struct conv_shape *s,
                       float *scratch);
/* y = sigmoid(q) * num / den[head_of] for LANES channels, which y [tokens, channels], q, num and head_of begin
 * with; den: of all heads. */
void KERNEL(conv_finish)(float *y, const float *q, const float *num, const float *den, const uint32_t *head_of,
                         const struct conv_shape *s, bool gate);
/* AFT-conv exactly, one position p: y = sigmoid(q) * sum_j a_j v_j / sum_j a_j with a_j = exp(k_j + w_j - max_j),
 * over the window alone, or over the whole picture with w = 0 beyond it (`global`).
 * bias [kh * kw, heads] = w; weights: scratch [tokens + 1, heads]. */
void KERNEL(conv_exact)(float *y, const float *q, const float *k, const float *v, const float *bias,
                        const uint32_t *head_of, const struct conv_shape *s, size_t p, bool gate, bool global,
                        float *weights);

#endif
