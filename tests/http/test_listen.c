/* test_listen.c - where the daemon listens: several addresses, Unix sockets, the admin listener; what is left of
 * them, and what settings it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
static char dir[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* "--name=dir/file", in static memory, a few at a time. */
static const char *flag(const char *name, const char *file)
{
    static char flags[4][PATH_MAX + 64];
    static size_t next;
    char *f = flags[next];
    next = (next + 1) % ARRAY_LEN(flags);
    (void)snprintf(f, sizeof flags[0], "--%s=%s/%s", name, dir, file);
    return f;
}

static void assert_status(const struct request *r, long status)
{
    struct reply reply;
    client_call(&aftd, r, &reply);
    if (reply.status != status)
        fail_msg("%s: expected %ld, got %ld: %s", r->path, status, reply.status, reply.body);
    reply_clear(&reply);
}

static void several_addresses_are_served(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--listen-address=127.0.0.2, 127.0.0.1", NULL});
    daemon_await_log(&aftd, "listening on http://127.0.0.2:");
    char *log = daemon_log(&aftd);
    const char *second = strstr(log, "listening on http://127.0.0.2:");
    assert_non_null(second);
    const uint16_t port = (uint16_t)strtoul(second + strlen("listening on http://127.0.0.2:"), NULL, 10);
    free(log);
    assert_status(&(struct request){.path = "/readyz"}, 200);
    assert_true(port != 0 && (port == aftd.port || raw_is_refused(port))); /* on 127.0.0.1 */
    daemon_stop(&aftd);
}

static void a_unix_socket_is_served_and_removed(void **state)
{
    char path[PATH_MAX];
    struct stat there;
    struct reply reply;
    (void)state;
    temp_path(path, dir, "socket");
    daemon_start(&aftd, (const char *const[]){flag("listen-unix", "socket"), "--listen-unix-mode=0640", NULL});
    assert_int_equal(stat(path, &there), 0);
    assert_true(S_ISSOCK(there.st_mode));
    assert_int_equal(there.st_mode & 0777, 0640);
    const char body[] = "{\"prompt\": \"The \", \"max_tokens\": 20, \"temperature\": 0, \"stream\": true}";
    const struct request r = {.path = "/generate", .body = body, .size = strlen(body), .unix_path = path};
    client_call(&aftd, &r, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.body, "\"finish_reason\":\"length\""));
    reply_clear(&reply);
    daemon_await_log(&aftd, "client=unix");
    daemon_stop(&aftd);
    assert_int_not_equal(stat(path, &there), 0);
}

static void unix_clients_are_not_one_address(void **state)
{
    char path[PATH_MAX];
    struct request all[8];
    struct reply replies[ARRAY_LEN(all)];
    (void)state;
    temp_path(path, dir, "socket");
    daemon_start(&aftd, (const char *const[]){flag("listen-unix", "socket"), "--connections-per-address-max=1", NULL});
    const char body[] = "{\"prompt\": \"The \", \"max_tokens\": 200, \"temperature\": 0}";
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i] = (struct request){.path = "/generate", .body = body, .size = strlen(body), .unix_path = path};
    client_call_all(&aftd, all, replies, ARRAY_LEN(all), NULL);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(replies[i].status, 200);
        reply_clear(&replies[i]);
    }
    daemon_stop(&aftd);
}

/* Connect to a Unix socket and leave without a word: the job of one that waits is cancelled. */
static void a_unix_client_that_leaves_is_noticed(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char path[PATH_MAX];
    (void)state;
    temp_path(path, dir, "socket");
    daemon_start(&aftd, (const char *const[]){flag("listen-unix", "socket"), NULL});
    assert_true(strlen(path) < sizeof name.sun_path);
    memcpy(name.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&name, sizeof name), 0);
    char *text =
        raw_post("/generate",
                 "{\"prompt\": \"x\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", \"stream\": false}", "");
    assert_true(raw_send_text(fd, text));
    free(text);
    (void)client_await_metric(&aftd, "aftd_streams_running", 1, HANG_MS);
    raw_close(fd);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    daemon_stop(&aftd);
}

/* Killed, a daemon leaves its socket's file; the next one takes its place, but not that of one that lives. */
static void a_stale_socket_is_replaced(void **state)
{
    char path[PATH_MAX];
    (void)state;
    temp_path(path, dir, "socket");
    const char *const flags[] = {flag("listen-unix", "socket"), NULL};
    daemon_start(&aftd, flags);
    daemon_clear(&aftd); /* kills it */
    assert_int_equal(access(path, F_OK), 0);
    daemon_start(&aftd, flags);
    assert_status(&(struct request){.path = "/readyz", .unix_path = path}, 200);
    char program[PATH_MAX];
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    const struct program_case taken = {
        "somebody listens",    {"--listen-port=0", "--models-dir=tests/data/models", flags[0]}, NULL, 1, "",
        "another process does"};
    program_expect(program, &taken, 1);
    assert_status(&(struct request){.path = "/readyz", .unix_path = path}, 200);
    daemon_stop(&aftd);
}

static void the_admin_listener_is_one_of_its_own(void **state)
{
    static const struct {
        const char *path;
        long open, admin;
    } cases[] = {
        {"/healthz", 200, 200},   {"/readyz", 200, 200},   {"/metrics", 200, 200},
        {"/v1/models", 200, 404}, {"/generate", 400, 404}, {"/classify", 405, 404},
    };
    char path[PATH_MAX];
    struct stat there;
    (void)state;
    temp_path(path, dir, "admin");
    daemon_start(
        &aftd, (const char *const[]){"--admin-address=127.0.0.1", "--admin-port=0", flag("admin-unix", "admin"), NULL});
    assert_int_not_equal(aftd.admin_port, 0);
    assert_int_not_equal(aftd.admin_port, aftd.port);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_status(&(struct request){.path = cases[i].path}, cases[i].open);
        assert_status(&(struct request){.path = cases[i].path, .port = aftd.admin_port}, cases[i].admin);
        assert_status(&(struct request){.path = cases[i].path, .unix_path = path}, cases[i].admin);
    }
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_mode & 0777, 0600);
    daemon_stop(&aftd);
}

/* Descriptors run out: who has a connection keeps it, and once some are free others are accepted again. */
static void running_out_of_descriptors_is_survived(void **state)
{
    enum { CLIENTS = 64 };
    int fds[CLIENTS];
    (void)state;
    daemon_start(&aftd, NULL);
    const struct daemon_usage before = daemon_usage(&aftd);
    const struct rlimit few = {.rlim_cur = before.fds + 8, .rlim_max = before.fds + 8};
    assert_int_equal(prlimit(aftd.pid, RLIMIT_NOFILE, &few, NULL), 0);
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = raw_connect(aftd.port); /* in the backlog, the most */
    daemon_await_log(&aftd, "cannot accept connections");
    for (int i = 0; i < CLIENTS; i++)
        raw_close(fds[i]);
    assert_status(&(struct request){.path = "/readyz"}, 200);
    daemon_stop(&aftd);
}

static void wrong_settings_are_named(void **state)
{
    char program[PATH_MAX], file[PATH_MAX];
    (void)state;
    temp_path(file, dir, "file");
    temp_write(file, "x", 1);
    const char *const occupied = flag("listen-unix", "file");
    const char *const nowhere = flag("admin-unix", "no/such/folder");
    static char too_long[256] = "--listen-unix=/";
    memset(too_long + strlen(too_long), 'x', 150);
    const struct program_case cases[] = {
        {"a name", {"--listen-address=localhosts"}, NULL, 2, "", "listen_address: \"localhosts\": expected a numeric"},
        {"an empty one", {"--listen-address=127.0.0.1,,::1"}, NULL, 2, "", "listen_address: \"\": expected"},
        {"nothing", {"--listen-address=off"}, NULL, 2, "", "expected at least one"},
        {"admin's", {"--admin-address=x"}, NULL, 2, "", "admin_address: \"x\": expected a numeric"},
        {"no mode", {"--listen-unix-mode=rw"}, NULL, 2, "", "listen_unix_mode = \"rw\": expected permissions in octal"},
        {"mode 8", {"--listen-unix-mode=0680"}, NULL, 2, "", "listen_unix_mode = \"0680\""},
        {"mode 1777", {"--listen-unix-mode=1777"}, NULL, 2, "", "listen_unix_mode = \"1777\""},
        {"a long path", {too_long}, NULL, 2, "", "expected a path of at most 107 bytes"},
        {"a file", {occupied}, NULL, 1, "", "exists and is not a socket"},
        {"no folder", {nowhere}, NULL, 1, "", "No such file or directory"},
        {"too many",
         {"--listen-address=127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,127.0.0.5,127.0.0.6,127.0.0.7,127.0.0.8,"
          "127.0.0.9,127.0.0.10,127.0.0.11,127.0.0.12,127.0.0.13,127.0.0.14,127.0.0.15,127.0.0.16,"
          "127.0.0.17"},
         NULL,
         2,
         "",
         "expected at most 16 listeners"},
    };
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct program_case c = cases[i];
        c.args[1] = "--models-dir=tests/data/models";
        c.args[2] = "--listen-port=0";
        program_expect(program, &c, 1);
    }
    assert_int_equal(access(file, F_OK), 0);
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(several_addresses_are_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_unix_socket_is_served_and_removed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unix_clients_are_not_one_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_unix_client_that_leaves_is_noticed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stale_socket_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_admin_listener_is_one_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(running_out_of_descriptors_is_survived, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_settings_are_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
