/* test_log_writer.c - how lines get to standard error: nobody who logs waits, lines stay whole, and what is missing is
 * told where it is missing. Standard error is a pipe or a file of ours meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/core/log_writer.h"
#include "server/core/metrics_inner.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

enum { SMALL_PIPE = 4096, LIMIT_S = 580 };

#define MISSING " lines are missing here"

/* ---- standard error --------------------------------------------------------------------------------------------- */

static int real_stderr = -1;
static int reading = -1; /* our end of the pipe */

static void point_stderr_at(int fd)
{
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    (void)close(fd);
}

static void open_pipe(int flags, int bytes)
{
    int pair[2];
    assert_int_equal(pipe2(pair, O_CLOEXEC | flags), 0);
    if (bytes > 0)
        assert_int_equal(fcntl(pair[1], F_SETPIPE_SZ, bytes), bytes);
    if (reading >= 0)
        (void)close(reading);
    reading = pair[0];
    point_stderr_at(pair[1]);
}

static int set_up(void **state)
{
    struct error err;
    (void)state;
    metrics_init(NULL, 0);
    real_stderr = dup(STDERR_FILENO);
    return real_stderr >= 0 && log_writer_start(&err) == OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    log_writer_stop();
    (void)dup2(real_stderr, STDERR_FILENO);
    (void)close(real_stderr);
    if (reading >= 0)
        (void)close(reading);
    reading = -1;
    return 0;
}

static uint64_t dropped(void)
{
    return atomic_load(&metrics_rows[METRIC_LOG_DROPPED].values[0]);
}

static void await_dropped(uint64_t at_least)
{
    for (const int64_t end = test_now_ms() + HANG_MS; dropped() < at_least; test_sleep_ms(1))
        assert_true(test_now_ms() < end);
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* "WRITER NUMBER xxx...x\n", of at least `size` bytes. */
static size_t make_line(char out[LOG_LINE_MAX], unsigned by, uint64_t number, size_t size)
{
    size_t at = (size_t)snprintf(out, LOG_LINE_MAX, "%u %llu ", by, (unsigned long long)number);
    while (at + 1 < size)
        out[at++] = 'x';
    out[at++] = '\n';
    return at;
}

static void put(unsigned by, uint64_t number, size_t size)
{
    char line[LOG_LINE_MAX];
    log_writer_put(line, make_line(line, by, number, size));
}

enum { WRITERS_MAX = 4 };

/* What was read so far: per writer, the number that must come next; `missing` lines were told of and not yet seen. */
struct reading {
    char *text;
    size_t size;
    uint64_t next[WRITERS_MAX], warnings, told;
};

static void check_line(struct reading *r, const char *line, size_t size)
{
    const char *warning = memmem(line, size, MISSING, strlen(MISSING));
    unsigned long long number;
    char *end = NULL;
    if (warning != NULL) {
        const char *count = memmem(line, size, "warning log: ", 13);
        assert_true(count != NULL && line[4] == '-'); /* it begins with its time */
        number = strtoull(count + 13, NULL, 10);
        assert_true(number > 0);
        r->told += number;
        r->next[0] += number; /* with one writer its next line tells whether that is right */
        r->warnings++;
        return;
    }
    const unsigned long by = strtoul(line, &end, 10);
    number = strtoull(end, &end, 10);
    if (by >= WRITERS_MAX || *end != ' ' || strspn(end + 1, "x") != size - (size_t)(end + 1 - line))
        fail_msg("not a whole line: \"%.*s\"", (int)size, line);
    assert_int_equal(number, r->next[by]);
    r->next[by]++;
}

/* Read until all writers' lines together are so many, with those that are told to be missing, and check them. */
static void read_lines(struct reading *r, uint64_t lines)
{
    static char bytes[1 << 20];
    struct pollfd p = {.fd = reading, .events = POLLIN};
    size_t size = 0;
    while (r->next[0] + r->next[1] + r->next[2] + r->next[3] < lines) {
        assert_int_equal(poll(&p, 1, HANG_MS), 1);
        const ssize_t n = read(reading, bytes + size, sizeof bytes - size);
        if (n <= 0)
            break;
        size += (size_t)n;
        const char *end = memrchr(bytes, '\n', size);
        size_t done = 0;
        while (end != NULL && bytes + done <= end) {
            const size_t length = (size_t)((char *)memchr(bytes + done, '\n', size - done) - (bytes + done));
            bytes[done + length] = '\0';
            check_line(r, bytes + done, length);
            done += length + 1;
        }
        memmove(bytes, bytes + done, size - done);
        size -= done;
    }
    assert_int_equal(size, 0);
}

/* ---- readers ---------------------------------------------------------------------------------------------------- */

static void a_reader_that_keeps_up_gets_every_line(void **state)
{
    struct reading r = {.size = 0};
    (void)state;
    open_pipe(0, 0);
    for (uint64_t i = 0; i < 500; i++) {
        put(0, i, 1 + i % 300);
        if (i % 50 == 49)
            read_lines(&r, i + 1);
    }
    assert_int_equal(r.next[0], 500);
    assert_int_equal(r.warnings + dropped(), 0);
}

static void nobody_waits_for_a_reader(void **state)
{
    enum { LINES = 4000, SIZE = 200 };
    struct reading r = {.size = 0};
    (void)state;
    open_pipe(0, SMALL_PIPE);
    for (uint64_t i = 0; i < LINES; i++) /* with a write that waits it would not come to an end */
        put(0, i, SIZE);
    assert_true(dropped() >= LINES - (LOG_RING_BYTES + 2 * SMALL_PIPE) / SIZE - 1);
    assert_true(dropped() <= LINES - LOG_RING_BYTES / 2 / SIZE);
    read_lines(&r, LINES);
    assert_int_equal(r.next[0], LINES); /* the place is right: before the end, nothing is missing */
    assert_in_range(r.warnings, 1, 2);  /* and was told without another line; also before a thread that came late */
    assert_int_equal(r.told, dropped());
    put(0, LINES, SIZE);
    read_lines(&r, LINES + 1);
    assert_int_equal(r.next[0], LINES + 1);
}

/* A reader who comes and goes: at every gap the number is right, so the lines in between are where they belong. */
static void every_gap_is_told_where_it_is(void **state)
{
    struct reading r = {.size = 0};
    uint64_t i = 0;
    (void)state;
    open_pipe(0, SMALL_PIPE);
    for (int round = 0; round < 5; round++) {
        for (unsigned n = 0; n < 2000 + 100 * (unsigned)round; n++, i++)
            put(0, i, 150 + i % 100);
        read_lines(&r, i);
    }
    assert_int_equal(r.next[0], i);
    assert_in_range(r.warnings, 5, 10); /* one more each where the thread came late */
    assert_int_equal(r.told, dropped());
}

/* In a pipe of packets each read returns what one write wrote. */
static void a_write_has_several_whole_lines(void **state)
{
    struct reading r = {.size = 0};
    static char packet[65536];
    size_t packets = 0, largest = 0;
    (void)state;
    open_pipe(O_DIRECT, SMALL_PIPE);
    for (uint64_t i = 0; i < 400; i++)
        put(0, i, 100);
    for (; r.next[0] < 400; packets++) {
        const ssize_t n = read(reading, packet, sizeof packet);
        assert_in_range(n, 1, PIPE_BUF);
        assert_int_equal(packet[n - 1], '\n');
        largest = (size_t)n > largest ? (size_t)n : largest;
        for (char *line = packet, *end; line < packet + n; line = end + 1) {
            end = memchr(line, '\n', (size_t)(packet + n - line));
            *end = '\0';
            check_line(&r, line, (size_t)(end - line));
        }
    }
    assert_int_equal(r.next[0], 400);
    assert_true(largest > PIPE_BUF / 2);
    assert_in_range(packets, 1, 100);
}

static void a_line_may_be_as_long_as_a_write(void **state)
{
    struct reading r = {.size = 0};
    (void)state;
    open_pipe(0, 0);
    for (uint64_t i = 0; i < 40; i++)
        put(0, i, LOG_LINE_MAX - i % 3);
    read_lines(&r, 40);
    assert_int_equal(r.next[0], 40);
}

/* ---- writers ---------------------------------------------------------------------------------------------------- */

enum { LINES_EACH = 300 };

static void *put_many(void *arg)
{
    for (uint64_t i = 0; i < LINES_EACH; i++)
        put(*(unsigned *)arg, i, 50 + i);
    return NULL;
}

/* Another process that has the same standard error. */
static void *write_many(void *arg)
{
    char line[LOG_LINE_MAX];
    for (uint64_t i = 0; i < LINES_EACH; i++) {
        const size_t size = make_line(line, *(unsigned *)arg, i, 50 + i);
        if (write(STDERR_FILENO, line, size) != (ssize_t)size)
            break;
    }
    return NULL;
}

static void lines_of_several_writers_stay_whole(void **state)
{
    static unsigned numbers[WRITERS_MAX] = {0, 1, 2, 3};
    struct reading r = {.size = 0};
    pthread_t threads[WRITERS_MAX];
    (void)state;
    open_pipe(0, SMALL_PIPE);
    for (size_t i = 0; i < WRITERS_MAX; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i == 3 ? write_many : put_many, &numbers[i]), 0);
    read_lines(&r, (uint64_t)WRITERS_MAX * LINES_EACH);
    for (size_t i = 0; i < WRITERS_MAX; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < WRITERS_MAX; i++)
        assert_int_equal(r.next[i], LINES_EACH);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

/* One line after the other fails; then standard error is a pipe, and all is told. */
static void assert_recovers(void)
{
    struct reading r = {.size = 0};
    put(0, 0, 60);
    await_dropped(1);
    for (uint64_t i = 1; i < 20; i++)
        put(0, i, 60);
    open_pipe(0, 0);
    read_lines(&r, 20); /* without another line */
    assert_int_equal(r.next[0], 20);
    assert_int_equal(r.warnings, 1);
    assert_int_equal(r.told, dropped());
    put(0, 20, 60);
    read_lines(&r, 21);
    assert_int_equal(r.next[0], 21);
}

static void a_full_device_loses_lines_and_no_more(void **state)
{
    (void)state;
    point_stderr_at(open("/dev/full", O_WRONLY | O_CLOEXEC));
    assert_recovers();
}

static void a_closed_descriptor_loses_lines_and_no_more(void **state)
{
    (void)state;
    open_pipe(0, 0);
    const int kept = dup(STDERR_FILENO);
    (void)close(STDERR_FILENO);
    errno = ENOENT;
    put(0, 0, 60);
    assert_int_equal(errno, ENOENT);
    await_dropped(1);
    point_stderr_at(kept);
    struct reading r = {.size = 0};
    read_lines(&r, 1);
    assert_int_equal(r.next[0], 1);
}

static void a_reader_that_has_left_loses_lines_and_no_more(void **state)
{
    (void)state;
    open_pipe(0, 0);
    (void)close(reading);
    reading = -1;
    assert_recovers();
}

/* Beyond what the ring holds lines are lost as well, those before the ones that it keeps: the latest. */
static void a_long_failure_is_one_gap(void **state)
{
    struct reading r = {.size = 0};
    (void)state;
    point_stderr_at(open("/dev/full", O_WRONLY | O_CLOEXEC));
    put(0, 0, 100);
    await_dropped(1);
    for (uint64_t i = 1; i < 4000; i++)
        put(0, i, 100);
    open_pipe(0, 0);
    read_lines(&r, 4000);
    assert_int_equal(r.next[0], 4000);
    assert_int_equal(r.warnings, 1);
    assert_int_equal(r.told, dropped());
}

/* A file may take a part of a write: what follows begins on a line of its own. */
static void a_torn_line_spoils_no_other(void **state)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct rlimit before;
    size_t size;
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "log");
    point_stderr_at(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 150, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    put(0, 0, 100);
    put(0, 1, 100);
    await_dropped(1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    put(0, 2, 100);
    log_writer_stop();
    char *text = temp_read(path, &size);
    char line[3][LOG_LINE_MAX];
    for (uint64_t i = 0; i < 3; i++)
        line[i][make_line(line[i], 0, i, 100)] = '\0';
    assert_memory_equal(text, line[0], 100);
    assert_memory_equal(text + 100, line[1], 50);
    assert_int_equal(text[150], '\n');
    assert_non_null(strstr(text + 151, "warning log: 1" MISSING));
    assert_string_equal(strchr(text + 151, '\n') + 1, line[2]);
    free(text);
    temp_dir_remove(dir);
}

static void a_non_blocking_descriptor_is_waited_for(void **state)
{
    struct reading r = {.size = 0};
    (void)state;
    open_pipe(O_NONBLOCK, SMALL_PIPE);
    for (uint64_t i = 0; i < 800; i++)
        put(0, i, 100 + i % 200);
    read_lines(&r, 800);
    assert_int_equal(r.next[0], 800);
    assert_int_equal(dropped(), 0);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void what_is_left_is_written_at_the_end(void **state)
{
    struct reading r = {.size = 0};
    struct error err;
    (void)state;
    open_pipe(0, 0);
    for (uint64_t round = 0; round < 50; round++) {
        for (uint64_t i = 0; i < 20; i++)
            put(0, round * 21 + i, 300);
        log_writer_stop();
        put(0, round * 21 + 20, 300); /* at once, by us */
        assert_int_equal(log_writer_start(&err), OK);
        read_lines(&r, (round + 1) * 21);
        assert_int_equal(r.next[0], (round + 1) * 21);
    }
}

/* In a child: the thread that is left behind stays in its write. */
static void the_end_does_not_wait_for_a_reader(void **state)
{
    int status = -1;
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct error err;
        int pair[2];
        if (pipe2(pair, O_CLOEXEC) != 0 || dup2(pair[1], STDERR_FILENO) < 0 || log_writer_start(&err) != OK)
            _exit(2);
        for (uint64_t i = 0; i < 2000; i++)
            put(0, i, 200);
        const int64_t from = test_now_ms();
        log_writer_stop();
        put(0, 2000, 200); /* nor does who logs then */
        const int64_t took = test_now_ms() - from;
        exit(took >= LOG_STOP_MS - 50 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A descriptor 2 that was closed before the start is nobody else's afterwards. */
static void a_file_opened_later_is_not_standard_error(void **state)
{
    struct error err;
    (void)state;
    log_writer_stop();
    (void)close(STDERR_FILENO);
    assert_int_equal(log_writer_start(&err), OK);
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(fd > STDERR_FILENO);
    (void)close(fd);
    put(0, 0, 60);
    await_dropped(1); /* the log takes it for what it is: closed */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reader_that_keeps_up_gets_every_line),
        TEST(nobody_waits_for_a_reader),
        TEST(every_gap_is_told_where_it_is),
        TEST(a_write_has_several_whole_lines),
        TEST(a_line_may_be_as_long_as_a_write),
        TEST(lines_of_several_writers_stay_whole),
        TEST(a_full_device_loses_lines_and_no_more),
        TEST(a_closed_descriptor_loses_lines_and_no_more),
        TEST(a_reader_that_has_left_loses_lines_and_no_more),
        TEST(a_long_failure_is_one_gap),
        TEST(a_torn_line_spoils_no_other),
        TEST(a_non_blocking_descriptor_is_waited_for),
        TEST(what_is_left_is_written_at_the_end),
        TEST(a_file_opened_later_is_not_standard_error),
        cmocka_unit_test(the_end_does_not_wait_for_a_reader),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("log_writer", tests, NULL, NULL);
}
