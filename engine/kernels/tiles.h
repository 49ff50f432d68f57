/* tiles.h - how a product is cut into tiles whose sums stay in registers, and how a tile runs over k. A file that
 * defines a product gives what the instruction set does with one step of one row:
 *
 *     static inline void add(lanes *sum, ilanes x, const ilanes *w, size_t vecs)
 *
 * adds to sum [vecs] that step of a row, 4 bytes that are the same in every lane, times the weights [vecs] of as many
 * registers of columns; all three are floats, pairs of bf16 or quads of bytes, as the product has them, and sums of
 * bytes are whole numbers. Each sum runs over k in order and in one lane: no cut changes its bits. */
#ifndef ENGINE_KERNELS_TILES_H
#define ENGINE_KERNELS_TILES_H

#include <stdbool.h>

#include "engine/kernels/gemm.h"
#include "engine/kernels/lanes.h"

/* How many of the 32 or 16 registers hold sums: the others hold weights and a row's value. */
#define TILE_SUMS (REGISTERS == 32 ? 24 : 12)
#define TILE_VECS_MAX 8

/* Where a tile's weights are, as gemm.c packs them: all precisions have 4 bytes of a column from one step of k (one, a
 * pair, a quad of numbers) to the next. */
struct panel {
    const uint8_t *first;
    size_t step;      /* bytes of a step of a chunk: 4 * its columns */
    size_t apart;     /* bytes between chunks */
    size_t per_chunk; /* registers of a chunk */
    struct ahead ahead;
};

/* At step i: prefetch into the second-level cache. */
LANES_INLINE void panel_ahead(const struct panel *p, size_t i)
{
    __builtin_prefetch(p->ahead.weights + i * p->ahead.weights_step, 0, 2);
    __builtin_prefetch(p->ahead.other + i * p->ahead.other_step, 0, 2);
}

/* What is needed behind a chunk whose steps of k have `step` bytes: what the caller says, or else, where several tiles
 * read it one after the other, `next`, the chunk that follows. The processor, which sees them go back, does not begin
 * to read that by itself. */
static inline struct ahead tile_ahead(const struct ahead *said, bool returns, const uint8_t *next, size_t step)
{
    if (!returns || said->weights_step + said->other_step > 0)
        return *said;
    return (struct ahead){next, next + step / 2, step, step};
}

/* Register v's weights of step 0. */
LANES_INLINE const uint8_t *panel_at(const struct panel *p, size_t v)
{
    return p->first + v / p->per_chunk * p->apart + v % p->per_chunk * sizeof(lanes);
}

/* A step of a row, the same in every lane. */
LANES_INLINE ilanes load_same(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return four - (ilanes){0};
}

/* The same step of each row: three rows share a register, because an x86 address can add up to twice another one, the
 * stride. With one for each row there are none left; arm64, whose addresses cannot, has more. */
#if defined __aarch64__
enum { STEPS_SHARE = 1 };
#else
enum { STEPS_SHARE = 3 };
#endif
struct steps {
    const uint8_t *of[(GEMM_ROWS_MAX + STEPS_SHARE - 1) / STEPS_SHARE];
    size_t stride;
};

LANES_INLINE struct steps steps_at(const uint8_t *x, size_t stride, size_t rows)
{
    struct steps s = {.stride = stride};
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r += STEPS_SHARE)
        s.of[r / STEPS_SHARE] = x + r * stride;
    return s;
}

LANES_INLINE const uint8_t *steps_row(const struct steps *s, size_t r)
{
    return s->of[r / STEPS_SHARE] + r % STEPS_SHARE * s->stride;
}

/* The compiler must not see through this, or it would count in its own way. */
LANES_INLINE void steps_next(struct steps *s, size_t rows, size_t bytes)
{
#pragma GCC unroll 12
    for (size_t r = 0; r < rows; r += STEPS_SHARE) {
        s->of[r / STEPS_SHARE] += bytes;
        __asm__("" : "+r"(s->of[r / STEPS_SHARE]));
    }
}

/* sum (x + 128) w - 128 sum w, times both scales: gemm.c keeps the latter sum after the weights. Halved, 64 for 128. */
LANES_INLINE void finish_int8(float *acc, ilanes sum, const uint8_t *tail, size_t step, const uint8_t *row, bool halved)
{
    lanes scale;
    ilanes offset;
    float row_scale;
    memcpy(&scale, tail, sizeof scale);
    memcpy(&offset, tail + step, sizeof offset);
    memcpy(&row_scale, row, sizeof row_scale);
    lanes_store(acc, __builtin_convertvector(sum - (halved ? offset >> 1 : offset), lanes) * (scale * row_scale));
}

/* The widest tile for these rows and registers of columns, a power of two; then the most rows for it. A tile of many
 * rows is at least four registers wide: of four lanes, two would load a row's value for every other product; and of
 * eight, two would read every other line of a chunk, which the processor does not see coming. But 12 rows of floats
 * take longer to multiply than a chunk takes to come, and six by two load half as much for a product as three by
 * four. */
static inline size_t tile_vecs(size_t rows, size_t vecs, size_t numbers)
{
    const bool two = WIDTH == 16 || (WIDTH == 8 && rows == GEMM_ROWS_MAX && numbers == 1);
    size_t n = TILE_VECS_MAX;
    while (n > 1 && (n > vecs || (n > (two ? 2 : 4) && n * rows > TILE_SUMS)))
        n /= 2;
    return n;
}

static inline size_t tile_rows(size_t rows, size_t vecs)
{
    const size_t most = TILE_SUMS / vecs, n = rows < most ? rows : most;
    return n >= 12 ? 12 : n >= 8 ? 8 : n >= 6 ? 6 : n >= 4 ? 4 : n;
}

/* How sums begin and end. */
enum tile_form {
    TILE_FLOAT,      /* at 0; they are what is asked for */
    TILE_INT8,       /* at 0; finish_int8 makes that of them */
    TILE_INT7,       /* the same of rows of 7 bits, which are value / scale + 64 */
    TILE_INT8_SIGNED /* at what finish_int8 subtracts for the 128, as rows are signed */
};

typedef void tile_add(lanes *sum, ilanes x, const ilanes *w, size_t vecs);

/* acc [rows, vecs * WIDTH]: the sums over all steps of `rows` rows by `vecs` registers of columns. `add`, the form,
 * rows and vecs are constants once inlined. */
LANES_INLINE void tile_sum(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t count,
                           tile_add *add, enum tile_form form, size_t rows, size_t vecs)
{
    lanes sum[TILE_SUMS];
    const uint8_t *w[TILE_VECS_MAX];
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++)
        if (form == TILE_INT8_SIGNED)
            memcpy(&sum[i], panel_at(p, i % vecs) + (count + 1) * p->step, sizeof sum[i]);
        else
            sum[i] = (lanes){0};
#pragma GCC unroll 8
    for (size_t v = 0; v < vecs; v++)
        w[v] = panel_at(p, v);
    struct steps steps = steps_at(form == TILE_FLOAT ? x : x + PRODUCT_ROW_HEAD, stride, rows);
    for (size_t i = 0; i < count; i++) {
        panel_ahead(p, i);
        ilanes weight[TILE_VECS_MAX];
#pragma GCC unroll 8
        for (size_t v = 0; v < vecs; v++)
            memcpy(&weight[v], w[v] + i * p->step, sizeof weight[v]);
#pragma GCC unroll 12
        for (size_t r = 0; r < rows; r++)
            add(&sum[r * vecs], load_same(steps_row(&steps, r)), weight, vecs);
        steps_next(&steps, rows, 4);
    }
#pragma GCC unroll 24
    for (size_t i = 0; i < rows * vecs; i++) {
        float *to = acc + i / vecs * ld + i % vecs * WIDTH;
        if (form == TILE_FLOAT)
            lanes_store(to, sum[i]);
        else
            finish_int8(to, (ilanes)sum[i], panel_at(p, i % vecs) + count * p->step, p->step, x + i / vecs * stride,
                        form == TILE_INT7);
    }
}

#define TILE_CASE(add, form, n, v)                                                                  \
    case (v)*16 + (n):                                                                              \
        tile_sum(acc + r * ld + c * WIDTH, ld, x + r * stride, stride, &p, count, add, form, n, v); \
        break;

/* A function `name` as kernels.h's product, of which a step takes `numbers` (1, 2 or 4) of k. */
#define TILE_PRODUCT(name, add, form, numbers)                                                                         \
    void name(float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows, const uint8_t *w, size_t k,         \
              size_t width, const struct ahead *ahead)                                                                 \
    {                                                                                                                  \
        const size_t chunk = width < GEMM_CHUNK ? width : GEMM_CHUNK, per_chunk = chunk / WIDTH;                       \
        const size_t count = (k + (numbers)-1) / (numbers), all = width / WIDTH;                                       \
        const size_t chunk_bytes = (count + ((form) == TILE_FLOAT ? 0 : 2)) * 4 * chunk; /* with tails */              \
        for (size_t c = 0, vecs; c < all; c += vecs) {                                                                 \
            vecs = tile_vecs(rows, all - c, numbers);                                                                  \
            const uint8_t *first = w + c / per_chunk * chunk_bytes;                                                    \
            const struct ahead then = tile_ahead(ahead, tile_rows(rows, vecs) < rows, first + chunk_bytes, 4 * chunk); \
            for (size_t r = 0, n; r < rows; r += n) {                                                                  \
                n = tile_rows(rows - r, vecs);                                                                         \
                const struct panel p = {first + c % per_chunk * sizeof(lanes), 4 * chunk, chunk_bytes, per_chunk,      \
                                        then};                                                                         \
                switch (vecs * 16 + n) {                                                                               \
                    TILE_CASE(add, form, 1, 8)                                                                         \
                    TILE_CASE(add, form, 1, 4)                                                                         \
                    TILE_CASE(add, form, 2, 4)                                                                         \
                    TILE_CASE(add, form, 3, 4)                                                                         \
                    TILE_CASE(add, form, 1, 2)                                                                         \
                    TILE_CASE(add, form, 2, 2)                                                                         \
                    TILE_CASE(add, form, 3, 2)                                                                         \
                    TILE_CASE(add, form, 4, 2)                                                                         \
                    TILE_CASE(add, form, 6, 2)                                                                         \
                    TILE_CASE(add, form, 1, 1)                                                                         \
                    TILE_CASE(add, form, 2, 1)                                                                         \
                    TILE_CASE(add, form, 3, 1)                                                                         \
                    TILE_CASE(add, form, 4, 1)                                                                         \
                    TILE_CASE(add, form, 6, 1)                                                                         \
                    TILE_CASE(add, form, 8, 1)                                                                         \
                    TILE_CASE(add, form, 12, 1)                                                                        \
                    TILE_LARGE_CASES(add, form)                                                                        \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

/* What only 32 registers have room for. */
#if REGISTERS == 32
#define TILE_LARGE_CASES(add, form) \
    TILE_CASE(add, form, 2, 8)      \
    TILE_CASE(add, form, 3, 8)      \
    TILE_CASE(add, form, 4, 4)      \
    TILE_CASE(add, form, 6, 4)      \
    TILE_CASE(add, form, 8, 2)      \
    TILE_CASE(add, form, 12, 2)
#else
#define TILE_LARGE_CASES(add, form)
#endif

#endif
