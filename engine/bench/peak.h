/* peak.h - how fast one core can be at most: loops that multiply and add in registers alone, and one that does nothing
 * but read memory. A figure of the engine is put beside what these reach in the same run (engine/bench/roofline.h).
 * Each works on its own arguments alone and allocates nothing; several threads may run them. */
#ifndef ENGINE_BENCH_PEAK_H
#define ENGINE_BENCH_PEAK_H

#include <stddef.h>
#include <stdint.h>

/* `turns` times as many multiply-adds as the registers hold chains of, each chain waiting for itself alone; *out gets
 * a number that depends on all of them, so that the compiler can leave none out. flop: of one turn, 2 per
 * multiply-add. */
struct peak_loop {
    void (*run)(float *out, uint64_t turns);
    double flop;
};

/* Bytes that the reading loop takes at a time: the memory's size is a multiple of it. */
#define PEAK_READ_BYTES 512

/* The loops of one instruction set. */
struct peak {
    const char *isa; /* "baseline", "avx2", "avx512": what plain C is compiled for */
    struct peak_loop fp32;
    /* Read `bytes` of memory once, from the first to the last; the result depends on all of them. */
    int32_t (*read)(const void *memory, size_t bytes);
};

/* The loops that go with the kernels of that name; for NULL, the best that run here. NULL if there are none. */
const struct peak *peak_select(const char *isa);
/* bf16 pairs (vdpbf16ps, bfdot) and four bytes (vpdpbusd, sdot), each added up in 32 bits. NULL where the processor
 * lacks the instruction, or the instruction set asked for is a lower one. */
const struct peak_loop *peak_bf16(const char *isa);
const struct peak_loop *peak_int8(const char *isa);

/* c [side, side] = a b with OpenBLAS, which ignores the instruction set asked for and makes its own choice. On the
 * caller alone, once gemm_setup has run. */
void peak_openblas(float *c, const float *a, const float *b, size_t side);

#endif
