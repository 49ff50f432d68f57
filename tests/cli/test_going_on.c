/* test_going_on.c - aft generate with a daemon whose connections break, which drains, or which is replaced meanwhile:
 * what it prints is the undisturbed text. Between the two is a proxy that does as it is told. */
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/program.h"

enum { LIMIT_S = 580, WHOLE = 0x7fffffff };
#define TEXT "--prompt=The history of ", "--seed=7", "--max-tokens=1500"
#define REFUSED "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

static struct daemon here, there;
static char aft[PATH_MAX];
static struct program_run undisturbed;

static int setup(void **state)
{
    (void)state;
    program_find(aft, "aft", "AFTD_TEST_CLI");
    daemon_start(&there, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    program_run_clear(&undisturbed);
    daemon_stop(&there);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    daemon_clear(&here);
    return 0;
}

/* ---- the proxy -------------------------------------------------------------------------------------------------- */

/* What becomes of a connection. */
struct step {
    uint16_t port; /* of whom it leads to; 0: it is answered REFUSED */
    int bytes;     /* of the answer that come through before it is cut */
    pid_t drains;  /* 0, or who is told to drain once they have */
};

static void pass(int client, const struct step *s)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(s->port)};
    const int daemon = socket(AF_INET, SOCK_STREAM, 0);
    int left = s->bytes;
    pid_t drains = s->drains;
    if (connect(daemon, (struct sockaddr *)&to, sizeof to) != 0)
        _exit(1);
    while (left > 0) {
        char bytes[4096];
        struct pollfd p[2] = {{.fd = client, .events = POLLIN}, {.fd = daemon, .events = POLLIN}};
        (void)poll(p, 2, -1);
        const int from = p[1].revents != 0 ? daemon : client, most = from == daemon && left < 4096 ? left : 4096;
        const ssize_t n = recv(from, bytes, (size_t)most, 0);
        if (n <= 0)
            break;
        left -= from == daemon ? (int)n : 0;
        (void)send(from == daemon ? client : daemon, bytes, (size_t)n, MSG_NOSIGNAL);
        if (left == 0 && drains != 0) { /* and comes to its own end */
            (void)kill(drains, SIGTERM);
            drains = 0;
            left = WHOLE;
        }
    }
    (void)close(daemon);
}

/* Serve connections by the steps; the last holds for all that come after. */
static void serve(int listener, const struct step *steps, size_t count)
{
    for (size_t i = 0;; i += i + 1 < count) {
        char request[8192];
        const int client = accept(listener, NULL, NULL);
        if (client < 0)
            _exit(0);
        if (steps[i].port != 0) {
            pass(client, &steps[i]);
        } else {
            (void)recv(client, request, sizeof request, 0);
            (void)send(client, REFUSED, strlen(REFUSED), MSG_NOSIGNAL);
            (void)shutdown(client, SHUT_WR);
            (void)recv(client, request, sizeof request, 0);
        }
        (void)close(client);
    }
}

/* aft generate through it, with one more option. */
static struct program_run run(const struct step *steps, size_t count, const char *option)
{
    char url[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    const pid_t proxy = fork();
    if (proxy == 0)
        serve(listener, steps, count);
    assert_true(proxy > 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    struct program_run p = {.argv = {aft, "generate", "--url", url, TEXT, option}};
    program_run(&p);
    assert_int_equal(kill(proxy, SIGKILL), 0);
    assert_int_equal(waitpid(proxy, NULL, 0), proxy);
    (void)close(listener);
    return p;
}

/* It succeeds with the undisturbed text, and says once what happened. */
static void assert_goes_on(const char *name, const struct step *steps, size_t count, const char *says)
{
    if (undisturbed.out == NULL)
        undisturbed = run(&(struct step){there.port, WHOLE, 0}, 1, NULL);
    assert_int_equal(undisturbed.exit_code, 0);
    assert_string_equal(undisturbed.err, "");
    assert_int_equal(undisturbed.out_size, 1500);
    struct program_run p = run(steps, count, NULL);
    const char *told = strstr(p.err, "resuming\n");
    if (p.exit_code != 0 || p.out_size != undisturbed.out_size || memcmp(p.out, undisturbed.out, p.out_size) != 0 ||
        strstr(p.err, says) == NULL || told == NULL || strchr(p.err, '\n') != p.err + strlen(p.err) - 1)
        fail_msg("%s: exit code %d, %zu bytes, \"%s\"", name, p.exit_code, p.out_size, p.err);
    program_run_clear(&p);
}

#define GOES_ON(name, says, ...) \
    assert_goes_on(name, (struct step[]){__VA_ARGS__}, sizeof((struct step[]){__VA_ARGS__}) / sizeof(struct step), says)

/* ---- behaviours ------------------------------------------------------------------------------------------------- */

static void a_text_whose_connection_breaks_is_whole(void **state)
{
    const uint16_t port = there.port;
    (void)state;
    GOES_ON("once", "generate: http://127.0.0.1:", {port, 2000, 0}, {port, WHOLE, 0});
    GOES_ON("in an id", "resuming", {port, 1031, 0}, {port, WHOLE, 0});
    GOES_ON("again and again", "resuming", {port, 3000, 0}, {port, 700, 0}, {port, 2500, 0}, {port, 900, 0},
            {port, WHOLE, 0});
    GOES_ON("refused meanwhile", "resuming", {port, 5000, 0}, {0, 0, 0}, {0, 0, 0}, {port, WHOLE, 0});
}

static void a_text_moves_to_another_daemon(void **state)
{
    (void)state;
    daemon_start(&here, (const char *const[]){"--drain-timeout-ms=60000", NULL});
    GOES_ON("drained", "the daemon drains", {here.port, 3000, here.pid}, {there.port, WHOLE, 0});
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
}

static void it_is_not_tried_for_ever(void **state)
{
    const uint16_t port = there.port;
    static const struct {
        const char *name, *option, *says;
    } cases[] = {
        {"not at all", "--retries=0", "transfer closed"},
        {"twice", "--retries=2", "answers 503"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct step steps[] = {{port, 3000, 0}, {0, 0, 0}};
        struct program_run p = run(steps, 2, cases[i].option);
        if (p.exit_code != 1 || p.out_size == 0 || p.out_size >= 1500 || strstr(p.err, cases[i].says) == NULL)
            fail_msg("%s: exit code %d, %zu bytes, \"%s\"", cases[i].name, p.exit_code, p.out_size, p.err);
        program_run_clear(&p);
    }
    struct program_run p = run(&(struct step){0, 0, 0}, 1, NULL); /* nothing has begun: told at once */
    assert_int_equal(p.exit_code, 1);
    assert_string_equal(p.out, "");
    assert_null(strstr(p.err, "resuming"));
    program_run_clear(&p);
    struct program_run alone = {.argv = {aft, "generate", "enwik8-aft-local", "--retries=3"}};
    program_run(&alone);
    assert_int_equal(alone.exit_code, 2);
    assert_non_null(strstr(alone.err, "--retries is for a daemon"));
    program_run_clear(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_whose_connection_breaks_is_whole),
        cmocka_unit_test_teardown(a_text_moves_to_another_daemon, clear),
        cmocka_unit_test(it_is_not_tried_for_ever),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("aft generate goes on", tests, setup, teardown);
}
