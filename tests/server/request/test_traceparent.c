/* test_traceparent.c - which values of traceparent are taken, as W3C Trace Context says, and what is passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/request/traceparent.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void valid_values_are_taken(void **state)
{
    static const struct {
        const char *value;
        unsigned flags;
    } cases[] = {
        {"00-" TRACE "-" SPAN "-01", 1},
        {"00-" TRACE "-" SPAN "-00", 0},
        {"00-" TRACE "-" SPAN "-03", 3},
        {"00-" TRACE "-" SPAN "-ff", 3}, /* what is not known is not passed on */
        {" \t00-" TRACE "-" SPAN "-01 \t", 1},
        {"cc-" TRACE "-" SPAN "-01", 1}, /* later versions begin like this one */
        {"cc-" TRACE "-" SPAN "-01-what-the-future-will-be", 1},
        {"cc-" TRACE "-" SPAN "-01-", 1},
        {"fe-" TRACE "-" SPAN "-01", 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct traceparent t;
        if (!traceparent_parse(&t, cases[i].value))
            fail_msg("\"%s\" was not taken", cases[i].value);
        assert_string_equal(t.trace, TRACE);
        assert_string_equal(t.span, SPAN);
        assert_int_equal(t.flags, cases[i].flags);
    }
}

static void anything_else_is_ignored(void **state)
{
    static const char *const cases[] = {
        "",
        " ",
        "00",
        "00-" TRACE "-" SPAN,
        "00-" TRACE "-" SPAN "-",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01-more",
        "00-" TRACE "-" SPAN "-011",
        "cc-" TRACE "-" SPAN "-01.more",
        "cc-" TRACE "-" SPAN "-01more",
        "ff-" TRACE "-" SPAN "-01",
        "0-" TRACE "-" SPAN "-01",
        "000-" TRACE "-" SPAN "-01",
        "0x-" TRACE "-" SPAN "-01",
        "CC-" TRACE "-" SPAN "-01",
        ".0-" TRACE "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-" SPAN "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "-01-",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-" TRACE "-00f067aa0ba902b.-01",
        "00-" TRACE "-" SPAN "-0A",
        "00-" TRACE "-" SPAN "-.0",
        "00 " TRACE "-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01",
        "00-" TRACE "-" SPAN ".01",
        "00-" TRACE "-" SPAN "-01,00-" TRACE "-" SPAN "-01",
        "00-" TRACE "\n" SPAN "-01",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct traceparent t = {.trace = "as before"};
        if (traceparent_parse(&t, cases[i]))
            fail_msg("\"%s\" was taken", cases[i]);
        assert_string_equal(t.trace, "as before");
    }
}

static void the_answer_has_the_trace_and_a_span_of_ours(void **state)
{
    struct traceparent t, again;
    char first[TRACEPARENT_BYTES], second[TRACEPARENT_BYTES];
    (void)state;
    assert_true(traceparent_parse(&t, "cc-" TRACE "-" SPAN "-ff-more"));
    traceparent_renew_span(&t);
    traceparent_print(&t, first);
    assert_true(traceparent_parse(&again, first)); /* valid itself */
    assert_memory_equal(first, "00-" TRACE "-", 36);
    assert_string_not_equal(again.span, SPAN);
    assert_string_equal(first + 52, "-03");
    traceparent_renew_span(&t);
    traceparent_print(&t, second);
    assert_string_not_equal(first, second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_values_are_taken),
        cmocka_unit_test(anything_else_is_ignored),
        cmocka_unit_test(the_answer_has_the_trace_and_a_span_of_ours),
    };
    return cmocka_run_group_tests_name("traceparent", tests, NULL, NULL);
}
