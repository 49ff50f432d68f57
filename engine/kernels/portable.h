/* portable.h - what the files of the element-wise kernels share: portable_*.c, plain C on registers of WIDTH lanes,
 * each compiled once for each instruction set. KERNELS_ISA names the set and ends the names of its functions, which
 * portable_table.c joins in one table; kernels.h says what each function computes. */
#ifndef ENGINE_KERNELS_PORTABLE_H
#define ENGINE_KERNELS_PORTABLE_H

#include "engine/kernels/kernels.h"
#include "engine/kernels/lanes.h"

/* norm -> norm_avx2 */
#define KERNEL_JOIN(name, isa) name##_##isa
#define KERNEL_OF(name, isa) KERNEL_JOIN(name, isa)
#define KERNEL(name) KERNEL_OF(name, KERNELS_ISA)
#define KERNEL_QUOTE(isa) #isa
#define KERNEL_TEXT(isa) KERNEL_QUOTE(isa)

/* Every function of struct kernels, with the type that it has there. */
#define KERNEL_LIST(X)     \
    X(norm)                \
    X(epilogue)            \
    X(local_factored)      \
    X(local_factored_rows) \
    X(local_exact)         \
    X(attend)              \
    X(aft_exact)           \
    X(softmax)             \
    X(conv_keys)           \
    X(conv_values)         \
    X(conv_sums)           \
    X(conv_finish)         \
    X(conv_exact)

/* Those of arrays by precision. */
extern product_kernel KERNEL(product_f32), KERNEL(product_bf16), KERNEL(product_int8);
extern to_row_kernel KERNEL(to_row_bf16), KERNEL(to_row_int8);
/* For what can be done better than by plain C: avx2_*.c, avx512_*.c and neon*.c, whose names they end with. */
extern product_kernel product_int8_avx2_int8, product_int8_avx512_vnni, product_bf16_avx512_bf16;
extern product_kernel product_f32_neon, product_int8_neon_dotprod, product_bf16_neon_bf16;
extern to_row_kernel to_row_int8_neon_dotprod, to_row_bf16_avx512_bf16;

#define KERNEL_DECLARE(name) extern __typeof__(*((struct kernels *)0)->name) KERNEL(name);
KERNEL_LIST(KERNEL_DECLARE)

#define KERNEL_ENTRY(name) .name = KERNEL(name),
/* A table of an instruction set's functions, with its products in f32, bf16 and int8 and whether the latter pay. */
#define KERNEL_TABLE(name, f32, bf16, bf16_pays, int8, int8_pays) \
    KERNEL_TABLE_ROWS(name, f32, bf16, bf16_pays, int8, int8_pays, KERNEL(to_row_bf16), KERNEL(to_row_int8))
/* The same where rows become bf16 or int8 in a way of the set's own. */
#define KERNEL_TABLE_ROWS(name, f32, bf16, bf16_pays, int8, int8_pays, row_bf16, row_int8) \
    {                                                                                      \
        .isa = (name), .pays = {true, bf16_pays, int8_pays}, .product = {f32, bf16, int8}, \
        .to_row = {NULL, row_bf16, row_int8}, KERNEL_LIST(KERNEL_ENTRY)                    \
    }

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

#endif
