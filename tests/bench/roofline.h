/* roofline.h - what this machine can do at most, as far as a model's speed goes: multiply and add, and read memory (the
 * roofline model, Williams et al. 2009). Each measurement is a burst of a few milliseconds, so that the caller can take
 * turns between them, and take medians. One thread, the one that calls; all memory is taken by roofline_open. */
#ifndef TESTS_BENCH_ROOFLINE_H
#define TESTS_BENCH_ROOFLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/status.h"
#include "engine/kernels/kernels.h"

#define ROOFLINE_BYTES_MAX 512000000 /* beyond every cache */
#define ROOFLINE_SIDE 512            /* 3 MB of matrices, 0.27 GFLOP: beyond it OpenBLAS gains nothing */

/* Multiply-adds on registers alone; aftd's product of matrices with ROOFLINE_SIDE rows and columns, with weights packed
 * in advance, as an engine has them, and rows still to be converted; OpenBLAS's sgemm of that size; reading. */
enum roofline_kind { ROOFLINE_REGISTERS, ROOFLINE_PRODUCT, ROOFLINE_OPENBLAS, ROOFLINE_READING };

struct roofline_work {
    enum roofline_kind kind;
    enum precision precision; /* of the first two */
    uint64_t bytes;           /* that are read, again and again: 1 .. bytes_max, shared equally among the threads */
    uint64_t times;           /* of a burst; 0: not chosen yet */
};

struct roofline;

/* isa and threads as in engine_options; bytes_max <= ROOFLINE_BYTES_MAX. *ret is set only on OK; free with
 * roofline_close. Errors: ERR_NOMEM, ERR_ARGUMENT (isa). */
enum status roofline_open(struct roofline **ret, const char *isa, uint32_t threads, uint64_t bytes_max,
                          struct error *err);
void roofline_close(struct roofline *r); /* NULL is a no-op */
uint32_t roofline_threads(const struct roofline *r);

/* False for products of ours that are no faster than those of wider precisions, or in fp32 than OpenBLAS's. */
bool roofline_has(const struct roofline *r, const struct roofline_work *w);
/* FLOP/s, 2 per multiply-add, or bytes/s of `threads` threads together (1 .. roofline_threads). */
double roofline_measure(struct roofline *r, struct roofline_work *w, uint32_t threads);

/* y [ROOFLINE_SIDE, ROOFLINE_SIDE] = x times the transpose of the weights, by that precision, as it is measured. */
void roofline_multiply(const struct roofline *r, enum precision precision, float *y, const float *x);
const float *roofline_weights(const struct roofline *r);

#endif
