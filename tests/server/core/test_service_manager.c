/* test_service_manager.c - what the environment says of a service manager is taken once, checked, and taken away; what
 * is told arrives as it should. Sockets that are really passed: tests/deploy/test_activation.c. */
#include "server/core/service_manager.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/manager.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct manager manager;

static int clear(void **state)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                        "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        (void)unsetenv(names[i]);
    manager_end(&manager);
    return 0;
}

static void set_pid(const char *name, int pid)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d", pid);
    (void)setenv(name, text, 1);
}

static void nothing_is_said_or_passed_without_a_manager(void **state)
{
    struct service_sockets s = {.count = 77};
    struct error err;
    (void)state;
    assert_int_equal(service_manager_take(&s, &err), OK);
    assert_int_equal(s.count, 0);
    assert_false(service_manager_listens());
    service_manager_ready(); /* and this goes nowhere */
}

static void wrong_counts_of_sockets_are_named(void **state)
{
    static const char *const counts[] = {"", "0", "-1", "17", "x", "1x", " 1", "18446744073709551617"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct service_sockets s = {.count = 77};
        struct error err;
        char says[128];
        set_pid("LISTEN_PID", (int)getpid());
        (void)setenv("LISTEN_FDS", counts[i], 1);
        (void)snprintf(says, sizeof says, "LISTEN_FDS = \"%s\": expected the number of passed sockets, from 1 to 16",
                       counts[i]);
        assert_int_equal(service_manager_take(&s, &err), ERR_CONFIG);
        assert_string_equal(err.message, says);
        assert_int_equal(s.count, 77);
        assert_null(getenv("LISTEN_FDS"));
    }
}

static void sockets_of_another_process_are_not_taken(void **state)
{
    static const char *const pids[] = {"1", "", "x", NULL};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pids); i++) {
        struct service_sockets s;
        if (pids[i] != NULL)
            (void)setenv("LISTEN_PID", pids[i], 1);
        (void)setenv("LISTEN_FDS", "x", 1);
        assert_int_equal(service_manager_take(&s, NULL), OK);
        assert_int_equal(s.count, 0);
        assert_null(getenv("LISTEN_PID"));
        assert_null(getenv("LISTEN_FDS"));
    }
}

/* Descriptors 3 and 4 here, as a manager's child has them. */
static void names_go_with_their_sockets_and_need_not_be_given(void **state)
{
    static const struct {
        const char *names, *first, *second;
    } cases[] = {{"admin:http", "admin", "http"}, {"admin", "admin", "unknown"}, {":http", "unknown", "http"},
                 {"", "unknown", "unknown"},      {NULL, "unknown", "unknown"},  {"a:b:c", "a", "b"}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct service_sockets s;
        assert_int_equal(dup2(STDERR_FILENO, 3), 3);
        assert_int_equal(dup2(STDERR_FILENO, 4), 4);
        set_pid("LISTEN_PID", (int)getpid());
        (void)setenv("LISTEN_FDS", "2", 1);
        if (cases[i].names != NULL)
            (void)setenv("LISTEN_FDNAMES", cases[i].names, 1);
        assert_int_equal(service_manager_take(&s, NULL), OK);
        assert_int_equal(s.count, 2);
        assert_int_equal(s.all[0].fd, 3);
        assert_int_equal(s.all[1].fd, 4);
        assert_string_equal(s.all[0].name, cases[i].first);
        assert_string_equal(s.all[1].name, cases[i].second);
        assert_int_equal(fcntl(3, F_GETFD), FD_CLOEXEC); /* for no program that this one might start */
        assert_int_equal(fcntl(4, F_GETFD), FD_CLOEXEC);
        assert_null(getenv("LISTEN_FDNAMES"));
    }
    (void)close(3);
    (void)close(4);
}

static void a_socket_that_is_not_there_is_named(void **state)
{
    struct service_sockets s;
    struct error err;
    (void)state;
    (void)close(3);
    set_pid("LISTEN_PID", (int)getpid());
    (void)setenv("LISTEN_FDS", "1", 1);
    assert_int_equal(service_manager_take(&s, &err), ERR_CONFIG);
    assert_string_equal(err.message, "LISTEN_FDS = 1, but descriptor 3 is not open");
    char names[SERVICE_SOCKET_NAME_MAX + 2];
    memset(names, 'x', sizeof names - 1);
    names[sizeof names - 1] = '\0';
    assert_int_equal(dup2(STDERR_FILENO, 3), 3);
    set_pid("LISTEN_PID", (int)getpid());
    (void)setenv("LISTEN_FDS", "1", 1);
    (void)setenv("LISTEN_FDNAMES", names, 1);
    assert_int_equal(service_manager_take(&s, &err), ERR_CONFIG);
    assert_string_equal(err.message, "LISTEN_FDNAMES: expected names of at most 255 bytes");
    (void)close(3);
}

static void the_watchdog_may_be_another_process_s(void **state)
{
    static const struct {
        const char *usec;
        int pid; /* 0: none is named */
        uint64_t ns;
    } cases[] = {{"3000000", 0, UINT64_C(3000000000)},
                 {"3000000", -1, UINT64_C(3000000000)}, /* -1: this one */
                 {"3000000", 1, 0},
                 {"0", 0, 0},
                 {"-5", 0, 0},
                 {"5s", 0, 0},
                 {"99999999999999999999", 0, 0}};
    struct service_sockets s;
    (void)state;
    manager_begin(&manager, false);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)setenv("NOTIFY_SOCKET", manager.notify, 1);
        (void)setenv("WATCHDOG_USEC", cases[i].usec, 1);
        if (cases[i].pid != 0)
            set_pid("WATCHDOG_PID", cases[i].pid > 0 ? cases[i].pid : (int)getpid());
        assert_int_equal(service_manager_take(&s, NULL), OK);
        if (service_manager_watchdog_ns() != cases[i].ns)
            fail_msg("WATCHDOG_USEC=%s, WATCHDOG_PID=%d: %llu ns, expected %llu", cases[i].usec, cases[i].pid,
                     (unsigned long long)service_manager_watchdog_ns(), (unsigned long long)cases[i].ns);
        assert_null(getenv("WATCHDOG_USEC"));
        assert_null(getenv("WATCHDOG_PID"));
    }
}

static void messages_arrive_one_at_a_time(void **state)
{
    struct service_sockets s;
    (void)state;
    for (int abstract = 0; abstract < 2; abstract++) {
        manager_begin(&manager, abstract == 1);
        (void)setenv("NOTIFY_SOCKET", manager.notify, 1);
        assert_int_equal(service_manager_take(&s, NULL), OK);
        assert_null(getenv("NOTIFY_SOCKET"));
        assert_true(service_manager_listens());
        service_manager_starting(2500, "loading");
        service_manager_ready();
        service_manager_status("all is well");
        service_manager_alive();
        service_manager_stopping(1000);
        manager_listen(&manager, 0);
        assert_string_equal(manager.said, "STATUS=loading\nEXTEND_TIMEOUT_USEC=2500000\n\nREADY=1\n\n"
                                          "STATUS=all is well\n\nWATCHDOG=1\n\n"
                                          "STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000\n\n");
        manager_end(&manager);
        service_manager_ready(); /* nobody listens any more: no harm */
    }
}

static void a_socket_that_cannot_be_is_ignored(void **state)
{
    static char too_long[256];
    const char *const names[] = {"", "/", "@", "run/notify", "vsock:2:1234", too_long};
    struct service_sockets s;
    (void)state;
    memset(too_long, '/', sizeof too_long - 1);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)setenv("NOTIFY_SOCKET", names[i], 1);
        assert_int_equal(service_manager_take(&s, NULL), OK);
        assert_false(service_manager_listens());
    }
}

int main(void)
{
    /* Those without a manager come first: there is one for a process, and it stays. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_is_said_or_passed_without_a_manager, clear),
        cmocka_unit_test_teardown(a_socket_that_cannot_be_is_ignored, clear),
        cmocka_unit_test_teardown(wrong_counts_of_sockets_are_named, clear),
        cmocka_unit_test_teardown(sockets_of_another_process_are_not_taken, clear),
        cmocka_unit_test_teardown(names_go_with_their_sockets_and_need_not_be_given, clear),
        cmocka_unit_test_teardown(a_socket_that_is_not_there_is_named, clear),
        cmocka_unit_test_teardown(the_watchdog_may_be_another_process_s, clear),
        cmocka_unit_test_teardown(messages_arrive_one_at_a_time, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
