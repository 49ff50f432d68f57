/* test_origins.c - for pages of which origins requests are answered. What the answers tell browsers is in
 * test_cors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
static struct raw_input in;

static int start(void **state)
{
    static const char *const flags[] = {"--hosts=auto,aft.example,*.wild.example,10.9.9.9",
                                        "--cors-origins=https://listed.example,http://localhost:3000",
                                        "--admin-address=127.0.0.1", "--admin-port=0", NULL};
    (void)state;
    daemon_start(&aftd, flags);
    return 0;
}

static long ask(uint16_t port, const char *beginning)
{
    return raw_ask(port, beginning, &in);
}

static long ask_origin(uint16_t port, const char *host, const char *origin)
{
    char beginning[2048];
    (void)snprintf(beginning, sizeof beginning, "GET /healthz HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\n", host, origin);
    return ask(port, beginning);
}

enum { NOWHERE = 0, EVERYWHERE = 3, PUBLIC = 1 }; /* on which listeners it is answered 200; elsewhere 403 */

static const struct {
    const char *host, *origin;
    int where;
} pages[] = {
    {"aft.example", "http://aft.example", EVERYWHERE},
    {"aft.example", "https://aft.example", EVERYWHERE},
    {"aft.example", "http://aft.example:3000", EVERYWHERE},
    {"aft.example:8080", "https://AFT.EXAMPLE", EVERYWHERE},
    {"aft.example", "https://aft.example.", EVERYWHERE},
    {"127.0.0.1", "http://aft.example", EVERYWHERE}, /* a proxy that puts its own idea into Host */
    {"127.0.0.1", "https://a.wild.example:444", EVERYWHERE},
    {"aft.example", "https://a.b.wild.example", EVERYWHERE},
    {"localhost:8080", "http://10.9.9.9", EVERYWHERE},
    {"127.0.0.1:8080", "http://127.0.0.1:8080", EVERYWHERE},
    {"127.0.0.1:8080", "http://127.0.0.1", EVERYWHERE},
    {"127.0.0.1:8080", "https://127.0.0.1:9", EVERYWHERE},
    {"localhost", "http://localhost:9", EVERYWHERE},
    {"LOCALHOST:1", "http://localhost", EVERYWHERE},
    {"a.localhost", "http://a.localhost", EVERYWHERE},
    {"[::1]:8080", "http://[::1]:8080", EVERYWHERE},
    {"[::1]:8080", "http://[0:0:0:0:0:0:0:1]", EVERYWHERE},
    {"192.168.1.7", "http://192.168.1.7:8080", EVERYWHERE},
    {"127.0.0.1", "https://listed.example", PUBLIC},
    {"aft.example", "https://listed.example", PUBLIC},
    {"127.0.0.1", "http://localhost:3000", PUBLIC},
    {"127.0.0.1", "http://listed.example", NOWHERE},
    {"127.0.0.1", "https://listed.example:444", NOWHERE},
    {"127.0.0.1", "https://listed.example/", NOWHERE},
    {"127.0.0.1", "https://listed.example.evil.example", NOWHERE},
    {"127.0.0.1", "https://LISTED.example", NOWHERE},
    {"127.0.0.1", "http://localhost", NOWHERE},
    {"127.0.0.1", "http://localhost:3001", NOWHERE},
    {"127.0.0.1", "http://127.0.0.2", NOWHERE},
    {"127.0.0.1", "http://[::1]", NOWHERE},
    {"127.0.0.1", "http://127.1", NOWHERE},
    {"localhost", "http://a.localhost", NOWHERE},
    {"localhost", "http://127.0.0.1", NOWHERE},
    {"aft.example", "null", NOWHERE},
    {"aft.example", "", NOWHERE},
    {"aft.example", "*", NOWHERE},
    {"aft.example", "https://evil.example", NOWHERE},
    {"aft.example", "http://wild.example", NOWHERE},
    {"aft.example", "http://aft.example.evil.example", NOWHERE},
    {"aft.example", "http://evilaft.example", NOWHERE},
    {"aft.example", "http://aft.example/", NOWHERE},
    {"aft.example", "http://aft.example/x", NOWHERE},
    {"aft.example", "http://aft.example?x", NOWHERE},
    {"aft.example", "http://aft.example#x", NOWHERE},
    {"aft.example", "http://aft.example:x", NOWHERE},
    {"aft.example", "http://aft.example:70000", NOWHERE},
    {"aft.example", "http://user@aft.example", NOWHERE},
    {"aft.example", "http://aft.example@evil.example", NOWHERE},
    {"aft.example", "http://aft.example http://evil.example", NOWHERE},
    {"aft.example", "http://evil.example http://aft.example", NOWHERE},
    {"aft.example", "http://aft.example, http://evil.example", NOWHERE},
    {"aft.example", "http://aft.example\\.evil.example", NOWHERE},
    {"aft.example", "aft.example", NOWHERE},
    {"aft.example", "//aft.example", NOWHERE},
    {"aft.example", "http:aft.example", NOWHERE},
    {"aft.example", "http:/aft.example", NOWHERE},
    {"aft.example", "http://", NOWHERE},
    {"aft.example", "http:///aft.example", NOWHERE},
    {"aft.example", "ftp://aft.example", NOWHERE},
    {"aft.example", "ws://aft.example", NOWHERE},
    {"aft.example", "file://", NOWHERE},
    {"aft.example", "file://aft.example", NOWHERE},
    {"aft.example", "chrome-extension://aft.example", NOWHERE},
    {"aft.example", "moz-extension://0a1b", NOWHERE},
    {"aft.example", "data:text/html,x", NOWHERE},
    {"aft.example", "about:blank", NOWHERE},
    {"aft.example", "\xff", NOWHERE},
};

static void pages_of_this_host_and_of_listed_origins_are_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        for (int p = 0; p < 2; p++) {
            const long want = (pages[i].where & 1 << p) != 0 ? 200 : 403;
            const long got = ask_origin(p == 0 ? aftd.port : aftd.admin_port, pages[i].host, pages[i].origin);
            if (got != want)
                fail_msg("Host: %s, Origin: %s: expected %ld, got %ld on the %s listener", pages[i].host,
                         pages[i].origin, want, got, p == 0 ? "public" : "admin");
            if (want == 403)
                assert_non_null(strstr(in.bytes, "\"param\":\"Origin\",\"code\":\"not_allowed\""));
        }
    assert_int_equal(ask(aftd.port, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
                                    "Origin: http://localhost\r\n"),
                     403);
}

/* What a page may send without asking first takes effect, though the page cannot read the answer. */
static void a_strange_page_generates_nothing(void **state)
{
    static const char *const headers[] = {"Origin: https://evil.example", NULL};
    static const char body[] = "{\"prompt\": \"x\", \"max_tokens\": 3}";
    struct request r = {.path = "/generate",
                        .type = "application/x-www-form-urlencoded",
                        .body = body,
                        .size = sizeof body - 1,
                        .headers = headers};
    struct reply reply;
    (void)state;
    client_call(&aftd, &r, &reply);
    reply_assert_error(&reply, 403, "not_allowed", "Origin", "a page of \"https://evil.example\"");
    assert_non_null(strstr(reply.body, "cors_origins"));
    reply_clear(&reply);
    assert_int_equal((long)client_metric(&aftd, "aftd_generated_bytes_total"), 0);
    r.headers = NULL;
    client_call(&aftd, &r, &reply);
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    assert_int_equal((long)client_metric(&aftd, "aftd_generated_bytes_total"), 3);
}

static void the_admin_api_takes_no_page_at_all(void **state)
{
    static const char *const origins[] = {"http://127.0.0.1", "http://aft.example", "https://listed.example", "null"};
    char beginning[512];
    (void)state;
    assert_int_equal(ask(aftd.admin_port, "GET /admin/config HTTP/1.1\r\nHost: 127.0.0.1\r\n"), 200);
    assert_int_equal(ask(aftd.admin_port, "GET /admin/config HTTP/1.1\r\nHost: aft.example\r\n"), 200);
    assert_int_equal(ask(aftd.admin_port, "GET /admin/config HTTP/1.1\r\nHost: evil.example\r\n"), 403);
    for (size_t i = 0; i < ARRAY_LEN(origins); i++) {
        (void)snprintf(beginning, sizeof beginning, "GET /admin/config HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n",
                       origins[i]);
        assert_int_equal(ask(aftd.admin_port, beginning), 403);
        assert_non_null(strstr(in.bytes, "may not use the admin API"));
    }
}

/* ---- other ways to ask ------------------------------------------------------------------------------------------ */

static void the_host_of_the_target_is_what_counts(void **state)
{
    (void)state;
    assert_int_equal(ask(aftd.port, "GET http://aft.example/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                                    "Origin: http://127.0.0.1\r\n"),
                     403); /* the target is what counts */
    assert_int_equal(ask(aftd.port, "GET http://127.0.0.1/healthz HTTP/1.1\r\nHost: aft.example\r\n"
                                    "Origin: http://127.0.0.1\r\n"),
                     200);
}

static void a_page_of_a_request_without_a_host_must_be_listed(void **state)
{
    static const struct {
        const char *beginning;
        long status;
    } cases[] = {
        {"GET /healthz HTTP/1.0\r\nOrigin: http://127.0.0.1\r\n", 403},
        {"GET /healthz HTTP/1.0\r\nOrigin: http://\r\n", 403},
        {"GET /healthz HTTP/1.0\r\nOrigin: http://aft.example\r\n", 200},
        {"GET /healthz HTTP/1.0\r\nOrigin: null\r\n", 403},
        {"GET /healthz HTTP/1.0\r\nOrigin: https://listed.example\r\n", 200},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const long status = ask(aftd.port, cases[i].beginning);
        if (status != cases[i].status)
            fail_msg("%s: expected %ld, got %ld", cases[i].beginning, cases[i].status, status);
    }
}

static void any_host_does_not_mean_any_page(void **state)
{
    struct daemon open;
    (void)state;
    daemon_start(&open, (const char *const[]){"--hosts=*", "--models-lazy=true", NULL});
    assert_int_equal(ask_origin(open.port, "a.example", "https://a.example"), 200);
    assert_int_equal(ask_origin(open.port, "a.example", "https://evil.example"), 403);
    assert_int_equal(ask_origin(open.port, "127.0.0.1", "https://evil.example"), 403);
    assert_int_equal(ask_origin(open.port, "a.example", "null"), 403);
    daemon_stop(&open);
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_this_host_and_of_listed_origins_are_answered),
        cmocka_unit_test(a_strange_page_generates_nothing),
        cmocka_unit_test(the_admin_api_takes_no_page_at_all),
        cmocka_unit_test(the_host_of_the_target_is_what_counts),
        cmocka_unit_test(a_page_of_a_request_without_a_host_must_be_listed),
        cmocka_unit_test(any_host_does_not_mean_any_page),
    };
    return cmocka_run_group_tests(tests, start, daemons_end);
}
