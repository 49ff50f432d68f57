/* roofline_product.h - aftd's own products of square matrices, to be measured beside what the machine can do at most
 * (engine/bench/roofline.h). The thread that measures owns them; its team runs them. */
#ifndef ENGINE_BENCH_ROOFLINE_PRODUCT_H
#define ENGINE_BENCH_ROOFLINE_PRODUCT_H

#include "engine/kernels/gemm.h"

struct roofline_product {
    struct workspace memory;
    struct gemm_context context;
    struct gemm weights[PRECISION_COUNT];
};

/* Pack the weights [side, side], side a multiple of LANES, for each precision that roofline_product_has. Errors:
 * ERR_NOMEM, and then there is nothing to clear; else roofline_product_clear. */
enum status roofline_product_init(struct roofline_product *p, const struct kernels *kernels, uint32_t threads,
                                  const float *weights, uint32_t side, struct error *err);
void roofline_product_clear(struct roofline_product *p); /* zeroed is fine */

/* Is there a product of our own, with instructions that make it worth having? */
bool roofline_product_has(const struct roofline_product *p, enum precision precision);

/* y [side, side] = x [side, side] times the weights, on the calling thread of the team alone: in blocks of as many rows
 * as an engine gives a thread. Allocates nothing. */
void roofline_product_run(const struct roofline_product *p, enum precision precision, float *y, const float *x);

#endif
