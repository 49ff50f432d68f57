/* roofline.h - what this machine can do at most, as far as a model's speed goes: multiply and add, and read memory (the
 * roofline model, Williams et al. 2009). Each measurement is a burst of a few milliseconds, so that the caller
 * can take turns between them, and with figures of an engine, and take medians.
 * One thread, the one that calls the engine; all memory is taken by roofline_open. */
#ifndef ENGINE_BENCH_ROOFLINE_H
#define ENGINE_BENCH_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

/* Every matrix rate: what multiply-adds reach on registers alone, and what products of 512 x 512 x 512 reach:
 * OpenBLAS's, and ours with weights packed in advance, as an engine has them, and rows still to be converted.
 *        key, name, the rate that bounds it, what it is */
#define ROOFLINE_RATES(X)                                                                \
    X(FP32, "fp32", FP32, "fp32 multiply-adds in registers")                             \
    X(BF16, "bf16", BF16, "bf16 multiply-adds in registers, by pairs")                   \
    X(INT8, "int8", INT8, "int8 multiply-adds in registers, by quads")                   \
    X(OPENBLAS, "openblas", FP32, "OpenBLAS's sgemm, 512 x 512 x 512")                   \
    X(PRODUCT_FP32, "product_fp32", FP32, "aftd's fp32 product of that size")            \
    X(PRODUCT_BF16, "product_bf16", BF16, "aftd's bf16 product, converted rows and all") \
    X(PRODUCT_INT8, "product_int8", INT8, "aftd's int8 product, converted rows and all")

enum roofline_rate {
#define X(key, name, bound, text) ROOFLINE_##key,
    ROOFLINE_RATES(X)
#undef X
        ROOFLINE_RATE_COUNT
};

const char *roofline_rate_name(enum roofline_rate rate);
const char *roofline_rate_text(enum roofline_rate rate);
/* The rate on registers that it cannot exceed; those on registers are their own. */
enum roofline_rate roofline_rate_bound(enum roofline_rate rate);

struct roofline_info {
    const char *isa;  /* "avx512bf16": whose loops run */
    bool best;        /* the best of this machine, not a lower one that was asked for */
    uint32_t threads; /* at most */
};

struct roofline;

/* isa and threads as in engine_options; bytes_max: the largest working set that will be read, taken from the start,
 * <= ROOFLINE_BYTES_MAX. *ret is set only on OK; free with roofline_close. Errors: ERR_NOMEM, ERR_ARGUMENT (an option
 * out of range, named). */
enum status roofline_open(struct roofline **ret, const char *isa, uint32_t threads, uint64_t bytes_max,
                          struct error *err);
void roofline_close(struct roofline *r); /* NULL is a no-op */
const struct roofline_info *roofline_info(const struct roofline *r);

/* Can this processor do that with the instruction set chosen? For a product of ours: do they have instructions that
 * make it faster than those of wider precisions, or for fp32 than OpenBLAS, which runs where they have none? */
bool roofline_has(const struct roofline *r, enum roofline_rate rate);
/* FLOP/s of `threads` threads together (1 .. info.threads), 2 per multiply-add. */
double roofline_compute(struct roofline *r, enum roofline_rate rate, uint32_t threads);
/* Bytes/s that `threads` threads together read, again and again, from a working set of `bytes` <= bytes_max, shared
 * equally among them and rounded to what the loop takes at a time. */
double roofline_read(struct roofline *r, uint64_t bytes, uint32_t threads);

#endif
