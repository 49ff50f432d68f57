/* test_refusals.c - clients that send all of a body before they read, as most do, whose request is refused by its
 * header: they read why, and cannot keep the connection that is closed behind it. The real daemon over raw sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/daemon.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, BODY_BYTES = 8 << 20, TOO_MUCH = 17 << 20, PIECE = 1 << 20, STAYING = 100 };

static struct daemon aftd;
static struct daemon_usage before;
static struct raw_input in;
static char bytes[TOO_MUCH];

static void begin(const char *const flags[])
{
    daemon_start(&aftd, flags);
    before = daemon_usage(&aftd);
}

static int send_header(const char *line, const char *headers, size_t length)
{
    char header[512];
    const int fd = raw_connect(aftd.port);
    (void)snprintf(header, sizeof header, "%s HTTP/1.1\r\nContent-Length: %zu\r\n%s\r\n", line, length, headers);
    assert_true(raw_send_text(fd, header));
    return fd;
}

static void who_sends_all_first_reads_why_it_was_refused(void **state)
{
    static const struct {
        const char *line, *headers;
        size_t size;
        long status;
    } cases[] = {
        {"POST /nope", "Host: localhost\r\n", BODY_BYTES, 404},
        {"POST /generate", "Host: evil.example\r\n", BODY_BYTES, 403},
        {"DELETE /generate", "Host: localhost\r\n", BODY_BYTES, 405},
        {"POST /generate", "Host: localhost\r\n", TOO_MUCH, 413},
        {"POST /score", "Host: localhost\r\nContent-Encoding: gzip\r\n", BODY_BYTES, 415},
        {"POST /generate", "Host: localhost\r\nContent-Length: 3\r\n", BODY_BYTES, 400},
    };
    (void)state;
    begin((const char *const[]){"--body-bytes-max=16777216", NULL});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int fd = send_header(cases[i].line, cases[i].headers, cases[i].size);
        if (!raw_send(fd, bytes, cases[i].size, HANG_MS))
            fail_msg("case %zu: the body is not taken", i);
        assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
        assert_int_equal(raw_status(&in), cases[i].status);
        assert_int_equal(raw_count_answers(&in), 1);
        raw_close(fd);
    }
}

/* There are fewer places for such clients than these: the first are let go for the last. */
static void stay(int fds[STAYING])
{
    for (size_t i = 0; i < STAYING; i++) {
        fds[i] = send_header("POST /nope", "Host: localhost\r\n", BODY_BYTES);
        assert_int_equal(raw_receive(fds[i], &in, NULL, HANG_MS), RAW_CLOSED);
        assert_int_equal(raw_status(&in), 404);
    }
}

static void who_stays_after_a_refusal_is_let_go(void **state)
{
    int fds[STAYING];
    (void)state;
    begin((const char *const[]){"--receive-timeout-ms=1000", NULL});
    stay(fds);
    daemon_assert_usage(&aftd, &before, HANG_MS);
    for (size_t i = 0; i < STAYING; i++)
        raw_close(fds[i]);
}

static void who_stays_keeps_nobody_out(void **state)
{
    int fds[STAYING];
    (void)state;
    begin((const char *const[]){"--receive-timeout-ms=3600000", "--http-threads=1", NULL});
    stay(fds);
    const int fd = send_header("POST /nope", "Host: localhost\r\n", BODY_BYTES);
    assert_true(raw_send(fd, bytes, BODY_BYTES, HANG_MS));
    assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
    assert_int_equal(raw_status(&in), 404);
    raw_close(fd);
    for (size_t i = 0; i < STAYING; i++)
        raw_close(fds[i]);
}

static void who_sends_without_end_is_let_go(void **state)
{
    size_t sent = 0;
    (void)state;
    begin((const char *const[]){"--receive-timeout-ms=3600000", NULL});
    const int fd = send_header("POST /nope", "Host: localhost\r\n", SIZE_MAX / 4);
    while (sent < 2 * (size_t)HTTP_LINGER_BYTES_MAX && raw_send(fd, bytes, PIECE, HANG_MS))
        sent += PIECE;
    assert_true(sent < 2 * (size_t)HTTP_LINGER_BYTES_MAX);
    daemon_assert_usage(&aftd, &before, HANG_MS);
    raw_close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(who_sends_all_first_reads_why_it_was_refused, daemons_end),
        cmocka_unit_test_teardown(who_stays_after_a_refusal_is_let_go, daemons_end),
        cmocka_unit_test_teardown(who_stays_keeps_nobody_out, daemons_end),
        cmocka_unit_test_teardown(who_sends_without_end_is_let_go, daemons_end),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
