/* test_cors.c - which origins the setting cors_origins may name, and which of them are answered. */
#include "server/request/cors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static void settings_are_off_everybody_or_origins(void **state)
{
    static const char *const cases[] = {
        "off",
        "*",
        "http://a",
        "https://a",
        "https://example.org",
        "http://localhost:3000",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "https://xn--bcher-kva.example",
        "https://a,http://b:1,https://c",
        "https://a,https://a",
        "https://a, https://b",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err;
        if (cors_check(cases[i], &err) != OK)
            fail_msg("%s: %s", cases[i], err.message);
    }
}

static void what_is_no_origin_is_named(void **state)
{
    static const struct {
        const char *origins, *wrong;
    } cases[] = {
        {"", ""},
        {"https://", "https://"},
        {"http://", "http://"},
        {"example.org", "example.org"},
        {"ftp://example.org", "ftp://example.org"},
        {"HTTPS://example.org", "HTTPS://example.org"},
        {"https://Example.org", "https://Example.org"},
        {"https://example.org/", "https://example.org/"},
        {"https://example.org/path", "https://example.org/path"},
        {"https://*.example.org", "https://*.example.org"},
        {"https://a@example.org", "https://a@example.org"},
        {"https://a?x", "https://a?x"},
        {"null", "null"},
        {"https://a,", ""},
        {",https://a", ""},
        {"https://a, https://b c", "https://b c"},
        {"https://a,*", "*"},
        {"off,https://a", "off"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct error err = {.message = ""};
        char want[512];
        (void)snprintf(
            want, sizeof want,
            "cors_origins: \"%s\": expected an origin such as https://example.org or http://localhost:3000 in "
            "lower case, without a path; * alone; or off",
            cases[i].wrong);
        const enum status st = cors_check(cases[i].origins, &err);
        if (st != ERR_CONFIG || strcmp(err.message, want) != 0 || strcmp(err.param, "cors_origins") != 0)
            fail_msg("\"%s\": %s \"%s\"", cases[i].origins, status_name(st), err.message);
    }
}

static void origins_are_answered_that_are_listed(void **state)
{
#define LIST "https://example.org,http://localhost:3000"
    static const struct {
        const char *origins, *origin, *want; /* want: NULL: nothing */
    } cases[] = {
        {"off", "https://example.org", NULL},
        {"off", "off", NULL},
        {"*", "https://example.org", "*"},
        {"*", "null", "*"},
        {"*", NULL, NULL},
        {LIST, NULL, NULL},
        {LIST, "https://example.org", "https://example.org"},
        {LIST, "http://localhost:3000", "http://localhost:3000"},
        {LIST, "http://localhost:300", NULL},
        {LIST, "http://localhost:30000", NULL},
        {LIST, "http://localhost", NULL},
        {LIST, "http://example.org", NULL},
        {LIST, "https://example.org.evil.example", NULL},
        {LIST, "https://evil.example/https://example.org", NULL},
        {LIST, "xample.org", NULL},
        {LIST, "https://example.or", NULL},
        {LIST, LIST, NULL},
        {LIST, "", NULL},
        {LIST, "null", NULL},
        {LIST, "*", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = cors_answer(cases[i].origins, cases[i].origin);
        if ((got == NULL) != (cases[i].want == NULL) || (got != NULL && strcmp(got, cases[i].want) != 0))
            fail_msg("%s of %s: %s", cases[i].origin, cases[i].origins, got != NULL ? got : "nothing");
    }
}

static void answers_vary_where_origins_are_listed(void **state)
{
    (void)state;
    assert_false(cors_varies("off"));
    assert_false(cors_varies("*"));
    assert_true(cors_varies("https://example.org"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_off_everybody_or_origins),
        cmocka_unit_test(what_is_no_origin_is_named),
        cmocka_unit_test(origins_are_answered_that_are_listed),
        cmocka_unit_test(answers_vary_where_origins_are_listed),
    };
    return cmocka_run_group_tests_name("cors", tests, NULL, NULL);
}
