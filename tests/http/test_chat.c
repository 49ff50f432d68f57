/* test_chat.c - POST /v1/chat/completions: a model with a chat_template continues the prompt that this makes of the
 * messages, as /generate does, whole and in chunks. The real daemon with a golden model that was given a template.
 * Refusals are in test_chat_refused.c; what OpenAI's own clients make of it is in tests/clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/model_variants.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GOLDEN "tests/data/golden/"
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]"
#define HELLO_PROMPT "Q: Hello\nA: "

enum { LIMIT_S = 580, TEXTS_MAX = 4 };

static int start(void **state)
{
    const int failed = administration_set_up(state);
    model_variants_write_chat(models_folder, "chat", GOLDEN "lm-local-8", "A: ", "\n");
    administration_start(NULL, NULL);
    return failed;
}

static void post(const char *path, const char *body, struct reply *r)
{
    const struct request request = {.path = path, .type = "application/json", .body = body, .size = strlen(body)};
    client_call(&administered, &request, r);
}

/* The answer to a request that is accepted, as JSON. */
static json_t *ask(const char *path, const char *body)
{
    struct reply r;
    post(path, body, &r);
    if (r.status != 200)
        fail_msg("%s: %ld %s", body, r.status, r.body);
    json_t *whole = reply_json(&r);
    reply_clear(&r);
    return whole;
}

static json_t *chat(const char *body)
{
    return ask("/v1/chat/completions", body);
}

static json_t *choice(const json_t *whole, size_t i)
{
    json_t *one = json_array_get(json_object_get(whole, "choices"), i);
    assert_non_null(one);
    assert_int_equal(json_integer_value(json_object_get(one, "index")), i);
    return one;
}

static json_t *content(const json_t *whole, size_t i)
{
    return json_object_get(json_object_get(choice(whole, i), "message"), "content");
}

static const char *finish(const json_t *whole, size_t i)
{
    return json_string_value(json_object_get(choice(whole, i), "finish_reason"));
}

static json_int_t usage(const json_t *whole, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(whole, "usage"), key));
}

/* What /generate makes of a prompt [size] with the template's stop string and some more fields: ",..." or "". */
static json_t *generate(const char *prompt, size_t size, const char *fields)
{
    json_t *text = json_stringn(prompt, size);
    char *quoted = json_dumps(text, JSON_ENCODE_ANY), *body = NULL;
    assert_non_null(quoted);
    assert_true(asprintf(&body, "{\"model\":\"chat\",\"prompt\":%s%s}", quoted, fields) > 0);
    json_t *whole = ask("/generate", body);
    free(body);
    free(quoted);
    json_decref(text);
    return whole;
}

/* ---- whole answers ---------------------------------------------------------------------------------------------- */

static void an_answer_has_every_field(void **state)
{
    const char *id, *model, *fingerprint, *text, *finished;
    json_int_t created;
    json_error_t fault;
    int prompt, completion, total, dropped, cached;
    (void)state;
    json_t *whole = chat("{\"model\":\"chat\"," HELLO ",\"seed\":4,\"max_tokens\":7,\"allowed_bytes\":\"ab\"}");
    if (json_unpack_ex(whole, &fault, JSON_STRICT,
                       "{s:s, s:s, s:I, s:s, s:[{s:i, s:{s:s, s:s, s:n}, s:n, s:s}], s:s, s:{s:i, s:i, s:i, s:i, "
                       "s:{s:i}}}",
                       "id", &id, "object", &text, "created", &created, "model", &model, "choices", "index", &total,
                       "message", "role", &finished, "content", &text, "refusal", "logprobs", "finish_reason",
                       &finished, "system_fingerprint", &fingerprint, "usage", "prompt_tokens", &prompt,
                       "completion_tokens", &completion, "total_tokens", &total, "prompt_tokens_dropped", &dropped,
                       "prompt_tokens_details", "cached_tokens", &cached) != 0)
        fail_msg("not a chat.completion: %s", fault.text);
    assert_string_equal(json_string_value(json_object_get(whole, "object")), "chat.completion");
    assert_string_equal(json_string_value(json_object_get(json_object_get(choice(whole, 0), "message"), "role")),
                        "assistant");
    assert_memory_equal(id, "chatcmpl-", 9);
    assert_string_equal(model, "chat");
    assert_string_equal(finished, "length");
    assert_int_equal(strspn(text, "ab"), 7);
    assert_int_equal(prompt, sizeof HELLO_PROMPT - 1);
    assert_int_equal(completion, 7);
    assert_int_equal(total, prompt + completion);
    json_decref(whole);
}

static const struct {
    const char *messages, *prompt; /* prompt_size 0: as long as it looks */
    size_t prompt_size;
} conversations[] = {
    {"[{\"role\":\"user\",\"content\":\"Hello\"}]", HELLO_PROMPT, 0},
    {"[{\"role\":\"system\",\"content\":\"brief\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
     "\"content\":\"b\"},{\"role\":\"user\",\"content\":\"c\"}]",
     "Be: brief\nQ: a\nA: b\nQ: c\nA: ", 0},
    {"[{\"role\":\"developer\",\"content\":\"brief\"},{\"content\":\"\",\"role\":\"user\"}]", "Be: brief\nQ: \nA: ", 0},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"H\\u00e9\"},{\"text\":\"l\\u0000lo\\n\",\"type\":"
     "\"text\"}]}]",
     "Q: H\xc3\xa9l\0lo\n\nA: ", 15},
    {"[{\"role\":\"assistant\",\"content\":\"Q: "
     "{content}\",\"refusal\":null,\"tool_calls\":[],\"annotations\":[],\"name\":\"Q\"}]",
     "A: Q: {content}\nA: ", 0}, /* as clients send an answer back */
};

/* The prompt is exactly the text that /generate would be given: the same bytes come, as their numbers show. */
static void a_conversation_is_continued_as_its_text_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(conversations); i++) {
        const char *prompt = conversations[i].prompt;
        const size_t size = conversations[i].prompt_size > 0 ? conversations[i].prompt_size : strlen(prompt);
        char *body = NULL;
        assert_true(asprintf(&body,
                             "{\"model\":\"chat\",\"messages\":%s,\"seed\":%zu,\"max_tokens\":25,\"temperature\":0.9,"
                             "\"logprobs\":true,\"top_logprobs\":2,\"logit_bias\":{\"10\":-100}}",
                             conversations[i].messages, i) > 0);
        char fields[200];
        (void)snprintf(
            fields, sizeof fields,
            ",\"seed\":%zu,\"max_tokens\":25,\"temperature\":0.9,\"logprobs\":2,\"logit_bias\":{\"10\":-100}", i);
        json_t *whole = chat(body), *same = generate(prompt, size, fields);
        assert_true(json_equal(content(whole, 0), json_object_get(same, "text")) == 1);
        assert_int_equal(usage(whole, "prompt_tokens"), size);
        const json_t *told = json_object_get(json_object_get(choice(whole, 0), "logprobs"), "content");
        const json_t *bytes = json_object_get(same, "logprobs");
        assert_int_equal(json_array_size(told), 25);
        assert_int_equal(json_array_size(bytes), 25);
        for (size_t k = 0; k < 25; k++) {
            const json_t *one = json_array_get(told, k), *other = json_array_get(bytes, k);
            assert_true(json_equal(json_array_get(json_object_get(one, "bytes"), 0), json_object_get(other, "byte")));
            assert_true(json_equal(json_object_get(one, "logprob"), json_object_get(other, "logprob")));
            assert_int_equal(json_array_size(json_object_get(one, "top_logprobs")), 2);
        }
        json_decref(whole);
        json_decref(same);
        free(body);
    }
}

/* The template's stop string ends an answer, and so do the request's own. */
static void stop_strings_are_the_templates_and_the_requests(void **state)
{
#define LETTERS "\"seed\":3,\"max_tokens\":400,\"temperature\":3"
    (void)state;
    json_t *whole = chat("{\"model\":\"chat\"," HELLO "," LETTERS ",\"allowed_bytes\":\"ab\\n\"}");
    json_t *same =
        generate(HELLO_PROMPT, sizeof HELLO_PROMPT - 1, ",\"stop\":\"\\n\"," LETTERS ",\"allowed_bytes\":\"ab\\n\"");
    assert_string_equal(finish(whole, 0), "stop");
    assert_true(json_equal(content(whole, 0), json_object_get(same, "text")) == 1);
    assert_null(strchr(json_string_value(content(whole, 0)), '\n'));
    json_decref(whole);
    json_decref(same);
    whole = chat("{\"model\":\"chat\"," HELLO "," LETTERS ",\"allowed_bytes\":\"ab\",\"stop\":[\"abab\",\"x\",\"y\","
                 "\"bb\"]}");
    same = generate(HELLO_PROMPT, sizeof HELLO_PROMPT - 1,
                    ",\"stop\":[\"abab\",\"bb\"]," LETTERS ",\"allowed_bytes\":\"ab\"");
    assert_string_equal(finish(whole, 0), "stop");
    assert_true(json_equal(content(whole, 0), json_object_get(same, "text")) == 1);
    json_decref(whole);
    json_decref(same);
}

static void the_length_has_two_names_and_a_default(void **state)
{
    static const struct {
        const char *fields;
        json_int_t tokens;
    } rows[] = {
        {"", 256}, /* the setting max_tokens */
        {",\"max_tokens\":9", 9},
        {",\"max_completion_tokens\":8,\"max_tokens\":null", 8},
        {",\"max_completion_tokens\":7,\"max_tokens\":7", 7},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char body[300];
        (void)snprintf(body, sizeof body, "{\"model\":\"chat\"," HELLO ",\"logit_bias\":{\"10\":-100}%s}",
                       rows[i].fields);
        json_t *whole = chat(body);
        assert_int_equal(usage(whole, "completion_tokens"), rows[i].tokens);
        assert_string_equal(finish(whole, 0), "length");
        json_decref(whole);
    }
}

static void options_do_what_they_do_in_generate(void **state)
{
    static const char *const options[] = {
        "\"top_k\":3",
        "\"top_p\":0.5,\"min_p\":0.01",
        "\"presence_penalty\":2",
        "\"frequency_penalty\":1.5,\"temperature\":0.7",
        "\"repetition_penalty\":1.5",
        "\"logit_bias\":{\"101\":-100,\"32\":3}",
        "\"allowed_bytes\":[97,98,195,169],\"utf8\":true,\"temperature\":5",
        "\"context_overflow\":\"stop\"",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        char body[400], fields[300];
        (void)snprintf(fields, sizeof fields, ",\"stop\":\"\\n\",\"seed\":3,\"max_tokens\":100,%s", options[i]);
        (void)snprintf(body, sizeof body, "{\"model\":\"chat\"," HELLO "%s}", strstr(fields, ",\"seed\""));
        json_t *whole = chat(body), *same = generate(HELLO_PROMPT, sizeof HELLO_PROMPT - 1, fields);
        if (json_equal(content(whole, 0), json_object_get(same, "text")) != 1)
            fail_msg("%s: another text than /generate's", options[i]);
        json_decref(whole);
        json_decref(same);
    }
}

/* Of 48 bytes of context: what does not fit is told. */
static void a_long_conversation_shifts_and_tells(void **state)
{
    enum { LONG = 300 };
    char body[2 * LONG], prompt[2 * LONG], letters[LONG + 1];
    (void)state;
    memset(letters, 'x', LONG);
    letters[LONG] = '\0';
    (void)snprintf(
        body, sizeof body,
        "{\"model\":\"chat\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"seed\":1,\"max_tokens\":90}",
        letters);
    const int size = snprintf(prompt, sizeof prompt, "Q: %s\nA: ", letters);
    json_t *whole = chat(body),
           *same = generate(prompt, (size_t)size, ",\"seed\":1,\"max_tokens\":90,\"stop\":\"\\n\"");
    assert_true(json_equal(content(whole, 0), json_object_get(same, "text")) == 1);
    assert_true(usage(whole, "prompt_tokens_dropped") > LONG / 2);
    assert_int_equal(usage(whole, "prompt_tokens_dropped"), usage(same, "prompt_tokens_dropped"));
    assert_int_equal(usage(whole, "prompt_tokens"), size);
    json_decref(whole);
    json_decref(same);
}

static void what_asks_for_nothing_is_as_if_left_out(void **state)
{
    (void)state;
    json_t *plain = chat("{\"model\":\"chat\"," HELLO ",\"seed\":1}");
    json_t *nulls = chat("{\"model\":\"chat\"," HELLO ",\"seed\":1,\"frequency_penalty\":null,\"logit_bias\":null,"
                         "\"logprobs\":false,\"top_logprobs\":null,\"max_tokens\":null,\"max_completion_tokens\":null,"
                         "\"n\":null,\"presence_penalty\":0,\"stop\":null,\"stream\":false,\"stream_options\":null,"
                         "\"temperature\":1,\"top_p\":null,\"user\":\"me\",\"tools\":[],\"tool_choice\":\"none\","
                         "\"functions\":null,\"function_call\":null,\"response_format\":{\"type\":\"text\"},"
                         "\"modalities\":[\"text\"],\"audio\":null,\"parallel_tool_calls\":true,\"store\":false,"
                         "\"metadata\":{},\"service_tier\":\"default\",\"reasoning_effort\":null}");
    assert_true(json_equal(content(plain, 0), content(nulls, 0)) == 1);
    json_decref(plain);
    json_decref(nulls);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

/* What the chunks of a stream come to. */
struct gathered {
    json_t *texts[TEXTS_MAX]; /* strings */
    size_t logprobs[TEXTS_MAX], chunks[TEXTS_MAX];
    char finish[TEXTS_MAX][16];
    json_t *usage;
    bool done;
};

static void gather_choice(struct gathered *g, const json_t *one)
{
    const size_t i = (size_t)json_integer_value(json_object_get(one, "index"));
    assert_true(i < TEXTS_MAX && g->finish[i][0] == '\0' && g->usage == NULL);
    const json_t *delta = json_object_get(one, "delta"), *text = json_object_get(delta, "content");
    const char *role = json_string_value(json_object_get(delta, "role"));
    const char *finished = json_string_value(json_object_get(one, "finish_reason"));
    assert_true((role != NULL) == (g->chunks[i]++ == 0));
    if (role != NULL) {
        assert_string_equal(role, "assistant");
        assert_string_equal(json_string_value(text), "");
        assert_true(json_is_null(json_object_get(delta, "refusal")));
        g->texts[i] = json_string("");
    } else if (finished != NULL) {
        assert_int_equal(json_object_size(delta), 0);
        (void)snprintf(g->finish[i], sizeof g->finish[i], "%s", finished);
    } else {
        assert_int_equal(json_object_size(delta), 1);
        assert_true(json_string_length(text) > 0);
        json_t *longer = json_sprintf("%s%s", json_string_value(g->texts[i]), json_string_value(text));
        json_decref(g->texts[i]);
        g->texts[i] = longer;
    }
    g->logprobs[i] += json_array_size(json_object_get(json_object_get(one, "logprobs"), "content"));
}

static void gather(struct gathered *g, const char *body, bool with_usage)
{
    struct reply r;
    memset(g, 0, sizeof *g);
    post("/v1/chat/completions", body, &r);
    assert_int_equal(r.status, 200);
    for (char *line = strtok(r.body, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_false(g->done);
        assert_memory_equal(line, "data: ", 6);
        g->done = strcmp(line, "data: [DONE]") == 0;
        if (g->done)
            continue;
        json_t *chunk = json_loads(line + 6, 0, NULL);
        const json_t *choices = json_object_get(chunk, "choices");
        assert_string_equal(json_string_value(json_object_get(chunk, "object")), "chat.completion.chunk");
        assert_true((json_object_get(chunk, "usage") != NULL) == with_usage);
        assert_true(json_array_size(choices) <= 1);
        if (json_array_size(choices) == 1)
            gather_choice(g, json_array_get(choices, 0));
        else
            g->usage = json_incref(json_object_get(chunk, "usage"));
        json_decref(chunk);
    }
    assert_true(g->done);
    reply_clear(&r);
}

static void a_stream_is_the_answer_in_chunks(void **state)
{
    static const char *const asked[] = {
        "{\"model\":\"chat\"," HELLO ",\"seed\":2,\"max_tokens\":40,\"utf8\":true,\"logit_bias\":{\"0\":-100}%s}",
        "{\"model\":\"chat\"," HELLO ",\"seed\":2,\"n\":3,\"max_tokens\":60,\"logprobs\":true,\"temperature\":2,"
        "\"allowed_bytes\":\"ab\\n\"%s}",
        "{\"model\":\"chat\"," HELLO ",\"seed\":5,\"max_tokens\":60,\"allowed_bytes\":\"\\n\"%s}", /* an empty text */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        char body[500];
        struct gathered g;
        (void)snprintf(body, sizeof body, asked[i], "");
        json_t *whole = chat(body);
        const size_t count = json_array_size(json_object_get(whole, "choices"));
        for (int with_usage = 0; with_usage < 2; with_usage++) {
            (void)snprintf(body, sizeof body, asked[i],
                           with_usage ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                                      : ",\"stream\":true");
            gather(&g, body, with_usage);
            assert_true((g.usage != NULL) == with_usage);
            assert_true(g.usage == NULL ||
                        json_integer_value(json_object_get(g.usage, "total_tokens")) == usage(whole, "total_tokens"));
            for (size_t k = 0; k < TEXTS_MAX; k++) {
                assert_true((g.texts[k] != NULL) == (k < count));
                if (k >= count)
                    continue;
                const json_t *told = json_object_get(choice(whole, k), "logprobs");
                assert_string_equal(json_string_value(g.texts[k]), json_string_value(content(whole, k)));
                assert_string_equal(g.finish[k], finish(whole, k));
                assert_int_equal(g.logprobs[k], json_array_size(json_object_get(told, "content")));
                json_decref(g.texts[k]);
            }
            json_decref(g.usage);
        }
        json_decref(whole);
    }
}

int main(void)
{
    test_limit_s(LIMIT_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_has_every_field),
        cmocka_unit_test(a_conversation_is_continued_as_its_text_is),
        cmocka_unit_test(stop_strings_are_the_templates_and_the_requests),
        cmocka_unit_test(the_length_has_two_names_and_a_default),
        cmocka_unit_test(options_do_what_they_do_in_generate),
        cmocka_unit_test(a_long_conversation_shifts_and_tells),
        cmocka_unit_test(what_asks_for_nothing_is_as_if_left_out),
        cmocka_unit_test(a_stream_is_the_answer_in_chunks),
    };
    return cmocka_run_group_tests_name("chat", tests, start, administration_tear_down);
}
