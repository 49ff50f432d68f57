/* roofline.c - see roofline.h. A burst: each thread of a team warms up, waits for the others, notes the time, works,
 * notes the time again. What counts is the time from the first start to the last end, as for a pass of the engine. */
#include "tests/bench/roofline.h"

#include <cblas.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "engine/core/processors.h"
#include "engine/core/team.h"
#include "engine/kernels/gemm.h"
#include "tests/bench/peak.h"

#define HUGE_PAGE (2u << 20)
#define MATRIX ((size_t)ROOFLINE_SIDE * ROOFLINE_SIDE)
#define COMPUTE_SECONDS 2e-3
#define READ_BYTES 120e6 /* of a burst, all threads together; at least one pass over the working set */
#define TRIALS 5
#define TRIAL_TURNS 25000
#define TRIAL_SECONDS_MAX 0.1

struct span {
    double start, end;
};

struct roofline {
    const struct peak *peak;
    uint32_t threads;
    char *memory;    /* [bytes_max] */
    float *matrices; /* rows, weights and a result for each thread: [2 + threads, MATRIX] */
    struct workspace packed;
    struct gemm_context context;
    struct gemm weights[PRECISION_COUNT];
    struct span spans[ENGINE_THREADS_MAX];
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

static bool has_product(const struct kernels *k, enum precision precision)
{
    return k->pays[precision];
}

static enum status pack_weights(struct roofline *r, struct error *err)
{
    workspace_init(&r->packed);
    for (enum precision i = 0; i < PRECISION_COUNT; i++) {
        const size_t bytes = gemm_row_bytes(i, ROOFLINE_SIDE);
        r->context.rows.bytes = bytes > r->context.rows.bytes ? bytes : r->context.rows.bytes;
        if (has_product(r->context.kernels, i))
            gemm_plan(&r->weights[i], &r->packed, i, ROOFLINE_SIDE, ROOFLINE_SIDE);
    }
    workspace_note(&r->packed, &r->context.rows.own, (uint64_t)r->threads * GEMM_BLOCK, r->context.rows.bytes);
    const enum status st = workspace_take(&r->packed, err);
    for (enum precision i = 0; st == OK && i < PRECISION_COUNT; i++)
        if (has_product(r->context.kernels, i))
            gemm_pack(&r->weights[i], 0, roofline_weights(r), NULL, ROOFLINE_SIDE, ROOFLINE_SIDE);
    return st;
}

void roofline_multiply(const struct roofline *r, enum precision precision, float *y, const float *x)
{
    for (size_t row = 0; row < ROOFLINE_SIDE; row += GEMM_BLOCK) { /* as many as an engine gives a thread */
        const size_t rows = ROOFLINE_SIDE - row < GEMM_BLOCK ? ROOFLINE_SIDE - row : GEMM_BLOCK;
        gemm_run_alone(&r->context, &r->weights[precision], y + row * ROOFLINE_SIDE, ROOFLINE_SIDE,
                       x + row * ROOFLINE_SIDE, ROOFLINE_SIDE, rows, EPILOGUE_BIAS, NULL);
    }
}

const float *roofline_weights(const struct roofline *r)
{
    return r->matrices + MATRIX;
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

/* Each thread writes its own part first, so that the part lies close to it. In large pages where available: what is
 * measured is the memory, not the translation of addresses. */
static void touch(struct roofline *r, uint64_t bytes)
{
    const size_t pages = (size_t)(bytes + HUGE_PAGE - 1) / HUGE_PAGE;
    (void)madvise(r->memory, pages * HUGE_PAGE, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static) num_threads(r->threads)
    for (size_t i = 0; i < pages; i++)
        memset(r->memory + i * HUGE_PAGE, 1, HUGE_PAGE);
}

static enum status take_memory(struct roofline *r, uint64_t bytes, struct error *err)
{
    const size_t matrices = (2 + (size_t)r->threads) * MATRIX;
    r->memory = aligned_alloc(HUGE_PAGE, (size_t)(bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    r->matrices = aligned_alloc(64, matrices * sizeof *r->matrices);
    if (r->memory == NULL || r->matrices == NULL)
        return error_set(err, ERR_NOMEM, "cannot allocate %" PRIu64 " bytes to measure this machine with",
                         bytes + matrices * sizeof *r->matrices);
    touch(r, bytes);
    for (size_t i = 0; i < matrices; i++)
        r->matrices[i] = (float)(i % 17) * 0.0625f - 0.5f;
    return pack_weights(r, err);
}

enum status roofline_open(struct roofline **ret, const char *isa, uint32_t threads, uint64_t bytes_max,
                          struct error *err)
{
    if (peak_select(isa) == NULL)
        return error_set_param(err, ERR_ARGUMENT, "isa",
                               "instruction set \"%s\" is unknown or not supported by this machine", isa);
    struct roofline *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set(err, ERR_NOMEM, "cannot allocate %zu bytes", sizeof *r);
    gemm_setup();
    r->peak = peak_select(isa);
#ifdef _OPENMP
    r->threads = threads != 0 ? threads : processors_count();
#else
    r->threads = 1;
#endif
    r->context = (struct gemm_context){.kernels = kernels_select(isa), .threads = r->threads};
    const enum status st = take_memory(r, bytes_max, err);
    if (st == OK)
        *ret = r;
    else
        roofline_close(r);
    return st;
}

void roofline_close(struct roofline *r)
{
    if (r == NULL)
        return;
    workspace_clear(&r->packed);
    free(r->memory);
    free(r->matrices);
    free(r);
}

uint32_t roofline_threads(const struct roofline *r)
{
    return r->threads;
}

bool roofline_has(const struct roofline *r, const struct roofline_work *w)
{
    return w->kind != ROOFLINE_PRODUCT || has_product(r->context.kernels, w->precision);
}

/* ---- measuring -------------------------------------------------------------------------------------------------- */

/* What one thread reads at a time. */
static size_t part_bytes(const struct roofline_work *w, uint32_t threads)
{
    const size_t pieces = (size_t)(w->bytes / threads / PEAK_READ_BYTES);
    return (pieces > 0 ? pieces : 1) * PEAK_READ_BYTES;
}

static void run(const struct roofline *r, const struct roofline_work *w, uint64_t times, uint32_t threads)
{
    const size_t thread = team_thread(), part = part_bytes(w, threads);
    const blasint n = ROOFLINE_SIDE;
    float *y = r->matrices + (2 + thread) * MATRIX;
    _Alignas(64) unsigned char chains[PEAK_CHAINS_BYTES] = {0};
    volatile uint32_t kept; /* or the compiler would leave the reading out */
    if (w->kind == ROOFLINE_REGISTERS)
        r->peak->loops[w->precision].run(chains, times);
    for (uint64_t i = 0; w->kind != ROOFLINE_REGISTERS && i < times; i++)
        if (w->kind == ROOFLINE_PRODUCT)
            roofline_multiply(r, w->precision, y, r->matrices);
        else if (w->kind == ROOFLINE_OPENBLAS)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1.0f, r->matrices, n, roofline_weights(r), n,
                        0.0f, y, n);
        else
            kept = peak_read(r->memory + thread * part, part);
    (void)kept;
}

/* Seconds that the team takes; *team is how many threads there were, fewer where the environment allows no more. */
static double burst(struct roofline *r, const struct roofline_work *w, uint32_t threads, uint32_t *team)
{
    uint32_t members = 1;
#ifdef _OPENMP
    omp_set_num_threads((int)threads); /* a team of one too: OpenBLAS looks at it (engine.c) */
#endif
#pragma omp parallel num_threads(threads)
    {
        const size_t thread = team_thread();
        run(r, w, (w->times + 7) / 8, threads); /* until wide units are awake, and caches hold matrices */
#pragma omp barrier
        r->spans[thread].start = now();
        run(r, w, w->times, threads);
        r->spans[thread].end = now();
#pragma omp critical
        members = thread + 1 > members ? (uint32_t)thread + 1 : members;
    }
    double start = r->spans[0].start, end = r->spans[0].end;
    for (uint32_t i = 1; i < members; i++) {
        start = r->spans[i].start < start ? r->spans[i].start : start;
        end = r->spans[i].end > end ? r->spans[i].end : end;
    }
    *team = members;
    return end - start;
}

/* How many times fill about COMPUTE_SECONDS: by the fastest of a few trials, which others on the machine may delay; by
 * a single trial if it takes longer than any delay. */
static uint64_t choose_times(struct roofline *r, const struct roofline_work *w)
{
    struct roofline_work trial = *w;
    double least = COMPUTE_SECONDS;
    if (w->kind == ROOFLINE_READING)
        return w->bytes < READ_BYTES ? (uint64_t)(READ_BYTES / (double)w->bytes) : 1;
    trial.times = w->kind == ROOFLINE_REGISTERS ? TRIAL_TURNS : 1;
    for (int i = 0; i < TRIALS; i++) {
        uint32_t team;
        const double seconds = burst(r, &trial, 1, &team);
        least = seconds < least ? seconds : least;
        if (seconds > TRIAL_SECONDS_MAX)
            break;
    }
    return (uint64_t)((double)trial.times * COMPUTE_SECONDS / (least > 1e-6 ? least : 1e-6));
}

double roofline_measure(struct roofline *r, struct roofline_work *w, uint32_t threads)
{
    if (w->times == 0)
        w->times = choose_times(r, w);
    const double each = w->kind == ROOFLINE_REGISTERS ? r->peak->loops[w->precision].flop
                        : w->kind == ROOFLINE_READING ? (double)part_bytes(w, threads)
                                                      : 2.0 * ROOFLINE_SIDE * (double)MATRIX;
    uint32_t team;
    const double seconds = burst(r, w, threads, &team);
    return team * (double)w->times * each / seconds;
}
