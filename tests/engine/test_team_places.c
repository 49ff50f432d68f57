/* test_team_places.c - threads of a team that keep to processors: which, when, and when not. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "engine/team.h"
#include "engine/team_places.h"
#include "tests/support/daemon.h"
#include "weights/model.h"

#define LM "tests/data/golden/lm-local-8"
#define PLACES_OF_CHILD "places-of-child"

enum { STREAMS = 4, LIMIT_S = 60 };

static cpu_set_t all; /* of the process, as it began */
static uint32_t processors;

static cpu_set_t own_processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    return set;
}

static int restore(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof all, &all);
}

/* ---- places ----------------------------------------------------------------------------------------------------- */

static void there_is_one_for_each_processor(void **state)
{
    struct team_places p;
    (void)state;
    team_places_init(&p, processors);
    assert_int_equal(p.count, processors);
    for (uint32_t i = 0; i < p.count; i++) {
        assert_true(CPU_ISSET(p.processors[i], &all));
        assert_true(i == 0 || p.processors[i] > p.processors[i - 1]);
    }
}

static void there_is_none_for_fewer_or_more_threads(void **state)
{
    struct team_places p;
    (void)state;
    team_places_init(&p, processors + 1);
    assert_int_equal(p.count, 0);
    team_places_init(&p, ENGINE_THREADS_MAX + 1);
    assert_int_equal(p.count, 0);
    team_places_init(&p, processors - 1);
    assert_int_equal(p.count, 0);
    team_places_keep(&p, 0); /* is nothing */
    team_places_leave(&p);
    const cpu_set_t own = own_processors();
    assert_true(CPU_EQUAL(&own, &all));
}

/* With what the process is allowed, not with what the machine has. */
static void they_are_among_those_that_are_allowed(void **state)
{
    struct team_places p;
    cpu_set_t last;
    (void)state;
    team_places_init(&p, processors);
    const uint16_t processor = p.processors[processors - 1];
    CPU_ZERO(&last);
    CPU_SET(processor, &last);
    assert_int_equal(sched_setaffinity(0, sizeof last, &last), 0);
    team_places_init(&p, 1);
    assert_int_equal(p.count, 1);
    assert_int_equal(p.processors[0], processor);
}

static void a_thread_keeps_to_its_own_and_leaves_it(void **state)
{
    struct team_places p;
    (void)state;
    team_places_init(&p, processors);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < processors; i++) {
            team_places_keep(&p, i);
            team_places_keep(&p, i);
            const cpu_set_t own = own_processors();
            assert_int_equal(CPU_COUNT(&own), 1);
            assert_true(CPU_ISSET(p.processors[i], &own));
        }
        team_places_leave(&p);
        const cpu_set_t own = own_processors();
        assert_true(CPU_EQUAL(&own, &all));
    }
}

/* OpenMP reads its environment when a program starts: this one does so again, with OMP_PROC_BIND and one processor, and
 * says how many places there are for one thread. */
static void there_is_none_where_the_user_binds(void **state)
{
    (void)state;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
            if (CPU_ISSET(i, &all))
                CPU_SET(i, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0 || setenv("OMP_PROC_BIND", "true", 1) != 0)
            _exit(EXIT_FAILURE);
        (void)execl("/proc/self/exe", PLACES_OF_CHILD, (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int say_places(void)
{
    struct team_places p;
    team_places_init(&p, 1);
    return p.count == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- an engine's team ------------------------------------------------------------------------------------------- */

static void feed(struct engine *e, size_t streams, float *logits)
{
    static const uint8_t text[] = "a";
    struct engine_part parts[STREAMS];
    for (uint32_t i = 0; i < streams; i++)
        parts[i] =
            (struct engine_part){.stream = i, .count = 1, .bytes = text, .logits = logits + (size_t)i * BYTE_VALUES};
    engine_feed(e, parts, streams);
}

/* How many processors the threads of the caller's team may run on, each counted for each thread: as many as threads
 * where each keeps to one. *distinct: how many these are. */
static uint32_t team_processors(uint32_t *distinct)
{
    cpu_set_t any;
    uint32_t sum = 0;
    CPU_ZERO(&any);
#pragma omp parallel num_threads(processors)
    {
        const cpu_set_t own = own_processors();
#pragma omp critical
        {
            CPU_OR(&any, &any, &own);
            sum += (uint32_t)CPU_COUNT(&own);
        }
    }
    *distinct = (uint32_t)CPU_COUNT(&any);
    return sum;
}

static void assert_places(bool kept)
{
    uint32_t distinct;
    assert_int_equal(team_processors(&distinct), kept ? processors : processors * processors);
    assert_int_equal(distinct, processors);
}

static void its_threads_keep_to_theirs_while_there_are_rows_for_all(void **state)
{
    struct model *m = NULL;
    struct engine *e = NULL, *plain = NULL;
    struct error err;
    float *got = calloc((size_t)STREAMS * BYTE_VALUES, sizeof *got);
    float *want = calloc((size_t)STREAMS * BYTE_VALUES, sizeof *want);
    const struct engine_options options = {
        .threads = processors, .streams_max = STREAMS, .rows_max = STREAMS, .keeps_places = true};
    struct engine_options without = options;
    (void)state;
    without.keeps_places = false;
    assert_non_null(got);
    assert_non_null(want);
    if (model_load(&m, LM, NULL, NULL, &err) != OK || engine_open(&e, m, &options, &err) != OK ||
        engine_open(&plain, m, &without, &err) != OK)
        fail_msg("%s", err.message);
    feed(plain, STREAMS, want);
    assert_places(false);
    feed(e, STREAMS, got);
    assert_places(true);
    assert_memory_equal(got, want, (size_t)STREAMS * BYTE_VALUES * sizeof *got);
    /* A smaller team ends threads, and those that are made for the next are where who makes them is. */
    if (processors > 2) {
#pragma omp parallel num_threads(2)
        (void)team_thread();
    }
    feed(e, STREAMS, got);
    assert_places(true);
    engine_stream_reset(e, 0);
    feed(e, 1, got); /* the first such pass is the whole team's (team_choice.h) */
    assert_places(false);
    assert_memory_equal(got, want, BYTE_VALUES * sizeof *got);
    feed(e, 2, got);
    assert_places(true);
    engine_close(plain);
    engine_close(e);
    free(want);
    free(got);
    model_free(m);
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(there_is_one_for_each_processor, restore),
        cmocka_unit_test_teardown(there_is_none_for_fewer_or_more_threads, restore),
        cmocka_unit_test_teardown(they_are_among_those_that_are_allowed, restore),
        cmocka_unit_test_teardown(a_thread_keeps_to_its_own_and_leaves_it, restore),
        cmocka_unit_test_teardown(there_is_none_where_the_user_binds, restore),
        cmocka_unit_test_teardown(its_threads_keep_to_theirs_while_there_are_rows_for_all, restore),
    };
    (void)argc;
    if (strcmp(argv[0], PLACES_OF_CHILD) == 0)
        return say_places();
    test_limit_s(LIMIT_S);
    all = own_processors();
    processors = (uint32_t)CPU_COUNT(&all);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
