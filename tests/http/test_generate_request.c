/* test_generate_request.c - what POST /generate refuses: every field of a wrong kind or out of its range, unknown
 * fields, bodies that are no JSON; each answer names the field and says what is expected. The real daemon. */
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
#include "tests/support/program.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define S10 "ssssssssss"
#define S64 S10 S10 S10 S10 S10 S10 "ssss"

enum { LIMIT_S = 580 };

static struct daemon aftd;

static int start(void **state)
{
    (void)state;
    daemon_start(
        &aftd, (const char *const[]){"--max-tokens-max=5000", "--timeout-ms=100000", "--timeout-ms-max=100000", NULL});
    return 0;
}

static void post(const char *body, size_t size, const char *type, struct reply *ret)
{
    const struct request r = {.path = "/generate", .type = type, .body = body, .size = size};
    client_call(&aftd, &r, ret);
}

/* ---- fields ---------------------------------------------------------------------------------------------------- */

/* A value of each wrong kind, or beyond an end; `says` are two parts of the message: mostly the ends of the range. */
static const struct {
    const char *field, *value, *says[2];
} wrong_fields[] = {
    {"model", "5", {"string", "5"}},
    {"model", "[\"enwik8-aft-local\"]", {"string", "list"}},
    {"model", "\"\"", {"string", "1"}},
    {"prompt", "5", {"string", "5"}},
    {"prompt", "[\"a\"]", {"string", "list"}},
    {"prompt", "{}", {"string", "object"}},
    {"prompt_base64", "5", {"string", "5"}},
    {"prompt_base64", "\"VGhl=\"", {"base64", ""}},
    {"prompt_base64", "\"VA\"", {"base64", ""}},
    {"prompt_base64", "\"VGh\\n\"", {"base64", ""}},
    {"prompt_base64", "\"VG h\"", {"base64", ""}},
    {"prompt_base64", "\"VG-_\"", {"base64", ""}},
    {"prompt_base64", "\"V===\"", {"base64", ""}},
    {"prompt_base64", "\"VA==VA==\"", {"base64", ""}},
    {"max_tokens", "\"5\"", {"whole number", "5000"}},
    {"max_tokens", "1.5", {"whole number", "5000"}},
    {"max_tokens", "0", {"1", "5000"}},
    {"max_tokens", "-1", {"1", "5000"}},
    {"max_tokens", "5001", {"1", "5000"}},
    {"max_tokens", "4294967297", {"1", "5000"}},
    {"max_tokens", "true", {"1", "5000"}},
    {"temperature", "\"1\"", {"0", "100"}},
    {"temperature", "-0.01", {"0", "100"}},
    {"temperature", "100.5", {"0", "100"}},
    {"temperature", "1e300", {"0", "100"}},
    {"temperature", "false", {"0", "100"}},
    {"temperature", "[1]", {"0", "100"}},
    {"top_k", "-1", {"0", "256"}},
    {"top_k", "257", {"0", "256"}},
    {"top_k", "1.0", {"0", "256"}},
    {"top_k", "\"all\"", {"0", "256"}},
    {"top_p", "0", {"0", "1"}},
    {"top_p", "1.01", {"0", "1"}},
    {"top_p", "-1", {"0", "1"}},
    {"top_p", "\"0.5\"", {"0", "1"}},
    {"min_p", "-0.1", {"0", "1"}},
    {"min_p", "1.1", {"0", "1"}},
    {"min_p", "{}", {"0", "1"}},
    {"repetition_penalty", "0", {"0", "100"}},
    {"repetition_penalty", "-2", {"0", "100"}},
    {"repetition_penalty", "101", {"0", "100"}},
    {"repetition_penalty", "\"x\"", {"0", "100"}},
    {"presence_penalty", "-2.1", {"-2", "2"}},
    {"presence_penalty", "true", {"-2", "2"}},
    {"frequency_penalty", "2.1", {"-2", "2"}},
    {"logit_bias", "[]", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"a\": 1}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"256\": 1}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"01\": 1}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"-1\": 1}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"\": 1}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"5\": \"1\"}", {"\"255\"", "-100 to 100"}},
    {"logit_bias", "{\"5\": 100.5}", {"\"255\"", "-100 to 100"}},
    {"allowed_bytes", "\"\"", {"a string", "255"}},
    {"allowed_bytes", "[]", {"a string", "255"}},
    {"allowed_bytes", "[256]", {"a string", "255"}},
    {"allowed_bytes", "[1, -1]", {"a string", "255"}},
    {"allowed_bytes", "[1, \"a\"]", {"a string", "255"}},
    {"allowed_bytes", "5", {"a string", "255"}},
    {"utf8", "1", {"true", "false"}},
    {"seed", "-1", {"0", "9007199254740991"}},
    {"seed", "9007199254740992", {"0", "9007199254740991"}},
    {"seed", "9223372036854775807", {"0", "9007199254740991"}},
    {"seed", "1.5", {"0", "9007199254740991"}},
    {"seed", "1e3", {"0", "9007199254740991"}},
    {"seed", "\"1\"", {"0", "9007199254740991"}},
    {"stop", "5", {"string", "8"}},
    {"stop", "\"\"", {"1", "64"}},
    {"stop", "[\"\"]", {"1", "64"}},
    {"stop", "[5]", {"1", "64"}},
    {"stop", "[[\"a\"]]", {"1", "64"}},
    {"stop", "\"" S64 "s\"", {"1", "64"}},
    {"stop", "[\"a\", \"" S64 "s\"]", {"1", "64"}},
    {"stop", "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]", {"at most 8", "64"}},
    {"stream", "1", {"true", "false"}},
    {"stream", "\"true\"", {"true", "false"}},
    {"timeout_ms", "0", {"1", "100000"}},
    {"timeout_ms", "-5", {"1", "100000"}},
    {"timeout_ms", "100001", {"1", "100000"}},
    {"timeout_ms", "4294967297", {"1", "100000"}},
    {"timeout_ms", "10.5", {"1", "100000"}},
    {"timeout_ms", "\"10\"", {"1", "100000"}},
    {"context_overflow", "\"slide\"", {"stop", "shift"}},
    {"context_overflow", "true", {"stop", "shift"}},
    {"context_overflow", "\"\"", {"stop", "shift"}},
};

static void a_wrong_value_is_refused_with_its_field_and_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong_fields); i++) {
        char body[512], name[64];
        struct reply r;
        (void)snprintf(body, sizeof body, "{\"%s\": %s}", wrong_fields[i].field, wrong_fields[i].value);
        (void)snprintf(name, sizeof name, "\"%s\"", wrong_fields[i].field);
        print_message("  %s\n", body);
        post(body, strlen(body), "application/json", &r);
        reply_assert_error(&r, 400, "invalid_value", wrong_fields[i].field, name);
        for (size_t j = 0; j < 2; j++)
            reply_assert_error(&r, 400, "invalid_value", NULL, wrong_fields[i].says[j]);
        reply_clear(&r);
    }
}

/* The ends of each range are in it. */
static const struct {
    const char *field, *value;
} right_fields[] = {
    {"model", "\"enwik8-aft-local\""},
    {"prompt", "\"\""},
    {"prompt", "\"a\\u0000b\""},
    {"prompt_base64", "\"\""},
    {"temperature", "0"},
    {"temperature", "100"},
    {"temperature", "1e-300"},
    {"temperature", "1e-9"},
    {"top_k", "0"},
    {"top_k", "1"},
    {"top_k", "256"},
    {"top_p", "1"},
    {"top_p", "1e-300"},
    {"min_p", "0"},
    {"min_p", "1"},
    {"repetition_penalty", "100"},
    {"repetition_penalty", "1e-300"},
    {"repetition_penalty", "0.001"},
    {"model", "null"},
    {"prompt", "null"},
    {"seed", "null"},
    {"stop", "null"},
    {"stream", "null"},
    {"priority", "null"},
    {"session", "null"},
    {"presence_penalty", "-2"},
    {"presence_penalty", "2"},
    {"frequency_penalty", "-2"},
    {"frequency_penalty", "2"},
    {"logit_bias", "{}"},
    {"logit_bias", "{\"0\": -100, \"255\": 100, \"65\": 0.5}"},
    {"allowed_bytes", "[255]"},
    {"allowed_bytes", "[0, 255, 0]"},
    {"allowed_bytes", "\"\\u0000\""},
    {"utf8", "true"},
    {"utf8", "false"},
    {"seed", "0"},
    {"seed", "9007199254740991"},
    {"stop", "[]"},
    {"stop", "\"" S64 "\""},
    {"stop", "[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"" S64 "\"]"},
    {"stop", "\"\\u0000\""},
    {"stream", "false"},
    {"timeout_ms", "100000"},
    {"context_overflow", "\"stop\""},
    {"context_overflow", "\"shift\""},
};

static void the_ends_of_a_range_are_in_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(right_fields); i++) {
        char body[512];
        struct reply r;
        struct generation g;
        (void)snprintf(body, sizeof body, "{\"max_tokens\": 3, \"%s\": %s}", right_fields[i].field,
                       right_fields[i].value);
        print_message("  %s\n", body);
        post(body, strlen(body), "application/json", &r);
        generation_read(&r, &g);
        assert_in_range(g.completion_tokens, 1, 3);
        generation_clear(&g);
        reply_clear(&r);
    }
    struct generation g;
    const int many = test_work(5000); /* contexts, within the time limit */
    generate(&aftd, json_pack("{s:i, s:s}", "max_tokens", many, "context_overflow", "shift"), &g);
    assert_int_equal(g.completion_tokens, many);
    generation_clear(&g);
}

static void an_unknown_field_is_refused_by_name(void **state)
{
    static const char *const names[] = {"N",        "logprob", "echoes", "sessions",   "prio",  "max_token",
                                        "Prompt",   "user",    "suffix", "best_of",    "",      "\xc3\xa4",
                                        "messages", "states",  "images", "min_tokens", "top_k "};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char body[128];
        struct reply r;
        (void)snprintf(body, sizeof body, "{\"prompt\": \"a\", \"%s\": 1}", names[i]);
        post(body, strlen(body), "application/json", &r);
        reply_assert_error(&r, 400, "invalid_value", names[i][0] != '\0' ? names[i] : NULL, names[i]);
        reply_assert_error(&r, 400, "invalid_value", NULL, "max_tokens"); /* it lists what there is */
        reply_clear(&r);
    }
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

static void a_model_is_found_by_name_and_task(void **state)
{
    static const struct {
        const char *body;
        long status;
        const char *code, *says;
    } cases[] = {
        {"{\"model\":\"nothing\"}", 404, "not_found", "enwik8-aft-local"},
        {"{\"model\":\"nothing\"}", 404, "not_found", "nothing"},
        {"{\"model\":\"enwik8-aft-local \"}", 404, "not_found", "enwik8-aft-local"},
        {"{\"model\":\"../enwik8-aft-local\"}", 404, "not_found", "enwik8-aft-local"},
        {"{\"model\":\"cifar10-aft-conv\"}", 400, "invalid_value", "image-classification"},
        {"{\"model\":\"enwik8-aft-local\\u0000x\"}", 400, "invalid_value", "model"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        post(cases[i].body, strlen(cases[i].body), "application/json", &r);
        reply_assert_error(&r, cases[i].status, cases[i].code, "model", cases[i].says);
        reply_clear(&r);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *body;
} bad_bodies[] = {
    {"empty", ""},
    {"blank", "   \n"},
    {"cut", "{\"prompt\": \"a"},
    {"cut after a comma", "{\"prompt\": \"a\","},
    {"trailing comma", "{\"prompt\": \"a\",}"},
    {"something behind", "{\"prompt\": \"a\"} x"},
    {"two objects", "{}{}"},
    {"a list", "[]"},
    {"a string", "\"prompt\""},
    {"a number", "5"},
    {"null", "null"},
    {"single quotes", "{'prompt': 'a'}"},
    {"no quotes", "{prompt: 1}"},
    {"duplicate keys", "{\"prompt\": \"a\", \"prompt\": \"b\"}"},
    {"duplicate keys, same value", "{\"seed\": 1, \"seed\": 1}"},
    {"both prompts", "{\"prompt\": \"a\", \"prompt_base64\": \"VA==\"}"},
    {"both prompts, one empty", "{\"prompt\": \"\", \"prompt_base64\": \"VA==\"}"},
    {"NaN", "{\"temperature\": NaN}"},
    {"Infinity", "{\"temperature\": Infinity}"},
    {"1e400", "{\"temperature\": 1e400}"},
    {"an integer past 2^63", "{\"seed\": 9223372036854775808}"},
    {"leading zero", "{\"seed\": 01}"},
    {"leading plus", "{\"seed\": +1}"},
    {"invalid UTF-8", "{\"prompt\": \"\xff\"}"},
    {"overlong UTF-8", "{\"prompt\": \"\xc0\xaf\"}"},
    {"a UTF-8 surrogate", "{\"prompt\": \"\xed\xa0\x80\"}"},
    {"a lone surrogate", "{\"prompt\": \"\\ud800\"}"},
    {"a bad escape", "{\"prompt\": \"\\x41\"}"},
    {"a raw newline", "{\"prompt\": \"a\nb\"}"},
    {"a comment", "{} // x"},
    {"a byte order mark", "\xef\xbb\xbf{}"},
    {"a form", "prompt=a&max_tokens=3"},
};

static void a_body_that_is_no_object_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad_bodies); i++) {
        struct reply r;
        print_message("  %s\n", bad_bodies[i].name);
        post(bad_bodies[i].body, strlen(bad_bodies[i].body), "application/json", &r);
        reply_assert_error(&r, 400, "invalid_value", NULL, NULL);
        reply_clear(&r);
    }
    struct reply r;
    post("{}\0", 3, "application/json", &r);
    reply_assert_error(&r, 400, "invalid_value", NULL, NULL);
    reply_clear(&r);
}

static void deep_nesting_is_refused(void **state)
{
    static const struct {
        const char *open;
        size_t depth;
    } cases[] = {{"[", 100}, {"[", 100000}, {"{\"a\":", 100}, {"{\"a\":", 100000}, {"{\"stop\":[", 5000}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t step = strlen(cases[i].open);
        char *body = malloc(step * cases[i].depth + 1);
        struct reply r;
        assert_non_null(body);
        for (size_t j = 0; j < cases[i].depth; j++)
            memcpy(body + j * step, cases[i].open, step + 1);
        post(body, step * cases[i].depth, "application/json", &r);
        reply_assert_error(&r, 400, "invalid_value", NULL, "deep");
        reply_clear(&r);
        free(body);
    }
}

static void brackets_in_a_text_are_no_nesting(void **state)
{
    char body[1024] = "{\"max_tokens\": 2, \"prompt\": \"\\\"";
    struct generation g;
    struct reply r;
    (void)state;
    const size_t start_bytes = strlen(body);
    memset(body + start_bytes, '[', 500);
    (void)snprintf(body + start_bytes + 500, sizeof body - start_bytes - 500, "\"}");
    post(body, strlen(body), "application/json", &r);
    generation_read(&r, &g);
    assert_int_equal(g.prompt_tokens, 501);
    generation_clear(&g);
    reply_clear(&r);
}

static void many_values_are_refused_before_they_take_memory(void **state)
{
    enum { BODY_BYTES = 8 << 20, PEAK_MAX = 64 << 20 }; /* the body, while its buffer grows, and room */
    static const char *const values[] = {"{},", "1,", "[],"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        const uint64_t before = daemon_peak_bytes(&aftd);
        char *body = malloc(BODY_BYTES);
        struct reply r;
        assert_non_null(body);
        size_t size = (size_t)snprintf(body, BODY_BYTES, "{\"stop\":[");
        while (size < BODY_BYTES - 8)
            size += (size_t)snprintf(body + size, BODY_BYTES - size, "%s", values[i]);
        size += (size_t)snprintf(body + size - 1, BODY_BYTES - size + 1, "]}") - 1;
        post(body, size, "application/json", &r);
        assert_in_range(r.status, 400, 413);
        reply_clear(&r);
        free(body);
        const uint64_t after = daemon_peak_bytes(&aftd);
        if (after > before + PEAK_MAX)
            fail_msg("%u bytes of \"%s\" took %u MiB", BODY_BYTES, values[i], (unsigned)((after - before) >> 20));
    }
}

static void the_longest_prompt_is_a_mebibyte_in_either_form(void **state)
{
    static const struct {
        const char *form;
        size_t characters, bytes; /* bytes 0: too long */
    } cases[] = {
        {"prompt", 1 << 20, 1 << 20},  {"prompt", (1 << 20) + 1, 0},  {"prompt_base64", 1398100, 1048575},
        {"prompt_base64", 1398104, 0}, {"prompt_base64", 1398108, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *body = malloc(cases[i].characters + 64);
        struct reply r;
        assert_non_null(body);
        size_t size = (size_t)snprintf(body, 64, "{\"max_tokens\":2,\"%s\":\"", cases[i].form);
        memset(body + size, 'A', cases[i].characters);
        size += cases[i].characters;
        size += (size_t)snprintf(body + size, 8, "\"}");
        post(body, size, "application/json", &r);
        if (cases[i].bytes > 0) {
            struct generation g;
            generation_read(&r, &g);
            assert_int_equal(g.prompt_tokens, cases[i].bytes);
            generation_clear(&g);
        } else {
            reply_assert_error(&r, 400, "invalid_value", cases[i].form, cases[i].form);
        }
        reply_clear(&r);
        free(body);
    }
}

static void a_body_of_another_type_is_415(void **state)
{
    static const struct {
        const char *type;
        long status;
    } cases[] = {
        {NULL, 200},
        {"application/json", 200},
        {"application/json; charset=utf-8", 200},
        {"Application/JSON", 200},
        {"image/jpeg", 415},
        {"text/plain", 415},
        {"multipart/form-data; boundary=x", 415},
        {"application/jsonx", 415},
    };
    static const char body[] = "{\"max_tokens\": 2}";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct reply r;
        post(body, sizeof body - 1, cases[i].type, &r);
        print_message("  %s: %ld\n", cases[i].type != NULL ? cases[i].type : "none", r.status);
        if (cases[i].status == 415)
            reply_assert_error(&r, 415, "unsupported_media", NULL, "application/json");
        assert_int_equal(r.status, cases[i].status);
        reply_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_value_is_refused_with_its_field_and_range),
        cmocka_unit_test(the_ends_of_a_range_are_in_it),
        cmocka_unit_test(an_unknown_field_is_refused_by_name),
        cmocka_unit_test(a_model_is_found_by_name_and_task),
        cmocka_unit_test(a_body_that_is_no_object_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(brackets_in_a_text_are_no_nesting),
        cmocka_unit_test(many_values_are_refused_before_they_take_memory),
        cmocka_unit_test(the_longest_prompt_is_a_mebibyte_in_either_form),
        cmocka_unit_test(a_body_of_another_type_is_415),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, start, daemons_end);
}
