/* test_peak.c - the loops that measure a machine: which run where, that they do their work, and that bursts of them
 * give rates; that the products measured beside them are products. How fast they are is not tested. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/bench/peak.h"
#include "engine/bench/roofline.h"
#include "engine/bench/roofline_product.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The loops of a lower instruction set are not those of a higher one, and bf16 and int8 ask for the highest. */
static void loops_go_by_instruction_set(void **state)
{
    (void)state;
    static const char *const lower[] = {"baseline", "avx2"};
    assert_non_null(peak_select("baseline"));
    assert_non_null(peak_select(NULL));
    assert_null(peak_select("avx3"));
    for (size_t i = 0; i < LENGTH(lower); i++) {
        assert_null(peak_bf16(lower[i]));
        assert_null(peak_int8(lower[i]));
    }
    for (const char *const *isa = (const char *const[]){"baseline", "avx2", "avx512", NULL}; *isa != NULL; isa++) {
        const struct peak *peak = peak_select(*isa);
        if (peak == NULL)
            continue;
        static int32_t memory[PEAK_READ_BYTES / 2] __attribute__((aligned(64))); /* twice what is read at a time */
        float out = 0.0f;
        assert_string_equal(peak->isa, *isa);
        peak->fp32.run(&out, 100000);
        assert_true(isfinite(out) && out != 0.0f);
        memset(memory, 0, sizeof memory);
        for (size_t at = 0; at < LENGTH(memory); at++) { /* each number is read */
            memory[at] = 5;
            assert_int_equal(peak->read(memory, sizeof memory), 5);
            memory[at] = 0;
        }
    }
}

static void bursts_give_rates(void **state)
{
    (void)state;
    struct roofline *r = NULL;
    struct error err;
    assert_int_equal(roofline_open(&r, NULL, 2, 4000000, &err), OK);
    assert_int_equal(roofline_info(r)->threads, 2);
    assert_true(roofline_info(r)->best);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
            assert_true(!roofline_has(r, i) || roofline_compute(r, i, threads) > 0.0);
        assert_true(roofline_read(r, 4000000, threads) > 0.0);
        assert_true(roofline_read(r, 1, threads) > 0.0); /* what the loop takes at a time, then */
    }
    roofline_close(r);
    assert_int_equal(roofline_open(&r, "baseline", 1, 1, &err), OK);
    assert_string_equal(roofline_info(r)->isa, "baseline");
    assert_false(roofline_has(r, ROOFLINE_BF16));
    assert_false(roofline_has(r, ROOFLINE_INT8));
    assert_true(roofline_has(r, ROOFLINE_FP32));
    assert_true(roofline_has(r, ROOFLINE_OPENBLAS));
    assert_false(roofline_has(r, ROOFLINE_PRODUCT_FP32)); /* OpenBLAS's are used there */
    assert_false(roofline_has(r, ROOFLINE_PRODUCT_BF16)); /* there are such, which nothing makes fast */
    roofline_close(r);
}

static void every_product_is_bounded_by_its_precision(void **state)
{
    (void)state;
    assert_int_equal(roofline_rate_bound(ROOFLINE_OPENBLAS), ROOFLINE_FP32);
    assert_int_equal(roofline_rate_bound(ROOFLINE_PRODUCT_FP32), ROOFLINE_FP32);
    assert_int_equal(roofline_rate_bound(ROOFLINE_PRODUCT_BF16), ROOFLINE_BF16);
    assert_int_equal(roofline_rate_bound(ROOFLINE_PRODUCT_INT8), ROOFLINE_INT8);
    for (enum roofline_rate i = 0; i < ROOFLINE_RATE_COUNT; i++)
        assert_int_equal(roofline_rate_bound(roofline_rate_bound(i)), roofline_rate_bound(i));
}

/* What is measured is the whole product: each element of it, beyond one block of rows too. */
static void products_are_products(void **state)
{
    (void)state;
    enum { SIDE = 160 };
    _Static_assert(SIDE > GEMM_BLOCK && SIDE < 2 * GEMM_BLOCK && SIDE % LANES == 0, "two blocks, no padding");
    static float w[SIDE][SIDE], x[SIDE][SIDE], y[SIDE][SIDE];
    static const double tolerance[PRECISION_COUNT] = {1e-4, 0.1, 0.3}; /* of sums of 160 products of up to 0.25 */
    for (size_t i = 0; i < SIDE; i++)
        for (size_t k = 0; k < SIDE; k++) {
            w[i][k] = (float)((7 * i + 3 * k) % 17) * 0.0625f - 0.5f;
            x[i][k] = (float)((5 * i + 11 * k) % 13) * 0.0625f - 0.375f;
        }
    struct roofline_product p;
    assert_int_equal(roofline_product_init(&p, kernels_select(NULL), 1, w[0], SIDE, NULL), OK);
    for (enum precision precision = 0; precision < PRECISION_COUNT; precision++) {
        if (!roofline_product_has(&p, precision))
            continue;
        roofline_product_run(&p, precision, y[0], x[0]);
        for (size_t r = 0; r < SIDE; r++)
            for (size_t c = 0; c < SIDE; c++) {
                double sum = 0.0;
                for (size_t k = 0; k < SIDE; k++)
                    sum += (double)x[r][k] * (double)w[c][k];
                if (fabs(sum - (double)y[r][c]) > tolerance[precision])
                    fail_msg("precision %d: [%zu][%zu] is %g, expected %g", (int)precision, r, c, (double)y[r][c], sum);
            }
    }
    roofline_product_clear(&p);
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    struct roofline *r = NULL;
    struct error err;
    assert_int_equal(roofline_open(&r, "avx3", 1, 1, &err), ERR_ARGUMENT);
    assert_string_equal(err.param, "isa");
    assert_int_equal(roofline_open(&r, NULL, ENGINE_THREADS_MAX + 1, 1, &err), ERR_ARGUMENT);
    assert_string_equal(err.message, "threads is 257, expected 0 to 256");
    assert_int_equal(roofline_open(&r, NULL, 1, 0, &err), ERR_ARGUMENT);
    assert_int_equal(roofline_open(&r, NULL, 1, UINT64_C(1) + ROOFLINE_BYTES_MAX, &err), ERR_ARGUMENT);
    assert_string_equal(err.message, "the working set is 512000001 bytes, expected 1 to 512000000");
    assert_null(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_go_by_instruction_set),
        cmocka_unit_test(bursts_give_rates),
        cmocka_unit_test(every_product_is_bounded_by_its_precision),
        cmocka_unit_test(products_are_products),
        cmocka_unit_test(options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
