/* test_sessions_many.c - many sessions at once keep apart, and of many requests for one session one at a time has
 * it; none of it is lost or left: sessions in memory, and stored ones. The real
 * daemon. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/program.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

#define LM "enwik8-aft-local"

enum { LIMIT_S = 580, MANY = 64, ROUNDS = 3, PIECE = 12, BIT = 5 };

static struct daemon here;
static bool is_stored;
static char dir[PATH_MAX];

static int start(void **state)
{
    (void)state;
    char store[PATH_MAX + 32];
    temp_dir_create(dir);
    (void)snprintf(store, sizeof store, "--sessions-dir=%s/sessions", dir);
    daemon_start(&here, is_stored ? (const char *const[]){store, "--sessions-max=70", NULL} : NULL);
    return 0;
}

static void many_sessions_at_once_keep_apart(void **state)
{
    const size_t many = (size_t)test_work(MANY);
    (void)state;
    static char ids[MANY][TEST_SESSION_ID_BYTES];
    static char bodies[MANY][192], texts[MANY][ROUNDS * PIECE * 4 + 1];
    struct request requests[MANY];
    struct reply replies[MANY];
    for (size_t i = 0; i < many; i++) {
        (void)snprintf(bodies[i], sizeof bodies[i],
                       "{\"model\": \"" LM "\", \"prompt\": \"%zu times \", \"seed\": %zu, \"temperature\": 0}", i, i);
        requests[i] = (struct request){
            .path = "/v1/sessions", .type = "application/json", .body = bodies[i], .size = strlen(bodies[i])};
        texts[i][0] = '\0';
    }
    client_call_all(&here, requests, replies, many, NULL);
    for (size_t i = 0; i < many; i++) {
        json_t *session = reply_json(&replies[i]);
        (void)snprintf(ids[i], sizeof ids[i], "%s", json_string_value(json_object_get(session, "id")));
        json_decref(session);
        reply_clear(&replies[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < many; i++) {
            (void)snprintf(bodies[i], sizeof bodies[i], "{\"session\": \"%.32s\", \"max_tokens\": %d}", ids[i], PIECE);
            requests[i] = generate_request(bodies[i]);
        }
        client_call_all(&here, requests, replies, many, NULL);
        for (size_t i = 0; i < many; i++) {
            json_t *answer = reply_json(&replies[i]);
            assert_int_equal(replies[i].status, 200);
            const size_t at = strlen(texts[i]);
            (void)snprintf(texts[i] + at, sizeof texts[i] - at, "%s",
                           json_string_value(json_object_get(answer, "text")));
            json_decref(answer);
            reply_clear(&replies[i]);
        }
    }
    for (size_t i = 0; i < many; i++) {
        struct generation whole;
        char prompt[64];
        (void)snprintf(prompt, sizeof prompt, "%zu times ", i);
        generate(&here,
                 json_pack("{s:s, s:s, s:i, s:i}", "model", LM, "prompt", prompt, "temperature", 0, "max_tokens",
                           ROUNDS * PIECE),
                 &whole);
        assert_same_text(prompt, texts[i], strlen(texts[i]), whole.text, whole.bytes);
        generation_clear(&whole);
    }
}

/* Each request that had the session moved it by its own bytes, and they form one text. */
static void many_requests_for_one_session_take_turns(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], body[192];
    struct request requests[MANY];
    struct reply replies[MANY];
    size_t answered = 0;
    session_create(&here, json_pack("{s:s, s:i}", "prompt", "The history of ", "temperature", 0), id);
    (void)snprintf(body, sizeof body, "{\"session\": \"%.32s\", \"max_tokens\": %d}", id, BIT);
    for (size_t i = 0; i < MANY; i++)
        requests[i] = generate_request(body);
    client_call_all(&here, requests, replies, MANY, NULL);
    for (size_t i = 0; i < MANY; i++) {
        if (replies[i].status == 200)
            answered++;
        else
            reply_assert_error(&replies[i], 409, "conflict", "session", "in use");
        reply_clear(&replies[i]);
    }
    assert_in_range(answered, 1, MANY);
    json_t *session = session_get(&here, id);
    assert_false(json_is_true(json_object_get(session, "busy")));
    assert_int_equal(json_integer_value(json_object_get(session, "position")),
                     strlen("The history of ") + answered * BIT);
    json_decref(session);
    print_message("  %zu of %d had it\n", answered, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sessions_at_once_keep_apart),
        cmocka_unit_test(many_requests_for_one_session_take_turns),
    };
    test_limit_s(LIMIT_S);
    const int failed = cmocka_run_group_tests_name("http_sessions_many", tests, start, daemons_end);
    is_stored = true;
    return failed + cmocka_run_group_tests_name("http_sessions_many_stored", tests, start, daemons_end);
}
