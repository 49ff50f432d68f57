/* test_restart.c - a daemon that is restarted again and again behind sockets that its manager keeps: no client notices.
 * The real daemon; clients that never try again, processes of their own, and aft load. AFTD_TEST_RESTARTS says how
 * often (make test-restart: 100). */
#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/manager.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

enum { CLIENTS = 12, RESTARTS = 5, THINK_MS = 120 };
enum { AWAY_MS = 10 }; /* how long a request is on its way, while the daemon may close the connection */

/* What the clients, which are other processes, say of themselves. */
struct tally {
    atomic_bool ends; /* said to them */
    atomic_ulong answered, kept, last, failed;
    char why[CLIENTS][160];
};

static struct manager manager;
static struct daemon aftd;
static struct tally *tally;
static struct sockaddr_un local = {.sun_family = AF_UNIX};
static uint16_t port;

/* ---- a client -------------------------------------------------------------------------------------------------- */

struct client {
    unsigned id;
    int fd; /* -1: none */
    char bytes[16384];
};

static int open_connection(unsigned id)
{
    const struct timeval limit = {.tv_sec = HANG_MS / 1000};
    const struct sockaddr_in tcp = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const bool is_local = id % 3 == 2;
    const int fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const struct sockaddr *to =
        is_local ? (const struct sockaddr *)(const void *)&local : (const struct sockaddr *)(const void *)&tcp;
    if (connect(fd, to, is_local ? sizeof local : sizeof tcp) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

/* Has the daemon closed it, as far as one can know before sending? */
static bool has_ended(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLIN};
    return poll(&now, 1, 0) != 0;
}

static void note_failure(struct client *c, const char *what, size_t got)
{
    (void)snprintf(tally->why[c->id], sizeof tally->why[0], "%s (%zu bytes: \"%.60s\")", what, got, c->bytes);
    (void)atomic_fetch_add(&tally->failed, 1);
}

/* The size of a whole answer in `bytes`; 0: there is more to come. */
static size_t whole_answer(const char *bytes, size_t got)
{
    const char *end = strstr(bytes, "\r\n\r\n"), *length = strcasestr(bytes, "\r\nContent-Length:");
    if (end == NULL || length == NULL || length > end)
        return 0;
    const size_t size = (size_t)(end + 4 - bytes) + strtoul(length + strlen("\r\nContent-Length:"), NULL, 10);
    return got >= size ? size : 0;
}

/* Send one request and read its answer. A request is never sent twice. */
static void ask(struct client *c, const char *request)
{
    size_t got = 0;
    c->bytes[0] = '\0';
    if (send(c->fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
        note_failure(c, "the request could not be sent", 0);
        goto close;
    }
    while (whole_answer(c->bytes, got) == 0) {
        const ssize_t n = recv(c->fd, c->bytes + got, sizeof c->bytes - 1 - got, 0);
        if (n <= 0) {
            note_failure(c, n == 0 ? "closed under the request" : "no answer", got);
            goto close;
        }
        got += (size_t)n;
        c->bytes[got] = '\0';
    }
    if (strncmp(c->bytes, "HTTP/1.1 200 ", strlen("HTTP/1.1 200 ")) != 0)
        note_failure(c, "refused", got);
    else
        (void)atomic_fetch_add(&tally->answered, 1);
    if (strcasestr(c->bytes, "\r\nConnection: close\r\n") == NULL)
        return;
    (void)atomic_fetch_add(&tally->last, 1);
close:
    (void)close(c->fd);
    c->fd = -1;
}

static void run_client(unsigned id)
{
    static const char quick[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char work[] = "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                               "Content-Length: 49\r\n\r\n{\"prompt\": \"x\", \"max_tokens\": 16, \"stream\":false}";
    struct client c = {.id = id, .fd = -1};
    unsigned next = id;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&tally->ends)) {
        next = next * 1103515245u + 12345u;
        if (id % 2 == 0) /* the others do not think */
            test_sleep_ms((long)(next >> 16) % THINK_MS);
        if (c.fd >= 0 && has_ended(c.fd)) {
            (void)close(c.fd);
            c.fd = -1;
        }
        if (c.fd >= 0) {
            (void)atomic_fetch_add(&tally->kept, 1);
            if (id % 4 == 0)
                test_sleep_ms(AWAY_MS);
        } else {
            c.fd = open_connection(id);
        }
        if (c.fd < 0)
            note_failure(&c, "refused to be connected", 0);
        else
            ask(&c, (next >> 20) % 2 == 0 ? quick : work);
    }
    _exit(0);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

static pid_t start_aft_load(const char *report)
{
    char aft[PATH_MAX], url[64];
    program_find(aft, "aft", "AFTD_TEST_CLI");
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", port);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)!freopen(report, "w", stdout);
    (void)execl(aft, "aft", "load", url, "--concurrency", "4", "--duration", "86400", "--max-tokens", "60", "--json",
                (char *)NULL);
    _exit(127);
}

static void assert_load_was_served(pid_t pid, const char *report)
{
    int status;
    size_t size;
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    char *text = temp_read(report, &size);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const json_int_t requests = json_integer_value(json_object_get(root, "requests"));
    const json_int_t failed = json_integer_value(json_object_get(root, "failed"));
    if (requests == 0 || !json_is_integer(json_object_get(root, "failed")) || failed != 0)
        fail_msg("aft load: %s", text);
    print_message("aft load: %lld requests, %lld failed\n", (long long)requests, (long long)failed);
    json_decref(root);
    free(text);
}

static void start(void)
{
    /* Every connection brings another request, however late; so none is closed under one. */
    assert_int_equal(manager_start(&manager, &aftd, (const char *const[]){"--drain-idle-ms=60000", NULL}), 0);
}

static void restart(void)
{
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    daemon_clear(&aftd);
    manager_listen(&manager, 0);
    manager_forget(&manager);
    start();
}

static void await_answers(unsigned long more)
{
    const unsigned long enough = atomic_load(&tally->answered) + more;
    for (const int64_t end = test_now_ms() + HANG_MS; atomic_load(&tally->answered) < enough; test_sleep_ms(2))
        assert_true(test_now_ms() < end);
}

static void no_request_fails_while_the_daemon_is_restarted(void **state)
{
    const char *count = getenv("AFTD_TEST_RESTARTS");
    const long restarts = count != NULL ? strtol(count, NULL, 10) : RESTARTS;
    pid_t clients[CLIENTS];
    char report[PATH_MAX];
    (void)state;
    temp_path(report, manager.dir, "report");
    start();
    const pid_t load = start_aft_load(report);
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = fork();
        assert_true(clients[i] >= 0);
        if (clients[i] == 0)
            run_client(i);
    }
    for (long i = 0; i < restarts; i++) {
        await_answers(10UL * CLIENTS);
        restart();
    }
    await_answers(10UL * CLIENTS);
    atomic_store(&tally->ends, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_int_equal(waitpid(clients[i], NULL, 0), clients[i]);
    assert_load_was_served(load, report);
    print_message("%ld restarts: %lu requests answered, %lu on a connection that was kept, %lu told to be its last, "
                  "%lu failed\n",
                  restarts, atomic_load(&tally->answered), atomic_load(&tally->kept), atomic_load(&tally->last),
                  atomic_load(&tally->failed));
    for (unsigned i = 0; i < CLIENTS; i++)
        if (tally->why[i][0] != '\0')
            print_message("client %u: %s\n", i, tally->why[i]);
    assert_int_equal(atomic_load(&tally->failed), 0);
    assert_true(atomic_load(&tally->kept) > 0);
    assert_true(atomic_load(&tally->last) > 0);
    daemon_stop(&aftd);
}

static int set_up(void **state)
{
    char path[PATH_MAX];
    (void)state;
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(tally != MAP_FAILED);
    manager_begin(&manager, false);
    port = manager_pass_tcp(&manager, "http");
    manager_pass_unix(&manager, "public", "http");
    temp_path(path, manager.dir, "public");
    memcpy(local.sun_path, path, strlen(path) + 1); /* manager_pass_unix has seen that it fits */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    manager_end(&manager);
    (void)munmap(tally, sizeof *tally);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_request_fails_while_the_daemon_is_restarted, set_up, tear_down),
    };
    test_limit_s(getenv("AFTD_TEST_RESTARTS") != NULL ? 1200 : 580);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
