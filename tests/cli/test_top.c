/* test_top.c - aft top: snapshots where nobody looks, and on a terminal a screen that is drawn every second until it is
 * left, which leaves the terminal as it was. The real daemon and the real aft under a pseudo-terminal. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"

#define SHOWN "\033[?25h" /* the cursor */
#define HIDDEN "\033[?25l"

enum { LIMIT_S = 580, ROWS = 20, COLUMNS = 72, SEEN_MAX = 65536 };

static struct daemon aftd;
static struct raw_input in;
static char aft[PATH_MAX], url[64];
static int stream;

static int set_up(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    daemon_start(&aftd, (const char *const[]){"--admin-address=127.0.0.1", "--admin-port=0", "--max-tokens-max=1048576",
                                              "--stream-buffer-bytes=16777216", NULL});
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", aftd.admin_port);
    char *text = raw_post("/generate", "{\"stream\": true, \"max_tokens\": 1000000, \"context_overflow\": \"shift\"}",
                          "X-Request-Id: endless\r\n");
    stream = raw_connect(aftd.port);
    assert_true(raw_send_text(stream, text));
    assert_int_equal(raw_receive(stream, &in, "data: ", HANG_MS), RAW_FOUND);
    free(text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    raw_close(stream);
    daemon_clear(&aftd);
    return 0;
}

/* ---- snapshots -------------------------------------------------------------------------------------------------- */

static size_t count(const char *text, const char *what)
{
    size_t found = 0;
    while ((text = strstr(text, what)) != NULL) {
        text += strlen(what);
        found++;
    }
    return found;
}

static char *snapshots(const char *how, const char *number, size_t expected)
{
    struct program_run p = {.argv = {aft, "top", "--url", url, how, number}};
    program_run(&p);
    if (p.exit_code != 0 || p.err_size > 0)
        fail_msg("exit code %d: %s", p.exit_code, p.err);
    char *out = p.out;
    p.out = NULL;
    program_run_clear(&p);
    assert_int_equal(count(out, "aftd at http"), expected);
    assert_int_equal(count(out, "MODEL  "), 2 * expected);
    assert_int_equal(count(out, "  endless\n"), expected);
    assert_int_equal(count(out, "\033"), 0);
    return out;
}

static void without_a_terminal_there_are_as_many_snapshots_as_asked_for(void **state)
{
    char cells[6][64];
    (void)state;
    free(snapshots("--count", "2", 2));
    char *one = snapshots("--once", NULL, 1);
    const char *line = strstr(one, "\nenwik8-aft-local ");
    assert_non_null(line);
    assert_int_equal(
        sscanf(line, "%63s %63s %63s %63s %63s %63s", cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]), 6);
    assert_string_equal(cells[1], "loaded");
    assert_string_equal(cells[2], "1/64");
    assert_string_equal(cells[3], "0");
    assert_true(strtod(cells[4], NULL) > 0.0); /* bytes a second */
    assert_string_equal(cells[5], "0.0");
    assert_non_null(strstr(one, "\ncifar10-aft-conv "));
    assert_non_null(strstr(one, ": requests 1, waiting 0, "));
    free(one);
}

/* A line for each second, with what the tables have. */
static void seconds_are_objects_on_a_line_each(void **state)
{
    struct program_run p = {.argv = {aft, "top", "--url", url, "--json", "--count", "2"}};
    (void)state;
    program_run(&p);
    assert_int_equal(p.exit_code, 0);
    char *second = strchr(p.out, '\n');
    assert_non_null(second);
    *second++ = '\0';
    assert_int_equal(strcspn(second, "\n") + 1, strlen(second));
    for (const char *line = p.out; line != NULL; line = line == p.out ? second : NULL) {
        json_t *o = json_loads(line, 0, NULL);
        const json_t *model, *running = NULL;
        size_t i;
        assert_int_equal(json_integer_value(json_object_get(o, "total")), 1);
        assert_true(json_real_value(json_object_get(o, "cpu_share")) > 0.0);
        assert_true(json_integer_value(json_object_get(o, "memory_bytes")) > 0);
        assert_int_equal(json_array_size(json_object_get(o, "requests")), 1);
        json_array_foreach(json_object_get(o, "models"), i, model)
        {
            if (strcmp(json_string_value(json_object_get(model, "model")), "enwik8-aft-local") == 0)
                running = model;
        }
        assert_int_equal(json_integer_value(json_object_get(running, "streams_running")), 1);
        assert_true(json_real_value(json_object_get(running, "bytes_per_second")) > 0.0);
        json_decref(o);
    }
    program_run_clear(&p);
}

static void a_daemon_that_is_not_there_is_a_failure(void **state)
{
    struct program_run p = {.argv = {aft, "top", "--once", "--url", url}};
    (void)state;
    daemon_signal(&aftd, SIGKILL);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 128 + SIGKILL);
    program_run(&p);
    assert_int_equal(p.exit_code, 1);
    assert_non_null(strstr(p.err, "Connection refused"));
    program_run_clear(&p);
}

/* ---- a terminal ------------------------------------------------------------------------------------------------- */

struct terminal {
    int fd, side; /* the side is ours as well, so that it can be looked at when the program has ended */
    pid_t pid;
    struct termios before;
    char seen[SEEN_MAX];
    size_t size;
};

static void run_there(struct terminal *t)
{
    const struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    memset(t, 0, sizeof *t);
    assert_int_equal(openpty(&t->fd, &t->side, NULL, NULL, &size), 0);
    assert_int_equal(tcgetattr(t->side, &t->before), 0);
    t->pid = fork();
    if (t->pid == 0) {
        if (login_tty(dup(t->side)) == 0 && setenv("TERM", "xterm", 1) == 0)
            (void)execl(aft, "aft", "top", "--url", url, (char *)NULL);
        _exit(127);
    }
    assert_true(t->pid > 0);
}

/* Read until `what` is there `times` times. */
static void read_until(struct terminal *t, const char *what, size_t times)
{
    for (const int64_t end = test_now_ms() + HANG_MS; count(t->seen, what) < times;) {
        struct pollfd there = {.fd = t->fd, .events = POLLIN};
        if (test_now_ms() > end || t->size + 1 >= SEEN_MAX)
            fail_msg("\"%s\" is not there %zu times: %s", what, times, t->seen);
        if (poll(&there, 1, 100) != 1)
            continue;
        const ssize_t n = read(t->fd, t->seen + t->size, SEEN_MAX - 1 - t->size);
        if (n > 0)
            t->size += (size_t)n;
    }
}

/* It has ended with this wait status, and the terminal is as it was. */
static void assert_left(struct terminal *t, int expected)
{
    int status = -1;
    struct termios now;
    for (const int64_t end = test_now_ms() + HANG_MS; waitpid(t->pid, &status, WNOHANG) == 0; test_sleep_ms(2))
        if (test_now_ms() > end) {
            (void)kill(t->pid, SIGKILL);
            fail_msg("it goes on");
        }
    assert_int_equal(status, expected);
    read_until(t, SHOWN, 1);
    assert_int_equal(tcgetattr(t->side, &now), 0);
    assert_int_equal(now.c_lflag, t->before.c_lflag);
    assert_memory_equal(now.c_cc, t->before.c_cc, sizeof now.c_cc);
    (void)close(t->fd);
    (void)close(t->side);
}

static void press(const struct terminal *t, char key)
{
    assert_int_equal(write(t->fd, &key, 1), 1);
}

static void a_terminal_is_drawn_every_second_until_q(void **state)
{
    static struct terminal t;
    struct termios now;
    (void)state;
    program_need_terminal();
    run_there(&t);
    read_until(&t, "\033[H", 4); /* at first, and three times */
    read_until(&t, "ENDPOINT", 3);
    assert_int_equal(count(t.seen, HIDDEN), 1);
    assert_non_null(strstr(t.seen, "\nenwik8-aft-local "));
    assert_int_equal(tcgetattr(t.side, &now), 0);
    assert_int_equal(now.c_lflag & (ICANON | ECHO), 0);
    for (const char *line = strstr(t.seen, "STATE "); line != NULL; line = strstr(line + 1, "\n"))
        assert_true(strcspn(line + 1, "\r\033") < COLUMNS); /* cut, where the ids would not fit */
    press(&t, 'x');
    press(&t, 'q');
    assert_left(&t, 0);
}

static void an_interrupt_leaves_it_also_while_the_daemon_hangs(void **state)
{
    static struct terminal t;
    (void)state;
    program_need_terminal();
    run_there(&t);
    read_until(&t, "ENDPOINT", 1);
    press(&t, '\003');
    assert_left(&t, 0);
    run_there(&t);
    read_until(&t, "ENDPOINT", 1);
    daemon_signal(&aftd, SIGSTOP);
    test_sleep_ms(1500); /* it asks, and is not answered */
    press(&t, '\003');
    assert_left(&t, 0);
    daemon_signal(&aftd, SIGCONT);
}

static void a_signal_and_a_daemon_that_ends_leave_the_terminal_as_it_was(void **state)
{
    static struct terminal t;
    (void)state;
    program_need_terminal();
    run_there(&t);
    read_until(&t, "ENDPOINT", 1);
    assert_int_equal(kill(t.pid, SIGTERM), 0);
    assert_left(&t, SIGTERM); /* ended by that signal */
    run_there(&t);
    read_until(&t, "ENDPOINT", 1);
    daemon_signal(&aftd, SIGKILL);
    read_until(&t, "aft top:", 1);
    assert_left(&t, 1 << 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_terminal_there_are_as_many_snapshots_as_asked_for),
        TEST(seconds_are_objects_on_a_line_each),
        TEST(a_daemon_that_is_not_there_is_a_failure),
        TEST(a_terminal_is_drawn_every_second_until_q),
        TEST(an_interrupt_leaves_it_also_while_the_daemon_hangs),
        TEST(a_signal_and_a_daemon_that_ends_leave_the_terminal_as_it_was),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
