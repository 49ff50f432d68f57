/* test_multipart.c - multipart bodies: what clients send is taken apart, and what nobody should send is refused with a
 * reason. Each body lies in a block of its own, so that a read beyond it is seen. */
#include "server/fields/multipart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/program.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define TYPE "multipart/form-data; boundary=b"
#define HEAD "--b\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\n"

/* "name type [content]" of each part, or "ERROR: message". */
static char *parse(const char *type, const char *body, size_t size)
{
    struct multipart m;
    struct error err = {.message = ""};
    char *out = NULL;
    size_t out_size = 0;
    uint8_t *copy = malloc(size > 0 ? size : 1);
    FILE *to = open_memstream(&out, &out_size);
    assert_non_null(copy);
    assert_non_null(to);
    memcpy(copy, body, size);
    enum status st = multipart_begin(&m, type, size > 0 ? copy : NULL, size, &err); /* as it arrives */
    for (bool end = false; st == OK;) {
        struct multipart_part p = {.size = 0};
        st = multipart_next(&m, &p, &end, &err);
        if (st != OK || end)
            break;
        (void)fprintf(to, "%s %s [%.*s]", p.name, p.type, (int)p.size, (const char *)p.bytes);
    }
    if (st != OK)
        (void)fprintf(to, "ERROR: %s", err.message);
    assert_true(st == OK || st == ERR_ARGUMENT);
    (void)fclose(to);
    free(copy);
    return out;
}

struct parse_case {
    const char *name, *type, *body, *want; /* want: whole, or the part of an error's message after "ERROR" */
};

static void check(const struct parse_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *got = parse(cases[i].type, cases[i].body, strlen(cases[i].body));
        const bool fails = strncmp(cases[i].want, "ERROR", 5) == 0;
        if (fails ? strstr(got, "ERROR") == NULL || strstr(got, cases[i].want + 5) == NULL
                  : strcmp(got, cases[i].want) != 0)
            fail_msg("%s: got \"%s\", expected \"%s\"", cases[i].name, got, cases[i].want);
        free(got);
    }
}

static void bodies_are_taken_apart(void **state)
{
    static const struct parse_case cases[] = {
        {"one part", TYPE, HEAD "abc\r\n--b--\r\n", "image  [abc]"},
        {"without a last line's end", TYPE, HEAD "abc\r\n--b--", "image  [abc]"},
        {"two", TYPE, HEAD "abc\r\n" HEAD "d\r\n--b--", "image  [abc]image  [d]"},
        {"nothing in it", TYPE, HEAD "\r\n--b--", "image  []"},
        {"nothing in it, and no line for that", TYPE, HEAD "--b--", "image  []"},
        {"no part", TYPE, "--b--\r\n", ""},
        {"text before and after", TYPE, "hello\r\n" HEAD "abc\r\n--b--\r\nbye --b\r\n", "image  [abc]"},
        {"lines in the content", TYPE, HEAD "a\r\n\r\nb\n--b\r\r\n--c\r\n--b--", "image  [a\r\n\r\nb\n--b\r\r\n--c]"},
        {"a longer word in the content", TYPE, HEAD "a\r\n--bc\r\n--b--", "image  [a\r\n--bc]"},
        {"blanks behind the boundary", TYPE,
         HEAD "a\r\n--b \t\r\nContent-Disposition:form-data;name=x\r\n\r\nd\r\n--b--", "image  [a]x  [d]"},
        {"a quoted boundary", "multipart/form-data; charset=x; boundary=\"a b\"",
         "--a b\r\ncontent-disposition: Form-Data; NAME=\"i\"\r\n\r\nc\r\n--a b--", "i  [c]"},
        {"a type and a file's name", TYPE,
         "--b\r\nContent-Type: image/png; q=1\r\nX-Other: y\r\nContent-Disposition: form-data; "
         "filename=\"a;b=\\\"c\\\".png\"; "
         "name=image\r\n\r\nc\r\n--b--",
         "image image/png [c]"},
        {"no blanks behind colons", TYPE,
         "--b\r\nContent-Type:image/png\r\nContent-Transfer-Encoding:8bit\r\n"
         "Content-Disposition:form-data;name=image\r\n\r\nc\r\n--b--",
         "image image/png [c]"},
        {"an encoding that is none", TYPE,
         "--b\r\nContent-Transfer-Encoding: binary\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\nc\r\n--b--",
         "image  [c]"},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void what_is_no_such_body_is_refused(void **state)
{
#define BOUNDARY_70 "1234567890123456789012345678901234567890123456789012345678901234567890"
    static const struct parse_case cases[] = {
        {"no boundary in the type", "multipart/form-data", HEAD "a\r\n--b--", "ERROR: Content-Type is"},
        {"an empty one", "multipart/form-data; boundary=", HEAD "a\r\n--b--", "ERRORboundary=... of 1 to 70"},
        {"an empty quoted one", "multipart/form-data; boundary=\"\"", HEAD "a\r\n--b--", "ERRORof 1 to 70"},
        {"two", "multipart/form-data; boundary=b; boundary=c", HEAD "a\r\n--b--", "ERRORof 1 to 70"},
        {"an open quote", "multipart/form-data; boundary=\"b", HEAD "a\r\n--b--", "ERRORof 1 to 70"},
        {"71 bytes", "multipart/form-data; boundary=" BOUNDARY_70 "1", HEAD "a\r\n--b--", "ERRORof 1 to 70"},
        {"70 bytes that are not there", "multipart/form-data; boundary=" BOUNDARY_70, HEAD "a\r\n--b--",
         "ERRORthe body has no line \"--" BOUNDARY_70 "\""},
        {"an empty body", TYPE, "", "ERRORno line \"--b\""},
        {"a body without it", TYPE, "abc", "ERRORno line \"--b\""},
        {"bare line feeds", TYPE, "--b\nContent-Disposition: form-data; name=\"image\"\n\na\n--b--", "ERRORno line"},
        {"cut in the first line", TYPE, "--b", "ERRORno line"},
        {"cut before a header", TYPE, "--b\r\n", "ERRORheaders do not end"},
        {"cut in a header", TYPE, "--b\r\nContent-Dispo", "ERRORheaders do not end"},
        {"cut behind the headers", TYPE, HEAD, "ERRORthe part \"image\" is truncated"},
        {"cut in the content", TYPE, HEAD "abc", "ERRORthe part \"image\" is truncated"},
        {"cut before the boundary's end", TYPE, HEAD "abc\r\n--b", "ERRORthe part \"image\" is truncated"},
        {"cut before the last dash", TYPE, HEAD "abc\r\n--b-", "ERRORthe part \"image\" is truncated"},
        {"cut behind a boundary", TYPE, HEAD "abc\r\n--b\r\n", "ERRORheaders do not end"},
        {"no headers", TYPE, "--b\r\n\r\nabc\r\n--b--", "ERRORno Content-Disposition"},
        {"no name", TYPE, "--b\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"another kind", TYPE, "--b\r\nContent-Disposition: attachment; name=\"image\"\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"two names", TYPE, "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"two dispositions", TYPE,
         "--b\r\nContent-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"an open name", TYPE, "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"a name too long", TYPE, "--b\r\nContent-Disposition: form-data; name=" BOUNDARY_70 "\r\n\r\nabc\r\n--b--",
         "ERRORexpected exactly one: form-data"},
        {"a folded header", TYPE, "--b\r\nContent-Disposition: form-data;\r\n name=a\r\n\r\nabc\r\n--b--", "ERROR"},
        {"a line without a name", TYPE, "--b\r\nform-data\r\n\r\nabc\r\n--b--", "ERRORno name"},
        {"base64", TYPE,
         "--b\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=a\r\n\r\nabc\r\n--b--",
         "ERRORContent-Transfer-Encoding"},
        {"a type that is none", TYPE,
         "--b\r\nContent-Type: ;\r\nContent-Disposition: form-data; name=a\r\n\r\nabc\r\n--b--",
         "ERRORnot a media type"},
        {"a control character", TYPE, "--b\r\nContent-Disposition: form-data; name=\"a\x01\"\r\n\r\nabc\r\n--b--",
         "ERRORcontrol character"},
    };
    (void)state;
    check(cases, ARRAY_LEN(cases));
}

static void endless_headers_are_not_read(void **state)
{
    enum { LINES = 100000 };
    static const char line[] = "X-Endless: 0123456789\r\n", start[] = "--b\r\n";
    char *body = malloc(sizeof start + LINES * sizeof line);
    size_t size = sizeof start - 1;
    (void)state;
    assert_non_null(body);
    memcpy(body, start, size);
    for (int i = 0; i < LINES; i++, size += sizeof line - 1)
        memcpy(body + size, line, sizeof line - 1);
    char *got = parse(TYPE, body, size);
    assert_non_null(strstr(got, "headers do not end within 4096 bytes"));
    free(got);
    free(body);
}

/* What could take time is what looks like a boundary and is none. */
static void false_boundaries_cost_no_more_than_their_bytes(void **state)
{
    const int times = test_work(1000000);
    static const char almost[] = "\r\n--b\r";
    char *body = malloc(sizeof HEAD + (size_t)times * sizeof almost);
    size_t size = sizeof HEAD - 1;
    (void)state;
    assert_non_null(body);
    memcpy(body, HEAD, size);
    for (int i = 0; i < times; i++, size += sizeof almost - 1)
        memcpy(body + size, almost, sizeof almost - 1);
    char *got = parse(TYPE, body, size);
    assert_non_null(strstr(got, "is truncated"));
    free(got);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_taken_apart),
        cmocka_unit_test(what_is_no_such_body_is_refused),
        cmocka_unit_test(endless_headers_are_not_read),
        cmocka_unit_test(false_boundaries_cost_no_more_than_their_bytes),
    };
    return cmocka_run_group_tests_name("multipart", tests, NULL, NULL);
}
