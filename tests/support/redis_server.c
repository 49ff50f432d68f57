/* redis_server.c - see redis_server.h. */
#include "tests/support/redis_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

enum { STEP_MS = 5 };

/* ---- the process ------------------------------------------------------------------------------------------------ */

/* Debian's redis-tools has the server by another name than that by which it knows what it is. */
static const char *find_program(void)
{
    static char path[PATH_MAX];
    struct program_run find = {.argv = {"/bin/sh", "-c",
                                        "command -v redis-server || command -v valkey-server || "
                                        "command -v redis-check-rdb || exit 1"}};
    program_run(&find);
    (void)snprintf(path, sizeof path, "%.*s", (int)strcspn(find.out, "\n"), find.out);
    program_run_clear(&find);
    if (path[0] == '\0') {
        print_message("skipped: neither redis-server nor valkey-server is installed (Debian's redis-tools)\n");
        skip();
    }
    return path;
}

static uint16_t free_port(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&name, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&name, &size), 0);
    (void)close(fd);
    return ntohs(name.sin_port);
}

/* What it keeps it has written, without waiting for the disk: only the machine's end could lose it. */
static void run_child(const struct redis_server *r, const char *program)
{
    char port[8];
    (void)snprintf(port, sizeof port, "%u", (unsigned)r->port);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)close_range(STDERR_FILENO + 1, ~0U, 0);
    (void)execl(program, "redis-server", "--port", port, "--bind", "127.0.0.1", "--unixsocket", r->socket, "--dir",
                r->dir, "--save", "", "--appendonly", r->keeps ? "yes" : "no", "--appendfsync", "no", "--logfile",
                "redis.log", (char *)NULL);
    _exit(127);
}

void redis_server_start(struct redis_server *r)
{
    const char *program = find_program();
    assert_int_equal(r->pid, 0);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0)
        run_child(r, program);
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(STEP_MS)) {
        if (access(r->socket, F_OK) == 0) {
            const char *said = redis_server_ask(r, "PING");
            if (strncmp(said, "+PONG", 5) == 0 || strncmp(said, "-NOAUTH", 7) == 0)
                return;
        }
        if (waitpid(r->pid, NULL, WNOHANG) != 0 || test_now_ms() > end)
            fail_msg("%s does not start", program);
    }
}

void redis_server_begin(struct redis_server *r, bool keeps, bool listens)
{
    *r = (struct redis_server){.keeps = keeps};
    (void)find_program();
    temp_dir_create(r->dir);
    assert_in_range(snprintf(r->socket, sizeof r->socket, "%.90s/socket", r->dir), 1, sizeof r->socket - 1);
    (void)snprintf(r->url, sizeof r->url, "unix:%s", r->socket);
    r->port = listens ? free_port() : 0;
    redis_server_start(r);
}

void redis_server_kill(struct redis_server *r)
{
    assert_int_equal(kill(r->pid, SIGKILL), 0);
    assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
    r->pid = 0;
}

void redis_server_halt(struct redis_server *r)
{
    int status;
    assert_int_equal(kill(r->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(r->pid, &status, WUNTRACED), r->pid);
    assert_true(WIFSTOPPED(status));
}

void redis_server_go_on(struct redis_server *r)
{
    assert_int_equal(kill(r->pid, SIGCONT), 0);
}

void redis_server_end(struct redis_server *r)
{
    if (r->pid > 0)
        redis_server_kill(r);
    if (r->dir[0] != '\0')
        temp_dir_remove(r->dir);
    *r = (struct redis_server){.pid = 0};
}

/* ---- asking it -------------------------------------------------------------------------------------------------- */

const char *redis_server_ask(const struct redis_server *r, const char *command)
{
    static char answer[65536];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t size = 0;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    memcpy(name.sun_path, r->socket, strlen(r->socket));
    answer[0] = '\0';
    if (connect(fd, (const struct sockaddr *)(const void *)&name, sizeof name) == 0) {
        char line[1024];
        const int n = snprintf(line, sizeof line, "%s\r\nQUIT\r\n", command); /* after which it closes */
        assert_in_range(n, 1, sizeof line - 1);
        (void)send(fd, line, (size_t)n, MSG_NOSIGNAL);
        for (;;) {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            const ssize_t got = poll(&p, 1, HANG_MS) == 1 ? recv(fd, answer + size, sizeof answer - 1 - size, 0) : -1;
            if (got <= 0)
                break;
            size += (size_t)got;
        }
    }
    (void)close(fd);
    if (size >= 5 && memcmp(answer + size - 5, "+OK\r\n", 5) == 0)
        size -= 5; /* of QUIT */
    answer[size] = '\0';
    return answer;
}

long redis_server_number(const struct redis_server *r, const char *command)
{
    const char *said = redis_server_ask(r, command);
    if (said[0] != ':')
        fail_msg("%s: %s", command, said);
    return strtol(said + 1, NULL, 10);
}
