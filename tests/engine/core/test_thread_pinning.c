/* test_thread_pinning.c - threads of a team that keep to processors: which, when, and when not. */
#include <pthread.h>
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

#include "engine/core/team.h"
#include "engine/core/thread_pinning.h"
#include "engine/engine.h"
#include "tests/support/daemon.h"
#include "weights/model.h"

#define LM "tests/data/golden/lm-local-8"
#define PLACES_OF_CHILD "places-of-child"

/* So many streams that each of so many threads takes whole ones (block_rows_of_task). */
enum { PROCESSORS_MAX = 4, STREAMS = 24 * PROCESSORS_MAX };
enum { LIMIT_S = 580, CHILD_FAILED = 100 };

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

static bool has_all(void)
{
    const cpu_set_t own = own_processors();
    return CPU_EQUAL(&own, &all);
}

static bool has_only(uint16_t processor)
{
    const cpu_set_t own = own_processors();
    return CPU_COUNT(&own) == 1 && CPU_ISSET(processor, &own);
}

static bool confine_to(uint16_t processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

static int restore(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof all, &all);
}

/* ---- places ----------------------------------------------------------------------------------------------------- */

static struct thread_pinning pinning; /* for as many threads as processors, opened by the main thread */
static struct thread_pinning none;    /* the same for one more: there are none */

static int set_up(void **state)
{
    (void)state;
    thread_pinning_init(&pinning, processors);
    thread_pinning_init(&none, processors + 1);
    return 0;
}

/* Run `what` in a thread that is new, and so free of what others did; the test fails where it returns something. */
static void assert_in_thread(void *(*what)(void *))
{
    pthread_t thread;
    void *says = NULL;
    assert_int_equal(pthread_create(&thread, NULL, what, NULL), 0);
    assert_int_equal(pthread_join(thread, &says), 0);
    if (says != NULL)
        fail_msg("%s", (const char *)says);
}

/* For such a thread: it returns the condition that failed. */
#define EXPECT(condition)                \
    do {                                 \
        if (!(condition))                \
            return (void *)(#condition); \
    } while (0)

static void there_is_one_for_each_processor(void **state)
{
    (void)state;
    assert_int_equal(pinning.count, processors);
    for (uint32_t i = 0; i < pinning.count; i++) {
        assert_true(CPU_ISSET(pinning.processors[i], &all));
        assert_true(i == 0 || pinning.processors[i] > pinning.processors[i - 1]);
    }
}

static void *keep_to_none(void *arg)
{
    thread_pinning_pin(&none, 0);
    EXPECT(has_all());
    thread_pinning_unpin(&none);
    EXPECT(has_all());
    return arg;
}

static void there_is_none_for_fewer_or_more_threads(void **state)
{
    struct thread_pinning p;
    (void)state;
    assert_int_equal(none.count, 0);
    thread_pinning_init(&p, ENGINE_THREADS_MAX + 1);
    assert_int_equal(p.count, 0);
    thread_pinning_init(&p, processors - 1);
    assert_int_equal(p.count, 0);
    assert_in_thread(keep_to_none);
}

/* With what the process is allowed, not with what the machine has. */
static void they_are_among_those_that_are_allowed(void **state)
{
    const uint16_t processor = pinning.processors[processors - 1];
    struct thread_pinning p;
    (void)state;
    assert_true(confine_to(processor));
    thread_pinning_init(&p, 1);
    assert_int_equal(p.count, 1);
    assert_int_equal(p.processors[0], processor);
}

static void *keep_and_leave(void *arg)
{
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < processors; i++) {
            thread_pinning_pin(&pinning, i);
            thread_pinning_pin(&pinning, i);
            EXPECT(has_only(pinning.processors[i]));
        }
        thread_pinning_unpin(&pinning);
        EXPECT(has_all());
    }
    thread_pinning_pin(&pinning, 0);
    thread_pinning_pin(&none, 0); /* an engine that has no places */
    EXPECT(has_all());
    return arg;
}

static void a_thread_keeps_to_its_own_and_leaves_it(void **state)
{
    (void)state;
    assert_in_thread(keep_and_leave);
}

static void *leave_what_is_inherited(void *arg)
{
    EXPECT(has_only(pinning.processors[0]));
    thread_pinning_unpin(&pinning);
    EXPECT(has_all());
    return arg;
}

static void *keep_to_none_what_is_inherited(void *arg)
{
    EXPECT(has_only(pinning.processors[0]));
    thread_pinning_pin(&none, 1);
    EXPECT(has_all());
    return arg;
}

static void *keep_what_is_inherited(void *arg)
{
    EXPECT(has_only(pinning.processors[0]));
    thread_pinning_pin(&pinning, processors - 1);
    EXPECT(has_only(pinning.processors[processors - 1]));
    return arg;
}

static void *make_threads(void *arg)
{
    static void *(*const heirs[])(void *) = {leave_what_is_inherited, keep_to_none_what_is_inherited,
                                             keep_what_is_inherited};
    thread_pinning_pin(&pinning, 0);
    for (size_t i = 0; i < sizeof heirs / sizeof heirs[0]; i++) {
        pthread_t heir;
        void *says = NULL;
        EXPECT(pthread_create(&heir, NULL, heirs[i], NULL) == 0);
        EXPECT(pthread_join(heir, &says) == 0);
        if (says != NULL)
            return says;
    }
    return arg;
}

static void one_made_by_a_thread_that_keeps_does_as_it_is_told(void **state)
{
    (void)state;
    assert_in_thread(make_threads);
}

/* As taskset does. */
static void *be_moved_while_kept(void *arg)
{
    thread_pinning_pin(&pinning, 0);
    EXPECT(confine_to(pinning.processors[processors - 1]));
    thread_pinning_unpin(&pinning);
    EXPECT(has_only(pinning.processors[processors - 1]));
    thread_pinning_pin(&pinning, 0);
    EXPECT(has_only(pinning.processors[processors - 1]));
    return arg;
}

static void *be_moved_while_free(void *arg)
{
    thread_pinning_pin(&pinning, 0);
    thread_pinning_unpin(&pinning);
    EXPECT(confine_to(pinning.processors[processors - 1]));
    thread_pinning_pin(&pinning, 0);
    EXPECT(has_only(pinning.processors[processors - 1]));
    return arg;
}

/* taskset for the whole process, to the very place where a thread is. */
static void *be_confined_to_the_place(void *arg)
{
    thread_pinning_pin(&pinning, 0);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(pinning.processors[0], &first);
    EXPECT(sched_setaffinity(getpid(), sizeof first, &first) == 0);
    thread_pinning_unpin(&pinning);
    EXPECT(has_only(pinning.processors[0]));
    return arg;
}

static void *keep_where_all_are_confined(void *arg)
{
    EXPECT(has_only(pinning.processors[0]));
    thread_pinning_pin(&pinning, processors - 1);
    EXPECT(has_only(pinning.processors[0]));
    return arg;
}

/* The same before the thread has done anything. */
static void *be_confined_before_the_first_pass(void *arg)
{
    cpu_set_t first;
    pthread_t heir;
    void *says = NULL;
    CPU_ZERO(&first);
    CPU_SET(pinning.processors[0], &first);
    EXPECT(sched_setaffinity(getpid(), sizeof first, &first) == 0);
    EXPECT(sched_setaffinity(0, sizeof first, &first) == 0);
    EXPECT(pthread_create(&heir, NULL, keep_where_all_are_confined, NULL) == 0);
    EXPECT(pthread_join(heir, &says) == 0);
    if (says != NULL)
        return says;
    return keep_where_all_are_confined(arg);
}

static void who_is_moved_by_others_stays_there(void **state)
{
    (void)state;
    if (processors < 2) {
        print_message("skipped: with one processor nobody can be moved\n");
        skip();
    }
    assert_in_thread(be_moved_while_kept);
    assert_in_thread(be_moved_while_free);
    assert_in_thread(be_confined_to_the_place);
    assert_int_equal(restore(state), 0);
    assert_in_thread(be_confined_before_the_first_pass);
}

/* OpenMP reads its environment when a program starts: this one does so again, with one processor, and says whether
 * there is a place for one thread. */
static bool has_place_with(const char *name, const char *value)
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!confine_to(pinning.processors[0]) || setenv(name, value, 1) != 0)
            _exit(CHILD_FAILED);
        (void)execl("/proc/self/exe", PLACES_OF_CHILD, (char *)NULL);
        _exit(CHILD_FAILED);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_in_range(WEXITSTATUS(status), 0, 1);
    return WEXITSTATUS(status) == 1;
}

static void there_is_none_where_the_user_says_so(void **state)
{
    (void)state;
    assert_true(has_place_with("OMP_DYNAMIC", "false"));
    assert_false(has_place_with("OMP_DYNAMIC", "true"));
    assert_false(has_place_with("OMP_PROC_BIND", "true"));
    assert_false(has_place_with("OMP_PROC_BIND", "false"));
}

static int say_places(void)
{
    struct thread_pinning p;
    thread_pinning_init(&p, 1);
    return (int)p.count;
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

/* Do the threads of the caller's team keep to a processor each, or none of them? */
static bool are_kept(bool kept)
{
    uint32_t distinct;
    const uint32_t sum = team_processors(&distinct);
    return sum == (kept ? processors : processors * processors) && distinct == processors;
}

static struct model *model;
static struct engine *kept_engine, *plain_engine; /* opened by the main thread */

/* A smaller team ends threads, and those that are created for the next one run where their creator does. */
static void lose_threads(void)
{
    if (processors > 2) {
#pragma omp parallel num_threads(2)
        (void)team_thread();
    }
}

/* Bit for bit. */
static bool are_equal(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static void *feed_engines(void *arg)
{
    static float got[STREAMS * BYTE_VALUES], want[STREAMS * BYTE_VALUES];
    feed(plain_engine, STREAMS, want);
    EXPECT(are_kept(false));
    feed(kept_engine, STREAMS, got);
    EXPECT(are_kept(true));
    EXPECT(are_equal(got, want, sizeof got));
    lose_threads();
    feed(kept_engine, STREAMS, got);
    EXPECT(are_kept(true));
    lose_threads();
    engine_stream_reset(kept_engine, 0);
    feed(kept_engine, 1, got); /* the first such pass is the whole team's (pass_choice.h) */
    EXPECT(are_kept(false));
    EXPECT(are_equal(got, want, BYTE_VALUES * sizeof *got));
    feed(kept_engine, STREAMS, got);
    EXPECT(are_kept(true));
    engine_stream_reset(kept_engine, 0);
    engine_stream_reset(kept_engine, 1);
    feed(kept_engine, 2, got); /* a barrier behind each product */
    EXPECT(are_kept(false));
    EXPECT(are_equal(got, want, (size_t)2 * BYTE_VALUES * sizeof *got));
    return arg;
}

static void its_threads_keep_to_theirs_while_each_has_rows_of_its_own(void **state)
{
    struct error err;
    const struct engine_options options = {
        .threads = processors, .streams_max = STREAMS, .rows_max = STREAMS, .keeps_places = true};
    struct engine_options without = options;
    (void)state;
    without.keeps_places = false;
    if (model_load(&model, LM, NULL, NULL, &err) != OK || engine_open(&kept_engine, model, &options, &err) != OK ||
        engine_open(&plain_engine, model, &without, &err) != OK)
        fail_msg("%s", err.message);
    assert_in_thread(feed_engines);
}

static int close_engines(void **state)
{
    engine_close(plain_engine);
    engine_close(kept_engine);
    model_free(model);
    return restore(state);
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
#define PLACES(test) cmocka_unit_test_setup_teardown(test, set_up, restore)
        PLACES(there_is_one_for_each_processor),
        PLACES(there_is_none_for_fewer_or_more_threads),
        PLACES(they_are_among_those_that_are_allowed),
        PLACES(a_thread_keeps_to_its_own_and_leaves_it),
        PLACES(one_made_by_a_thread_that_keeps_does_as_it_is_told),
        PLACES(who_is_moved_by_others_stays_there),
        PLACES(there_is_none_where_the_user_says_so),
        cmocka_unit_test_teardown(its_threads_keep_to_theirs_while_each_has_rows_of_its_own, close_engines),
    };
    (void)argc;
    if (strcmp(argv[0], PLACES_OF_CHILD) == 0)
        return say_places();
    test_limit_s(LIMIT_S);
    all = own_processors();
    for (int i = CPU_SETSIZE - 1; CPU_COUNT(&all) > PROCESSORS_MAX; i--)
        CPU_CLR((unsigned)i, &all);
    if (sched_setaffinity(0, sizeof all, &all) != 0)
        return EXIT_FAILURE;
    processors = (uint32_t)CPU_COUNT(&all);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
