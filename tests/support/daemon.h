/* daemon.h - the real daemon as a child process: start it on a free port, look at what it holds, stop it by its pid.
 * One thread, the test's main one: the child is killed when that ends. A failing step ends the test.
 *
 * Time: no verdict depends on how long something took. What must come has HANG_MS to do so, which is over only when it
 * never comes; a timer that must not end while a test works is minutes long, one that must end is short, and what a
 * test shows of time is that it was not too early, or in which order things came. What runs is $AFTD_TEST_DAEMON, or
 * aftd of the build that the test belongs to. */
#ifndef TESTS_SUPPORT_DAEMON_H
#define TESTS_SUPPORT_DAEMON_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct daemon {
    pid_t pid;           /* 0: it does not run */
    uint16_t port;       /* of the first address on 127.0.0.1 */
    uint16_t admin_port; /* of the admin listener; 0: there is none on 127.0.0.1 */
    char dir[PATH_MAX];  /* for its log and the test's own files; removed with it */
};

/* ---- time ------------------------------------------------------------------------------------------------------ */

/* How long a test waits for what must come. */
enum { HANG_MS = 120000 };

/* Monotonic. */
int64_t test_now_ms(void);
void test_sleep_ms(long ms);
/* End the whole test program, and its daemons with it, if it still runs after `seconds` of a usual build. */
void test_limit_s(unsigned seconds);

/* ---- the process ----------------------------------------------------------------------------------------------- */

/* Run aftd with `flags` (NULL at the end; NULL: none) beside those for address, port and models; returns once it
 * listens. Unless a flag says otherwise: one compute thread, as OpenMP's threads wait for each other by spinning, which
 * costs far more than it gains on a machine that does other work, such as running tests; f32, as the reference's
 * answers are; no deadline of requests; and idle connections hold up no end. */
void daemon_start(struct daemon *d, const char *const flags[]);
/* The same, but returns 0 once it listens, or its exit code if it ends instead, 128 + n if signal n ended it. Then its
 * log is still there until daemon_clear. */
int daemon_try_start(struct daemon *d, const char *const flags[]);
/* What a service manager starts a daemon with; zeroed: nothing. */
struct daemon_gifts {
    const char *const *environment; /* NAME=VALUE, NULL at the end; NULL: nothing more than usual */
    const int *sockets;             /* [count], which become descriptors 3, 4, ... */
    size_t count;
    const char *names; /* LISTEN_FDNAMES; NULL: none */
};
/* As daemon_try_start. */
int daemon_try_start_with(struct daemon *d, const char *const flags[], const struct daemon_gifts *gifts);
/* As daemon_try_start, where the log may lose the lines that tell the ports, which are then 0: `flags` have it listen
 * on the Unix socket `socket_path` too, and it has started once it accepts connections there. */
int daemon_try_start_untold(struct daemon *d, const char *socket_path, const char *const flags[]);
void daemon_signal(const struct daemon *d, int signal_number);
/* Wait for its end. Returns its exit code, 128 + n if signal n ended it, or -1 if it still runs after limit_ms . */
int daemon_wait(struct daemon *d, long limit_ms);
/* Send SIGTERM; the test fails unless it ends in time with exit code 0. Its folder is removed. */
void daemon_stop(struct daemon *d);
/* The same with standard error at err_fd (-1: closed), so that there is no log to read and no port to learn: it listens
 * on the Unix socket `path` alone. Returns once it accepts connections there. */
void daemon_start_apart(struct daemon *d, int err_fd, const char *path, const char *const flags[]);
/* For teardowns: whatever state the test left it in, end it and remove its folder. A no-op for one that never ran. */
void daemon_clear(struct daemon *d);
/* A teardown: stop, as daemon_stop does, all that still run, and remove all folders of temp_dir.h. */
int daemons_end(void **state);

/* What it has written to stderr so far; free it. */
char *daemon_log(const struct daemon *d);
/* Wait until its log contains that; the test fails after HANG_MS. */
void daemon_await_log(const struct daemon *d, const char *what);

/* ---- what it holds --------------------------------------------------------------------------------------------- */

struct daemon_usage {
    unsigned fds, threads;
};

struct daemon_usage daemon_usage(const struct daemon *d);
/* The most resident memory that it has had so far. */
uint64_t daemon_peak_bytes(const struct daemon *d);
/* The test fails unless it is back to at most `before` within limit_ms. */
void daemon_assert_usage(const struct daemon *d, const struct daemon_usage *before, long limit_ms);

#endif
