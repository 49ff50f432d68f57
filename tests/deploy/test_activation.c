/* test_activation.c - sockets that a service manager has opened and passes: whom each is for, that they take the place
 * of the settings and outlive the daemon, and what is refused. The real daemon; the manager is the test's own
 * (manager.h), and systemd's where it is installed. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/manager.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580 };

static struct manager manager;
static struct daemon aftd;

static int set_up(void **state)
{
    (void)state;
    manager_begin(&manager, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    manager_end(&manager);
    return 0;
}

static void end(void)
{
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    daemon_clear(&aftd);
}

static long status_of(const struct request *r)
{
    struct reply reply;
    client_call(&aftd, r, &reply);
    const long status = reply.status;
    reply_clear(&reply);
    return status;
}

/* What is there may be written a moment after the first port is told. */
static void assert_log_has(const char *what, bool has)
{
    if (has) {
        daemon_await_log(&aftd, what);
        return;
    }
    char *log = daemon_log(&aftd);
    if (strstr(log, what) != NULL)
        fail_msg("\"%s\" is in the log:\n%s", what, log);
    free(log);
}

/* ---- whom they are for ----------------------------------------------------------------------------------------- */

static void a_name_tells_whom_a_socket_is_for(void **state)
{
    static const char *const names[] = {"http", "", "unknown", "aftd.socket", "administrator"};
    static const struct {
        const char *path;
        long open, admin, metrics;
    } paths[] = {
        {"/healthz", 200, 200, 200},   {"/readyz", 200, 200, 200},       {"/metrics", 200, 200, 200},
        {"/v1/models", 200, 404, 404}, {"/admin/models", 404, 200, 404}, {"/openapi.json", 200, 200, 404},
        {"/", 200, 404, 404},          {"/generate", 400, 404, 404},
    };
    uint16_t open[ARRAY_LEN(names)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        open[i] = manager_pass_tcp(&manager, names[i]);
    const uint16_t admin = manager_pass_tcp(&manager, "admin"), metrics = manager_pass_tcp(&manager, "metrics");
    assert_int_equal(manager_start(&manager, &aftd, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        const char *path = paths[i].path;
        for (size_t o = 0; o < ARRAY_LEN(open); o++)
            assert_int_equal(status_of(&(struct request){.path = path, .port = open[o]}), paths[i].open);
        assert_int_equal(status_of(&(struct request){.path = path, .port = admin}), paths[i].admin);
        assert_int_equal(status_of(&(struct request){.path = path, .port = metrics}), paths[i].metrics);
    }
    end();
}

/* Nothing else is opened, whatever the settings say, which is told; but of each kind by itself. */
static void passed_sockets_take_the_place_of_settings(void **state)
{
    char flag[PATH_MAX + 32], path[PATH_MAX];
    (void)state;
    temp_path(path, manager.dir, "own");
    (void)snprintf(flag, sizeof flag, "--listen-unix=%s", path);
    const uint16_t port = manager_pass_tcp(&manager, "http");
    assert_int_equal(
        manager_start(&manager, &aftd,
                      (const char *const[]){"--listen-address=127.0.0.1,127.0.0.2", flag, "--admin-address=127.0.0.1",
                                            "--admin-port=0", "--metrics-address=127.0.0.3", "--metrics-port=0", NULL}),
        0);
    assert_int_equal(aftd.port, port);
    assert_int_not_equal(aftd.admin_port, 0);
    assert_log_has("(passed as http)", true);
    assert_log_has("metrics on http://127.0.0.3:", true);
    assert_log_has("info listen_address, listen_port and listen_unix are not used: the service manager has passed",
                   true);
    assert_log_has("metrics_address and metrics_port are not used", false); /* of a kind that was not passed */
    assert_log_has("admin_unix are not used", false);
    assert_log_has("on http://127.0.0.2", false);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(status_of(&(struct request){.path = "/admin/models", .port = aftd.admin_port}), 200);
    end();
}

/* What is not used is not looked at either. */
static void settings_of_passed_sockets_may_be_off(void **state)
{
    (void)state;
    const uint16_t port = manager_pass_tcp(&manager, "http");
    assert_int_equal(manager_start(&manager, &aftd,
                                   (const char *const[]){"--listen-address=off", "--listen-unix=off",
                                                         "--listen-unix-mode=999", NULL}),
                     0);
    assert_int_equal(aftd.port, port);
    assert_log_has("info listen_address, listen_port and listen_unix are not used", true);
    end();
}

static void admin_sockets_alone_leave_the_others_to_the_settings(void **state)
{
    char path[PATH_MAX], own[PATH_MAX], flag[PATH_MAX + 32];
    (void)state;
    temp_path(path, manager.dir, "admin");
    temp_path(own, manager.dir, "own");
    (void)snprintf(flag, sizeof flag, "--admin-unix=%s", own);
    manager_pass_unix(&manager, "admin", "admin");
    assert_int_equal(manager_start(&manager, &aftd, (const char *const[]){flag, NULL}), 0);
    assert_int_equal(status_of(&(struct request){.path = "/v1/models"}), 200);
    assert_int_equal(status_of(&(struct request){.path = "/admin/models", .unix_path = path}), 200);
    assert_int_equal(status_of(&(struct request){.path = "/v1/models", .unix_path = path}), 404);
    assert_int_not_equal(access(own, F_OK), 0);
    end();
    assert_int_equal(access(path, F_OK), 0); /* the manager made it and removes it */
}

static void sockets_for_another_process_are_left_alone(void **state)
{
    const char *const environment[] = {"LISTEN_PID=1", NULL};
    (void)state;
    const uint16_t port = manager_pass_tcp(&manager, "http");
    const struct daemon_gifts gifts = {.environment = environment, .sockets = manager.sockets, .count = 1};
    assert_int_equal(daemon_try_start_with(&aftd, NULL, &gifts), 0);
    assert_int_not_equal(aftd.port, port);
    assert_log_has("passed as", false);
    end();
}

/* ---- that they outlive it -------------------------------------------------------------------------------------- */

/* The connection and its request wait in the kernel while nobody runs. */
static void what_comes_between_two_daemons_is_answered_by_the_second(void **state)
{
    static struct raw_input in;
    char path[PATH_MAX];
    (void)state;
    temp_path(path, manager.dir, "public");
    manager_pass_unix(&manager, "public", "http");
    const uint16_t port = manager_pass_tcp(&manager, "http");
    assert_int_equal(manager_start(&manager, &aftd, NULL), 0);
    end();
    const int fd = raw_connect(port);
    assert_true(raw_send_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    assert_int_equal(raw_receive(fd, &in, NULL, 50), RAW_LIMIT);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(manager_start(&manager, &aftd, NULL), 0);
    assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
    assert_int_equal(raw_status(&in), 200);
    raw_close(fd);
    assert_int_equal(status_of(&(struct request){.path = "/healthz", .unix_path = path}), 200);
    end();
}

#define HEALTH "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

/* A connection that has had an answer, and is idle. */
static int connect_idle(uint16_t to, struct raw_input *in)
{
    const int fd = raw_connect(to);
    assert_true(raw_send_text(fd, HEALTH));
    assert_int_equal(raw_receive(fd, in, "}", HANG_MS), RAW_FOUND);
    assert_null(strstr(in->bytes, "Connection: close"));
    return fd;
}

/* Its next request is answered, with word that it was the last. */
static void an_idle_connection_may_bring_a_last_request(void **state)
{
    static struct raw_input in;
    (void)state;
    const uint16_t port = manager_pass_tcp(&manager, "http");
    assert_int_equal(manager_start(&manager, &aftd, (const char *const[]){"--drain-idle-ms=60000", NULL}), 0);
    const int fd = connect_idle(port, &in);
    daemon_signal(&aftd, SIGTERM);
    daemon_await_log(&aftd, "draining");
    test_sleep_ms(200);
    const int late = raw_connect(port); /* is not accepted */
    assert_true(raw_send_text(late, HEALTH));
    assert_true(raw_send_text(fd, HEALTH));
    assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
    assert_int_equal(raw_status(&in), 200);
    assert_non_null(strstr(in.bytes, "Connection: close\r\n"));
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    assert_int_equal(raw_receive(late, &in, "}", 0), RAW_LIMIT);
    daemon_clear(&aftd);
    assert_int_equal(manager_start(&manager, &aftd, NULL), 0);
    assert_int_equal(raw_receive(late, &in, "}", HANG_MS), RAW_FOUND);
    raw_close(late);
    raw_close(fd);
    end();
}

static void an_idle_connection_without_one_ends(void **state)
{
    enum { IDLE_MS = 200 };
    static struct raw_input in;
    (void)state;
    const uint16_t port = manager_pass_tcp(&manager, "http");
    assert_int_equal(manager_start(&manager, &aftd, (const char *const[]){"--drain-idle-ms=200", NULL}), 0);
    const int fd = connect_idle(port, &in);
    const int64_t begin_ms = test_now_ms();
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
    assert_int_equal(in.size, 0);
    assert_true(test_now_ms() - begin_ms >= IDLE_MS - 50);
    raw_close(fd);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

static int connected(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    (void)close(pair[1]);
    return pair[0];
}

static void what_does_not_listen_is_refused(void **state)
{
#define EXPECTED "; expected a TCP or Unix stream socket that listens"
    const struct {
        int fd;
        const char *says;
    } cases[] = {
        {open("/dev/null", O_RDONLY | O_CLOEXEC), "passed \"http\", which is no socket" EXPECTED},
        {socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "passed \"http\", which is a datagram socket" EXPECTED},
        {socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "passed \"http\", which is no stream socket" EXPECTED},
        {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
         "passed \"http\", which is a socket that does not listen" EXPECTED},
        {connected(), "passed \"http\", which is a socket that does not listen" EXPECTED},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        manager_pass(&manager, cases[i].fd, "http");
        assert_int_equal(manager_start(&manager, &aftd, NULL), 2);
        assert_log_has(cases[i].says, true);
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
    }
}

static void a_wrong_number_of_sockets_is_refused(void **state)
{
    static const struct {
        const char *count, *says;
    } cases[] = {{"LISTEN_FDS=2", "LISTEN_FDS = 2, but descriptor 4 is not open"},
                 {"LISTEN_FDS=0", "LISTEN_FDS = \"0\": expected the number of passed sockets, from 1 to 16"},
                 {"LISTEN_FDS=x", "LISTEN_FDS = \"x\": expected the number of passed sockets, from 1 to 16"}};
    (void)state;
    (void)manager_pass_tcp(&manager, "http");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const environment[] = {cases[i].count, NULL};
        const struct daemon_gifts gifts = {.environment = environment, .sockets = manager.sockets, .count = 1};
        assert_int_equal(daemon_try_start_with(&aftd, NULL, &gifts), 2);
        assert_log_has(cases[i].says, true);
        daemon_clear(&aftd);
    }
}

/* ---- systemd's own --------------------------------------------------------------------------------------------- */

static void systemd_passes_sockets_so(void **state)
{
    static const char activator[] = "/usr/bin/systemd-socket-activate";
    char program[PATH_MAX], path[PATH_MAX], log[PATH_MAX];
    (void)state;
    if (access(activator, X_OK) != 0) {
        print_message("skipped: there is no %s\n", activator);
        skip();
    }
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    temp_path(path, manager.dir, "public");
    temp_path(log, manager.dir, "log");
    aftd.pid = fork();
    assert_true(aftd.pid >= 0);
    if (aftd.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)!freopen(log, "w", stderr);
        (void)execl(activator, activator, "-l", path, "--fdname=http", program, "--models-dir=tests/data/models",
                    "--threads=1", "--drain-idle-ms=0", (char *)NULL);
        _exit(127);
    }
    const struct request request = {.path = "/v1/models", .unix_path = path}; /* it starts for that */
    struct reply r;
    for (const int64_t limit = test_now_ms() + HANG_MS; !client_try(&aftd, &request, &r); test_sleep_ms(5))
        if (test_now_ms() > limit)
            fail_msg("systemd-socket-activate does not listen");
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    end();
    assert_int_equal(access(path, F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_name_tells_whom_a_socket_is_for),
        TEST(passed_sockets_take_the_place_of_settings),
        TEST(settings_of_passed_sockets_may_be_off),
        TEST(admin_sockets_alone_leave_the_others_to_the_settings),
        TEST(sockets_for_another_process_are_left_alone),
        TEST(what_comes_between_two_daemons_is_answered_by_the_second),
        TEST(an_idle_connection_may_bring_a_last_request),
        TEST(an_idle_connection_without_one_ends),
        TEST(what_does_not_listen_is_refused),
        TEST(a_wrong_number_of_sockets_is_refused),
        TEST(systemd_passes_sockets_so),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
