/* test_drain.c - how the daemon ends: SIGTERM while it idles, streams, and has jobs waiting; what clients see
 * before, meanwhile and afterwards; its exit code and its log. The real daemon, one for each test. */
#include <jansson.h>
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
#include "tests/support/generation.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, SHORT_MS = 200, STREAMS = 5 };

#define LONG_DRAIN "--drain-timeout-ms=600000"
#define SHORT_DRAIN "--drain-timeout-ms=200" /* SHORT_MS */

static struct daemon aftd;
static struct raw_input in;

static int clear(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* A stream of that many bytes, longer than the context if necessary; `more` are header lines. */
static char *stream_request(int max_tokens, const char *more)
{
    char *body = generate_body(json_pack("{s:s, s:i, s:s, s:b, s:i, s:i}", "prompt", "x", "max_tokens", max_tokens,
                                         "context_overflow", "shift", "stream", 1, "timeout_ms", 600000, "seed", 1));
    char *text = raw_post("/generate", body, more);
    free(body);
    return text;
}

/* Send it, and wait until it streams. */
static int begin_stream(int max_tokens)
{
    char *text = stream_request(max_tokens, "Connection: close\r\n");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    free(text);
    return fd;
}

/* Read a stream to the connection's end; the last piece is in `in`, from which its end can be told. */
static void read_to_end(int fd, char last[4096])
{
    last[0] = '\0';
    for (enum raw_end end = RAW_LIMIT; end == RAW_LIMIT;) {
        end = raw_receive(fd, &in, NULL, HANG_MS);
        if (end == RAW_LIMIT && in.size < sizeof in.bytes - 1)
            fail_msg("the connection stays open");
        const size_t before = strlen(last), room = 4095, keep = in.size < room ? in.size : room;
        const size_t kept = before + keep > room ? room - keep : before;
        memmove(last, last + before - kept, kept);
        memcpy(last + kept, in.bytes + in.size - keep, keep);
        last[kept + keep] = '\0';
    }
    raw_close(fd);
}

static void assert_exits(void)
{
    const int code = daemon_wait(&aftd, HANG_MS);
    if (code != 0) {
        char *log = daemon_log(&aftd);
        (void)fprintf(stderr, "%s\n", log);
        free(log);
        fail_msg("the exit code is %d", code);
    }
}

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static void an_idle_daemon_ends_at_once(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        daemon_start(&aftd, (const char *const[]){LONG_DRAIN, NULL});
        const int idle = raw_connect(aftd.port); /* a connection that says nothing holds nothing up */
        daemon_signal(&aftd, signals[i]);
        assert_exits();
        assert_true(raw_is_refused(aftd.port));
        raw_close(idle);
        daemon_clear(&aftd);
    }
}

static void running_streams_finish_and_connections_are_refused(void **state)
{
    int fds[STREAMS];
    char last[4096], tokens[48];
    const int length = test_work(2000);
    (void)state;
    (void)snprintf(tokens, sizeof tokens, "\"completion_tokens\":%d", length);
    daemon_start(&aftd, (const char *const[]){LONG_DRAIN, NULL});
    for (int i = 0; i < STREAMS; i++)
        fds[i] = begin_stream(length);
    daemon_signal(&aftd, SIGTERM);
    for (const int64_t end = test_now_ms() + HANG_MS; !raw_is_refused(aftd.port);) {
        if (test_now_ms() > end)
            fail_msg("connections are still taken");
        test_sleep_ms(5);
    }
    assert_int_equal(daemon_wait(&aftd, 0), -1); /* it still works for those that run */
    for (int i = 0; i < STREAMS; i++) {
        read_to_end(fds[i], last);
        assert_non_null(strstr(last, "\"finish_reason\":\"length\""));
        assert_non_null(strstr(last, tokens));
    }
    assert_exits();
}

static void requests_are_taken_during_the_delay_but_readiness_is_gone(void **state)
{
    struct reply r;
    struct generation g;
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--drain-delay-ms=600000", NULL});
    const int stream = begin_stream(test_work(20000)); /* which goes on beside it */
    daemon_signal(&aftd, SIGTERM);
    daemon_await_log(&aftd, "draining: ");
    for (client_get(&aftd, "/readyz", &r); r.status == 200; client_get(&aftd, "/readyz", &r))
        reply_clear(&r);
    char after[16];
    reply_assert_error(&r, 503, "unavailable", NULL, "draining");
    daemon_signal(&aftd, SIGHUP); /* does not cut the delay short */
    assert_true(reply_header(&r, "Retry-After", after, sizeof after));
    reply_clear(&r);
    client_get(&aftd, "/healthz", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    generate(&aftd, json_pack("{s:i}", "max_tokens", 20), &g);
    assert_int_equal(g.completion_tokens, 20);
    generation_clear(&g);
    raw_close(stream);
    daemon_signal(&aftd, SIGTERM);
    assert_exits();
}

/* They have connected and asked before it could accept them; a proxy could not know whether they were heard. */
static void what_has_connected_before_the_end_is_answered(void **state)
{
    enum { EARLY = 200 };
    static const char request[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fds[EARLY];
    (void)state;
    daemon_start(&aftd, (const char *const[]){LONG_DRAIN, NULL});
    daemon_signal(&aftd, SIGSTOP);
    for (int i = 0; i < EARLY; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send_text(fds[i], request));
    }
    daemon_signal(&aftd, SIGTERM);
    daemon_signal(&aftd, SIGCONT);
    for (int i = 0; i < EARLY; i++) {
        const enum raw_end end = raw_receive(fds[i], &in, NULL, HANG_MS);
        if (end != RAW_CLOSED || raw_status(&in) != 200)
            fail_msg("of %d requests number %d: %ld, %s", EARLY, i, raw_status(&in), end == RAW_RESET ? "reset" : "");
        raw_close(fds[i]);
    }
    assert_exits();
}

/* ---- what does not end by itself ------------------------------------------------------------------------------- */

static void streams_that_last_too_long_are_told_that_they_are_cancelled(void **state)
{
    int fds[STREAMS];
    char last[4096];
    (void)state;
    daemon_start(&aftd, (const char *const[]){SHORT_DRAIN, NULL});
    for (int i = 0; i < STREAMS; i++)
        fds[i] = begin_stream(65536);
    const int64_t start_ms = test_now_ms();
    daemon_signal(&aftd, SIGTERM);
    for (int i = 0; i < STREAMS; i++) {
        read_to_end(fds[i], last);
        assert_non_null(strstr(last, "\"finish_reason\":\"cancelled\""));
        assert_non_null(strstr(last, "0\r\n\r\n")); /* the last chunk: a whole answer */
    }
    assert_true(test_now_ms() - start_ms >= SHORT_MS);
    assert_exits();
}

static void waiting_jobs_are_answered_503(void **state)
{
    enum { WAITING = 20 };
    int fds[WAITING];
    char last[4096];
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--streams-max=1", SHORT_DRAIN, NULL});
    const int running = begin_stream(65536);
    char *text = stream_request(50, "");
    for (int i = 0; i < WAITING; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send_text(fds[i], text));
    }
    free(text);
    (void)client_await_metric(&aftd, "aftd_queue_depth", WAITING, HANG_MS);
    daemon_signal(&aftd, SIGTERM);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(raw_receive(fds[i], &in, NULL, HANG_MS), RAW_CLOSED);
        assert_int_equal(raw_status(&in), 503);
        assert_non_null(strstr(in.bytes, "\"code\":\"unavailable\""));
        assert_non_null(strstr(in.bytes, "Retry-After: "));
        assert_non_null(strstr(in.bytes, "Connection: close\r\n"));
        raw_close(fds[i]);
    }
    read_to_end(running, last);
    assert_non_null(strstr(last, "\"finish_reason\":\"cancelled\""));
    assert_exits();
}

static void a_second_signal_skips_the_waiting(void **state)
{
    static const struct {
        const char *name, *delay;
    } cases[] = {{"in the delay", "--drain-delay-ms=600000"}, {"after it", "--drain-delay-ms=0"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char last[4096];
        daemon_start(&aftd, (const char *const[]){cases[i].delay, LONG_DRAIN, NULL});
        const int fd = begin_stream(65536);
        daemon_signal(&aftd, SIGTERM);
        daemon_await_log(&aftd, "draining: ");
        assert_int_equal(daemon_wait(&aftd, 0), -1);
        daemon_signal(&aftd, SIGTERM);
        read_to_end(fd, last);
        assert_non_null(strstr(last, "\"finish_reason\":\"cancelled\""));
        assert_exits();
        daemon_clear(&aftd);
    }
}

static void a_hangup_cuts_no_stream(void **state)
{
    char last[4096];
    (void)state;
    daemon_start(&aftd, NULL);
    const int fd = begin_stream(test_work(1500));
    daemon_signal(&aftd, SIGHUP);
    read_to_end(fd, last);
    assert_non_null(strstr(last, "\"finish_reason\":\"length\""));
    const int code = daemon_wait(&aftd, 100); /* it may take it for an order to end, or go on */
    assert_true(code == 0 || code == -1);
}

static void clients_that_do_not_read_or_say_nothing_hold_nothing_up(void **state)
{
    int fds[4];
    char *text = stream_request(65536, "");
    (void)state;
    daemon_start(&aftd, (const char *const[]){SHORT_DRAIN, NULL});
    for (int i = 0; i < 2; i++) {
        fds[i] = raw_connect_small(aftd.port);
        assert_true(raw_send_text(fds[i], text));
    }
    for (int i = 2; i < 4; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_true(
            raw_send_text(fds[i], "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"));
    }
    (void)client_await_metric(&aftd, "aftd_streams_running", 2, HANG_MS);
    test_sleep_ms(300);
    daemon_signal(&aftd, SIGTERM);
    assert_exits();
    for (int i = 0; i < 4; i++)
        raw_close(fds[i]);
    free(text);
}

/* ---- the log --------------------------------------------------------------------------------------------------- */

static size_t count_lines_with(const char *log, const char *text)
{
    size_t count = 0;
    for (const char *line = log; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        count += memmem(line, length, text, strlen(text)) != NULL;
        line += length + (line[length] == '\n');
    }
    return count;
}

/* Its beginning. */
static const char *line_with(const char *log, const char *what)
{
    const char *at = strstr(log, what);
    while (at > log && at[-1] != '\n')
        at--;
    return at;
}

static void the_log_has_one_line_a_request_and_no_prompt(void **state)
{
    static const struct {
        const char *path, *body, *says;
    } cases[] = {
        {"/healthz?SECRET=SECRET", NULL, " GET /healthz 200 ok "},
        {"/SECRE/T", NULL, " GET /SECRE/T 404 error "},
        {"/generate", "{\"prompt\":\"SECRET\",\"max_tokens\":3}", "tokens=3"},
        {"/generate", "{\"prompt\":\"SECRET\",\"max_tokens\":4,\"stream\":true}", "tokens=4"},
        {"/generate", "{\"prompt_base64\":\"U0VDUkVU\",\"max_tokens\":5}", "tokens=5"},
        {"/generate", "{\"prompt\":\"SECRET\",\"SECRET\":3}", " /generate 400 error "},
        {"/generate", "{\"prompt\":\"SECRET\"", " /generate 400 error "},
        {"/generate", "{\"prompt\":\"x\",\"stop\":\"SECRET\",\"max_tokens\":3}", " 200 length "},
        {"/classify", "SECRET", " /classify 415 error "},
    };
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--log-level=debug", NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[64];
        const char *const headers[] = {id, NULL};
        struct reply r;
        (void)snprintf(id, sizeof id, "X-Request-Id: request-%zu.", i);
        client_call(&aftd,
                    &(struct request){.path = cases[i].path,
                                      .body = cases[i].body,
                                      .size = cases[i].body != NULL ? strlen(cases[i].body) : 0,
                                      .headers = headers},
                    &r);
        reply_clear(&r);
    }
    daemon_signal(&aftd, SIGTERM);
    assert_exits();
    char *log = daemon_log(&aftd);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[64];
        (void)snprintf(id, sizeof id, "id=request-%zu.", i);
        if (count_lines_with(log, id) != 1)
            fail_msg("%s is in %zu lines, not 1:\n%s", id, count_lines_with(log, id), log);
        const char *line = line_with(log, id);
        if (memmem(line, strcspn(line, "\n"), cases[i].says, strlen(cases[i].says)) == NULL)
            fail_msg("the line of %s does not say %s:\n%s", id, cases[i].says, log);
    }
    assert_int_equal(count_lines_with(log, " ms "), ARRAY_LEN(cases));
    assert_null(strstr(log, "SECRET"));
    assert_null(strstr(log, "U0VDUkVU"));
    for (const char *line = log; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(line[0] == '2' && line[4] == '-' && line[10] == 'T'); /* each with its time */
    free(log);
}

static void a_client_that_left_has_its_line_too(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    char *text = stream_request(65536, "X-Request-Id: leaver\r\n");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    raw_reset(fd);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    daemon_signal(&aftd, SIGTERM);
    assert_exits();
    char *log = daemon_log(&aftd);
    assert_int_equal(count_lines_with(log, "id=leaver"), 1);
    const char *line = line_with(log, "id=leaver\n");
    assert_non_null(memmem(line, strcspn(line, "\n"), " 200 cancelled ", 15));
    assert_non_null(memmem(line, strcspn(line, "\n"), "model=enwik8-aft-local", 22));
    free(log);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_idle_daemon_ends_at_once, clear),
        cmocka_unit_test_teardown(running_streams_finish_and_connections_are_refused, clear),
        cmocka_unit_test_teardown(requests_are_taken_during_the_delay_but_readiness_is_gone, clear),
        cmocka_unit_test_teardown(what_has_connected_before_the_end_is_answered, clear),
        cmocka_unit_test_teardown(streams_that_last_too_long_are_told_that_they_are_cancelled, clear),
        cmocka_unit_test_teardown(waiting_jobs_are_answered_503, clear),
        cmocka_unit_test_teardown(a_second_signal_skips_the_waiting, clear),
        cmocka_unit_test_teardown(a_hangup_cuts_no_stream, clear),
        cmocka_unit_test_teardown(clients_that_do_not_read_or_say_nothing_hold_nothing_up, clear),
        cmocka_unit_test_teardown(the_log_has_one_line_a_request_and_no_prompt, clear),
        cmocka_unit_test_teardown(a_client_that_left_has_its_line_too, clear),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
