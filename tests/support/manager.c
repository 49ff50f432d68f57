/* manager.c - see manager.h. */
#include "tests/support/manager.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

enum { BACKLOG = 1024 };

/* ---- what is said ---------------------------------------------------------------------------------------------- */

void manager_begin(struct manager *m, bool abstract)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    *m = (struct manager){.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    assert_true(m->fd >= 0);
    temp_dir_create(m->dir);
    if (abstract)
        (void)snprintf(m->notify, sizeof m->notify, "@aftd-test-%d", (int)getpid());
    else
        temp_path(m->notify, m->dir, "notify");
    const size_t size = strlen(m->notify);
    assert_true(size < sizeof name.sun_path);
    memcpy(name.sun_path, m->notify, size);
    if (abstract)
        name.sun_path[0] = '\0';
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    assert_int_equal(bind(m->fd, (const struct sockaddr *)(const void *)&name, bytes), 0);
}

void manager_end(struct manager *m)
{
    if (m->dir[0] == '\0')
        return;
    for (size_t i = 0; i < m->count; i++)
        (void)close(m->sockets[i]);
    if (m->fd >= 0)
        (void)close(m->fd);
    temp_dir_remove(m->dir);
    *m = (struct manager){.fd = -1};
}

static void hear(struct manager *m)
{
    const size_t size = strlen(m->said);
    assert_true(size < sizeof m->said - 4096);
    const ssize_t got = recv(m->fd, m->said + size, sizeof m->said - size - 3, MSG_DONTWAIT);
    assert_true(got > 0);
    memcpy(m->said + size + got, "\n\n", 3);
}

void manager_listen(struct manager *m, long ms)
{
    for (const int64_t end = test_now_ms() + ms;;) {
        const int64_t left = end - test_now_ms();
        struct pollfd fd = {.fd = m->fd, .events = POLLIN};
        const int ready = poll(&fd, 1, left > 0 ? (int)left : 0);
        if (ready == 1)
            hear(m);
        else if (left <= 0)
            return;
    }
}

/* The first line that begins so; `whole`: and is nothing more. */
static const char *find(const char *said, const char *line, bool whole)
{
    const size_t size = strlen(line);
    for (const char *at = said; (at = strstr(at, line)) != NULL; at++)
        if ((at == said || at[-1] == '\n') && (!whole || at[size] == '\n'))
            return at;
    return NULL;
}

void manager_await(struct manager *m, const char *line, long limit_ms)
{
    manager_listen(m, 0); /* what is there already is in time */
    for (const int64_t end = test_now_ms() + limit_ms; find(m->said, line, true) == NULL;) {
        if (test_now_ms() > end)
            fail_msg("the service manager has not heard \"%s\", but:\n%s", line, m->said);
        manager_listen(m, 5);
    }
}

size_t manager_count(const struct manager *m, const char *begins)
{
    size_t count = 0;
    for (const char *at = m->said; (at = find(at, begins, false)) != NULL; at++)
        count++;
    return count;
}

void manager_forget(struct manager *m)
{
    m->said[0] = '\0';
}

/* ---- what is passed -------------------------------------------------------------------------------------------- */

void manager_pass(struct manager *m, int fd, const char *name)
{
    assert_true(fd >= 0);
    assert_true(m->count < MANAGER_SOCKETS_MAX);
    const size_t used = strlen(m->names);
    assert_true((size_t)snprintf(m->names + used, sizeof m->names - used, "%s%s", m->count > 0 ? ":" : "", name) <
                sizeof m->names - used);
    m->sockets[m->count++] = fd;
}

uint16_t manager_pass_tcp(struct manager *m, const char *name)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
    } at = {.v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}};
    socklen_t size = sizeof at.v4;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, &at.any, size), 0);
    assert_int_equal(listen(fd, BACKLOG), 0);
    assert_int_equal(getsockname(fd, &at.any, &size), 0);
    manager_pass(m, fd, name);
    return ntohs(at.v4.sin_port);
}

void manager_pass_unix(struct manager *m, const char *file, const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[PATH_MAX];
    temp_path(path, m->dir, file);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, BACKLOG), 0);
    manager_pass(m, fd, name);
}

int manager_start(struct manager *m, struct daemon *d, const char *const flags[])
{
    static char notify[PATH_MAX + 32], usec[64], pid[64];
    const char *environment[4] = {NULL};
    size_t n = 0;
    (void)snprintf(notify, sizeof notify, "NOTIFY_SOCKET=%s", m->notify);
    (void)snprintf(usec, sizeof usec, "WATCHDOG_USEC=%ld", m->watchdog_ms * 1000);
    (void)snprintf(pid, sizeof pid, "WATCHDOG_PID=%d", (int)m->watchdog_pid);
    if (m->fd >= 0)
        environment[n++] = notify;
    if (m->watchdog_ms > 0)
        environment[n++] = usec;
    if (m->watchdog_pid > 0)
        environment[n++] = pid;
    return daemon_try_start_with(d, flags,
                                 &(struct daemon_gifts){.environment = environment,
                                                        .sockets = m->sockets,
                                                        .count = m->count,
                                                        .names = m->names[0] != '\0' ? m->names : NULL});
}
