/* test_load.c - aft load against the real daemon: what it counts adds up and is what the daemon counted, closed and
 * open loops, the search for a rate, failures, ends before the end. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define SAMPLE "weights/models/cifar10-aft-conv/sample.jpg"

enum { LIMIT_S = 580 };

static struct daemon aftd;
static char aft[PATH_MAX], url[64];

static int stop(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

static void start(const char *const flags[])
{
    daemon_start(&aftd, flags);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.port);
}

/* ---- reports ---------------------------------------------------------------------------------------------------- */

static json_int_t count_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("\"%s\" is no count", key);
    return json_integer_value(value);
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("\"%s\" is no number", key);
    return json_number_value(value);
}

/* To the digits that a report has. */
static void expect_about(const char *what, double value, double expected)
{
    if (!(value >= expected * 0.9999 && value <= expected * 1.0001))
        fail_msg("%s: %g, expected %g", what, value, expected);
}

/* Has the object these keys, separated by blanks, and no other? */
static void expect_keys(const json_t *object, const char *what, const char *keys)
{
    char copy[512], *rest = NULL;
    size_t count = 0;
    (void)snprintf(copy, sizeof copy, "%s", keys);
    for (const char *key = strtok_r(copy, " ", &rest); key != NULL; key = strtok_r(NULL, " ", &rest), count++)
        if (json_object_get(object, key) == NULL)
            fail_msg("%s has no \"%s\"", what, key);
    if (json_object_size(object) != count)
        fail_msg("%s has %zu keys, expected %zu: %s", what, json_object_size(object), count, keys);
}

static void expect_times(const json_t *kind, const char *key)
{
    const json_t *t = json_object_get(kind, key);
    expect_keys(t, key, "count mean p50 p90 p99 max");
    const double p50 = number_of(t, "p50"), p90 = number_of(t, "p90"), p99 = number_of(t, "p99");
    const double max = number_of(t, "max"), mean = number_of(t, "mean");
    if (!(p50 >= 0 && p50 <= p90 && p90 <= p99 && p99 <= max * 1.00001 && mean <= max * 1.00001))
        fail_msg("%s: mean %g, p50 %g, p90 %g, p99 %g, max %g", key, mean, p50, p90, p99, max);
}

/* The report of a run that ended with `code`, checked in itself; json_decref it. */
static json_t *read_report(const struct program_run *p, int code)
{
    json_error_t why;
    json_int_t failures = 0;
    size_t i;
    const json_t *f;
    if (p->exit_code != code || p->timed_out)
        fail_msg("exit code %d, expected %d: %.500s%.500s", p->exit_code, code, p->err, p->out);
    json_t *report = json_loads(p->out, JSON_REJECT_DUPLICATES, &why);
    if (report == NULL)
        fail_msg("%s in %.300s", why.text, p->out);
    const bool streams = json_object_get(report, "event_gap_ms") != NULL;
    char keys[512];
    (void)snprintf(keys, sizeof keys,
                   "url loop concurrency rate seed warmup_seconds seconds interrupted client_cpu_share requests sent "
                   "unsent answered failed aborted failures bytes offered_per_second answered_per_second "
                   "bytes_per_second ttfb_ms e2e_ms send_delay_ms%s",
                   streams ? " event_gap_ms byte_gap_ms" : "");
    expect_keys(report, "the report", keys);
    assert_true(number_of(report, "client_cpu_share") >= 0);
    assert_int_equal(count_of(report, "requests"), count_of(report, "sent") + count_of(report, "unsent"));
    assert_int_equal(count_of(report, "sent"),
                     count_of(report, "answered") + count_of(report, "failed") + count_of(report, "aborted"));
    json_array_foreach(json_object_get(report, "failures"), i, f)
    {
        expect_keys(f, "a failure", "what count detail");
        failures += count_of(f, "count");
    }
    assert_int_equal(failures, count_of(report, "failed"));
    expect_times(report, "ttfb_ms");
    expect_times(report, "e2e_ms");
    expect_times(report, "send_delay_ms");
    assert_int_equal(count_of(json_object_get(report, "ttfb_ms"), "count"), count_of(report, "answered"));
    assert_int_equal(count_of(json_object_get(report, "e2e_ms"), "count"), count_of(report, "answered"));
    assert_int_equal(count_of(json_object_get(report, "send_delay_ms"), "count"), count_of(report, "sent"));
    assert_true(number_of(json_object_get(report, "ttfb_ms"), "mean") <=
                number_of(json_object_get(report, "e2e_ms"), "mean") * 1.00001);
    if (streams) {
        expect_times(report, "event_gap_ms");
        expect_times(report, "byte_gap_ms");
    }
    return report;
}

/* Run aft load with the arguments, the URL first and --json last. */
static json_t *load(const char *const arguments[], int code)
{
    struct program_run p = {.argv = {aft, "load", url}};
    size_t count = 3;
    for (size_t i = 0; arguments[i] != NULL; i++)
        p.argv[count++] = arguments[i];
    p.argv[count] = "--json";
    program_run(&p);
    json_t *report = read_report(&p, code);
    assert_true(number_of(report, "client_cpu_share") * number_of(report, "seconds") <= p.cpu_s * 1.001 + 0.001);
    if (code == 0)
        assert_string_equal(p.err, ""); /* no progress where nobody looks */
    program_run_clear(&p);
    return report;
}

#define LOAD(code, ...) load((const char *const[]){__VA_ARGS__, NULL}, code)

/* ---- what is counted -------------------------------------------------------------------------------------------- */

static void every_stream_of_a_closed_loop_is_counted_byte_for_byte(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(0, "--requests=30", "--concurrency=4", "--max-tokens=20", "--prompt=The ", "--seed=3");
    assert_string_equal(json_string_value(json_object_get(report, "loop")), "closed");
    assert_true(json_is_null(json_object_get(report, "rate")));
    assert_int_equal(count_of(report, "requests"), 30);
    assert_int_equal(count_of(report, "answered"), 30);
    assert_int_equal(count_of(report, "bytes"), 30 * 20);
    (void)client_await_metric(&aftd, "aftd_generated_bytes_total", 30 * 20, HANG_MS);
    (void)client_await_metric(&aftd, "aftd_requests_total{endpoint=\"/generate\"", 30, HANG_MS);
    (void)client_await_metric(&aftd, "aftd_prompt_bytes_total", 30 * 4, HANG_MS);
    /* all bytes but those of first events follow a gap, which has one byte at least */
    const json_int_t events = count_of(json_object_get(report, "event_gap_ms"), "count");
    const json_int_t bytes = count_of(json_object_get(report, "byte_gap_ms"), "count");
    assert_true(events > 0 && events <= bytes && bytes <= (json_int_t)30 * 19);
    /* by requests the window ends with the last answer, so that rates are counts over time */
    const double seconds = number_of(report, "seconds");
    expect_about("bytes", number_of(report, "bytes_per_second") * seconds, 600);
    expect_about("answers", number_of(report, "answered_per_second") * seconds, 30);
    json_decref(report);
    daemon_stop(&aftd);
}

static void whole_answers_have_bytes_and_no_gaps(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(0, "--requests=6", "--concurrency=2", "--max-tokens=20", "--no-stream");
    assert_int_equal(count_of(report, "answered"), 6);
    assert_int_equal(count_of(report, "bytes"), 6 * 20);
    assert_null(json_object_get(report, "event_gap_ms"));
    json_decref(report);
    daemon_stop(&aftd);
}

static void pictures_and_folders_of_them_are_classified(void **state)
{
    (void)state;
    start(NULL);
    json_t *report =
        LOAD(0, "tests/data/cifar", SAMPLE, "--requests=45", "--concurrency=6", "--model=cifar10-aft-conv");
    assert_int_equal(count_of(report, "answered"), 45);
    assert_int_equal(count_of(report, "bytes"), 0);
    (void)client_await_metric(&aftd, "aftd_requests_total{endpoint=\"/classify\"", 45, HANG_MS);
    json_decref(report);
    daemon_stop(&aftd);
}

static void the_warm_up_is_sent_and_not_counted(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(0, SAMPLE, "--warmup=0.5", "--duration=0.5");
    expect_about("the window", number_of(report, "seconds"), 0.5);
    assert_true(client_metric(&aftd, "aftd_requests_total{endpoint=\"/classify\"") > (double)count_of(report, "sent"));
    json_decref(report);
    report = LOAD(0, SAMPLE, "--warmup=0.2", "--requests=3");
    assert_int_equal(count_of(report, "sent"), 3);
    json_decref(report);
    daemon_stop(&aftd);
}

/* ---- open loops ------------------------------------------------------------------------------------------------- */

static void what_a_warm_up_could_not_send_does_not_fill_the_window(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(0, SAMPLE, "--rate=20000", "--concurrency=1", "--warmup=0.5", "--duration=0.5");
    assert_true(count_of(report, "sent") > 0 && count_of(report, "unsent") > 1000);
    json_decref(report);
    daemon_stop(&aftd);
}

static void an_open_loop_sends_at_its_rate(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(0, SAMPLE, "--rate=200", "--requests=300", "--seed=7");
    assert_string_equal(json_string_value(json_object_get(report, "loop")), "open");
    assert_int_equal(count_of(report, "answered") + count_of(report, "unsent"), 300);
    assert_true(number_of(report, "offered_per_second") < 260); /* its deviation is 6 %; less on a slow machine */
    json_decref(report);
    daemon_stop(&aftd);
}

/* One connection and streams that take longer than the next ones wait: what is late is counted as late. */
static void what_an_open_loop_cannot_send_in_time_counts(void **state)
{
    (void)state;
    start(NULL);
    /* The same in every build: however fast one is, a stream takes longer than two of the next ones wait, and however
     * slow, some are answered. */
    json_t *report = LOAD(0, "--rate=200", "--duration=1.5", "--concurrency=1", "--max-tokens=200");
    const json_int_t requests = count_of(report, "requests");
    assert_true(requests > 200 && requests < 400); /* 300, deviation 17 */
    assert_true(count_of(report, "unsent") > requests / 2);
    assert_int_equal(count_of(report, "failed"), 0);
    const json_t *delay = json_object_get(report, "send_delay_ms"), *ttfb = json_object_get(report, "ttfb_ms");
    assert_true(number_of(ttfb, "mean") > number_of(delay, "mean"));
    json_decref(report);
    daemon_stop(&aftd);
}

/* ---- the rate that holds ---------------------------------------------------------------------------------------- */

/* Its runs bisect: each rate lies between the highest that held and the lowest that did not. */
static void the_rate_that_holds_is_the_highest_of_the_runs_that_held(void **state)
{
    (void)state;
    start(NULL);
    struct program_run p = {
        .argv = {aft, "load", url, "--find-rate", "--p99=3000", "--duration=0.5", "--max-tokens=5", "--json"}};
    program_run(&p);
    json_t *report = json_loads(p.out, JSON_REJECT_DUPLICATES, NULL), *run;
    if (p.exit_code > 1 || report == NULL)
        fail_msg("exit code %d: %.500s%.500s", p.exit_code, p.err, p.out);
    expect_keys(report, "the report", "url p99_ms seconds seed rate interrupted runs");
    double low = 0, high = HUGE_VAL;
    size_t i;
    json_array_foreach(json_object_get(report, "runs"), i, run)
    {
        expect_keys(run, "a run", "rate answered_per_second p50_ms p99_ms failed unsent holds");
        const double rate = number_of(run, "rate");
        const bool held = json_is_true(json_object_get(run, "holds"));
        assert_true(low < rate && rate < high);
        if (held != (count_of(run, "failed") + count_of(run, "unsent") == 0 && number_of(run, "p99_ms") <= 3000))
            fail_msg("at %g: %s", rate, p.out);
        *(held ? &low : &high) = rate;
    }
    assert_true(i > 0);
    assert_int_equal(p.exit_code, low > 0 ? 0 : 1);
    if (low > 0)
        expect_about("the rate", number_of(report, "rate"), low);
    json_decref(report);
    program_run_clear(&p);
    daemon_stop(&aftd);
}

static void a_goal_that_nothing_meets_is_told(void **state)
{
    (void)state;
    start(NULL);
    const struct program_case cases[] = {
        {"a goal of a microsecond",
         {"load", url, "--find-rate", "--p99=0.001", "--duration=0.1", "--max-tokens=5"},
         NULL,
         1,
         "requests/s   answered/s",
         "no rate holds that was tried"},
        {"no such model",
         {"load", url, "--find-rate", "--p99=10", "--duration=0.1", "--model=no-such"},
         NULL,
         1,
         "requests/s   answered/s",
         "no request was answered as it should be: no model is named"},
    };
    program_expect(aft, cases, LENGTH(cases));
    daemon_stop(&aftd);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

static void expect_failure(const json_t *kind, const char *what, json_int_t count, const char *detail)
{
    const json_t *f = json_array_get(json_object_get(kind, "failures"), 0);
    assert_int_equal(json_array_size(json_object_get(kind, "failures")), 1);
    assert_string_equal(json_string_value(json_object_get(f, "what")), what);
    assert_int_equal(count_of(f, "count"), count);
    if (strstr(json_string_value(json_object_get(f, "detail")), detail) == NULL)
        fail_msg("the detail is \"%s\", expected \"%s\" in it", json_string_value(json_object_get(f, "detail")),
                 detail);
}

static void refused_requests_are_counted_by_status(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(1, "--requests=7", "--concurrency=2", "--model=no-such");
    expect_failure(report, "HTTP 404", 7, "no-such");
    json_decref(report);
    report = LOAD(1, SAMPLE, "--requests=7", "--model=a&b/c"); /* reaches the daemon as it is */
    expect_failure(report, "HTTP 404", 7, "a&b/c");
    json_decref(report);
    daemon_stop(&aftd);
}

static void requests_that_take_too_long_are_given_up(void **state)
{
    (void)state;
    start(NULL);
    json_t *report = LOAD(1, "--requests=3", "--max-tokens=500", "--timeout=0.005");
    expect_failure(report, "curl 28", 3, "timed out");
    json_decref(report);
    daemon_stop(&aftd);
}

static void a_daemon_that_dies_is_a_failure_of_what_was_running(void **state)
{
    (void)state;
    char script[3 * PATH_MAX];
    start(NULL);
    (void)snprintf(
        script, sizeof script,
        "env --default-signal=INT '%s' load %s --concurrency 3 --max-tokens 50 --duration 1000 --json & "
        "until grep -q '/generate 200' '%s/log'; do sleep 0.05; done; kill -9 %d; sleep 1; kill -INT $!; wait $!",
        aft, url, aftd.dir, (int)aftd.pid);
    struct program_run p = {.argv = {"/bin/sh", "-c", script}};
    program_run(&p);
    json_t *report = read_report(&p, 0);
    assert_true(count_of(report, "answered") > 0);
    assert_true(count_of(report, "failed") >= 3);
    /* 3 clients that rest 0.1 s before they try again */
    assert_true(count_of(report, "failed") <= 3 + 30 * number_of(report, "seconds"));
    json_decref(report);
    program_run_clear(&p);
    daemon_clear(&aftd);
}

static void what_is_no_ready_daemon_is_told_before_anything_is_sent(void **state)
{
    (void)state;
    char elsewhere[96];
    start((const char *const[]){"--drain-delay-ms=600000", "--drain-timeout-ms=0", NULL});
    (void)snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere/", url);
    const struct program_case there[] = {
        {"another server",
         {"load", elsewhere},
         NULL,
         1,
         "",
         "the daemon answers 404: there is nothing at \"/elsewhere/readyz\""},
    };
    program_expect(aft, there, LENGTH(there));
    daemon_signal(&aftd, SIGTERM);
    struct reply r;
    do /* until it has noticed */
        client_get(&aftd, "/readyz", &r), reply_clear(&r);
    while (r.status == 200);
    const struct program_case draining[] = {
        {"draining", {"load", url}, NULL, 1, "", "the daemon answers 503: the server is draining"},
    };
    program_expect(aft, draining, LENGTH(draining));
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    const struct program_case gone[] = {
        {"nobody", {"load", url}, NULL, 1, "", ": cannot connect: "},
        {"nobody, which --json does not change", {"load", url, "--json"}, NULL, 1, "", "is aftd running there?"},
    };
    program_expect(aft, gone, LENGTH(gone));
    daemon_clear(&aftd);
}

/* ---- how it looks and ends -------------------------------------------------------------------------------------- */

/* What aft load says when it gets SIGINT, once one more of its requests has been answered. */
static void interrupt(struct program_run *p, const char *const arguments[])
{
    static char script[2 * PATH_MAX];
    (void)snprintf(script, sizeof script,
                   "count() { grep -c '/generate 200' '%s/log'; }; before=$(count); env --default-signal=INT \"$@\" & "
                   "until [ \"$(count)\" -gt \"$before\" ]; do sleep 0.05; done; kill -INT $!; wait $!",
                   aftd.dir);
    *p = (struct program_run){.argv = {"/bin/sh", "-c", script, "sh", aft, "load", url}};
    for (size_t i = 0, count = 7; arguments[i] != NULL; i++)
        p->argv[count++] = arguments[i];
    program_run(p);
}

static void an_interrupted_run_still_reports(void **state)
{
    (void)state;
    struct program_run p;
    start(NULL);
    interrupt(&p, (const char *const[]){"--duration=1000", "--concurrency=3", "--max-tokens=300", "--json", NULL});
    json_t *report = read_report(&p, 0);
    assert_true(json_is_true(json_object_get(report, "interrupted")));
    /* All three, but one or another may just have been between two requests, which take long for that reason. */
    assert_in_range(count_of(report, "aborted"), 1, 3);
    assert_true(number_of(report, "seconds") < 1000);
    json_decref(report);
    program_run_clear(&p);
    daemon_stop(&aftd);
    start(NULL); /* whose log is empty */
    interrupt(&p, (const char *const[]){"--warmup=1000", "--json", NULL});
    report = read_report(&p, 1); /* nothing was measured */
    assert_int_equal(count_of(report, "requests"), 0);
    assert_non_null(strstr(p.err, "no request was answered"));
    json_decref(report);
    program_run_clear(&p);
    daemon_stop(&aftd);
}

static void the_report_for_people_has_a_line_for_each_figure(void **state)
{
    (void)state;
    static const char *const lines[] = {
        ": 2 clients, each with one request at a time, ",
        "\naft load itself took 0.",
        "\n\nrequests          10: 10 answered, 0 failed\nthroughput ",
        " answers/s, ",
        " bytes/s\nms                     mean       p50       p90       p99       max\nfirst byte ",
        "\nbetween events ",
        "\nbetween bytes ",
        "\nwhole answer ",
    };
    start(NULL);
    struct program_run p = {.argv = {aft, "load", url, "--requests=10", "--concurrency=2", "--max-tokens=50",
                                     "--header=X-Request-Id: from-aft-load", "--header", "X-Other:"}};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_string_equal(p.err, "");
    for (size_t i = 0; i < LENGTH(lines); i++)
        if (strstr(p.out, lines[i]) == NULL)
            fail_msg("no \"%s\" in\n%s", lines[i], p.out);
    program_run_clear(&p);
    daemon_await_log(&aftd, "from-aft-load"); /* what is logged is written a little later */
    daemon_stop(&aftd);
}

static void a_terminal_sees_the_progress_and_then_does_not(void **state)
{
    (void)state;
    static const char gone[] = "\r\033[K";
    program_need_terminal();
    start(NULL);
    struct program_run p = {.argv = {aft, "load", url, "--duration=1", "--max-tokens=5"}, .err_sink = PROGRAM_TERMINAL};
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    assert_non_null(strstr(p.err, ".]   0 %  0 s, 0 answered, 0 failed, "));
    assert_non_null(strstr(p.err, "[####"));
    assert_true(p.err_size > sizeof gone);
    assert_string_equal(p.err + p.err_size - (sizeof gone - 1), gone);
    program_run_clear(&p);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_stream_of_a_closed_loop_is_counted_byte_for_byte, stop),
        cmocka_unit_test_teardown(whole_answers_have_bytes_and_no_gaps, stop),
        cmocka_unit_test_teardown(pictures_and_folders_of_them_are_classified, stop),
        cmocka_unit_test_teardown(the_warm_up_is_sent_and_not_counted, stop),
        cmocka_unit_test_teardown(what_a_warm_up_could_not_send_does_not_fill_the_window, stop),
        cmocka_unit_test_teardown(an_open_loop_sends_at_its_rate, stop),
        cmocka_unit_test_teardown(what_an_open_loop_cannot_send_in_time_counts, stop),
        cmocka_unit_test_teardown(the_rate_that_holds_is_the_highest_of_the_runs_that_held, stop),
        cmocka_unit_test_teardown(a_goal_that_nothing_meets_is_told, stop),
        cmocka_unit_test_teardown(refused_requests_are_counted_by_status, stop),
        cmocka_unit_test_teardown(requests_that_take_too_long_are_given_up, stop),
        cmocka_unit_test_teardown(a_daemon_that_dies_is_a_failure_of_what_was_running, stop),
        cmocka_unit_test_teardown(what_is_no_ready_daemon_is_told_before_anything_is_sent, stop),
        cmocka_unit_test_teardown(an_interrupted_run_still_reports, stop),
        cmocka_unit_test_teardown(the_report_for_people_has_a_line_for_each_figure, stop),
        cmocka_unit_test_teardown(a_terminal_sees_the_progress_and_then_does_not, stop),
    };
    program_find(aft, "aft", "AFTD_TEST_CLI");
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
