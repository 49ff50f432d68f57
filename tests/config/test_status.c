/* test_status.c - the list of statuses, and what becomes of a message on its way into struct error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "config/status.h"
#include "tests/support/random.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Made before the buffers that it is used with. */
static char padding[ERROR_MESSAGE_MAX + 1];

static int setup(void **state)
{
    (void)state;
    memset(padding, 'x', sizeof padding - 1);
    return 0;
}

static void assert_is_utf8(const char *text)
{
    json_t *string = json_string(text); /* NULL where it is not */
    if (string == NULL)
        fail_msg("not UTF-8: \"%s\"", text);
    json_decref(string);
}

static void every_status_has_its_row(void **state)
{
    static const struct {
        const char *name, *type, *code;
        enum status st;
        unsigned http;
    } rows[] = {
        {"OK", "ok", "ok", OK, 200},
        {"ERR_ARGUMENT", "invalid_request_error", "invalid_value", ERR_ARGUMENT, 400},
        {"ERR_PICTURE", "invalid_request_error", "undecodable_picture", ERR_PICTURE, 422},
        {"ERR_FULL", "overloaded_error", "queue_full", ERR_FULL, 503},
        {"ERR_UNSUPPORTED", "server_error", "unsupported_model", ERR_UNSUPPORTED, 500},
        {"ERR_CONFIG", "server_error", "bad_setting", ERR_CONFIG, 500},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        assert_string_equal(status_name(rows[i].st), rows[i].name);
        assert_string_equal(status_type(rows[i].st), rows[i].type);
        assert_string_equal(status_code(rows[i].st), rows[i].code);
        assert_int_equal(status_http(rows[i].st), rows[i].http);
    }
}

static void details_are_kept(void **state)
{
    struct error err;

    (void)state;
    assert_int_equal(error_set_param(&err, ERR_FORMAT, "dim", "dim is %d, expected %s", 5, "an even number"),
                     ERR_FORMAT);
    assert_int_equal(err.status, ERR_FORMAT);
    assert_string_equal(err.param, "dim");
    assert_string_equal(err.message, "dim is 5, expected an even number");

    assert_int_equal(error_set(&err, ERR_FULL, "full"), ERR_FULL);
    assert_int_equal(err.status, ERR_FULL);
    assert_string_equal(err.param, "");
    assert_string_equal(err.message, "full");
}

static void without_a_place_for_details_the_status_is_kept(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, ERR_IO, "nobody reads this"), ERR_IO);
    assert_int_equal(error_set_param(NULL, ERR_NOMEM, "p", "nor this"), ERR_NOMEM);
}

/* `pad` letters and then a text, of which only what is whole within ERROR_MESSAGE_MAX - 1 bytes may stay. */
static void long_messages_end_between_two_characters(void **state)
{
    enum { ROOM = ERROR_MESSAGE_MAX - 1 };
    static const struct {
        const char *name, *text;
        int pad;
        const char *kept;
    } rows[] = {
        {"a letter that fits", "ab", ROOM - 1, "a"},
        {"two bytes that fit",
         "\xc3\xa4"
         "b",
         ROOM - 2, "\xc3\xa4"},
        {"the first of two bytes", "\xc3\xa4", ROOM - 1, ""},
        {"two of three bytes", "\xe2\x82\xac", ROOM - 2, ""},
        {"one of three bytes", "\xe2\x82\xac", ROOM - 1, ""},
        {"three of four bytes", "\xf0\x9f\x98\x80", ROOM - 3, ""},
        {"four bytes that fit",
         "\xf0\x9f\x98\x80"
         "b",
         ROOM - 4, "\xf0\x9f\x98\x80"},
        {"one whole character and a part", "\xe2\x82\xac\xe2\x82\xac", ROOM - 5, "\xe2\x82\xac"},
        {"nothing is cut", "\xe2\x82\xac", ROOM - 3, "\xe2\x82\xac"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct error err;
        (void)error_set(&err, ERR_IO, "%.*s%s", rows[i].pad, padding, rows[i].text);
        if (strlen(err.message) != (size_t)rows[i].pad + strlen(rows[i].kept) ||
            strcmp(err.message + rows[i].pad, rows[i].kept) != 0)
            fail_msg("%s: %zu bytes end in \"%s\"", rows[i].name, strlen(err.message), err.message + rows[i].pad);
    }
}

static void long_params_end_between_two_characters(void **state)
{
    char param[ERROR_PARAM_MAX + 2];
    struct error err;

    (void)state;
    (void)snprintf(param, sizeof param, "%.*s\xc3\xa4", ERROR_PARAM_MAX - 2, padding);
    (void)error_set_param(&err, ERR_ARGUMENT, param, "m");
    assert_int_equal(strlen(err.param), ERROR_PARAM_MAX - 2);
    assert_is_utf8(err.param);
}

static void what_must_not_be_shown_becomes_question_marks(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"gr\xfc\xdf", "gr??"},       /* ISO 8859-1 */
        {"\x80", "?"},                /* no first byte */
        {"\xc0\xaf", "??"},           /* longer than it need be */
        {"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* beyond U+10FFFF */
        {"\xe2\x82", "??"},           /* the end is missing, and nothing was cut */
        {"\xe2\x82z", "??z"},         /* the end is missing */
        {"\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\x1b[31m\r\n\x7f", "a?[31m???"}, /* what a terminal obeys */
        {"\xc2\x9b", "?"},                  /* the same in one character */
        {"\xe2\x80\xae"
         "cod.exe\xe2\x80\xa8",
         "?cod.exe?"},                          /* turned, and a line that ends */
        {"\xef\xbb\xbf\xf3\xa0\x81\x81", "??"}, /* nobody sees it */
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct error err;
        (void)error_set_param(&err, ERR_IO, rows[i].text, "%s", rows[i].text);
        assert_string_equal(err.message, rows[i].want);
        assert_string_equal(err.param, rows[i].want);
    }
}

static void any_bytes_become_a_message_that_is_json(void **state)
{
    /* Bytes of which characters are likely to be made. */
    static const char bytes[] = "a\x80\xbf\xa0\x9f\xc2\xe0\xe2\xed\xf0\xf4\xc0\xff\x90";
    struct random random = {.state = 3};

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[16];
        struct error err;
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = bytes[random_below(&random, sizeof bytes - 1)];
        text[sizeof text - 1] = '\0';
        (void)error_set_param(&err, ERR_IO, text, "%.*s%s", ERROR_MESSAGE_MAX - 8, padding, text);
        assert_is_utf8(err.param);
        assert_is_utf8(err.message);
        assert_true(strlen(err.message) >= ERROR_MESSAGE_MAX - 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_row),
        cmocka_unit_test(details_are_kept),
        cmocka_unit_test(without_a_place_for_details_the_status_is_kept),
        cmocka_unit_test(long_messages_end_between_two_characters),
        cmocka_unit_test(long_params_end_between_two_characters),
        cmocka_unit_test(what_must_not_be_shown_becomes_question_marks),
        cmocka_unit_test(any_bytes_become_a_message_that_is_json),
    };

    return cmocka_run_group_tests_name("status", tests, setup, NULL);
}
