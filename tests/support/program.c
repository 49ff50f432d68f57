/* program.c - see program.h. The parent reads and writes with poll(2), so that no pipe can fill up on both sides. */
#include "tests/support/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define OUTPUT_MAX ((size_t)64 << 20) /* more is a program gone wild */
#define TIMEOUT_S 500                 /* which only a hang reaches; stretched by AFTD_TEST_SLOW */
#define CANNOT_START 127

enum { IN, OUT, ERR, STREAMS };

/* The two ends of a stream; -1 where there is none. */
struct ends {
    int ours, theirs;
};

static int64_t now_ms(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

unsigned program_slowness(void)
{
    const char *text = getenv("AFTD_TEST_SLOW");
    const long n = text != NULL ? strtol(text, NULL, 10) : 1;
    return n >= 1 && n <= 1000 ? (unsigned)n : 1;
}

int test_work(int n)
{
    const unsigned slowness = program_slowness();
    const char *all = getenv("AFTD_TEST_ALL");
    const int part = (slowness >= 10 ? 5 : slowness >= 4 ? 2 : 1) * (all != NULL && all[0] != '\0' ? 1 : 2);
    return (n + part - 1) / part;
}

void program_find(char path[PATH_MAX], const char *name, const char *variable)
{
    const char *given = getenv(variable);
    char self[PATH_MAX];
    if (given != NULL && given[0] != '\0') {
        assert_in_range(snprintf(path, PATH_MAX, "%s", given), 1, PATH_MAX - 1);
        return;
    }
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    char *end = NULL; /* of the build's folder, in which tests/ mirrors the tree */
    for (char *at = self; (at = strstr(at, "/tests/")) != NULL; at++)
        end = at;
    if (end == NULL)
        fail_msg("%s: expected a path with /tests/ in it", self);
    else
        *end = '\0';
    assert_in_range(snprintf(path, PATH_MAX, "%s/%s", self, name), 1, PATH_MAX - 1);
}

/* ---- starting -------------------------------------------------------------------------------------------------- */

static struct ends open_sink(enum program_sink sink)
{
    struct ends e = {-1, -1};
    int pair[2];
    switch (sink) {
    case PROGRAM_COLLECTED:
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        e = (struct ends){pair[0], pair[1]};
        break;
    case PROGRAM_TERMINAL: {
        struct termios raw;
        assert_int_equal(openpty(&e.ours, &e.theirs, NULL, NULL, NULL), 0);
        assert_int_equal(tcgetattr(e.theirs, &raw), 0);
        cfmakeraw(&raw);
        assert_int_equal(tcsetattr(e.theirs, TCSANOW, &raw), 0);
        assert_int_equal(fcntl(e.ours, F_SETFD, FD_CLOEXEC), 0);
        assert_int_equal(fcntl(e.theirs, F_SETFD, FD_CLOEXEC), 0);
        break;
    }
    case PROGRAM_FULL:
        e.theirs = open("/dev/full", O_WRONLY | O_CLOEXEC);
        assert_true(e.theirs >= 0);
        break;
    case PROGRAM_CLOSED:
        break;
    }
    return e;
}

static struct ends open_input(const struct program_run *p)
{
    struct ends e = {-1, -1};
    int pair[2];
    if (p->input == NULL) {
        e.theirs = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(e.theirs >= 0);
        return e;
    }
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    assert_int_equal(fcntl(pair[1], F_SETFL, O_NONBLOCK), 0);
    return (struct ends){pair[1], pair[0]};
}

/* In the child: never returns. All ends close on exec; their copies at 0, 1 and 2 do not. */
static void become(const struct program_run *p, const struct ends ends[STREAMS])
{
    char *argv[PROGRAM_ARGUMENTS_MAX]; /* execv's const stands elsewhere */
    memcpy(argv, p->argv, sizeof argv);
    for (int i = 0; i < STREAMS; i++) {
        if (ends[i].theirs < 0)
            (void)close(i);
        else if (dup2(ends[i].theirs, i) < 0)
            _exit(CANNOT_START);
    }
    (void)signal(SIGPIPE, p->ignores_sigpipe ? SIG_IGN : SIG_DFL);
    (void)setenv("AFTD_PRECISION", "f32", 0);
    (void)setenv("AFTD_MODELS_DIR", "tests/data/models", 0);
    (void)execv(p->argv[0], argv);
    _exit(CANNOT_START);
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static pid_t start(const struct program_run *p, struct ends ends[STREAMS])
{
    ends[IN] = open_input(p);
    ends[OUT] = open_sink(p->out_sink);
    ends[ERR] = open_sink(p->err_sink);
    for (int i = 0; i < STREAMS; i++)
        assert_true(ends[i].theirs < 0 || ends[i].theirs >= STREAMS); /* dup2 must not clobber one with another */
    (void)fflush(stdout);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become(p, ends);
    for (int i = 0; i < STREAMS; i++)
        close_end(&ends[i].theirs);
    return pid;
}

/* ---- talking --------------------------------------------------------------------------------------------------- */

static void feed(const struct program_run *p, size_t *fed, int *fd)
{
    const ssize_t n = write(*fd, (const char *)p->input + *fed, p->input_size - *fed);
    if (n >= 0)
        *fed += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR) /* it reads no more */
        *fed = p->input_size;
    if (*fed == p->input_size)
        close_end(fd);
}

/* Append what there is, at most `max` bytes in all (0: no limit), then close. */
static void take(char **bytes, size_t *size, size_t max, int *fd)
{
    char piece[16384];
    const size_t room = max > 0 && max - *size < sizeof piece ? max - *size : sizeof piece;
    const ssize_t n = read(*fd, piece, room);
    if (n < 0 && errno == EINTR)
        return;
    if (n > 0) {
        char *more = realloc(*bytes, *size + (size_t)n + 1);
        assert_non_null(more);
        memcpy(more + *size, piece, (size_t)n);
        *bytes = more;
        *size += (size_t)n;
        more[*size] = '\0';
        assert_true(*size <= OUTPUT_MAX);
    }
    if (n <= 0 || *size == max) /* a terminal whose program has gone reports EIO */
        close_end(fd);
}

/* Until both outputs are closed or the time is over. */
static void talk(struct program_run *p, struct ends ends[STREAMS], int64_t deadline_ms)
{
    size_t fed = 0;
    if (ends[IN].ours >= 0 && p->input_size == 0)
        close_end(&ends[IN].ours);
    while (ends[OUT].ours >= 0 || ends[ERR].ours >= 0) {
        struct pollfd polled[STREAMS] = {
            {ends[IN].ours, POLLOUT, 0}, {ends[OUT].ours, POLLIN, 0}, {ends[ERR].ours, POLLIN, 0}};
        const int64_t left_ms = deadline_ms - now_ms();
        if (left_ms <= 0)
            return;
        if (poll(polled, STREAMS, (int)left_ms) < 0)
            assert_int_equal(errno, EINTR);
        if (polled[IN].revents != 0)
            feed(p, &fed, &ends[IN].ours);
        if (polled[OUT].revents != 0)
            take(&p->out, &p->out_size, p->out_max, &ends[OUT].ours);
        if (polled[ERR].revents != 0)
            take(&p->err, &p->err_size, 0, &ends[ERR].ours);
    }
}

static void await(struct program_run *p, pid_t pid, int64_t deadline_ms)
{
    int status = 0;
    pid_t ended = 0;
    struct rusage used;
    while ((ended = wait4(pid, &status, WNOHANG, &used)) == 0) {
        if (!p->timed_out && now_ms() >= deadline_ms) {
            p->timed_out = true;
            assert_int_equal(kill(pid, SIGKILL), 0);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    assert_int_equal(ended, pid);
    p->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    p->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    p->cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

void program_need_terminal(void)
{
    int ours, theirs;
    if (openpty(&ours, &theirs, NULL, NULL, NULL) != 0) {
        print_message("skipped: no pseudo-terminal: %s\n", strerror(errno));
        skip();
    }
    (void)close(ours);
    (void)close(theirs);
}

void program_run(struct program_run *p)
{
    struct ends ends[STREAMS];
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    const int64_t limit_s = (int64_t)TIMEOUT_S * program_slowness();
    p->timed_out = false;
    p->out = calloc(1, 1);
    p->err = calloc(1, 1);
    p->out_size = p->err_size = 0;
    assert_non_null(p->out);
    assert_non_null(p->err);
    assert_int_equal(sigaction(SIGPIPE, &ignore, &before), 0); /* the program need not read its input */
    const int64_t deadline_ms = now_ms() + limit_s * 1000;
    const pid_t pid = start(p, ends);
    talk(p, ends, deadline_ms);
    await(p, pid, deadline_ms);
    for (int i = 0; i < STREAMS; i++)
        close_end(&ends[i].ours);
    assert_int_equal(sigaction(SIGPIPE, &before, NULL), 0);
    if (p->exit_code == CANNOT_START)
        fail_msg("%s cannot be started: make builds it", p->argv[0]);
}

void program_run_clear(struct program_run *p)
{
    if (p == NULL)
        return;
    free(p->out);
    free(p->err);
    p->out = p->err = NULL;
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static bool has(const char *text, const char *piece)
{
    return piece == NULL || (piece[0] == '\0' ? text[0] == '\0' : strstr(text, piece) != NULL);
}

void program_expect(const char *path, const struct program_case *cases, size_t count)
{
    size_t failed = 0;
    for (size_t i = 0; i < count; i++) {
        const struct program_case *c = &cases[i];
        struct program_run p = {.argv = {path}, .input = c->input};
        p.input_size = c->input != NULL ? strlen(c->input) : 0;
        for (size_t a = 0; c->args[a] != NULL; a++)
            p.argv[a + 1] = c->args[a];
        program_run(&p);
        if (p.timed_out || p.exit_code != c->exit_code || !has(p.out, c->out) || !has(p.err, c->err)) {
            print_error(
                "\"%s\": exit code %d%s, expected %d\n  out: %.600s\n  expected: %s\n  err: %.600s\n  expected: %s\n",
                c->name, p.exit_code, p.timed_out ? " (killed: too slow)" : "", c->exit_code, p.out,
                c->out != NULL ? c->out : "anything", p.err, c->err != NULL ? c->err : "anything");
            failed++;
        }
        program_run_clear(&p);
    }
    assert_int_equal(failed, 0);
}
