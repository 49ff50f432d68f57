/* test_utf8.c - what is one well-formed character: every first and second byte, and the bounds of table 3-7 of Unicode,
 * against its definition: a number, its shortest form, no surrogate, at most U+10FFFF. */
#include "config/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

/* By the definition, of the bytes [4] with a NUL behind. */
static size_t defined_length(const unsigned char *b)
{
    static const uint32_t shortest[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = b[0] < 0x80             ? 1
                     : (b[0] & 0xe0) == 0xc0 ? 2
                     : (b[0] & 0xf0) == 0xe0 ? 3
                     : (b[0] & 0xf8) == 0xf0 ? 4
                                             : 0;
    if (n <= 1)
        return n == 1 && b[0] != 0 ? 1 : 0;
    uint32_t code = b[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (b[i] & 0x3fu);
    }
    return code >= shortest[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

static void a_character_is_what_its_definition_says(void **state)
{
    static const unsigned char later[] = {0x00, 0x41, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    (void)state;
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second++)
            for (size_t i = 0; i < ARRAY_LEN(later) * ARRAY_LEN(later); i++) {
                const unsigned char bytes[5] = {(unsigned char)first, (unsigned char)second,
                                                later[i / ARRAY_LEN(later)], later[i % ARRAY_LEN(later)], 0};
                const size_t want = defined_length(bytes), got = utf8_length((const char *)bytes);
                if (got != want)
                    fail_msg("%02x %02x %02x %02x: %zu, expected %zu", bytes[0], bytes[1], bytes[2], bytes[3], got,
                             want);
            }
}

static void the_first_and_the_last_of_each_length_are_characters(void **state)
{
    static const struct {
        const char *text;
        size_t want;
    } cases[] = {
        {"\x01", 1},
        {"\x7f", 1},
        {"\xc2\x80", 2},
        {"\xdf\xbf", 2},
        {"\xe0\xa0\x80", 3},
        {"\xed\x9f\xbf", 3},
        {"\xee\x80\x80", 3},
        {"\xef\xbf\xbf", 3},
        {"\xf0\x90\x80\x80", 4},
        {"\xf4\x8f\xbf\xbf", 4},
        {"", 0},
        {"\x80", 0},
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},
        {"\xed\xbf\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"\xff", 0},
        {"\xc3", 0},
        {"\xe2\x82", 0},
        {"\xf0\x9f\x98", 0},
        {"ab", 1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (utf8_length(cases[i].text) != cases[i].want)
            fail_msg("case %zu: %zu, expected %zu", i, utf8_length(cases[i].text), cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_what_its_definition_says),
        cmocka_unit_test(the_first_and_the_last_of_each_length_are_characters),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
