/* test_halted.c - what clients and administrators are told while a thread of the daemon stands still (halt.h): the
 * engine, so that work waits for certain, until it is late or the queue is full; the loader, so that changes to models
 * do; and what comes too late while the daemon ends. The real daemon and small models. */
#include <ctype.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/halt.h"
#include "tests/support/model_folder.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define JSON "application/json"
#define BODY(text) .body = (text), .size = sizeof(text) - 1
#define LOAD "{\"action\": \"reload\"}"

enum { LIMIT_S = 580, QUEUE = 3 };

static struct halt halt;
static struct raw_input in;

static int tear_down(void **state)
{
    halt_end(&halt);
    return administration_tear_down(state);
}

static void start(const char *flag, const char *other)
{
    model_folder_put(models_folder, "picture", GOLDEN "conv-heads8-k5");
    model_folder_put(models_folder, "pixels", GOLDEN "pixels-local");
    model_folder_put(models_folder, "text", GOLDEN "lm-local-8");
    administration_start(flag, other);
}

/* Work of every API and kind. */
static const struct request work[] = {
    {.path = "/generate", .type = JSON, BODY("{\"prompt\": \"a\"}")},
    {.path = "/generate", .type = JSON, BODY("{\"prompt\": \"a\", \"stream\": true}")},
    {.path = "/v1/completions", .type = JSON, BODY("{\"prompt\": \"a\"}")},
    {.path = "/score", .type = JSON, BODY("{\"text\": \"ab\", \"model\": \"text\"}")},
    {.path = "/complete", BODY("")},
    {.path = "/v1/compress", BODY("ab")},
    {.path = "/v2/models/text/infer",
     .type = JSON,
     BODY("{\"inputs\": [{\"name\": \"prompt\", \"datatype\": \"BYTES\", \"shape\": [1], \"data\": [\"a\"]}]}")},
    {.path = "/v2/models/picture/infer",
     .type = JSON,
     BODY("{\"inputs\": [{\"name\": \"pixels\", \"datatype\": \"UINT8\", \"shape\": [1, 32, 32, 3], \"parameters\": "
          "{\"binary_data_size\": 3072}}]}")},
};

/* The answer has the form of the request's API; 503 says when to try again. */
static void assert_error(const char *path, const struct reply *r, long status, const char *code, const char *says)
{
    char after[16];
    if (r->status != status || strstr(r->body, says) == NULL)
        fail_msg("%s: expected %ld \"%s\", got %ld: %s", path, status, says, r->status, r->body);
    if (strncmp(path, "/v2/", 4) == 0) {
        json_t *value = reply_json(r);
        assert_true(json_is_string(json_object_get(value, "error")));
        json_decref(value);
    } else {
        reply_assert_error(r, status, code, NULL, says);
    }
    if (status == 503) {
        assert_true(reply_header(r, "Retry-After", after, sizeof after));
        assert_in_range(strtol(after, NULL, 10), 1, HTTP_RETRY_AFTER_MAX_S);
    }
}

/* All of `work`; the pixels are sent after the JSON that describes them. */
static void assert_all_refused(long status, const char *code, const char *says)
{
    for (size_t i = 0; i < ARRAY_LEN(work); i++) {
        static char pixels[4096];
        char length[64];
        struct request r = work[i];
        struct reply reply;
        const char *const headers[] = {length, NULL};
        if (strstr(r.body, "pixels") != NULL) {
            memset(pixels, 0, sizeof pixels);
            memcpy(pixels, r.body, r.size);
            (void)snprintf(length, sizeof length, "Inference-Header-Content-Length: %zu", r.size);
            r.headers = headers;
            r.body = pixels;
            r.size += 3072;
        }
        client_call(&administered, &r, &reply);
        assert_error(r.path, &reply, status, code, says);
        reply_clear(&reply);
    }
}

/* Send a request and leave it waiting. */
static int begin(uint16_t port, const char *path, const char *body)
{
    char *text = raw_post(path, body, "Connection: close\r\n");
    const int fd = raw_connect(port);
    assert_true(raw_send_text(fd, text));
    free(text);
    return fd;
}

static void assert_answer(int fd, long status, const char *says)
{
    (void)raw_receive(fd, &in, NULL, HANG_MS);
    if (raw_status(&in) != status || strstr(in.bytes, says) == NULL)
        fail_msg("expected %ld and \"%s\", got %s", status, says, in.bytes);
    raw_close(fd);
}

/* ---- the engine ------------------------------------------------------------------------------------------------ */

static void work_that_is_late_before_it_begins_is_answered_408(void **state)
{
    const size_t count = ARRAY_LEN(work);
    (void)state;
    start("--timeout-ms=50", NULL);
    halt_begin(&halt, &administered, "engine");
    assert_all_refused(408, "deadline_exceeded", "deadline");
    /* a request is counted once its answer has gone out */
    (void)client_await_metric(&administered, "aftd_requests_timed_out_total", (double)count, HANG_MS);
    halt_end(&halt);
    daemon_stop(&administered);
}

static void a_full_queue_is_told_in_every_api(void **state)
{
    int fds[QUEUE];
    (void)state;
    start("--queue-jobs-max=3", NULL);
    halt_begin(&halt, &administered, "engine");
    for (int i = 0; i < QUEUE; i++)
        fds[i] = begin(administered.port, "/generate", "{\"prompt\": \"a\", \"max_tokens\": 2}");
    (void)client_await_metric(&administered, "aftd_queue_depth", QUEUE, HANG_MS);
    assert_all_refused(503, "queue_full", "3 jobs are waiting");
    halt_end(&halt);
    for (int i = 0; i < QUEUE; i++)
        assert_answer(fds[i], 200, "\"tokens\":2");
    daemon_stop(&administered);
}

static void health_fails_while_work_waits_and_nothing_moves(void **state)
{
    static const char *const paths[] = {"/healthz", "/v2/health/live"};
    struct reply r;
    (void)state;
    start("--stuck-after-ms=100", NULL);
    halt_begin(&halt, &administered, "engine");
    test_sleep_ms(150);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) { /* nothing waits */
        client_get(&administered, paths[i], &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
    }
    assert_true(client_metric(&administered, "aftd_engine_step_age_seconds") == 0);
    const int fd = begin(administered.port, "/generate", "{\"prompt\": \"a\", \"max_tokens\": 2}");
    (void)client_await_metric(&administered, "aftd_queue_depth", 1, HANG_MS);
    test_sleep_ms(150);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        client_get(&administered, paths[i], &r);
        assert_error(paths[i], &r, 503, "unavailable", "has not finished a step for 100 ms");
        reply_clear(&r);
    }
    assert_true(client_metric(&administered, "aftd_engine_step_age_seconds") > 0.15);
    client_call(&administered, &(struct request){.path = "/healthz", .port = administered.admin_port}, &r);
    assert_int_equal(r.status, 503);
    reply_clear(&r);
    halt_end(&halt);
    assert_answer(fd, 200, "\"tokens\":2");
    (void)client_await_metric(&administered, "aftd_engine_step_age_seconds", 0, HANG_MS);
    client_get(&administered, "/healthz", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    daemon_stop(&administered);
}

/* Every reload leaves a model that the engine has not let go of. */
static void a_model_finds_no_place_while_all_are_taken(void **state)
{
    struct reply r;
    (void)state;
    model_folder_put(models_folder, "text", GOLDEN "lm-local-8");
    administration_start(NULL, NULL);
    halt_begin(&halt, &administered, "engine");
    for (int i = 1; i < BATCHER_LANES_MAX; i++)
        admin_act_well("text", "reload");
    admin_act("text", "reload", 503, &r);
    assert_error("/admin/models/text", &r, 503, "unavailable", "all 320 places are taken");
    reply_clear(&r);
    halt_end(&halt);
    free(model_text("text")); /* the one before serves on */
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        struct reply again;
        admin_post("/admin/models/text", LOAD, &again);
        const long status = again.status;
        reply_clear(&again);
        if (status == 200)
            break;
        assert_true(test_now_ms() < end);
    }
    daemon_stop(&administered);
}

/* ---- the loader ------------------------------------------------------------------------------------------------ */

/* Wait until one of the connections has an answer; returns which. */
static int await_any(struct pollfd fds[], size_t count)
{
    size_t i = 0;
    assert_true(poll(fds, count, HANG_MS) > 0);
    while (i < count && fds[i].revents == 0)
        i++;
    assert_true(i < count);
    return (int)i;
}

static void changes_to_models_wait_in_a_queue_of_their_own(void **state)
{
    enum { SENT = LOADER_CHANGES_MAX + 1 };
    static const char *const paths[] = {"/admin/models/text", "/admin/config/reload"};
    struct pollfd fds[SENT];
    struct reply r;
    (void)state;
    start(NULL, NULL);
    halt_begin(&halt, &administered, "loader");
    for (int i = 0; i < SENT; i++)
        fds[i] = (struct pollfd){begin(administered.admin_port, "/admin/models/text", LOAD), POLLIN, 0};
    const int surplus = await_any(fds, SENT); /* so all the others wait */
    assert_answer(fds[surplus].fd, 503, "too many changes are waiting");
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        admin_post(paths[i], LOAD, &r);
        assert_error(paths[i], &r, 503, "queue_full", "too many changes are waiting");
        reply_clear(&r);
    }
    free(model_text("text")); /* which keeps nobody else waiting */
    halt_end(&halt);
    for (int i = 0; i < SENT; i++)
        if (i != surplus)
            assert_answer(fds[i].fd, 200, "\"state\":\"loaded\"");
    daemon_stop(&administered);
}

static void a_change_has_a_deadline_too(void **state)
{
    struct reply r;
    (void)state;
    start("--timeout-ms=50", "--timeout-ms-max=50");
    halt_begin(&halt, &administered, "loader");
    admin_post("/admin/models/text", LOAD, &r);
    assert_error("/admin/models/text", &r, 408, "deadline_exceeded", "deadline");
    reply_clear(&r);
    halt_end(&halt);
    daemon_stop(&administered);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

/* Wait until the main thread waits for another to end. */
static void await_joining(void)
{
    char path[64], line[128];
    (void)snprintf(path, sizeof path, "/proc/%d/syscall", (int)administered.pid);
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(10)) {
        FILE *f = fopen(path, "r");
        line[0] = '\0';
        if (f != NULL) {
            (void)!fgets(line, sizeof line, f);
            (void)fclose(f);
        }
        if (isdigit((unsigned char)line[0]) && strtol(line, NULL, 10) == SYS_futex)
            return;
        if (test_now_ms() > end)
            fail_msg("the main thread waits for no other; %s says \"%s\"", path, line);
    }
}

/* All but its last byte, once the daemon has asked for its body: it has begun, whatever comes. */
static int begin_half(uint16_t port, const char *path, const char *body, char *last)
{
    char *text = raw_post(path, body, "Connection: close\r\nExpect: 100-continue\r\n");
    char *behind = strstr(text, "\r\n\r\n") + 4;
    const size_t head = (size_t)(behind - text), rest = strlen(behind) - 1;
    const int fd = raw_connect(port);
    *last = behind[rest];
    assert_true(raw_send(fd, text, head, HANG_MS));
    assert_int_equal(raw_receive(fd, &in, "100 Continue\r\n\r\n", HANG_MS), RAW_FOUND);
    assert_true(raw_send(fd, behind, rest, HANG_MS));
    free(text);
    return fd;
}

static void what_comes_too_late_is_told_that_the_server_ends(void **state)
{
    char last[3];
    (void)state;
    start("--drain-timeout-ms=50", NULL);
    halt_begin(&halt, &administered, "loader");
    const int waits = begin_half(administered.admin_port, "/admin/models/text", LOAD, &last[0]);
    assert_true(raw_send(waits, &last[0], 1, HANG_MS));
    const int text = begin_half(administered.port, "/generate", "{\"prompt\": \"a\"}", &last[1]);
    const int change = begin_half(administered.admin_port, "/admin/models/text", LOAD, &last[2]);
    daemon_signal(&administered, SIGTERM);
    await_joining(); /* the loader's; its queue and the engine's are closed */
    assert_true(raw_send(text, &last[1], 1, HANG_MS));
    assert_answer(text, 503, "the server is shutting down");
    assert_true(raw_send(change, &last[2], 1, HANG_MS));
    assert_answer(change, 503, "the server is shutting down");
    halt_end(&halt);
    assert_answer(waits, 503, "the server is shutting down");
    assert_int_equal(daemon_wait(&administered, HANG_MS), 0);
}

static void a_server_that_drains_is_not_ready_in_any_api(void **state)
{
    static const char *const paths[] = {"/readyz", "/v2/health/ready", "/v2/models/text/ready"};
    (void)state;
    start("--drain-delay-ms=60000", NULL);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct reply r;
        client_get(&administered, paths[i], &r);
        assert_int_equal(r.status, 200);
        reply_clear(&r);
    }
    daemon_signal(&administered, SIGTERM);
    for (size_t i = 0; i < ARRAY_LEN(paths);) {
        struct reply r;
        client_get(&administered, paths[i], &r);
        if (i > 0 || r.status == 503)
            assert_error(paths[i++], &r, 503, "unavailable", "draining");
        reply_clear(&r);
    }
    daemon_signal(&administered, SIGTERM);
    assert_int_equal(daemon_wait(&administered, HANG_MS), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(work_that_is_late_before_it_begins_is_answered_408), TEST(a_full_queue_is_told_in_every_api),
        TEST(health_fails_while_work_waits_and_nothing_moves),    TEST(a_model_finds_no_place_while_all_are_taken),
        TEST(changes_to_models_wait_in_a_queue_of_their_own),     TEST(a_change_has_a_deadline_too),
        TEST(what_comes_too_late_is_told_that_the_server_ends),   TEST(a_server_that_drains_is_not_ready_in_any_api),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
