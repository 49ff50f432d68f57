/* attention_kernels.c - see attention.h. Engine threads only. */
#include "engine/mixers/attention.h"

#include <math.h>

void KERNEL(softmax)(float *x, size_t n)
{
    const size_t padded = lanes_padded(n);
    for (size_t i = n; i < padded; i++)
        x[i] = -INFINITY;
    lanes most = lanes_load(x);
    for (size_t i = WIDTH; i < padded; i += WIDTH)
        most = lanes_max(most, lanes_load(x + i));
    float top = most[0];
    for (int i = 1; i < WIDTH; i++)
        top = fmaxf(top, most[i]);
    struct long_sum sums = {{0}, {0}};
    for (size_t begin = 0; begin < padded; begin += SUM_BLOCK * WIDTH) {
        const size_t end = padded - begin < SUM_BLOCK * WIDTH ? padded : begin + SUM_BLOCK * WIDTH;
        lanes sum = {0};
        for (size_t i = begin; i < end; i += WIDTH) {
            const lanes e = lanes_exp(lanes_load(x + i) - top);
            sum += e;
            lanes_store(x + i, e);
        }
        long_sum_add(&sums, sum);
    }
    const float scale = 1.0f / lanes_sum(sums.sum);
    for (size_t i = 0; i < padded; i += WIDTH)
        lanes_store(x + i, lanes_load(x + i) * scale);
}

/* ---- softmax attention of streams ------------------------------------------------------------------------------- */

/* Rows that share each load of a key and a value, and positions whose scores are held at once: their keys and values
 * stay in the nearest caches while the rows of a call pass over them. Whatever the rows, each number of a row is added
 * up by the same operations in the same order: positions and channels one after the other, into one
 * lane, positions by SUM_BLOCK of them, those by chunks. */
enum { ATTEND_TILE = 4, ATTEND_CHUNK = 256 };

/* What a row's sums so far are relative to, and its denominator. */
struct attend_row {
    float top, den, rest; /* of den, a long sum (lanes.h) */
};

/* scores[r][j * WIDTH ..] = scale q_r . k for `registers` registers of positions, `apart` floats from each other. */
LANES_INLINE void score_tile(float (*scores)[ATTEND_CHUNK], const float *q, size_t q_stride, size_t rows,
                             const float *keys, size_t apart, size_t registers, size_t width, float scale)
{
    lanes sum[ATTEND_TILE][2] = {0};
    for (size_t c = 0; c < width; c++)
        for (size_t j = 0; j < registers; j++) {
            const lanes key = lanes_load(keys + j * apart + c * LANES);
            for (size_t r = 0; r < rows; r++)
                sum[r][j] = lanes_fma(lanes_set(q[r * q_stride + c]), key, sum[r][j]);
        }
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < registers; j++)
            lanes_store(scores[r] + j * WIDTH, scale * sum[r][j]);
}

/* The scores of the blocks of keys that hold n positions. */
LANES_INLINE void score_chunk(float (*scores)[ATTEND_CHUNK], const float *q, size_t q_stride, size_t rows,
                              const float *keys, size_t n, size_t width, float scale)
{
    const size_t padded = lanes_padded(n), apart = WIDTH < LANES ? WIDTH : width * LANES;
    for (size_t s = 0; s < padded; s += (size_t)2 * WIDTH) {
        float(*to)[ATTEND_CHUNK] = (float(*)[ATTEND_CHUNK])(scores[0] + s);
        const float *from = keys + s / LANES * width * LANES + s % LANES;
        if (s + WIDTH < padded)
            score_tile(to, q, q_stride, rows, from, apart, 2, width, scale);
        else
            score_tile(to, q, q_stride, rows, from, apart, 1, width, scale);
    }
}

/* scores [n], n > 0, become exp(score - top) for the row's new top, and y with its rest what it is relative to that. */
static void weigh_scores(struct attend_row *row, float *scores, size_t n, float *y, float *rest, size_t width)
{
    const size_t padded = lanes_padded(n);
    for (size_t i = n; i < padded; i++)
        scores[i] = -INFINITY;
    lanes most = lanes_load(scores), sums = {0};
    for (size_t i = WIDTH; i < padded; i += WIDTH)
        most = lanes_max(most, lanes_load(scores + i));
    float top = row->top;
    for (int i = 0; i < WIDTH; i++)
        top = fmaxf(top, most[i]);
    for (size_t i = 0; i < padded; i += WIDTH) {
        const lanes e = lanes_exp(lanes_load(scores + i) - top);
        sums += e;
        lanes_store(scores + i, e);
    }
    if (top > row->top) {
        const float scale = lanes_exp(lanes_set(row->top - top))[0];
        for (size_t c = 0; c < width; c++) {
            y[c] *= scale;
            rest[c] *= scale;
        }
        row->den *= scale;
        row->rest *= scale;
        row->top = top;
    }
    struct long_sum den = {lanes_set(row->den), lanes_set(row->rest)};
    long_sum_add(&den, lanes_set(lanes_sum(sums)));
    row->den = den.sum[0];
    row->rest = den.rest[0];
}

/* Where rows' means are added up: the long sums y + rest, at one stride. */
struct attend_sums {
    float *y, *rest;
    size_t stride;
};

/* sum_r += sum_{begin <= s < end} weights[r][s] v_s for `registers` registers of columns. */
LANES_INLINE void add_block(lanes (*sum)[2], size_t rows, float (*weights)[ATTEND_CHUNK], const float *values,
                            size_t begin, size_t end, size_t width, size_t registers)
{
    for (size_t s = begin; s < end; s++)
        for (size_t j = 0; j < registers; j++) {
            const lanes value = lanes_load(values + s * width + j * WIDTH);
            for (size_t r = 0; r < rows; r++)
                sum[r][j] = lanes_fma(lanes_set(weights[r][s]), value, sum[r][j]);
        }
}

/* The sums of row r += sum_{s < seen[r]} weights[r][s] v_s in the columns of `registers` registers from c, `floats` of
 * the last one. Blocks that all rows see are read once for all of them. */
LANES_INLINE void add_tile(const struct attend_sums *to, size_t c, size_t rows, float (*weights)[ATTEND_CHUNK],
                           const float *values, const size_t *seen, size_t width, size_t registers, size_t floats)
{
    lanes chunk[ATTEND_TILE][2] = {0};
    const size_t shared = seen[0] / SUM_BLOCK * SUM_BLOCK;
    for (size_t begin = 0; begin < shared; begin += SUM_BLOCK) {
        lanes sum[ATTEND_TILE][2] = {0};
        add_block(sum, rows, weights, values + c, begin, begin + SUM_BLOCK, width, registers);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < registers; j++)
                chunk[r][j] += sum[r][j];
    }
    for (size_t r = 0; r < rows; r++) {
        float *y = to->y + r * to->stride + c, *rest = to->rest + r * to->stride + c;
        for (size_t begin = shared; begin < seen[r]; begin += SUM_BLOCK) {
            lanes sum[1][2] = {0};
            add_block(sum, 1, weights + r, values + c, begin, seen[r] - begin < SUM_BLOCK ? seen[r] : begin + SUM_BLOCK,
                      width, registers);
            for (size_t j = 0; j < registers; j++)
                chunk[r][j] += sum[0][j];
        }
        for (size_t j = 0; j < registers; j++) {
            const size_t n = j + 1 < registers ? WIDTH : floats;
            struct long_sum l = {lanes_load_some(y + j * WIDTH, n), lanes_load_some(rest + j * WIDTH, n)};
            long_sum_add(&l, chunk[r][j]);
            lanes_store_some(y + j * WIDTH, l.sum, n);
            lanes_store_some(rest + j * WIDTH, l.rest, n);
        }
    }
}

LANES_INLINE void add_values(const struct attend_sums *to, size_t rows, float (*weights)[ATTEND_CHUNK],
                             const float *values, const size_t *seen, size_t width)
{
    for (size_t c = 0; c < width; c += (size_t)2 * WIDTH) {
        const size_t left = width - c;
        if (left > WIDTH)
            add_tile(to, c, rows, weights, values, seen, width, 2, left < (size_t)2 * WIDTH ? left - WIDTH : WIDTH);
        else
            add_tile(to, c, rows, weights, values, seen, width, 1, left);
    }
}

/* One chunk for one row, which sees n > 0 positions of it. */
static void attend_one(struct attend_row *row, const struct attend_sums *to, const float *q, const float *keys,
                       const float *values, size_t n, size_t width, float scale)
{
    float scores[1][ATTEND_CHUNK];
    score_chunk(scores, q, 0, 1, keys, n, width, scale);
    weigh_scores(row, scores[0], n, to->y, to->rest, width);
    add_values(to, 1, scores, values, &n, width);
}

/* The same for ATTEND_TILE rows, of which the first sees n > 0 positions and each further one one more, up to the
 * chunk's end. */
static void attend_tile(struct attend_row *row, const struct attend_sums *to, const float *q, size_t q_stride,
                        const float *keys, const float *values, size_t n, size_t width, float scale)
{
    float scores[ATTEND_TILE][ATTEND_CHUNK];
    size_t seen[ATTEND_TILE];
    for (size_t r = 0; r < ATTEND_TILE; r++)
        seen[r] = n + r < ATTEND_CHUNK ? n + r : ATTEND_CHUNK;
    score_chunk(scores, q, q_stride, ATTEND_TILE, keys, seen[ATTEND_TILE - 1], width, scale);
    for (size_t r = 0; r < ATTEND_TILE; r++)
        weigh_scores(&row[r], scores[r], seen[r], to->y + r * to->stride, to->rest + r * to->stride, width);
    add_values(to, ATTEND_TILE, scores, values, seen, width);
}

void KERNEL(attend)(float *y, float *rest, size_t y_stride, const float *q, size_t q_stride, size_t rows,
                    const float *keys, const float *values, size_t count, size_t width, float scale)
{
    struct attend_row row[ATTEND_ROWS_MAX];
    for (size_t r = 0; r < rows; r++) {
        row[r] = (struct attend_row){.top = -INFINITY};
        memset(y + r * y_stride, 0, width * sizeof *y);
        memset(rest + r * y_stride, 0, width * sizeof *rest);
    }
    for (size_t begin = 0; begin < count + rows - 1; begin += ATTEND_CHUNK) {
        /* The rows before `r` see nothing of this chunk. */
        size_t r = begin < count ? 0 : begin - count + 1;
        const float *k = keys + begin * width, *v = values + begin * width;
        while (r < rows) {
            const size_t n = count + r - begin, one = n < ATTEND_CHUNK ? n : ATTEND_CHUNK;
            const struct attend_sums to = {y + r * y_stride, rest + r * y_stride, y_stride};
            if (rows - r >= ATTEND_TILE) {
                attend_tile(row + r, &to, q + r * q_stride, q_stride, k, v, one, width, scale);
                r += ATTEND_TILE;
            } else {
                attend_one(row + r, &to, q + r * q_stride, k, v, one, width, scale);
                r++;
            }
        }
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < width; c++)
            y[r * y_stride + c] /= row[r].den;
}
