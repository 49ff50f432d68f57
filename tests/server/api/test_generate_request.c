/* test_generate_request.c - every field of POST /generate: what is accepted, what is refused and how the refusal
 * reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/api/generate_request.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static enum status parse(const char *body, struct generate_request *r, struct error *err)
{
    struct settings s;
    settings_init(&s);
    s.max_tokens = 7;
    s.max_tokens_max = 1000;
    s.timeout_ms = 5000;
    s.timeout_ms_max = 9000;
    return generate_request_parse(r, (const uint8_t *)body, strlen(body), &s, err);
}

static const struct {
    const char *name, *body, *param, *says; /* says: part of the message */
} refused[] = {
    {"empty body", "", "", "empty"},
    {"no JSON", "{\"prompt\":", "", "line 1, column 10"},
    {"no object", "[1]", "", "a JSON object"},
    {"two values", "{} {}", "", "not valid JSON"},
    {"a key twice", "{\"top_k\":1,\"top_k\":2}", "", "duplicate"},
    {"an unknown field", "{\"max_token\":1}", "max_token", "no field \"max_token\""},
    {"a field of later", "{\"suffix\":\"a\"}", "suffix", "no field \"suffix\""},
    {"not UTF-8", "{\"prompt\":\"\xff\"}", "", "not valid JSON"},
    {"half a surrogate", "{\"prompt\":\"\\ud800\"}", "", "not valid JSON"},
    {"a number beyond 64 bits", "{\"seed\":99999999999999999999}", "seed", "a number that fits 64 bits"},
    {"model not text", "{\"model\":1}", "model", "1; expected a string of 1 to 75 bytes"},
    {"model empty", "{\"model\":\"\"}", "model", "1 to 75 bytes"},
    {"model with a NUL", "{\"model\":\"a\\u0000b\"}", "model", "NUL"},
    {"prompt not text", "{\"prompt\":[\"a\"]}", "prompt", "a list of 1; expected a string"},
    {"two prompts", "{\"prompt\":\"a\",\"prompt_base64\":\"YQ==\"}", "prompt_base64", "expected one of them"},
    {"base64 unpadded", "{\"prompt_base64\":\"YQ\"}", "prompt_base64", "RFC 4648"},
    {"base64 with a space", "{\"prompt_base64\":\"YQ= =\"}", "prompt_base64", "RFC 4648"},
    {"base64 with a line", "{\"prompt_base64\":\"YWFh\\nYWFh\"}", "prompt_base64", "RFC 4648"},
    {"base64 with a NUL", "{\"prompt_base64\":\"YWF\\u0000\"}", "prompt_base64", "RFC 4648"},
    {"base64 with bits left", "{\"prompt_base64\":\"YR==\"}", "prompt_base64", "RFC 4648"},
    {"base64 going on", "{\"prompt_base64\":\"YQ==YQ==\"}", "prompt_base64", "RFC 4648"},
    {"no tokens", "{\"max_tokens\":0}", "max_tokens", "0; expected a whole number from 1 to 1000"},
    {"too many tokens", "{\"max_tokens\":1001}", "max_tokens", "from 1 to 1000"},
    {"tokens not whole", "{\"max_tokens\":1.5}", "max_tokens", "whole number"},
    {"llama-server's name", "{\"n_predict\":9}", "n_predict", "did you mean \"max_tokens\"?"},
    {"TGI's name", "{\"max_new_tokens\":9}", "max_new_tokens", "did you mean \"max_tokens\"?"},
    {"cold", "{\"temperature\":-0.1}", "temperature", "a number from 0 to 100"},
    {"hot", "{\"temperature\":100.1}", "temperature", "a number from 0 to 100"},
    {"temperature as text", "{\"temperature\":\"hot\"}", "temperature", "a string (\"hot\")"},
    {"top_k below", "{\"top_k\":-1}", "top_k", "from 0 to 256"},
    {"top_k above", "{\"top_k\":257}", "top_k", "from 0 to 256"},
    {"top_p zero", "{\"top_p\":0}", "top_p", "above 0 and at most 1"},
    {"top_p above", "{\"top_p\":1.01}", "top_p", "above 0 and at most 1"},
    {"min_p below", "{\"min_p\":-0.1}", "min_p", "from 0 to 1"},
    {"min_p above", "{\"min_p\":1.1}", "min_p", "from 0 to 1"},
    {"penalty zero", "{\"repetition_penalty\":0.0}", "repetition_penalty", "above 0 and at most 100"},
    {"penalty above", "{\"repetition_penalty\":101}", "repetition_penalty", "above 0 and at most 100"},
    {"presence below", "{\"presence_penalty\":-2.5}", "presence_penalty", "from -2 to 2"},
    {"frequency above", "{\"frequency_penalty\":2.5}", "frequency_penalty", "from -2 to 2"},
    {"a bias of no byte", "{\"logit_bias\":{\"256\":1}}", "logit_bias", "\"0\" to \"255\""},
    {"a bias as text", "{\"logit_bias\":{\"5\":\"1\"}}", "logit_bias", "from -100 to 100"},
    {"a large bias", "{\"logit_bias\":{\"5\":-101}}", "logit_bias", "from -100 to 100"},
    {"nothing allowed", "{\"allowed_bytes\":[]}", "allowed_bytes", "at least one byte (0 to 255)"},
    {"no byte allowed", "{\"allowed_bytes\":[1.5]}", "allowed_bytes", "at least one byte (0 to 255)"},
    {"nothing to draw", "{\"utf8\":true,\"allowed_bytes\":[195]}", "allowed_bytes", "no character of UTF-8"},
    {"seed below", "{\"seed\":-1}", "seed", "from 0 to 9007199254740991"},
    {"seed above", "{\"seed\":9007199254740992}", "seed", "from 0 to 9007199254740991"},
    {"an empty stop", "{\"stop\":\"\"}", "stop", "1 to 64 bytes"},
    {"an empty one among stops", "{\"stop\":[\"a\",\"\"]}", "stop", "1 to 64 bytes"},
    {"nine stops", "{\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}", "stop", "at most 8"},
    {"stop a number", "{\"stop\":[1]}", "stop", "a list of 1"},
    {"stream as text", "{\"stream\":\"true\"}", "stream", "true or false"},
    {"no time", "{\"timeout_ms\":0}", "timeout_ms", "from 1 to 9000"},
    {"too much time", "{\"timeout_ms\":9001}", "timeout_ms", "from 1 to 9000"},
    {"overflow of another kind", "{\"context_overflow\":\"slide\"}", "context_overflow",
     "\"shift\", \"stop\" or \"refuse\""},
};

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct generate_request r;
        struct error err = {0};
        const enum status st = parse(refused[i].body, &r, &err);
        if (st != ERR_ARGUMENT || strcmp(err.param, refused[i].param) != 0 ||
            strstr(err.message, refused[i].says) == NULL)
            fail_msg("%s: %s, param \"%s\", \"%s\"", refused[i].name, status_name(st), err.param, err.message);
    }
}

/* {"stop":OOO...CCC...}: `count` of each. */
static enum status parse_repeated(char open, char close, int count, struct error *err)
{
    char body[4 * JSON_VALUES_MAX];
    struct generate_request r;
    const int size = snprintf(body, sizeof body, "{\"stop\":%0*d%0*d}", count, 0, count, 0);
    assert_in_range(size, 0, sizeof body - 1);
    memset(body + 8, open, (size_t)count);
    memset(body + 8 + count, close, (size_t)count);
    return parse(body, &r, err);
}

static void nesting_and_values_have_bounds(void **state)
{
    (void)state;
    struct generate_request r;
    struct error err = {0};
    assert_int_equal(parse_repeated('[', ']', JSON_DEPTH_MAX, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nested too deeply"));
    assert_int_equal(parse_repeated('[', ']', JSON_DEPTH_MAX - 1, &err), ERR_ARGUMENT);
    assert_null(strstr(err.message, "nested too deeply"));
    assert_int_equal(parse_repeated(',', ',', JSON_VALUES_MAX / 2, &err), ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "too many values"));
    const char *marks = "{\"prompt\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[\"}";
    assert_int_equal(parse(marks, &r, &err), OK); /* in a string they are text */
    generate_request_clear(&r);
}

static void what_is_left_out_has_its_default(void **state)
{
    (void)state;
    struct generate_request r;
    assert_int_equal(parse("{}", &r, NULL), OK);
    assert_string_equal(r.model, "");
    assert_int_equal(r.in.prompt_bytes, 0);
    assert_int_equal(r.in.max_tokens, 7);
    assert_int_equal(r.timeout_ms, 0); /* not given */
    assert_false(r.stream != FIELD_ABSENT || !r.in.shift);
    assert_int_equal(r.in.stops.count, 0);
    assert_true(r.in.sampler.temperature == 1.0f && r.in.sampler.top_p == 1.0f && r.in.sampler.min_p == 0.0f &&
                r.in.sampler.repetition_penalty == 1.0f && r.in.sampler.top_k == 0);
    struct generate_request other;
    assert_int_equal(parse("{}", &other, NULL), OK);
    assert_true(r.in.sampler.seed != other.in.sampler.seed); /* drawn anew; the same once in 2^53 */
    assert_true(r.in.sampler.seed <= SEED_MAX);
    generate_request_clear(&other);
    generate_request_clear(&r);
}

static void everything_is_stored(void **state)
{
    (void)state;
    struct generate_request r;
    assert_int_equal(parse("{\"model\":\"m\",\"prompt\":\"a\\u0000\xc3\xa4\",\"max_tokens\":1000,\"temperature\":0,"
                           "\"top_k\":256,\"top_p\":1e-300,\"min_p\":1,\"repetition_penalty\":100,"
                           "\"seed\":9007199254740991,\"stop\":[\"x\",\"\\n\"],\"stream\":false,\"timeout_ms\":9000,"
                           "\"context_overflow\":\"stop\",\"presence_penalty\":-2,\"frequency_penalty\":0.5,"
                           "\"utf8\":true,\"logit_bias\":{\"0\":-100,\"255\":0.5},\"allowed_bytes\":\"a\u00e9\"}",
                           &r, NULL),
                     OK);
    assert_string_equal(r.model, "m");
    assert_int_equal(r.in.prompt_bytes, 4);
    assert_memory_equal(r.in.prompt, "a\0\xc3\xa4", 4);
    assert_int_equal(r.in.max_tokens, 1000);
    assert_true(r.in.sampler.temperature == 0.0f && r.in.sampler.top_k == 256 && r.in.sampler.min_p == 1.0f &&
                r.in.sampler.repetition_penalty == 100.0f && r.in.sampler.seed == SEED_MAX);
    assert_true(r.in.sampler.presence_penalty == -2.0f && r.in.sampler.frequency_penalty == 0.5f);
    assert_true(r.in.sampler.utf8 && r.in.sampler.is_biased);
    for (size_t b = 0; b < BYTE_VALUES; b++) {
        assert_true(r.in.sampler.bias[b] == (b == 0 ? -100.0f : b == 255 ? 0.5f : 0.0f));
        assert_true(sampler_allows(&r.in.sampler, b) == (b == 'a' || b == 0xc3 || b == 0xa9));
    }
    assert_true(r.in.sampler.top_p > 0.0f); /* still above 0 as a float */
    assert_int_equal(r.in.stops.count, 2);
    assert_true(r.stream == FIELD_FALSE && !r.in.shift);
    assert_int_equal(r.timeout_ms, 9000);
    generate_request_clear(&r);
}

static void base64_gives_any_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *body, *bytes;
        size_t size;
    } cases[] = {
        {"{\"prompt_base64\":\"\"}", "", 0},
        {"{\"prompt_base64\":\"AP8=\"}", "\0\xff", 2},
        {"{\"prompt_base64\":\"+/+/\"}", "\xfb\xff\xbf", 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct generate_request r;
        assert_int_equal(parse(cases[i].body, &r, NULL), OK);
        assert_int_equal(r.in.prompt_bytes, cases[i].size);
        if (cases[i].size > 0)
            assert_memory_equal(r.in.prompt, cases[i].bytes, cases[i].size);
        generate_request_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),           cmocka_unit_test(nesting_and_values_have_bounds),
        cmocka_unit_test(what_is_left_out_has_its_default), cmocka_unit_test(everything_is_stored),
        cmocka_unit_test(base64_gives_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
