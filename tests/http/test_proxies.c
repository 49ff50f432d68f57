/* test_proxies.c - whom the log names as the client behind proxies, and the traces that requests belong to. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580 };

static struct daemon aftd;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* The line of the request of that id, which is static memory; it must come. */
static const char *line_of(const char *id)
{
    static char line[4096];
    char what[64];
    (void)snprintf(what, sizeof what, " id=%s", id);
    daemon_await_log(&aftd, what);
    char *log = daemon_log(&aftd);
    char *at = strstr(log, what);
    while (at > log && at[-1] != '\n')
        at--;
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    free(log);
    return line;
}

/* ---- clients ---------------------------------------------------------------------------------------------------- */

/* Ask with these headers, over TCP or the Unix socket; the log must name `client`. */
static void assert_client(const char *unix_path, const char *const headers[], const char *client)
{
    static unsigned number;
    char id[64], header[96], want[64];
    const char *all[8] = {header};
    struct reply r;
    (void)snprintf(id, sizeof id, "request-%u.", number++);
    (void)snprintf(header, sizeof header, "X-Request-Id: %s", id);
    for (size_t i = 0; headers[i] != NULL; i++)
        all[i + 1] = headers[i];
    client_call(&aftd, &(struct request){.path = "/v2", .headers = all, .unix_path = unix_path}, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    (void)snprintf(want, sizeof want, " client=%s ", client);
    const char *line = line_of(id);
    if (strstr(line, want) == NULL)
        fail_msg("expected%sin \"%s\"", want, line);
}

#define HEADERS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void trusted_proxies_say_who_asks(void **state)
{
    char path[PATH_MAX], flag[PATH_MAX + 32], dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "socket");
    (void)snprintf(flag, sizeof flag, "--listen-unix=%s", path);
    daemon_start(&aftd, (const char *const[]){flag, "--trusted-proxies=127.0.0.0/8, 10.0.0.0/8", NULL});
    assert_client(NULL, (const char *const[]){NULL}, "127.0.0.1");
    assert_client(NULL, HEADERS("X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.7"), "192.0.2.1");
    assert_client(NULL, HEADERS("X-Forwarded-For: 192.0.2.1", "Accept: */*", "x-forwarded-for: 10.0.0.7"), "192.0.2.1");
    assert_client(NULL, HEADERS("X-Forwarded-For: [2001:db8::1]:80"), "2001:db8::1");
    assert_client(NULL, HEADERS("X-Forwarded-For: 192.0.2.1", "Forwarded: for=6.6.6.6"), "192.0.2.1");
    assert_client(NULL, HEADERS("Forwarded: for=6.6.6.6"), "127.0.0.1");
    assert_client(NULL, HEADERS("X-Forwarded-For: somebody, 10.0.0.7"), "10.0.0.7");
    assert_client(path, HEADERS("X-Forwarded-For: 192.0.2.1"), "unix"); /* not listed */
    daemon_stop(&aftd);
    daemon_start(&aftd, (const char *const[]){flag, "--trusted-proxies=unix", NULL});
    assert_client(path, HEADERS("X-Forwarded-For: 192.0.2.1"), "192.0.2.1");
    assert_client(NULL, HEADERS("X-Forwarded-For: 192.0.2.1"), "127.0.0.1");
    daemon_stop(&aftd);
    temp_dir_remove(dir);
}

static void nobody_is_believed_by_default(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    assert_client(NULL, HEADERS("X-Forwarded-For: 192.0.2.1"), "127.0.0.1");
    daemon_stop(&aftd);
}

static void many_headers_are_read_from_their_end(void **state)
{
    const char *headers[40];
    char line[256], id[] = "X-Request-Id: many";
    struct reply r;
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--trusted-proxies=127.0.0.1,10.0.0.0/8", NULL});
    headers[0] = id;
    for (size_t i = 1; i < 38; i++)
        headers[i] = "X-Forwarded-For: 6.6.6.6";
    headers[37] = "X-Forwarded-For: 192.0.2.1, 10.0.0.2";
    headers[38] = NULL;
    client_call(&aftd, &(struct request){.path = "/v2", .headers = headers}, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    (void)snprintf(line, sizeof line, "%s", line_of("many"));
    assert_non_null(strstr(line, " client=192.0.2.1 "));
    daemon_stop(&aftd);
}

static void a_wrong_network_keeps_it_from_starting(void **state)
{
    (void)state;
    assert_int_equal(daemon_try_start(&aftd, (const char *const[]){"--trusted-proxies=10.0.0.1/8", NULL}), 2);
    char *log = daemon_log(&aftd);
    assert_non_null(
        strstr(log, " error trusted_proxies: \"10.0.0.1/8\": expected an address, or a network by its first one"));
    free(log);
}

/* ---- traces ----------------------------------------------------------------------------------------------------- */

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define TRACEPARENT "traceparent: 00-" TRACE "-" SPAN "-01"

static void a_trace_goes_on_in_answer_and_log(void **state)
{
    static const struct {
        const char *path, *body;
        long status;
    } cases[] = {
        {"/v2", NULL, 200},
        {"/generate", "{\"prompt\": \"x\", \"max_tokens\": 3}", 200},
        {"/generate", "{\"prompt\": \"x\", \"max_tokens\": 3, \"stream\": true}", 200},
        {"/generate", "{", 400},
        {"/nothing", NULL, 404},
    };
    char last[128] = "";
    (void)state;
    daemon_start(&aftd, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char id[64], header[96], value[128], want[128];
        const char *const headers[] = {header, TRACEPARENT, NULL};
        struct reply r;
        (void)snprintf(id, sizeof id, "traced-%zu", i);
        (void)snprintf(header, sizeof header, "X-Request-Id: %s", id);
        client_call(&aftd,
                    &(struct request){.path = cases[i].path,
                                      .body = cases[i].body,
                                      .size = cases[i].body != NULL ? strlen(cases[i].body) : 0,
                                      .headers = headers},
                    &r);
        assert_int_equal(r.status, cases[i].status);
        assert_true(reply_header(&r, "traceparent", value, sizeof value));
        reply_clear(&r);
        assert_int_equal(strlen(value), 55);
        assert_memory_equal(value, "00-" TRACE "-", 36);
        assert_string_equal(value + 52, "-01");
        assert_int_equal(strspn(value + 36, "0123456789abcdef"), 16);
        assert_null(strstr(value, SPAN)); /* ours */
        assert_string_not_equal(value, last);
        (void)snprintf(last, sizeof last, "%s", value);
        (void)snprintf(want, sizeof want, " trace=" TRACE " span=%.16s", value + 36);
        const char *line = line_of(id);
        if (strstr(line, want) == NULL)
            fail_msg("expected \"%s\" in \"%s\"", want, line);
    }
    daemon_stop(&aftd);
}

static void no_trace_is_made_up(void **state)
{
    static const char *const cases[][3] = {
        {"Accept: */*", NULL, NULL},
        {TRACEPARENT, TRACEPARENT, NULL}, /* which one? */
        {"traceparent: 00-" TRACE "-0000000000000000-01", NULL, NULL},
        {"traceparent: 00-" TRACE "-" SPAN "-01-more", NULL, NULL},
        {"tracestate: a=b", NULL, NULL},
    };
    (void)state;
    daemon_start(&aftd, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char value[128], id[64], header[96];
        const char *const headers[] = {header, cases[i][0], cases[i][1], cases[i][2], NULL};
        struct reply r;
        (void)snprintf(id, sizeof id, "untraced-%zu", i);
        (void)snprintf(header, sizeof header, "X-Request-Id: %s", id);
        client_call(&aftd, &(struct request){.path = "/v2", .headers = headers}, &r);
        assert_int_equal(r.status, 200);
        assert_false(reply_header(&r, "traceparent", value, sizeof value));
        reply_clear(&r);
        assert_null(strstr(line_of(id), "trace="));
    }
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(trusted_proxies_say_who_asks, tear_down),
        cmocka_unit_test_teardown(nobody_is_believed_by_default, tear_down),
        cmocka_unit_test_teardown(many_headers_are_read_from_their_end, tear_down),
        cmocka_unit_test_teardown(a_wrong_network_keeps_it_from_starting, tear_down),
        cmocka_unit_test_teardown(a_trace_goes_on_in_answer_and_log, tear_down),
        cmocka_unit_test_teardown(no_trace_is_made_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("proxies", tests, NULL, NULL);
}
