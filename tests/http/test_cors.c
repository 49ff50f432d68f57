/* test_cors.c - what browsers are told about pages of other origins: preflights, answers, errors, streams. Which other
 * pages are refused is in test_hosts.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

#define TEXT "{\"prompt\": \"x\", \"max_tokens\": 3}"
#define STREAM "{\"prompt\": \"x\", \"max_tokens\": 3, \"stream\": true}"

static const struct {
    const char *method, *path, *body;
    long status;
} asked[] = {
    {NULL, "/healthz", NULL, 200},       {NULL, "/generate", TEXT, 200},  {NULL, "/generate", STREAM, 200},
    {NULL, "/generate", "{", 400},       {NULL, "/nothing", NULL, 404},   {"DELETE", "/generate", NULL, 405},
    {"OPTIONS", "/generate", NULL, 204}, {"HEAD", "/healthz", NULL, 200},
};

/* `allows`: what Access-Control-Allow-Origin says; NULL: it is not there, and if there is an Origin the answer is
 * 403. */
static void assert_answers(const char *origin, const char *allows, bool varies)
{
    const bool refused = allows == NULL && strncmp(origin, "Origin:", 7) == 0;
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        struct reply r;
        char value[256] = "";
        const char *const headers[] = {origin, "Access-Control-Request-Method: POST", NULL};
        client_call(&aftd,
                    &(struct request){.method = asked[i].method,
                                      .path = asked[i].path,
                                      .body = asked[i].body,
                                      .size = asked[i].body != NULL ? strlen(asked[i].body) : 0,
                                      .headers = headers},
                    &r);
        assert_int_equal(r.status, refused ? 403 : asked[i].status);
        assert_int_equal(reply_header(&r, "Access-Control-Allow-Origin", value, sizeof value), allows != NULL);
        if (allows != NULL)
            assert_string_equal(value, allows);
        assert_int_equal(reply_header(&r, "Access-Control-Expose-Headers", value, sizeof value), allows != NULL);
        assert_false(reply_header(&r, "Access-Control-Allow-Credentials", value, sizeof value));
        assert_int_equal(reply_header(&r, "Vary", value, sizeof value), varies);
        const bool preflight = asked[i].status == 204 && allows != NULL;
        assert_int_equal(reply_header(&r, "Access-Control-Allow-Headers", value, sizeof value), preflight);
        if (preflight)
            assert_non_null(strstr(value, "Authorization"));
        assert_int_equal(reply_header(&r, "Access-Control-Allow-Methods", value, sizeof value), preflight);
        if (preflight)
            assert_non_null(strstr(value, "POST"));
        reply_clear(&r);
    }
}

static void listed_origins_are_allowed(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--cors-origins=https://a.example,http://localhost:3000", NULL});
    assert_answers("Origin: https://a.example", "https://a.example", true);
    assert_answers("Origin: http://localhost:3000", "http://localhost:3000", true);
    assert_answers("Origin: http://localhost:300", NULL, true);
    assert_answers("Origin: https://a.example.evil", NULL, true);
    assert_answers("Origin: https://a.example,http://localhost:3000", NULL, true);
    assert_answers("Origin: null", NULL, true);
    assert_answers("X-Nothing: 1", NULL, true);
    daemon_stop(&aftd);
}

static void everybody_may_be_allowed(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--cors-origins=*", NULL});
    assert_answers("Origin: https://anywhere.example", "*", false);
    assert_answers("X-Nothing: 1", NULL, false);
    daemon_stop(&aftd);
}

/* Clients in browsers send headers of their own, such as x-stainless-os; "*" does not stand for Authorization. */
static void whatever_header_a_client_adds_is_allowed(void **state)
{
    (void)state;
    const char *const headers[] = {"Origin: https://a.example", "Access-Control-Request-Method: POST",
                                   "Access-Control-Request-Headers: authorization,x-stainless-os", NULL};
    struct reply r;
    char value[256] = "";
    daemon_start(&aftd, (const char *const[]){"--cors-origins=https://a.example", NULL});
    client_call(&aftd, &(struct request){.method = "OPTIONS", .path = "/v1/completions", .headers = headers}, &r);
    assert_int_equal(r.status, 204);
    assert_true(reply_header(&r, "Access-Control-Allow-Headers", value, sizeof value));
    assert_ptr_equal(strstr(value, "*, "), value);
    assert_non_null(strstr(value, "Authorization"));
    reply_clear(&r);
    daemon_stop(&aftd);
}

static void nobody_is_unless_a_setting_says_so(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    assert_answers("Origin: https://a.example", NULL, false);
    daemon_stop(&aftd);
}

static void wrong_origins_are_named(void **state)
{
    static const char *const wrong[] = {"--cors-origins=a.example",          "--cors-origins=https://a.example/",
                                        "--cors-origins=https://",           "--cors-origins=https://a.example,*",
                                        "--cors-origins=https://a.example,", "--cors-origins=https://A.example",
                                        "--cors-origins=ftp://a.example"};
    char program[PATH_MAX];
    (void)state;
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const struct program_case c = {wrong[i], {wrong[i], "--models-dir=tests/data/models", "--listen-port=0"},
                                       NULL,     2,
                                       "",       "expected an origin such as"};
        program_expect(program, &c, 1);
    }
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(listed_origins_are_allowed, tear_down),
        cmocka_unit_test_teardown(everybody_may_be_allowed, tear_down),
        cmocka_unit_test_teardown(whatever_header_a_client_adds_is_allowed, tear_down),
        cmocka_unit_test_teardown(nobody_is_unless_a_setting_says_so, tear_down),
        cmocka_unit_test_teardown(wrong_origins_are_named, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
