/* portable_peak.c - fp32 multiply-adds and reading memory, by each instruction set; see peak.h. A processor that starts
 * two fused multiply-adds a cycle and takes four cycles for each needs eight chains; where multiplying and adding are
 * two instructions, up to sixteen. All chains and the two constants stay in registers. */
#include "engine/bench/peak.h"
#include "engine/kernels/portable.h"

#define CHAINS (REGISTERS == 32 ? 16 : 14)
#define READERS (PEAK_READ_BYTES / sizeof(ilanes) < 8 ? PEAK_READ_BYTES / sizeof(ilanes) : 8)

static void multiply_add(float *out, uint64_t turns)
{
    /* Each chain converges to add / (1 - by): neither infinite nor denormal, however long. */
    const lanes by = lanes_set(-0.99993f), add = lanes_set(1.00017f);
    lanes x[CHAINS];
    for (int c = 0; c < CHAINS; c++)
        x[c] = lanes_set((float)c);
    for (uint64_t i = 0; i < turns; i++)
        for (int c = 0; c < CHAINS; c++)
            x[c] = lanes_fma(x[c], by, add);
    for (int c = 1; c < CHAINS; c++)
        x[0] += x[c];
    float all[WIDTH];
    lanes_store(all, x[0]);
    for (int l = 1; l < WIDTH; l++)
        all[0] += all[l];
    *out = all[0];
}

/* ThreadSanitizer would check every load, which takes minutes. */
__attribute__((no_sanitize("thread"))) static int32_t read_all(const void *memory, size_t bytes)
{
    ilanes x[READERS] = {{0}};
    for (const char *at = memory, *end = at + bytes; at < end; at += sizeof x)
        for (size_t r = 0; r < READERS; r++) {
            ilanes v;
            memcpy(&v, at + r * sizeof v, sizeof v);
            x[r] ^= v;
        }
    for (size_t r = 1; r < READERS; r++)
        x[0] ^= x[r];
    int32_t all[WIDTH];
    memcpy(all, &x[0], sizeof all);
    for (int l = 1; l < WIDTH; l++)
        all[0] ^= all[l];
    return all[0];
}
_Static_assert(PEAK_READ_BYTES % (READERS * sizeof(ilanes)) == 0, "the reading loop has no tail");

extern const struct peak KERNEL(peak);
const struct peak KERNEL(peak) = {
    .isa = KERNEL_TEXT(KERNELS_ISA),
    .fp32 = {multiply_add, 2.0 * CHAINS *WIDTH},
    .read = read_all,
};
