/* test_openai.c - POST /v1/completions and GET /v1/models/NAME in OpenAI's shapes, and each refusal. What its own
 * clients make of them is in tests/clients. */
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
enum { LIMIT_S = 580, BODY_MAX = 4096 };

static struct daemon daemon_under_test;

static int start(void **state)
{
    (void)state;
    daemon_start(&daemon_under_test, NULL);
    return 0;
}

static void post(const char *body, struct reply *r)
{
    const struct request request = {
        .path = "/v1/completions", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(&daemon_under_test, &request, r);
}

/* The answer to a request that is accepted, as JSON. */
static json_t *complete(const char *body)
{
    struct reply r;
    post(body, &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", body, r.status, r.body);
    json_t *whole = reply_json(&r);
    reply_clear(&r);
    return whole;
}

static const json_t *choice(const json_t *whole, size_t i)
{
    const json_t *one = json_array_get(json_object_get(whole, "choices"), i);
    assert_non_null(one);
    assert_int_equal(json_integer_value(json_object_get(one, "index")), i);
    return one;
}

static const char *text(const json_t *whole, size_t i)
{
    return json_string_value(json_object_get(choice(whole, i), "text"));
}

static void assert_keys(const json_t *object, const char *const *keys, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (json_object_get(object, keys[i]) == NULL)
            fail_msg("\"%s\" is missing", keys[i]);
    assert_int_equal(json_object_size(object), count);
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

static void an_answer_has_every_field_and_the_text_of_generate(void **state)
{
    static const char *const keys[] = {"id", "object", "created", "model", "choices", "system_fingerprint", "usage"};
    static const char *const of_choice[] = {"text", "index", "logprobs", "finish_reason"};
    static const char *const of_usage[] = {"prompt_tokens", "completion_tokens", "total_tokens",
                                           "prompt_tokens_dropped", "prompt_tokens_details"};
    struct generation g;
    (void)state;
    json_t *whole = complete("{\"model\":\"enwik8-aft-local\",\"prompt\":\"The history of \",\"seed\":4}");
    assert_keys(whole, keys, ARRAY_LEN(keys));
    assert_keys(choice(whole, 0), of_choice, ARRAY_LEN(of_choice));
    assert_keys(json_object_get(whole, "usage"), of_usage, ARRAY_LEN(of_usage));
    assert_memory_equal(json_string_value(json_object_get(whole, "id")), "cmpl-", 5);
    generate(&daemon_under_test, json_pack("{s:s, s:i, s:i}", "prompt", "The history of ", "seed", 4, "max_tokens", 16),
             &g);
    assert_string_equal(text(whole, 0), g.text);
    generation_clear(&g);
    json_decref(whole);
}

/* A prompt gives the same alone, in a list, as a text and as bytes; prompts are in order, each with its n texts. */
static void prompts_come_in_four_forms(void **state)
{
#define REST "\"max_tokens\":12,\"seed\":9,\"temperature\":0.8"
    static const char *const lists[] = {
        "{\"prompt\":[\"ab\",\"The c\"],\"n\":2," REST "}",
        "{\"prompt\":[[97,98],[84,104,101,32,99]],\"n\":2,\"best_of\":2," REST "}",
    };
    (void)state;
    json_t *first = complete("{\"prompt\":\"ab\",\"n\":2," REST "}");
    json_t *second = complete("{\"prompt\":[84,104,101,32,99],\"n\":2," REST "}");
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        json_t *both = complete(lists[i]);
        assert_int_equal(json_array_size(json_object_get(both, "choices")), 4);
        for (size_t k = 0; k < 4; k++)
            assert_string_equal(text(both, k), text(k < 2 ? first : second, k % 2));
        assert_int_equal(json_integer_value(json_object_get(json_object_get(both, "usage"), "prompt_tokens")), 7);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(both, "usage"), "completion_tokens")), 48);
        json_decref(both);
    }
    assert_string_not_equal(text(first, 0), text(first, 1));
    json_decref(first);
    json_decref(second);
}

/* The requests that lm-eval sends, in its old form and its new one. */
static void an_echo_tells_every_byte_of_the_prompt(void **state)
{
    (void)state;
    for (int max_tokens = 0; max_tokens <= 1; max_tokens++) {
        char body[BODY_MAX];
        (void)snprintf(body, sizeof body,
                       "{\"prompt\":[[72,195,169,10],[255,97]],\"max_tokens\":%d,\"logprobs\":1,\"echo\":true,"
                       "\"temperature\":0,\"seed\":1234}",
                       max_tokens);
        json_t *whole = complete(body);
        const json_t *told = json_object_get(choice(whole, 0), "logprobs");
        const json_t *tokens = json_object_get(told, "tokens"), *tops = json_object_get(told, "top_logprobs");
        const json_t *offsets = json_object_get(told, "text_offset");
        const json_t *logprobs = json_object_get(told, "token_logprobs");
        static const char *const names[] = {"H", "bytes:\\xc3", "bytes:\\xa9", "\n"};
        static const int places[] = {0, 1, 1, 2};
        assert_int_equal(json_array_size(tokens), 4 + (size_t)max_tokens);
        assert_int_equal(json_array_size(logprobs), 4 + (size_t)max_tokens);
        assert_true(json_is_null(json_array_get(logprobs, 0)) && json_is_null(json_array_get(tops, 0)));
        for (size_t i = 0; i < 4; i++) {
            assert_string_equal(json_string_value(json_array_get(tokens, i)), names[i]);
            assert_int_equal(json_integer_value(json_array_get(offsets, i)), places[i]);
        }
        for (size_t i = 1; i < 4 + (size_t)max_tokens; i++) {
            const json_t *top = json_array_get(tops, i);
            const char *token = json_string_value(json_array_get(tokens, i));
            assert_true(json_object_size(top) == 1 || json_object_size(top) == 2);
            assert_true(json_equal(json_object_get(top, token), json_array_get(logprobs, i)) == 1);
        }
        assert_memory_equal(text(whole, 0), "H\xc3\xa9\n", 4);
        assert_memory_equal(text(whole, 1),
                            "\xef\xbf\xbd"
                            "a",
                            4);
        assert_string_equal(json_string_value(json_object_get(choice(whole, 0), "finish_reason")), "length");
        json_decref(whole);
    }
}

static void nulls_are_as_if_left_out(void **state)
{
    (void)state;
    json_t *plain = complete("{\"prompt\":\"ab\",\"seed\":1}");
    json_t *nulls =
        complete("{\"prompt\":\"ab\",\"seed\":1,\"metadata\":{\"a\":1},\"store\":false,"
                 "\"service_tier\":\"auto\",\"safety_identifier\":\"x\",\"prompt_cache_key\":\"y\",\"verbosity\":null,"
                 "\"best_of\":null,\"echo\":null,\"frequency_penalty\":null,"
                 "\"logit_bias\":null,\"logprobs\":null,\"max_tokens\":null,\"n\":null,\"model\":null,"
                 "\"presence_penalty\":0,\"stop\":null,\"stream\":null,\"stream_options\":null,"
                 "\"suffix\":null,\"temperature\":null,\"top_p\":null,\"user\":\"me\"}");
    assert_string_equal(text(plain, 0), text(nulls, 0));
    json_decref(plain);
    json_decref(nulls);
}

/* To choose, each byte of an echoed prompt is scored too: what is bounded is named, though nobody sent "logprobs". */
static void what_best_of_scores_has_a_bound(void **state)
{
    (void)state;
    enum { BYTES = 300000 };
    char *body = malloc(BYTES + BODY_MAX);
    assert_non_null(body);
    const size_t head = (size_t)sprintf(body, "{\"max_tokens\":1,\"best_of\":2,\"echo\":true,\"prompt\":\"");
    memset(body + head, 'a', BYTES);
    (void)sprintf(body + head + BYTES, "\"}");
    struct reply r;
    post(body, &r);
    reply_assert_error(&r, 400, "invalid_value", "best_of", "300000 bytes of prompts to echo");
    reply_clear(&r);
    free(body);
}

static void a_prompt_of_many_bytes_is_taken(void **state)
{
    (void)state;
    enum { BYTES = 60000 };
    char *body = malloc(4 * BYTES + BODY_MAX);
    assert_non_null(body);
    size_t used = (size_t)sprintf(body, "{\"max_tokens\":1,\"prompt\":[97");
    for (size_t i = 1; i < BYTES; i++)
        used += (size_t)sprintf(body + used, ",%d", (int)(97 + i % 20));
    (void)sprintf(body + used, "]}");
    json_t *whole = complete(body);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(whole, "usage"), "prompt_tokens")), BYTES);
    json_decref(whole);
    free(body);
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

static void a_stream_is_the_answer_in_chunks(void **state)
{
#define ASK "\"prompt\":[\"ab\",\"The c\"],\"n\":2,\"max_tokens\":20,\"seed\":2,\"echo\":true,\"logprobs\":0"
    char texts[4][256] = {""};
    unsigned ends = 0, usages = 0, bytes[4] = {0};
    bool done = false;
    struct reply r;
    (void)state;
    json_t *whole = complete("{" ASK "}");
    post("{" ASK ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", &r);
    assert_int_equal(r.status, 200);
    for (char *line = strtok(r.body, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_false(done);
        if (strcmp(line, "data: [DONE]") == 0) {
            done = true;
            continue;
        }
        assert_memory_equal(line, "data: ", 6);
        json_t *chunk = json_loads(line + 6, 0, NULL);
        const json_t *choices = json_object_get(chunk, "choices"), *one = json_array_get(choices, 0);
        assert_string_equal(json_string_value(json_object_get(chunk, "object")), "text_completion");
        assert_non_null(json_object_get(chunk, "usage"));
        if (one == NULL) {
            usages++;
            assert_true(json_equal(json_object_get(chunk, "usage"), json_object_get(whole, "usage")) == 1);
        } else {
            const size_t i = (size_t)json_integer_value(json_object_get(one, "index"));
            assert_true(i < 4 && usages == 0 && json_is_null(json_object_get(chunk, "usage")));
            const size_t at = strlen(texts[i]);
            (void)snprintf(texts[i] + at, sizeof texts[i] - at, "%s", json_string_value(json_object_get(one, "text")));
            bytes[i] += (unsigned)json_array_size(json_object_get(json_object_get(one, "logprobs"), "token_logprobs"));
            ends += json_is_string(json_object_get(one, "finish_reason"));
        }
        json_decref(chunk);
    }
    assert_true(done);
    assert_int_equal(ends, 4);
    assert_int_equal(usages, 1);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(texts[i], text(whole, i));
        assert_int_equal(bytes[i], (i < 2 ? 2 : 5) + 20);
    }
    reply_clear(&r);
    json_decref(whole);
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

static void a_model_is_described_by_name(void **state)
{
    struct reply r;
    (void)state;
    client_get(&daemon_under_test, "/v1/models/enwik8-aft-local", &r);
    assert_int_equal(r.status, 200);
    json_t *model = reply_json(&r);
    assert_string_equal(json_string_value(json_object_get(model, "id")), "enwik8-aft-local");
    assert_string_equal(json_string_value(json_object_get(model, "object")), "model");
    json_decref(model);
    reply_clear(&r);
    client_get(&daemon_under_test, "/v1/models/gpt-3", &r);
    reply_assert_error(&r, 404, "not_found", "model", "gpt-3");
    reply_clear(&r);
}

/* ---- how bytes are chosen -------------------------------------------------------------------------------------- */

/* As /generate draws them, whose options they are. */
static void options_do_what_they_do_in_generate(void **state)
{
    static const char *const options[] = {
        "\"presence_penalty\":2",
        "\"frequency_penalty\":1.5,\"temperature\":0.7",
        "\"presence_penalty\":-1,\"repetition_penalty\":1.5",
        "\"logit_bias\":{\"101\":-100,\"32\":3}",
        "\"allowed_bytes\":\"ab \"",
        "\"allowed_bytes\":[97,98,195,169],\"utf8\":true,\"temperature\":5",
        "\"utf8\":true,\"temperature\":3",
    };
    (void)state;
    json_t *plain = complete("{\"prompt\":\"The history of \",\"seed\":3,\"max_tokens\":200}");
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        char body[BODY_MAX];
        struct generation g;
        (void)snprintf(body, sizeof body, "{\"prompt\":\"The history of \",\"seed\":3,\"max_tokens\":200,%s}",
                       options[i]);
        json_t *whole = complete(body);
        generate(&daemon_under_test, json_loads(body, 0, NULL), &g);
        assert_string_equal(text(whole, 0), g.text);
        assert_string_not_equal(text(whole, 0), text(plain, 0));
        generation_clear(&g);
        json_decref(whole);
    }
    json_decref(plain);
}

/* Each of the 64 bits counts. */
static void every_seed_is_another(void **state)
{
    static const char *const seeds[] = {
        "0", "9007199254740992", "-1", "9007199254740991", "9223372036854775807", "-9223372036854775808"};
    json_t *texts[ARRAY_LEN(seeds)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(seeds); i++) {
        char body[BODY_MAX];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"The \",\"max_tokens\":60,\"seed\":%s}", seeds[i]);
        texts[i] = complete(body);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(text(texts[i], 0), text(texts[k], 0));
    }
    for (size_t i = 0; i < ARRAY_LEN(seeds); i++)
        json_decref(texts[i]);
}

/* What may be drawn, seen in the text: no e, three bytes only, no broken character where all without it are noise. */
static void what_may_not_be_drawn_is_not_there(void **state)
{
    static const char hot[] = "{\"prompt\":\"\",\"seed\":3,\"max_tokens\":2000,\"temperature\":100%s}";
    char body[BODY_MAX];
    (void)state;
    json_t *whole = complete("{\"prompt\":\"The \",\"max_tokens\":2000,\"logit_bias\":{\"101\":-100}}");
    assert_null(strchr(text(whole, 0), 'e'));
    json_decref(whole);
    whole = complete("{\"prompt\":\"The \",\"max_tokens\":2000,\"allowed_bytes\":\"ab \"}");
    assert_int_equal(strspn(text(whole, 0), "ab "), 2000);
    json_decref(whole);
    (void)snprintf(body, sizeof body, hot, "");
    whole = complete(body);
    assert_non_null(strstr(text(whole, 0), "\xef\xbf\xbd"));
    json_decref(whole);
    (void)snprintf(body, sizeof body, hot, ",\"utf8\":true,\"logit_bias\":{\"0\":-100}");
    whole = complete(body);
    assert_null(strstr(text(whole, 0), "\xef\xbf\xbd"));
    json_decref(whole);
}

static double mean_logprob(const json_t *one)
{
    const json_t *numbers = json_object_get(json_object_get(one, "logprobs"), "token_logprobs");
    double total = 0.0;
    for (size_t i = 0; i < json_array_size(numbers); i++)
        total += json_number_value(json_array_get(numbers, i));
    return json_array_size(numbers) > 0 ? total / (double)json_array_size(numbers) : -INFINITY;
}

/* The texts of n 8, and of them the two best of each prompt, best first; all eight are paid for. */
static void the_best_of_many_are_returned(void **state)
{
#define MANY "\"prompt\":[\"The c\",\"ab\"],\"max_tokens\":12,\"seed\":9,\"stop\":\"e\""
    (void)state;
    json_t *all = complete("{" MANY ",\"n\":8,\"logprobs\":0}");
    json_t *best = complete("{" MANY ",\"n\":2,\"best_of\":8,\"logprobs\":0}");
    json_t *bare = complete("{" MANY ",\"n\":2,\"best_of\":8,\"echo\":true}");
    assert_int_equal(json_array_size(json_object_get(best, "choices")), 4);
    assert_int_equal(json_array_size(json_object_get(bare, "choices")), 4);
    for (size_t p = 0; p < 2; p++) {
        size_t first = 8 * p, second = 8 * p;
        for (size_t i = 8 * p; i < 8 * p + 8; i++)
            if (mean_logprob(choice(all, i)) > mean_logprob(choice(all, first)))
                first = i;
        second = first == second ? second + 1 : second;
        for (size_t i = 8 * p; i < 8 * p + 8; i++)
            if (i != first && mean_logprob(choice(all, i)) > mean_logprob(choice(all, second)))
                second = i;
        assert_string_equal(text(best, 2 * p), text(all, first));
        assert_string_equal(text(best, 2 * p + 1), text(all, second));
        const char *echoed = text(bare, 2 * p), *prompt = p == 0 ? "The c" : "ab";
        assert_memory_equal(echoed, prompt, strlen(prompt));
        assert_string_equal(echoed + strlen(prompt), text(all, first));
        assert_true(json_is_null(json_object_get(choice(bare, 2 * p), "logprobs")));
    }
    assert_int_equal(json_integer_value(json_object_get(json_object_get(best, "usage"), "completion_tokens")),
                     json_integer_value(json_object_get(json_object_get(all, "usage"), "completion_tokens")));
    json_decref(all);
    json_decref(best);
    json_decref(bare);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *body;
    long status;
    const char *code, *param, *says;
} refused[] = {
    {"{\"model\":\"gpt-3\",\"prompt\":\"a\"}", 404, "not_found", NULL, "gpt-3"},
    {"{\"model\":\"cifar10-aft-conv\",\"prompt\":\"a\"}", 400, "invalid_value", NULL, "cifar10-aft-conv"},
    {"{\"prompt\":1}", 400, "invalid_value", "prompt", "a list of bytes"},
    {"{\"prompt\":[]}", 400, "invalid_value", "prompt", "a list of 0"},
    {"{\"prompt\":[[]]}", 400, "invalid_value", "prompt", "a list"},
    {"{\"prompt\":[256]}", 400, "invalid_value", "prompt", "0 to 255"},
    {"{\"prompt\":[-1]}", 400, "invalid_value", "prompt", "0 to 255"},
    {"{\"prompt\":[\"a\",[97]]}", 400, "invalid_value", "prompt", "a list"},
    {"{\"prompt\":[[97],98]}", 400, "invalid_value", "prompt", "a list"},
    {"{\"prompt\":[true]}", 400, "invalid_value", "prompt", "a list"},
    {"{\"prompt\":[\"a\",\"b\"],\"n\":33}", 400, "invalid_value", "n", "66 texts"},
    {"{\"prompt\":[\"a\",\"b\"],\"best_of\":33}", 400, "invalid_value", "best_of", "66 texts"},
    {"{\"best_of\":64,\"max_tokens\":5000}", 400, "invalid_value", "best_of", "320000 bytes"},
    {"{\"n\":3,\"best_of\":2}", 400, "invalid_value", "best_of", "at least as many"},
    {"{\"best_of\":2,\"stream\":true}", 400, "invalid_value", "best_of", "when all are written"},
    {"{\"best_of\":65}", 400, "invalid_value", "best_of", "from 1 to 64"},
    {"{\"presence_penalty\":-2.5}", 400, "invalid_value", "presence_penalty", "-2 to 2"},
    {"{\"frequency_penalty\":3}", 400, "invalid_value", "frequency_penalty", "-2 to 2"},
    {"{\"logit_bias\":{\"50256\":-100}}", 400, "invalid_value", "logit_bias", "\"255\""},
    {"{\"logit_bias\":{\"97\":1,\"98\":-101}}", 400, "invalid_value", "logit_bias", "has \"98\": -101; expected"},
    {"{\"store\":true}", 400, "invalid_value", "store", "nothing is stored here"},
    {"{\"service_tier\":\"flex\"}", 400, "invalid_value", "service_tier", "\"auto\""},
    {"{\"allowed_bytes\":[195],\"utf8\":true}", 400, "invalid_value", "allowed_bytes", "no character of UTF-8"},
    {"{\"suffix\":\"x\"}", 400, "invalid_value", "suffix", "only continue texts"},
    {"{\"stream_options\":{\"include_usage\":true}}", 400, "invalid_value", "stream_options", "not streamed"},
    {"{\"stream\":true,\"stream_options\":{\"usage\":true}}", 400, "invalid_value", "stream_options", "include_usage"},
    {"{\"stream\":true,\"stream_options\":true}", 400, "invalid_value", "stream_options", "an object"},
    {"{\"seed\":1.5}", 400, "invalid_value", "seed", "a whole number from -2^63 to 2^63 - 1"},
    {"{\"seed\":18446744073709551615}", 400, "invalid_value", "seed", "-2^63 to 2^63 - 1"},
    {"{\"logprobs\":true}", 400, "invalid_value", "logprobs", "0 to 20"},
    {"{\"logprobs\":21}", 400, "invalid_value", "logprobs", "0 to 20"},
    {"{\"max_tokens\":-1}", 400, "invalid_value", "max_tokens", "from 0"},
    {"{\"priority\":\"urgent\"}", 400, "invalid_value", "priority", "\"high\""},
    {"{\"context_overflow\":\"slide\"}", 400, "invalid_value", "context_overflow", "\"shift\""},
    {"{\"timeout_ms\":0}", 400, "invalid_value", "timeout_ms", "from 1"},
    {"{\"messages\":[]}", 400, "invalid_value", "messages", "no field"},
    {"{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}", 400, "invalid_value", "stop", "at most 8"},
    {"nonsense", 400, "invalid_value", NULL, "not valid JSON"},
};

static void what_is_not_done_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct reply r;
        print_message("  %s\n", refused[i].body);
        post(refused[i].body, &r);
        reply_assert_error(&r, refused[i].status, refused[i].code, refused[i].param, refused[i].says);
        reply_clear(&r);
    }
}

/* A prompt beyond the context ends no text, and is told of; "stop" ends it, as it was asked to. */
static void a_long_prompt_does_not_end_the_text(void **state)
{
    enum { PROMPT = 5000, ASKED = 50, CONTEXT = 512 };
    char prompt[PROMPT + 1], body[PROMPT + 128];
    (void)state;
    for (size_t i = 0; i < PROMPT; i++)
        prompt[i] = "The history of "[i % 15];
    prompt[PROMPT] = '\0';
    for (int stops = 0; stops < 2; stops++) {
        (void)snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":%d,\"seed\":1%s}", prompt, ASKED,
                       stops == 1 ? ",\"context_overflow\":\"stop\"" : "");
        json_t *whole = complete(body);
        const json_t *usage = json_object_get(whole, "usage");
        assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), stops == 1 ? 2 : ASKED);
        assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), PROMPT);
        assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens_dropped")),
                         PROMPT - (stops == 1 ? CONTEXT - 1 : CONTEXT / 2));
        assert_string_equal(json_string_value(json_object_get(choice(whole, 0), "finish_reason")), "length");
        json_decref(whole);
    }
}

/* Or it is refused; and where it is cut, a header tells so in every API, of streams too. */
static void a_long_prompt_may_be_refused(void **state)
{
    enum { PROMPT = 600 };
    static const struct {
        const char *path, *rest;
        long dropped; /* -1: refused */
    } cases[] = {
        {"/v1/completions", "", PROMPT - 256},
        {"/v1/completions", ",\"stream\":true", PROMPT - 256},
        {"/v1/completions", ",\"context_overflow\":\"stop\"", PROMPT - 511},
        {"/v1/completions", ",\"context_overflow\":\"refuse\"", -1},
        {"/generate", ",\"stream\":true", PROMPT - 256},
        {"/generate", ",\"context_overflow\":\"refuse\"", -1},
        {"/v1/sessions", ",\"context_overflow\":\"refuse\"", -1},
    };
    char prompt[PROMPT + 1];
    (void)state;
    memset(prompt, 'a', PROMPT);
    prompt[PROMPT] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char body[PROMPT + 256], value[16] = "";
        struct reply r;
        const bool makes_text = strcmp(cases[i].path, "/v1/sessions") != 0;
        const int size = snprintf(body, sizeof body, "{\"prompt\":\"%s\"%s%s}", prompt,
                                  makes_text ? ",\"max_tokens\":1" : "", cases[i].rest);
        client_call(
            &daemon_under_test,
            &(struct request){.path = cases[i].path, .type = "application/json", .body = body, .size = (size_t)size},
            &r);
        if (cases[i].dropped < 0)
            reply_assert_error(&r, 400, "invalid_value", "prompt", "has 600 bytes, of which the context of");
        else
            assert_int_equal(r.status, 200);
        (void)reply_header(&r, "X-Prompt-Tokens-Dropped", value, sizeof value);
        assert_int_equal(strtol(value, NULL, 10), cases[i].dropped < 0 ? 0 : cases[i].dropped);
        reply_clear(&r);
    }
    (void)snprintf(prompt, sizeof prompt, "{\"prompt\":\"The \",\"max_tokens\":5,\"context_overflow\":\"refuse\"}");
    json_decref(complete(prompt));
}

/* As for /generate. */
static void a_deadline_of_its_own_ends_a_text(void **state)
{
    (void)state;
    struct reply r = {.status = 408};
    for (int ms = 100; r.status == 408; ms *= 2) { /* until there is time for a first byte */
        char body[128];
        reply_clear(&r);
        (void)snprintf(body, sizeof body,
                       "{\"prompt\":\"a\",\"max_tokens\":65536,\"timeout_ms\":%d,\"priority\":\"low\"}", ms);
        post(body, &r);
    }
    assert_int_equal(r.status, 200);
    json_t *whole = reply_json(&r);
    reply_clear(&r);
    const json_t *usage = json_object_get(whole, "usage");
    assert_true(json_integer_value(json_object_get(usage, "completion_tokens")) < 65536);
    json_decref(whole);
}

static void too_many_prompts_are_refused(void **state)
{
    char body[BODY_MAX];
    size_t at = (size_t)snprintf(body, sizeof body, "{\"prompt\":[\"a\"");
    struct reply r;
    (void)state;
    for (int i = 1; i < 65; i++)
        at += (size_t)snprintf(body + at, sizeof body - at, ",\"a\"");
    (void)snprintf(body + at, sizeof body - at, "]}");
    post(body, &r);
    reply_assert_error(&r, 400, "invalid_value", "prompt", "at most 64");
    reply_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_has_every_field_and_the_text_of_generate),
        cmocka_unit_test(prompts_come_in_four_forms),
        cmocka_unit_test(an_echo_tells_every_byte_of_the_prompt),
        cmocka_unit_test(nulls_are_as_if_left_out),
        cmocka_unit_test(what_best_of_scores_has_a_bound),
        cmocka_unit_test(a_prompt_of_many_bytes_is_taken),
        cmocka_unit_test(a_stream_is_the_answer_in_chunks),
        cmocka_unit_test(a_model_is_described_by_name),
        cmocka_unit_test(options_do_what_they_do_in_generate),
        cmocka_unit_test(every_seed_is_another),
        cmocka_unit_test(what_may_not_be_drawn_is_not_there),
        cmocka_unit_test(the_best_of_many_are_returned),
        cmocka_unit_test(what_is_not_done_is_named),
        cmocka_unit_test(a_long_prompt_may_be_refused),
        cmocka_unit_test(a_long_prompt_does_not_end_the_text),
        cmocka_unit_test(a_deadline_of_its_own_ends_a_text),
        cmocka_unit_test(too_many_prompts_are_refused),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
