/* manager.h - a service manager of the test's own, as sd_notify(3) and sd_listen_fds(3) describe one: it starts the
 * daemon with sockets that it keeps open, and hears what the daemon says. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_MANAGER_H
#define TESTS_SUPPORT_MANAGER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/support/daemon.h"

enum { MANAGER_SOCKETS_MAX = 20 };

struct manager {
    char dir[PATH_MAX];
    char notify[PATH_MAX]; /* NOTIFY_SOCKET: a path, or @ and an abstract name */
    int fd;                /* where the daemon's messages arrive; -1: nobody listens */
    int sockets[MANAGER_SOCKETS_MAX];
    size_t count;
    char names[1024];   /* LISTEN_FDNAMES */
    long watchdog_ms;   /* WATCHDOG_USEC, not scaled; 0: there is none */
    pid_t watchdog_pid; /* WATCHDOG_PID; 0: not set */
    char said[65536];   /* what was heard so far: the lines of all messages, each message ending with an empty line */
};

/* `abstract`: NOTIFY_SOCKET is no path. */
void manager_begin(struct manager *m, bool abstract);
/* Zeroed is fine. */
void manager_end(struct manager *m);

/* Pass that socket, which is the manager's from now on, to the daemons that are started. */
void manager_pass(struct manager *m, int fd, const char *name);
/* Listen on 127.0.0.1, on a port that the kernel chooses, which is returned, or on a Unix socket in the manager's
 * folder; and pass that. */
uint16_t manager_pass_tcp(struct manager *m, const char *name);
void manager_pass_unix(struct manager *m, const char *file, const char *name);

/* As daemon_try_start. */
int manager_start(struct manager *m, struct daemon *d, const char *const flags[]);

/* Listen for so long; what comes is in `said`. */
void manager_listen(struct manager *m, long ms);
/* Listen until it has said that line; the test fails after limit_ms. */
void manager_await(struct manager *m, const char *line, long limit_ms);
/* How many lines begin so. */
size_t manager_count(const struct manager *m, const char *begins);
/* Forget what was said. */
void manager_forget(struct manager *m);

#endif
