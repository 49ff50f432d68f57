/* test_slow_readers.c - clients that ask and do not read: the memory of their answers is bounded, others are answered,
 * slow readers end first, and what they had is given back to the system. The real daemon over raw sockets; loopback has
 * as many client addresses as a test wants. */
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
#include "tests/support/raw_socket.h"
#include "tests/support/sanitized.h"

/* Of 64 MiB for answers 48 are shared out, of which one client gets 36. */
enum { LIMIT_S = 580, READERS = 700, ALL = 48 << 20, OF_CLIENT = 36 << 20, READER = 2, POLITE = 4 };

#define ASK "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"

static struct daemon aftd;
static struct raw_input in;
static int fds[2 * READERS];

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--answers-memory-max-mb=64", NULL});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* They ask, and read nothing. */
static void ask(int first, unsigned host)
{
    for (int i = first; i < first + READERS; i++) {
        fds[i] = raw_connect_small_as(aftd.port, host);
        assert_true(raw_send_text(fds[i], ASK));
    }
}

static void await_answers(double least)
{
    const int64_t end_ms = test_now_ms() + HANG_MS;
    while (client_metric(&aftd, "aftd_answer_bytes ") < least) {
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(5);
    }
}

static void leave(int count)
{
    for (int i = 0; i < count; i++)
        raw_close(fds[i]);
    (void)client_await_metric(&aftd, "aftd_answer_bytes ", 0, HANG_MS);
}

/* Read whole. */
static long status_for(unsigned host)
{
    static const char last[] = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const int fd = raw_connect_as(aftd.port, host);
    enum raw_end end;
    long status = 0;
    assert_true(raw_send_text(fd, last));
    do { /* it is larger than the buffer */
        end = raw_receive(fd, &in, NULL, HANG_MS);
        status = status == 0 ? raw_status(&in) : status;
    } while (end == RAW_LIMIT && in.size > 0);
    assert_int_equal(end, RAW_CLOSED);
    raw_close(fd);
    return status;
}

static void a_client_that_does_not_read_gets_no_more_than_its_share(void **state)
{
    (void)state;
    ask(0, READER);
    await_answers(OF_CLIENT - (1 << 20));
    assert_true(client_metric(&aftd, "aftd_answer_bytes ") <= OF_CLIENT);
    assert_int_equal(status_for(READER), 503);
    assert_non_null(strstr(in.bytes, "\"code\":\"out_of_memory\""));
    assert_non_null(strstr(in.bytes, "\r\nRetry-After: "));
    assert_int_equal(status_for(POLITE), 200);
    assert_true(client_metric(&aftd, "aftd_slow_readers_cut_total") == 0); /* there was room */
    leave(READERS);
}

static void slow_readers_end_for_others(void **state)
{
    (void)state;
    ask(0, READER);
    ask(READERS, READER + 1);
    await_answers(ALL - (1 << 20));
    assert_true(client_metric(&aftd, "aftd_answer_bytes ") <= 64 << 20);
    for (int i = 0; i < 10; i++)
        assert_int_equal(status_for(POLITE), 200);
    assert_true(client_metric(&aftd, "aftd_slow_readers_cut_total") >= 1);
    daemon_await_log(&aftd, "error=out_of_memory");
    leave(2 * READERS);
}

/* After a storm the daemon is about as small as before. */
static void memory_is_given_back_after_a_storm(void **state)
{
    const int64_t end_ms = test_now_ms() + HANG_MS + 20000;
    (void)state;
    if (IS_SANITIZED)
        skip();
    assert_int_equal(status_for(POLITE), 200);
    const double before = client_metric(&aftd, "process_resident_memory_bytes ");
    ask(0, READER);
    await_answers(OF_CLIENT - (1 << 20));
    const double during = client_metric(&aftd, "process_resident_memory_bytes ");
    assert_true(during >= before + (20 << 20));
    leave(READERS);
    double after = during;
    while (after > before + (12 << 20)) {
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(50);
        after = client_metric(&aftd, "process_resident_memory_bytes ");
    }
    print_message("  %.1f MB before, %.1f during, %.1f after\n", before / 1e6, during / 1e6, after / 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_gets_no_more_than_its_share, start, stop),
        cmocka_unit_test_setup_teardown(slow_readers_end_for_others, start, stop),
        cmocka_unit_test_setup_teardown(memory_is_given_back_after_a_storm, start, stop),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("slow readers", tests, NULL, NULL);
}
