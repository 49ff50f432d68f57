/* test_job.c - a job's states, what its reader sees, who is resumed when, and how each reason to stop ends it. No
 * engine: the test plays the engine thread. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/core/clock.h"
#include "server/core/queue.h"
#include "server/models/hosted_model.h"
#include "server/operation/generate.h"
#include "server/request/job.h"
#include "tests/support/job_party.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
enum { RING_BYTES = 16, LATER_S = 1000 };

/* One job, who waits for it, and where it waits. */
struct scene {
    struct queue *queue;
    struct hosted_model *model;
    struct party party;
    struct job *job;
};

static struct generate_input input(bool stream, const char *stop)
{
    struct generate_input in = {.prompt_count = 1, .n = 1, .max_tokens = RING_BYTES, .stream = stream};
    if (stop != NULL)
        assert_true(stop_set_add(&in.stops, stop, strlen(stop)));
    return in;
}

static void submit(struct scene *s, bool stream, const char *stop)
{
    const struct generate_input in = input(stream, stop);
    const struct job_waiter waiter = party_waiter(&s->party);
    s->job = party_generate(s->model, &in, RING_BYTES);
    job_attach(s->job, &waiter);
    assert_int_equal(job_submit(s->job, s->queue, 0, clock_now_ns() + LATER_S * CLOCK_NS_PER_S), OK);
}

/* As the engine thread: take it from the queue. */
static void start_job(struct scene *s)
{
    struct queue_item *item = queue_pop(s->queue, 0);
    assert_non_null(item);
    assert_ptr_equal(job_of_item(item), s->job);
    job_start(s->job, clock_now_ns());
}

static enum generate_next emit_byte(struct scene *s, uint8_t byte, uint64_t gap_ns, uint64_t now_ns)
{
    const struct generate_rows row = {.bytes = &byte};
    return generate_emit(generate_job_of(s->job), 0, &row, gap_ns, now_ns);
}

static enum generate_next emit(struct scene *s, const char *bytes)
{
    enum generate_next next = GENERATE_CONTINUE;
    for (; *bytes != '\0' && next == GENERATE_CONTINUE; bytes++)
        next = emit_byte(s, (uint8_t)*bytes, 0, clock_now_ns());
    return next;
}

static void assert_reads(struct scene *s, enum job_event event, const char *bytes)
{
    uint8_t out[RING_BYTES];
    struct generate_reading r = {.to.bytes = out, .size_max = sizeof out};
    enum job_event got = generate_read(s->job, &r);
    while (got == JOB_EVENT_SAMPLE_END) /* said once, before the end of all */
        got = generate_read(s->job, &r);
    assert_int_equal(got, event);
    assert_int_equal(r.size, strlen(bytes));
    assert_memory_equal(out, bytes, r.size);
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    assert_int_equal(queue_create(&s->queue, 1, 4), OK);
    s->model = party_text_model();
    party_init(&s->party);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    job_detach(s->job);
    job_release(s->job);
    assert_int_equal(hosted_model_users(s->model), 1); /* the job has gone, and its reference with it */
    hosted_model_release(s->model);
    party_clear(&s->party);
    queue_free(s->queue);
    free(s);
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */

static void a_stream_is_resumed_for_its_first_byte_and_for_each_after_it_waited(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    assert_false(job_ready_or_suspend(s->job));
    start_job(s);
    assert_int_equal(s->party.resumes, 0);
    assert_int_equal(emit(s, "a"), GENERATE_CONTINUE);
    assert_int_equal(s->party.resumes, 1);
    assert_int_equal(emit(s, "b"), GENERATE_CONTINUE);
    assert_int_equal(s->party.resumes, 1); /* nobody waits */
    assert_true(job_ready_or_suspend(s->job));
    assert_reads(s, JOB_EVENT_BYTES, "ab");
    assert_reads(s, JOB_EVENT_LATER, "");
    assert_int_equal(s->party.suspends, 2);
    assert_int_equal(emit(s, "c"), GENERATE_CONTINUE);
    assert_int_equal(s->party.resumes, 2);
    assert_reads(s, JOB_EVENT_BYTES, "c");
    assert_reads(s, JOB_EVENT_LATER, "");
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_int_equal(s->party.resumes, 3);
    assert_reads(s, JOB_EVENT_END, "");
    assert_int_equal(job_result(s->job)->finish, FINISH_LENGTH);
    assert_int_equal(job_result(s->job)->generated, 3);
}

static void between_two_wake_ups_of_a_stream_lies_the_gap(void **state)
{
    struct scene *s = *state;
    enum { GAP = 100 };
    submit(s, true, NULL);
    assert_false(job_ready_or_suspend(s->job));
    start_job(s);
    (void)emit_byte(s, 'a', GAP, 1000); /* the first byte does not wait */
    assert_int_equal(s->party.resumes, 1);
    assert_reads(s, JOB_EVENT_BYTES, "a");
    assert_reads(s, JOB_EVENT_LATER, "");
    (void)emit_byte(s, 'b', GAP, 1050);
    assert_int_equal(s->party.resumes, 1);
    (void)emit_byte(s, 'c', GAP, 1100);
    assert_int_equal(s->party.resumes, 2);
    assert_reads(s, JOB_EVENT_BYTES, "bc");
    assert_reads(s, JOB_EVENT_LATER, "");
    (void)emit_byte(s, 'd', GAP, 1150);
    job_finish(s->job, FINISH_LENGTH, 1160); /* the end does not wait either */
    assert_int_equal(s->party.resumes, 3);
    assert_reads(s, JOB_EVENT_BYTES, "d");
}

static void a_whole_answer_is_resumed_once(void **state)
{
    struct scene *s = *state;
    submit(s, false, NULL);
    assert_false(job_ready_or_suspend(s->job));
    start_job(s);
    assert_int_equal(emit(s, "abc"), GENERATE_CONTINUE);
    assert_int_equal(s->party.resumes, 0);
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_int_equal(s->party.resumes, 1);
    assert_true(job_ready_or_suspend(s->job));
    assert_reads(s, JOB_EVENT_BYTES, "abc");
    assert_reads(s, JOB_EVENT_END, "");
}

static void nobody_is_resumed_after_detaching(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    assert_false(job_ready_or_suspend(s->job));
    job_detach(s->job);
    start_job(s);
    assert_int_equal(emit(s, "abc"), GENERATE_CONTINUE);
    job_ping(s->job);
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_int_equal(s->party.resumes, 0);
    s->party.suspended = false;
}

static void a_ping_wakes_only_a_stream_that_is_silent(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    assert_false(job_ready_or_suspend(s->job));
    job_ping(s->job); /* before the first byte there are no headers to ping behind */
    assert_int_equal(s->party.resumes, 0);
    start_job(s);
    assert_int_equal(emit(s, "a"), GENERATE_CONTINUE);
    job_ping(s->job); /* it is not waiting */
    assert_reads(s, JOB_EVENT_BYTES, "a");
    assert_reads(s, JOB_EVENT_LATER, "");
    job_ping(s->job);
    assert_int_equal(s->party.resumes, 2);
    assert_reads(s, JOB_EVENT_PING, "");
    assert_reads(s, JOB_EVENT_LATER, "");
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
}

/* ---- text ------------------------------------------------------------------------------------------------------ */

static void bytes_of_a_stop_string_are_withheld_and_dropped(void **state)
{
    struct scene *s = *state;
    submit(s, true, "xyz");
    start_job(s);
    assert_int_equal(emit(s, "axy"), GENERATE_CONTINUE);
    assert_reads(s, JOB_EVENT_BYTES, "a");
    assert_int_equal(emit(s, "z"), GENERATE_STOPPED);
    job_finish(s->job, FINISH_STOP, clock_now_ns());
    assert_reads(s, JOB_EVENT_END, "");
    assert_int_equal(job_result(s->job)->generated, 4);
}

static void withheld_bytes_are_text_when_no_stop_string_came(void **state)
{
    struct scene *s = *state;
    submit(s, true, "xyz");
    start_job(s);
    assert_int_equal(emit(s, "axy"), GENERATE_CONTINUE);
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_reads(s, JOB_EVENT_BYTES, "axy");
    assert_reads(s, JOB_EVENT_END, "");
}

static void a_stream_has_begun_even_if_its_first_byte_is_withheld(void **state)
{
    struct scene *s = *state;
    submit(s, true, "xyz");
    assert_false(job_ready_or_suspend(s->job));
    start_job(s);
    assert_int_equal(emit(s, "x"), GENERATE_CONTINUE);
    assert_int_equal(s->party.resumes, 1);
    assert_true(job_ready_or_suspend(s->job));
    assert_reads(s, JOB_EVENT_LATER, "");
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_reads(s, JOB_EVENT_BYTES, "x");
}

static void a_reader_that_is_too_slow_overruns_the_ring(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    start_job(s);
    assert_int_equal(emit(s, "0123456789abcdef"), GENERATE_CONTINUE);
    assert_int_equal(emit(s, "g"), GENERATE_OVERRUN);
    job_finish(s->job, FINISH_CANCELLED, clock_now_ns());
    assert_reads(s, JOB_EVENT_BYTES, "0123456789abcdef");
    assert_reads(s, JOB_EVENT_END, "");
    assert_int_equal(job_result(s->job)->finish, FINISH_CANCELLED);
}

/* "abcd" turns out to be text and does not fit; the "ab" behind it would, and is still no stop string. */
static void an_overrun_leaves_no_hole_in_the_text(void **state)
{
    struct scene *s = *state;
    submit(s, true, "abcdaz");
    start_job(s);
    assert_int_equal(emit(s, "0123456789ABCabcda"), GENERATE_CONTINUE);
    assert_int_equal(emit(s, "b"), GENERATE_OVERRUN);
    job_finish(s->job, FINISH_CANCELLED, clock_now_ns());
    assert_reads(s, JOB_EVENT_BYTES, "0123456789ABC");
    assert_reads(s, JOB_EVENT_END, "");
}

/* What was withheld does not fit at the end: the text is not whole, so there is nothing to go on from. */
static void an_overrun_at_the_end_leaves_no_state(void **state)
{
    struct scene *s = *state;
    submit(s, true, "abcdaz");
    start_job(s);
    assert_int_equal(emit(s, "0123456789ABCabcd"), GENERATE_CONTINUE);
    generate_job_of(s->job)->has_saved = true; /* as generate_stream.c does */
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    assert_reads(s, JOB_EVENT_BYTES, "0123456789ABC");
    assert_reads(s, JOB_EVENT_END, "");
    assert_int_equal(job_result(s->job)->finish, FINISH_CANCELLED);
    assert_false(generate_job_of(s->job)->has_saved);
}

static void the_ring_goes_round(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    start_job(s);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(emit(s, "0123456789a"), GENERATE_CONTINUE);
        assert_reads(s, JOB_EVENT_BYTES, "0123456789a");
    }
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    enum status reason;
    bool stream;
    bool resumable;
    const char *generated; /* NULL: cancelled in the queue */
    enum status status;
    enum job_finish finish;
} end_cases[] = {
    {"deadline in the queue", ERR_TIMEOUT, true, false, NULL, ERR_TIMEOUT, 0},
    {"client leaves the queue", ERR_CLIENT_GONE, false, false, NULL, ERR_CLIENT_GONE, 0},
    {"deadline before the first byte", ERR_TIMEOUT, true, false, "", ERR_TIMEOUT, 0},
    {"deadline in a stream", ERR_TIMEOUT, true, false, "a", OK, FINISH_TIMEOUT},
    {"deadline in a whole answer", ERR_TIMEOUT, false, false, "a", OK, FINISH_TIMEOUT},
    {"client leaves a stream", ERR_CLIENT_GONE, true, false, "a", OK, FINISH_CANCELLED},
    {"client leaves a whole answer", ERR_CLIENT_GONE, false, false, "a", ERR_CLIENT_GONE, 0},
    {"shutdown before the first byte", ERR_UNAVAILABLE, true, false, "", ERR_UNAVAILABLE, 0},
    {"shutdown in a stream", ERR_UNAVAILABLE, true, false, "a", OK, FINISH_CANCELLED},
    {"shutdown in a stream that moves", ERR_UNAVAILABLE, true, true, "a", OK, FINISH_MOVED},
    {"an administrator ends a stream that moves", ERR_CANCELLED_BY_ADMIN, true, true, "a", OK, FINISH_CANCELLED},
    {"shutdown in a whole answer", ERR_UNAVAILABLE, false, false, "a", ERR_UNAVAILABLE, 0},
    {"an administrator ends what waits", ERR_CANCELLED_BY_ADMIN, false, false, NULL, ERR_CANCELLED_BY_ADMIN, 0},
    {"an administrator ends a stream", ERR_CANCELLED_BY_ADMIN, true, false, "a", OK, FINISH_CANCELLED},
    {"an administrator ends a whole answer", ERR_CANCELLED_BY_ADMIN, false, false, "a", ERR_CANCELLED_BY_ADMIN, 0},
    {"our own fault in a stream", ERR_INTERNAL, true, false, "a", ERR_INTERNAL, 0},
};

static void each_reason_to_stop_has_its_end(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(end_cases); i++) {
        struct scene *s;
        (void)set_up((void **)&s);
        submit(s, end_cases[i].stream, NULL);
        assert_false(job_ready_or_suspend(s->job));
        if (end_cases[i].generated == NULL) {
            job_cancel(s->job, end_cases[i].reason);
            assert_int_equal(queue_count(s->queue), 0);
        } else {
            start_job(s);
            s->job->resumable = end_cases[i].resumable;
            (void)emit(s, end_cases[i].generated);
            job_cancel(s->job, end_cases[i].reason);
            assert_false(job_is_done(s->job)); /* the engine thread ends what it runs */
            assert_int_equal(job_stop_reason(s->job, clock_now_ns()), end_cases[i].reason);
            job_abort(s->job, end_cases[i].reason, NULL, clock_now_ns());
        }
        assert_true(job_is_done(s->job));
        assert_int_equal(s->party.resumes, 1);
        const struct job_result *r = job_result(s->job);
        if (r->status != end_cases[i].status || (r->status == OK && r->finish != end_cases[i].finish) ||
            (r->status != OK && r->error.message[0] == '\0'))
            fail_msg("%s: %s, %s", end_cases[i].name, status_name(r->status), job_finish_words[r->finish]);
        (void)tear_down((void **)&s);
    }
    *state = NULL;
}

static void the_first_reason_counts_and_a_deadline_needs_no_one_to_say_so(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    start_job(s);
    assert_int_equal(job_stop_reason(s->job, clock_now_ns()), OK);
    assert_int_equal(job_stop_reason(s->job, s->job->deadline_ns), ERR_TIMEOUT);
    job_cancel(s->job, ERR_CLIENT_GONE);
    job_cancel(s->job, ERR_TIMEOUT);
    assert_int_equal(job_stop_reason(s->job, s->job->deadline_ns), ERR_CLIENT_GONE);
    job_abort(s->job, ERR_CLIENT_GONE, NULL, clock_now_ns());
}

static void cancelling_what_is_done_changes_nothing(void **state)
{
    struct scene *s = *state;
    submit(s, true, NULL);
    start_job(s);
    (void)emit(s, "a");
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    job_cancel(s->job, ERR_CLIENT_GONE);
    assert_int_equal(job_result(s->job)->status, OK);
    assert_int_equal(job_result(s->job)->finish, FINISH_LENGTH);
}

static void a_job_that_finds_the_queue_full_is_the_callers_alone(void **state)
{
    struct scene *s = *state;
    struct queue_item items[4] = {0};
    const struct generate_input in = input(true, NULL);
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        assert_int_equal(queue_push(s->queue, 0, &items[i]), OK);
    s->job = party_generate(s->model, &in, RING_BYTES);
    assert_int_equal(job_submit(s->job, s->queue, 0, UINT64_MAX), ERR_FULL);
    assert_int_equal(atomic_load(&s->job->references), 1);
    while (queue_pop(s->queue, 0) != NULL)
        ;
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

enum { BYTES = 20000 };

static void *engine_side(void *arg)
{
    struct scene *s = arg;
    while (!queue_wait(s->queue))
        ;
    start_job(s);
    for (unsigned i = 0; i < BYTES;) {
        (void)pthread_mutex_lock(&s->job->lock);
        const bool room = generate_job_of(s->job)->samples[0].bytes < generate_job_of(s->job)->ring_limit;
        (void)pthread_mutex_unlock(&s->job->lock);
        if (room)
            assert_int_equal(emit_byte(s, (uint8_t)i++, 0, clock_now_ns()), GENERATE_CONTINUE);
        if (i % 64 == 0)
            job_ping(s->job);
    }
    job_finish(s->job, FINISH_LENGTH, clock_now_ns());
    return NULL;
}

static void bytes_reach_a_reader_in_another_thread_in_order(void **state)
{
    struct scene *s = *state;
    static uint8_t out[BYTES + 1];
    pthread_t engine;
    submit(s, true, NULL);
    assert_int_equal(pthread_create(&engine, NULL, engine_side, s), 0);
    party_await(&s->party, s->job);
    assert_int_equal(party_read(&s->party, s->job, out, sizeof out), BYTES);
    (void)pthread_join(engine, NULL);
    for (unsigned i = 0; i < BYTES; i++)
        assert_int_equal(out[i], (uint8_t)i);
    assert_int_equal(s->party.suspends, s->party.resumes);
}

static void *cancel_it(void *arg)
{
    job_cancel(((struct scene *)arg)->job, ERR_CLIENT_GONE);
    return NULL;
}

static void a_cancel_that_races_with_the_start_ends_the_job_once(void **state)
{
    *state = NULL;
    for (int i = 0; i < 300; i++) {
        struct scene *s;
        pthread_t canceller;
        (void)set_up((void **)&s);
        submit(s, true, NULL);
        assert_int_equal(pthread_create(&canceller, NULL, cancel_it, s), 0);
        if (queue_pop(s->queue, 0) != NULL) {
            job_start(s->job, clock_now_ns());
            while (job_stop_reason(s->job, clock_now_ns()) == OK)
                ;
            job_abort(s->job, ERR_CLIENT_GONE, NULL, clock_now_ns());
        }
        (void)pthread_join(canceller, NULL);
        assert_true(job_is_done(s->job));
        assert_int_equal(job_result(s->job)->status, ERR_CLIENT_GONE);
        (void)tear_down((void **)&s);
    }
}

#define WITH_SCENE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SCENE(a_stream_is_resumed_for_its_first_byte_and_for_each_after_it_waited),
        WITH_SCENE(between_two_wake_ups_of_a_stream_lies_the_gap),
        WITH_SCENE(a_whole_answer_is_resumed_once),
        WITH_SCENE(nobody_is_resumed_after_detaching),
        WITH_SCENE(a_ping_wakes_only_a_stream_that_is_silent),
        WITH_SCENE(bytes_of_a_stop_string_are_withheld_and_dropped),
        WITH_SCENE(withheld_bytes_are_text_when_no_stop_string_came),
        WITH_SCENE(a_stream_has_begun_even_if_its_first_byte_is_withheld),
        WITH_SCENE(a_reader_that_is_too_slow_overruns_the_ring),
        WITH_SCENE(an_overrun_leaves_no_hole_in_the_text),
        WITH_SCENE(an_overrun_at_the_end_leaves_no_state),
        WITH_SCENE(the_ring_goes_round),
        WITH_SCENE(the_first_reason_counts_and_a_deadline_needs_no_one_to_say_so),
        WITH_SCENE(cancelling_what_is_done_changes_nothing),
        WITH_SCENE(a_job_that_finds_the_queue_full_is_the_callers_alone),
        WITH_SCENE(bytes_reach_a_reader_in_another_thread_in_order),
        cmocka_unit_test(each_reason_to_stop_has_its_end),
        cmocka_unit_test(a_cancel_that_races_with_the_start_ends_the_job_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
