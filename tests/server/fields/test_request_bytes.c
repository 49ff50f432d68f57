/* test_request_bytes.c - bytes as a text or in base64: what is one, and what is refused. */
#include "server/fields/request_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

/* RFC 4648, chapter 10, and the two characters that variants of it have others for. */
static void what_is_base64_is_decoded(void **state)
{
    static const struct {
        const char *in, *want;
        size_t size;
    } cases[] = {
        {"", "", 0},
        {"Zg==", "f", 1},
        {"Zm8=", "fo", 2},
        {"Zm9v", "foo", 3},
        {"Zm9vYg==", "foob", 4},
        {"Zm9vYmE=", "fooba", 5},
        {"Zm9vYmFy", "foobar", 6},
        {"AAAA", "\0\0\0", 3},
        {"+/+/", "\xfb\xff\xbf", 3},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t out[16];
        size_t size = sizeof out;
        if (!request_base64_decode(cases[i].in, strlen(cases[i].in), out, &size) || size != cases[i].size ||
            memcmp(out, cases[i].want, size) != 0)
            fail_msg("\"%s\": %zu bytes", cases[i].in, size);
    }
}

static void what_is_not_is_refused(void **state)
{
#define IN(text) text, sizeof(text) - 1
    static const struct {
        const char *in;
        size_t size;
    } cases[] = {
        {IN("Z")},          {IN("Zg")},           {IN("Zg=")},          {IN("Zm8")},      {IN("====")},
        {IN("=")},          {IN("Z===")},         {IN("Zg==Zg==")},     {IN("Zm8=Zm8=")}, {IN("Z=g=")},
        {IN("Zm9v====")},   {IN("Zh==")},         {IN("Zm9=")},         {IN("Zm9\0")},    {IN("Zm9v\0\0\0\0")},
        {IN("Zm9v    ")},   {IN("Zg==\r\n\r\n")}, {IN("Zm\t\t9v\v\f")}, {IN("Zm 9")},     {IN("Zm9vZm9\n")},
        {IN("\r\nZm9vYg")}, {IN("Zm\t9")},        {IN("Zm\v9")},        {IN("-_-_")},     {IN("Zm9*")},
        {IN("Zm9\xff")},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t out[16];
        size_t size = sizeof out;
        if (request_base64_decode(cases[i].in, cases[i].size, out, &size))
            fail_msg("\"%s\" was taken for %zu bytes", cases[i].in, size);
    }
}

static enum status read(const char *text, const char *base64, size_t max, uint8_t **ret, size_t *size,
                        struct error *err)
{
    json_t *t = text != NULL ? json_string(text) : NULL, *b = base64 != NULL ? json_string(base64) : NULL;
    const enum status st = request_bytes_read(ret, size, "prompt", t, b, max, err);
    json_decref(t);
    json_decref(b);
    return st;
}

static void either_field_gives_the_bytes(void **state)
{
    static const struct {
        const char *text, *base64, *want; /* want: NULL: none */
    } cases[] = {
        {NULL, NULL, NULL}, {"", NULL, NULL}, {NULL, "", NULL}, {"foo", NULL, "foo"}, {NULL, "Zm9v", "foo"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t *bytes = (uint8_t *)"";
        size_t size = 77;
        assert_int_equal(read(cases[i].text, cases[i].base64, 3, &bytes, &size, NULL), OK);
        assert_int_equal(size, cases[i].want != NULL ? strlen(cases[i].want) : 0);
        assert_int_equal(bytes == NULL, cases[i].want == NULL);
        if (bytes != NULL)
            assert_memory_equal(bytes, cases[i].want, size);
        free(bytes);
    }
}

static void a_text_may_hold_a_nul(void **state)
{
    json_t *text = json_stringn("a\0b", 3);
    uint8_t *bytes;
    size_t size;
    (void)state;
    assert_int_equal(request_bytes_read(&bytes, &size, "prompt", text, NULL, 3, NULL), OK);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "a\0b", 3);
    free(bytes);
    json_decref(text);
}

static void what_cannot_be_read_is_said(void **state)
{
#define NO_BASE64 "\"prompt_base64\" is not base64 of at most 3 bytes; expected RFC 4648's, padded, without line breaks"
    static const struct {
        const char *text, *base64, *says;
    } cases[] = {
        {"a", "Zg==", "\"prompt\" and \"prompt_base64\" are both given; expected one of them"},
        {"", "", "\"prompt\" and \"prompt_base64\" are both given; expected one of them"},
        {NULL, "Zg", NO_BASE64},
        {NULL, "Zm9vYg==", NO_BASE64}, /* four bytes */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t *bytes = NULL;
        size_t size = 77;
        struct error err = {.message = ""};
        assert_int_equal(read(cases[i].text, cases[i].base64, 3, &bytes, &size, &err), ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i].says);
        assert_string_equal(err.param, "prompt_base64");
        assert_true(bytes == NULL && size == 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_base64_is_decoded),    cmocka_unit_test(what_is_not_is_refused),
        cmocka_unit_test(either_field_gives_the_bytes), cmocka_unit_test(a_text_may_hold_a_nul),
        cmocka_unit_test(what_cannot_be_read_is_said),
    };
    return cmocka_run_group_tests_name("request_bytes", tests, NULL, NULL);
}
