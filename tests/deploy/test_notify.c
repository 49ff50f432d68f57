/* test_notify.c - what a service manager hears of the daemon, from its start to its end, and that the watchdog is fed
 * as long as work progresses and no longer. The real daemon; the manager is the test's own (manager.h). */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/halt.h"
#include "tests/support/manager.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, WATCHDOG_MS = 400 };

static struct manager manager;
static struct daemon aftd;
static struct halt halt;

static int clear(void **state)
{
    (void)state;
    halt_end(&halt);
    daemon_clear(&aftd);
    manager_end(&manager);
    return 0;
}

static void start(const char *const flags[])
{
    assert_int_equal(manager_start(&manager, &aftd, flags), 0);
    manager_await(&manager, "READY=1", HANG_MS);
}

static void end(void)
{
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    manager_await(&manager, "STOPPING=1", 0);
}

/* A stream that lasts, once it streams. */
static int begin_stream(void)
{
    static struct raw_input in;
    char *text =
        raw_post("/generate",
                 "{\"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", \"stream\": true, "
                 "\"timeout_ms\": 600000}",
                 "");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    free(text);
    return fd;
}

/* In this order, and from a path as from an abstract name. */
static void start_and_end_are_told(void **state)
{
    static const char *const lines[] = {
        "STATUS=loading cifar10-aft-conv, model 1 of 2\nEXTEND_TIMEOUT_USEC=300000000\n",
        "STATUS=loading enwik8-aft-local, model 2 of 2\nEXTEND_TIMEOUT_USEC=300000000\n",
        "READY=1\n",
        "STATUS=2 models, 0 of 64 stream slots in use, 0.0 requests/s\n",
        "STOPPING=1\nEXTEND_TIMEOUT_USEC=46000000\n",
        "STATUS=stopping, 0 requests to answer\n"};
    (void)state;
    for (int abstract = 0; abstract < 2; abstract++) {
        manager_begin(&manager, abstract == 1);
        start((const char *const[]){"--drain-delay-ms=0", "--drain-timeout-ms=31000", NULL});
        manager_await(&manager, "STATUS=2 models, 0 of 64 stream slots in use, 0.0 requests/s", HANG_MS);
        end();
        manager_listen(&manager, 0);
        const char *at = manager.said;
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            at = strstr(at, lines[i]);
            if (at == NULL)
                fail_msg("the line %s is not there, or too early:\n%s", lines[i], manager.said);
        }
        assert_int_equal(manager_count(&manager, "READY=1"), 1);
        assert_int_equal(manager_count(&manager, "WATCHDOG="), 0); /* nobody asked */
        assert_int_equal(manager_count(&manager, "RELOADING="), 0);
        assert_int_equal(clear(state), 0);
    }
}

static void a_start_that_fails_is_never_ready(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    assert_int_equal(manager_start(&manager, &aftd, (const char *const[]){"--cors-origins=x", NULL}), 2);
    manager_listen(&manager, 0);
    assert_int_equal(manager_count(&manager, "STATUS=loading"), 0); /* what costs less was looked at first */
    assert_int_equal(manager_count(&manager, "READY=1"), 0);
}

/* Whoever waits for the end of a reload has it, also if nothing could be taken over. */
static void a_reload_is_told_from_its_beginning_to_its_end(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 16];
    (void)state;
    manager_begin(&manager, false);
    temp_path(file, manager.dir, "aftd.json");
    (void)snprintf(flag, sizeof flag, "--config=%s", file);
    for (int broken = 0; broken < 2; broken++) {
        temp_write(file, "{}", 2);
        manager_forget(&manager);
        start((const char *const[]){flag, NULL});
        manager_forget(&manager);
        temp_write(file, broken == 1 ? "{" : "{ }", broken == 1 ? 1 : 3);
        const uint64_t before_us = (uint64_t)test_now_ms() * 1000;
        daemon_signal(&aftd, SIGHUP);
        manager_await(&manager, "READY=1", HANG_MS);
        const char *first = strstr(manager.said, "RELOADING=1\nMONOTONIC_USEC="),
                   *ready = strstr(manager.said, "READY=1");
        assert_non_null(first);
        assert_true(first < ready);
        assert_true(strtoull(strchr(first, '\n') + strlen("\nMONOTONIC_USEC="), NULL, 10) >= before_us);
        daemon_await_log(&aftd, broken == 1 ? "error reload: " : "info reload: {");
        end();
        daemon_clear(&aftd);
    }
}

/* The next look is some seconds after a line that changed. */
static void the_status_tells_what_runs(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    start((const char *const[]){"--drain-timeout-ms=0", NULL});
    const int fd = begin_stream();
    for (const int64_t limit = test_now_ms() + HANG_MS;
         manager_count(&manager, "STATUS=2 models, 1 of 64 stream slots in use, ") == 0;) {
        if (test_now_ms() > limit)
            fail_msg("no status tells of the stream:\n%s", manager.said);
        manager_listen(&manager, 20);
    }
    raw_close(fd);
    end();
}

static void await_fed(size_t times)
{
    for (const int64_t limit = test_now_ms() + HANG_MS; manager_count(&manager, "WATCHDOG=1") < times;) {
        assert_true(test_now_ms() < limit);
        manager_listen(&manager, 20);
    }
}

/* Idle or at work: both are life. */
static void the_watchdog_is_fed(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    manager.watchdog_ms = WATCHDOG_MS;
    start((const char *const[]){"--drain-timeout-ms=0", NULL});
    for (int busy = 0; busy < 2; busy++) {
        const int fd = busy == 1 ? begin_stream() : -1;
        manager_forget(&manager);
        await_fed(5);
        if (fd >= 0)
            raw_close(fd);
    }
    end();
}

static void the_watchdog_is_another_process_s(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    manager.watchdog_ms = WATCHDOG_MS;
    manager.watchdog_pid = 1;
    start(NULL);
    manager_listen(&manager, 2L * WATCHDOG_MS);
    assert_int_equal(manager_count(&manager, "WATCHDOG="), 0);
    end();
}

/* As /healthz fails then. An engine that stands still without work is only idle. */
static void the_watchdog_starves_while_work_waits_and_nothing_moves(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    manager.watchdog_ms = WATCHDOG_MS;
    start((const char *const[]){"--stuck-after-ms=200", "--drain-timeout-ms=0", NULL});
    halt_begin(&halt, &aftd, "engine");
    manager_forget(&manager);
    await_fed(3);
    const int fd = raw_connect(aftd.port);
    char *text = raw_post("/generate", "{\"prompt\": \"x\", \"max_tokens\": 5}", "");
    assert_true(raw_send_text(fd, text));
    free(text);
    daemon_await_log(&aftd, "watchdog is not fed");
    manager_listen(&manager, 0);
    manager_forget(&manager);
    manager_listen(&manager, 3L * WATCHDOG_MS);
    assert_int_equal(manager_count(&manager, "WATCHDOG="), 0);
    halt_end(&halt);
    manager_await(&manager, "WATCHDOG=1", HANG_MS);
    raw_close(fd);
    end();
}

static void fill_with_messages(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && strlen(manager.notify) < sizeof to.sun_path);
    memcpy(to.sun_path, manager.notify, strlen(manager.notify) + 1);
    while (sendto(fd, "X=1", 3, MSG_DONTWAIT, (const struct sockaddr *)(const void *)&to, sizeof to) == 3)
        ;
    assert_int_equal(errno, EAGAIN);
    (void)close(fd);
}

/* It has room for some ten messages, and has them. */
static void a_manager_that_does_not_read_holds_nothing_up(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    start(NULL);
    fill_with_messages();
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    manager_listen(&manager, 0);
    if (manager_count(&manager, "STOPPING=1") != 0)
        fail_msg("there was room for all:\n%s", manager.said);
}

static void a_manager_that_is_gone_holds_nothing_up(void **state)
{
    struct reply r;
    (void)state;
    manager_begin(&manager, false);
    manager.watchdog_ms = WATCHDOG_MS;
    start(NULL);
    manager_end(&manager);
    test_sleep_ms(WATCHDOG_MS);
    client_get(&aftd, "/healthz", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(start_and_end_are_told, clear),
        cmocka_unit_test_teardown(a_start_that_fails_is_never_ready, clear),
        cmocka_unit_test_teardown(a_reload_is_told_from_its_beginning_to_its_end, clear),
        cmocka_unit_test_teardown(the_status_tells_what_runs, clear),
        cmocka_unit_test_teardown(the_watchdog_is_fed, clear),
        cmocka_unit_test_teardown(the_watchdog_is_another_process_s, clear),
        cmocka_unit_test_teardown(the_watchdog_starves_while_work_waits_and_nothing_moves, clear),
        cmocka_unit_test_teardown(a_manager_that_does_not_read_holds_nothing_up, clear),
        cmocka_unit_test_teardown(a_manager_that_is_gone_holds_nothing_up, clear),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
