/* kernels.h - the element-wise kernels as one table of functions; dispatch.c picks the table once for the machine.
 * Every vector of channels is padded to a multiple of LANES with zero weights, so kernels have no tails. Each function
 * works on its own rows alone, cannot fail and allocates nothing; several threads call it on disjoint rows. */
#ifndef ENGINE_KERNELS_KERNELS_H
#define ENGINE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16

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

#define ATTEND_ROWS_MAX 64

/* What weights and the rows that meet them are held as. */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_INT8, PRECISION_COUNT };

#define PRODUCT_ROW_HEAD 64 /* bytes of an int8 row before its values: its scale, and what keeps them aligned */

enum epilogue { EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_GELU_TANH, EPILOGUE_RELU, EPILOGUE_ADD };

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

/* Memory that is needed soon, weights and something else: at each of its steps of k (one, a pair, a quad of numbers) a
 * product prefetches a line of each, a step further, without waiting. What is there does not matter, nor whether there
 * is anything. */
struct ahead {
    const uint8_t *weights, *other;
    size_t weights_step, other_step; /* bytes; 0: the same line again */
};

typedef void product_kernel(float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows, const uint8_t *w,
                            size_t k, size_t width, const struct ahead *ahead);
typedef void to_row_kernel(uint8_t *row, const float *x, size_t k);

struct kernels {
    const char *isa;
    bool pays[PRECISION_COUNT]; /* does the processor have instructions that make it faster than those before it? */

    /* acc [rows, ld] = rows times packed weights, by precision: rows <= GEMM_ROWS_MAX at `stride` bytes (fp32: k
     * floats; else what to_row makes); w: chunks of GEMM_CHUNK columns side by side, `width` columns in all, a multiple
     * of LANES; more than one chunk for up to 6 rows, more than two for up to 3. */
    product_kernel *product[PRECISION_COUNT];
    /* One row of k floats as bf16, rounded to the nearest; or as int8 with its scale, both zero beyond k. Only for the
     * products of the same table, which alone know what a byte holds. PRECISION_F32: NULL. */
    to_row_kernel *to_row[PRECISION_COUNT];

    /* Layer norm (Ba et al. 2016, eq. 4) of one row: y = weight (x - mean) / sqrt(var + eps) + bias.
     * x, y [padded dim], y may be x; weight, bias [padded dim], zero beyond dim, so y's padding becomes 0.
     * Two passes: a large common offset does not cancel. */
    void (*norm)(float *y, const float *x, const float *weight, const float *bias, size_t dim, float eps);

    /* What follows a matrix product, for a tile acc [rows, ld]: y = act(acc + bias), or y += acc + bias (EPILOGUE_ADD).
     * y [rows] at stride; cols a multiple of LANES. */
    void (*epilogue)(float *y, size_t stride, const float *acc, size_t ld, const float *bias, size_t rows, size_t cols,
                     enum epilogue kind);

    /* AFT-local (Zhai et al. 2021, eq. 2 and 3.2), causal, one position of one stream, recurrent form:
     *     y = sigmoid(q) * num / den,  num = sum_{s <= t} exp(k_s + w_ts) v_s,  den = sum_{s <= t} exp(k_s + w_ts)
     * where w_ts = 0 beyond the window: S, the sums of what has left the window, plus the window's terms added afresh,
     * oldest first; positive weights only, so nothing cancels.
     * y, q, k, v: [groups * LANES]; state: [groups] of local_state_floats, finite; t = 0 starts it anew. */
    void (*local_factored)(float *y, const float *q, const float *k, const float *v, float *state,
                           const struct local_step *step);

    /* The same for LOCAL_ROWS positions, of which step->t is the first, as bits too: each term of the window is read
     * once for all of them. span >= LOCAL_ROWS. */
    void (*local_factored_rows)(const struct local_rows *rows, float *state, const struct local_step *step);

    /* The same exactly, for biases of any size. Without `global` there is no S: w is minus infinity beyond the window,
     * and what the terms are relative to follows the window and may decrease. */
    void (*local_exact)(float *y, const float *q, const float *k, const float *v, float *state,
                        const struct local_step *step);

    /* Softmax attention of 1 .. ATTEND_ROWS_MAX consecutive queries of one head, of which query r sees the keys and
     * values of count + r positions: y_r = sum_s softmax_s(scale q_r . k_s) v_s, count > 0.
     * y, q [rows, width] at their strides; rest [rows, width] at y's: scratch, what y's sums lose. keys: by blocks of
     * LANES positions, attend_key; only the blocks with a position that is seen are read. values [positions, width],
     * read up to LANES floats beyond the last one seen.
     * In one pass, relative to the largest score so far. A row's bits do not depend on which rows are beside it. */
    void (*attend)(float *y, float *rest, size_t y_stride, const float *q, size_t q_stride, size_t rows,
                   const float *keys, const float *values, size_t count, size_t width, float scale);

    /* AFT (eq. 2) exactly, one position, every token s seen: y = sigmoid(q) * sum_s a_s v_s / sum_s a_s with
     * a_s = exp(k_s + w_s - max), by channel. y, q [channels]; k, v [tokens] rows at `stride`; bias [tokens] = w, minus
     * infinity where there is no term, finite for one s at least. */
    void (*aft_exact)(float *y, const float *q, const float *k, const float *v, const float *bias, size_t tokens,
                      size_t stride, size_t channels, bool gate);

    /* x = exp(x - max x) / sum exp(x - max x), n numbers in a buffer of lanes_padded(n), all of which is
     * overwritten. */
    void (*softmax)(float *x, size_t n);

    /* AFT-conv (eq. 6), one picture, LANES heads or channels at a time. e, den (of heads), ev, num (of channels): LANES
     * columns of all tokens at s->token; those of the next LANES heads at s->group.
     * e = exp(k) / 2^r, r by head such that the picture's largest is about 2^KEY_RAISED; k: of the first head. */
    void (*conv_keys)(float *e, const float *k, const struct conv_shape *s);
    /* ev = e[head_of[c]] * v for LANES channels, which v and head_of begin with; e: of all heads. */
    void (*conv_values)(float *ev, const float *e, const float *v, const uint32_t *head_of, const struct conv_shape *s);
    /* out[p] = (sum of x outside p's window) + sum_j taps[j] x[p + j - (kh / 2, kw / 2)], LANES columns;
     * taps [kh * kw, LANES] = exp(w). What lies outside is added up from the rows above, the rows below and the ends of
     * the window's own rows, in scratch [conv_scratch_floats]: nothing is subtracted. */
    void (*conv_sums)(float *out, const float *x, const float *taps, const struct conv_shape *s, float *scratch);
    /* y = sigmoid(q) * num / den[head_of] for LANES channels, which y [tokens, channels], q, num and head_of begin
     * with; den: of all heads. */
    void (*conv_finish)(float *y, const float *q, const float *num, const float *den, const uint32_t *head_of,
                        const struct conv_shape *s, bool gate);
    /* AFT-conv exactly, one position p: y = sigmoid(q) * sum_j a_j v_j / sum_j a_j with a_j = exp(k_j + w_j - max_j),
     * over the window alone, or over the whole picture with w = 0 beyond it (`global`).
     * bias [kh * kw, heads] = w; weights: scratch [tokens + 1, heads]. */
    void (*conv_exact)(float *y, const float *q, const float *k, const float *v, const float *bias,
                       const uint32_t *head_of, const struct conv_shape *s, size_t p, bool gate, bool global,
                       float *weights);
};

/* The state of LANES channels of one stream and layer: S of e and of e*v, what each of them has lost (lanes.h, "long
 * sums"), r, then the ring [span][e, e*v] (local_factored), or [span][k, v] (local_exact). Half the ring: [span] pairs
 * of bf16, e in the lower halves. Another layout needs another STATE_BLOB_VERSION (server/session/state_blob.h). */
#define LOCAL_ROWS_BEFORE_RING 5
static inline size_t local_state_floats(uint32_t span, bool half)
{
    return LANES * (LOCAL_ROWS_BEFORE_RING + (half ? 1 : 2) * (size_t)span);
}

/* Where channel c of position s's key stands in a head's keys, [blocks, width, LANES]: scores of LANES positions are
 * then added up lane by lane. */
static inline size_t attend_key(size_t s, size_t c, size_t width)
{
    return (s / LANES * width + c) * LANES + s % LANES;
}

/* Rows with margins, which are no wider than themselves on either side, and sums of rows and columns. */
static inline size_t conv_scratch_floats(size_t height, size_t width)
{
    return LANES * (3 * height * width + 4 * height + 2 * width + LANES + 2);
}

static inline size_t lanes_padded(size_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* The best table that this processor runs; `isa` ("baseline"; "avx2", "avx512", "avx512vnni", "avx512bf16" on
 * x86-64; "neon", "neondotprod", "neonbf16" on arm64) asks for that one and gets NULL where the processor lacks it or
 * the name is unknown. NULL asks for the best. */
const struct kernels *kernels_select(const char *isa);

enum { KERNELS_TABLES_MAX = 5 }; /* of one build */
/* All tables of this build, the best first and a NULL last, whatever this processor runs. */
void kernels_list(const struct kernels *ret[KERNELS_TABLES_MAX + 1]);

#endif
