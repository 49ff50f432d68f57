/* simd.h - what is shared by the files that are compiled once for each instruction set: simd_*.c, plain C on
 * registers of WIDTH lanes, and the mixers with their inner loops. KERNELS_ISA names the set and ends the names of its
 * functions; simd_table.c joins those of kernels.h and the mixers in one table. */
#ifndef ENGINE_KERNELS_SIMD_H
#define ENGINE_KERNELS_SIMD_H

#include "engine/kernels/kernels.h"
#include "engine/kernels/lanes.h"

/* norm -> norm_avx2 */
#define KERNEL_JOIN(name, isa) name##_##isa
#define KERNEL_OF(name, isa) KERNEL_JOIN(name, isa)
#define KERNEL(name) KERNEL_OF(name, KERNELS_ISA)
#define KERNEL_QUOTE(isa) #isa
#define KERNEL_TEXT(isa) KERNEL_QUOTE(isa)

/* Every function of struct kernels, with the type that it has there. */
#define KERNEL_LIST(X) X(norm) X(epilogue) X(softmax)

/* Those of arrays by precision. */
extern product_kernel KERNEL(product_f32), KERNEL(product_bf16), KERNEL(product_int8);
extern to_row_kernel KERNEL(to_row_bf16), KERNEL(to_row_int8), KERNEL(to_row_int7);
/* For what can be done better than by plain C: avx2_*.c, avx512_*.c and neon*.c, whose names they end with. */
extern product_kernel product_int8_avx2_int8, product_int8_avx2_vnni, product_int8_avx512_vnni,
    product_bf16_avx512_bf16;
extern product_kernel product_bf16_avx512_amx, product_int8_avx512_amx;
extern product_kernel product_f32_neon, product_int8_neon_dotprod, product_bf16_neon_bf16;
extern to_row_kernel to_row_int8_neon_dotprod, to_row_bf16_avx512_bf16;

extern const struct mixer *const KERNEL(mixer_table)[];

#define KERNEL_DECLARE(name) extern __typeof__(*((struct kernels *)0)->name) KERNEL(name);
KERNEL_LIST(KERNEL_DECLARE)

#define KERNEL_ENTRY(name) .name = KERNEL(name),
/* A table of an instruction set's functions, with its products in f32, bf16 and int8 and whether the latter pay. */
#define KERNEL_TABLE(name, f32, bf16, bf16_pays, int8, int8_pays) \
    KERNEL_TABLE_ROWS(name, f32, bf16, bf16_pays, int8, int8_pays, KERNEL(to_row_bf16), KERNEL(to_row_int8))
/* The same where rows become bf16 or int8 in a way of the set's own. */
#define KERNEL_TABLE_ROWS(name, f32, bf16, bf16_pays, int8, int8_pays, row_bf16, row_int8)            \
    {                                                                                                 \
        .isa = (name), .pays = {true, bf16_pays, int8_pays}, .mixers = KERNEL(mixer_table),           \
        .product = {f32, bf16, int8}, .to_row = {NULL, row_bf16, row_int8}, KERNEL_LIST(KERNEL_ENTRY) \
    }

#endif
