/* test_request_json.c - a request's body as JSON: what is bounded before the parser sees it, and what is refused in
 * which words. Each body lies in a block of its own, so that a read beyond it is seen. */
#include "server/fields/request_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

typedef enum status parse(json_t **ret, const uint8_t *body, size_t size, struct error *err);

static enum status parse_copy(parse *with, json_t **ret, const char *body, size_t size, struct error *err)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, body, size);
    const enum status st = with(ret, copy, size, err);
    free(copy);
    return st;
}

static void an_object_is_parsed(void **state)
{
    static const char text[] = " {\"a\": \"x\\u0000y\", \"b\": [1, {\"c\": null}]} \r\n";
    json_t *object = NULL;
    (void)state;
    assert_int_equal(parse_copy(request_json_parse, &object, text, strlen(text), NULL), OK);
    assert_int_equal(json_object_size(object), 2);
    assert_int_equal(json_string_length(json_object_get(object, "a")), 3);
    json_decref(object);
    assert_int_equal(parse_copy(request_json_parse_bytes, &object, "{}", 2, NULL), OK);
    json_decref(object);
}

static void what_is_no_object_is_refused(void **state)
{
#define BODY(text) text, sizeof(text) - 1
    static const struct {
        const char *text;
        size_t size;
        const char *says; /* its beginning */
    } cases[] = {
        {BODY(""), "the body is empty; expected a JSON object"},
        {BODY(" "), "the body is not valid JSON: line 1, column 1: "},
        {BODY("[]"), "the body is a list of 0; expected a JSON object"},
        {BODY("[1,2]"), "the body is a list of 2; expected a JSON object"},
        {BODY("\"{}\""), "the body is not valid JSON: line 1, column 4: "},
        {BODY("{"), "the body is not valid JSON: line 1, column 1: "},
        {BODY("{\"a\":1"), "the body is not valid JSON: line 1, column 6: "},
        {BODY("{\"a\":1,}"), "the body is not valid JSON: line 1, column 8: "},
        {BODY("{\n\"a\": x}"), "the body is not valid JSON: line 2, column 6: "},
        {BODY("{} {}"), "the body is not valid JSON: line 1, column 4: "},
        {BODY("{}\0"), "the body is not valid JSON: line 1, column 3: "},
        {BODY("{\"a\":1,\"a\":1}"), "the body is not valid JSON: line 1, column 10: duplicate object key"},
        {BODY("{\"a\\u0000\":1}"), "the body is not valid JSON: "},
        {BODY("{\"a\":\"\xff\"}"), "the body is not valid JSON: "},
        {BODY("{\"a\":\"\\ud800\"}"), "the body is not valid JSON: "},
        {BODY("{\"a\":99999999999999999999}"), "\"a\" is 99999999999999999999; expected a number that fits 64 bits"},
        {BODY("{\"a\" : -9223372036854775809}"), "\"a\" is -9223372036854775809; expected a number that fits"},
        {BODY("{\"a\":1e999}"), "\"a\" is 1e999; expected a number that fits 64 bits"},
        {BODY("{\"a\":[1,\n 18446744073709551616]}"), "a number is 18446744073709551616; expected a number that fits"},
        {BODY("{\"a\":NaN}"), "the body is not valid JSON: "},
        {BODY("{\"a\":\"\\"), "the body is not valid JSON: "}, /* an escape that the end cuts */
        {BODY("{\"a\":\"\n\"}"), "the body is not valid JSON: "},
        {BODY("]}]}"), "the body is not valid JSON: "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *object = NULL;
        struct error err = {.message = ""};
        const enum status st = parse_copy(request_json_parse, &object, cases[i].text, cases[i].size, &err);
        if (st != ERR_ARGUMENT || strncmp(err.message, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("%s: %s \"%s\", expected \"%s\"", cases[i].text, status_name(st), err.message, cases[i].says);
        assert_null(object);
    }
}

/* {"a":[[..1..]]} of so many levels. */
static char *nested(unsigned levels)
{
    char *text = malloc(2 * (size_t)levels + 16), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"a\":");
    for (unsigned i = 1; i < levels; i++)
        *at++ = '[';
    *at++ = '1';
    for (unsigned i = 1; i < levels; i++)
        *at++ = ']';
    (void)sprintf(at, "}");
    return text;
}

/* {"a":[1,1,..1]} with as many of the characters , : [ {: three, and a comma for each number but the first. */
static char *with_marks(unsigned marks)
{
    char *text = malloc(2 * (size_t)marks + 16), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"a\":[1");
    for (unsigned i = 3; i < marks; i++)
        at += sprintf(at, ",1");
    (void)sprintf(at, "]}");
    return text;
}

static void expect(parse *with, const char *name, const char *text, const char *says)
{
    json_t *object = NULL;
    struct error err = {.message = ""};
    const enum status st = parse_copy(with, &object, text, strlen(text), &err);
    if (st != (says == NULL ? OK : ERR_ARGUMENT) || (says != NULL && strcmp(err.message, says) != 0))
        fail_msg("%s: %s \"%s\", expected \"%s\"", name, status_name(st), st != OK ? err.message : "",
                 says != NULL ? says : "");
    json_decref(object);
}

static void depth_is_bounded(void **state)
{
    char *most = nested(JSON_DEPTH_MAX), *more = nested(JSON_DEPTH_MAX + 1);
    (void)state;
    expect(request_json_parse, "the most", most, NULL);
    expect(request_json_parse, "one more", more,
           "the body's JSON is nested too deeply; expected at most 64 levels and 1024 of the characters , : [ {");
    expect(request_json_parse, "beside each other", "{\"a\":[[],[],[]],\"b\":[{},{},{}]}", NULL);
    free(most);
    free(more);
}

static void values_are_bounded(void **state)
{
    static const struct {
        parse *with;
        unsigned most;
        const char *says;
    } cases[] = {
        {request_json_parse, JSON_VALUES_MAX,
         "the body's JSON has too many values; expected at most 64 levels and 1024 of the characters , : [ {"},
        {request_json_parse_bytes, JSON_BYTES_VALUES_MAX,
         "the body's JSON has too many values; expected at most 64 levels and 262144 of the characters , : [ {"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *most = with_marks(cases[i].most), *more = with_marks(cases[i].most + 1);
        expect(cases[i].with, "the most", most, NULL);
        expect(cases[i].with, "one more", more, cases[i].says);
        free(most);
        free(more);
    }
}

/* What stands in strings is neither a level nor a value, and an escaped quote ends none. */
static void marks_in_strings_do_not_count(void **state)
{
    enum { MARKS = 3000 };
    static char text[2 * MARKS + 64], *at = text;
    (void)state;
    at += sprintf(at, "{\"a\":\"\\\\\\\"");
    for (int i = 0; i < MARKS; i++)
        *at++ = "[{,:"[i % 4];
    (void)sprintf(at, "\"}");
    expect(request_json_parse, "in a string", text, NULL);
    const char ended[] = "{\"a\":\"\\\\\" ";
    for (size_t i = 0; i < sizeof ended - 1; i++)
        text[i] = ended[i]; /* the string ends in front of them */
    expect(request_json_parse, "behind a string", text,
           "the body's JSON is nested too deeply; expected at most 64 levels and 1024 of the characters , : [ {");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_parsed),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(values_are_bounded),
        cmocka_unit_test(marks_in_strings_do_not_count),
    };
    return cmocka_run_group_tests_name("request_json", tests, NULL, NULL);
}
