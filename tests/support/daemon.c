/* daemon.c - see daemon.h. */
#include "tests/support/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

enum { FLAGS_MAX = 32, STEP_MS = 2, DAEMONS_MAX = 16 };

static struct daemon running[DAEMONS_MAX]; /* pid and folder of each; pid 0: none */

/* ---- time ------------------------------------------------------------------------------------------------------ */

int64_t test_now_ms(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void test_sleep_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

void test_limit_s(unsigned seconds)
{
    (void)alarm(seconds * program_slowness());
}

/* ---- the process ----------------------------------------------------------------------------------------------- */

/* Put *d in the place of the first whose pid is that. */
static bool note(pid_t pid, const struct daemon *d)
{
    size_t at = 0;
    while (at < DAEMONS_MAX && running[at].pid != pid)
        at++;
    if (at < DAEMONS_MAX)
        running[at] = *d;
    return at < DAEMONS_MAX;
}

static void forget(pid_t pid)
{
    (void)note(pid, &(struct daemon){.pid = 0}); /* unless a service manager has started it */
}

static void log_path(const struct daemon *d, char path[PATH_MAX])
{
    temp_path(path, d->dir, "log");
}

char *daemon_log(const struct daemon *d)
{
    char path[PATH_MAX];
    size_t size;
    log_path(d, path);
    return temp_read(path, &size);
}

void daemon_await_log(const struct daemon *d, const char *what)
{
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(STEP_MS)) {
        char *log = daemon_log(d);
        const bool said = strstr(log, what) != NULL;
        if (!said && test_now_ms() > end)
            fail_msg("the log does not say \"%s\":\n%s", what, log);
        free(log);
        if (said)
            return;
    }
}

/* No settings, and nothing that the service manager of whoever runs the tests said. */
static void clear_environment(void)
{
    static const char *const prefixes[] = {"AFTD_", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_"};
    extern char **environ;
    for (size_t i = 0; environ[i] != NULL;) {
        char name[64] = {0};
        bool goes = false;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++)
            goes = goes || strncmp(name, prefixes[p], strlen(prefixes[p])) == 0;
        if (!goes || unsetenv(name) != 0)
            i++;
    }
}

/* Of the sockets, duplicates stand far enough above where they go to. */
static void take_gifts(const struct daemon_gifts *g)
{
    enum { ABOVE = 100 };
    char text[32];
    for (size_t i = 0; g->environment != NULL && g->environment[i] != NULL; i++) {
        const size_t name = strcspn(g->environment[i], "=");
        (void)snprintf(text, sizeof text, "%.*s", (int)name, g->environment[i]);
        (void)setenv(text, g->environment[i] + name + 1, 1);
    }
    if (g->count == 0)
        return;
    for (size_t i = 0; i < g->count; i++)
        (void)dup2(g->sockets[i], ABOVE + (int)i);
    for (size_t i = 0; i < g->count; i++)
        (void)dup2(ABOVE + (int)i, STDERR_FILENO + 1 + (int)i);
    (void)snprintf(text, sizeof text, "%zu", g->count);
    (void)setenv("LISTEN_FDS", text, 0);
    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    (void)setenv("LISTEN_PID", text, 0);
    if (g->names != NULL)
        (void)setenv("LISTEN_FDNAMES", g->names, 0);
}

/* The child: inherits nothing of ours but stderr's file, and what it is given. */
static void run_child(const char *program, const char *const argv[], int log_fd, const struct daemon_gifts *gifts)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (log_fd < 0)
        (void)close(STDERR_FILENO);
    else
        (void)dup2(log_fd, STDERR_FILENO);
    clear_environment();
    take_gifts(gifts);
    (void)close_range(STDERR_FILENO + 1 + (unsigned)gifts->count, ~0U, 0);
    (void)execv(program, (char *const *)argv);
    _exit(127);
}

/* The port in the first line that says `what` with an address on 127.0.0.1; 0: there is none. */
static uint16_t port_after(const char *log, const char *what)
{
    static const char address[] = "://127.0.0.1:";
    for (const char *at = strstr(log, what); at != NULL; at = strstr(at + 1, what)) {
        const char *scheme_end = at + strlen(what) + strcspn(at + strlen(what), ":\n");
        if (strncmp(scheme_end, address, strlen(address)) == 0)
            return (uint16_t)strtoul(scheme_end + strlen(address), NULL, 10);
    }
    return 0;
}

/* The ports that it logs once it listens, the admin listener's first. */
static void read_ports(struct daemon *d)
{
    char *log = daemon_log(d);
    log[strrchr(log, '\n') != NULL ? strrchr(log, '\n') - log : 0] = '\0'; /* whole lines */
    d->admin_port = port_after(log, "administration on http");
    d->port = port_after(log, "listening on http");
    free(log);
}

static void fail_with_log(struct daemon *d, const char *what)
{
    char *log = daemon_log(d);
    (void)fprintf(stderr, "the daemon's log:\n%s\n", log); /* cmocka's own would cut it */
    free(log);
    daemon_clear(d);
    fail_msg("%s", what);
}

/* `first`: flags before `flags`. */
static void spawn(struct daemon *d, int err_fd, const char *first, const char *const flags[],
                  const struct daemon_gifts *gifts)
{
    const char *argv[FLAGS_MAX + 1] = {"aftd",
                                       first,
                                       "--listen-port=0",
                                       "--models-dir=tests/data/models",
                                       "--threads=1",
                                       "--precision=f32",
                                       "--timeout-ms=600000",
                                       "--drain-idle-ms=0"};
    char program[PATH_MAX];
    size_t count = 7;
    for (size_t i = 0; flags != NULL && flags[i] != NULL; i++) {
        assert_true(count < FLAGS_MAX);
        argv[count++] = flags[i];
    }
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    if (access(program, X_OK) != 0)
        fail_msg("%s: %s; build it first, or name another with AFTD_TEST_DAEMON", program, strerror(errno));
    d->pid = fork();
    if (d->pid == 0)
        run_child(program, argv, err_fd, gifts);
    assert_true(d->pid > 0);
    assert_true(note(0, d));
}

static bool accepts(const char *socket_path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    assert_true(strlen(socket_path) < sizeof name.sun_path);
    memcpy(name.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool is_there = connect(fd, (const struct sockaddr *)&name, sizeof name) == 0;
    (void)close(fd);
    return is_there;
}

/* `socket_path`: where it listens too, if its log may not tell; or NULL. */
static int try_start(struct daemon *d, const char *socket_path, const char *const flags[],
                     const struct daemon_gifts *gifts)
{
    char path[PATH_MAX];
    memset(d, 0, sizeof *d);
    temp_dir_create(d->dir);
    log_path(d, path);
    const int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(log_fd >= 0);
    spawn(d, log_fd, "--listen-address=127.0.0.1", flags, gifts);
    (void)close(log_fd);
    for (const int64_t end = test_now_ms() + HANG_MS; d->port == 0 && (socket_path == NULL || !accepts(socket_path));
         read_ports(d)) {
        const int code = daemon_wait(d, STEP_MS);
        if (code == 0)
            fail_with_log(d, "the daemon ended at start as if all was well");
        if (code != -1)
            return code;
        if (test_now_ms() > end)
            fail_with_log(d, "the daemon does not listen");
    }
    return 0;
}

int daemon_try_start(struct daemon *d, const char *const flags[])
{
    return try_start(d, NULL, flags, &(struct daemon_gifts){.count = 0});
}

int daemon_try_start_with(struct daemon *d, const char *const flags[], const struct daemon_gifts *gifts)
{
    return try_start(d, NULL, flags, gifts);
}

int daemon_try_start_untold(struct daemon *d, const char *socket_path, const char *const flags[])
{
    return try_start(d, socket_path, flags, &(struct daemon_gifts){.count = 0});
}

void daemon_start(struct daemon *d, const char *const flags[])
{
    if (daemon_try_start(d, flags) != 0)
        fail_with_log(d, "the daemon ended at start");
}

void daemon_start_apart(struct daemon *d, int err_fd, const char *path, const char *const flags[])
{
    const char *all[FLAGS_MAX] = {NULL};
    char flag[PATH_MAX + 32];
    (void)snprintf(flag, sizeof flag, "--listen-unix=%s", path);
    all[0] = flag;
    for (size_t i = 0; flags != NULL && flags[i] != NULL; i++) {
        assert_true(i + 2 < FLAGS_MAX);
        all[i + 1] = flags[i];
    }
    memset(d, 0, sizeof *d);
    spawn(d, err_fd, "--listen-address=off", all, &(struct daemon_gifts){.count = 0});
    for (const int64_t end = test_now_ms() + HANG_MS; !accepts(path);) {
        if (daemon_wait(d, STEP_MS) != -1)
            fail_msg("the daemon ended at start");
        assert_true(test_now_ms() < end);
    }
}

void daemon_signal(const struct daemon *d, int signal_number)
{
    assert_true(d->pid > 0);
    assert_int_equal(kill(d->pid, signal_number), 0);
}

int daemon_wait(struct daemon *d, long limit_ms)
{
    int status;
    assert_true(d->pid > 0);
    for (const int64_t end = test_now_ms() + limit_ms;;) {
        const pid_t ended = waitpid(d->pid, &status, WNOHANG);
        if (ended == d->pid)
            break;
        assert_int_equal(ended, 0);
        if (test_now_ms() >= end)
            return -1;
        test_sleep_ms(STEP_MS);
    }
    forget(d->pid);
    d->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void daemon_stop(struct daemon *d)
{
    daemon_signal(d, SIGTERM);
    const int code = daemon_wait(d, HANG_MS);
    if (code == 0) {
        daemon_clear(d);
        return;
    }
    char what[64];
    (void)snprintf(what, sizeof what, code < 0 ? "the daemon does not stop" : "the daemon's exit code is %d", code);
    fail_with_log(d, what);
}

void daemon_clear(struct daemon *d)
{
    if (d->pid > 0) {
        (void)kill(d->pid, SIGKILL);
        (void)waitpid(d->pid, NULL, 0);
        forget(d->pid);
    }
    if (d->dir[0] != '\0')
        temp_dir_remove(d->dir);
    memset(d, 0, sizeof *d);
}

int daemons_end(void **state)
{
    for (size_t i = 0; i < DAEMONS_MAX; i++) {
        struct daemon d = running[i];
        if (d.pid > 0)
            daemon_stop(&d);
    }
    return temp_dirs_end(state);
}

/* ---- what it holds --------------------------------------------------------------------------------------------- */

static unsigned count_entries(pid_t pid, const char *what)
{
    char path[64];
    unsigned count = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fail_msg("%s: %s", path, strerror(errno));
        return 0;
    }
    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count - 2; /* . and .. */
}

struct daemon_usage daemon_usage(const struct daemon *d)
{
    return (struct daemon_usage){.fds = count_entries(d->pid, "fd"), .threads = count_entries(d->pid, "task")};
}

uint64_t daemon_peak_bytes(const struct daemon *d)
{
    char path[64], line[128];
    unsigned long long kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)d->pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fail_msg("%s: %s", path, strerror(errno));
        return 0;
    }
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtoull(line + 6, NULL, 10);
    (void)fclose(f);
    assert_true(kib > 0);
    return kib * 1024;
}

void daemon_assert_usage(const struct daemon *d, const struct daemon_usage *before, long limit_ms)
{
    for (const int64_t end = test_now_ms() + limit_ms;; test_sleep_ms(STEP_MS)) {
        const struct daemon_usage now = daemon_usage(d);
        if (now.fds <= before->fds && now.threads <= before->threads)
            return;
        if (test_now_ms() >= end)
            fail_msg("the daemon holds %u descriptors and %u threads; before it were %u and %u", now.fds, now.threads,
                     before->fds, before->threads);
    }
}
