/* gemm.c - packing, and who computes which tile; see gemm.h. A chunk of `width` columns is
 *
 *   fp32   [k][width]
 *   bf16   [k / 2][width][2], k rounded up: a register takes two steps of k
 *   int8   [k / 4][width][4], k rounded up; then, by column, the scale [width] (float) and 128 times the sum over k
 *          [width] (int32), which is what the rows' offset adds
 *
 * and a row of int8 is 64 bytes that begin with its scale, then k bytes of value / scale + 128 (neon_dotprod.c: signed,
 * without the 128; avx2_int8.c: + 64). */
#include "engine/kernels/gemm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/core/team.h"

#define BLOCK_BYTES (256 << 10) /* of a task's rows: they stay in the second-level cache while the chunks go by */
#define LINE_BYTES 64           /* of a cache */
#define CHUNKS_AT_ONCE 4        /* of a task of few rows, as kernels.h's product takes them */

static uint32_t chunk_width(const struct gemm *g, uint32_t column)
{
    return g->n - column < GEMM_CHUNK ? g->n - column : GEMM_CHUNK;
}

/* How many steps of 4 bytes a column has, of one number, a pair or a quad each. */
static size_t column_steps(enum precision precision, uint32_t k)
{
    const size_t numbers = precision == PRECISION_INT8 ? 4 : precision == PRECISION_BF16 ? 2 : 1;
    return (k + numbers - 1) / numbers;
}

/* Bytes of one column: the same for each, so that a chunk begins at column * that. */
static size_t column_bytes(enum precision precision, uint32_t k)
{
    return 4 * column_steps(precision, k) + (precision == PRECISION_INT8 ? sizeof(float) + sizeof(int32_t) : 0);
}

size_t gemm_packed_bytes(enum precision precision, uint32_t n, uint32_t k)
{
    return n * column_bytes(precision, k);
}

size_t gemm_row_bytes(enum precision precision, uint32_t k)
{
    const size_t head = precision == PRECISION_INT8 ? PRODUCT_ROW_HEAD : 0;
    return precision == PRECISION_F32 ? 0 : (head + 4 * column_steps(precision, k) + 63) / 64 * 64;
}

void gemm_plan(struct gemm *g, struct workspace *w, enum precision precision, uint32_t n, uint32_t k)
{
    g->n = (uint32_t)lanes_padded(n);
    g->k = k;
    g->precision = precision;
    workspace_note(w, &g->packed, gemm_packed_bytes(precision, g->n, k), 1);
    workspace_note(w, &g->bias, g->n, sizeof *g->bias);
}

/* ---- packing ---------------------------------------------------------------------------------------------------- */

/* Rounded to nearest, ties to even; the sums that weights take part in are finite, so no NaN comes here. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Some rows of a matrix, [count, k], into the columns of a chunk from `at` on. Columns are innermost, so that a line of
 * the chunk is written at once. */
typedef void pack_rows(uint8_t *chunk, size_t width, size_t at, const float *rows, size_t count, size_t k);

static void pack_f32(uint8_t *chunk, size_t width, size_t at, const float *rows, size_t count, size_t k)
{
    for (size_t i = 0; i < k; i++)
        for (size_t r = 0; r < count; r++)
            memcpy(chunk + (i * width + at + r) * sizeof *rows, rows + r * k + i, sizeof *rows);
}

static void pack_bf16(uint8_t *chunk, size_t width, size_t at, const float *rows, size_t count, size_t k)
{
    for (size_t i = 0; i < k; i += 2)
        for (size_t r = 0; r < count; r++) {
            const float *x = rows + r * k + i;
            const uint16_t pair[2] = {to_bf16(x[0]), i + 1 < k ? to_bf16(x[1]) : 0};
            memcpy(chunk + (i / 2 * width + at + r) * sizeof pair, pair, sizeof pair);
        }
}

static void pack_int8_row(uint8_t *chunk, size_t width, size_t at, const float *row, size_t k)
{
    int8_t values[64];
    int32_t sum = 0;
    int32_t top = 0; /* the largest by the bits of floats, whose order that is: of floats, no vector code is made */
    for (size_t i = 0; i < k; i++) {
        int32_t bits;
        memcpy(&bits, row + i, sizeof bits);
        bits &= INT32_MAX;
        top = bits > top ? bits : top;
    }
    float largest;
    memcpy(&largest, &top, sizeof largest);
    const float scale = largest > 0.0f ? largest / 127.0f : 1.0f;
    for (size_t first = 0; first < k; first += sizeof values) {
        const size_t n = k - first < sizeof values ? k - first : sizeof values;
        memset(values + n / 4 * 4, 0, n < sizeof values ? 4 : 0);
        for (size_t i = 0; i < n; i++) {
            /* To the nearest whole number, ties to even: from 2^23 on the last bit of a float is a one. */
            const float shifted = row[first + i] / scale + 0x1.8p23f;
            int32_t bits;
            memcpy(&bits, &shifted, sizeof bits);
            values[i] = (int8_t)(bits & 0xff);
            sum += values[i];
        }
        for (size_t i = 0; i < n; i += 4)
            memcpy(chunk + ((first + i) / 4 * width + at) * 4, values + i, 4);
    }
    uint8_t *tail = chunk + (k + 3) / 4 * 4 * width;
    sum *= 128;
    memcpy(tail + at * sizeof scale, &scale, sizeof scale);
    memcpy(tail + (width + at) * sizeof scale, &sum, sizeof sum);
}

static void pack_int8(uint8_t *chunk, size_t width, size_t at, const float *rows, size_t count, size_t k)
{
    for (size_t r = 0; r < count; r++)
        pack_int8_row(chunk, width, at + r, rows + r * k, k);
}

void gemm_pack(struct gemm *g, uint32_t column, const float *weight, const float *bias, uint32_t out, uint32_t in)
{
    static pack_rows *const pack[] = {
        [PRECISION_F32] = pack_f32, [PRECISION_BF16] = pack_bf16, [PRECISION_INT8] = pack_int8};
    assert(in == g->k && column + out <= g->n);
    for (uint32_t done = 0; done < out;) {
        const uint32_t at = column + done, first = at / GEMM_CHUNK * GEMM_CHUNK, width = chunk_width(g, first);
        const uint32_t room = first + width - at, count = out - done < room ? out - done : room;
        pack[g->precision](g->packed + first * column_bytes(g->precision, g->k), width, at - first,
                           weight + (size_t)done * in, count, in);
        done += count;
    }
    if (bias != NULL)
        memcpy(g->bias + column, bias, out * sizeof *bias);
}

/* ---- products --------------------------------------------------------------------------------------------------- */

/* A product's rows as its precision wants them. */
struct operand {
    const uint8_t *rows;
    size_t stride; /* bytes */
};

/* By the calling thread for itself, up to GEMM_BLOCK rows. */
static struct operand convert_own(const struct gemm_context *c, const struct gemm *g, const float *x, size_t ldx,
                                  size_t rows)
{
    if (g->precision == PRECISION_F32)
        return (struct operand){(const uint8_t *)x, ldx * sizeof *x};
    const size_t bytes = gemm_row_bytes(g->precision, g->k);
    uint8_t *own = c->rows.own + team_thread() * GEMM_BLOCK * c->rows.bytes;
    for (size_t r = 0; r < rows; r++)
        c->kernels->to_row[g->precision](own + r * bytes, x + r * ldx, g->k);
    return (struct operand){own, bytes};
}

/* Team. */
static struct operand convert_shared(const struct gemm_context *c, const struct gemm *g, const float *x, size_t ldx,
                                     size_t rows)
{
    if (g->precision == PRECISION_F32)
        return (struct operand){(const uint8_t *)x, ldx * sizeof *x};
    const size_t bytes = gemm_row_bytes(g->precision, g->k);
#pragma omp for schedule(static)
    for (size_t r = 0; r < rows; r++)
        c->kernels->to_row[g->precision](c->rows.shared + r * bytes, x + r * ldx, g->k);
    return (struct operand){c->rows.shared, bytes};
}

/* Few rows: each task takes chunks side by side, because one alone would wait for its own sums. */
static void run_few(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, struct operand x,
                    size_t rows, enum epilogue kind)
{
    const uint32_t chunks = (g->n + GEMM_CHUNK - 1) / GEMM_CHUNK;
    uint32_t each = rows <= 3 ? CHUNKS_AT_ONCE : rows <= 6 ? CHUNKS_AT_ONCE / 2 : 1;
    while (each > 1 && chunks < each * c->threads)
        each /= 2;
#pragma omp for schedule(static)
    for (uint32_t first = 0; first < chunks; first += each) {
        float acc[GEMM_ROWS_MAX * CHUNKS_AT_ONCE * GEMM_CHUNK] __attribute__((aligned(64)));
        const uint32_t column = first * GEMM_CHUNK, ld = each * GEMM_CHUNK;
        const uint32_t width = g->n - column < ld ? g->n - column : ld;
        /* The very last chunk may be narrower: it is then multiplied apart from the others. */
        const uint32_t whole = width > GEMM_CHUNK ? width / GEMM_CHUNK * GEMM_CHUNK : width;
        const size_t bytes = column_bytes(g->precision, g->k);
        product_kernel *product = c->kernels->product[g->precision];
        const struct ahead none = {.weights = g->packed, .other = g->packed};
        product(acc, ld, x.rows, x.stride, rows, g->packed + column * bytes, g->k, whole, &none);
        if (whole < width)
            product(acc + whole, ld, x.rows, x.stride, rows, g->packed + (column + whole) * bytes, g->k, width - whole,
                    &none);
        c->kernels->epilogue(y + column, ldy, acc, ld, g->bias + column, rows, width, kind);
    }
}

/* A line of what is to be fetched at each step of a product over k. */
static void fetch_some(struct fetch *f, struct ahead *ahead, enum precision precision, uint32_t k)
{
    if (f == NULL || f->count == 0)
        return;
    ahead->other = (const uint8_t *)*f->regions + f->done;
    ahead->other_step = LINE_BYTES;
    f->done += column_steps(precision, k) * LINE_BYTES;
    if (f->done >= f->bytes) {
        f->regions++;
        f->count--;
        f->done = 0;
    }
}

/* Some rows by one chunk, on the caller alone. */
static void run_chunk(const struct gemm_context *c, const struct gemm *g, uint32_t column, float *y, size_t ldy,
                      struct operand x, size_t rows, enum epilogue kind, struct fetch *fetch)
{
    float acc[GEMM_ROWS_MAX * GEMM_CHUNK] __attribute__((aligned(64)));
    const uint32_t width = chunk_width(g, column);
    const size_t bytes = column_bytes(g->precision, g->k) * width, tiles = (rows + GEMM_ROWS_MAX - 1) / GEMM_ROWS_MAX;
    const uint8_t *chunk = g->packed + column * column_bytes(g->precision, g->k);
    for (size_t row = 0; row < rows; row += GEMM_ROWS_MAX) {
        const size_t n = rows - row < GEMM_ROWS_MAX ? rows - row : GEMM_ROWS_MAX;
        /* Each tile asks for its part of the next chunk; after the last one usually lies the next product's. */
        struct ahead ahead = {.weights = chunk + bytes + row / GEMM_ROWS_MAX * (bytes / tiles),
                              .weights_step = ((size_t)4 * width + tiles - 1) / tiles,
                              .other = chunk};
        fetch_some(fetch, &ahead, g->precision, g->k);
        c->kernels->product[g->precision](acc, GEMM_CHUNK, x.rows + row * x.stride, x.stride, n, chunk, g->k, width,
                                          &ahead);
        c->kernels->epilogue(y + row * ldy + column, ldy, acc, GEMM_CHUNK, g->bias + column, n, width, kind);
    }
}

/* Blocks of rows outermost: the weights are read once for each block, from further away than its rows. */
static void run_many(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, struct operand x,
                     size_t rows, enum epilogue kind)
{
    const size_t fit = BLOCK_BYTES / x.stride / GEMM_ROWS_MAX * GEMM_ROWS_MAX;
    const size_t block = fit > GEMM_ROWS_MAX ? fit : GEMM_ROWS_MAX;
    const size_t blocks = (rows + block - 1) / block, chunks = (g->n + GEMM_CHUNK - 1) / GEMM_CHUNK;
#pragma omp for schedule(static)
    for (size_t task = 0; task < blocks * chunks; task++) {
        const size_t first = task / chunks * block;
        const struct operand part = {x.rows + first * x.stride, x.stride};
        run_chunk(c, g, (uint32_t)(task % chunks) * GEMM_CHUNK, y + first * ldy, ldy, part,
                  rows - first < block ? rows - first : block, kind, NULL);
    }
}

void gemm_run(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, const float *x, size_t ldx,
              size_t rows, enum epilogue kind)
{
    if (rows <= GEMM_ROWS_MAX)
        run_few(c, g, y, ldy, convert_own(c, g, x, ldx, rows), rows, kind);
    else
        run_many(c, g, y, ldy, convert_shared(c, g, x, ldx, rows), rows, kind);
}

void gemm_run_alone(const struct gemm_context *c, const struct gemm *g, float *y, size_t ldy, const float *x,
                    size_t ldx, size_t rows, enum epilogue kind, struct fetch *fetch)
{
    assert(rows <= GEMM_BLOCK);
    const struct operand own = convert_own(c, g, x, ldx, rows);
    for (uint32_t column = 0; column < g->n; column += GEMM_CHUNK)
        run_chunk(c, g, column, y, ldy, own, rows, kind, fetch);
}
