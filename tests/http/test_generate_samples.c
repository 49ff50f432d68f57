/* test_generate_samples.c - several texts of one prompt, what is told of their bytes, the prompt's echo, the order
 * that priorities give: whole and streamed, from the real daemon. */
#include <math.h>
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

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
enum { LIMIT_S = 580, TEXTS_MAX = 8, TEXT_MAX = 4096 };

static struct daemon daemon_under_test;

/* A text put together of an answer, or of a stream's events. */
struct text {
    char text[TEXT_MAX];
    char finish[16];
    json_int_t tokens;
    json_t *logprobs; /* list; NULL: none were told */
};

struct texts {
    size_t count;
    struct text at[TEXTS_MAX];
    json_t *last; /* the answer, or a stream's last event */
};

static int start(void **state)
{
    (void)state;
    const char *const flags[] = {"--streams-max=4", NULL};
    daemon_start(&daemon_under_test, flags);
    return 0;
}

static void texts_clear(struct texts *t)
{
    for (size_t i = 0; i < t->count; i++)
        json_decref(t->at[i].logprobs);
    json_decref(t->last);
}

static void take(struct texts *t, const json_t *piece)
{
    const size_t index = (size_t)json_integer_value(json_object_get(piece, "index"));
    const json_t *logprobs = json_object_get(piece, "logprobs");
    assert_true(index < TEXTS_MAX);
    struct text *to = &t->at[index];
    t->count = index + 1 > t->count ? index + 1 : t->count;
    const char *text = json_string_value(json_object_get(piece, "text"));
    const char *finish = json_string_value(json_object_get(piece, "finish_reason"));
    if (text != NULL) {
        const size_t at = strlen(to->text);
        assert_true(at + strlen(text) < TEXT_MAX);
        memcpy(to->text + at, text, strlen(text) + 1);
    }
    to->tokens += json_integer_value(json_object_get(piece, "tokens"));
    if (finish != NULL)
        (void)snprintf(to->finish, sizeof to->finish, "%s", finish);
    if (logprobs != NULL) {
        to->logprobs = to->logprobs != NULL ? to->logprobs : json_array();
        assert_int_equal(json_array_extend(to->logprobs, (json_t *)logprobs), 0);
    }
}

static void take_events(struct texts *t, char *body)
{
    for (char *line = strtok(body, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "data: ", 6) != 0)
            continue;
        json_t *event = json_loads(line + 6, 0, NULL);
        assert_non_null(event);
        if (json_object_get(event, "usage") == NULL) {
            take(t, event);
            json_decref(event);
        } else {
            assert_null(t->last);
            t->last = event;
        }
    }
    assert_non_null(t->last);
    if (t->count == 1 && t->at[0].finish[0] == '\0')
        (void)snprintf(t->at[0].finish, sizeof t->at[0].finish, "%s",
                       json_string_value(json_object_get(t->last, "finish_reason")));
}

/* Generate with `fields`, which is taken, and `stream`. */
static void ask(json_t *fields, bool stream, struct texts *t)
{
    *t = (struct texts){0};
    assert_int_equal(json_object_set_new(fields, "stream", json_boolean(stream)), 0);
    char *body = generate_body(fields);
    const struct request r = generate_request(body);
    struct reply reply;
    client_call(&daemon_under_test, &r, &reply);
    if (reply.status != 200)
        fail_msg("%s: %ld %s", body, reply.status, reply.body);
    if (stream) {
        take_events(t, reply.body);
    } else {
        t->last = reply_json(&reply);
        const json_t *choices = json_object_get(t->last, "choices"), *choice;
        size_t i;
        json_array_foreach((json_t *)choices, i, choice) take(t, choice);
        if (choices == NULL)
            take(t, t->last);
    }
    reply_clear(&reply);
    free(body);
}

static json_int_t usage(const struct texts *t, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(t->last, "usage"), name));
}

#define PROMPT "The history of Rome began "
static json_t *fields(int n, int max_tokens)
{
    return json_pack("{s:s, s:i, s:i, s:i}", "prompt", PROMPT, "n", n, "max_tokens", max_tokens, "seed", 5);
}

/* ---- several texts --------------------------------------------------------------------------------------------- */

/* More than there are slots: some are copies of a fed prompt, some feed it anew. */
static void several_texts_are_the_same_whole_and_streamed_and_the_first_is_the_only_ones(void **state)
{
    (void)state;
    struct texts one, whole, streamed;
    ask(fields(1, 30), false, &one);
    ask(fields(7, 30), false, &whole);
    ask(fields(7, 30), true, &streamed);
    assert_int_equal(one.count, 1);
    assert_int_equal(whole.count, 7);
    assert_int_equal(streamed.count, 7);
    assert_string_equal(whole.at[0].text, one.at[0].text);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(streamed.at[i].text, whole.at[i].text);
        assert_string_equal(streamed.at[i].finish, "length");
        assert_string_equal(whole.at[i].finish, "length");
        assert_int_equal(whole.at[i].tokens, 30);
        assert_int_equal(streamed.at[i].tokens, 30);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(whole.at[i].text, whole.at[k].text);
    }
    assert_int_equal(usage(&whole, "prompt_tokens"), strlen(PROMPT));
    assert_int_equal(usage(&whole, "completion_tokens"), 7 * 30);
    texts_clear(&one);
    texts_clear(&whole);
    texts_clear(&streamed);
}

static void a_text_that_stops_lets_the_others_go_on(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct texts t;
        json_t *f = fields(6, 40);
        unsigned stopped = 0, whole = 0;
        assert_int_equal(json_object_set_new(f, "stop", json_string("th")), 0);
        ask(f, stream == 1, &t);
        for (size_t i = 0; i < t.count; i++) {
            const bool stops = strcmp(t.at[i].finish, "stop") == 0;
            stopped += stops;
            whole += !stops;
            assert_null(strstr(t.at[i].text, "th"));
            assert_true(stops ? strlen(t.at[i].text) <= 38 : strlen(t.at[i].text) == 40);
        }
        assert_true(stopped > 0 && whole > 0); /* the seed gives both */
        assert_string_equal(json_string_value(json_object_get(t.last, "finish_reason")) != NULL ? "length" : "none",
                            stream == 1 ? "length" : "none");
        texts_clear(&t);
    }
}

/* ---- what is told ---------------------------------------------------------------------------------------------- */

static void assert_same_json(const char *what, const json_t *a, const json_t *b)
{
    if (json_equal(a, b) != 1) {
        char *x = json_dumps(a, JSON_COMPACT | JSON_ENCODE_ANY), *y = json_dumps(b, JSON_COMPACT | JSON_ENCODE_ANY);
        fail_msg("%s: %s is not %s", what, x, y);
    }
}

static void every_byte_is_told_with_the_likeliest_ones(void **state)
{
    (void)state;
    struct texts plain, whole, streamed;
    json_t *f = fields(2, 25);
    ask(fields(2, 25), false, &plain);
    assert_int_equal(json_object_set_new(f, "logprobs", json_integer(3)), 0);
    ask(json_deep_copy(f), false, &whole);
    ask(f, true, &streamed);
    for (size_t i = 0; i < 2; i++) {
        const json_t *byte;
        size_t k;
        assert_string_equal(whole.at[i].text, plain.at[i].text);
        assert_same_json("streamed", streamed.at[i].logprobs, whole.at[i].logprobs);
        assert_int_equal(json_array_size(whole.at[i].logprobs), 25);
        json_array_foreach(whole.at[i].logprobs, k, byte)
        {
            const json_t *top = json_object_get(byte, "top");
            const json_int_t drawn = json_integer_value(json_object_get(byte, "byte"));
            const double logprob = json_real_value(json_object_get(byte, "logprob"));
            double before = 0.0;
            assert_int_equal((uint8_t)whole.at[i].text[k], drawn);
            assert_int_equal(json_array_size(top), 3);
            for (size_t c = 0; c < 3; c++) {
                const json_t *candidate = json_array_get(top, c);
                const double of = json_real_value(json_object_get(candidate, "logprob"));
                assert_true(of <= before);
                before = of;
                if (json_integer_value(json_object_get(candidate, "byte")) == drawn)
                    assert_true(of == logprob);
            }
            assert_true(logprob <= json_real_value(json_object_get(json_array_get(top, 0), "logprob")));
        }
    }
    texts_clear(&plain);
    texts_clear(&whole);
    texts_clear(&streamed);
}

/* The same numbers as /score gives, in other units: of the prompt, which the echo tells, and of what follows. */
static void an_echo_tells_the_prompt_as_score_does(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct texts t;
        struct reply reply;
        json_t *f = fields(3, 10);
        assert_int_equal(json_object_set_new(f, "echo", json_true()), 0);
        assert_int_equal(json_object_set_new(f, "logprobs", json_integer(0)), 0);
        ask(f, stream == 1, &t);
        for (size_t i = 0; i < 3; i++) {
            assert_memory_equal(t.at[i].text, PROMPT, strlen(PROMPT));
            assert_int_equal(t.at[i].tokens, 10);
            const size_t bytes = strlen(PROMPT) + 10;
            assert_int_equal(json_array_size(t.at[i].logprobs), bytes);
            char *body = generate_body(json_pack("{s:s}", "text", t.at[i].text));
            const struct request r = {.path = "/score", .type = "application/json", .body = body, .size = strlen(body)};
            client_call(&daemon_under_test, &r, &reply);
            assert_int_equal(reply.status, 200);
            json_t *scored = reply_json(&reply);
            const json_t *bits = json_object_get(scored, "log2_probs");
            assert_int_equal(json_array_size(bits), bytes - 1);
            assert_true(json_is_null(json_object_get(json_array_get(t.at[i].logprobs, 0), "logprob")));
            for (size_t k = 1; k < bytes; k++) {
                const double nats = json_real_value(json_object_get(json_array_get(t.at[i].logprobs, k), "logprob"));
                assert_true(fabs(nats - log(2.0) * json_real_value(json_array_get(bits, k - 1))) < 1e-5);
            }
            json_decref(scored);
            reply_clear(&reply);
            free(body);
        }
        texts_clear(&t);
    }
}

/* The prompt ends within a character, which may or may not be ended: text and bytes agree. */
static void an_echo_of_half_a_character_is_still_valid(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct texts t;
        json_t *f = json_pack("{s:s, s:b, s:i, s:i, s:b}", "prompt_base64", "YcM=", "echo", 1, "max_tokens", 12, "seed",
                              3, "bytes_base64", 1);
        ask(f, stream == 1, &t);
        assert_int_equal(t.at[0].text[0], 'a');
        assert_int_equal(t.at[0].tokens, 12);
        texts_clear(&t);
    }
}

static void exact_bytes_come_in_base64(void **state)
{
    (void)state;
    struct texts t;
    ask(json_pack("{s:s, s:b, s:i, s:i, s:b}", "prompt_base64", "/2E=", "echo", 1, "max_tokens", 1, "seed", 1,
                  "bytes_base64", 1),
        false, &t);
    const char *bytes = json_string_value(json_object_get(t.last, "bytes_base64"));
    assert_non_null(bytes);
    assert_memory_equal(bytes, "/2", 2); /* FF 6., where the text has EF BF BD */
    assert_memory_equal(t.at[0].text,
                        "\xef\xbf\xbd"
                        "a",
                        4);
    texts_clear(&t);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *body, *param;
} refused[] = {
    {"{\"n\":0}", "n"},
    {"{\"n\":65}", "n"},
    {"{\"logprobs\":21}", "logprobs"},
    {"{\"logprobs\":true}", "logprobs"},
    {"{\"echo\":1}", "echo"},
    {"{\"bytes_base64\":\"yes\"}", "bytes_base64"},
    {"{\"priority\":\"urgent\"}", "priority"},
    {"{\"priority\":101}", "priority"},
    {"{\"priority\":1.5}", "priority"},
    {"{\"n\":64,\"max_tokens\":20000}", "max_tokens"},
    {"{\"logprobs\":20,\"max_tokens\":20000}", "logprobs"},
    {"{\"logprobs\":0,\"max_tokens\":65536,\"n\":5}", "logprobs"},
};

static void what_is_too_much_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct reply reply;
        const struct request r = generate_request(refused[i].body);
        client_call(&daemon_under_test, &r, &reply);
        if (reply.status != 400)
            fail_msg("%s: %ld %s", refused[i].body, reply.status, reply.body);
        reply_assert_error(&reply, 400, "invalid_value", refused[i].param, NULL);
        reply_clear(&reply);
    }
}

static void priorities_are_taken(void **state)
{
    (void)state;
    static const char *const words[] = {"\"low\"", "\"normal\"", "\"high\"", "-100", "0", "100"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        char body[64];
        struct reply reply;
        (void)snprintf(body, sizeof body, "{\"max_tokens\":1,\"priority\":%s}", words[i]);
        const struct request r = generate_request(body);
        client_call(&daemon_under_test, &r, &reply);
        assert_int_equal(reply.status, 200);
        reply_clear(&reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_texts_are_the_same_whole_and_streamed_and_the_first_is_the_only_ones),
        cmocka_unit_test(a_text_that_stops_lets_the_others_go_on),
        cmocka_unit_test(every_byte_is_told_with_the_likeliest_ones),
        cmocka_unit_test(an_echo_tells_the_prompt_as_score_does),
        cmocka_unit_test(an_echo_of_half_a_character_is_still_valid),
        cmocka_unit_test(exact_bytes_come_in_base64),
        cmocka_unit_test(what_is_too_much_is_named),
        cmocka_unit_test(priorities_are_taken),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
