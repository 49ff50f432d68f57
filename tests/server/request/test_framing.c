/* test_framing.c - where a request's headers and body end is beyond doubt, or the request is refused with what is in
 * doubt. A request is taken apart here as the HTTP library does it: in place, by strings that end with a NUL. */
#include "server/request/framing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define GET "GET / HTTP/1.1\r\nHost: x\r\n"
#define PLACES "the request's header has a NUL, a line that does not end in CR LF, or misplaced spaces"
#define NAME "the name of a header has a character that is not allowed there"
#define VALUE "the value of a header has a control character"
#define LENGTH "Content-Length is not a number of bytes"
#define LENGTHS "the request has more than one Content-Length"
#define ENCODING "Transfer-Encoding is not \"chunked\", the only one that is supported"
#define ENCODINGS "the request has more than one Transfer-Encoding"
#define OLD "HTTP/1.0 has no Transfer-Encoding"
#define BOTH "the request has both Content-Length and Transfer-Encoding"
#define HOSTS "the request has more than one Host"
#define NO_HOST "the request has no Host, which HTTP/1.1 asks for"

/* The rest of a line behind `at`, ended by a NUL; *next is behind its LF. */
static void end_line(char *at, char *end, char **next)
{
    char *feed = memchr(at, '\n', (size_t)(end - at));
    assert_non_null(feed);
    *next = feed + 1;
    *feed = '\0';
    if (feed > at && feed[-1] == '\r')
        feed[-1] = '\0';
}

static void read_headers(struct framing *f, char *at, char *end)
{
    while (at < end && *at != '\r' && *at != '\n') {
        char *next, *colon = memchr(at, ':', (size_t)(end - at));
        assert_non_null(colon);
        end_line(colon, end, &next);
        *colon = '\0';
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        framing_header(f, at, strlen(at), value, strlen(value));
        at = next;
    }
}

static enum status read_request(struct framing *f, const char *text, size_t size, struct error *err)
{
    char *copy = malloc(size), *next;
    assert_non_null(copy);
    memcpy(copy, text, size);
    end_line(copy, copy + size, &next);
    char *target = strchr(copy, ' '), *version = strrchr(copy, ' ');
    assert_true(target != NULL && version != target);
    *target = '\0';
    target += 1 + strspn(target + 1, " ");
    *version = '\0';
    framing_begin(f, copy, target, strlen(target), version + 1, size);
    read_headers(f, next, copy + size);
    const enum status st = framing_end(f, err);
    free(copy);
    return st;
}

struct request_case {
    const char *name, *text;
    size_t size;      /* 0: up to its NUL */
    const char *says; /* NULL: it is fine */
};

static void check(const struct request_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct framing f;
        struct error err = {.message = ""};
        const size_t size = cases[i].size > 0 ? cases[i].size : strlen(cases[i].text);
        const char *says = cases[i].says != NULL ? cases[i].says : "";
        const enum status st = read_request(&f, cases[i].text, size, &err);
        if (st != (cases[i].says != NULL ? ERR_ARGUMENT : OK) || strcmp(err.message, says) != 0)
            fail_msg("%s: %s \"%s\", expected \"%s\"", cases[i].name, status_name(st), err.message, says);
    }
}
#define SIZED(text) text, sizeof(text) - 1

/* ---- bodies ----------------------------------------------------------------------------------------------------- */

static void the_body_is_told_by_its_header(void **state)
{
    static const struct {
        const char *text;
        bool has_length, is_chunked;
        uint64_t length;
    } cases[] = {
        {GET "\r\n", false, false, 0},
        {"GET / HTTP/1.1\r\nHOST:\r\n\r\n", false, false, 0},
        {"GET / HTTP/1.0\r\n\r\n", false, false, 0},
        {GET "Content-Length: 0\r\n\r\n", true, false, 0},
        {GET "content-length:17\r\n\r\n", true, false, 17},
        {GET "Content-Length: \t 17 \t\r\n\r\n", true, false, 17},
        {GET "Content-Length: 0017\r\n\r\n", true, false, 17},
        {GET "Content-Length: 9223372036854775807\r\n\r\n", true, false, INT64_MAX},
        {"GET / HTTP/1.0\r\nContent-Length: 5\r\n\r\n", true, false, 5},
        {GET "Transfer-Encoding: chunked\r\n\r\n", false, true, 0},
        {GET "TRANSFER-ENCODING: Chunked\r\n\r\n", false, true, 0},
        {GET "X-Content-Length: 1\r\nContent-Length2: x\r\nTransfer-Encodings: x\r\n\r\n", false, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct framing f;
        struct error err = {.message = ""};
        if (read_request(&f, cases[i].text, strlen(cases[i].text), &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.message);
        if (f.has_length != cases[i].has_length || f.is_chunked != cases[i].is_chunked || f.length != cases[i].length)
            fail_msg("%s: has_length %d, is_chunked %d, length %llu", cases[i].text, f.has_length, f.is_chunked,
                     (unsigned long long)f.length);
    }
}

static void a_body_of_two_ends_is_refused(void **state)
{
    static const struct request_case cases[] = {
        {"length and encoding", GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0, BOTH},
        {"encoding and length", GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 0, BOTH},
        {"two lengths", GET "Content-Length: 2\r\nX: x\r\nContent-Length: 40\r\n\r\n", 0, LENGTHS},
        {"the same twice", GET "Content-Length: 2\r\ncontent-length: 2\r\n\r\n", 0, LENGTHS},
        {"chunked twice", GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 0, ENCODINGS},
        {"chunked and none", GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 0, ENCODING},
        {"in HTTP/1.0", "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 0, OLD},
        {"two hosts", GET "host: x\r\n\r\n", 0, HOSTS},
        {"no host", "GET / HTTP/1.1\r\nX-Host: x\r\n\r\n", 0, NO_HOST},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void a_length_is_digits_alone(void **state)
{
    static const struct request_case cases[] = {
        {"none", GET "Content-Length:\r\n\r\n", 0, LENGTH},
        {"blanks", GET "Content-Length:  \t\r\n\r\n", 0, LENGTH},
        {"a sign", GET "Content-Length: +2\r\n\r\n", 0, LENGTH},
        {"below 0", GET "Content-Length: -2\r\n\r\n", 0, LENGTH},
        {"hexadecimal", GET "Content-Length: 0x2\r\n\r\n", 0, LENGTH},
        {"a letter", GET "Content-Length: 2x\r\n\r\n", 0, LENGTH},
        {"a list", GET "Content-Length: 2, 2\r\n\r\n", 0, LENGTH},
        {"two words", GET "Content-Length: 2 2\r\n\r\n", 0, LENGTH},
        {"a fraction", GET "Content-Length: 2.0\r\n\r\n", 0, LENGTH},
        {"one that would be 2 in 64 bits", GET "Content-Length: 18446744073709551618\r\n\r\n", 0, LENGTH},
        {"20 digits", GET "Content-Length: 00000000000000000002\r\n\r\n", 0, LENGTH},
        {"digits of another script", GET "Content-Length: \xd9\xa2\r\n\r\n", 0, LENGTH},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void an_encoding_is_chunked_alone(void **state)
{
    static const struct request_case cases[] = {
        {"none", GET "Transfer-Encoding:\r\n\r\n", 0, ENCODING},
        {"another", GET "Transfer-Encoding: gzip\r\n\r\n", 0, ENCODING},
        {"two", GET "Transfer-Encoding: gzip, chunked\r\n\r\n", 0, ENCODING},
        {"a list of it", GET "Transfer-Encoding: chunked, chunked\r\n\r\n", 0, ENCODING},
        {"identity", GET "Transfer-Encoding: identity\r\n\r\n", 0, ENCODING},
        {"more in front", GET "Transfer-Encoding: xchunked\r\n\r\n", 0, ENCODING},
        {"more behind", GET "Transfer-Encoding: chunkedx\r\n\r\n", 0, ENCODING},
        {"less", GET "Transfer-Encoding: chunke\r\n\r\n", 0, ENCODING},
        {"a parameter", GET "Transfer-Encoding: chunked;x=1\r\n\r\n", 0, ENCODING},
        {"a blank behind", GET "Transfer-Encoding: chunked \r\n\r\n", 0, ENCODING},
        {"a tab behind", GET "Transfer-Encoding: chunked\t\r\n\r\n", 0, ENCODING},
        {"a vertical tab", GET "Transfer-Encoding: \vchunked\r\n\r\n", 0, VALUE},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

/* ---- characters ------------------------------------------------------------------------------------------------- */

static void names_are_tokens(void **state)
{
    static const struct request_case cases[] = {
        {"a space before the colon", GET "Content-Length : 2\r\n\r\n", 0, NAME},
        {"a tab before the colon", GET "Transfer-Encoding\t: chunked\r\n\r\n", 0, NAME},
        {"no name", GET ": x\r\n\r\n", 0, NAME},
        {"in spite of what is behind", GET "Content-Length : 2\r\nContent-Length: x\r\n\r\n", 0, NAME},
    };
    static const char tokens[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (void)state;
    check(cases, ARRAY_LEN(cases));
    for (int c = 1; c < 256; c++) {
        char name[] = {'a', (char)c, 'b', '\0'}, text[64];
        struct framing f;
        const bool fine = strchr(tokens, c) != NULL;
        if (c == ':' || c == '\n')
            continue; /* another name, another line */
        const int size = snprintf(text, sizeof text, GET "%s: x\r\n\r\n", name);
        if ((read_request(&f, text, (size_t)size, NULL) == OK) != fine)
            fail_msg("character %d of a name: expected it to be %s", c, fine ? "fine" : "refused");
    }
}

static void values_have_no_control_characters(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        char text[64];
        struct framing f;
        struct error err = {.message = ""};
        const bool fine = c >= 0x20 ? c != 0x7f : c == '\t';
        if (c == '\n')
            continue; /* another line */
        const int size = snprintf(text, sizeof text, GET "a: x%cy\r\n\r\n", c);
        const enum status st = read_request(&f, text, (size_t)size, &err);
        if (st != (fine ? OK : ERR_ARGUMENT) || (!fine && strcmp(err.message, VALUE) != 0))
            fail_msg("character %d of a value: %s %s", c, status_name(st), err.message);
    }
}

/* ---- what lies between the strings ------------------------------------------------------------------------------ */

static void lines_are_where_they_should_be(void **state)
{
    static const struct request_case cases[] = {
        {"a NUL in a value", SIZED(GET "X: a\0b\r\nY: c\r\n\r\n"), PLACES},
        {"a NUL in the last value", SIZED(GET "X: a\0b\r\n\r\n"), PLACES},
        {"a NUL behind a value", SIZED(GET "X: a\0\r\n\r\n"), PLACES},
        {"a NUL in the version", SIZED("GET / HTTP/1.1\0\r\nX: a\r\n\r\n"), PLACES},
        {"LF alone", "GET / HTTP/1.1\nX: a\n\n", 0, PLACES},
        {"LF alone behind the request line", "GET / HTTP/1.1\nX: a\r\n\r\n", 0, PLACES},
        {"LF alone behind a header", GET "X: a\nY: b\r\n\r\n", 0, PLACES},
        {"LF alone behind the last header", GET "X: a\n\r\n", 0, PLACES},
        {"LF alone at the end", GET "X: a\r\n\n", 0, PLACES},
        {"two spaces before the target", "GET  / HTTP/1.1\r\n\r\n", 0, PLACES},
        {"two spaces before the version", "GET /  HTTP/1.1\r\n\r\n", 0, NO_HOST}, /* one is the target's */
        {"a smuggled length", SIZED(GET "X: a\0\r\nContent-Length: 5\r\n\r\n"), PLACES},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

/* A space behind the target that the library has taken for neither. */
static void the_target_is_one_space_before_the_version(void **state)
{
    char line[] = "GET\0/a\0\0HTTP/1.0\0\0\0\0";
    struct framing f;
    struct error err;
    (void)state;
    framing_begin(&f, line, line + 4, 2, line + 8, sizeof line - 1);
    assert_int_equal(framing_end(&f, &err), ERR_ARGUMENT);
    assert_string_equal(err.message, PLACES);
    framing_begin(&f, line, line + 4, 3, line + 8, sizeof line - 1);
    assert_int_equal(framing_end(&f, &err), OK);
}

static void of_strings_elsewhere_in_memory_nothing_is_concluded(void **state)
{
    enum { FAR = 1000, HEADER = 40 };
    static const char memory[5][FAR] = {"/", "HTTP/1.0", "5", "Content-Length", "GET"};
    const char *target = memory[0], *version = memory[1], *value = memory[2], *name = memory[3], *method = memory[4];
    struct framing f;
    (void)state;
    framing_begin(&f, method, target, 1, version, HEADER);
    framing_header(&f, name, strlen(name), value, 1);
    assert_int_equal(framing_end(&f, NULL), OK);
    assert_true(f.has_length && f.length == 5);
}

static void what_was_wrong_first_is_said(void **state)
{
    static const struct request_case cases[] = {
        {"a length, then two", GET "Content-Length: x\r\nContent-Length: 2\r\n\r\n", 0, LENGTH},
        {"an encoding, then both", GET "Transfer-Encoding: x\r\nContent-Length: 2\r\n\r\n", 0, ENCODING},
        {"a name, then the end", GET "X Y: x\n\n", 0, NAME},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

/* ---- ids -------------------------------------------------------------------------------------------------------- */

static void a_clients_id_is_kept_if_it_is_one(void **state)
{
    char longest[REQUEST_ID_MAX + 2], out[REQUEST_ID_MAX + 1];
    (void)state;
    memset(longest, 'a', sizeof longest);
    longest[REQUEST_ID_MAX] = '\0';
    const char *const kept[] = {"x", "A.b_c-9", longest};
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        framing_choose_id(out, kept[i]);
        assert_string_equal(out, kept[i]);
    }
    char too_long[REQUEST_ID_MAX + 2];
    memset(too_long, 'a', sizeof too_long);
    too_long[REQUEST_ID_MAX + 1] = '\0';
    const char *const replaced[] = {NULL, "", "a b", "a\n", "a\"", "\xc3\xa4", "a/b", too_long};
    char before[sizeof out] = "";
    for (size_t i = 0; i < ARRAY_LEN(replaced); i++) {
        framing_choose_id(out, replaced[i]);
        assert_int_equal(strlen(out), 32);
        assert_int_equal(strspn(out, "0123456789abcdef"), 32);
        assert_string_not_equal(out, before);
        memcpy(before, out, sizeof before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_is_told_by_its_header),
        cmocka_unit_test(a_body_of_two_ends_is_refused),
        cmocka_unit_test(a_length_is_digits_alone),
        cmocka_unit_test(an_encoding_is_chunked_alone),
        cmocka_unit_test(names_are_tokens),
        cmocka_unit_test(values_have_no_control_characters),
        cmocka_unit_test(lines_are_where_they_should_be),
        cmocka_unit_test(the_target_is_one_space_before_the_version),
        cmocka_unit_test(of_strings_elsewhere_in_memory_nothing_is_concluded),
        cmocka_unit_test(what_was_wrong_first_is_said),
        cmocka_unit_test(a_clients_id_is_kept_if_it_is_one),
    };
    return cmocka_run_group_tests_name("framing", tests, NULL, NULL);
}
