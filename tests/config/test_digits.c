/* test_digits.c - whole numbers in decimal digits. */
#include "config/digits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static void digits_are_read_up_to_what_is_none(void **state)
{
    static const struct {
        const char *text, *rest;
        uint64_t want;
    } cases[] = {
        {"0", "", 0},
        {"7", "", 7},
        {"0042", "", 42},
        {"12,34", ",34", 12},
        {"9 ", " ", 9},
        {"0x10", "x10", 0}, /* no other notation */
        {"1e3", "e3", 1},
        {"1.5", ".5", 1},
        {"18446744073709551615", "", UINT64_MAX},
        {"00000000000000000000018446744073709551615", "", UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *at = cases[i].text;
        uint64_t got = 99;
        assert_true(digits_read(&got, &at));
        assert_true(got == cases[i].want);
        assert_string_equal(at, cases[i].rest);
    }
}

static void what_is_no_number_of_64_bits_is_refused(void **state)
{
    static const char *const cases[] = {
        "", "-1", "+1", " 1", "\t1", "x1", ",", ".5", "18446744073709551616", "99999999999999999999999"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *at = cases[i];
        uint64_t got = 99;
        assert_false(digits_read(&got, &at));
        assert_true(got == 99);
        assert_ptr_equal(at, cases[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_are_read_up_to_what_is_none),
        cmocka_unit_test(what_is_no_number_of_64_bits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
