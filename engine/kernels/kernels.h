/* kernels.h - the element-wise kernels as one table of functions; dispatch.c picks the table once for the machine.
 * Every vector of channels is padded to a multiple of LANES with zero weights, so kernels have no tails. Each function
 * works on its own rows alone, cannot fail and allocates nothing; several threads call it on disjoint rows. */
#ifndef ENGINE_KERNELS_KERNELS_H
#define ENGINE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16

static inline size_t lanes_padded(size_t n)
{
    return (n + LANES - 1) / LANES * LANES;
}

/* What weights and the rows that meet them are held as. */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_INT8, PRECISION_COUNT };

#define PRODUCT_ROW_HEAD 64 /* bytes of an int8 row before its values: its scale, and what keeps them aligned */

enum epilogue { EPILOGUE_BIAS, EPILOGUE_GELU, EPILOGUE_GELU_TANH, EPILOGUE_RELU, EPILOGUE_ADD };

/* Memory that is needed soon, weights and something else: at each of its steps of k (one, a pair, a quad of numbers) a
 * product prefetches a line of each, a step further, without waiting; by AMX, of weights alone. What is there does not
 * matter, nor whether there is anything. */
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
    const struct mixer *const
        *mixers; /* the token mixers (engine/pass/mixer.h) as compiled for it, by enum mixer_type */

    /* acc [rows, ld] = rows times packed weights, by precision: rows <= GEMM_ROWS_MAX at `stride` bytes (fp32: k
     * floats; else what to_row makes, and memory for GEMM_ROWS_MAX of them, as tiles are read whole); w: chunks of
     * GEMM_CHUNK columns side by side, `width` columns in all, a multiple of LANES; more than one chunk for up to 6
     * rows, more than two for up to 3. acc has room for GEMM_ROWS_MAX rows, all of which may be written. */
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

    /* x = exp(x - max x) over their sum, for x [n], n >= 1, with room for lanes_padded(n). */
    void (*softmax)(float *x, size_t n);
};

/* The best table that this processor runs; `isa` ("baseline"; "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16",
 * "amx" on x86-64; "neon", "neondotprod", "neonbf16" on arm64) asks for that one and gets NULL where the
 * processor lacks it or the name is unknown. NULL asks for the best. */
const struct kernels *kernels_select(const char *isa);

enum { KERNELS_TABLES_MAX = 7 }; /* of one build */
/* All tables of this build, the best first and a NULL last, whatever this processor runs. */
void kernels_list(const struct kernels *ret[KERNELS_TABLES_MAX + 1]);

#endif
