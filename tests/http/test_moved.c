/* test_moved.c - texts that end in the middle: streams that move when their daemon drains, and go on in another one;
 * what is left of a text that an administrator or a drain cuts off; sessions whose stream was cut. Real daemons with
 * a text model. */
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

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/event_text.h"
#include "tests/support/generation.h"
#include "tests/support/halt.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/running.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, LONG = 2000 };

/* Of a text that is cut: under ThreadSanitizer a fifth is long enough. */
static int long_text(void)
{
    return program_slowness() >= 10 ? LONG / 5 : LONG;
}

static struct daemon here, there;
static struct halt halt;

static int start(void **state)
{
    (void)state;
    daemon_start(&there, NULL);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    halt_end(&halt);
    daemon_clear(&here);
    return 0;
}

/* The request for a long text, with more fields. */
static void print_body(char out[512], int max_tokens, const char *more)
{
    assert_true(snprintf(out, 512, "{\"prompt\": \"The history of \", \"max_tokens\": %d, \"stream\": true%s}",
                         max_tokens, more) < 512);
}

/* Ask `here`, and wait until something of the answer has come. */
static int begin(const struct event_text *t, const char *path, const char *body)
{
    const int fd = event_text_send(t, here.port, path, body);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, HANG_MS), 1);
    return fd;
}

static bool is_at_end(const struct event_text *t)
{
    const size_t size = strlen(t->id);
    return size > 2 && strcmp(t->id + size - 2, ".z") == 0;
}

/* What `there` makes of the same request and seed is the text that `t` has now. */
static void assert_whole(const struct event_text *t, const char *more)
{
    char body[512], seeded[256];
    struct event_text whole;
    event_text_init(&whole);
    (void)snprintf(seeded, sizeof seeded, ", \"seed\": %lld%s",
                   (long long)json_integer_value(json_object_get(t->last, "seed")), more);
    print_body(body, long_text(), seeded);
    assert_int_equal(event_text_ask(&whole, there.port, "/generate", body, SIZE_MAX), 200);
    event_text_assert_same(body, &whole, t);
    event_text_clear(&whole);
}

static void forget_last(struct event_text *t)
{
    json_decref(t->last);
    t->last = NULL;
}

/* ---- moving ----------------------------------------------------------------------------------------------------- */

static void a_stream_that_moves_goes_on_elsewhere_and_others_come_to_their_end(void **state)
{
    struct event_text by_post, by_get, stays;
    char moving[512], staying[512], query[128];
    (void)state;
    (void)snprintf(query, sizeof query,
                   "/generate?prompt=The%%20history%%20of%%20&max_tokens=%d&bytes_base64=true&moves=true", long_text());
    daemon_start(&here, (const char *const[]){"--drain-timeout-ms=600000", NULL});
    event_text_init(&by_post);
    event_text_init(&by_get);
    event_text_init(&stays);
    print_body(moving, long_text(), ", \"moves\": true, \"bytes_base64\": true");
    print_body(staying, long_text(), ", \"bytes_base64\": true");
    const int post = begin(&by_post, "/generate", moving), get = begin(&by_get, query, NULL),
              stay = begin(&stays, "/generate", staying);
    daemon_signal(&here, SIGTERM);
    assert_int_equal(event_text_receive(&by_post, post, SIZE_MAX), 200);
    assert_int_equal(event_text_receive(&by_get, get, SIZE_MAX), 200);
    assert_int_equal(event_text_receive(&stays, stay, SIZE_MAX), 200);
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
    assert_string_equal(event_text_finish(&stays), "length");
    assert_whole(&stays, ", \"bytes_base64\": true");
    assert_string_equal(event_text_finish(&by_post), "moved");
    assert_string_equal(event_text_finish(&by_get), "moved");
    assert_false(is_at_end(&by_post) || is_at_end(&by_get));
    assert_true(by_post.tokens < long_text() && by_get.tokens < long_text());
    forget_last(&by_post);
    forget_last(&by_get);
    assert_int_equal(event_text_ask(&by_post, there.port, "/generate", moving, SIZE_MAX), 200);
    assert_int_equal(event_text_ask(&by_get, there.port, query, NULL, SIZE_MAX), 200);
    assert_whole(&by_post, ", \"bytes_base64\": true");
    assert_whole(&by_get, ", \"bytes_base64\": true");
    char *log = daemon_log(&here);
    assert_non_null(strstr(log, " 200 moved "));
    free(log);
    event_text_clear(&by_post);
    event_text_clear(&by_get);
    event_text_clear(&stays);
}

/* Every character has two bytes, so that half of the streams are cut inside one. */
static void a_character_that_is_cut_comes_whole_from_elsewhere(void **state)
{
    enum { STREAMS = 4 };
    static const char more[] =
        ", \"moves\": true, \"bytes_base64\": true, \"utf8\": true, \"allowed_bytes\": [195, 168]";
    struct event_text texts[STREAMS];
    char body[512];
    int fds[STREAMS];
    unsigned moved = 0;
    (void)state;
    daemon_start(&here, (const char *const[]){"--drain-timeout-ms=600000", NULL});
    print_body(body, long_text(), more);
    for (size_t i = 0; i < STREAMS; i++) {
        event_text_init(&texts[i]);
        fds[i] = begin(&texts[i], "/generate", body);
    }
    daemon_signal(&here, SIGTERM);
    for (size_t i = 0; i < STREAMS; i++) {
        assert_int_equal(event_text_receive(&texts[i], fds[i], SIZE_MAX), 200);
        if (!is_at_end(&texts[i])) {
            assert_string_equal(event_text_finish(&texts[i]), "moved");
            moved++;
            forget_last(&texts[i]);
            assert_int_equal(event_text_ask(&texts[i], there.port, "/generate", body, SIZE_MAX), 200);
        }
        assert_null(strstr(texts[i].text, "\xef\xbf\xbd"));
        assert_whole(&texts[i], more);
        event_text_clear(&texts[i]);
    }
    assert_true(moved > 0);
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
}

/* The stop string is what comes behind the first bytes, so that nearly every cut is inside of it: had its beginning
 * been told, it would not be found elsewhere. */
static void a_stop_string_that_is_cut_is_found_elsewhere(void **state)
{
    enum { TRIES = 5, FIRST = 2 };
    unsigned moved = 0;
    (void)state;
    for (unsigned seed = 0; seed < TRIES; seed++) {
        struct event_text whole, t;
        char body[512], more[300];
        event_text_init(&whole);
        event_text_init(&t);
        int size = snprintf(more, sizeof more,
                            ", \"moves\": true, \"bytes_base64\": true, \"seed\": %u, \"allowed_bytes\": [32, 97, 101, "
                            "104, 105, 110, 111, 114, 115, 116]",
                            seed);
        print_body(body, FIRST + GENERATE_STOP_BYTES_MAX, more);
        assert_int_equal(event_text_ask(&whole, there.port, "/generate", body, SIZE_MAX), 200);
        assert_int_equal(strlen(whole.text), FIRST + GENERATE_STOP_BYTES_MAX);
        (void)snprintf(more + size, sizeof more - (size_t)size, ", \"stop\": [\"%s\"]", whole.text + FIRST);
        print_body(body, long_text(), more);
        daemon_start(&here, NULL);
        const int fd = begin(&t, "/generate", body);
        halt_begin(&halt, &here, "engine"); /* so short a text would else mostly be at its end */
        daemon_signal(&here, SIGTERM);
        daemon_await_log(&here, "draining: ");
        halt_end(&halt);
        assert_int_equal(event_text_receive(&t, fd, SIZE_MAX), 200);
        if (!is_at_end(&t)) {
            assert_string_equal(event_text_finish(&t), "moved");
            moved++;
            forget_last(&t);
            assert_int_equal(event_text_ask(&t, there.port, "/generate", body, SIZE_MAX), 200);
        }
        assert_string_equal(event_text_finish(&t), "stop");
        whole.text[FIRST] = '\0';
        assert_string_equal(t.text, whole.text);
        assert_int_equal(daemon_wait(&here, HANG_MS), 0);
        daemon_clear(&here);
        event_text_clear(&t);
        event_text_clear(&whole);
    }
    assert_true(moved > 0);
}

/* During the delay balancers still send clients here, so that a stream which moved would come back. */
static void nothing_moves_before_new_connections_are_refused(void **state)
{
    struct event_text t;
    char moving[512];
    (void)state;
    daemon_start(&here, (const char *const[]){"--drain-delay-ms=300", "--max-tokens-max=1000000",
                                              "--drain-timeout-ms=600000", NULL});
    event_text_init(&t);
    print_body(moving, 1000000, ", \"moves\": true");
    const int64_t start_ms = test_now_ms();
    daemon_signal(&here, SIGTERM);
    const int fd = begin(&t, "/generate", moving);
    assert_int_equal(event_text_receive(&t, fd, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "moved");
    assert_true(test_now_ms() - start_ms >= 300 - 10);
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
    event_text_clear(&t);
}

static void a_stream_that_moves_and_has_not_begun_is_refused_at_once(void **state)
{
    struct event_text runs, waits;
    char running[512], waiting[512];
    (void)state;
    daemon_start(&here, (const char *const[]){"--streams-max=1", "--drain-timeout-ms=600000", NULL});
    event_text_init(&runs);
    event_text_init(&waits);
    print_body(running, long_text(), ", \"seed\": 1");
    print_body(waiting, long_text(), ", \"seed\": 2, \"moves\": true");
    const int fd = begin(&runs, "/generate", running), other = event_text_send(&waits, here.port, "/generate", waiting);
    (void)client_await_metric(&here, "aftd_queue_depth", 1, HANG_MS);
    daemon_signal(&here, SIGTERM);
    assert_int_equal(event_text_receive(&waits, other, SIZE_MAX), 503);
    assert_non_null(strstr(waits.answer, "\"code\":\"unavailable\""));
    assert_int_equal(event_text_receive(&runs, fd, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&runs), "length");
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
    event_text_clear(&runs);
    event_text_clear(&waits);
}

static void what_does_not_move_is_told(void **state)
{
    static const struct {
        const char *body, *says;
    } cases[] = {
        {"{\"moves\": true}", "expected \"stream\": true"},
        {"{\"moves\": true, \"stream\": true, \"n\": 2}", "several texts cannot go on elsewhere"},
        {"{\"moves\": 1, \"stream\": true}", "true or false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct request r = generate_request(cases[i].body);
        struct reply reply;
        client_call(&there, &r, &reply);
        reply_assert_error(&reply, 400, "invalid_value", "moves", cases[i].says);
        reply_clear(&reply);
    }
}

/* ---- what is left of a text that was cut off -------------------------------------------------------------------- */

/* The bytes that `t` has are the text's beginning, and its state leads to those that follow. */
static void assert_state_goes_on(const struct event_text *t)
{
    enum { MORE = 50 };
    uint8_t all[LONG + MORE], rest[MORE];
    size_t all_size = 0, rest_size = 0;
    const size_t had = json_array_size(t->bytes);
    const char *saved = json_string_value(json_object_get(t->last, "state"));
    assert_non_null(saved);
    assert_in_range(had, 1, long_text() - 1);
    json_decref(session_generate(&there, NULL,
                                 json_pack("{s:s, s:i, s:O}", "prompt", "The history of ", "max_tokens",
                                           (int)had + MORE, "seed", json_object_get(t->last, "seed")),
                                 all, &all_size));
    json_decref(session_generate(&there, NULL, json_pack("{s:s, s:i}", "state", saved, "max_tokens", (int)MORE), rest,
                                 &rest_size));
    assert_int_equal(all_size, had + MORE);
    assert_int_equal(rest_size, MORE);
    for (size_t i = 0; i < had; i++)
        assert_int_equal(json_integer_value(json_array_get(t->bytes, i)), all[i]);
    assert_memory_equal(rest, all + had, MORE);
}

static void a_text_that_an_administrator_ends_has_its_state(void **state)
{
    struct event_text t;
    char body[512];
    (void)state;
    daemon_start(&here, (const char *const[]){"--admin-address=127.0.0.1", "--admin-port=0", NULL});
    event_text_init(&t);
    print_body(body, long_text(), ", \"return_state\": true, \"bytes_base64\": true, \"moves\": true");
    const int fd = begin(&t, "/generate", body);
    json_t *list = running_list(&here);
    const json_t *request = json_array_get(json_object_get(list, "requests"), 0);
    struct reply r;
    running_cancel(&here, running_text(request, "id"), &r);
    assert_int_equal(r.status, 202);
    reply_clear(&r);
    json_decref(list);
    assert_int_equal(event_text_receive(&t, fd, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "cancelled");
    assert_true(is_at_end(&t)); /* nobody begins it again by itself */
    assert_state_goes_on(&t);
    daemon_stop(&here);
    event_text_clear(&t);
}

/* Also of one that did not ask to move: an EventSource goes on with it at the next daemon. The seed's text is ASCII,
 * since one that is cut inside a character goes on from its state alone. */
static void a_text_that_a_drain_ends_has_its_state_and_can_go_on(void **state)
{
    static const char *const more[] = {
        ", \"return_state\": true, \"bytes_base64\": true, \"seed\": 2",
        ", \"return_state\": true, \"bytes_base64\": true, \"moves\": true, \"seed\": 2"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct event_text t;
        char body[512];
        daemon_start(&here, (const char *const[]){"--drain-timeout-ms=0", NULL});
        event_text_init(&t);
        print_body(body, long_text(), more[i]);
        const int fd = begin(&t, "/generate", body);
        daemon_signal(&here, SIGTERM);
        assert_int_equal(event_text_receive(&t, fd, SIZE_MAX), 200);
        assert_string_equal(event_text_finish(&t), i == 0 ? "cancelled" : "moved");
        assert_false(is_at_end(&t));
        assert_state_goes_on(&t);
        assert_int_equal(daemon_wait(&here, HANG_MS), 0);
        forget_last(&t);
        assert_int_equal(event_text_ask(&t, there.port, "/generate", body, SIZE_MAX), 200);
        assert_whole(&t, ", \"bytes_base64\": true");
        event_text_clear(&t);
        daemon_clear(&here);
    }
}

/* ---- sessions --------------------------------------------------------------------------------------------------- */

/* How many bytes its text has. */
static json_int_t position(const char *id)
{
    json_t *session = session_get(&there, id);
    const json_int_t at = json_integer_value(json_object_get(session, "position"));
    json_decref(session);
    return at;
}

/* Until the daemon knows that the client has left. */
static void await_idle(const char *id)
{
    bool is_busy = true;
    for (const int64_t end_ms = test_now_ms() + HANG_MS; is_busy; test_sleep_ms(1)) {
        json_t *session = session_get(&there, id);
        is_busy = json_is_true(json_object_get(session, "busy"));
        json_decref(session);
        assert_true(test_now_ms() < end_ms);
    }
}

/* Ask for a text of the session until some, but not all, has come. */
static void cut(struct event_text *t, const char *id, const char *body)
{
    for (size_t most = 500; t->events == 0; most += 100) {
        assert_int_equal(event_text_ask(t, there.port, "/generate", body, most), 200);
        assert_null(t->last);
        await_idle(id);
    }
}

static void a_stream_of_a_session_goes_on_while_that_stands_where_it_was(void **state)
{
    char id[TEST_SESSION_ID_BYTES], twin[1][TEST_SESSION_ID_BYTES], body[512];
    uint8_t bytes[LONG];
    size_t size = 0;
    struct event_text t, late;
    (void)state;
    event_text_init(&t);
    event_text_init(&late);
    session_create(&there, json_pack("{s:s, s:i}", "prompt", "The history of ", "seed", 5), id);
    session_fork(&there, id, 1, twin);
    (void)snprintf(body, sizeof body,
                   "{\"stream\": true, \"session\": \"%s\", \"max_tokens\": %d, \"bytes_base64\": true}", id,
                   long_text());
    const json_int_t before = position(id);
    cut(&t, id, body);
    cut(&late, id, body);
    assert_int_equal(position(id), before);
    assert_int_equal(event_text_ask(&t, there.port, "/generate", body, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "length");
    json_decref(session_generate(
        &there, NULL, json_pack("{s:s, s:i, s:i}", "prompt", "The history of ", "max_tokens", long_text(), "seed", 5),
        bytes, &size));
    assert_int_equal(size, json_array_size(t.bytes));
    for (size_t i = 0; i < size; i++)
        assert_int_equal(json_integer_value(json_array_get(t.bytes, i)), bytes[i]);
    assert_true(position(id) != before);
    assert_int_equal(event_text_ask(&late, there.port, "/generate", body, SIZE_MAX), 409);
    assert_non_null(strstr(late.answer, "has moved on since"));
    assert_int_equal(event_text_ask(&t, there.port, "/generate", body, SIZE_MAX), 204);
    (void)snprintf(body, sizeof body,
                   "{\"stream\": true, \"session\": \"%s\", \"max_tokens\": %d, \"bytes_base64\": true}", twin[0],
                   long_text());
    assert_int_equal(event_text_ask(&late, there.port, "/generate", body, SIZE_MAX), 409); /* draws for itself */
    event_text_clear(&t);
    event_text_clear(&late);
}

/* The next daemon finds the session in the folder where it was before, and so the text. */
static void a_stream_of_a_session_moves_to_the_next_daemon_on_its_folder(void **state)
{
    char folder[PATH_MAX], flag[PATH_MAX + 32], id[TEST_SESSION_ID_BYTES], body[512];
    uint8_t bytes[LONG];
    size_t size = 0;
    struct event_text t;
    (void)state;
    temp_dir_create(folder);
    (void)snprintf(flag, sizeof flag, "--sessions-dir=%s", folder);
    daemon_start(&here, (const char *const[]){flag, "--drain-timeout-ms=600000", NULL});
    event_text_init(&t);
    session_create(&here, json_pack("{s:s, s:i}", "prompt", "The history of ", "seed", 5), id);
    (void)snprintf(body, sizeof body,
                   "{\"stream\": true, \"moves\": true, \"session\": \"%s\", \"max_tokens\": %d, "
                   "\"bytes_base64\": true}",
                   id, long_text());
    const int fd = begin(&t, "/generate", body);
    daemon_signal(&here, SIGTERM);
    assert_int_equal(event_text_receive(&t, fd, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "moved");
    assert_int_equal(daemon_wait(&here, HANG_MS), 0);
    daemon_clear(&here);
    forget_last(&t);
    daemon_start(&here, (const char *const[]){flag, NULL});
    assert_int_equal(event_text_ask(&t, here.port, "/generate", body, SIZE_MAX), 200);
    assert_string_equal(event_text_finish(&t), "length");
    json_decref(session_generate(
        &there, NULL, json_pack("{s:s, s:i, s:i}", "prompt", "The history of ", "max_tokens", long_text(), "seed", 5),
        bytes, &size));
    assert_int_equal(size, json_array_size(t.bytes));
    for (size_t i = 0; i < size; i++)
        assert_int_equal(json_integer_value(json_array_get(t.bytes, i)), bytes[i]);
    daemon_stop(&here);
    temp_dir_remove(folder);
    event_text_clear(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_stream_that_moves_goes_on_elsewhere_and_others_come_to_their_end, clear),
        cmocka_unit_test_teardown(a_character_that_is_cut_comes_whole_from_elsewhere, clear),
        cmocka_unit_test_teardown(a_stop_string_that_is_cut_is_found_elsewhere, clear),
        cmocka_unit_test_teardown(nothing_moves_before_new_connections_are_refused, clear),
        cmocka_unit_test_teardown(a_stream_that_moves_and_has_not_begun_is_refused_at_once, clear),
        cmocka_unit_test(what_does_not_move_is_told),
        cmocka_unit_test_teardown(a_text_that_an_administrator_ends_has_its_state, clear),
        cmocka_unit_test_teardown(a_text_that_a_drain_ends_has_its_state_and_can_go_on, clear),
        cmocka_unit_test(a_stream_of_a_session_goes_on_while_that_stands_where_it_was),
        cmocka_unit_test_teardown(a_stream_of_a_session_moves_to_the_next_daemon_on_its_folder, clear),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("texts that end in the middle", tests, start, daemons_end);
}
