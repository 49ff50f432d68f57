/* roofline.h - what this machine can do at the most, as far as a model's speed goes: multiply and add, and read memory
 * (the roofline model, Williams et al. 2009). Each measurement is a burst of a few milliseconds, so that the caller
 * can take turns between them, and with figures of an engine, and take medians.
 * One thread, the one that calls the engine; all memory is taken by roofline_open. */
#ifndef ENGINE_ROOFLINE_H
#define ENGINE_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/status.h"

/* Every matrix rate: what bounds a product of that precision, by registers alone, and what products reach.
 * A product of our own gets its line, and its case in roofline.c, beside OpenBLAS's; all that is printed follows.
 *        key, name, what it is */
#define ROOFLINE_RATES(X)                                         \
    X(FP32, "fp32", "fp32 multiply-adds in registers")            \
    X(BF16, "bf16", "bf16 multiply-adds in registers, vdpbf16ps") \
    X(INT8, "int8", "int8 multiply-adds in registers, vpdpbusd")  \
    X(OPENBLAS, "openblas", "OpenBLAS's sgemm, 512 x 512 x 512")

enum roofline_rate {
#define X(key, name, text) ROOFLINE_##key,
    ROOFLINE_RATES(X)
#undef X
        ROOFLINE_RATE_COUNT
};

const char *roofline_rate_name(enum roofline_rate rate);
const char *roofline_rate_text(enum roofline_rate rate);

struct roofline_info {
    const char *isa;  /* "avx512bf16": whose loops run */
    bool best;        /* the best of this machine, and none that was asked for below it */
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

/* Can this processor and the instruction set chosen do that at all? */
bool roofline_has(const struct roofline *r, enum roofline_rate rate);
/* FLOP/s of so many threads together (1 .. info.threads), 2 a multiply-add. */
double roofline_compute(struct roofline *r, enum roofline_rate rate, uint32_t threads);
/* Bytes/s that so many threads read together from a working set that is theirs in equal parts, again and again: of
 * `bytes` <= bytes_max, rounded to what the loop takes at a time. */
double roofline_read(struct roofline *r, uint64_t bytes, uint32_t threads);

#endif
