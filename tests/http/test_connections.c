/* test_connections.c - more connections than there may be: their number is bounded wherever they are accepted, whoever
 * holds most gives way, and administrators and monitors are never shut out. The real daemon over raw sockets; loopback
 * has as many client addresses as a test wants. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, MOST = 64, MOST_ENDING = 64, FLOOD = 512, UPLOADER = 2, POLITE = 3 };

#define HEALTH "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
/* Requests that stay at work: their bodies never come. The second is told when it is at work. */
#define UPLOAD "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
#define ANNOUNCED_UPLOAD \
    "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"

static struct daemon aftd;
static struct raw_input in;
static struct daemon_usage before;
static int fds[2 * FLOOD];

static int start(void **state)
{
    static const char *const flags[] = {"--connections-max=64", "--admin-address=127.0.0.1", "--admin-port=0", NULL};
    (void)state;
    daemon_start(&aftd, flags);
    before = daemon_usage(&aftd);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

static void assert_served(int fd)
{
    assert_true(raw_send_text(fd, HEALTH));
    assert_int_equal(raw_receive(fd, &in, "}", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 200);
}

static void open_all(size_t from, size_t count, unsigned host, const char *text)
{
    for (size_t i = from; i < from + count; i++) {
        fds[i] = raw_connect_as(aftd.port, host);
        (void)raw_send_text(fds[i], text);
    }
}

static void close_all(size_t count)
{
    for (size_t i = 0; i < count; i++)
        raw_close(fds[i]);
}

/* Has the daemon closed it? */
static bool is_over(int fd)
{
    const enum raw_end end = raw_receive(fd, &in, NULL, 0);
    return end == RAW_CLOSED || end == RAW_RESET;
}

static size_t count_over(size_t from, size_t count)
{
    size_t over = 0;
    for (size_t i = from; i < from + count; i++)
        over += is_over(fds[i]);
    return over;
}

static double metric_of_admin(const char *series)
{
    struct request r = {.path = "/metrics", .port = aftd.admin_port};
    struct reply reply;
    client_call(&aftd, &r, &reply);
    const char *at = strstr(reply.body, series);
    const double value = at != NULL ? strtod(at + strlen(series), NULL) : -1;
    reply_clear(&reply);
    return value;
}

/* Uploads that stay: nobody may take the place of one's own work, so the others are told at once. */
static void no_more_connections_stay_than_may(void **state)
{
    (void)state;
    open_all(0, MOST, UPLOADER, ANNOUNCED_UPLOAD);
    for (size_t i = 0; i < MOST; i++) /* until then it is idle, and gives way */
        assert_int_equal(raw_receive(fds[i], &in, "100 Continue\r\n\r\n", HANG_MS), RAW_FOUND);
    assert_true(metric_of_admin("\naftd_connections ") >= MOST + 1); /* the asker's own as well */
    for (size_t i = MOST; i < FLOOD; i++) {
        fds[i] = raw_connect_as(aftd.port, UPLOADER);
        assert_true(raw_receive(fds[i], &in, NULL, HANG_MS) <= RAW_RESET);
        assert_int_equal(raw_status(&in), 503);
        assert_non_null(strstr(in.bytes, "\r\nRetry-After: "));
        assert_non_null(strstr(in.bytes, "\"code\":\"unavailable\""));
    }
    assert_int_equal(count_over(0, MOST), 0); /* the first ones stay */
    assert_true(daemon_usage(&aftd).fds <= before.fds + MOST + 8);
    assert_true(metric_of_admin("\naftd_connections_refused_total ") >= FLOOD - MOST);
    daemon_await_log(&aftd, "connections are refused");
    close_all(FLOOD);
}

/* However fast they come, and on however many threads: those that are being closed are bounded too. */
static void a_flood_of_idle_connections_is_bounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < FLOOD; i++) {
        fds[i] = raw_connect_as(aftd.port, UPLOADER);
        assert_true(daemon_usage(&aftd).fds <= before.fds + MOST + MOST_ENDING + 8);
    }
    while (count_over(0, FLOOD) < FLOOD - MOST)
        test_sleep_ms(5);
    close_all(FLOOD);
}

static void an_idle_connection_gives_way_to_a_new_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_served(fds[i]);
    }
    test_sleep_ms(50);
    assert_served(fds[0]); /* now the others have idled longer */
    const int fd = raw_connect_as(aftd.port, POLITE);
    assert_served(fd);
    for (const int64_t end = test_now_ms() + HANG_MS; count_over(0, MOST) == 0; test_sleep_ms(5))
        assert_true(test_now_ms() < end);
    assert_int_equal(count_over(0, MOST), 1);
    assert_served(fds[0]);
    raw_close(fd);
    close_all(MOST);
}

/* One that works all the time with one connection, beside one that holds all there are. */
static void a_client_that_holds_most_does_not_shut_out_others(void **state)
{
    (void)state;
    open_all(0, FLOOD, UPLOADER, UPLOAD);
    for (int i = 0; i < 20; i++) {
        const int fd = raw_connect_as(aftd.port, POLITE);
        assert_served(fd);
        open_all(0, 1, UPLOADER, UPLOAD); /* it goes on */
        assert_served(fd);
        raw_close(fd);
        raw_close(fds[0]);
    }
    assert_true(metric_of_admin("\naftd_connections_cut_total ") >= 1);
    daemon_await_log(&aftd, "error=unavailable");
    for (size_t i = 1; i < FLOOD; i++)
        raw_close(fds[i]);
}

static void who_holds_little_keeps_it(void **state)
{
    (void)state;
    const int upload = raw_connect_as(aftd.port, POLITE), idle = raw_connect_as(aftd.port, POLITE);
    assert_true(raw_send_text(upload, UPLOAD));
    assert_served(idle);
    open_all(0, FLOOD, UPLOADER, UPLOAD);
    assert_served(idle);
    assert_false(is_over(upload));
    raw_close(upload);
    raw_close(idle);
    close_all(FLOOD);
}

static void administrators_and_monitors_are_not_shut_out(void **state)
{
    enum { ADMINISTRATORS = 100 }; /* more than there is room for: their own idle ones give way */
    int admin[ADMINISTRATORS];
    (void)state;
    open_all(0, FLOOD, 1, UPLOAD); /* from where they come themselves */
    for (int i = 0; i < ADMINISTRATORS; i++) {
        admin[i] = raw_connect(aftd.admin_port);
        assert_served(admin[i]);
    }
    assert_true(daemon_usage(&aftd).fds <= before.fds + 2 * MOST + MOST_ENDING + 8);
    for (int i = 0; i < ADMINISTRATORS; i++)
        raw_close(admin[i]);
    close_all(FLOOD);
}

/* A system that allows few open files: connections leave enough for administrators, and for what a reload reads. */
static void connections_leave_descriptors_for_a_reload(void **state)
{
    enum { FILES = 768 };
    static const char *const flags[] = {"--admin-address=127.0.0.1", "--admin-port=0", "--http-threads=4", NULL};
    char dir[PATH_MAX], limited[PATH_MAX], program[PATH_MAX], script[PATH_MAX + 64],
        *named = getenv("AFTD_TEST_DAEMON");
    struct reply r;
    (void)state;
    named = named != NULL ? strdup(named) : NULL;
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    temp_dir_create(dir);
    temp_path(limited, dir, "limited");
    (void)snprintf(script, sizeof script, "#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", FILES, program);
    temp_write(limited, script, strlen(script));
    assert_int_equal(chmod(limited, 0700), 0);
    assert_int_equal(setenv("AFTD_TEST_DAEMON", limited, 1), 0);
    daemon_start(&aftd, flags);
    daemon_await_log(&aftd, "but the system allows 768 open files: at most 64 connections");
    open_all(0, FLOOD, UPLOADER, UPLOAD);
    open_all(FLOOD, FLOOD, POLITE, HEALTH);
    client_call(
        &aftd, &(struct request){.path = "/admin/config/reload", .port = aftd.admin_port, .body = "{}", .size = 2}, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    assert_true(daemon_usage(&aftd).fds < FILES / 2);
    close_all(2 * (size_t)FLOOD);
    daemon_stop(&aftd);
    (void)(named != NULL ? setenv("AFTD_TEST_DAEMON", named, 1) : unsetenv("AFTD_TEST_DAEMON"));
    free(named);
    temp_dir_remove(dir);
}

/* Each takes some tens of kilobytes, of which malloc keeps what lies between others. */
static void memory_is_given_back_after_a_storm(void **state)
{
    enum { ROUND = 400, ROUNDS = 3 };
    static const char *const flags[] = {"--log-level=debug", NULL};
    (void)state;
    daemon_start(&aftd, flags);
    for (int i = 0; i < ROUNDS; i++) {
        open_all(0, ROUND, 1, UPLOAD);
        (void)client_await_metric(&aftd, "aftd_connections", ROUND + 1, HANG_MS);
        close_all(ROUND);
        (void)client_await_metric(&aftd, "aftd_connections", 1, HANG_MS);
    }
    daemon_await_log(&aftd, "connections had taken is given back");
    daemon_stop(&aftd);
}

/* ---- wakes ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 16, VISITS = 200 };

/* How often each of the daemon's HTTP threads has slept; how many there are. */
static size_t read_sleeps(unsigned long sleeps[THREADS])
{
    static const char key[] = "voluntary_ctxt_switches:";
    char path[128], line[256];
    size_t count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)aftd.pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        bool is_http = false;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)aftd.pid, task->d_name);
        FILE *status = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
        while (status != NULL && fgets(line, sizeof line, status) != NULL) {
            is_http |= strcmp(line, "Name:\thttp\n") == 0;
            if (is_http && count < THREADS && strncmp(line, key, strlen(key)) == 0)
                sleeps[count++] = strtoul(line + strlen(key), NULL, 10);
        }
        if (status != NULL)
            (void)fclose(status);
    }
    (void)closedir(tasks);
    return count;
}

/* Each visit wakes the one that accepts it, and that again for the request and the end. */
static void a_new_connection_wakes_one_thread_and_each_in_turn(void **state)
{
    unsigned long first[THREADS], last[THREADS], sum = 0, most = 0;
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--http-threads=16", NULL});
    assert_int_equal(read_sleeps(first), THREADS);
    for (size_t i = 0; i < VISITS; i++) {
        const int fd = raw_connect(aftd.port);
        assert_served(fd);
        raw_close(fd);
    }
    assert_int_equal(read_sleeps(last), THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        sum += last[i] - first[i];
        most = last[i] - first[i] > most ? last[i] - first[i] : most;
    }
    if (sum > VISITS * THREADS / 2)
        fail_msg("%d connections woke %d threads %lu times", VISITS, THREADS, sum);
    if (most > sum / 2)
        fail_msg("of %lu wakes one thread had %lu", sum, most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_more_connections_stay_than_may, start, stop),
        cmocka_unit_test_setup_teardown(a_flood_of_idle_connections_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(an_idle_connection_gives_way_to_a_new_one, start, stop),
        cmocka_unit_test_setup_teardown(a_client_that_holds_most_does_not_shut_out_others, start, stop),
        cmocka_unit_test_setup_teardown(who_holds_little_keeps_it, start, stop),
        cmocka_unit_test_setup_teardown(administrators_and_monitors_are_not_shut_out, start, stop),
        cmocka_unit_test_teardown(connections_leave_descriptors_for_a_reload, stop),
        cmocka_unit_test_teardown(memory_is_given_back_after_a_storm, stop),
        cmocka_unit_test_teardown(a_new_connection_wakes_one_thread_and_each_in_turn, stop),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("connections", tests, NULL, NULL);
}
