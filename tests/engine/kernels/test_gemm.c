/* test_gemm.c - packed products of every instruction set and precision against a plain triple loop, and the promise
 * that a row's bits depend on the row alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/gemm.h"
#include "tests/engine/kernels/tables.h"
#include "tests/support/random.h"

enum { K_MAX = 200, N_MAX = 208, ROWS_MAX = 72, THREADS = 3, BYTES_MAX = N_MAX * (4 * K_MAX + 8), ROW_BYTES = 1024 };

static const char *const words[PRECISION_COUNT] = {"fp32", "bf16", "int8"};

static const struct {
    uint32_t n, k;
} shapes[] = {{1, 1}, {10, 20}, {16, 16}, {32, 100}, {36, 36}, {48, 75}, {100, 192}, {192, 200}, {208, 7}, {160, 33}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct product {
    struct gemm g;
    struct gemm_context c;
    float weight[N_MAX * K_MAX], bias[N_MAX], packed_bias[N_MAX];
    float x[ROWS_MAX * K_MAX], y[ROWS_MAX * N_MAX];
    uint8_t packed[BYTES_MAX], shared[ROWS_MAX * ROW_BYTES], own[THREADS * GEMM_BLOCK * ROW_BYTES];
};

static struct product *product_create(void)
{
    struct product *p = aligned_alloc(64, (sizeof(struct product) + 63) / 64 * 64);
    assert_non_null(p);
    return p;
}

static void product_init(struct product *p, const struct kernels *kn, enum precision precision, uint32_t n, uint32_t k,
                         struct random *rng)
{
    memset(p, 0, sizeof *p);
    p->g = (struct gemm){
        .packed = p->packed, .bias = p->packed_bias, .n = (uint32_t)lanes_padded(n), .k = k, .precision = precision};
    p->c = (struct gemm_context){
        .kernels = kn, .threads = THREADS, .rows = {.shared = p->shared, .own = p->own, .bytes = ROW_BYTES}};
    assert_true(gemm_packed_bytes(precision, p->g.n, k) <= BYTES_MAX && gemm_row_bytes(precision, k) <= ROW_BYTES);
    for (size_t i = 0; i < (size_t)n * k; i++)
        p->weight[i] = random_float(rng, 1.0f);
    for (size_t i = 0; i < n; i++)
        p->bias[i] = random_float(rng, 1.0f);
    for (size_t i = 0; i < (size_t)ROWS_MAX * k; i++)
        p->x[i] = random_float(rng, 1.0f);
    gemm_pack(&p->g, 0, p->weight, p->bias, n, k);
}

/* Every instruction set with every precision. */
static void each_kind(void (*test)(struct product *p, const struct kernels *kn, enum precision precision))
{
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    struct product *p = product_create();
    for (size_t i = 0; i < count; i++)
        for (int precision = 0; precision < PRECISION_COUNT; precision++) {
            print_message("  %s, %s\n", tables[i]->isa, words[precision]);
            test(p, tables[i], (enum precision)precision);
        }
    free(p);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static float as_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What the largest number of a row in int8 becomes: AVX2 has 7 bits for it (avx2_int8.c). */
static double row_most(const struct kernels *kn)
{
    return strcmp(kn->isa, "avx2") == 0 ? 63.0 : 127.0;
}

/* The plain twin: what a row of k numbers and a column's weights give in a precision, exactly but for the last sum. */
static double plain(enum precision precision, double most, const float *x, const float *w, size_t k)
{
    double sum = 0.0;
    float top[2] = {0.0f, 0.0f};
    for (size_t i = 0; i < k; i++) {
        top[0] = fmaxf(top[0], fabsf(x[i]));
        top[1] = fmaxf(top[1], fabsf(w[i]));
    }
    const double scales[2] = {top[0] > 0 ? (double)top[0] / most : 1, top[1] > 0 ? (double)top[1] / 127 : 1};
    for (size_t i = 0; i < k; i++)
        if (precision == PRECISION_F32)
            sum += (double)x[i] * (double)w[i];
        else if (precision == PRECISION_BF16)
            sum += (double)as_bf16(x[i]) * (double)as_bf16(w[i]);
        else
            sum += rint((double)x[i] / scales[0]) * rint((double)w[i] / scales[1]);
    return precision == PRECISION_INT8 ? sum * scales[0] * scales[1] : sum;
}

static void expect_triple_loop(struct product *p, const struct kernels *kn, enum precision precision)
{
    struct random rng = {1};
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t rows = 1; rows <= 67; rows += rows < 14 ? 1 : 53) {
            const uint32_t n = shapes[s].n, k = shapes[s].k;
            product_init(p, kn, precision, n, k, &rng);
            for (size_t i = 0; i < sizeof p->y / sizeof p->y[0]; i++)
                p->y[i] = 1e9f;
            gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, k, rows, EPILOGUE_BIAS);
            /* An int8 that lies between two whole numbers may be rounded either way: a step of a term, rarely. */
            const double row = row_most(kn), most = precision == PRECISION_INT8 ? 2.54 / row : 3e-5;
            for (size_t r = 0; r < ROWS_MAX; r++)
                for (size_t o = 0; o < N_MAX; o++)
                    if (r < rows && o < p->g.n) {
                        const double want =
                            o < n ? (double)p->bias[o] + plain(precision, row, p->x + r * k, p->weight + o * k, k)
                                  : 0.0;
                        if (!(fabs((double)p->y[r * N_MAX + o] - want) <= most))
                            fail_msg("n %u k %u, %zu rows: row %zu column %zu is %g, expected %g", n, k, rows, r, o,
                                     (double)p->y[r * N_MAX + o], want);
                    } else { /* beyond the rows and columns asked for nothing is written */
                        assert_true(p->y[r * N_MAX + o] == 1e9f);
                    }
        }
}

static void products_agree_with_a_triple_loop(void **state)
{
    (void)state;
    each_kind(expect_triple_loop);
}

/* Sums of whole numbers are the same everywhere, and so are their two scales, where rows have as many bits. */
static void int8_is_the_same_on_every_instruction_set(void **state)
{
    (void)state;
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    struct product *p = product_create();
    float *first = malloc(sizeof p->y);
    assert_non_null(first);
    for (size_t s = 0; s < SHAPES; s++)
        for (size_t i = 0; i < count; i++) {
            struct random rng = {4};
            product_init(p, tables[i], PRECISION_INT8, shapes[s].n, shapes[s].k, &rng);
            gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, shapes[s].k, 40, EPILOGUE_BIAS);
            if (i == 0)
                memcpy(first, p->y, sizeof p->y);
            if (row_most(tables[i]) == row_most(tables[0]))
                assert_memory_equal(first, p->y, sizeof p->y);
        }
    free(first);
    free(p);
}

/* All rows and weights are as large as can be: what adds up in 16 bits or less would end at their limit. */
static void expect_whole_sums(struct product *p, const struct kernels *kn, enum precision precision)
{
    enum { N = 48, K = 200 };
    struct random rng = {6};
    for (size_t rows = 1; rows <= 14; rows++)
        for (int sign = -1; sign <= 1; sign += 2) {
            product_init(p, kn, precision, N, K, &rng);
            for (size_t i = 0; i < (size_t)N * K; i++)
                p->weight[i] = (float)sign;
            for (size_t i = 0; i < rows * K; i++)
                p->x[i] = 1.0f;
            gemm_pack(&p->g, 0, p->weight, NULL, N, K);
            memset(p->packed_bias, 0, sizeof p->packed_bias);
            gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, K, rows, EPILOGUE_BIAS);
            for (size_t r = 0; r < rows; r++)
                for (size_t o = 0; o < N; o++)
                    if (!(fabsf(p->y[r * N_MAX + o] - (float)(sign * K)) < 1e-3f))
                        fail_msg("%zu rows: %g, expected %d", rows, (double)p->y[r * N_MAX + o], sign * K);
        }
}

static void the_largest_numbers_add_up(void **state)
{
    (void)state;
    each_kind(expect_whole_sums);
}

static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    const struct kernels *tables[TABLES];
    const size_t count = runnable(tables);
    struct product *p = product_create();
    struct random rng = {5};
    for (size_t i = 0; i < count; i++)
        for (int precision = PRECISION_BF16; precision < PRECISION_COUNT; precision++)
            for (size_t j = 0; j < sizeof odd / sizeof odd[0]; j++)
                for (size_t rows = 1; rows <= 20; rows += 19) {
                    product_init(p, tables[i], (enum precision)precision, 40, 33, &rng);
                    p->x[17] = odd[j];
                    gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, 33, rows, EPILOGUE_BIAS);
                    for (size_t o = 0; o < 40; o++)
                        assert_true(!isfinite(p->y[o]));
                    for (size_t o = 0; o < 40 && rows > 1; o++)
                        assert_true(isfinite(p->y[N_MAX + o]) != 0);
                }
    free(p);
}

static void segments_are_packed_side_by_side(void **state)
{
    (void)state;
    enum { K = 5, FIRST = 20, SECOND = 3 };
    struct product *p = product_create();
    struct random rng = {2};
    product_init(p, kernels_select(NULL), PRECISION_F32, 48, K, &rng);
    memset(p->packed, 0, sizeof p->packed);
    memset(p->packed_bias, 0, sizeof p->packed_bias);
    const float *a = p->weight, *b = p->weight + (size_t)FIRST * K;
    gemm_pack(&p->g, 0, a, NULL, FIRST, K);
    gemm_pack(&p->g, 32, b, NULL, SECOND, K);
    gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, K, 2, EPILOGUE_BIAS);
    for (size_t r = 0; r < 2; r++)
        for (size_t o = 0; o < 48; o++) {
            const float *w = o < FIRST ? a + o * K : o >= 32 && o < 32 + SECOND ? b + (o - 32) * K : NULL;
            float want = 0.0f;
            for (size_t i = 0; i < K && w != NULL; i++)
                want += p->x[r * K + i] * w[i];
            assert_float_equal(p->y[r * N_MAX + o], want, 1e-6f);
        }
    free(p);
}

/* As qkv has keys of few heads in the middle of a chunk, which go on in the next one. */
static void a_segment_may_begin_within_a_chunk(void **state)
{
    (void)state;
    enum { K = 7, AT = 16, COUNT = 20 };
    for (enum precision precision = 0; precision < PRECISION_COUNT; precision++) {
        struct product *apart = product_create(), *p = product_create();
        struct random rng = {4};
        product_init(apart, kernels_select(NULL), precision, COUNT, K, &rng);
        product_init(p, kernels_select(NULL), precision, AT + COUNT, K, &rng);
        memset(p->packed, 0, sizeof p->packed);
        memset(p->packed_bias, 0, sizeof p->packed_bias);
        gemm_pack(&p->g, AT, apart->weight, apart->bias, COUNT, K);
        gemm_run(&apart->c, &apart->g, apart->y, N_MAX, apart->x, K, 2, EPILOGUE_BIAS);
        gemm_run(&p->c, &p->g, p->y, N_MAX, apart->x, K, 2, EPILOGUE_BIAS);
        for (size_t r = 0; r < 2; r++)
            assert_memory_equal(p->y + r * N_MAX + AT, apart->y + r * N_MAX, sizeof(float) * COUNT);
        free(apart);
        free(p);
    }
}

/* ---- bits ------------------------------------------------------------------------------------------------------- */

/* The row is put at every place of passes of every length among ever new neighbours, by one thread and by a team. */
static void expect_same_bits(struct product *p, const struct kernels *kn, enum precision precision)
{
    struct random rng = {3};
    float row[K_MAX], first[N_MAX];
    for (size_t s = 0; s < SHAPES; s++) {
        const uint32_t k = shapes[s].k;
        product_init(p, kn, precision, shapes[s].n, k, &rng);
        memcpy(row, p->x, k * sizeof *row);
        for (size_t rows = 1; rows <= 67; rows += rows < 26 ? 1 : 41)
            for (size_t at = 0; at < rows; at += rows < 14 ? 1 : 5) {
                for (size_t i = 0; i < (size_t)ROWS_MAX * k; i++)
                    p->x[i] = random_float(&rng, 100.0f);
                memcpy(p->x + at * k, row, k * sizeof *row);
#pragma omp parallel num_threads(THREADS) if (at % 2 == 0)
                gemm_run(&p->c, &p->g, p->y, N_MAX, p->x, k, rows, EPILOGUE_GELU);
                if (rows == 1)
                    memcpy(first, p->y, sizeof first);
                assert_memory_equal(first, p->y + at * N_MAX, p->g.n * sizeof *first);
            }
    }
}

static void a_rows_bits_depend_on_the_row_alone(void **state)
{
    (void)state;
    each_kind(expect_same_bits);
}

/* Products of tokens: of any number, all with the same numbers or each with its own, and of several blocks. */
static void sums_over_tokens_lose_nothing(void **state)
{
    (void)state;
    enum { TOKENS = 20000, WIDE = 70, M = 67 };
    static const size_t counts[] = {1, 31, 32, 33, 1000, 1024, 1025, TOKENS};
    float *a = malloc(sizeof *a * TOKENS * WIDE), *b = malloc(sizeof *b * TOKENS * WIDE), c[M][WIDE];
    struct random rng = {9};
    assert_true(a != NULL && b != NULL);
    gemm_setup();
    for (size_t at = 0; at < 4 * sizeof counts / sizeof counts[0]; at++) {
        const bool equal = at % 2 == 0, transpose = at / 2 % 2 == 0;
        const size_t k = counts[at / 4], lda = transpose ? WIDE : k;
        for (size_t i = 0; i < k * WIDE; i++) {
            a[i] = equal && i > 0 ? a[0] : 1.0f + random_float(&rng, 0.5f);
            b[i] = equal && i >= WIDE ? b[i - WIDE] : 1.0f + random_float(&rng, 0.5f);
        }
        gemm_sum_tokens(transpose, M, WIDE - 1, k, 0.25f, a, lda, b, WIDE, c[0], WIDE);
        for (size_t i = 0; i < M; i += 3)
            for (size_t j = 0; j < WIDE - 1; j += 4) {
                double want = 0.0;
                for (size_t t = 0; t < k; t++)
                    want += 0.25 * (double)a[transpose ? t * lda + i : i * lda + t] * (double)b[t * WIDE + j];
                if (!(fabs((double)c[i][j] / want - 1.0) <= 1e-6))
                    fail_msg("%zu %s tokens: off by %g", k, equal ? "equal" : "random", (double)c[i][j] / want - 1.0);
            }
    }
    free(b);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_agree_with_a_triple_loop),
        cmocka_unit_test(int8_is_the_same_on_every_instruction_set),
        cmocka_unit_test(the_largest_numbers_add_up),
        cmocka_unit_test(what_is_no_number_stays_none),
        cmocka_unit_test(segments_are_packed_side_by_side),
        cmocka_unit_test(a_segment_may_begin_within_a_chunk),
        cmocka_unit_test(a_rows_bits_depend_on_the_row_alone),
        cmocka_unit_test(sums_over_tokens_lose_nothing),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
