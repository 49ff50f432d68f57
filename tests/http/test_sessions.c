/* test_sessions.c - texts that go through sessions have the bytes of those that do not: in pieces, forked, moved
 * to another daemon, cut by a deadline; and where a request leaves none, its session is where it was. All of it once
 * with sessions in memory, and once with stored ones, of which memory holds so few that most are read each time. Real
 * daemons. */
#include <jansson.h>
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
#include "tests/support/generation.h"
#include "tests/support/model_variants.h"
#include "tests/support/raw_socket.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

#define GOLDEN "tests/data/golden"
#define LM "enwik8-aft-local"
#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, TEXT = 60, FORKS = 4, CUTS = 6, PIECE = 12 };

static char models[PATH_MAX];
static struct daemon here, there;
static bool is_stored;
static const char *const names[] = {LM, "lm-attention", "lm-local-no-global", "starting", "endless"};

static int start(void **state)
{
    (void)state;
    char flag[PATH_MAX + 16];
    temp_dir_create(models);
    model_variants_link(models, "tests/data/models", LM);
    model_variants_link(models, GOLDEN, "lm-attention");
    model_variants_link(models, GOLDEN, "lm-local-no-global");
    model_variants_write(models);
    model_variants_write_endless(models, "endless-600", "tests/data/golden/lm-conv-heads4-k5", 600);
    (void)snprintf(flag, sizeof flag, "--models-dir=%s", models);
    char stores[2][PATH_MAX + 32];
    for (int i = 0; i < 2; i++)
        (void)snprintf(stores[i], sizeof stores[i], "--sessions-dir=%s/sessions-%d", is_stored ? models : "", i);
    const char *none = NULL, *most = "--sessions-max=6";
    daemon_start(&here, (const char *const[]){flag, is_stored ? stores[0] : none, most, NULL});
    daemon_start(&there, (const char *const[]){flag, "--streams-max=3", "--pass-rows-max=5",
                                               is_stored ? stores[1] : none, most, NULL});
    return 0;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* How a text begins, as /generate and /v1/sessions take it. */
static json_t *beginning(const char *model, const char *prompt)
{
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:s}", "model", model, "prompt", prompt, "seed", 5, "temperature",
                     0.9, "top_p", 0.95, "repetition_penalty", 1.2, "context_overflow", "shift");
}

static json_t *more(int max_tokens)
{
    return json_pack("{s:i, s:s}", "max_tokens", max_tokens, "context_overflow", "shift");
}

/* The text that /generate returns in one piece, `size` bytes. */
static void whole_text(const char *model, const char *prompt, uint8_t *out, size_t size)
{
    json_t *fields = beginning(model, prompt);
    size_t n = 0;
    assert_int_equal(json_object_set_new(fields, "max_tokens", json_integer((json_int_t)size)), 0);
    json_decref(session_generate(&here, NULL, fields, out, &n));
    assert_int_equal(n, size);
}

/* `size` more bytes of a session. */
static void go_on(const struct daemon *d, const char *id, uint8_t *out, size_t size)
{
    size_t n = 0;
    json_decref(session_generate(d, id, more((int)size), out, &n));
    assert_int_equal(n, size);
}

static void assert_same_state(const char *id, const struct reply *before)
{
    struct reply now;
    session_state(&here, id, &now);
    assert_int_equal(now.size, before->size);
    assert_memory_equal(now.body, before->body, now.size);
    reply_clear(&now);
}

static bool is_busy(const char *id)
{
    json_t *session = session_get(&here, id);
    const bool busy = json_is_true(json_object_get(session, "busy"));
    json_decref(session);
    return busy;
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

/* Prompts of no byte, of one that waits, of two, and of more than the context has room for. */
static void pieces_are_the_whole(void **state)
{
    (void)state;
    static const char *const prompts[] = {
        "", "T", "Th", "The history of ",
        "Some texts are longer than what the smaller ones of these models can look at, by a little or by a lot."};
    static const size_t pieces[] = {1, 17, 1, 2, 15, 24};
    for (size_t m = 0; m < ARRAY_LEN(names); m++)
        for (size_t p = 0; p < ARRAY_LEN(prompts); p++) {
            uint8_t want[TEXT], got[TEXT];
            char id[TEST_SESSION_ID_BYTES];
            size_t n = 0;
            whole_text(names[m], prompts[p], want, TEXT);
            session_create(&here, beginning(names[m], prompts[p]), id);
            for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
                go_on(&here, id, got + n, pieces[i]);
                n += pieces[i];
            }
            assert_int_equal(n, TEXT);
            if (memcmp(got, want, TEXT) != 0)
                fail_msg("%s, prompt \"%s\": the text is another in pieces", names[m], prompts[p]);
        }
}

/* Words of the client in between are as if they had stood in the prompt. */
static void a_prompt_goes_behind_what_is_there(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], prompt[256];
    uint8_t first[20], want[30], got[30];
    size_t n = 0;
    session_create(&here, json_pack("{s:s, s:s, s:i}", "model", LM, "prompt", "Rome is a ", "temperature", 0), id);
    go_on(&here, id, first, sizeof first);
    json_decref(session_generate(
        &here, id, json_pack("{s:s, s:i}", "prompt", ". [[London]] ", "max_tokens", (int)sizeof got), got, &n));
    (void)snprintf(prompt, sizeof prompt, "Rome is a %.*s. [[London]] ", (int)sizeof first, (const char *)first);
    n = 0;
    json_decref(session_generate(
        &here, NULL,
        json_pack("{s:s, s:s, s:i, s:i}", "model", LM, "prompt", prompt, "temperature", 0, "max_tokens", 30), want,
        &n));
    assert_memory_equal(got, want, sizeof want);
}

/* Streams as well, and what return_state gives is what the session has then. */
static void a_stream_goes_on_with_a_session(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES];
    struct generation half, other, both;
    session_create(&here, json_pack("{s:s, s:s, s:i}", "model", LM, "prompt", "The history of ", "temperature", 0), id);
    generate(&here, json_pack("{s:s, s:i, s:b}", "session", id, "max_tokens", 30, "stream", 1), &half);
    assert_true(half.events > 0);
    assert_false(is_busy(id));
    generate(&here, json_pack("{s:s, s:s, s:i}", "session", id, "model", LM, "max_tokens", 30), &other);
    generate(
        &here,
        json_pack("{s:s, s:s, s:i, s:i}", "model", LM, "prompt", "The history of ", "temperature", 0, "max_tokens", 60),
        &both);
    assert_same_text("the first half", half.text, half.bytes, both.text, half.bytes);
    assert_same_text("the second half", other.text, other.bytes, both.text + half.bytes, both.bytes - half.bytes);
    generation_clear(&half);
    generation_clear(&other);
    generation_clear(&both);
}

/* The one that was stopped by a word goes on behind the word. */
static void a_stop_string_is_part_of_the_session(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES];
    struct generation until, rest, whole;
    session_create(&here, json_pack("{s:s, s:s, s:i}", "model", LM, "prompt", "The history of ", "temperature", 0), id);
    generate(&here, json_pack("{s:s, s:i, s:s}", "session", id, "max_tokens", 60, "stop", "]]"), &until);
    assert_string_equal(until.finish, "stop");
    generate(&here, json_pack("{s:s, s:i}", "session", id, "max_tokens", 20), &rest);
    generate(&here,
             json_pack("{s:s, s:s, s:i, s:i}", "model", LM, "prompt", "The history of ", "temperature", 0, "max_tokens",
                       (int)until.bytes + 2 + 20),
             &whole);
    assert_same_text("until the word", until.text, until.bytes, whole.text, until.bytes);
    assert_same_text("behind it", rest.text, rest.bytes, whole.text + until.bytes + 2, whole.bytes - until.bytes - 2);
    generation_clear(&until);
    generation_clear(&rest);
    generation_clear(&whole);
}

/* Noise of characters of several bytes, cut wherever: the answers' texts make up the whole one. */
static void a_character_that_an_answer_cuts_is_in_the_next(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], joined[4 * TEXT] = "";
    json_t *fields =
        json_pack("{s:s, s:s, s:i, s:i, s:b}", "model", LM, "prompt", "x", "seed", 3, "temperature", 100, "utf8", 1);
    struct generation whole, piece;
    session_create(&here, json_copy(fields), id);
    assert_int_equal(json_object_set_new(fields, "max_tokens", json_integer(TEXT)), 0);
    generate(&here, fields, &whole);
    for (size_t i = 0; i < TEXT; i++) {
        generate(&here, json_pack("{s:s, s:i, s:b}", "session", id, "max_tokens", 1, "stream", i % 2 == 0), &piece);
        assert_null(strstr(piece.text, "\xef\xbf\xbd"));
        (void)strncat(joined, piece.text, sizeof joined - strlen(joined) - 1);
        generation_clear(&piece);
    }
    assert_string_equal(joined, whole.text);
    generation_clear(&whole);
}

/* Of 300 bytes, behind 300 that a session has, the model's context of 512 leaves the last half of it. */
static void what_is_dropped_is_of_this_prompt(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES], prompt[301];
    memset(prompt, 'a', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    struct generation g;
    session_create(&here, json_pack("{s:s, s:s}", "model", LM, "prompt", prompt), id);
    generate(&here, json_pack("{s:s, s:s, s:i}", "session", id, "prompt", prompt, "max_tokens", 1), &g);
    assert_int_equal(g.prompt_tokens, 300);
    assert_int_equal(g.dropped, 300 - 256);
    generation_clear(&g);
}

/* ---- forks ------------------------------------------------------------------------------------------------------ */

/* A session and its forks say what n texts of one request would, each whatever the others do. */
static void forks_are_the_texts_of_one_request(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(names); m++) {
        char ids[FORKS][TEST_SESSION_ID_BYTES];
        session_create(&here, beginning(names[m], "The history of "), ids[0]);
        session_fork(&here, ids[0], 2, ids + 1);
        session_fork(&here, ids[0], FORKS - 3, ids + 3);
        json_t *fields = beginning(names[m], "The history of ");
        struct reply r;
        assert_int_equal(json_object_update_new(fields, json_pack("{s:i, s:i}", "n", FORKS, "max_tokens", PIECE)), 0);
        session_try(&here, NULL, fields, &r);
        assert_int_equal(r.status, 200);
        json_t *answer = reply_json(&r);
        for (size_t i = FORKS; i-- > 0;) {
            fields = more(PIECE);
            struct reply one;
            session_try(&here, ids[i], fields, &one);
            assert_int_equal(one.status, 200);
            json_t *got = reply_json(&one);
            assert_string_equal(
                json_string_value(json_object_get(got, "text")),
                json_string_value(json_object_get(json_array_get(json_object_get(answer, "choices"), i), "text")));
            json_decref(got);
            reply_clear(&one);
        }
        json_decref(answer);
        reply_clear(&r);
    }
}

/* Forks of a fork differ from those of its own origin, and outlive both. */
static void forks_of_forks_differ_and_outlive(void **state)
{
    (void)state;
    char ids[4][TEST_SESSION_ID_BYTES];
    uint8_t texts[4][TEXT];
    struct reply r;
    session_create(&here, json_pack("{s:s, s:s, s:i}", "model", LM, "prompt", "The ", "seed", 1), ids[0]);
    session_fork(&here, ids[0], 1, ids + 1);
    session_fork(&here, ids[1], 1, ids + 2);
    session_fork(&here, ids[0], 1, ids + 3);
    for (size_t i = 0; i < 4; i++) {
        const struct session_call drop = {.method = "DELETE", .id = ids[i]};
        go_on(&here, ids[i], texts[i], TEXT);
        session_call(&here, &drop, &r);
        assert_int_equal(r.status, 204);
        assert_int_equal(r.size, 0);
        reply_clear(&r);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(texts[i], texts[k], TEXT);
    }
}

/* ---- states ----------------------------------------------------------------------------------------------------- */

/* A state moves by PUT and by a new session, back and forth, as if it had never moved. */
static void a_state_moves_to_another_daemon(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(names); m++) {
        uint8_t want[TEXT], got[TEXT];
        char ours[TEST_SESSION_ID_BYTES], theirs[TEST_SESSION_ID_BYTES];
        struct reply blob, again;
        whole_text(names[m], "The history of ", want, TEXT);
        session_create(&here, beginning(names[m], "The history of "), ours);
        session_create(&there, json_pack("{s:s}", "model", names[m]), theirs);
        for (size_t n = 0; n < TEXT; n += 2 * PIECE + TEXT % (2 * PIECE)) {
            go_on(&here, ours, got + n, PIECE);
            session_state(&here, ours, &blob);
            session_put(&there, theirs, blob.body, blob.size);
            session_state(&there, theirs, &again);
            assert_int_equal(again.size, blob.size);
            assert_memory_equal(again.body, blob.body, blob.size);
            reply_clear(&again);
            reply_clear(&blob);
            go_on(&there, theirs, got + n + PIECE, PIECE + TEXT % (2 * PIECE));
            session_state(&there, theirs, &blob);
            session_put(&here, ours, blob.body, blob.size);
            reply_clear(&blob);
        }
        if (memcmp(got, want, TEXT) != 0)
            fail_msg("%s: the text is another when it moves", names[m]);
    }
}

/* One that nothing was done with yet can move as well; and /generate's state begins a session. */
static void a_state_begins_a_session(void **state)
{
    (void)state;
    uint8_t want[TEXT], got[TEXT];
    char ours[TEST_SESSION_ID_BYTES], theirs[TEST_SESSION_ID_BYTES];
    struct reply blob;
    json_t *fields = beginning(LM, "The history of ");
    size_t n = 0;
    whole_text(LM, "The history of ", want, TEXT);
    assert_int_equal(json_object_update_new(fields, json_pack("{s:i, s:b}", "max_tokens", PIECE, "return_state", 1)),
                     0);
    json_t *answer = session_generate(&here, NULL, fields, got, &n);
    session_create(&there, json_pack("{s:s, s:O}", "model", LM, "state", json_object_get(answer, "state")), theirs);
    json_decref(answer);
    go_on(&there, theirs, got + PIECE, TEXT - PIECE);
    assert_memory_equal(got, want, TEXT);

    whole_text(LM, "T", want, TEXT);
    session_create(&here, beginning(LM, "T"), ours);
    session_state(&here, ours, &blob);
    session_put(&there, theirs, blob.body, blob.size);
    reply_clear(&blob);
    go_on(&there, theirs, got, TEXT);
    assert_memory_equal(got, want, TEXT);
}

/* ---- answers that do not come to their end ---------------------------------------------------------------------- */

static void a_deadline_leaves_the_session_behind_its_last_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < CUTS; i++) {
        const char *name = names[i % ARRAY_LEN(names)];
        char id[TEST_SESSION_ID_BYTES];
        size_t n = 0, room = 65536 + TEXT;
        uint8_t *got = malloc(room + 3), *want = malloc(room + 3);
        assert_true(got != NULL && want != NULL);
        session_create(&here, beginning(name, "The history of "), id);
        json_t *fields = more(65536);
        assert_int_equal(json_object_set_new(fields, "timeout_ms", json_integer(120)), 0);
        json_t *cut = session_generate(&here, id, fields, got, &n);
        assert_string_equal(json_string_value(json_object_get(cut, "finish_reason")), "timeout");
        json_decref(cut);
        assert_in_range(n, 1, 65535);
        go_on(&here, id, got + n, TEXT);
        whole_text(name, "The history of ", want, n + TEXT);
        assert_memory_equal(got, want, n + TEXT);
        free(want);
        free(got);
    }
}

/* A prompt that its deadline cuts while it is fed begins no session, wherever in it that was. */
static void a_prompt_that_is_cut_begins_no_session(void **state)
{
    (void)state;
    enum { LONG = 1000000 };
    static char prompt[LONG + 1];
    char id[TEST_SESSION_ID_BYTES];
    const double before = client_metric(&here, "aftd_sessions_created_total");
    memset(prompt, 'a', LONG);
    for (int i = 0; i < CUTS; i++) {
        struct reply r;
        session_call_json(&here, "POST", NULL, NULL,
                          json_pack("{s:s, s:s, s:i}", "model", "endless-600", "prompt", prompt, "timeout_ms", 20 + i),
                          &r);
        assert_int_equal(r.status, 408);
        reply_clear(&r);
    }
    assert_true(client_metric(&here, "aftd_sessions_created_total") == before);
    session_create(&here, beginning("endless-600", "The history of "), id);
}

/* Begin a stream of a session that ends when its client does; the socket, once it has the first byte. */
static int begin_stream(const char *id, struct raw_input *in)
{
    char body[256];
    (void)snprintf(body, sizeof body,
                   "{\"session\": \"%s\", \"max_tokens\": 65536, \"context_overflow\": \"shift\", \"stream\": true, "
                   "\"timeout_ms\": 600000}",
                   id);
    char *text = raw_post("/generate", body, "");
    const int fd = raw_connect(here.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    assert_int_equal(raw_receive(fd, in, "data: ", HANG_MS), RAW_FOUND);
    return fd;
}

static void a_client_that_leaves_leaves_the_session_where_it_was(void **state)
{
    (void)state;
    static struct raw_input in;
    char id[TEST_SESSION_ID_BYTES];
    struct reply before;
    session_create(&here, beginning(LM, "The history of "), id);
    session_state(&here, id, &before);
    const int fd = begin_stream(id, &in);
    assert_true(is_busy(id));
    raw_close(fd);
    for (int64_t end_ms = test_now_ms() + HANG_MS; is_busy(id);) {
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(2);
    }
    assert_same_state(id, &before);
    reply_clear(&before);
}

/* The second to use a session is refused; who only looks sees where it was before. */
static void one_request_at_a_time_has_a_session(void **state)
{
    (void)state;
    static struct raw_input in;
    char id[TEST_SESSION_ID_BYTES], fork[1][TEST_SESSION_ID_BYTES];
    uint8_t want[PIECE], got[PIECE];
    struct reply before, r;
    session_create(&here, beginning(LM, "The history of "), id);
    session_state(&here, id, &before);
    const int fd = begin_stream(id, &in);
    session_try(&here, id, more(1), &r);
    reply_assert_error(&r, 409, "conflict", "session", "in use");
    char wait[8] = "";
    assert_true(reply_header(&r, "Retry-After", wait, sizeof wait));
    assert_string_equal(wait, "1");
    reply_clear(&r);
    const struct session_call put = {.method = "PUT",
                                     .id = id,
                                     .what = "/state",
                                     .type = "application/octet-stream",
                                     .body = before.body,
                                     .size = before.size};
    session_call(&here, &put, &r);
    reply_assert_error(&r, 409, "conflict", "session", "in use");
    assert_true(reply_header(&r, "Retry-After", wait, sizeof wait));
    reply_clear(&r);
    assert_same_state(id, &before);
    session_fork(&here, id, 1, fork);
    const struct session_call drop = {.method = "DELETE", .id = id};
    session_call(&here, &drop, &r);
    assert_int_equal(r.status, 204);
    reply_clear(&r);
    session_try(&here, id, more(1), &r);
    reply_assert_error(&r, 404, "not_found", "session", id);
    reply_clear(&r);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND); /* it still runs */
    raw_close(fd);
    go_on(&here, fork[0], got, PIECE); /* as a fork of one that was never in use */
    session_create(&here, beginning(LM, "The history of "), id);
    session_fork(&here, id, 1, fork);
    go_on(&here, fork[0], want, PIECE);
    assert_memory_equal(got, want, PIECE);
    reply_clear(&before);
}

/* A text that is finished is in the session when the last event is there; one that was refused is not. */
static void what_is_refused_leaves_the_session_where_it_was(void **state)
{
    (void)state;
    char id[TEST_SESSION_ID_BYTES];
    struct reply before, r;
    session_create(&here, beginning("lm-attention", "The history of "), id);
    session_state(&here, id, &before);
    session_try(&here, id,
                json_pack("{s:s, s:s}", "prompt", "so much more that it goes beyond the end of its context",
                          "context_overflow", "stop"),
                &r);
    reply_assert_error(&r, 400, "invalid_value", "session", "context_overflow");
    reply_clear(&r);
    assert_same_state(id, &before);
    for (int i = 0; i < 20; i++) {
        session_try(&here, id, json_pack("{s:i, s:i}", "timeout_ms", 1, "max_tokens", 1), &r);
        if (r.status == 408)
            assert_same_state(id, &before);
        reply_clear(&r);
        session_put(&here, id, before.body, before.size);
    }
    assert_same_state(id, &before);
    reply_clear(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(a_prompt_goes_behind_what_is_there),
        cmocka_unit_test(a_stream_goes_on_with_a_session),
        cmocka_unit_test(a_character_that_an_answer_cuts_is_in_the_next),
        cmocka_unit_test(what_is_dropped_is_of_this_prompt),
        cmocka_unit_test(a_stop_string_is_part_of_the_session),
        cmocka_unit_test(forks_are_the_texts_of_one_request),
        cmocka_unit_test(forks_of_forks_differ_and_outlive),
        cmocka_unit_test(a_state_moves_to_another_daemon),
        cmocka_unit_test(a_state_begins_a_session),
        cmocka_unit_test(a_deadline_leaves_the_session_behind_its_last_byte),
        cmocka_unit_test(a_prompt_that_is_cut_begins_no_session),
        cmocka_unit_test(a_client_that_leaves_leaves_the_session_where_it_was),
        cmocka_unit_test(one_request_at_a_time_has_a_session),
        cmocka_unit_test(what_is_refused_leaves_the_session_where_it_was),
    };
    test_limit_s(2 * LIMIT_S);
    const int failed = cmocka_run_group_tests_name("http_sessions", tests, start, daemons_end);
    is_stored = true;
    return failed + cmocka_run_group_tests_name("http_sessions_stored", tests, start, daemons_end);
}
