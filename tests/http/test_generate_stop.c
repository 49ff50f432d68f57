/* test_generate_stop.c - how a text of POST /generate ends: stop strings, which never leak, max_tokens, deadlines.
 * What a stop string must leave is computed from the same text without one. The real daemon. */
#include <jansson.h>
#include <setjmp.h>
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
#include "tests/support/generation.h"
#include "tests/support/random.h"
#include "tests/support/raw_socket.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, TOKENS = 240 };

/* The greedy sampler's continuation of `prompt` is known to be ASCII; so bytes and characters are the same. */
static const char prompt[] = "The ";

static struct daemon aftd;
static struct generation whole; /* the text without stop strings */

static int start(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--streams-max=2", NULL});
    generate(&aftd, json_pack("{s:s, s:i, s:i}", "prompt", prompt, "max_tokens", TOKENS, "temperature", 0), &whole);
    assert_int_equal(whole.bytes, TOKENS);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    generation_clear(&whole);
    daemon_stop(&aftd);
    return 0;
}

/* ---- stop strings ---------------------------------------------------------------------------------------------- */

/* How much of the whole text is left: up to the first place where a stop string ends, without the longest that ends
 * there. *drawn: the bytes that were drawn until then; TOKENS if none ends. */
static size_t cut_by(const char *const stops[], size_t count, size_t *drawn)
{
    for (size_t end = 1; end <= whole.bytes; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t n = strlen(stops[i]);
            if (n <= end && n > longest && memcmp(whole.text + end - n, stops[i], n) == 0)
                longest = n;
        }
        if (longest > 0) {
            *drawn = end;
            return end - longest;
        }
    }
    *drawn = whole.bytes;
    return whole.bytes;
}

static void generate_stopped(const char *const stops[], size_t count, bool stream, struct generation *ret)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        assert_int_equal(json_array_append_new(list, json_string(stops[i])), 0);
    generate(&aftd,
             json_pack("{s:s, s:i, s:i, s:o, s:b}", "prompt", prompt, "max_tokens", TOKENS, "temperature", 0, "stop",
                       list, "stream", (int)stream),
             ret);
}

/* Whole and streamed: the text ends before the stop string, no event has a byte of it, the reason is told. */
static void assert_stops(const char *name, const char *const stops[], size_t count)
{
    size_t drawn;
    const size_t left = cut_by(stops, count, &drawn);
    const bool found = left < drawn;
    for (int stream = 0; stream < 2; stream++) {
        struct generation g;
        generate_stopped(stops, count, stream, &g);
        assert_same_text(name, whole.text, left, g.text, g.bytes);
        assert_string_equal(g.finish, found ? "stop" : "length");
        assert_int_equal(g.tokens, left);
        assert_int_equal(g.completion_tokens, drawn);
        generation_clear(&g);
    }
}

/* The part of the whole text from `at` on, with something behind it. */
static void piece(char *out, size_t at, size_t size, const char *behind)
{
    assert_true(at + size <= whole.bytes && size + strlen(behind) <= GENERATE_STOP_BYTES_MAX);
    memcpy(out, whole.text + at, size);
    (void)snprintf(out + size, GENERATE_STOP_BYTES_MAX + 1 - size, "%s", behind);
}

static void a_stop_string_ends_the_text_before_it(void **state)
{
    static const struct {
        size_t at, size;
    } pieces[] = {{0, 1}, {0, 5}, {1, 1}, {50, 1}, {60, 7}, {100, 30}, {120, 64}, {TOKENS - 3, 3}, {TOKENS - 64, 64}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        char text[GENERATE_STOP_BYTES_MAX + 1];
        const char *const stops[] = {text};
        piece(text, pieces[i].at, pieces[i].size, "");
        assert_stops(text, stops, 1);
    }
}

static void a_string_that_nearly_comes_withholds_nothing_in_the_end(void **state)
{
    static const size_t starts[] = {0, 30, 90, TOKENS - 10, TOKENS - 1};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
        char text[GENERATE_STOP_BYTES_MAX + 1];
        const char *const stops[] = {text};
        const size_t left = TOKENS - starts[i];
        piece(text, starts[i], left < 20 ? left : 20, "\x01");
        assert_stops(text, stops, 1);
    }
}

static void of_overlapping_stop_strings_the_first_to_end_counts(void **state)
{
    char inner[GENERATE_STOP_BYTES_MAX + 1], outer[GENERATE_STOP_BYTES_MAX + 1], late[GENERATE_STOP_BYTES_MAX + 1];
    char same_end[GENERATE_STOP_BYTES_MAX + 1], broken[GENERATE_STOP_BYTES_MAX + 1];
    const char *const sets[][4] = {
        {outer, inner}, {inner, outer},          {outer, same_end},  {same_end, outer},
        {outer, late},  {broken, inner, "\x02"}, {broken, same_end}, {late, broken, inner, outer}};
    (void)state;
    piece(outer, 60, 20, "");
    piece(inner, 65, 5, "");
    piece(same_end, 72, 8, "");
    piece(late, 70, 30, "");
    piece(broken, 60, 12, "\x01"); /* a long prefix that fails inside the others */
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        size_t count = 0;
        while (count < 4 && sets[i][count] != NULL)
            count++;
        assert_stops("overlapping", sets[i], count);
    }
}

static void many_random_sets_of_stop_strings_agree_with_their_definition(void **state)
{
    struct random random = {.state = 20240607};
    (void)state;
    for (int round = 0; round < 40; round++) {
        char texts[GENERATE_STOPS_MAX][GENERATE_STOP_BYTES_MAX + 1];
        const char *stops[GENERATE_STOPS_MAX];
        const size_t count = 1 + random_below(&random, GENERATE_STOPS_MAX);
        for (size_t i = 0; i < count; i++) {
            const size_t size = 2 + random_below(&random, 30);
            piece(texts[i], random_below(&random, (uint32_t)(TOKENS - size)), size, "");
            if (random_below(&random, 3) != 0)
                texts[i][random_below(&random, (uint32_t)size)] = 'q'; /* it will not come, but nearly */
            stops[i] = texts[i];
        }
        assert_stops("random", stops, count);
    }
}

static void a_single_string_is_a_list_of_one(void **state)
{
    char text[8];
    size_t drawn;
    struct generation g;
    const char *const stops[] = {text};
    (void)state;
    piece(text, 33, 4, "");
    generate(&aftd,
             json_pack("{s:s, s:i, s:i, s:s}", "prompt", prompt, "max_tokens", TOKENS, "temperature", 0, "stop", text),
             &g);
    assert_same_text(text, whole.text, cut_by(stops, 1, &drawn), g.text, g.bytes);
    assert_string_equal(g.finish, "stop");
    generation_clear(&g);
}

static void the_prompt_is_not_searched_for_stop_strings(void **state)
{
    struct generation g;
    (void)state;
    generate(&aftd,
             json_pack("{s:s, s:i, s:i, s:[s]}", "prompt", "\x03\x03 The ", "max_tokens", 10, "temperature", 0, "stop",
                       "\x03\x03"),
             &g);
    assert_string_equal(g.finish, "length");
    assert_int_equal(g.tokens, 10);
    generation_clear(&g);
}

/* ---- max_tokens ------------------------------------------------------------------------------------------------ */

static void max_tokens_is_exact(void **state)
{
    static const int counts[] = {1, 2, 3, 17, 63, 64, 65, TOKENS};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        for (int stream = 0; stream < 2; stream++) {
            struct generation g;
            generate(&aftd,
                     json_pack("{s:s, s:i, s:i, s:b}", "prompt", prompt, "max_tokens", counts[i], "temperature", 0,
                               "stream", stream),
                     &g);
            assert_same_text("max_tokens", whole.text, (size_t)counts[i], g.text, g.bytes);
            assert_string_equal(g.finish, "length");
            assert_int_equal(g.completion_tokens, counts[i]);
            generation_clear(&g);
        }
}

static void the_default_of_max_tokens_is_the_settings(void **state)
{
    struct generation g;
    (void)state;
    generate(&aftd, json_pack("{s:s, s:i}", "prompt", prompt, "temperature", 0), &g);
    assert_int_equal(g.completion_tokens, 256);
    assert_string_equal(g.finish, "length");
    generation_clear(&g);
}

/* ---- deadlines ------------------------------------------------------------------------------------------------- */

static json_t *endless(int timeout_ms, bool stream)
{
    return json_pack("{s:s, s:i, s:s, s:i, s:b, s:i}", "prompt", "x", "max_tokens", 65536, "context_overflow", "shift",
                     "timeout_ms", timeout_ms, "stream", (int)stream, "seed", 1);
}

static void a_deadline_after_the_first_byte_ends_the_text(void **state)
{
    enum { TIMEOUT_MS = 200 };
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct generation g;
        const int64_t start_ms = test_now_ms();
        generate(&aftd, endless(TIMEOUT_MS, stream), &g);
        assert_true(test_now_ms() - start_ms >= TIMEOUT_MS);
        assert_string_equal(g.finish, "timeout");
        assert_in_range(g.completion_tokens, 1, 65535);
        assert_int_equal(g.tokens, g.completion_tokens);
        assert_true(g.bytes > 0);
        generation_clear(&g);
    }
}

static void a_deadline_before_the_first_byte_is_408(void **state)
{
    enum { SLOTS = 2, TIMEOUT_MS = 100 };
    int fds[SLOTS];
    (void)state;
    for (int i = 0; i < SLOTS; i++) { /* so that the others wait in the queue until their time is over */
        char *body = generate_body(endless(600000, i == 0)), *text = raw_post("/generate", body, "");
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send_text(fds[i], text));
        free(body);
        free(text);
    }
    (void)client_await_metric(&aftd, "aftd_streams_running", SLOTS, HANG_MS);
    for (int stream = 0; stream < 2; stream++) {
        struct reply r;
        char *body = generate_body(endless(TIMEOUT_MS, stream));
        const struct request request = generate_request(body);
        const int64_t start_ms = test_now_ms();
        client_call(&aftd, &request, &r);
        assert_true(test_now_ms() - start_ms >= TIMEOUT_MS);
        reply_assert_error(&r, 408, "deadline_exceeded", NULL, NULL);
        char retry[8] = "";
        assert_true(reply_header(&r, "X-Should-Retry", retry, sizeof retry)); /* OpenAI's clients look at it */
        assert_string_equal(retry, "false");
        reply_clear(&r);
        free(body);
    }
    for (int i = 0; i < SLOTS; i++)
        raw_close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_ends_the_text_before_it),
        cmocka_unit_test(a_string_that_nearly_comes_withholds_nothing_in_the_end),
        cmocka_unit_test(of_overlapping_stop_strings_the_first_to_end_counts),
        cmocka_unit_test(many_random_sets_of_stop_strings_agree_with_their_definition),
        cmocka_unit_test(a_single_string_is_a_list_of_one),
        cmocka_unit_test(the_prompt_is_not_searched_for_stop_strings),
        cmocka_unit_test(max_tokens_is_exact),
        cmocka_unit_test(the_default_of_max_tokens_is_the_settings),
        cmocka_unit_test(a_deadline_after_the_first_byte_ends_the_text),
        cmocka_unit_test(a_deadline_before_the_first_byte_is_408),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, stop);
}
