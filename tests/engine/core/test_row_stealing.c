/* test_row_stealing.c - rows that threads of a team give each other: one that waits gets half of what another has,
 * every row goes through every half of a block once and in order, and its bits are the same. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core/row_stealing.h"
#include "engine/engine.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "weights/model.h"

enum { THREADS = 4, ROWS = 160, HALVES = 12, PASSES = 300, LIMIT_S = 580 };

/* ---- two threads ------------------------------------------------------------------------------------------------ */

static struct row_stealing share;

static int set_up(void **state)
{
    (void)state;
    row_stealing_open(&share);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    row_stealing_close(&share);
    return 0;
}

static void *take_what_is_offered(void *arg)
{
    struct row_range *got = arg;
    if (!row_stealing_next(&share, 0, got))
        got->count = 0;
    struct row_range none;
    return row_stealing_next(&share, got->count, &none) ? arg : NULL;
}

/* Until nothing is offered any more. */
static void await_taken(void)
{
    for (bool is_taken = false; !is_taken; (void)sched_yield()) {
        (void)pthread_mutex_lock(&share.lock);
        is_taken = share.offered == 0;
        (void)pthread_mutex_unlock(&share.lock);
    }
}

static void who_waits_gets_half(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct row_range mine = {.count = 41, .halves = 3}, theirs, none;
        pthread_t other;
        void *took_more;
        row_stealing_begin(&share, 41);
        assert_int_equal(pthread_create(&other, NULL, take_what_is_offered, &theirs), 0);
        while (atomic_load(&share.wanted) == 0)
            (void)sched_yield();
        row_stealing_offer(&share, &mine);
        await_taken();
        assert_int_equal(mine.first, 0);
        assert_int_equal(mine.count, 21);
        row_stealing_offer(&share, &mine); /* nobody else waits */
        assert_int_equal(mine.count, 21);
        assert_false(row_stealing_next(&share, mine.count, &none));
        assert_int_equal(pthread_join(other, &took_more), 0);
        assert_null(took_more);
        assert_int_equal(theirs.first, 21);
        assert_int_equal(theirs.count, 20);
        assert_int_equal(theirs.halves, 3);
        assert_int_equal(atomic_load(&share.wanted), 0);
    }
}

static void few_rows_stay_where_they_are(void **state)
{
    struct row_range mine = {.count = (size_t)2 * ROW_STEALING_MIN - 1}, theirs, none;
    pthread_t other;
    (void)state;
    row_stealing_begin(&share, mine.count);
    assert_int_equal(pthread_create(&other, NULL, take_what_is_offered, &theirs), 0);
    while (atomic_load(&share.wanted) == 0)
        (void)sched_yield();
    row_stealing_offer(&share, &mine);
    assert_int_equal(mine.count, 2 * ROW_STEALING_MIN - 1);
    assert_false(row_stealing_next(&share, mine.count, &none));
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(theirs.count, 0);
}

/* ---- a team ----------------------------------------------------------------------------------------------------- */

struct member {
    struct row_range first; /* its own */
    struct random rng;
    size_t given; /* rows that it got from others */
    pthread_t thread;
};

static atomic_uint halves_done[ROWS];
static atomic_uint out_of_order;

/* Now and then a thread is held up. */
static size_t work(struct member *m, struct row_range r)
{
    for (; r.halves < HALVES;) {
        for (size_t row = r.first; row < r.first + r.count; row++)
            if (atomic_fetch_add(&halves_done[row], 1) != r.halves)
                (void)atomic_fetch_add(&out_of_order, 1);
        for (uint32_t yields = random_below(&m->rng, 8) == 0 ? 20 : 0; yields > 0; yields--)
            (void)sched_yield();
        r.halves++;
        if (r.halves < HALVES)
            row_stealing_offer(&share, &r);
    }
    return r.count;
}

static void *be_member(void *arg)
{
    struct member *m = arg;
    struct row_range r;
    size_t through = work(m, m->first);
    while (row_stealing_next(&share, through, &r)) {
        m->given += r.count;
        through = work(m, r);
    }
    return NULL;
}

static void every_row_goes_all_the_way_once(void **state)
{
    struct random rng = {7};
    size_t given = 0;
    (void)state;
    for (int pass = 0; pass < PASSES; pass++) {
        struct member team[THREADS] = {{.given = 0}};
        const size_t rows = 1 + random_below(&rng, ROWS);
        size_t first = 0;
        memset(halves_done, 0, sizeof halves_done);
        row_stealing_begin(&share, rows);
        for (size_t i = 0; i < THREADS; i++) { /* some have none */
            const size_t count = i + 1 < THREADS ? random_below(&rng, (uint32_t)(rows - first) + 1) : rows - first;
            team[i].first = (struct row_range){.first = first, .count = count};
            team[i].rng = (struct random){(uint64_t)pass * THREADS + i};
            first += count;
            assert_int_equal(pthread_create(&team[i].thread, NULL, be_member, &team[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(team[i].thread, NULL), 0);
            given += team[i].given;
        }
        for (size_t row = 0; row < rows; row++)
            assert_int_equal(atomic_load(&halves_done[row]), HALVES);
        assert_int_equal(atomic_load(&share.wanted), 0);
    }
    assert_int_equal(atomic_load(&out_of_order), 0);
    assert_true(given > 0);
}

/* ---- the engine ------------------------------------------------------------------------------------------------- */

enum { STREAMS = 56, STEPS = 24 };

static struct engine *open_engine(const struct model *m, uint32_t threads)
{
    const struct engine_options o = {.threads = threads, .streams_max = STREAMS, .rows_max = STREAMS};
    struct engine *e = NULL;
    struct error err;
    if (engine_open(&e, m, &o, &err) != OK)
        fail_msg("%s", err.message);
    return e;
}

/* [STEPS][STREAMS][256] logits, the streams side by side or one after the other. */
static float *feed(struct engine *e, uint32_t at_a_time)
{
    float *logits = calloc((size_t)STEPS * STREAMS * BYTE_VALUES, sizeof *logits);
    assert_non_null(logits);
    for (uint32_t first = 0; first < STREAMS; first += at_a_time)
        for (uint32_t step = 0; step < STEPS; step++) {
            struct engine_part parts[STREAMS];
            uint8_t bytes[STREAMS];
            for (uint32_t i = 0; i < at_a_time; i++) {
                bytes[i] = (uint8_t)(7 * (first + i) + 31 * step);
                parts[i] = (struct engine_part){
                    .stream = first + i,
                    .count = 1,
                    .bytes = &bytes[i],
                    .logits = logits + ((size_t)step * STREAMS + first + i) * BYTE_VALUES,
                };
            }
            engine_feed(e, parts, at_a_time);
        }
    return logits;
}

/* Two threads on one processor: the one that has it does all of its own rows while the other has not begun, and gets
 * half of the other's then. Last, for the whole process stays there. */
static void given_rows_keep_their_bits(void **state)
{
    static const char *const dirs[] = {"tests/data/golden/lm-local-8", "tests/data/golden/lm-conv-heads4-k5",
                                       "tests/data/models/enwik8-aft-local"};
    cpu_set_t all, one;
    (void)state;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        struct model *m = NULL;
        struct error err;
        if (model_load(&m, dirs[i], NULL, NULL, &err) != OK)
            fail_msg("%s", err.message);
        struct engine *alone = open_engine(m, 1), *team = open_engine(m, 2);
        float *want = feed(alone, 1), *got = feed(team, STREAMS);
        assert_memory_equal(got, want, (size_t)STEPS * STREAMS * BYTE_VALUES * sizeof *got);
        free(got);
        free(want);
        engine_close(team);
        engine_close(alone);
        model_free(m);
    }
}

int main(void)
{
#define SHARED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        SHARED(who_waits_gets_half),
        SHARED(few_rows_stay_where_they_are),
        SHARED(every_row_goes_all_the_way_once),
        cmocka_unit_test(given_rows_keep_their_bits),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
