/* test_hosts.c - for which hosts requests are answered: on every TCP listener and path, and what is different for a
 * Unix socket. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define LABEL_63 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"

static struct daemon aftd;
static char socket_dir[PATH_MAX], socket_path[PATH_MAX];
static struct raw_input in;

static int start(void **state)
{
    char unix_flag[PATH_MAX + 32];
    (void)state;
    temp_dir_create(socket_dir);
    temp_path(socket_path, socket_dir, "s");
    (void)snprintf(unix_flag, sizeof unix_flag, "--listen-unix=%s", socket_path);
    const char *const flags[] = {"--hosts=auto, aft.example,*.wild.example,10.9.9.9", "--admin-address=127.0.0.1",
                                 "--admin-port=0", unix_flag, NULL};
    daemon_start(&aftd, flags);
    return 0;
}

static long ask(uint16_t port, const char *beginning)
{
    return raw_ask(port, beginning, &in);
}

static long ask_host(uint16_t port, const char *host)
{
    char beginning[2048];
    (void)snprintf(beginning, sizeof beginning, "GET /healthz HTTP/1.1\r\nHost: %s\r\n", host);
    return ask(port, beginning);
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static const char *const served[] = {"127.0.0.1",
                                     "127.0.0.1:80",
                                     "127.0.0.1:",
                                     "127.0.0.1.:80",
                                     "127.0.0.1  ",
                                     "0.0.0.0",
                                     "10.255.0.1:65535",
                                     "192.168.1.1:0",
                                     "255.255.255.255",
                                     "8.8.8.8",
                                     "[::1]",
                                     "[::1]:8080",
                                     "[::]",
                                     "[0:0:0:0:0:0:0:1]",
                                     "[fe80::1%25eth0]:8080",
                                     "[FE80::1]:1",
                                     "[::ffff:127.0.0.1]:8",
                                     "[2001:db8::1]:",
                                     "localhost",
                                     "LOCALHOST",
                                     "LocalHost:8080",
                                     "localhost.",
                                     "localhost.:1",
                                     "localhost:",
                                     "localhost:00080",
                                     "a.localhost",
                                     "a.b.localhost:3000",
                                     "x.LOCALHOST.",
                                     "aft.example",
                                     "AFT.EXAMPLE:9",
                                     "aft.example.",
                                     "aft.example.:443",
                                     "a.wild.example",
                                     "a.b.c.wild.example:12",
                                     "A.Wild.Example.",
                                     "x_y.wild.example",
                                     (LABEL_63 ".wild.example")};

static const char *const strange[] = {"evil.example",
                                      "evil.example:8080",
                                      "EVIL.EXAMPLE.",
                                      "example",
                                      "wild.example",
                                      "notwild.example",
                                      "wild.example.evil",
                                      "a.wild.example.evil",
                                      "aft.example.evil.example",
                                      "xaft.example",
                                      "aft.example2",
                                      "sub.aft.example",
                                      "aft-example",
                                      "listed.example",
                                      "localhost.evil.example",
                                      "localhostevil",
                                      "evil-localhost",
                                      "localhost.localdomain",
                                      "localhost4",
                                      "127.0.0.1.evil.example",
                                      "127.0.0.1.nip.io",
                                      "127-0-0-1.rbndr.us",
                                      "7f000001.c0a80001.rbndr.us",
                                      "localtest.me",
                                      "1",
                                      "127.1",
                                      "127.0.1",
                                      "0x7f.0.0.1",
                                      "0x7f000001",
                                      "2130706433",
                                      "256.0.0.1",
                                      "1.2.3.4.5",
                                      "1.2.3",
                                      "a.1.2.3.4",
                                      "null",
                                      "off",
                                      "auto",
                                      "local",
                                      "_",
                                      "-",
                                      "a_b",
                                      "xn--bcher-kva",
                                      "ip6-localhost",
                                      "0",
                                      "com",
                                      (LABEL_63 ".evil.example"),
                                      "host.docker.internal",
                                      "metadata.google.internal"};

static const char *const malformed[] = {"",
                                        ":",
                                        ":80",
                                        ".",
                                        "..",
                                        ".localhost",
                                        "localhost..",
                                        "a..localhost",
                                        "localhost:65536",
                                        "localhost:99999",
                                        "localhost:123456",
                                        "localhost:8o",
                                        "localhost: 80",
                                        "localhost :80",
                                        "localhost:80:80",
                                        "localhost:-1",
                                        "localhost:+1",
                                        "localhost:0x50",
                                        "::1",
                                        "::1:80",
                                        "[::1",
                                        "::1]",
                                        "[]",
                                        "[]:80",
                                        "[::1]x",
                                        "[::1]80",
                                        "[::1]]",
                                        "[[::1]]",
                                        "[127.0.0.1]",
                                        "[localhost]",
                                        "[::g]",
                                        "[1::2::3]",
                                        "[v1.a]",
                                        "[:]",
                                        "[ ::1]",
                                        "[12345::1]",
                                        "http://localhost",
                                        "//localhost",
                                        "localhost/",
                                        "localhost/evil",
                                        "user@localhost",
                                        "localhost@evil.example",
                                        "user:pass@localhost",
                                        "localhost,evil.example",
                                        "localhost evil.example",
                                        "localhost\tevil.example",
                                        "localhost#",
                                        "localhost?",
                                        "localhost?.evil.example",
                                        "localhost\\",
                                        "localhost;",
                                        "localhost&",
                                        "localhost'",
                                        "localhost\"",
                                        "<localhost>",
                                        "l%6fcalhost",
                                        "%6c",
                                        "localhost%00",
                                        "*",
                                        "*.localhost",
                                        "*.wild.example",
                                        "a*b",
                                        "l\xc3\xb6-calhost",
                                        "\xff",
                                        "localhost\xe3\x80\x82",
                                        (LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_63 ".localhost")};

static void assert_hosts(const char *const hosts[], size_t count, long status)
{
    const uint16_t ports[] = {aftd.port, aftd.admin_port};
    for (size_t i = 0; i < count; i++)
        for (size_t p = 0; p < ARRAY_LEN(ports); p++) {
            const long got = ask_host(ports[p], hosts[i]);
            if (got != status)
                fail_msg("Host: %s: expected %ld, got %ld on the %s listener", hosts[i], status, got,
                         p == 0 ? "public" : "admin");
            if (status != 200)
                assert_non_null(strstr(in.bytes, "\"param\":\"Host\""));
            if (status == 403)
                assert_non_null(strstr(in.bytes, "a name in the setting hosts"));
        }
}

static void addresses_localhost_and_listed_names_are_served_and_nothing_else(void **state)
{
    (void)state;
    assert_true(ARRAY_LEN(served) + ARRAY_LEN(strange) + ARRAY_LEN(malformed) > 150);
    assert_hosts(served, ARRAY_LEN(served), 200);
    assert_hosts(strange, ARRAY_LEN(strange), 403);
    assert_hosts(malformed, ARRAY_LEN(malformed), 400);
}

static void the_machines_own_name_is_served(void **state)
{
    char name[HOST_NAME_MAX + 1] = "", local[HOST_NAME_MAX + 16];
    (void)state;
    assert_int_equal(gethostname(name, HOST_NAME_MAX), 0);
    (void)snprintf(local, sizeof local, "%.*s.local:80", (int)strcspn(name, "."), name);
    assert_int_equal(ask_host(aftd.port, name), 200);
    assert_int_equal(ask_host(aftd.port, local), 200);
}

static void a_unix_socket_takes_any_host_and_origin(void **state)
{
    static const char *const *const lists[] = {served, strange, malformed};
    static const size_t counts[] = {ARRAY_LEN(served), ARRAY_LEN(strange), ARRAY_LEN(malformed)};
    (void)state;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++)
        for (size_t i = 0; i < counts[l]; i++) {
            char header[512];
            struct reply r;
            (void)snprintf(header, sizeof header, "Host: %s", lists[l][i]);
            const char *const headers[] = {header, "Origin: https://evil.example", NULL};
            client_call(&aftd, &(struct request){.path = "/healthz", .unix_path = socket_path, .headers = headers}, &r);
            if (r.status != 200)
                fail_msg("%s: %ld %s", header, r.status, r.body);
            reply_clear(&r);
        }
}

/* ---- everywhere ------------------------------------------------------------------------------------------------- */

static void every_path_asks_for_the_host(void **state)
{
    static const char *const lines[] = {"GET /",
                                        "GET /page/page.js",
                                        "HEAD /healthz",
                                        "GET /readyz",
                                        "GET /metrics",
                                        "GET /openapi.json",
                                        "GET /v1/models",
                                        "GET /nothing",
                                        "DELETE /healthz",
                                        "OPTIONS /generate",
                                        "OPTIONS *",
                                        "GET /v2/health/live",
                                        "GET /v2",
                                        "POST /generate",
                                        "GET /v1/sessions/abc",
                                        "GET /v2/nothing",
                                        "GET /v1/models/x",
                                        "PUT /v1/sessions/a/state"};
    char beginning[512];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        (void)snprintf(beginning, sizeof beginning, "%s HTTP/1.1\r\nHost: evil.example\r\n", lines[i]);
        const long status = ask(aftd.port, beginning);
        if (status != 403)
            fail_msg("%s: %ld", lines[i], status);
        if (strstr(lines[i], " /v2") != NULL)
            assert_non_null(strstr(in.bytes, "{\"error\":\"the request is for the host \\\"evil.example\\\""));
    }
}

static void a_target_may_name_the_server_too(void **state)
{
    static const struct {
        const char *target, *host;
        long status;
    } cases[] = {
        {"http://localhost/healthz", "localhost", 200},
        {"HTTP://LOCALHOST:80/healthz", "127.0.0.1", 200},
        {"https://aft.example/healthz", "127.0.0.1", 200},
        {"http://evil.example/healthz", "localhost", 403},
        {"http://localhost/healthz", "evil.example", 403},
        {"http://evil.example", "localhost", 403},
        {"http://evil.example?x=/", "localhost", 403},
        {"https://evil.example/healthz", "127.0.0.1", 403},
        {"http:///healthz", "localhost", 400},
        {"http://localhost@evil.example/", "localhost", 400},
        {"http://localhost:x/healthz", "localhost", 400},
        {"http://localhost%2f.evil.example/", "localhost", 404},
        {"http://evil.example%2f.localhost/", "localhost", 403},
    };
    char beginning[512];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(beginning, sizeof beginning, "GET %s HTTP/1.1\r\nHost: %s\r\n", cases[i].target, cases[i].host);
        const long status = ask(aftd.port, beginning);
        if (status != cases[i].status)
            fail_msg("%s for %s: expected %ld, got %ld", cases[i].target, cases[i].host, cases[i].status, status);
    }
}

static void only_old_clients_may_leave_the_host_out(void **state)
{
    static const struct {
        const char *beginning;
        long status;
    } cases[] = {
        {"GET /healthz HTTP/1.0\r\n", 200},
        {"GET /healthz HTTP/1.1\r\n", 400},
        {"GET /healthz HTTP/1.0\r\nHost: localhost\r\n", 200},
        {"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n", 403},
        {"GET http://evil.example/healthz HTTP/1.0\r\n", 403},
        {"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n", 400},
        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int p = 0; p < 2; p++) {
            const long status = ask(p == 0 ? aftd.port : aftd.admin_port, cases[i].beginning);
            if (status != cases[i].status)
                fail_msg("%s: expected %ld, got %ld", cases[i].beginning, cases[i].status, status);
        }
}

/* ---- the setting ------------------------------------------------------------------------------------------------ */

/* Such a daemon relies on a proxy that knows its hosts, or on keys. */
static void any_host_may_be_served(void **state)
{
    struct daemon open;
    (void)state;
    daemon_start(&open, (const char *const[]){"--hosts=*", "--models-lazy=true", NULL});
    for (size_t i = 0; i < ARRAY_LEN(strange); i++)
        assert_int_equal(ask_host(open.port, strange[i]), 200);
    for (size_t i = 0; i < ARRAY_LEN(malformed); i++)
        assert_int_equal(ask_host(open.port, malformed[i]), 400);
    daemon_stop(&open);
}

static void wrong_hosts_are_named_at_the_start(void **state)
{
    static const char *const wrong[] = {"--hosts=off",        "--hosts=a.example:80", "--hosts=https://a.example",
                                        "--hosts=a.example,", "--hosts=*.*.example",  "--hosts=a b"};
    char program[PATH_MAX];
    (void)state;
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct program_case c = {wrong[i], {wrong[i], "--models-dir=tests/data/models", "--listen-port=0"},
                                       NULL,     2,
                                       "",       "expected the name of a host without a port"};
        program_expect(program, &c, 1);
    }
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_localhost_and_listed_names_are_served_and_nothing_else),
        cmocka_unit_test(the_machines_own_name_is_served),
        cmocka_unit_test(a_unix_socket_takes_any_host_and_origin),
        cmocka_unit_test(every_path_asks_for_the_host),
        cmocka_unit_test(a_target_may_name_the_server_too),
        cmocka_unit_test(only_old_clients_may_leave_the_host_out),
        cmocka_unit_test(any_host_may_be_served),
        cmocka_unit_test(wrong_hosts_are_named_at_the_start),
    };
    return cmocka_run_group_tests(tests, start, daemons_end);
}
