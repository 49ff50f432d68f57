/* test_chat_refused.c - what POST /v1/chat/completions refuses, and where it says that the fault lies: a model that
 * knows no conversations, messages of other kinds, what is not done here, too much. The real daemon. */
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

enum { LIMIT_S = 580 };

static int start(void **state)
{
    const int failed = administration_set_up(state);
    model_variants_write_chat(models_folder, "chat", GOLDEN "lm-local-8", "A: ", "\n");
    model_variants_link(models_folder, GOLDEN, "lm-simple");
    model_variants_link(models_folder, GOLDEN, "text-attention");
    administration_start(NULL, NULL);
    return failed;
}

static void post(const char *body, struct reply *r)
{
    const struct request request = {
        .path = "/v1/chat/completions", .type = "application/json", .body = body, .size = strlen(body)};
    client_call(&administered, &request, r);
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

#define MESSAGES(text) "{\"model\":\"chat\",\"messages\":" text "}"
#define WITH(field) "{\"model\":\"chat\"," HELLO "," field "}"
static const struct {
    const char *body;
    long status;
    const char *code, *param, *says;
} refusals[] = {
    {"{\"model\":\"lm-simple\"," HELLO "}", 404, "not_found", "model",
     "the model \"lm-simple\" continues a text; it has no chat_template"},
    {"{\"model\":\"lm-simple\"," HELLO ",\"stream\":true}", 404, "not_found", "model",
     "POST the text to /v1/completions or /generate"},
    {"{\"model\":\"gone\"," HELLO "}", 404, "not_found", "model", "gone"},
    {"{\"model\":\"text-attention\"," HELLO "}", 400, "invalid_value", "model", NULL},
    {"{\"model\":\"chat\"}", 400, "invalid_value", "messages", "\"messages\" is missing; expected a list of 1 to 1024"},
    {"{\"model\":\"chat\",\"messages\":null}", 400, "invalid_value", "messages", "\"messages\" is missing"},
    {"{\"model\":\"chat\",\"prompt\":\"a\"}", 400, "invalid_value", "prompt", "there is no field \"prompt\""},
    {MESSAGES("\"Hello\""), 400, "invalid_value", "messages", "is a string (\"Hello\"); expected a list of 1 to 1024"},
    {MESSAGES("[]"), 400, "invalid_value", "messages", "is a list of 0"},
    {MESSAGES("[{\"role\":\"user\",\"content\":\"a\"},5]"), 400, "invalid_value", "messages[1]", "is 5"},
    {MESSAGES("[{\"content\":\"a\"}]"), 400, "invalid_value", "messages[0].role", "missing; expected \"system\""},
    {MESSAGES("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"a\"}]"), 400, "invalid_value",
     "messages[1].role", "\"messages[1].role\" is a string (\"tool\"); expected \"system\", \"developer\""},
    {MESSAGES("[{\"role\":\"user\"}]"), 400, "invalid_value", "messages[0].content", "missing; expected a string"},
    {MESSAGES("[{\"role\":\"assistant\",\"content\":null}]"), 400, "invalid_value", "messages[0].content", "null"},
    {MESSAGES("[{\"role\":\"user\",\"content\":[]}]"), 400, "invalid_value", "messages[0].content", "a list of 0"},
    {MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\","
              "\"image_url\":{\"url\":\"x\"}}]}]"),
     400, "invalid_value", "messages[0].content[1]", "is of the type \"image_url\"; expected {\"type\": \"text\""},
    {MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]"), 400, "invalid_value",
     "messages[0].content[0]", "expected {\"type\": \"text\""},
    {MESSAGES("[{\"role\":\"user\",\"content\":[\"a\"]}]"), 400, "invalid_value", "messages[0].content[0]", "\"a\""},
    {MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"name\":5}]"), 400, "invalid_value", "messages[0].name",
     "tools and sounds are not done"},
    {MESSAGES("[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]"), 400, "invalid_value",
     "messages[0].tool_calls", "is a list of 1; expected nothing but \"role\", \"content\" and \"name\""},
    {WITH("\"tools\":[{\"type\":\"function\"}]"), 400, "invalid_value", "tools", "no tools are called here"},
    {WITH("\"tool_choice\":\"required\""), 400, "invalid_value", "tool_choice", "no tools are called here"},
    {WITH("\"functions\":[{}]"), 400, "invalid_value", "functions", "no functions are called here"},
    {WITH("\"function_call\":{\"name\":\"x\"}"), 400, "invalid_value", "function_call", "no functions are called here"},
    {WITH("\"response_format\":{\"type\":\"json_object\"}"), 400, "invalid_value", "response_format",
     "expected null or {\"type\": \"text\"}"},
    {WITH("\"modalities\":[\"text\",\"audio\"]"), 400, "invalid_value", "modalities", "the answer is text"},
    {WITH("\"audio\":{\"voice\":\"ash\"}"), 400, "invalid_value", "audio", "expected null: the answer is text"},
    {WITH("\"max_tokens\":0"), 400, "invalid_value", "max_tokens", "from 1 to"},
    {WITH("\"max_tokens\":5,\"max_completion_tokens\":6"), 400, "invalid_value", "max_tokens", "two names of the same"},
    {WITH("\"top_logprobs\":5"), 400, "invalid_value", "top_logprobs", "expected \"logprobs\": true"},
    {WITH("\"logprobs\":5"), 400, "invalid_value", "logprobs", "true or false"},
    {WITH("\"logprobs\":true,\"top_logprobs\":21"), 400, "invalid_value", "top_logprobs", "0 to 20"},
    {WITH("\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]"), 400, "invalid_value", "stop", "at most 4 strings"},
    {WITH("\"stream_options\":{\"include_usage\":true}"), 400, "invalid_value", "stream_options", "\"stream\": true"},
    {WITH("\"best_of\":2"), 400, "invalid_value", "best_of", "there is no field"},
    {WITH("\"n\":65"), 400, "invalid_value", "n", "1 to 64"},
};

static void a_refusal_names_what_was_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        struct reply r;
        post(refusals[i].body, &r);
        if (r.status != refusals[i].status)
            fail_msg("%s: %ld %s", refusals[i].body, r.status, r.body);
        reply_assert_error(&r, refusals[i].status, refusals[i].code, refusals[i].param, refusals[i].says);
        reply_clear(&r);
    }
}

/* `count` messages whose content is `size` times the letter x. */
static void ask_many(size_t count, size_t size, struct reply *r)
{
    char *body = malloc(count * (size + 40) + 64), *at = body;
    assert_non_null(body);
    at += sprintf(at, "{\"model\":\"chat\",\"max_tokens\":1,\"messages\":[");
    for (size_t i = 0; i < count; i++) {
        at += sprintf(at, "%s{\"role\":\"user\",\"content\":\"", i > 0 ? "," : "");
        memset(at, 'x', size);
        at += size;
        at += sprintf(at, "\"}");
    }
    (void)sprintf(at, "]}");
    post(body, r);
    free(body);
}

static void messages_have_bounds(void **state)
{
    enum { FRAME = sizeof("Q: \n") - 1, REPLY = sizeof("A: ") - 1, MOST = 1048576 };
    static const struct {
        size_t count, size;
        long status;
        const char *says;
    } rows[] = {
        {1024, 1, 200, NULL},
        {1025, 1, 400, "is a list of 1025; expected a list of 1 to 1024"},
        {1, MOST - FRAME - REPLY, 200, NULL},
        {1, MOST - FRAME - REPLY + 1, 400, "a prompt of 1048577 bytes by the chat_template of \"chat\""},
        {2, MOST / 2, 400, "a prompt of 1048587 bytes"},
        {2, MOST / 2 + 1, 400, "have more than 1048576 bytes"},
        {1, MOST + 1, 400, "have more than 1048576 bytes"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct reply r;
        ask_many(rows[i].count, rows[i].size, &r);
        if (r.status != rows[i].status)
            fail_msg("%zu messages of %zu bytes: %ld %.300s", rows[i].count, rows[i].size, r.status, r.body);
        if (r.status != 200)
            reply_assert_error(&r, 400, "invalid_value", "messages", rows[i].says);
        reply_clear(&r);
    }
}

int main(void)
{
    test_limit_s(LIMIT_S);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_names_what_was_wrong),
        cmocka_unit_test(messages_have_bounds),
    };
    return cmocka_run_group_tests_name("chat, refused", tests, start, administration_tear_down);
}
