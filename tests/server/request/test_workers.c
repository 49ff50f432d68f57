/* test_workers.c - what the workers do with jobs: before and after the engine, in which order, with how much memory,
 * and what becomes of those that are no longer wanted. No engine: the test plays its thread. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/mailbox.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/request/workers.h"
#include "tests/support/daemon.h"
#include "tests/support/job_party.h"

#define KB UINT64_C(1024)
#define MUCH_NS UINT64_C(1000000000) /* by far too much to do at once */

enum { LIMIT_S = 580, LATER_S = 1000, JOBS_MAX = 8, BATCH = 1, AHEAD = 3 * BATCH, BUDGET_MB = 1 };

/* A job, who waits for it, and what its work did. */
struct trial {
    struct party party;
    struct job *job;
    sem_t *gate;        /* `preprocess` waits for it; NULL: it does not */
    enum status result; /* of `preprocess` */
    enum status postprocesses;
    uint64_t keeps;
    atomic_int preprocessed, postprocessed;
    pthread_t preparer, concluder;
};

enum { ENGINE_COST = 7 };

struct scene {
    struct settings settings;
    struct mailboxes *mailboxes;
    struct workers *workers;
    struct queue *engine;
    struct hosted_model *model;
    struct trial trials[JOBS_MAX];
    uint32_t count;
    sem_t gate;
};

static atomic_uint at_once, most_at_once; /* in `preprocess` */

static struct trial *trial_of(const struct job *j)
{
    return j->work.arg;
}

static enum status preprocess(struct job *j, struct error *err)
{
    struct trial *t = trial_of(j);
    const unsigned now = atomic_fetch_add(&at_once, 1) + 1;
    if (now > atomic_load(&most_at_once))
        atomic_store(&most_at_once, now);
    t->preparer = pthread_self();
    (void)atomic_fetch_add(&t->preprocessed, 1);
    if (t->gate != NULL)
        (void)sem_wait(t->gate);
    (void)atomic_fetch_sub(&at_once, 1);
    j->work.retained = t->keeps;
    j->engine_cost = ENGINE_COST; /* known only now */
    return t->result == OK ? OK : error_set_param(err, t->result, "image[3]", "it is no picture");
}

static enum status postprocess(struct job *j, struct error *err)
{
    struct trial *t = trial_of(j);
    t->concluder = pthread_self();
    (void)atomic_fetch_add(&t->postprocessed, 1);
    return t->postprocesses == OK ? OK : error_set(err, t->postprocesses, "it could not be kept");
}

static const struct job_kind plain = {.ends_late = false};

static struct trial *add(struct scene *s, uint64_t bytes)
{
    struct trial *t = &s->trials[s->count++];
    const struct job_waiter waiter = party_waiter(&t->party);
    assert_true(s->count <= JOBS_MAX);
    struct error err;
    t->job = job_create(sizeof *t->job);
    assert_non_null(t->job);
    hosted_model_reference(s->model);
    job_take_model(t->job, s->model);
    (void)job_begin(t->job, &plain, 0, &err);
    job_attach(t->job, &waiter);
    t->keeps = bytes;
    t->job->work = (struct job_work){
        .preprocess = preprocess, .arg = t, .preprocess_ns = MUCH_NS, .preprocess_bytes = bytes, .pictures = 1};
    return t;
}

static enum status submit(struct scene *s, struct trial *t, struct error *err)
{
    return workers_submit(s->workers, t->job, s->engine, 0, clock_now_ns() + LATER_S * CLOCK_NS_PER_S, err);
}

static void submit_well(struct scene *s, struct trial *t)
{
    assert_int_equal(submit(s, t, NULL), OK);
}

static void await_prepared(const struct trial *t)
{
    while (atomic_load(&t->preprocessed) == 0)
        test_sleep_ms(1);
}

static void await_count(struct queue *q, uint32_t count)
{
    while (queue_count(q) != count)
        test_sleep_ms(1);
}

/* Until a thread has taken all up: each then has its memory, or waits for it. */
static void await_taken(const struct scene *s)
{
    while (workers_waiting(s->workers) != 0)
        test_sleep_ms(1);
}

/* As the engine's thread: the next job, which it ends with an answer. */
static void compute_one(struct scene *s)
{
    struct queue_item *item = queue_pop(s->engine, 0);
    assert_non_null(item);
    struct job *j = job_of_item(item);
    job_start(j, clock_now_ns());
    job_finish(j, FINISH_STOP, clock_now_ns());
}

static enum status result_of(struct trial *t)
{
    party_await(&t->party, t->job);
    return job_result(t->job)->status;
}

static struct workers_purpose decoding(uint32_t threads)
{
    return (struct workers_purpose){.threads = threads,
                                    .postprocess_max = 1000,
                                    .name = "pictures",
                                    .work = "decode pictures",
                                    .setting = "picture_threads",
                                    .nice = 10,
                                    .preprocess = METRIC_PICTURE_PREPARE,
                                    .postprocess = METRIC_PICTURE_DRAW};
}

static void start(struct scene *s, uint32_t threads)
{
    const struct workers_purpose purpose = decoding(threads);
    struct error err;
    if (workers_start(&s->workers, &purpose, &s->settings, s->mailboxes, &err) != OK)
        fail_msg("%s", err.message);
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    settings_init(&s->settings);
    s->settings.batch_images_max = BATCH;
    s->settings.pictures_memory_max_mb = BUDGET_MB;
    assert_int_equal(mailbox_create(&s->mailboxes, 1), OK);
    assert_int_equal(queue_create(&s->engine, 1, JOBS_MAX), OK);
    assert_int_equal(sem_init(&s->gate, 0, 0), 0);
    s->model = party_model();
    for (size_t i = 0; i < JOBS_MAX; i++)
        party_init(&s->trials[i].party);
    atomic_store(&most_at_once, 0);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        (void)sem_post(&s->gate);
    workers_stop(s->workers);
    for (struct queue_item *item; (item = queue_pop(s->engine, 0)) != NULL;)
        job_abort(job_of_item(item), ERR_UNAVAILABLE, NULL, clock_now_ns());
    for (uint32_t i = 0; i < s->count; i++) {
        job_detach(s->trials[i].job);
        job_release(s->trials[i].job);
    }
    workers_free(s->workers); /* asserts that all memory was given back */
    assert_int_equal(hosted_model_users(s->model), 1);
    hosted_model_release(s->model);
    for (size_t i = 0; i < JOBS_MAX; i++)
        party_clear(&s->trials[i].party);
    (void)sem_destroy(&s->gate);
    queue_free(s->engine);
    mailbox_free(s->mailboxes);
    free(s);
    return 0;
}

/* ---- the way --------------------------------------------------------------------------------------------------- */

static void a_job_is_prepared_computed_and_concluded(void **state)
{
    struct scene *s = *state;
    start(s, 2);
    struct trial *t = add(s, 10 * KB);
    t->job->work.postprocess = postprocess;
    t->job->work.postprocess_ns = MUCH_NS;
    submit_well(s, t);
    await_count(s->engine, 1);
    assert_int_equal(t->job->item.cost, ENGINE_COST);
    assert_int_equal(atomic_load(&t->postprocessed), 0);
    assert_false(job_is_done(t->job));
    compute_one(s);
    assert_int_equal(result_of(t), OK);
    assert_int_equal(atomic_load(&t->preprocessed), 1);
    assert_int_equal(atomic_load(&t->postprocessed), 1);
    assert_false(pthread_equal(t->preparer, pthread_self()));
    assert_false(pthread_equal(t->concluder, pthread_self()));
    assert_true(job_result(t->job)->computed_ns != 0);
}

static void what_takes_no_time_is_done_at_once_by_who_has_it(void **state)
{
    struct scene *s = *state;
    struct error err;
    start(s, 1);
    struct trial *t = add(s, 10 * KB);
    t->job->work.postprocess = postprocess;
    t->job->work.preprocess_ns = t->job->work.postprocess_ns = WORKERS_AT_ONCE_NS;
    submit_well(s, t);
    assert_int_equal(queue_count(s->engine), 1);
    assert_int_equal(t->job->item.cost, ENGINE_COST);
    assert_true(pthread_equal(t->preparer, pthread_self()));
    compute_one(s);
    assert_true(job_is_done(t->job));
    assert_int_equal(atomic_load(&t->postprocessed), 0);
    assert_int_equal(workers_postprocess(t->job, &err), OK);
    assert_true(pthread_equal(t->concluder, pthread_self()));
}

static void what_needs_no_engine_is_only_concluded(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *t = add(s, 0);
    struct error err;
    (void)job_begin(t->job, &job_kind_work, 0, &err);
    t->job->work = (struct job_work){.postprocess = postprocess, .arg = t, .postprocess_bytes = 100 * KB};
    assert_int_equal(workers_submit(s->workers, t->job, NULL, 0, clock_now_ns() + LATER_S * CLOCK_NS_PER_S, NULL), OK);
    assert_int_equal(result_of(t), OK);
    assert_int_equal(atomic_load(&t->postprocessed), 1);
}

static void an_error_ends_the_job_and_names_the_part_at_fault(void **state)
{
    static const uint64_t ns[] = {MUCH_NS, 0};
    struct scene *s = *state;
    struct error err;
    start(s, 1);
    for (size_t i = 0; i < 2; i++) {
        struct trial *t = add(s, KB);
        t->result = ERR_PICTURE;
        t->job->work.preprocess_ns = ns[i];
        if (i == 0) {
            submit_well(s, t);
            assert_int_equal(result_of(t), ERR_PICTURE);
            assert_string_equal(job_result(t->job)->error.param, "image[3]");
            assert_string_equal(job_result(t->job)->error.message, "it is no picture");
        } else {
            assert_int_equal(submit(s, t, &err), ERR_PICTURE);
            assert_string_equal(err.param, "image[3]");
        }
    }
    assert_int_equal(queue_count(s->engine), 0);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void pixels_have_one_budget(void **state)
{
    struct scene *s = *state;
    start(s, 4);
    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct trial *t = add(s, 600 * KB); /* two are more than there is */
        t->keeps = 0;
        t->job->work.pictures = 0;
        submit_well(s, t);
    }
    await_count(s->engine, JOBS_MAX);
    assert_int_equal(atomic_load(&most_at_once), 1);
}

static void what_is_kept_counts_until_it_is_given_back(void **state)
{
    struct scene *s = *state;
    start(s, 2);
    struct trial *one = add(s, 600 * KB), *other = add(s, 600 * KB);
    submit_well(s, one);
    await_count(s->engine, 1);
    submit_well(s, other);
    await_taken(s);
    assert_int_equal(atomic_load(&other->preprocessed), 0);
    compute_one(s);
    workers_give_back(one->job);
    await_count(s->engine, 1);
    assert_int_equal(atomic_load(&other->preprocessed), 1);
}

static void a_small_job_does_not_overtake_one_that_waits_for_memory(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *one = add(s, 600 * KB), *large = add(s, 1000 * KB), *small = add(s, KB);
    small->job->work.preprocess_ns = 0;
    submit_well(s, one);
    await_count(s->engine, 1);
    submit_well(s, large);
    await_taken(s); /* without that the small one is done at once */
    submit_well(s, small);
    compute_one(s);
    workers_give_back(one->job);
    await_count(s->engine, 2);
    assert_true(large->job->item.pushed_ns <= small->job->item.pushed_ns);
}

static void more_than_the_whole_budget_is_refused(void **state)
{
    struct scene *s = *state;
    struct error err;
    start(s, 1);
    struct trial *t = add(s, BUDGET_MB * KB * KB + 1);
    assert_int_equal(submit(s, t, &err), ERR_PICTURE);
    assert_non_null(strstr(err.message, "1048577"));
    assert_non_null(strstr(err.message, "1048576"));
    assert_int_equal(atomic_load(&t->preprocessed), 0);
}

static void only_what_the_engine_will_soon_want_is_prepared(void **state)
{
    struct scene *s = *state;
    start(s, 2);
    for (uint32_t i = 0; i < AHEAD + 2; i++)
        submit_well(s, add(s, KB));
    await_count(s->engine, AHEAD);
    test_sleep_ms(20); /* nothing can be awaited for what must not happen */
    assert_int_equal(queue_count(s->engine), AHEAD);
    assert_int_equal(workers_waiting(s->workers), 2);
    compute_one(s);
    workers_give_back(s->trials[0].job);
    await_count(s->engine, AHEAD);
    assert_int_equal(workers_waiting(s->workers), 1);
}

/* ---- what is no longer wanted ---------------------------------------------------------------------------------- */

static void a_job_that_is_cancelled_while_it_waits_is_never_begun(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *first = add(s, KB), *second = add(s, KB);
    first->gate = &s->gate;
    submit_well(s, first);
    await_prepared(first);
    submit_well(s, second);
    job_cancel(second->job, ERR_CLIENT_GONE);
    assert_true(job_is_done(second->job));
    assert_int_equal(job_result(second->job)->status, ERR_CLIENT_GONE);
    (void)sem_post(&s->gate);
    await_count(s->engine, 1);
    assert_int_equal(atomic_load(&second->preprocessed), 0);
}

static void a_job_that_is_cancelled_while_it_waits_for_memory_ends(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *one = add(s, 600 * KB), *other = add(s, 600 * KB);
    submit_well(s, one);
    await_count(s->engine, 1);
    submit_well(s, other);
    await_taken(s); /* out of the queue, where job_cancel does not find it */
    job_cancel(other->job, ERR_CANCELLED_BY_ADMIN);
    assert_int_equal(result_of(other), ERR_CANCELLED_BY_ADMIN);
    assert_int_equal(atomic_load(&other->preprocessed), 0);
}

static void a_job_that_is_cancelled_while_it_is_prepared_does_not_reach_the_engine(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *t = add(s, KB);
    t->gate = &s->gate;
    submit_well(s, t);
    await_prepared(t);
    job_cancel(t->job, ERR_CLIENT_GONE);
    (void)sem_post(&s->gate);
    assert_int_equal(result_of(t), ERR_CLIENT_GONE);
    assert_int_equal(queue_count(s->engine), 0);
}

static void what_is_late_is_not_begun(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *t = add(s, KB);
    assert_int_equal(workers_submit(s->workers, t->job, s->engine, 0, clock_now_ns(), NULL), OK);
    assert_int_equal(result_of(t), ERR_TIMEOUT);
    assert_int_equal(atomic_load(&t->preprocessed), 0);
}

/* What is to be kept is kept however late it is; if it cannot be, that is what its client is told. */
static void what_cannot_be_kept_is_an_error_also_when_it_is_late(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *t = add(s, KB);
    t->job->work.preprocess = NULL;
    t->job->work.postprocess = postprocess;
    t->job->work.postprocess_ns = MUCH_NS;
    t->job->work.commits = true;
    t->postprocesses = ERR_STORE;
    assert_int_equal(workers_submit(s->workers, t->job, NULL, 0, clock_now_ns(), NULL), OK);
    assert_int_equal(result_of(t), ERR_STORE);
    assert_string_equal(job_result(t->job)->error.message, "it could not be kept");
    assert_int_equal(atomic_load(&t->postprocessed), 1);
}

static void all_that_waits_ends_when_the_pool_stops(void **state)
{
    struct scene *s = *state;
    start(s, 1);
    struct trial *large = add(s, 600 * KB), *waits = add(s, 600 * KB), *last = add(s, KB);
    submit_well(s, large);
    await_count(s->engine, 1);
    submit_well(s, waits);
    submit_well(s, last);
    workers_stop(s->workers);
    assert_int_equal(result_of(waits), ERR_UNAVAILABLE);
    assert_int_equal(result_of(last), ERR_UNAVAILABLE);
    struct trial *late = add(s, KB);
    assert_int_equal(submit(s, late, NULL), ERR_UNAVAILABLE);
}

static void a_queue_that_is_full_is_told(void **state)
{
    struct scene *s = *state;
    s->settings.queue_jobs_max = 2;
    start(s, 1);
    struct trial *busy = add(s, KB);
    busy->gate = &s->gate;
    submit_well(s, busy);
    await_prepared(busy);
    for (int i = 0; i < 2; i++)
        submit_well(s, add(s, KB));
    assert_int_equal(submit(s, add(s, KB), NULL), ERR_FULL);
    assert_int_equal(workers_waiting(s->workers), 2);
}

/* ---- start ----------------------------------------------------------------------------------------------------- */

static void a_thread_that_cannot_be_started_is_an_error_that_says_so(void **state)
{
    struct scene *s = *state;
    pthread_attr_t usual, vast;
    struct error err;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&vast), 0);
    assert_int_equal(pthread_attr_setstacksize(&vast, (size_t)1 << 50), 0); /* no address space for that */
    assert_int_equal(pthread_setattr_default_np(&vast), 0);
    const struct workers_purpose purpose = decoding(3);
    const enum status st = workers_start(&s->workers, &purpose, &s->settings, s->mailboxes, &err);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(st, ERR_NOMEM);
    assert_non_null(strstr(err.message, "thread 1 of 3 that decode pictures"));
    assert_null(s->workers);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(a_job_is_prepared_computed_and_concluded),
        EACH(what_takes_no_time_is_done_at_once_by_who_has_it),
        EACH(what_needs_no_engine_is_only_concluded),
        EACH(an_error_ends_the_job_and_names_the_part_at_fault),
        EACH(pixels_have_one_budget),
        EACH(what_is_kept_counts_until_it_is_given_back),
        EACH(a_small_job_does_not_overtake_one_that_waits_for_memory),
        EACH(more_than_the_whole_budget_is_refused),
        EACH(only_what_the_engine_will_soon_want_is_prepared),
        EACH(a_job_that_is_cancelled_while_it_waits_is_never_begun),
        EACH(a_job_that_is_cancelled_while_it_waits_for_memory_ends),
        EACH(a_job_that_is_cancelled_while_it_is_prepared_does_not_reach_the_engine),
        EACH(what_is_late_is_not_begun),
        EACH(what_cannot_be_kept_is_an_error_also_when_it_is_late),
        EACH(all_that_waits_ends_when_the_pool_stops),
        EACH(a_queue_that_is_full_is_told),
        EACH(a_thread_that_cannot_be_started_is_an_error_that_says_so),
    };
#undef EACH
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
