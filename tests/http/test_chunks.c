/* test_chunks.c - bodies in chunks, which two readers could take apart differently: what is hidden in or behind one is
 * never answered as a request, neither directly nor through nginx or HAProxy. The real programs; a test of a proxy that
 * is not installed is skipped (make deps-proxies). */
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, RECEIVE_MS = 1000 };

static struct daemon aftd;
static struct raw_input in;
static struct {
    pid_t pid; /* 0: none runs */
    uint16_t port;
    char dir[PATH_MAX];
} proxy;

/* ---- what is sent ---------------------------------------------------------------------------------------------- */

/* The proxies here refuse /metrics, so that an answer to it, and a line with this id in the daemon's log, come of a
 * request that the proxy took for a part of another. */
#define SMUGGLED "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n"
#define POST "POST /generate HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: cover\r\nTransfer-Encoding: chunked\r\n\r\n"
#define JSON "{\"max_tokens\": 2}" /* 17 bytes, 11 in hexadecimal */
#define LAST "0\r\n\r\n"
#define IN_CHUNK "42\r\n" SMUGGLED "\r\n" /* as the data of a chunk */
_Static_assert(sizeof SMUGGLED - 1 == 0x42, "its size");

static const struct {
    const char *name, *bytes;
    size_t size;
} odd[] = {
#define ODD(name, text)                       \
    {                                         \
        name, POST text, sizeof POST text - 1 \
    }
    ODD("nothing odd, and a request behind it", "11\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a size that ends in LF", "11\n" JSON "\r\n" LAST SMUGGLED),
    ODD("data that end in LF", "11\r\n" JSON "\n" LAST SMUGGLED),
    ODD("everything ends in LF", "11\n" JSON "\n0\n\n" SMUGGLED),
    ODD("a last chunk that ends in LF", "11\r\n" JSON "\r\n0\n\r\n" SMUGGLED),
    ODD("an end in LF", "11\r\n" JSON "\r\n0\r\n\n" SMUGGLED),
    ODD("an extension", "11;a=b\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("an extension with a CR", "11;a\rb\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("an extension with an LF", "11;a\nb\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("an extension that ends in LF", "11;a\n" JSON "\r\n" LAST SMUGGLED),
    ODD("an extension of the last chunk with an LF", "11\r\n" JSON "\r\n0;a\n\r\n" SMUGGLED),
    ODD("an extension of the last chunk with a CR", "11\r\n" JSON "\r\n0;a\rb\r\n\r\n" SMUGGLED),
    ODD("a chunk in an extension", "11\r\n" JSON "\r\n2;\n42\r\n42\r\n" LAST SMUGGLED LAST),
    ODD("the end in an extension", "11\r\n" JSON "\r\n2;\nxx\r\n" IN_CHUNK LAST),
    ODD("a request in a chunk whose size ends in LF", "11\r\n" JSON "\r\n42\n" SMUGGLED "\r\n" LAST),
    ODD("a request behind an end in LF", "11\r\n" JSON "\r\n0\n\n" SMUGGLED LAST),
    ODD("spaces behind a size", "11  \r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a space before a size", " 11\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a size with 0x", "0x11\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a size with a plus", "+11\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("zeros before a size", "0000000000000000011\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a size with an underscore", "1_1\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("a NUL in an extension", "11;\0\r\n" JSON "\r\n" LAST SMUGGLED),
    ODD("no end of the data", "11\r\n" JSON LAST SMUGGLED),
    ODD("data that end in two bytes of another kind", "11\r\n" JSON "xx" LAST SMUGGLED),
    ODD("a trailer", "11\r\n" JSON "\r\n0\r\nX-A: b\r\n\r\n" SMUGGLED),
    ODD("a trailer that ends in LF", "11\r\n" JSON "\r\n0\r\nX-A: b\n\n" SMUGGLED),
    ODD("a trailer with a length", "11\r\n" JSON "\r\n0\r\nContent-Length: 66\r\n\r\n" SMUGGLED),
#undef ODD
#define ODD(name, headers, rest)                                                            \
    {                                                                                       \
        name, "POST /generate HTTP/1.1\r\nHost: localhost\r\n" headers "\r\n" rest,         \
            sizeof "POST /generate HTTP/1.1\r\nHost: localhost\r\n" headers "\r\n" rest - 1 \
    }
    ODD("a length and an encoding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LAST SMUGGLED),
    ODD("an encoding and a length", "Transfer-Encoding: chunked\r\nContent-Length: 66\r\n", LAST SMUGGLED),
    ODD("two lengths", "Content-Length: 0\r\nContent-Length: 66\r\n", SMUGGLED),
    ODD("two encodings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", LAST SMUGGLED),
    ODD("an encoding behind a tab", "Transfer-Encoding:\tchunked\r\n", LAST SMUGGLED),
    ODD("an encoding before a space", "Transfer-Encoding: chunked \r\n", LAST SMUGGLED),
    ODD("a misspelt encoding", "Transfer-Encoding: xchunked\r\n", LAST SMUGGLED),
#undef ODD
};

/* A well-formed request behind a chunked body is the daemon's to answer on another connection only; a proxy answers it
 * by itself, as it is told to. */
static void send_odd(uint16_t port, size_t i)
{
    (void)raw_exchange(port, odd[i].bytes, odd[i].size, &in, HANG_MS);
    if (strstr(in.bytes, "X-Request-Id: smuggled") != NULL || strstr(in.bytes, "aftd_build_info") != NULL)
        fail_msg("%s: what was smuggled is answered:\n%s", odd[i].name, in.bytes);
}

static void assert_nothing_was_smuggled(void)
{
    daemon_await_log(&aftd, "cover"); /* the ids are there */
    char *log = daemon_log(&aftd);
    if (strstr(log, "smuggled") != NULL)
        fail_msg("a request was smuggled:\n%s", log);
    free(log);
}

/* ---- proxies ---------------------------------------------------------------------------------------------------- */

/* One that nobody listens on at this moment. */
static uint16_t free_port(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof name;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)(const void *)&name, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&name, &size), 0);
    (void)close(fd);
    return ntohs(name.sin_port);
}

/* Run it until the test's end; returns once it listens. */
static void start_proxy(const char *const argv[])
{
    const int64_t end_ms = test_now_ms() + HANG_MS;
    proxy.pid = fork();
    assert_true(proxy.pid >= 0);
    if (proxy.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    while (raw_is_refused(proxy.port)) {
        if (waitpid(proxy.pid, NULL, WNOHANG) == proxy.pid) {
            proxy.pid = 0;
            fail_msg("%s has ended", argv[0]);
        }
        if (test_now_ms() > end_ms)
            fail_msg("%s does not listen", argv[0]);
        test_sleep_ms(10);
    }
}

static void need(const char *program)
{
    if (access(program, X_OK) != 0) {
        print_message("skipped: there is no %s\n", program);
        skip();
    }
}

static void start_nginx(bool buffers)
{
    static const char program[] = "/usr/sbin/nginx";
    char path[PATH_MAX], log[PATH_MAX], text[4096];
    need(program);
    temp_dir_create(proxy.dir);
    temp_path(path, proxy.dir, "nginx.conf");
    temp_path(log, proxy.dir, "error.log");
    proxy.port = free_port();
    (void)snprintf(text, sizeof text,
                   "daemon off; master_process off; pid nginx.pid; events { worker_connections 64; }\n"
                   "http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f;\n"
                   "uwsgi_temp_path u; scgi_temp_path s;\n"
                   "keepalive_timeout 200ms; client_body_timeout 1s; client_header_timeout 1s; lingering_close off;\n"
                   "upstream aftd { server 127.0.0.1:%u; keepalive 4; }\n"
                   "server { listen 127.0.0.1:%u; location = /metrics { return 403; }\n"
                   "location / { proxy_pass http://aftd; proxy_http_version 1.1; proxy_set_header Connection \"\";\n"
                   "proxy_set_header Host localhost; proxy_request_buffering %s; } } }\n",
                   (unsigned)aftd.port, (unsigned)proxy.port, buffers ? "on" : "off");
    temp_write(path, text, strlen(text));
    start_proxy((const char *const[]){program, "-p", proxy.dir, "-c", path, "-e", log, NULL});
}

static void start_haproxy(void)
{
    static const char program[] = "/usr/sbin/haproxy";
    char path[PATH_MAX], text[2048];
    need(program);
    temp_dir_create(proxy.dir);
    temp_path(path, proxy.dir, "haproxy.cfg");
    proxy.port = free_port();
    (void)snprintf(text, sizeof text,
                   "global\n    maxconn 64\n"
                   "defaults\n    mode http\n    timeout connect 10s\n    timeout server 60s\n    timeout client 1s\n"
                   "    timeout http-keep-alive 200ms\n    timeout http-request 1s\n"
                   "frontend in\n    bind 127.0.0.1:%u\n    http-request deny if { path /metrics }\n"
                   "    default_backend aftd\n"
                   "backend aftd\n    http-reuse always\n    server aftd 127.0.0.1:%u\n",
                   (unsigned)proxy.port, (unsigned)aftd.port);
    temp_write(path, text, strlen(text));
    start_proxy((const char *const[]){program, "-db", "-q", "-f", path, NULL});
}

/* Through the proxy that runs: after each, other clients' requests get their own answers, not what is left of it. */
static void assert_proxy_smuggles_nothing(void)
{
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        send_odd(proxy.port, i);
        for (int after = 0; after < 2; after++) {
            char request[160], id[32];
            (void)snprintf(id, sizeof id, "after-%zu-%d\r\n", i, after);
            (void)snprintf(request, sizeof request,
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: %s\r\n", id);
            assert_int_equal(raw_exchange(proxy.port, request, strlen(request), &in, HANG_MS), RAW_CLOSED);
            if (raw_status(&in) != 200 || strcasestr(in.bytes, id) == NULL)
                fail_msg("after %s:\n%s", odd[i].name, in.bytes);
        }
    }
    assert_nothing_was_smuggled();
}

static int set_up(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--receive-timeout-ms=1000", NULL});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (proxy.pid > 0) {
        (void)kill(proxy.pid, SIGKILL);
        (void)waitpid(proxy.pid, NULL, 0);
    }
    if (proxy.dir[0] != '\0')
        temp_dir_remove(proxy.dir);
    proxy.pid = 0;
    proxy.dir[0] = '\0';
    daemon_clear(&aftd);
    return 0;
}

/* ---- the tests -------------------------------------------------------------------------------------------------- */

static void a_request_behind_an_odd_chunk_is_never_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        send_odd(aftd.port, i);
        if (raw_count_answers(&in) > 1)
            fail_msg("%s: %zu answers", odd[i].name, raw_count_answers(&in));
    }
    assert_nothing_was_smuggled();
}

static void the_answer_to_a_chunked_body_says_that_the_connection_ends(void **state)
{
    (void)state;
    assert_int_equal(raw_exchange(aftd.port, odd[0].bytes, odd[0].size, &in, HANG_MS), RAW_CLOSED);
    assert_int_equal(raw_status(&in), 200);
    assert_non_null(strstr(in.bytes, "Connection: close\r\n"));
    assert_int_equal(raw_count_answers(&in), 1);
}

static void nginx_smuggles_nothing(void **state)
{
    (void)state;
    start_nginx(true);
    assert_proxy_smuggles_nothing();
}

static void nginx_that_does_not_buffer_smuggles_nothing(void **state)
{
    (void)state;
    start_nginx(false);
    assert_proxy_smuggles_nothing();
}

static void haproxy_smuggles_nothing(void **state)
{
    (void)state;
    start_haproxy();
    assert_proxy_smuggles_nothing();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_behind_an_odd_chunk_is_never_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_answer_to_a_chunked_body_says_that_the_connection_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nginx_smuggles_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nginx_that_does_not_buffer_smuggles_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(haproxy_smuggles_nothing, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("chunks", tests, NULL, NULL);
}
