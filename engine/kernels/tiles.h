/* tiles.h - how a product is cut into tiles whose sums stay in registers. For the files that define a `sum`:
 *
 *     static inline void sum(float *acc, size_t ld, const uint8_t *x, size_t stride, const struct panel *p, size_t k,
 *                            size_t rows, size_t vecs)
 *
 * which writes acc [rows, vecs * WIDTH], the sums over k of `rows` rows (kernels.h's product) by `vecs` registers of
 * columns, both constants once inlined. Each sum runs over k in order and in one lane: no cut changes its bits. */
#ifndef ENGINE_KERNELS_TILES_H
#define ENGINE_KERNELS_TILES_H

#include <stdbool.h>

#include "engine/kernels/gemm.h"
#include "engine/kernels/lanes.h"

/* How many of the 32 or 16 registers hold sums: the others hold weights and a row's value. A tile of many rows is at
 * least TILE_VECS_LEAST registers wide: of four lanes, two would load a row's value for every other product; and of
 * eight, two would read every other line of a chunk, which the processor does not see coming. */
#define TILE_SUMS (REGISTERS == 32 ? 24 : 12)
#define TILE_VECS_MAX 8
#ifndef TILE_VECS_LEAST
#define TILE_VECS_LEAST (WIDTH == 16 ? 2 : 4)
#endif

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
 * stride. With one for each row there are none left. */
struct steps {
    const uint8_t *of[(GEMM_ROWS_MAX + 2) / 3];
    size_t stride;
};

LANES_INLINE struct steps steps_at(const uint8_t *x, size_t stride, size_t rows)
{
    struct steps s = {.stride = stride};
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r += 3)
        s.of[r / 3] = x + r * stride;
    return s;
}

LANES_INLINE const uint8_t *steps_row(const struct steps *s, size_t r)
{
    return s->of[r / 3] + r % 3 * s->stride;
}

/* The compiler must not see through this, or it would count in its own way. */
LANES_INLINE void steps_next(struct steps *s, size_t rows, size_t bytes)
{
#pragma GCC unroll 4
    for (size_t r = 0; r < rows; r += 3) {
        s->of[r / 3] += bytes;
        __asm__("" : "+r"(s->of[r / 3]));
    }
}

/* sum (x + 128) w - 128 sum w, times both scales: gemm.c keeps the latter sum after the weights. */
LANES_INLINE void finish_int8(float *acc, ilanes sum, const uint8_t *tail, size_t step, const uint8_t *row)
{
    lanes scale;
    ilanes offset;
    float row_scale;
    memcpy(&scale, tail, sizeof scale);
    memcpy(&offset, tail + step, sizeof offset);
    memcpy(&row_scale, row, sizeof row_scale);
    lanes_store(acc, __builtin_convertvector(sum - offset, lanes) * (scale * row_scale));
}

/* The widest tile for these rows and registers of columns, a power of two; then the most rows for it. */
static inline size_t tile_vecs(size_t rows, size_t vecs)
{
    size_t n = TILE_VECS_MAX;
    while (n > 1 && (n > vecs || (n > TILE_VECS_LEAST && n * rows > TILE_SUMS)))
        n /= 2;
    return n;
}

static inline size_t tile_rows(size_t rows, size_t vecs)
{
    const size_t most = TILE_SUMS / vecs, n = rows < most ? rows : most;
    return n >= 12 ? 12 : n >= 8 ? 8 : n >= 6 ? 6 : n >= 4 ? 4 : n;
}

#define TILE_CASE(sum, n, v)                                                    \
    case (v)*16 + (n):                                                          \
        sum(acc + r * ld + c * WIDTH, ld, x + r * stride, stride, &p, k, n, v); \
        break;

/* A function `name` as kernels.h's product; column_bytes: of a column in a chunk. */
#define TILE_PRODUCT(name, sum, column_bytes)                                                                   \
    void name(float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows, const uint8_t *w, size_t k,  \
              size_t width, const struct ahead *ahead)                                                          \
    {                                                                                                           \
        const size_t chunk = width < GEMM_CHUNK ? width : GEMM_CHUNK, per_chunk = chunk / WIDTH;                \
        const size_t all = width / WIDTH;                                                                       \
        for (size_t c = 0, vecs; c < all; c += vecs) {                                                          \
            vecs = tile_vecs(rows, all - c);                                                                    \
            const uint8_t *first = w + c / per_chunk * (column_bytes)*chunk;                                    \
            const struct ahead then =                                                                           \
                tile_ahead(ahead, tile_rows(rows, vecs) < rows, first + (column_bytes)*chunk, 4 * chunk);       \
            for (size_t r = 0, n; r < rows; r += n) {                                                           \
                n = tile_rows(rows - r, vecs);                                                                  \
                const struct panel p = {first + c % per_chunk * sizeof(lanes), 4 * chunk, (column_bytes)*chunk, \
                                        per_chunk, then};                                                       \
                switch (vecs * 16 + n) {                                                                        \
                    TILE_CASE(sum, 1, 8)                                                                        \
                    TILE_CASE(sum, 1, 4)                                                                        \
                    TILE_CASE(sum, 2, 4)                                                                        \
                    TILE_CASE(sum, 3, 4)                                                                        \
                    TILE_CASE(sum, 1, 2)                                                                        \
                    TILE_CASE(sum, 2, 2)                                                                        \
                    TILE_CASE(sum, 3, 2)                                                                        \
                    TILE_CASE(sum, 4, 2)                                                                        \
                    TILE_CASE(sum, 6, 2)                                                                        \
                    TILE_CASE(sum, 1, 1)                                                                        \
                    TILE_CASE(sum, 2, 1)                                                                        \
                    TILE_CASE(sum, 3, 1)                                                                        \
                    TILE_CASE(sum, 4, 1)                                                                        \
                    TILE_CASE(sum, 6, 1)                                                                        \
                    TILE_CASE(sum, 8, 1)                                                                        \
                    TILE_CASE(sum, 12, 1)                                                                       \
                    TILE_LARGE_CASES(sum)                                                                       \
                }                                                                                               \
            }                                                                                                   \
        }                                                                                                       \
    }

/* What only 32 registers have room for. */
#if REGISTERS == 32
#define TILE_LARGE_CASES(sum) \
    TILE_CASE(sum, 2, 8)      \
    TILE_CASE(sum, 3, 8)      \
    TILE_CASE(sum, 4, 4)      \
    TILE_CASE(sum, 6, 4)      \
    TILE_CASE(sum, 8, 2)      \
    TILE_CASE(sum, 12, 2)
#else
#define TILE_LARGE_CASES(sum)
#endif

#endif
