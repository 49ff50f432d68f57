/* test_sessions_shared.c - sessions that two daemons share in a Redis server: what one began goes on in the other, byte
 * for byte as in a daemon that is left alone, and in one at a time; all that can be done with one; a server that is
 * away, and comes back. Real daemons, a real server. */
#include <jansson.h>
#include <pthread.h>
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
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/redis_server.h"
#include "tests/support/sessions.h"

#define MODEL "tests/data/models/enwik8-aft-local"

enum { LIMIT_S = 580, TAIL = 64, ROUNDS = 12, PIECE = 15, DAEMONS = 2, TRIES = 200 };

static struct redis_server server;
static struct daemon daemons[DAEMONS];

static void start(const char *more)
{
    char store[160], name[32];
    redis_server_begin(&server, true, false);
    (void)snprintf(store, sizeof store, "--sessions-redis=%s", server.url);
    for (int i = 0; i < DAEMONS; i++) {
        (void)snprintf(name, sizeof name, "--replica=daemon-%d", i);
        const char *const flags[] = {
            ("--model=" MODEL), "--models-dir=off", store, name, "--sessions-redis-timeout-ms=2000", more, NULL};
        daemon_start(&daemons[i], flags);
    }
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < DAEMONS; i++)
        daemon_clear(&daemons[i]);
    redis_server_end(&server);
    return 0;
}

static json_t *beginning(void)
{
    return json_pack("{s:s, s:i, s:f}", "prompt", "The history of ", "seed", 5, "temperature", 0.9);
}

static void put(const struct daemon *d, const char *id, long status)
{
    struct reply r;
    session_call_json(d, "PUT", id, NULL, beginning(), &r);
    if (r.status != status)
        fail_msg("PUT %s: %ld, expected %ld: %s", id, r.status, status, r.body);
    reply_clear(&r);
}

static void refused(const struct daemon *d, const char *method, const char *id, long status, const char *code,
                    const char *why)
{
    struct reply r;
    if (strcmp(method, "POST") == 0)
        session_try(d, id, json_pack("{s:i}", "max_tokens", 1), &r);
    else
        session_call(d, &(struct session_call){.method = method, .id = id}, &r);
    reply_assert_error(&r, status, code, NULL, why);
    char seconds[16];
    assert_int_equal(reply_header(&r, "Retry-After", seconds, sizeof seconds), status == 409 || status == 503);
    reply_clear(&r);
}

static void a_text_goes_on_in_the_other_daemon(void **state)
{
    uint8_t got[ROUNDS * PIECE + 3], want[ROUNDS * PIECE + 3];
    size_t n = 0, whole = 0;
    (void)state;
    start(NULL);
    put(&daemons[0], "chat", 201);
    put(&daemons[1], "chat", 409);
    for (int i = 0; i < ROUNDS; i++)
        json_decref(session_generate(&daemons[i % DAEMONS], "chat", json_pack("{s:i}", "max_tokens", PIECE), got, &n));
    json_t *fields = beginning();
    assert_int_equal(json_object_set_new(fields, "max_tokens", json_integer((json_int_t)ROUNDS * PIECE)), 0);
    json_decref(session_generate(&daemons[1], NULL, fields, want, &whole));
    assert_int_equal(n, whole);
    assert_memory_equal(got, want, n);
    json_t *about = session_get(&daemons[1], "chat");
    assert_int_equal(json_integer_value(json_object_get(about, "turn")), 1 + ROUNDS);
    json_decref(about);
}

static void what_can_be_done_with_one_can_be_done_anywhere(void **state)
{
    char forks[2][TEST_SESSION_ID_BYTES];
    struct reply saved, r;
    uint8_t text[3][PIECE + 3];
    (void)state;
    start(NULL);
    put(&daemons[0], "chat", 201);
    session_state(&daemons[1], "chat", &saved);
    for (size_t i = 0, n; i < 2; i++) {
        n = 0;
        json_decref(session_generate(&daemons[i], "chat", json_pack("{s:i}", "max_tokens", PIECE), text[i], &n));
        session_put(&daemons[1 - i], "chat", saved.body, saved.size);
    }
    assert_memory_equal(text[0], text[1], PIECE); /* twice from the same place */
    reply_clear(&saved);
    session_fork(&daemons[1], "chat", 2, forks);
    for (size_t i = 0, n; i < 2; i++) {
        n = 0;
        json_decref(session_generate(&daemons[0], forks[i], json_pack("{s:i}", "max_tokens", PIECE), text[i], &n));
    }
    assert_memory_not_equal(text[0], text[1], PIECE); /* each draws for itself */
    session_call(&daemons[0], &(struct session_call){.method = "DELETE", .id = "chat"}, &r);
    assert_int_equal(r.status, 204);
    reply_clear(&r);
    refused(&daemons[1], "GET", "chat", 404, "not_found", "no session");
    refused(&daemons[1], "POST", "chat", 404, "not_found", "no session");
    refused(&daemons[1], "DELETE", "chat", 404, "not_found", "no session");
    put(&daemons[1], "chat", 201);
}

/* Begin a stream that lasts; the socket. */
static int hold(const struct daemon *d, const char *id, int tokens, struct raw_input *in)
{
    char body[128];
    (void)snprintf(body, sizeof body, "{\"session\": \"%s\", \"max_tokens\": %d, \"stream\": true}", id, tokens);
    char *request = raw_post("/generate", body, "");
    const int fd = raw_connect(d->port);
    assert_true(raw_send_text(fd, request));
    free(request);
    assert_int_equal(raw_receive(fd, in, "data: ", HANG_MS), RAW_FOUND);
    return fd;
}

static void one_daemon_at_a_time_has_it(void **state)
{
    struct raw_input in;
    (void)state;
    start("--sessions-lease-ms=1000");
    put(&daemons[0], "chat", 201);
    const int fd = hold(&daemons[0], "chat", 60000, &in);
    refused(&daemons[1], "POST", "chat", 409, "conflict", "daemon-0");
    refused(&daemons[0], "POST", "chat", 409, "conflict", "in use");
    test_sleep_ms(1500); /* longer than a lease: it is renewed */
    refused(&daemons[1], "POST", "chat", 409, "conflict", "daemon-0");
    daemon_signal(&daemons[0], 9); /* a daemon that dies has it for as long as its lease lasts */
    assert_int_equal(daemon_wait(&daemons[0], HANG_MS), 128 + 9);
    raw_close(fd);
    struct reply r;
    for (int i = 0; i < 100; i++) {
        session_try(&daemons[1], "chat", json_pack("{s:i}", "max_tokens", 1), &r);
        if (r.status == 200)
            break;
        reply_clear(&r);
        test_sleep_ms(50);
    }
    assert_int_equal(r.status, 200);
    reply_clear(&r);
}

/* As while a daemon cannot reach the server: its lease has expired, and another goes on. */
static void of_two_that_go_on_from_one_place_the_first_to_end_wins(void **state)
{
    struct raw_input in;
    uint8_t text[PIECE + 3];
    char lease[160];
    size_t n = 0;
    (void)state;
    start("--sessions-lease-ms=600000");
    put(&daemons[0], "chat", 201);
    const int fd = hold(&daemons[0], "chat", 6000 / (int)program_slowness(), &in);
    const char *keys = redis_server_ask(&server, "KEYS *:lease"), *key = strstr(keys, "aftd:");
    assert_non_null(key);
    (void)snprintf(lease, sizeof lease, "DEL %.*s", (int)strcspn(key, "\r\n"), key);
    assert_int_equal(redis_server_number(&server, lease), 1);
    json_decref(session_generate(&daemons[1], "chat", json_pack("{s:i}", "max_tokens", PIECE), text, &n));
    while (raw_receive(fd, &in, "\"code\":\"conflict\"", HANG_MS) != RAW_FOUND) {
        assert_int_equal(in.size, sizeof in.bytes - 1); /* it is full: go on behind its end */
        memmove(in.bytes, in.bytes + in.size - TAIL, TAIL + 1);
        in.size = TAIL;
    }
    raw_close(fd);
    json_t *about = session_get(&daemons[0], "chat");
    assert_int_equal(json_integer_value(json_object_get(about, "turn")), 2);
    assert_int_equal(json_integer_value(json_object_get(about, "position")), 15 + n);
    json_decref(about);
}

static void without_the_server_all_else_goes_on(void **state)
{
    uint8_t text[16];
    size_t n = 0;
    struct reply r;
    (void)state;
    start(NULL);
    put(&daemons[0], "chat", 201);
    redis_server_kill(&server);
    refused(&daemons[0], "POST", "chat", 503, "session_store", NULL);
    refused(&daemons[0], "GET", "chat", 503, "session_store", NULL);
    refused(&daemons[1], "POST", "chat", 503, "session_store", NULL);
    json_decref(session_generate(&daemons[0], NULL, json_pack("{s:s, s:i}", "prompt", "x", "max_tokens", 5), text, &n));
    assert_int_equal(n, 5);
    assert_true(client_metric(&daemons[0], "aftd_session_store_up") == 0);
    redis_server_start(&server);
    for (int i = 0; i < 200; i++) {
        session_try(&daemons[0], "chat", json_pack("{s:i}", "max_tokens", 1), &r);
        if (r.status == 200)
            break;
        reply_clear(&r);
        test_sleep_ms(50);
    }
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    (void)client_await_metric(&daemons[0], "aftd_session_store_up", 1, HANG_MS);
}

/* Both ask for the same one at once, again and again: each answer is the text's next piece, and none is given twice. */
struct asking {
    const struct daemon *daemon;
    size_t answered;
    bool is_fine;
};

static void *ask_often(void *arg)
{
    struct asking *a = arg;
    a->is_fine = true;
    for (int i = 0; i < TRIES; i++) {
        struct reply r;
        session_try(a->daemon, "chat", json_pack("{s:i}", "max_tokens", 1), &r);
        a->answered += r.status == 200 ? 1 : 0;
        a->is_fine &= r.status == 200 || r.status == 409;
        reply_clear(&r);
    }
    return NULL;
}

static void two_that_ask_at_once_never_both_have_it(void **state)
{
    pthread_t thread;
    struct asking mine = {.daemon = &daemons[0]}, others = {.daemon = &daemons[1]};
    (void)state;
    start(NULL);
    put(&daemons[0], "chat", 201);
    assert_int_equal(pthread_create(&thread, NULL, ask_often, &others), 0);
    (void)ask_often(&mine);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mine.is_fine && others.is_fine);
    json_t *about = session_get(&daemons[0], "chat");
    assert_int_equal(json_integer_value(json_object_get(about, "turn")), 1 + mine.answered + others.answered);
    json_decref(about);
    print_message("  %zu and %zu of %d each\n", mine.answered, others.answered, TRIES);
}

static void settings_that_do_not_go_together_are_refused(void **state)
{
    struct daemon d;
    (void)state;
    assert_int_equal(daemon_try_start(&d, (const char *const[]){"--sessions-redis=http://x", NULL}), 2);
    daemon_clear(&d);
    assert_int_equal(
        daemon_try_start(&d, (const char *const[]){"--sessions-redis=unix:/x", "--sessions-dir=/tmp", NULL}), 2);
    char *log = daemon_log(&d);
    assert_non_null(strstr(log, "expected one of them to be off"));
    free(log);
    daemon_clear(&d);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_teardown(test, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(a_text_goes_on_in_the_other_daemon),
        EACH(what_can_be_done_with_one_can_be_done_anywhere),
        EACH(one_daemon_at_a_time_has_it),
        EACH(of_two_that_go_on_from_one_place_the_first_to_end_wins),
        EACH(without_the_server_all_else_goes_on),
        EACH(two_that_ask_at_once_never_both_have_it),
        EACH(settings_that_do_not_go_together_are_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_sessions_shared", tests, NULL, NULL);
}
