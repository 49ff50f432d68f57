/* test_basics.c - what every endpoint does, whatever it is for: paths and methods, request ids, timings, the shape
 * of errors, connections that stay. The real daemon over loopback. */
#include <jansson.h>
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
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define ID_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum { LIMIT_S = 580, BODY_MAX = 65536 };

static struct daemon aftd;

static int start(void **state)
{
    static const char *const flags[] = {"--body-bytes-max=65536", NULL};
    (void)state;
    daemon_start(&aftd, flags);
    return 0;
}

/* ---- paths and methods ----------------------------------------------------------------------------------------- */

static void health_and_readiness_are_200(void **state)
{
    static const char *const paths[] = {"/healthz", "/readyz", "/healthz?verbose=1"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply r;
        client_get(&aftd, paths[i], &r);
        assert_int_equal(r.status, 200);
        json_decref(reply_json(&r));
        reply_clear(&r);
    }
}

/* By default they would end it. */
static void signals_that_mean_nothing_change_nothing(void **state)
{
    struct reply r;
    (void)state;
    daemon_signal(&aftd, SIGUSR1);
    daemon_signal(&aftd, SIGUSR2);
    client_get(&aftd, "/healthz", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    assert_int_equal(kill(aftd.pid, 0), 0);
}

/* What each of the two models costs, by whatever is paid at once. */
static void the_list_tells_what_a_model_costs(void **state)
{
    struct reply r;
    json_int_t state_bytes = -1, macs = 0, mixing = 0, token = 0, token_mixing = 0;
    json_t *picture = NULL, *text = NULL;
    const char *mixer = NULL;
    (void)state;
    client_get(&aftd, "/v1/models", &r);
    json_t *list = reply_json(&r);
    assert_int_equal(json_unpack(list, "{s:[o, o]}", "data", &picture, &text), 0);
    assert_int_equal(json_unpack(picture, "{s:s, s:I, s:I, s:I}", "mixer", &mixer, "state_bytes_per_stream",
                                 &state_bytes, "macs_per_picture", &macs, "mixer_macs_per_picture", &mixing),
                     0);
    assert_string_equal(mixer, "aft-conv");
    assert_true(state_bytes == 0 && macs == 71173376 && mixing == 1585152);
    assert_int_equal(json_unpack(text, "{s:s, s:I, s:I, s:I}", "mixer", &mixer, "state_bytes_per_stream", &state_bytes,
                                 "macs_per_token", &token, "mixer_macs_per_token", &token_mixing),
                     0);
    assert_string_equal(mixer, "aft-local");
    assert_true(state_bytes == 317952 && token == 2703360 && token_mixing == 74880);
    assert_null(json_object_get(picture, "labels")); /* thousands of some models */
    json_decref(list);
    reply_clear(&r);
}

static void a_classifier_by_name_tells_its_labels(void **state)
{
    struct reply r;
    (void)state;
    client_get(&aftd, "/v1/models/cifar10-aft-conv", &r);
    json_t *m = reply_json(&r);
    assert_int_equal(json_array_size(json_object_get(m, "labels")), 10);
    assert_string_equal(json_string_value(json_array_get(json_object_get(m, "labels"), 8)), "ship");
    json_decref(m);
    reply_clear(&r);
    client_get(&aftd, "/v1/models/enwik8-aft-local", &r);
    m = reply_json(&r);
    assert_null(json_object_get(m, "labels"));
    json_decref(m);
    reply_clear(&r);
}

static void models_are_listed_as_openai_lists_them(void **state)
{
    static const char *const names[] = {"cifar10-aft-conv", "enwik8-aft-local"};
    struct reply r;
    const char *object = NULL;
    json_t *data = NULL;
    (void)state;
    client_get(&aftd, "/v1/models", &r);
    assert_int_equal(r.status, 200);
    json_t *list = reply_json(&r);
    assert_int_equal(json_unpack(list, "{s:s, s:o}", "object", &object, "data", &data), 0);
    assert_string_equal(object, "list");
    assert_int_equal(json_array_size(data), ARRAY_LEN(names));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *id = NULL, *kind = NULL, *owner = NULL;
        json_int_t created = 0;
        assert_int_equal(json_unpack(json_array_get(data, i), "{s:s, s:s, s:I, s:s}", "id", &id, "object", &kind,
                                     "created", &created, "owned_by", &owner),
                         0);
        assert_string_equal(id, names[i]);
        assert_string_equal(kind, "model");
        assert_true(created > 1600000000 && owner[0] != '\0');
    }
    json_decref(list);
    reply_clear(&r);
}

static const struct {
    const char *method, *path;
    long status;
    const char *code, *allow;
} wrong_targets[] = {
    {"GET", "/pages", 404, "not_found", NULL},
    {"GET", "/nothing", 404, "not_found", NULL},
    {"GET", "/healthz/", 404, "not_found", NULL},
    {"GET", "/HEALTHZ", 404, "not_found", NULL},
    {"GET", "//healthz", 404, "not_found", NULL},
    {"GET", "/healthz%00", 404, "not_found", NULL},
    {"GET", "/healthz%00?a=b", 404, "not_found", NULL},
    {"GET", "/%00", 404, "not_found", NULL},
    {"GET", "/../healthz", 404, "not_found", NULL},
    {"POST", "/v1/models/x", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
    {"POST", "/v1/models/x/y", 404, "not_found", NULL},
    {"GET", "/classify", 405, "method_not_allowed", "POST, OPTIONS"},
    {"HEAD", "/classify", 405, NULL, "POST, OPTIONS"},
    {"GET", "/v1/completions", 405, "method_not_allowed", "POST, OPTIONS"},
    {"PUT", "/generate", 405, "method_not_allowed", "POST, GET, HEAD, OPTIONS"},
    {"DELETE", "/generate", 405, "method_not_allowed", "POST, GET, HEAD, OPTIONS"},
    {"OPTIONS", "/generate", 204, NULL, "POST, GET, HEAD, OPTIONS"},
    {"OPTIONS", "/classify", 204, NULL, "POST, OPTIONS"},
    {"OPTIONS", "/metrics", 204, NULL, "GET, HEAD, OPTIONS"},
    {"OPTIONS", "/nothing", 404, "not_found", NULL},
    {"BREW", "/generate", 405, "method_not_allowed", "POST, GET, HEAD, OPTIONS"},
    {"post", "/generate", 405, "method_not_allowed", "POST, GET, HEAD, OPTIONS"},
    {"POST", "/healthz", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
    {"POST", "/readyz", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
    {"POST", "/v1/models", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
    {"DELETE", "/metrics", 405, "method_not_allowed", "GET, HEAD, OPTIONS"},
};

static void wrong_paths_and_methods_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong_targets); i++) {
        struct reply r;
        char allow[64] = "";
        client_call(&aftd, &(struct request){.method = wrong_targets[i].method, .path = wrong_targets[i].path}, &r);
        const bool has_allow = reply_header(&r, "Allow", allow, sizeof allow);
        print_message("  %s %s\n", wrong_targets[i].method, wrong_targets[i].path);
        if (wrong_targets[i].code != NULL)
            reply_assert_error(&r, wrong_targets[i].status, wrong_targets[i].code, NULL, NULL);
        assert_int_equal(r.status, wrong_targets[i].status);
        assert_int_equal(has_allow, wrong_targets[i].allow != NULL);
        if (has_allow)
            assert_string_equal(allow, wrong_targets[i].allow);
        reply_clear(&r);
    }
}

static void head_is_get_without_the_body(void **state)
{
    static const char *const paths[] = {"/healthz", "/readyz", "/v1/models", "/metrics"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply head, get;
        char head_type[64] = "", get_type[64] = "", length[32] = "";
        client_call(&aftd, &(struct request){.method = "HEAD", .path = paths[i]}, &head);
        client_get(&aftd, paths[i], &get);
        assert_int_equal(head.status, 200);
        assert_int_equal(head.size, 0);
        assert_true(reply_header(&head, "Content-Type", head_type, sizeof head_type));
        assert_true(reply_header(&get, "Content-Type", get_type, sizeof get_type));
        assert_string_equal(head_type, get_type);
        assert_true(reply_header(&head, "Content-Length", length, sizeof length));
        if (strcmp(paths[i], "/metrics") != 0) /* whose numbers have changed meanwhile */
            assert_int_equal(strtol(length, NULL, 10), get.size);
        reply_clear(&head);
        reply_clear(&get);
    }
}

/* ---- what every answer has ------------------------------------------------------------------------------------- */

static void get_id(const char *given, char *out, size_t size)
{
    char line[512];
    struct reply r;
    const char *const headers[] = {line, NULL};
    (void)snprintf(line, sizeof line, "X-Request-Id: %s", given != NULL ? given : "");
    client_call(&aftd, &(struct request){.path = "/healthz", .headers = given != NULL ? headers : NULL}, &r);
    assert_int_equal(r.status, 200);
    assert_true(reply_header(&r, "X-Request-Id", out, size));
    reply_clear(&r);
}

static void a_clients_request_id_comes_back(void **state)
{
    char longest[REQUEST_ID_MAX + 1];
    const char *const ids[] = {"a", "-", "0", ID_CHARACTERS, "req-2024.01_A", longest};
    (void)state;
    memset(longest, 'x', REQUEST_ID_MAX);
    longest[REQUEST_ID_MAX] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        char id[512];
        get_id(ids[i], id, sizeof id);
        assert_string_equal(id, ids[i]);
    }
}

static void a_bad_request_id_is_replaced(void **state)
{
    char too_long[REQUEST_ID_MAX + 2];
    const char *const ids[] = {NULL, "a b", "a/b", "<script>", "\"", "\xc3\xa4", "a,b", "a;b", "{}", too_long};
    char before[512] = "";
    (void)state;
    memset(too_long, 'x', REQUEST_ID_MAX + 1);
    too_long[REQUEST_ID_MAX + 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        char id[512];
        get_id(ids[i], id, sizeof id);
        assert_in_range(strlen(id), 16, REQUEST_ID_MAX);
        assert_int_equal(strspn(id, ID_CHARACTERS), strlen(id));
        assert_string_not_equal(id, before);
        if (ids[i] != NULL)
            assert_string_not_equal(id, ids[i]);
        (void)snprintf(before, sizeof before, "%s", id);
    }
}

static void every_answer_has_an_id_and_timings(void **state)
{
    static const char text[] = "{";
    const struct request requests[] = {
        {.path = "/healthz"},
        {.path = "/metrics"},
        {.path = "/nothing"},
        {.path = "/generate"},
        {.method = "HEAD", .path = "/v1/models"},
        {.path = "/generate", .type = "application/json", .body = text, .size = sizeof text - 1},
        {.path = "/generate", .type = "application/json", .body = "{\"max_tokens\":1}", .size = 16},
        {.path = "/classify", .type = "image/jpeg", .body = text, .size = sizeof text - 1},
        {.path = "/classify", .type = "text/plain", .body = text, .size = sizeof text - 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct reply r;
        char id[256], timing[256];
        double queue = -1, compute = -1;
        client_call(&aftd, &requests[i], &r);
        assert_true(reply_header(&r, "X-Request-Id", id, sizeof id));
        assert_true(reply_header(&r, "Server-Timing", timing, sizeof timing));
        if (sscanf(timing, "queue;dur=%lf, compute;dur=%lf", &queue, &compute) != 2) /* NOLINT(cert-err34-c) */
            fail_msg("Server-Timing: %s", timing);
        assert_true(queue >= 0 && compute >= 0);
        reply_clear(&r);
    }
}

/* ---- errors that no endpoint makes ----------------------------------------------------------------------------- */

static void a_post_without_a_length_is_411(void **state)
{
    static const char *const paths[] = {"/classify", "/generate"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply r;
        client_call(&aftd, &(struct request){.method = "POST", .path = paths[i]}, &r);
        reply_assert_error(&r, 411, "length_required", NULL, NULL);
        reply_clear(&r);
    }
}

static void a_body_that_is_too_large_is_413(void **state)
{
    static const char *const paths[] = {"/classify", "/generate"};
    static const char body[BODY_MAX + 1];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply r;
        client_call(&aftd, &(struct request){.path = paths[i], .body = body, .size = sizeof body}, &r);
        reply_assert_error(&r, 413, "body_too_large", NULL, "65536");
        reply_clear(&r);
        client_call(&aftd, &(struct request){.path = paths[i], .body = body, .size = sizeof body - 1}, &r);
        assert_int_not_equal(r.status, 413);
        reply_clear(&r);
    }
}

static void a_long_url_is_refused(void **state)
{
    static const size_t sizes[] = {HTTP_URL_MAX + 1, 16000, 40000, 1000000};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct reply r;
        char *path = malloc(sizes[i] + 1);
        assert_non_null(path);
        memset(path, 'a', sizes[i]);
        memcpy(path, "/healthz?", 9);
        path[sizes[i]] = '\0';
        if (client_try(&aftd, &(struct request){.path = path}, &r)) {
            if (i == 0)
                reply_assert_error(&r, 414, "url_too_long", NULL, "2048");
            assert_in_range(r.status, 400, 499);
            reply_clear(&r);
        } else {
            assert_true(i > 0); /* too long to be read at all: cutting the connection is fine */
        }
        free(path);
    }
    char path[HTTP_URL_MAX + 1];
    struct reply r;
    memset(path, 'a', HTTP_URL_MAX);
    memcpy(path, "/healthz?", 9);
    path[HTTP_URL_MAX] = '\0';
    client_get(&aftd, path, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
}

/* ---- connections ----------------------------------------------------------------------------------------------- */

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n"

enum lasting { STAYS, CLOSES, SAYS };

static const struct {
    const char *name, *request;
    enum lasting want; /* SAYS: either, as long as the answer tells */
} lasting[] = {
    {"HTTP/1.1", GET("/healthz") "\r\n", STAYS},
    {"a bad body", "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{", STAYS},
    {"a whole generation", "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{\"max_tokens\":3}",
     STAYS},
    {"a stream",
     "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n{\"max_tokens\":3,\"stream\":true}",
     STAYS},
    {"Connection: close", GET("/healthz") "Connection: close\r\n\r\n", CLOSES},
    {"HTTP/1.0", "GET /healthz HTTP/1.0\r\n\r\n", CLOSES},
    {"a 404", GET("/nothing") "\r\n", SAYS},
    {"a 405", GET("/classify") "\r\n", SAYS},
    {"a 411", "POST /generate HTTP/1.1\r\nHost: localhost\r\n\r\n", SAYS},
};

static void connections_stay_unless_told_otherwise(void **state)
{
    static struct raw_input in;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lasting); i++) {
        const bool stream = strstr(lasting[i].request, "stream") != NULL;
        const int fd = raw_connect(aftd.port);
        print_message("  %s\n", lasting[i].name);
        assert_true(raw_send_text(fd, lasting[i].request));
        assert_int_equal(raw_receive(fd, &in, stream ? "0\r\n\r\n" : "}", HANG_MS), RAW_FOUND);
        const bool says_close = strstr(in.bytes, "Connection: close\r\n") != NULL;
        if (lasting[i].want != SAYS)
            assert_int_equal(says_close, lasting[i].want == CLOSES);
        if (says_close) {
            assert_int_equal(raw_receive(fd, &in, NULL, HANG_MS), RAW_CLOSED);
        } else {
            assert_int_equal(raw_receive(fd, &in, NULL, 20), RAW_LIMIT);
            assert_true(raw_send_text(fd, GET("/healthz") "\r\n"));
            assert_int_equal(raw_receive(fd, &in, "\"ok\"", HANG_MS), RAW_FOUND);
            assert_int_equal(raw_status(&in), 200);
        }
        raw_close(fd);
    }
}

static void a_client_that_expects_100_is_told_to_continue(void **state)
{
    static struct raw_input in;
    const int fd = raw_connect(aftd.port);
    (void)state;
    assert_true(raw_send_text(
        fd, "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n"));
    assert_int_equal(raw_receive(fd, &in, "\r\n\r\n", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 100);
    assert_true(raw_send_text(fd, "{\"max_tokens\":4}"));
    assert_int_equal(raw_receive(fd, &in, "\"finish_reason\":\"length\"", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 200);
    raw_close(fd);
}

static void a_body_that_will_be_refused_is_not_asked_for(void **state)
{
    static const struct {
        const char *headers;
        long status;
    } cases[] = {
        {"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n", 413},
        {"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", 404},
        {"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", 405},
        {"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n"
         "Expect: 100-continue\r\n\r\n",
         415},
    };
    static struct raw_input in;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int fd = raw_connect(aftd.port);
        assert_true(raw_send_text(fd, cases[i].headers));
        assert_int_equal(raw_receive(fd, &in, "}", HANG_MS), RAW_FOUND);
        assert_int_equal(raw_status(&in), cases[i].status);
        raw_close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_and_readiness_are_200),
        cmocka_unit_test(signals_that_mean_nothing_change_nothing),
        cmocka_unit_test(models_are_listed_as_openai_lists_them),
        cmocka_unit_test(the_list_tells_what_a_model_costs),
        cmocka_unit_test(a_classifier_by_name_tells_its_labels),
        cmocka_unit_test(wrong_paths_and_methods_are_refused),
        cmocka_unit_test(head_is_get_without_the_body),
        cmocka_unit_test(a_clients_request_id_comes_back),
        cmocka_unit_test(a_bad_request_id_is_replaced),
        cmocka_unit_test(every_answer_has_an_id_and_timings),
        cmocka_unit_test(a_post_without_a_length_is_411),
        cmocka_unit_test(a_body_that_is_too_large_is_413),
        cmocka_unit_test(a_long_url_is_refused),
        cmocka_unit_test(connections_stay_unless_told_otherwise),
        cmocka_unit_test(a_client_that_expects_100_is_told_to_continue),
        cmocka_unit_test(a_body_that_will_be_refused_is_not_asked_for),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
