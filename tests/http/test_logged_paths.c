/* test_logged_paths.c - what the log says of a request; of its path never a session's id, which without keys is as good
 * as a key, nor what looks like one where a client mistakes the path. The real daemon. */
#include <jansson.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/sessions.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, PART = 12 /* digits of an id in a row */ };

static struct daemon aftd;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

static void expect(const char *method, const char *path, const char *body, long status)
{
    struct reply r;
    client_call(&aftd,
                &(struct request){.method = method,
                                  .path = path,
                                  .type = body != NULL ? "application/json" : NULL,
                                  .body = body,
                                  .size = body != NULL ? strlen(body) : 0},
                &r);
    if (r.status != status)
        fail_msg("%s %s: expected %ld, got %ld: %s", method, path, status, r.status, r.body);
    reply_clear(&r);
}

/* All that it has said, once it has ended. */
static char *log_of_all(void)
{
    daemon_signal(&aftd, SIGTERM);
    assert_int_equal(daemon_wait(&aftd, HANG_MS), 0);
    return daemon_log(&aftd);
}

static void a_sessions_id_is_not_in_the_log(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path, *logged; /* %s: the id */
        long status;
    } cases[] = {
        {"GET", "/v1/sessions/%s", "\"/v1/sessions/{}\"", 200},
        {"GET", "/v1/sessions/%s/fork", "\"/v1/sessions/{}/fork\"", 405},
        {"GET", "/v1/sessions/%s/nothing", "\"/v1/sessions/{}/nothing\"", 404},
        {"GET", "/v1/sessions/%s/", "\"/v1/sessions/{}/\"", 404},
        {"GET", "/v1/sessions//%s", "\"/v1/sessions/{}/{}\"", 404},
        {"GET", "/v1/sessions/what/%s", "\"/v1/sessions/{}/{}\"", 404},
        {"GET", "/v1/sessions/x%s", "\"/v1/sessions/{}\"", 404},
        {"GET", "/v1//sessions/%s", "\"/v1//sessions/{}\"", 404},
        {"GET", "//v1/sessions/%s", "\"//v1/sessions/{}\"", 404},
        {"GET", "/v1/session/%s", "\"/v1/session/{}\"", 404},
        {"DELETE", "/sessions/%s", "\"/sessions/{}\"", 404},
        {"GET", "/v2/sessions/%s", "\"/v2/sessions/{}\"", 404},
        {"GET", "/v1/Sessions/%s", "\"/v1/Sessions/{}\"", 404},
        {"GET", "/v1/sessions%%2f%s/", "\"/v1/sessions/{}/\"", 404},
        {"POST", "/sessions/%s/fork/", "\"/sessions/{}/fork/\"", 404},
        {"GET", "/%s", "\"/{}\"", 404},
        {"GET", "/x%sx/y", "\"/x{}x/y\"", 404},
    };
    char id[TEST_SESSION_ID_BYTES], path[128];
    daemon_start(&aftd, NULL);
    session_create(&aftd, json_object(), id);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(path, sizeof path, cases[i].path, id);
        expect(cases[i].method, path, strcmp(cases[i].method, "POST") == 0 ? "{}" : NULL, cases[i].status);
    }
    char *log = log_of_all();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (strstr(log, cases[i].logged) == NULL)
            fail_msg("%s is not logged as %s: %s", cases[i].path, cases[i].logged, log);
    for (size_t at = 0; at + PART < strlen(id); at++) { /* nor is a part of it */
        char part[PART + 1];
        (void)snprintf(part, sizeof part, "%s", id + at);
        assert_null(strstr(log, part));
    }
    free(log);
}

/* Names with digits are not taken for ids, and what is known is logged as it is. */
static void other_paths_are_logged_as_they_are(void **state)
{
    (void)state;
    static const char *const paths[] = {"/v1/facade/2026-11-23", "/abcdefg/1234567", "/favicon.ico", "/v1/modells"};
    daemon_start(&aftd, NULL);
    expect("GET", "/v2/models/0123456789abcdef", NULL, 404); /* a model's name that nothing has */
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        expect("GET", paths[i], NULL, 404);
    char *log = log_of_all();
    assert_non_null(strstr(log, " /v2/models/0123456789abcdef "));
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strstr(log, paths[i]) == NULL)
            fail_msg("%s is not logged: %s", paths[i], log);
    free(log);
}

/* Nor is one whose '?' a client has escaped, and of probes that go well there is nothing. */
static void queries_and_probes_are_not_in_the_log(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    expect("GET", "/nothing?secret=1", NULL, 404);
    expect("GET", "/nothing%3Fsecret=1", NULL, 404);
    expect("GET", "/v2/models/none%3Fsecret=1", NULL, 404);
    expect("GET", "/healthz", NULL, 200);
    char *log = log_of_all();
    assert_non_null(strstr(log, " GET /nothing 404 "));
    assert_non_null(strstr(log, " GET /v2/models/none 404 "));
    assert_null(strstr(log, "secret"));
    assert_null(strstr(log, "/healthz"));
    free(log);
}

static void probes_are_in_the_log_of_who_debugs(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--log-level=debug", NULL});
    expect("GET", "/healthz", NULL, 200);
    char *log = log_of_all();
    assert_non_null(strstr(log, " debug GET /healthz 200 "));
    free(log);
}

static void a_request_says_what_happened(void **state)
{
    static const char pattern[] =
        " info POST /generate 200 length [0-9.]+ ms model=[^ ]+ prompt_tokens=2 tokens=3 (queue_ms=[0-9.]+ )?"
        "compute_ms=[0-9.]+ first_byte_ms=[0-9.]+ bytes_in=45 bytes_out=[0-9]+ client=127\\.0\\.0\\.1 "
        "id=[0-9a-f]{32}\n";
    regex_t expression;
    (void)state;
    daemon_start(&aftd, NULL);
    expect("POST", "/generate", "{\"prompt\":\"ab\",\"max_tokens\":3,\"stream\":false}", 200);
    char *log = log_of_all();
    assert_int_equal(regcomp(&expression, pattern, REG_EXTENDED | REG_NOSUB), 0);
    const int result = regexec(&expression, log, 0, NULL, 0);
    regfree(&expression);
    if (result != 0)
        fail_msg("nothing in \"%s\" matches \"%s\"", log, pattern);
    free(log);
}

/* A path as long as a line of the log has room for, and longer: what does not fit is left out, however it is cut. */
static void long_paths_are_cut(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    for (size_t size = LOG_PATH_MAX - 12; size < LOG_PATH_MAX + 12; size++) {
        char path[LOG_PATH_MAX + 64];
        memset(path, 'x', sizeof path);
        path[0] = '/';
        (void)snprintf(path + size, sizeof path - size, "0123456789abcdef/y");
        expect("GET", path, NULL, 404);
    }
    char *log = log_of_all();
    assert_null(strstr(log, "01234567"));
    assert_non_null(strstr(log, "x{}/y\" 404"));
    free(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_sessions_id_is_not_in_the_log, tear_down),
        cmocka_unit_test_teardown(other_paths_are_logged_as_they_are, tear_down),
        cmocka_unit_test_teardown(queries_and_probes_are_not_in_the_log, tear_down),
        cmocka_unit_test_teardown(probes_are_in_the_log_of_who_debugs, tear_down),
        cmocka_unit_test_teardown(a_request_says_what_happened, tear_down),
        cmocka_unit_test_teardown(long_paths_are_cut, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_logged_paths", tests, NULL, NULL);
}
