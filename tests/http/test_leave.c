/* test_leave.c - clients that leave while their request waits, is prefilled or streams, by closing, resetting or
 * half-closing; and clients that stay but do not read. Their work ends at once and nothing of them is left. The real
 * daemon over raw sockets. */
#include <setjmp.h>
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
#define RUNNING "aftd_streams_running"
#define WAITING "aftd_queue_depth"

enum { LIMIT_S = 580, CLIENTS_MAX = 200, PROMPT_BYTES = 511 };

static struct daemon aftd;
static struct daemon_usage before;
static struct raw_input in;
static size_t clients; /* at most CLIENTS_MAX */

static void begin(const char *const flags[])
{
    daemon_start(&aftd, flags);
    before = daemon_usage(&aftd); /* while nobody is connected */
    assert_int_equal(client_metric(&aftd, RUNNING), 0);
}

static int clear(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* ---- how to leave ---------------------------------------------------------------------------------------------- */

static const struct way {
    const char *name;
    void (*leave)(int fd);
    bool keeps_socket; /* to be closed later */
} ways[] = {{"close", raw_close, false}, {"reset", raw_reset, false}, {"half-close", raw_half_close, true}};

static void leave_all(const struct way *way, const int fds[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        way->leave(fds[i]);
}

static void close_rest(const struct way *way, const int fds[], size_t count)
{
    for (size_t i = 0; i < count && way->keeps_socket; i++)
        raw_close(fds[i]);
}

/* All jobs have gone. */
static void assert_gone(const struct way *way, const char *where)
{
    const int64_t waiting_ms = client_await_metric(&aftd, WAITING, 0, HANG_MS);
    const int64_t running_ms = client_await_metric(&aftd, RUNNING, 0, HANG_MS);
    print_message("  %s %s: gone after %d ms\n", where, way->name, (int)(waiting_ms + running_ms));
}

/* Works for as long as anyone wants it to. */
static char *endless_request(const char *prompt, bool stream)
{
    char *body =
        generate_body(json_pack("{s:s, s:i, s:s, s:b, s:i, s:i}", "prompt", prompt, "max_tokens", 65536,
                                "context_overflow", "shift", "stream", (int)stream, "timeout_ms", 600000, "seed", 1));
    char *text = raw_post("/generate", body, "");
    free(body);
    return text;
}

static int connect_and_send(const char *text)
{
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    return fd;
}

/* ---- leaving --------------------------------------------------------------------------------------------------- */

static void clients_that_leave_the_queue_are_forgotten(void **state)
{
    (void)state;
    begin((const char *const[]){"--streams-max=1", "--queue-jobs-max=500", NULL});
    for (size_t w = 0; w < ARRAY_LEN(ways); w++)
        for (int stream = 0; stream < 2; stream++) {
            int fds[CLIENTS_MAX];
            char *text = endless_request("x", stream);
            char *ahead = endless_request("x", true);
            const int first = connect_and_send(ahead);
            assert_int_equal(raw_receive(first, &in, "data: ", HANG_MS), RAW_FOUND);
            for (size_t i = 0; i < clients; i++)
                fds[i] = connect_and_send(text);
            (void)client_await_metric(&aftd, WAITING, (double)clients, HANG_MS);
            leave_all(&ways[w], fds, clients);
            const int64_t ms = client_await_metric(&aftd, WAITING, 0, HANG_MS);
            print_message("  queued, %s: gone after %d ms\n", ways[w].name, (int)ms);
            assert_int_equal(client_metric(&aftd, RUNNING), 1); /* the one ahead goes on */
            ways[w].leave(first);
            assert_gone(&ways[w], "the one ahead,");
            close_rest(&ways[w], fds, clients);
            close_rest(&ways[w], &first, 1);
            daemon_assert_usage(&aftd, &before, HANG_MS);
            free(text);
            free(ahead);
        }
    assert_true(client_metric(&aftd, "aftd_requests_cancelled_total") >= 6.0 * (double)(clients + 1) - 0.5);
    daemon_stop(&aftd);
}

static void clients_that_leave_in_prefill_are_forgotten(void **state)
{
    char prompt[PROMPT_BYTES + 1];
    (void)state;
    memset(prompt, 'a', PROMPT_BYTES);
    prompt[PROMPT_BYTES] = '\0';
    begin((const char *const[]){"--streams-max=256", "--queue-jobs-max=500", "--pass-rows-max=16", NULL});
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        int fds[CLIENTS_MAX];
        char *text = endless_request(prompt, w % 2 == 0);
        for (size_t i = 0; i < clients; i++)
            fds[i] = connect_and_send(text);
        (void)client_await_metric(&aftd, RUNNING, (double)clients, HANG_MS);
        leave_all(&ways[w], fds, clients);
        assert_gone(&ways[w], "in prefill,");
        close_rest(&ways[w], fds, clients);
        daemon_assert_usage(&aftd, &before, HANG_MS);
        free(text);
    }
    daemon_stop(&aftd);
}

static void clients_that_leave_a_stream_are_forgotten(void **state)
{
    (void)state;
    begin((const char *const[]){"--streams-max=256", "--queue-jobs-max=500", NULL});
    char *text = endless_request("x", true);
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        int fds[CLIENTS_MAX];
        for (size_t i = 0; i < clients; i++)
            fds[i] = connect_and_send(text);
        for (size_t i = 0; i < clients; i++)
            assert_int_equal(raw_receive(fds[i], &in, "data: ", HANG_MS), RAW_FOUND);
        assert_int_equal(client_metric(&aftd, RUNNING), clients);
        leave_all(&ways[w], fds, clients);
        assert_gone(&ways[w], "streaming,");
        close_rest(&ways[w], fds, clients);
        daemon_assert_usage(&aftd, &before, HANG_MS);
    }
    free(text);
    daemon_stop(&aftd);
}

static void clients_that_leave_a_picture_are_forgotten(void **state)
{
    (void)state;
    begin((const char *const[]){"--queue-jobs-max=500", NULL});
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        int fds[CLIENTS_MAX];
        for (size_t i = 0; i < clients; i++) { /* half of a body, then gone */
            fds[i] = connect_and_send(
                "POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n\xff\xd8\xff");
            ways[w].leave(fds[i]);
        }
        assert_gone(&ways[w], "sending a picture,");
        close_rest(&ways[w], fds, clients);
        daemon_assert_usage(&aftd, &before, HANG_MS);
    }
    daemon_stop(&aftd);
}

static void a_client_that_leaves_hurts_no_other(void **state)
{
    struct generation alone, beside;
    int fds[CLIENTS_MAX];
    (void)state;
    begin((const char *const[]){"--streams-max=64", "--queue-jobs-max=500", NULL});
    json_t *fields = json_pack("{s:s, s:i, s:i, s:b}", "prompt", "The ", "max_tokens", 400, "seed", 3, "stream", 1);
    char *body = generate_body(json_incref(fields)), *text = endless_request("x", true);
    generate(&aftd, fields, &alone);
    char *request = raw_post("/generate", body, "Connection: close\r\n");
    const int staying = connect_and_send(request);
    for (size_t i = 0; i < clients; i++)
        fds[i] = connect_and_send(text);
    for (size_t i = 0; i < clients; i++) {
        ways[i % 3].leave(fds[i]);
        test_sleep_ms(1);
    }
    generate(&aftd, json_loads(body, 0, NULL), &beside);
    assert_same_text("beside those that left", alone.text, alone.bytes, beside.text, beside.bytes);
    assert_int_equal(raw_receive(staying, &in, NULL, HANG_MS), RAW_CLOSED);
    assert_non_null(strstr(in.bytes, "\"finish_reason\":\"length\""));
    for (size_t i = 0; i < clients; i++)
        if (ways[i % 3].keeps_socket)
            raw_close(fds[i]);
    raw_close(staying);
    daemon_assert_usage(&aftd, &before, HANG_MS);
    generation_clear(&alone);
    generation_clear(&beside);
    free(request);
    free(body);
    free(text);
    daemon_stop(&aftd);
}

/* ---- staying, but not reading ---------------------------------------------------------------------------------- */

static void a_client_that_does_not_read_is_dropped(void **state)
{
    enum { READERS_MAX = 4 };
    const size_t readers = (size_t)test_work(READERS_MAX);
    int fds[READERS_MAX];
    (void)state;
    begin((const char *const[]){"--stream-buffer-bytes=4096", "--max-tokens-max=1048576", "--idle-timeout-ms=1000",
                                NULL});
    char *body = generate_body(json_pack("{s:i, s:s, s:b, s:i, s:i}", "max_tokens", 1048576, "context_overflow",
                                         "shift", "stream", 1, "timeout_ms", 600000, "temperature", 5));
    char *text = raw_post("/generate", body, "");
    for (size_t i = 0; i < readers; i++) {
        fds[i] = raw_connect_small(aftd.port);
        assert_true(raw_send_text(fds[i], text));
    }
    (void)client_await_metric(&aftd, "aftd_requests_cancelled_total", (double)readers, HANG_MS);
    (void)client_await_metric(&aftd, RUNNING, 0, HANG_MS);
    assert_true(client_metric(&aftd, "aftd_generated_bytes_total") < 1048576);
    /* It drops them by itself. What it sent by then can still be read; TCP tells a client of the end at last, after
     * probes of so small a window at intervals that grow to minutes. */
    daemon_assert_usage(&aftd, &before, HANG_MS);
    for (size_t i = 0; i < readers; i++) {
        assert_int_not_equal(raw_receive(fds[i], &in, "data: ", HANG_MS), RAW_LIMIT);
        raw_close(fds[i]);
    }
    free(body);
    free(text);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(clients_that_leave_the_queue_are_forgotten, clear),
        cmocka_unit_test_teardown(clients_that_leave_in_prefill_are_forgotten, clear),
        cmocka_unit_test_teardown(clients_that_leave_a_stream_are_forgotten, clear),
        cmocka_unit_test_teardown(clients_that_leave_a_picture_are_forgotten, clear),
        cmocka_unit_test_teardown(a_client_that_leaves_hurts_no_other, clear),
        cmocka_unit_test_teardown(a_client_that_does_not_read_is_dropped, clear),
    };
    clients = (size_t)test_work(CLIENTS_MAX);
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
