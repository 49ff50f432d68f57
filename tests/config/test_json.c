/* test_json.c - strict JSON of files, and what a message quotes of it: cut between characters, without control
 * characters. */
#include "config/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static void control_characters_are_not_quoted(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", ""},
        {"a b", "a b"},
        {"a\nb\t\x1b[31m\x7f", "a?b??[31m?"},
        {"\xc3\xa4\"\\", "\xc3\xa4\"\\"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(json_quote(cases[i].text).text, cases[i].want);
}

static void a_long_text_is_cut_between_characters(void **state)
{
    char text[3 * JSON_QUOTE_MAX];
    (void)state;
    memset(text, 'a', sizeof text);
    text[JSON_QUOTE_MAX - 1] = '\0';
    assert_string_equal(json_quote(text).text, text); /* the longest that is whole */
    text[JSON_QUOTE_MAX - 1] = 'a';
    text[sizeof text - 1] = '\0';
    const struct quoted cut = json_quote(text);
    assert_int_equal(strlen(cut.text), JSON_QUOTE_MAX - 1);
    assert_string_equal(cut.text + JSON_QUOTE_MAX - 5, "a...");
    for (size_t before = 0; before < 4; before++) { /* wherever in a character of four bytes the cut would be */
        char emoji[3 * JSON_QUOTE_MAX] = "", want[JSON_QUOTE_MAX] = "";
        memset(emoji, 'a', before);
        for (int i = 0; i < JSON_QUOTE_MAX / 2; i++)
            (void)snprintf(emoji + strlen(emoji), 5, "\xf0\x9f\x98\x80");
        const size_t whole = (JSON_QUOTE_MAX - 4 - before) / 4;
        (void)snprintf(want, sizeof want, "%.*s...", (int)(before + 4 * whole), emoji);
        assert_string_equal(json_quote(emoji).text, want);
    }
}

static void values_are_described(void **state)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"null", "null"},
        {"true", "true"},
        {"false", "false"},
        {"-5", "-5"},
        {"9223372036854775807", "9223372036854775807"},
        {"2.50", "2.5"},
        {"1e300", "1e300"},
        {"\"x\\ny\"", "a string (\"x?y\")"},
        {"\"\"", "a string (\"\")"},
        {"[]", "a list of 0"},
        {"[1,[2,3]]", "a list of 2"},
        {"{\"a\":1}", "an object"},
    };
    char text[2 * JSON_QUOTE_MAX] = "";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *value = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        assert_string_equal(json_describe(value).text, cases[i].want);
        json_decref(value);
    }
    memset(text, 'a', sizeof text - 1);
    json_t *value = json_string(text);
    const struct quoted q = json_describe(value); /* the quotation ends nevertheless */
    assert_int_equal(strlen(q.text), JSON_QUOTE_MAX - 1);
    assert_string_equal(q.text + strlen(q.text) - 6, "a...\")");
    json_decref(value);
}

static void an_object_is_parsed_strictly(void **state)
{
    static const struct {
        const char *text, *says; /* NULL: it is fine; else what follows the name of the file */
    } cases[] = {
        {"{}", NULL},
        {" {\"a\": [1]}\n", NULL},
        {"[1]", "holds a list of 1, expected an object"},
        {"", "not valid JSON at line 1, column 0: "},
        {"1", "not valid JSON at line 1, column 1: "},
        {"{\"a\":1}\n}", "not valid JSON at line 2, column 1: "},
        {"{\"a\":1,\"a\":2}", "not valid JSON at line 1, column 10: duplicate object key"},
        {"{\"a\":{\"b\":1,\"b\":2}}", "not valid JSON at line 1, column 15: duplicate object key"},
        {"{\"a\":NaN}", "not valid JSON at line 1, column 8: "},
        {"{\"a\":1e400}", "not valid JSON at line 1, column 10: "},
        {"{\"a\":\"\\u0000\"}", "not valid JSON at line 1, column 13: "},
        {"{'a':1}", "not valid JSON at line 1, column 2: "},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *root = NULL;
        struct error err = {.message = ""};
        char says[256] = "";
        const enum status st = json_parse_object(&root, cases[i].text, strlen(cases[i].text), "x.json", &err);
        if (cases[i].says != NULL)
            (void)snprintf(says, sizeof says, "x.json: %s", cases[i].says);
        if (st != (cases[i].says == NULL ? OK : ERR_FORMAT) || strncmp(err.message, says, strlen(says)) != 0)
            fail_msg("%s: %s \"%s\", expected \"%s\"", cases[i].text, status_name(st), err.message, says);
        assert_int_equal(root == NULL, st != OK);
        json_decref(root);
    }
}

static void a_file_is_read_up_to_its_bound(void **state)
{
    char dir[PATH_MAX], path[PATH_MAX];
    json_t *root = NULL;
    struct error err;
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "x.json");
    temp_write(path, "{\"a\":1}", 7);
    assert_int_equal(json_read_object(&root, path, 7, NULL), OK);
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    root = NULL;
    assert_int_equal(json_read_object(&root, path, 6, &err), ERR_FORMAT);
    assert_non_null(strstr(err.message, path));
    temp_path(path, dir, "nothing");
    assert_int_equal(json_read_object(&root, path, 6, &err), ERR_IO);
    assert_null(root);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_not_quoted),
        cmocka_unit_test(a_long_text_is_cut_between_characters),
        cmocka_unit_test(values_are_described),
        cmocka_unit_test(an_object_is_parsed_strictly),
        cmocka_unit_test(a_file_is_read_up_to_its_bound),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
