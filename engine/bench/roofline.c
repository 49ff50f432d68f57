/* roofline.c - see roofline.h. A burst: each thread of a team warms up, waits for the others, notes the time, works,
 * notes the time again. What counts is the time from the first start to the last end, as for a pass of the engine. */
#include "engine/bench/roofline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "engine/bench/peak.h"
#include "engine/bench/roofline_product.h"
#include "engine/core/processors.h"
#include "engine/core/team.h"
#include "engine/kernels/gemm.h"
#include "engine/kernels/kernels.h"

#define HUGE_PAGE (2u << 20)
#define PRODUCT_SIDE 512 /* 3 MB of matrices, 0.27 GFLOP: beyond it OpenBLAS gains nothing */
#define PRODUCT_FLOP (2.0 * PRODUCT_SIDE * PRODUCT_SIDE * PRODUCT_SIDE)
#define COMPUTE_SECONDS 2e-3
#define READ_BYTES 120e6 /* of a burst, all threads together; at least one pass over the working set */
#define TRIALS 5
#define TRIAL_TURNS 25000
#define TRIAL_SECONDS_MAX 0.1

struct span {
    double start, end;
};

struct roofline {
    struct roofline_info info;
    const struct peak *peak;
    const struct peak_loop *loops[ROOFLINE_RATE_COUNT]; /* NULL: not here, or no loop */
    struct roofline_product product;
    uint64_t times[ROOFLINE_RATE_COUNT]; /* turns of the loop, or products, of a burst; 0: not chosen yet */
    char *memory;                        /* [bytes_max] */
    float *matrices; /* a, b and a result for each thread: [2 + threads, PRODUCT_SIDE, PRODUCT_SIDE] */
    struct span spans[ENGINE_THREADS_MAX];
    volatile float sink; /* keeps the compiler from dropping results, and with them the work */
};

/* What each thread does in a burst: `times` turns of a rate's loop, or products; or, without a rate, `times` passes
 * over `bytes` of its own. */
struct work {
    enum roofline_rate rate; /* ROOFLINE_RATE_COUNT: none */
    uint64_t times;
    size_t bytes;
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum precision precision_of(enum roofline_rate rate)
{
    return rate == ROOFLINE_PRODUCT_BF16   ? PRECISION_BF16
           : rate == ROOFLINE_PRODUCT_INT8 ? PRECISION_INT8
                                           : PRECISION_F32;
}

static float work_run(const struct roofline *r, const struct work *w, size_t thread)
{
    const size_t matrix = (size_t)PRODUCT_SIDE * PRODUCT_SIDE;
    float *c = r->matrices + (2 + thread) * matrix;
    float result = 0.0f;
    if (w->rate < ROOFLINE_RATE_COUNT && r->loops[w->rate] != NULL) {
        r->loops[w->rate]->run(&result, w->times);
        return result;
    }
    for (uint64_t i = 0; i < w->times; i++) {
        if (w->rate == ROOFLINE_RATE_COUNT)
            result += (float)r->peak->read(r->memory + thread * w->bytes, w->bytes);
        else if (w->rate == ROOFLINE_OPENBLAS)
            peak_openblas(c, r->matrices, r->matrices + matrix, PRODUCT_SIDE);
        else
            roofline_product_run(&r->product, precision_of(w->rate), c, r->matrices);
    }
    return result + c[0];
}

/* Seconds that the team takes; *team is how many threads there were, fewer where the environment allows no more. */
static double burst(struct roofline *r, const struct work *w, uint32_t threads, uint32_t *team)
{
    struct work warm = *w;
    uint32_t members = 1;
    warm.times = (w->times + 7) / 8; /* until the processor has woken up its wide units, and its caches hold matrices */
#ifdef _OPENMP
    omp_set_num_threads((int)threads); /* a team of one too: OpenBLAS looks at it (engine.c) */
#endif
#pragma omp parallel num_threads(threads)
    {
        const size_t thread = team_thread();
        float result = work_run(r, &warm, thread);
#pragma omp barrier
        r->spans[thread].start = now();
        result += work_run(r, w, thread);
        r->spans[thread].end = now();
#pragma omp critical
        {
            r->sink = result;
            members = thread + 1 > members ? (uint32_t)thread + 1 : members;
        }
    }
    double start = r->spans[0].start, end = r->spans[0].end;
    for (uint32_t i = 1; i < members; i++) {
        start = r->spans[i].start < start ? r->spans[i].start : start;
        end = r->spans[i].end > end ? r->spans[i].end : end;
    }
    *team = members;
    return end - start;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

/* Each thread writes its own part first, so that the part lies close to it. In large pages where available: what is
 * measured is the memory, not the translation of addresses. */
static void touch(struct roofline *r, uint64_t bytes)
{
    const size_t pages = (size_t)(bytes + HUGE_PAGE - 1) / HUGE_PAGE;
    (void)madvise(r->memory, pages * HUGE_PAGE, MADV_HUGEPAGE);
#ifdef _OPENMP
    omp_set_num_threads((int)r->info.threads);
#endif
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < pages; i++)
        memset(r->memory + i * HUGE_PAGE, 1, HUGE_PAGE);
}

static enum status take_memory(struct roofline *r, uint64_t bytes, struct error *err)
{
    const size_t matrices = (2 + (size_t)r->info.threads) * PRODUCT_SIDE * PRODUCT_SIDE;
    r->memory = aligned_alloc(HUGE_PAGE, (size_t)(bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    r->matrices = aligned_alloc(64, matrices * sizeof *r->matrices);
    if (r->memory == NULL || r->matrices == NULL)
        return error_set(err, ERR_NOMEM, "cannot allocate %" PRIu64 " bytes to measure this machine with",
                         bytes + matrices * sizeof *r->matrices);
    touch(r, bytes);
    for (size_t i = 0; i < matrices; i++)
        r->matrices[i] = (float)(i % 17) * 0.0625f - 0.5f;
    return OK;
}

enum status roofline_open(struct roofline **ret, const char *isa, uint32_t threads, uint64_t bytes_max,
                          struct error *err)
{
    if (peak_select(isa) == NULL)
        return error_set_param(err, ERR_ARGUMENT, "isa",
                               "instruction set \"%s\" is unknown or not supported by this machine", isa);
    if (threads > ENGINE_THREADS_MAX)
        return error_set_param(err, ERR_ARGUMENT, "threads", "threads is %u, expected 0 to %u", threads,
                               ENGINE_THREADS_MAX);
    if (bytes_max == 0 || bytes_max > ROOFLINE_BYTES_MAX)
        return error_set_param(err, ERR_ARGUMENT, "bytes_max", "the working set is %" PRIu64 " bytes, expected 1 to %u",
                               bytes_max, ROOFLINE_BYTES_MAX);
    struct roofline *r = calloc(1, sizeof *r);
    if (r == NULL)
        return error_set(err, ERR_NOMEM, "cannot allocate %zu bytes", sizeof *r);
    gemm_setup();
    r->peak = peak_select(isa);
    r->info.isa = kernels_select(isa)->isa;
    r->info.best = kernels_select(isa) == kernels_select(NULL);
    r->info.threads = threads != 0 ? threads : processors_count();
#ifndef _OPENMP
    r->info.threads = 1;
#endif
    enum status st = take_memory(r, bytes_max, err);
    if (st == OK)
        st = roofline_product_init(&r->product, kernels_select(isa), r->info.threads,
                                   r->matrices + (size_t)PRODUCT_SIDE * PRODUCT_SIDE, PRODUCT_SIDE, err);
    if (st != OK) {
        roofline_close(r);
        return st;
    }
    r->loops[ROOFLINE_FP32] = &r->peak->fp32;
    r->loops[ROOFLINE_BF16] = peak_bf16(isa);
    r->loops[ROOFLINE_INT8] = peak_int8(isa);
    *ret = r;
    return OK;
}

void roofline_close(struct roofline *r)
{
    if (r == NULL)
        return;
    roofline_product_clear(&r->product);
    free(r->memory);
    free(r->matrices);
    free(r);
}

const char *roofline_rate_name(enum roofline_rate rate)
{
    static const char *const names[] = {
#define X(key, name, bound, text) name,
        ROOFLINE_RATES(X)
#undef X
    };
    return names[rate];
}

const char *roofline_rate_text(enum roofline_rate rate)
{
    static const char *const texts[] = {
#define X(key, name, bound, text) text,
        ROOFLINE_RATES(X)
#undef X
    };
    return texts[rate];
}

enum roofline_rate roofline_rate_bound(enum roofline_rate rate)
{
    static const enum roofline_rate bounds[] = {
#define X(key, name, bound, text) ROOFLINE_##bound,
        ROOFLINE_RATES(X)
#undef X
    };
    return bounds[rate];
}

const struct roofline_info *roofline_info(const struct roofline *r)
{
    return &r->info;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

bool roofline_has(const struct roofline *r, enum roofline_rate rate)
{
    if (rate == ROOFLINE_OPENBLAS)
        return true;
    return roofline_rate_bound(rate) == rate ? r->loops[rate] != NULL
                                             : roofline_product_has(&r->product, precision_of(rate));
}

/* How many times fill about COMPUTE_SECONDS: by the fastest of a few trials, which others on the machine may delay; by
 * a single trial if it takes longer than any delay. */
static uint64_t choose_times(struct roofline *r, enum roofline_rate rate)
{
    const struct work trial = {.rate = rate, .times = r->loops[rate] != NULL ? TRIAL_TURNS : 1};
    double least = COMPUTE_SECONDS;
    for (int i = 0; i < TRIALS; i++) {
        uint32_t team;
        const double seconds = burst(r, &trial, 1, &team);
        least = seconds < least ? seconds : least;
        if (seconds > TRIAL_SECONDS_MAX)
            break;
    }
    return (uint64_t)((double)trial.times * COMPUTE_SECONDS / (least > 1e-6 ? least : 1e-6));
}

double roofline_compute(struct roofline *r, enum roofline_rate rate, uint32_t threads)
{
    if (r->times[rate] == 0)
        r->times[rate] = choose_times(r, rate);
    const struct work w = {.rate = rate, .times = r->times[rate]};
    const double flop = r->loops[rate] != NULL ? r->loops[rate]->flop : PRODUCT_FLOP;
    uint32_t team;
    const double seconds = burst(r, &w, threads, &team);
    return team * (double)w.times * flop / seconds;
}

double roofline_read(struct roofline *r, uint64_t bytes, uint32_t threads)
{
    const uint64_t pieces = bytes / threads / PEAK_READ_BYTES;
    const size_t each = (size_t)(pieces > 0 ? pieces : 1) * PEAK_READ_BYTES;
    const double passes = READ_BYTES / ((double)each * threads);
    const struct work w = {.rate = ROOFLINE_RATE_COUNT, .times = passes > 1.0 ? (uint64_t)passes : 1, .bytes = each};
    uint32_t team;
    const double seconds = burst(r, &w, threads, &team);
    return team * (double)each * (double)w.times / seconds;
}
