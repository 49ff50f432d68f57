/* test_log_pipe.c - the daemon's log where standard error is not a file that takes everything: a pipe that nobody
 * reads, a full device, nothing at all, the journal. Requests are served as ever. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, SMALL_PIPE = 4096, TEXT_MAX = 1 << 20 };

/* Of 100 characters, which fill the log the sooner. */
#define TEN "0123456789"
#define ID TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

#define TIME "[0-9-]{10}T[0-9:]{8}\\.[0-9]{3}Z "
#define LINE TIME "(error|warning|info|debug) [^\n]+"

static struct daemon aftd;
static char dir[PATH_MAX], path[PATH_MAX];
static char text[TEXT_MAX]; /* what the daemon has logged */

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "socket");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unsetenv("JOURNAL_STREAM");
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* Ask `count` times; each must be answered. */
static void ask(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct reply r;
        const char *const headers[] = {"X-Request-Id: " ID, NULL};
        client_call(&aftd, &(struct request){.path = "/v2", .unix_path = path, .headers = headers}, &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
    }
}

static unsigned long dropped(void)
{
    static const char series[] = "\naftd_log_lines_dropped_total ";
    struct reply r;
    client_call(&aftd, &(struct request){.path = "/metrics", .unix_path = path}, &r);
    assert_int_equal(r.status, 200);
    const char *at = strstr(r.body, series);
    assert_non_null(at);
    const unsigned long value = strtoul(at + strlen(series), NULL, 10);
    reply_clear(&r);
    return value;
}

/* Read into `text` up to the end of a line that has `last` in it; NULL: up to the end. */
static void read_log(int fd, const char *last)
{
    size_t size = 0;
    const char *at = NULL;
    text[0] = '\0';
    while (size < sizeof text - 1 && (at == NULL || strchr(at, '\n') == NULL)) {
        const ssize_t n = read(fd, text + size, sizeof text - 1 - size);
        if (n <= 0)
            break;
        size += (size_t)n;
        text[size] = '\0';
        at = last != NULL ? strstr(text, last) : NULL;
    }
}

/* Each line of `text` is what the expression says; returns how many there are. */
static unsigned assert_lines(const char *pattern)
{
    unsigned lines = 0;
    regex_t expression;
    assert_int_equal(regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB), 0);
    for (char *rest = text, *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n"), lines++)
        if (regexec(&expression, line, 0, NULL, 0) != 0)
            fail_msg("line %u: \"%s\" does not match \"%s\"", lines, line, pattern);
    regfree(&expression);
    return lines;
}

static void assert_stops(void)
{
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
}

/* ---- pipes ------------------------------------------------------------------------------------------------------ */

static void a_log_that_nobody_reads_holds_up_no_request(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(fcntl(pair[1], F_SETPIPE_SZ, SMALL_PIPE), SMALL_PIPE);
    daemon_start_apart(&aftd, pair[1], path, NULL);
    (void)close(pair[1]);
    ask(300);
    assert_int_equal(dropped(), 0); /* they wait */
    while (dropped() == 0)
        ask(300);
    ask(10);
    struct reply last;
    client_call(&aftd, &(struct request){.path = "/last", .unix_path = path}, &last);
    assert_int_equal(last.status, 404);
    reply_clear(&last);
    read_log(pair[0], " GET /last 404 "); /* the latest are there, without a line after them */
    char *warning = strstr(text, "warning log: ");
    assert_non_null(warning);
    const unsigned long told = strtoul(warning + strlen("warning log: "), NULL, 10);
    assert_true(told >= 10);
    assert_non_null(strstr(text, "listening on unix:"));
    assert_true(assert_lines("^" LINE "$") > 300);
    assert_int_equal(dropped(), told);
    ask(1);
    read_log(pair[0], " GET /v2 ");
    assert_int_equal(assert_lines("^" TIME "info GET /v2 200 ok [0-9.]+ ms bytes_out=[0-9]+ client=unix id=" ID "$"),
                     1);
    assert_stops();
    read_log(pair[0], NULL);
    assert_non_null(strstr(text, "info stopped\n"));
    (void)close(pair[0]);
}

static void the_end_comes_although_nobody_reads(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(fcntl(pair[1], F_SETPIPE_SZ, SMALL_PIPE), SMALL_PIPE);
    daemon_start_apart(&aftd, pair[1], path, NULL);
    (void)close(pair[1]);
    ask(100);
    assert_stops();
    (void)close(pair[0]);
}

/* ---- no standard error ------------------------------------------------------------------------------------------ */

static void assert_serves_without_log(int fd)
{
    daemon_start_apart(&aftd, fd, path, NULL);
    ask(50);
    assert_true(dropped() > 0);
    assert_stops();
}

static void a_full_device_changes_nothing(void **state)
{
    (void)state;
    const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_serves_without_log(fd);
    (void)close(fd);
}

static void a_closed_standard_error_changes_nothing(void **state)
{
    (void)state;
    assert_serves_without_log(-1);
}

static void a_reader_that_has_left_changes_nothing(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    (void)close(pair[0]);
    assert_serves_without_log(pair[1]);
    (void)close(pair[1]);
}

/* What keeps it from starting is said, however soon it ends. */
/* Nor is the address of who asks, where the setting says so. */
static void probes_that_go_well_are_not_logged(void **state)
{
    static const char *const probes[] = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"};
    static const char *const flags[] = {"--log-clients=on", "--log-clients=off"};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        int pair[2];
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        daemon_start_apart(&aftd, pair[1], path, (const char *const[]){flags[k], NULL});
        (void)close(pair[1]);
        for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
            struct reply r;
            client_call(&aftd, &(struct request){.path = probes[i], .unix_path = path}, &r);
            assert_int_equal(r.status, 200);
            reply_clear(&r);
        }
        ask(1);
        assert_stops();
        read_log(pair[0], NULL);
        const char *line = strstr(text, " info GET /");
        assert_non_null(line);
        assert_ptr_equal(strstr(line, " info GET /v2 200 "), line); /* the first, and the only one */
        assert_null(strstr(line + 1, " info GET /"));
        assert_int_equal(strstr(line, " client=unix") != NULL, k == 0);
        (void)close(pair[0]);
    }
}

static void an_error_at_the_start_is_always_told(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct daemon d;
        assert_int_equal(daemon_try_start(&d, (const char *const[]){"--models-dir=/nonexistent", NULL}), 1);
        char *log = daemon_log(&d);
        assert_non_null(strstr(log, " error models_dir = /nonexistent: No such file or directory\n"));
        free(log);
        daemon_clear(&d);
    }
}

/* ---- the journal ------------------------------------------------------------------------------------------------ */

static void journal_lines(const char *format, const char *pattern)
{
    struct stat s;
    char stream[64];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(fstat(pair[1], &s), 0);
    (void)snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)s.st_dev, (uintmax_t)s.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    daemon_start_apart(&aftd, pair[1], path, (const char *const[]){format, NULL});
    (void)close(pair[1]);
    ask(3);
    assert_stops();
    read_log(pair[0], NULL);
    assert_non_null(strstr(text, "GET"));
    assert_true(assert_lines(pattern) > 5);
    (void)close(pair[0]);
}

static void the_journal_gets_levels_and_no_times(void **state)
{
    (void)state;
    journal_lines("--log-format=text", "^<[3467]>(GET /v2 200 |[a-z])[^<>]*$");
    journal_lines("--log-format=json", "^<[3467]>\\{\"level\":\"[a-z]+\",\"message\":\".*\\}$");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_log_that_nobody_reads_holds_up_no_request),
        TEST(the_end_comes_although_nobody_reads),
        TEST(a_full_device_changes_nothing),
        TEST(a_closed_standard_error_changes_nothing),
        TEST(a_reader_that_has_left_changes_nothing),
        TEST(probes_that_go_well_are_not_logged),
        TEST(an_error_at_the_start_is_always_told),
        TEST(the_journal_gets_levels_and_no_times),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("log_pipe", tests, NULL, NULL);
}
