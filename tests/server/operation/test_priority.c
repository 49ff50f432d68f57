/* test_priority.c - the order that priorities promise, of jobs that wait for one slot in the real engine: as if each
 * step of priority were 50 ms that a job had come earlier, so that none waits for ever. No HTTP; how a request names
 * its priority is test_generate_request.c's. Nothing depends on how fast the machine is: what came when is looked at
 * afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/control/hosting.h"
#include "server/core/clock.h"
#include "server/models/registry.h"
#include "server/operation/batcher.h"
#include "server/operation/generate.h"
#include "tests/support/daemon.h"
#include "tests/support/job_party.h"
#include "tests/support/random.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LATER_S = 1000, JOBS_MAX = 400, STEP_MS = 50 };

static struct settings settings;
static struct hosting *served;
static struct hosted_model *text;
static struct party parties[JOBS_MAX];
static struct job *jobs[JOBS_MAX];
static size_t count; /* of both */

static int start(void **state)
{
    struct error err;
    (void)state;
    settings_init(&settings);
    (void)snprintf(settings.models_dir, sizeof settings.models_dir, "tests/data/models");
    settings.threads = 1;
    settings.streams_max = 1;
    settings.queue_jobs_max = JOBS_MAX;
    if (hosting_start(&served, &settings, NULL, &err) == OK)
        return registry_acquire(served->registry, NULL, TASK_TEXT_GENERATION, NULL, &text, &err) == OK ? 0 : -1;
    print_error("%s\n", err.message);
    return -1;
}

static int stop(void **state)
{
    (void)state;
    hosted_model_release(text);
    hosting_stop(served);
    hosting_free(served);
    return 0;
}

/* A text of so many bytes, to the end of what waits. */
static struct job *submit(int32_t priority, uint32_t max_tokens)
{
    struct generate_input in = {
        .prompt_count = 1, .n = 1, .max_tokens = max_tokens, .stream = true, .shift = true, .priority = priority};
    struct party *p = &parties[count];
    const struct job_waiter waiter = party_waiter(p);
    struct job *j = NULL;
    assert_true(count < JOBS_MAX);
    sampler_options_default(&in.sampler);
    j = party_generate(text, &in, max_tokens);
    party_init(p);
    job_attach(j, &waiter);
    assert_int_equal(
        job_submit(j, batcher_queue(served->batcher), text->lane, clock_now_ns() + LATER_S * CLOCK_NS_PER_S), OK);
    jobs[count++] = j;
    return j;
}

static void end_all(void)
{
    static uint8_t out[1 << 20];
    for (size_t i = 0; i < count; i++) {
        party_await(&parties[i], jobs[i]);
        (void)party_read(&parties[i], jobs[i], out, sizeof out);
    }
}

static void release_all(void)
{
    for (size_t i = 0; i < count; i++) {
        job_detach(jobs[i]);
        job_release(jobs[i]);
        party_clear(&parties[i]);
    }
    count = 0;
}

static int64_t turn_of(const struct job *j)
{
    return (int64_t)j->item.pushed_ns - (int64_t)j->item.priority * STEP_MS * (int64_t)CLOCK_NS_PER_MS;
}

static bool runs_before(const struct job *a, const struct job *b)
{
    return job_result(a)->started_ns < job_result(b)->started_ns;
}

/* One that was there when another began, and whose turn was before that other's, has begun before it. How many pairs
 * that says something about where it is not who came first. */
static unsigned assert_promise(void)
{
    unsigned overtakings = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            if (turn_of(jobs[i]) >= turn_of(jobs[k]) || jobs[i]->item.pushed_ns >= job_result(jobs[k])->started_ns)
                continue;
            if (!runs_before(jobs[i], jobs[k]))
                fail_msg("job %zu of priority %d ran before job %zu of priority %d, which came %+.1f ms from it", k,
                         jobs[k]->item.priority, i, jobs[i]->item.priority,
                         ((double)jobs[i]->item.pushed_ns - (double)jobs[k]->item.pushed_ns) / 1e6);
            overtakings += jobs[i]->item.pushed_ns > jobs[k]->item.pushed_ns;
        }
    return overtakings;
}

static void what_waits_runs_in_the_order_of_its_turns(void **state)
{
    static const int32_t priorities[] = {0, 1, -1, 2, -2, 100, -100, 3, 0, 99, -99, -3, 0, 1};
    struct random r = {7};
    (void)state;
    struct job *blocker = submit(0, 1000000);
    party_await(&parties[0], blocker); /* it has the slot */
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < ARRAY_LEN(priorities); i++) {
            (void)submit(priorities[i], 2);
            test_sleep_ms((long)random_below(&r, 12));
        }
    job_cancel(blocker, ERR_CLIENT_GONE);
    end_all();
    assert_true(assert_promise() > 100);
    for (size_t i = 1; i < count; i++) /* some of it in plain words: all came within less than 5 s */
        for (size_t k = 1; k < count && jobs[count - 1]->item.pushed_ns < jobs[1]->item.pushed_ns + 4 * CLOCK_NS_PER_S;
             k++) {
            if (jobs[i]->item.priority == 100 && jobs[k]->item.priority <= 3)
                assert_true(runs_before(jobs[i], jobs[k]));
            if (jobs[i]->item.priority == -100 && jobs[k]->item.priority >= -3)
                assert_true(runs_before(jobs[k], jobs[i]));
        }
    release_all();
}

/* Others of a higher priority come all the time, faster than they are worked off. */
static void a_lower_one_does_not_wait_for_ever(void **state)
{
    enum { AHEAD_MS = 4 * STEP_MS };
    (void)state;
    struct job *blocker = submit(0, 1000000);
    party_await(&parties[0], blocker);
    struct job *low = submit(-4, 2);
    bool begun = false;
    for (const int64_t end = test_now_ms() + AHEAD_MS + 150; test_now_ms() < end && count < JOBS_MAX - 1;) {
        (void)submit(0, 2);
        test_sleep_ms(1);
        if (!begun)
            job_cancel(blocker, ERR_CLIENT_GONE);
        begun = true;
    }
    while (test_now_ms() < (int64_t)(low->item.pushed_ns / CLOCK_NS_PER_MS) + AHEAD_MS + 20)
        test_sleep_ms(5);
    struct job *last = submit(0, 2); /* came later than all that low's priority is worth */
    end_all();
    (void)assert_promise();
    assert_true(runs_before(low, last));
    release_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_runs_in_the_order_of_its_turns),
        cmocka_unit_test(a_lower_one_does_not_wait_for_ever),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, stop);
}
