/* test_gemm.c - packed products against a plain triple loop, and the promise that a row's bits depend on the row
 * alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/gemm.h"
#include "tests/support/random.h"

enum { K_MAX = 200, N_MAX = 208, ROWS_MAX = 32 };

struct product {
    struct gemm g;
    float weight[N_MAX * K_MAX], bias[N_MAX], packed[N_MAX * K_MAX], packed_bias[N_MAX];
    float x[ROWS_MAX * K_MAX], y[ROWS_MAX * N_MAX], scratch[(GEMM_ROWS_MAX + 1) * K_MAX];
    uint32_t rows_fixed;
};

static void product_init(struct product *p, uint32_t n, uint32_t k, struct random *rng)
{
    memset(p, 0, sizeof *p);
    p->g = (struct gemm){.packed = p->packed, .bias = p->packed_bias, .n = (uint32_t)lanes_padded(n), .k = k};
    for (size_t i = 0; i < (size_t)n * k; i++)
        p->weight[i] = random_float(rng, 1.0f);
    for (size_t i = 0; i < n; i++)
        p->bias[i] = random_float(rng, 1.0f);
    for (size_t i = 0; i < (size_t)ROWS_MAX * k; i++)
        p->x[i] = random_float(rng, 1.0f);
    gemm_pack(&p->g, 0, p->weight, p->bias, n, k);
    const struct gemm *list[1] = {&p->g};
    p->rows_fixed = gemm_choose_rows(list, 1, p->scratch);
}

static const struct {
    uint32_t n, k;
} shapes[] = {{1, 1}, {10, 20}, {16, 16}, {32, 100}, {36, 36}, {48, 75}, {100, 192}, {192, 200}, {208, 7}};

static void products_agree_with_a_triple_loop(void **state)
{
    (void)state;
    struct product *p = malloc(sizeof *p);
    struct random rng = {1};
    assert_non_null(p);
    gemm_setup();
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (size_t rows = 1; rows <= 20; rows += 3) {
            const uint32_t n = shapes[s].n, k = shapes[s].k;
            product_init(p, n, k, &rng);
            for (size_t i = 0; i < sizeof p->y / sizeof p->y[0]; i++)
                p->y[i] = 1e9f;
            gemm_run(kernels_select(NULL), &p->g, p->rows_fixed, p->y, N_MAX, p->x, k, rows, EPILOGUE_BIAS);
            for (size_t r = 0; r < ROWS_MAX; r++)
                for (size_t o = 0; o < N_MAX; o++) {
                    double want = o < n ? (double)p->bias[o] : 0.0;
                    for (size_t i = 0; i < k && o < n; i++)
                        want += (double)p->x[r * k + i] * (double)p->weight[o * k + i];
                    if (r < rows && o < p->g.n)
                        assert_float_equal(p->y[r * N_MAX + o], (float)want, 2e-5f);
                    else /* beyond the rows and columns asked for nothing is written */
                        assert_true(p->y[r * N_MAX + o] == 1e9f);
                }
        }
    free(p);
}

static void segments_are_packed_side_by_side(void **state)
{
    (void)state;
    enum { K = 5, FIRST = 20, SECOND = 3 };
    float a[FIRST * K], b[SECOND * K], packed[48 * K] = {0}, bias[48] = {0}, x[GEMM_ROWS_MAX * K],
                                                   y[GEMM_ROWS_MAX * 48];
    struct gemm g = {.packed = packed, .bias = bias, .n = 48, .k = K};
    struct random rng = {2};
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++)
        a[i] = random_float(&rng, 1.0f);
    for (size_t i = 0; i < sizeof b / sizeof b[0]; i++)
        b[i] = random_float(&rng, 1.0f);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = random_float(&rng, 1.0f);
    gemm_pack(&g, 0, a, NULL, FIRST, K);
    gemm_pack(&g, 32, b, NULL, SECOND, K);
    gemm_run(kernels_select(NULL), &g, 1, y, 48, x, K, 2, EPILOGUE_BIAS);
    for (size_t r = 0; r < 2; r++)
        for (size_t o = 0; o < 48; o++) {
            const float *w = o < FIRST ? a + o * K : o >= 32 && o < 32 + SECOND ? b + (o - 32) * K : NULL;
            float want = 0.0f;
            for (size_t i = 0; i < K && w != NULL; i++)
                want += x[r * K + i] * w[i];
            assert_float_equal(y[r * 48 + o], want, 1e-6f);
        }
}

/* The row is put at every place of passes of every length among ever new neighbours. */
static void a_rows_bits_depend_on_the_row_alone(void **state)
{
    (void)state;
    struct product *p = malloc(sizeof *p);
    struct random rng = {3};
    float row[K_MAX], first[N_MAX];
    assert_non_null(p);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const uint32_t k = shapes[s].k;
        product_init(p, shapes[s].n, k, &rng);
        print_message("n %u k %u: products of %u rows\n", shapes[s].n, k, p->rows_fixed);
        memcpy(row, p->x, k * sizeof *row);
        for (size_t rows = 1; rows <= 19; rows++)
            for (size_t at = 0; at < rows; at++) {
                for (size_t i = 0; i < (size_t)ROWS_MAX * k; i++)
                    p->x[i] = random_float(&rng, 100.0f);
                memcpy(p->x + at * k, row, k * sizeof *row);
                gemm_run(kernels_select(NULL), &p->g, p->rows_fixed, p->y, N_MAX, p->x, k, rows, EPILOGUE_GELU);
                if (rows == 1)
                    memcpy(first, p->y, sizeof first);
                assert_memory_equal(first, p->y + at * N_MAX, p->g.n * sizeof *first);
            }
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_a_triple_loop),
        cmocka_unit_test(segments_are_packed_side_by_side),
        cmocka_unit_test(a_rows_bits_depend_on_the_row_alone),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
