/* raw_socket.c - see raw_socket.h. */
#include "tests/support/raw_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"

enum { REQUEST_BYTES = 4096, SMALL_BUFFER_BYTES = 2048 };

/* A socket connected to the port, blocking; -1 if it is refused. */
static int try_connect(uint16_t port, int buffer_bytes, unsigned host)
{
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (buffer_bytes > 0)
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes), 0);
    if (host > 1)
        assert_int_equal(bind(fd, (const struct sockaddr *)&from, sizeof from), 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

int raw_connect(uint16_t port)
{
    return raw_connect_as(port, 1);
}

int raw_connect_as(uint16_t port, unsigned host)
{
    const int fd = try_connect(port, 0, host);
    assert_true(fd >= 0);
    return fd;
}

int raw_connect_small(uint16_t port)
{
    return raw_connect_small_as(port, 1);
}

int raw_connect_small_as(uint16_t port, unsigned host)
{
    const int fd = try_connect(port, SMALL_BUFFER_BYTES, host);
    assert_true(fd >= 0);
    return fd;
}

bool raw_is_refused(uint16_t port)
{
    const int fd = try_connect(port, 0, 1);
    if (fd >= 0)
        raw_close(fd);
    return fd < 0;
}

void raw_close(int fd)
{
    (void)close(fd);
}

void raw_reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    (void)close(fd);
}

void raw_half_close(int fd)
{
    (void)shutdown(fd, SHUT_WR);
}

/* False once the time is over. */
static bool wait_for(int fd, short events, int64_t end_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const int64_t left_ms = end_ms - test_now_ms();
        const int n = poll(&p, 1, left_ms > 0 ? (int)left_ms : 0);
        if (n > 0)
            return true;
        if (n == 0)
            return false;
        assert_int_equal(errno, EINTR);
    }
}

bool raw_send(int fd, const void *bytes, size_t size, long limit_ms)
{
    const int64_t end_ms = test_now_ms() + limit_ms;
    for (size_t at = 0; at < size;) {
        const ssize_t n = send(fd, (const char *)bytes + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            at += (size_t)n;
        else if (errno != EAGAIN || !wait_for(fd, POLLOUT, end_ms))
            return false;
    }
    return true;
}

bool raw_send_text(int fd, const char *text)
{
    return raw_send(fd, text, strlen(text), HANG_MS);
}

enum raw_end raw_receive(int fd, struct raw_input *in, const char *until, long limit_ms)
{
    const int64_t end_ms = test_now_ms() + limit_ms;
    in->size = 0;
    in->bytes[0] = '\0';
    in->end = RAW_LIMIT;
    while (in->size < sizeof in->bytes - 1 && wait_for(fd, POLLIN, end_ms)) {
        const ssize_t n = recv(fd, in->bytes + in->size, sizeof in->bytes - 1 - in->size, MSG_DONTWAIT);
        if (n <= 0) {
            if (n < 0 && errno == EAGAIN)
                continue;
            in->end = n == 0 ? RAW_CLOSED : RAW_RESET;
            break;
        }
        in->size += (size_t)n;
        in->bytes[in->size] = '\0';
        if (until != NULL && memmem(in->bytes, in->size, until, strlen(until)) != NULL) {
            in->end = RAW_FOUND;
            break;
        }
    }
    return in->end;
}

enum raw_end raw_exchange(uint16_t port, const void *bytes, size_t size, struct raw_input *in, long limit_ms)
{
    const int fd = raw_connect(port);
    (void)raw_send(fd, bytes, size, limit_ms);
    (void)raw_receive(fd, in, NULL, limit_ms);
    raw_close(fd);
    return in->end;
}

size_t raw_count_answers(const struct raw_input *in)
{
    size_t count = 0;
    for (const char *at = in->bytes; (at = strstr(at, "HTTP/1.")) != NULL; at++)
        count += at == in->bytes || at[-1] == '\n' || at[-1] == '}';
    return count;
}

long raw_status(const struct raw_input *in)
{
    if (strncmp(in->bytes, "HTTP/1.", 7) != 0 || in->size < sizeof "HTTP/1.1 200")
        return 0;
    return strtol(in->bytes + sizeof "HTTP/1.1" - 1, NULL, 10);
}

char *raw_post(const char *path, const char *json, const char *more)
{
    const size_t room = strlen(path) + strlen(json) + strlen(more) + 256;
    char *text = malloc(room);
    assert_non_null(text);
    (void)snprintf(text, room,
                   "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%sContent-Length: "
                   "%zu\r\n\r\n%s",
                   path, more, strlen(json), json);
    return text;
}

long raw_ask(uint16_t port, const char *beginning, struct raw_input *in)
{
    char request[REQUEST_BYTES];
    const int size = snprintf(request, sizeof request, "%sConnection: close\r\n\r\n", beginning);
    assert_true(size > 0 && (size_t)size < sizeof request);
    (void)raw_exchange(port, request, (size_t)size, in, HANG_MS);
    return raw_status(in);
}
