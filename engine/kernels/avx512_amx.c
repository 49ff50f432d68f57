/* avx512_amx.c - the bf16 and int8 products where the processor multiplies whole tiles (Intel's AMX: tdpbf16ps,
 * tdpbusd): 12 rows by 16 columns, 16 steps of k at once. Weights lie as these instructions want them, in pairs and
 * quads. The plain forms are simd_gemm.c's. Sums of bytes are whole numbers and agree with it to the bit; those of bf16
 * are of the even and of the odd numbers of each 32, added up before they join what came before: for any number of
 * rows, so that a row's bits are its own here too. */
#include <immintrin.h>

#include "engine/kernels/simd.h"
#include "engine/kernels/tiles.h"

enum {
    TILE_STEPS = 16, /* of k */
    TILE_COLUMNS = 16,
    FEW_ROWS = 2 /* which vpdpbusd takes through int8 weights faster: a tile costs what 16 rows cost */
};

/* Tiles 0 and 1 have the sums of a chunk's halves, 2 the rows, 3 and 4 the weights; 5, 6 and 7 the same of the last
 * steps where they are fewer than 16. Shapes stay with the thread, as setting them costs as much as a short product. */
static void set_shapes(size_t last_steps)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes __attribute__((aligned(64))) = {.palette = 1};
    static _Thread_local size_t set = TILE_STEPS;
    if (set == last_steps)
        return;
    for (int tile = 0; tile < 8; tile++) {
        const size_t steps = tile < 5 ? TILE_STEPS : last_steps;
        const bool weights = tile == 3 || tile == 4 || tile >= 6;
        if (steps == 0)
            continue;
        shapes.rows[tile] = (uint8_t)(weights ? steps : GEMM_ROWS_MAX);
        shapes.row_bytes[tile] = (uint16_t)(weights || tile < 2 ? sizeof(lanes) : 4 * steps);
    }
    __asm__ volatile("" ::"m"(shapes)); /* GCC 12 takes it that only the first bytes are read */
    _tile_loadconfig(&shapes);
    set = last_steps;
}

#define MULTIPLY(precision, sum, x, w)     \
    do {                                   \
        if ((precision) == PRECISION_INT8) \
            _tile_dpbusd(sum, x, w);       \
        else                               \
            _tile_dpbf16ps(sum, x, w);     \
    } while (0)

/* Both sums of one tile of rows at `from` with two of weights, or the first alone. */
#define ADD(precision, rows, left, right, from, stride, w, step) \
    do {                                                         \
        _tile_loadd(rows, from, stride);                         \
        _tile_loadd(left, w, step);                              \
        MULTIPLY(precision, 0, rows, left);                      \
        if ((step) > sizeof(lanes)) {                            \
            _tile_loadd(right, (w) + sizeof(lanes), step);       \
            MULTIPLY(precision, 1, rows, right);                 \
        }                                                        \
    } while (0)

/* The weights that the plain product would fetch at the next 16 steps of k. Tiles leave no time in which the memory is
 * idle: fetching `other` as well makes a step of 64 streams 1.1 to 1.7 times as long. */
LANES_INLINE void fetch_ahead(const struct ahead *ahead, size_t i)
{
    for (size_t at = 0; at < TILE_STEPS * ahead->weights_step; at += sizeof(lanes))
        __builtin_prefetch(ahead->weights + i * ahead->weights_step + at, 0, 2);
}

/* As kernels.h's product. Of rows there are always 12: those beyond `rows` are of no use to anybody. */
LANES_INLINE void product(enum precision precision, float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows,
                          const uint8_t *w, size_t k, size_t width, const struct ahead *ahead)
{
    const size_t numbers = precision == PRECISION_INT8 ? 4 : 2, steps = (k + numbers - 1) / numbers;
    const size_t chunk = width < GEMM_CHUNK ? width : GEMM_CHUNK, step = 4 * chunk;
    const size_t whole = steps / TILE_STEPS * TILE_STEPS;
    const uint8_t *from = precision == PRECISION_INT8 ? x + PRODUCT_ROW_HEAD : x;
    set_shapes(steps - whole);
    for (size_t column = 0; column < width; column += chunk) {
        float *to = acc + column;
        _tile_zero(0);
        _tile_zero(1);
        for (size_t i = 0; i < whole; i += TILE_STEPS) {
            fetch_ahead(ahead, i);
            ADD(precision, 2, 3, 4, from + 4 * i, stride, w + i * step, step);
        }
        if (whole < steps)
            ADD(precision, 5, 6, 7, from + 4 * whole, stride, w + whole * step, step);
        _tile_stored(0, to, ld * sizeof *acc);
        if (chunk > TILE_COLUMNS)
            _tile_stored(1, to + TILE_COLUMNS, ld * sizeof *acc);
        w += steps * step;
        if (precision == PRECISION_INT8) {
            for (size_t r = 0; r < rows; r++)
                for (size_t c = 0; c < chunk; c += WIDTH)
                    finish_int8(to + r * ld + c, (ilanes)lanes_load(to + r * ld + c), w + 4 * c, step, x + r * stride,
                                false);
            w += 2 * step;
        }
    }
}

void product_bf16_avx512_amx(float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows, const uint8_t *w,
                             size_t k, size_t width, const struct ahead *ahead)
{
    product(PRECISION_BF16, acc, ld, x, stride, rows, w, k, width, ahead);
}

void product_int8_avx512_amx(float *acc, size_t ld, const uint8_t *x, size_t stride, size_t rows, const uint8_t *w,
                             size_t k, size_t width, const struct ahead *ahead)
{
    if (rows <= FEW_ROWS)
        product_int8_avx512_vnni(acc, ld, x, stride, rows, w, k, width, ahead);
    else
        product(PRECISION_INT8, acc, ld, x, stride, rows, w, k, width, ahead);
}

extern const struct kernels kernels_avx512_amx;
const struct kernels kernels_avx512_amx =
    KERNEL_TABLE_ROWS("amx", KERNEL(product_f32), product_bf16_avx512_amx, true, product_int8_avx512_amx, true,
                      to_row_bf16_avx512_bf16, KERNEL(to_row_int8));
