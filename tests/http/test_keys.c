/* test_keys.c - ways to get past the keys, all of which must fail; and that those with the right key get in. */
#include <ctype.h>
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
#include "tests/support/keys.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
static char dir[PATH_MAX], file[PATH_MAX], flag[PATH_MAX + 64];
static char full[KEYS_TEXT_MAX];    /* all models, all APIs but admin */
static char limited[KEYS_TEXT_MAX]; /* cifar10-aft-conv by the native API alone */

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    keys_add(file, "full", NULL, full);
    keys_add(file, "limited", (const char *const[]){"--models", "cifar10-aft-conv", "--apis", "native", NULL}, limited);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* ---- what is sent ---------------------------------------------------------------------------------------------- */

/* In a line: {K} the full key, {L} the limited one, {U} {F} {H} {P} {R} {%} {B} the full key in upper case, without its
 * first byte, its first half, one byte longer, reversed, percent-encoded, with the last byte changed. */
static size_t put_key(char *to, char what)
{
    const size_t n = strlen(full);
    size_t used = 0;
    switch (what) {
    case 'L':
        return (size_t)sprintf(to, "%s", limited);
    case 'U':
        for (; used < n; used++)
            to[used] = (char)toupper((unsigned char)full[used]);
        return n;
    case 'F':
        return (size_t)sprintf(to, "%s", full + 1);
    case 'H':
        return (size_t)sprintf(to, "%.*s", (int)(n / 2), full);
    case 'P':
        return (size_t)sprintf(to, "%s0", full);
    case 'R':
        for (; used < n; used++)
            to[used] = full[n - 1 - used];
        return n;
    case '%':
        for (size_t i = 0; i < n; i++)
            used += (size_t)sprintf(to + used, "%%%02x", (unsigned)full[i]);
        return used;
    case 'B':
        used = (size_t)sprintf(to, "%s", full);
        to[n - 1] = to[n - 1] == '0' ? '1' : '0';
        return used;
    default:
        return (size_t)sprintf(to, "%s", full);
    }
}

/* {0} is a NUL, {X} 2,000 letters. */
static size_t expand(char *to, const char *from)
{
    size_t used = 0;
    while (*from != '\0') {
        if (from[0] != '{' || from[1] == '\0' || from[2] != '}') {
            to[used++] = *from++;
        } else {
            if (from[1] == '0')
                to[used++] = '\0';
            else if (from[1] == 'X')
                for (int i = 0; i < 2000; i++)
                    to[used++] = 'a';
            else
                used += put_key(to + used, from[1]);
            from += 3;
        }
    }
    return used;
}

#define TEXT "{\"prompt\": \"x\", \"max_tokens\": 1}"
#define POST "POST /generate"
#define AUTH "Authorization: "

/* Request line without the version, header lines, body; and the answer's status. */
static const struct attack {
    const char *line, *headers, *body;
    long status;
} attacks[] = {
    /* no key */
    {POST, "", TEXT, 401},
    {"POST /classify", "", "x", 401},
    {"POST /explain", "", "x", 401},
    {"POST /complete", "", "x", 401},
    {"POST /score", "", "x", 401},
    {"GET /v1/models", "", NULL, 401},
    /* no key in the header */
    {POST, AUTH "\r\n", TEXT, 401},
    {POST, AUTH "Bearer\r\n", TEXT, 401},
    {POST, AUTH "Bearer \r\n", TEXT, 401},
    {POST, AUTH "Bearer    \r\n", TEXT, 401},
    {POST, "X-API-Key:\r\n", TEXT, 401},
    {POST, "X-API-Key: \r\n", TEXT, 401},
    /* another key */
    {POST, AUTH "Bearer x\r\n", TEXT, 401},
    {POST, AUTH "Bearer aftd_\r\n", TEXT, 401},
    {POST, AUTH "Bearer full\r\n", TEXT, 401},
    {POST, AUTH "Bearer null\r\n", TEXT, 401},
    {POST, AUTH "Bearer undefined\r\n", TEXT, 401},
    {POST, AUTH "Bearer true\r\n", TEXT, 401},
    {POST, AUTH "Bearer *\r\n", TEXT, 401},
    {POST, AUTH "Bearer 0\r\n", TEXT, 401},
    {POST, AUTH "Bearer ' or '1'='1\r\n", TEXT, 401},
    {POST, AUTH "Bearer ../../keys.json\r\n", TEXT, 401},
    {POST, AUTH "Bearer aftd_0000000000000000000000000000000000000000000000000000000000000000\r\n", TEXT, 401},
    {POST, AUTH "Bearer {X}\r\n", TEXT, 401},
    {POST, AUTH "Bearer \xd0\xb0\xd1\x84\xd1\x82\r\n", TEXT, 401},
    {POST, AUTH "Bearer \xff\xfe\r\n", TEXT, 401},
    /* nearly the key */
    {POST, AUTH "Bearer {U}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {F}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {H}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {P}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {R}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {%}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {B}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}{K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K},\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K} x\r\n", TEXT, 401},
    {POST, AUTH "Bearer \"{K}\"\r\n", TEXT, 401},
    {POST, AUTH "Bearer ={K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {H} {H}\r\n", TEXT, 401},
    {POST, AUTH "Bearer x, Bearer {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}, Bearer {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}\xc2\xa0\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}{0}\r\n", TEXT, 400},
    {POST, AUTH "Bearer {K}{0}x\r\n", TEXT, 400},
    {POST, AUTH "{0}Bearer {K}\r\n", TEXT, 400},
    {POST, "X-API-Key: {U}\r\n", TEXT, 401},
    {POST, "X-API-Key: {H}\r\n", TEXT, 401},
    {POST, "X-API-Key: {P}\r\n", TEXT, 401},
    {POST, "X-API-Key: {B}\r\n", TEXT, 401},
    {POST, "X-API-Key: Bearer {K}\r\n", TEXT, 401},
    /* another scheme */
    {POST, AUTH "{K}\r\n", TEXT, 401},
    {POST, AUTH "Basic {K}\r\n", TEXT, 401},
    {POST, AUTH "Basic ZnVsbDo=\r\n", TEXT, 401},
    {POST, AUTH "Digest {K}\r\n", TEXT, 401},
    {POST, AUTH "Token {K}\r\n", TEXT, 401},
    {POST, AUTH "ApiKey {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer{K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer:{K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer\t{K}\r\n", TEXT, 401},
    {POST, AUTH "Bearers {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer Bearer {K}\r\n", TEXT, 401},
    /* two of them */
    {POST, AUTH "Bearer {K}\r\n" AUTH "Bearer {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer x\r\n" AUTH "Bearer {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}\r\n" AUTH "Bearer x\r\n", TEXT, 401},
    {POST, AUTH "Bearer {K}\r\nX-API-Key: {K}\r\n", TEXT, 401},
    {POST, AUTH "Bearer x\r\nX-API-Key: {K}\r\n", TEXT, 401},
    {POST, "X-API-Key: {K}\r\nx-api-key: {K}\r\n", TEXT, 401},
    /* elsewhere */
    {"POST /generate?key={K}", "", TEXT, 401},
    {"POST /generate?api_key={K}", "", TEXT, 401},
    {"POST /generate?access_token={K}", "", TEXT, 401},
    {"POST /generate?Authorization=Bearer%20{K}", "", TEXT, 401},
    {"POST http://{K}@localhost/generate", "", TEXT, 400},
    {"POST http://full:{K}@localhost/generate", "", TEXT, 400},
    {POST, "Cookie: Authorization=Bearer {K}\r\n", TEXT, 401},
    {POST, "Proxy-Authorization: Bearer {K}\r\n", TEXT, 401},
    {POST, "X-Authorization: Bearer {K}\r\n", TEXT, 401},
    {POST, "X-Forwarded-Authorization: Bearer {K}\r\n", TEXT, 401},
    {POST, "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\n", TEXT, 401},
    {POST, "Authorization : Bearer {K}\r\n", TEXT, 400},
    {POST, "Api-Key: {K}\r\n", TEXT, 401},
    {POST, "", "{\"api_key\": \"{K}\", \"prompt\": \"x\"}", 401},
    /* another path to the same */
    {"POST //generate", "", TEXT, 404},
    {"POST /generate/", "", TEXT, 404},
    {"POST /./generate", "", TEXT, 404},
    {"POST /healthz/../generate", "", TEXT, 404},
    {"POST /healthz/..%2fgenerate", "", TEXT, 404},
    {"POST /%67enerate", "", TEXT, 401},
    {"POST /generate%00", "", TEXT, 404},
    {"POST /generate%20", "", TEXT, 404},
    {"POST /generate;healthz", "", TEXT, 404},
    {"POST /generate?/healthz", "", TEXT, 401},
    {"POST /generate#/healthz", "", TEXT, 404},
    {"POST /GENERATE", "", TEXT, 404},
    {"POST \\generate", "", TEXT, 404},
    {"POST http://localhost/generate", "", TEXT, 401},
    {"POST HTTP://localhost:1/generate", "", TEXT, 401},
    {"POST https://localhost/generate", "", TEXT, 401},
    {"POST http://localhost/healthz/../generate", "", TEXT, 404},
    {"POST /healthz", "X-Original-URL: /generate\r\nX-Rewrite-URL: /generate\r\n", TEXT, 405},
    {"GET /page/..%2fv1%2fmodels", "", NULL, 404},
    {"GET /page/../v1/models", "", NULL, 404},
    {"GET //v1/models", "", NULL, 404},
    {"GET /v1//models", "", NULL, 404},
    {"GET /v1/models/", "", NULL, 404},
    {"GET /admin/config", AUTH "Bearer {K}\r\n", NULL, 404},
    {"GET /admin/models", AUTH "Bearer {K}\r\n", NULL, 404},
    /* another method */
    {"HEAD /v1/models", "", NULL, 401},
    {"GET /generate", "", NULL, 401},
    {"GET /generate?prompt=x", "Last-Event-ID: 1\r\n", NULL, 401},
    {"GET /classify", "", NULL, 405},
    {"PUT /generate", "", TEXT, 405},
    {"post /generate", "", TEXT, 405},
    {"OPTIONS /generate", "", TEXT, 204},
    {"TRACE /generate", AUTH "Bearer {K}\r\n", NULL, 405},
    {"CONNECT /generate", "", NULL, 405},
    {"GET /generate", "X-HTTP-Method-Override: POST\r\n", TEXT, 401},
    {"GET /v1/models", "X-HTTP-Method-Override: OPTIONS\r\n", NULL, 401},
    {"GET /healthz", "X-HTTP-Method: POST\r\nX-Original-URL: /generate\r\n", NULL, 200},
    /* what the key may not */
    {"GET /v1/models", AUTH "Bearer {L}\r\n", NULL, 403},
    {"POST /v1/completions", "", TEXT, 401},
    {"POST /v1/completions", AUTH "Bearer {L}\r\n", TEXT, 403},
    {"POST /v1/embeddings", "", "{\"input\": \"x\"}", 401},
    {"POST /v1/embeddings", AUTH "Bearer {L}\r\n", "{\"input\": \"x\"}", 403},
    {"POST /classify", AUTH "Bearer {L}\r\nContent-Type: multipart/form-data; boundary=b\r\n",
     "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nenwik8-aft-local\r\n--b--\r\n", 403},
    {POST, AUTH "Bearer {L}\r\n", TEXT, 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"enwik8-aft-local\", \"prompt\": \"x\"}", 403},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"\\u0065nwik8-aft-local\", \"prompt\": \"x\"}", 403},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"cifar10-aft-conv\", \"model\": \"enwik8-aft-local\"}", 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"enwik8-aft-local\\u0000\", \"prompt\": \"x\"}", 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"ENWIK8-AFT-LOCAL\", \"prompt\": \"x\"}", 403},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"../enwik8-aft-local\", \"prompt\": \"x\"}", 403},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"*\", \"prompt\": \"x\"}", 403},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"\", \"prompt\": \"x\"}", 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": null, \"prompt\": \"x\"}", 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": [\"enwik8-aft-local\"], \"prompt\": \"x\"}", 400},
    {POST, AUTH "Bearer {L}\r\n", "{\"model\": \"cifar10-aft-conv\", \"prompt\": \"x\"}", 400},
    {"POST /generate?model=enwik8-aft-local", AUTH "Bearer {L}\r\n", TEXT, 400},
    {"POST /score?model=enwik8-aft-local", AUTH "Bearer {L}\r\nContent-Type: application/json\r\n", "{\"text\": \"x\"}",
     403},
    {"POST /score", AUTH "Bearer {L}\r\nContent-Type: application/json\r\n",
     "{\"text\": \"x\", \"model\": \"enwik8-aft-local\"}", 403},
    {"POST /classify?model=enwik8-aft-local", AUTH "Bearer {L}\r\n", "x", 403},
    {"POST /explain?model=%65nwik8-aft-local", AUTH "Bearer {L}\r\n", "x", 403},
    {"POST /complete?model=enwik8-aft-local", AUTH "Bearer {L}\r\n", "x", 403},
};

static size_t make(char *to, const struct attack *a)
{
    size_t n = expand(to, a->line);
    n += (size_t)sprintf(to + n, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    n += expand(to + n, a->headers);
    if (a->body != NULL) {
        char body[4096];
        const size_t size = expand(body, a->body);
        n += (size_t)sprintf(to + n, "Content-Length: %zu\r\n\r\n", size);
        memcpy(to + n, body, size);
        return n + size;
    }
    return n + (size_t)sprintf(to + n, "\r\n");
}

/* All are refused, none reaches a model, and the refusals reveal nothing about the key. */
static void no_way_leads_past_the_keys(void **state)
{
    static struct raw_input in;
    static char text[16384];
    unsigned failed = 0;
    (void)state;
    _Static_assert(ARRAY_LEN(attacks) >= 100, "a hundred ways");
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    for (size_t i = 0; i < ARRAY_LEN(attacks); i++) {
        const struct attack *a = &attacks[i];
        const size_t size = make(text, a);
        (void)raw_exchange(aftd.port, text, size, &in, HANG_MS);
        const bool challenges = strstr(in.bytes, "WWW-Authenticate: Bearer") != NULL;
        if (raw_status(&in) == a->status && raw_count_answers(&in) == 1 && challenges == (a->status == 401) &&
            strstr(in.bytes, full) == NULL && strstr(in.bytes, limited) == NULL)
            continue;
        print_error("attack %zu, %s, %s: expected %ld, got %s\n", i, a->line, a->headers, a->status, in.bytes);
        failed++;
    }
    assert_int_equal(failed, 0);
    assert_true(client_metric(&aftd, "aftd_generated_bytes_total") < 0.5);
    assert_true(client_metric(&aftd, "aftd_requests_rejected_total{reason=\"not_allowed\"}") > 50);
    char *log = daemon_log(&aftd);
    assert_null(strstr(log, full));
    assert_null(strstr(log, limited));
    assert_null(strstr(log, full + strlen(full) / 2));
    free(log);
    daemon_stop(&aftd);
}

/* ---- who gets in ----------------------------------------------------------------------------------------------- */

static void assert_raw(const char *line, const char *headers, const char *body, long status, const char *says)
{
    static struct raw_input in;
    static char text[16384];
    const struct attack a = {line, headers, body, status};
    (void)raw_exchange(aftd.port, text, make(text, &a), &in, HANG_MS);
    if (raw_status(&in) != status || strstr(in.bytes, says) == NULL)
        fail_msg("%s %s: expected %ld and \"%s\", got %s", line, headers, status, says, in.bytes);
}

static void the_right_key_gets_in(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    assert_raw(POST, AUTH "Bearer {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw(POST, AUTH "bearer {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw(POST, AUTH "BEARER   {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw(POST, "aUTHORIZATION: Bearer {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw(POST, "X-API-Key: {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw(POST, "x-api-key: {K}\r\n", TEXT, 200, "finish_reason");
    assert_raw("GET /v1/models", AUTH "Bearer {K}\r\n", NULL, 200, "enwik8-aft-local");
    assert_raw("POST /classify", AUTH "Bearer {L}\r\n", "x", 415, "invalid_request_error");
    assert_raw(POST, AUTH "Bearer {L}\r\n", "{\"prompt\": \"x\", \"model\": \"enwik8-aft-local\"}", 403,
               "may not use the model");
    /* how the daemon is, is for everybody */
    assert_raw("GET /healthz", "", NULL, 200, "ok");
    assert_raw("GET /readyz", "", NULL, 200, "ready");
    assert_raw("GET /metrics", "", NULL, 200, "aftd_key_requests_total{key=\"full\"} 7");
    assert_raw("GET /metrics", "", NULL, 200, "aftd_key_requests_total{key=\"limited\"} 2");
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        char *log = daemon_log(&aftd);
        const bool said = strstr(log, "key=full") != NULL && strstr(log, "key=limited") != NULL;
        free(log);
        if (said)
            break;
        assert_true(test_now_ms() < end);
    }
    daemon_stop(&aftd);
}

/* A key sees the models that it may use, and they are its defaults. */
static void models_are_those_of_the_key(void **state)
{
    char text[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 64];
    struct reply reply;
    (void)state;
    keys_add(file, "writer", (const char *const[]){"--models", "enwik8-aft-local", "--apis", "native,openai", NULL},
             text);
    (void)snprintf(header, sizeof header, AUTH "Bearer %s", text);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    const char *const headers[] = {header, NULL};
    client_call(&aftd, &(struct request){.path = "/v1/models", .headers = headers}, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.body, "enwik8-aft-local"));
    assert_null(strstr(reply.body, "cifar10"));
    reply_clear(&reply);
    client_call(&aftd, &(struct request){.path = "/generate", .body = TEXT, .size = strlen(TEXT), .headers = headers},
                &reply);
    assert_int_equal(reply.status, 200);
    reply_clear(&reply);
    client_call(&aftd, &(struct request){.path = "/classify", .body = "x", .size = 1, .headers = headers}, &reply);
    assert_null(strstr(reply.body, "cifar10"));
    reply_clear(&reply);
    daemon_stop(&aftd);
}

static void metrics_need_a_key_where_a_setting_says_so(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){flag, "--metrics-open=false", NULL});
    assert_raw("GET /metrics", "", NULL, 401, "a key is needed");
    assert_raw("GET /metrics", AUTH "Bearer {L}\r\n", NULL, 200, "aftd_build_info");
    assert_raw("GET /healthz", "", NULL, 200, "ok");
    daemon_stop(&aftd);
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_way_leads_past_the_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_right_key_gets_in, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_are_those_of_the_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_need_a_key_where_a_setting_says_so, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
