/* peak.h - how fast one core can be at most: loops that multiply and add in registers alone, and one that does nothing
 * but read memory. They work on their own arguments alone and allocate nothing; several threads may run them. */
#ifndef TESTS_BENCH_PEAK_H
#define TESTS_BENCH_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/kernels.h"

/* `turns` times as many multiply-adds as the registers hold chains of, each chain waiting for itself alone. They begin
 * with what is in memory and end there, so that the compiler can neither know nor leave out any. flop: of one turn, 2
 * per multiply-add. */
struct peak_loop {
    void (*run)(void *chains, uint64_t turns);
    double flop;
};
#define PEAK_CHAINS_BYTES 4096 /* what holds all chains, aligned to 64; zero at first */

/* The fastest loops of one instruction set. Where it has no instruction for a precision, its products are those of
 * fp32, and so is its loop. */
struct peak {
    const char *isa; /* as kernels_select has it */
    struct peak_loop loops[PRECISION_COUNT];
};

/* NULL if the processor lacks that instruction set; for NULL, the best that runs here. */
const struct peak *peak_select(const char *isa);

/* Read `bytes` of memory once, a multiple of PEAK_READ_BYTES; the result depends on all of them. */
#define PEAK_READ_BYTES 128
uint32_t peak_read(const void *memory, size_t bytes);

#endif
