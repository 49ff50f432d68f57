/* roofline_product.c - see roofline_product.h. */
#include "engine/bench/roofline_product.h"

enum status roofline_product_init(struct roofline_product *p, const struct kernels *kernels, uint32_t threads,
                                  const float *weights, uint32_t side, struct error *err)
{
    *p = (struct roofline_product){.context = {.kernels = kernels, .threads = threads}};
    workspace_init(&p->memory);
    for (enum precision i = 0; i < PRECISION_COUNT; i++) {
        const size_t bytes = gemm_row_bytes(i, side);
        p->context.rows.bytes = bytes > p->context.rows.bytes ? bytes : p->context.rows.bytes;
        if (roofline_product_has(p, i))
            gemm_plan(&p->weights[i], &p->memory, i, side, side);
    }
    workspace_note(&p->memory, &p->context.rows.own, (uint64_t)threads * GEMM_BLOCK, p->context.rows.bytes);
    const enum status st = workspace_take(&p->memory, err);
    if (st != OK) {
        roofline_product_clear(p);
        return st;
    }
    for (enum precision i = 0; i < PRECISION_COUNT; i++)
        if (roofline_product_has(p, i))
            gemm_pack(&p->weights[i], 0, weights, NULL, side, side);
    return OK;
}

void roofline_product_clear(struct roofline_product *p)
{
    workspace_clear(&p->memory);
}

bool roofline_product_has(const struct roofline_product *p, enum precision precision)
{
    const struct kernels *k = p->context.kernels;
    return k->product[precision] != NULL && k->pays[precision];
}

void roofline_product_run(const struct roofline_product *p, enum precision precision, float *y, const float *x)
{
    const struct gemm *g = &p->weights[precision];
    for (uint32_t row = 0; row < g->k; row += GEMM_BLOCK) {
        const uint32_t rows = g->k - row < GEMM_BLOCK ? g->k - row : GEMM_BLOCK;
        const size_t at = (size_t)row * g->k;
        gemm_run_alone(&p->context, g, y + at, g->k, x + at, g->k, rows, EPILOGUE_BIAS, NULL);
    }
}
