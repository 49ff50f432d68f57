/* test_utf8.c - what is one well-formed character: every first and second byte, and the bounds of table 3-7 of Unicode,
 * against its definition: a number, its shortest form, no surrogate, at most U+10FFFF. */
#include "config/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/random.h"

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

/* ---- repair ----------------------------------------------------------------------------------------------------- */

enum { REPAIRED_MAX = 4096 };

#define R "\xef\xbf\xbd" /* U+FFFD */

static const struct {
    const char *name, *input, *text;
    size_t used; /* when more may come */
} utf8_cases[] = {
    {"ascii", "abc", "abc", 3},
    {"two, three, four bytes", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9},
    {"a lone continuation", "a\x80z", "a" R "z", 3},
    {"never a first byte", "\xc0\xaf\xf5\xff", R R R R, 4},
    {"overlong (Unicode 15, table 3-8)", "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A", 9},
    {"surrogates (table 3-9)", "\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A", 9},
    {"beyond the last (table 3-10)", "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B", 9},
    {"cut sequences (table 3-11)", "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A", 9},
    {"the last code point", "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", 4},
    {"incomplete at the end", "a\xf0\x9f\x98", "a" R, 1},
    {"incomplete, two bytes of three", "\xe2\x82", R, 0},
    {"a first byte at the end", "ab\xc3", "ab" R, 2},
    {"the end can never be valid", "ab\xe0\x80", "ab" R R, 4},
};

static void ill_formed_bytes_become_replacements(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(utf8_cases); i++) {
        const uint8_t *in = (const uint8_t *)utf8_cases[i].input;
        const size_t size = strlen(utf8_cases[i].input);
        char out[REPAIRED_MAX];
        size_t n;
        const size_t used = utf8_repair(out, &n, in, size, true);
        if (used != size || n != strlen(utf8_cases[i].text) || memcmp(out, utf8_cases[i].text, n) != 0)
            fail_msg("%s: at the end", utf8_cases[i].name);
        if (utf8_repair(out, &n, in, size, false) != utf8_cases[i].used)
            fail_msg("%s: in between", utf8_cases[i].name);
    }
}

/* A decoder that is written differently: by the value of the code point. */
static bool decodes(const uint8_t *p, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = p[0] < 0x80             ? 1
                          : (p[0] & 0xe0) == 0xc0 ? 2
                          : (p[0] & 0xf0) == 0xe0 ? 3
                          : (p[0] & 0xf8) == 0xf0 ? 4
                                                  : 0;
    if (length != n)
        return false;
    uint32_t point = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return false;
        point = point << 6 | (p[i] & 0x3f);
    }
    return point >= least[n] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
}

static bool is_utf8(const uint8_t *p, size_t size)
{
    while (size > 0) {
        size_t n = 1;
        while (n <= 4 && n <= size && !decodes(p, n))
            n++;
        if (n > 4 || n > size)
            return false;
        p += n;
        size -= n;
    }
    return true;
}

static void any_bytes_in_any_pieces_give_the_same_valid_text(void **state)
{
    (void)state;
    static const uint8_t alphabet[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf,
                                       0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff, 0x00};
    struct random r = {11};
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t in[24], held[24 + UTF8_INCOMPLETE_MAX];
        char whole[UTF8_GROWTH * sizeof in], pieces[UTF8_GROWTH * sizeof in];
        size_t whole_bytes, pieces_bytes = 0, kept = 0;
        for (size_t i = 0; i < sizeof in; i++)
            in[i] = alphabet[random_below(&r, sizeof alphabet)];
        assert_int_equal(utf8_repair(whole, &whole_bytes, in, sizeof in, true), sizeof in);
        assert_true(is_utf8((const uint8_t *)whole, whole_bytes));
        for (size_t at = 0; at < sizeof in || kept > 0;) {
            const size_t take = at < sizeof in ? 1 + random_below(&r, (uint32_t)(sizeof in - at)) : 0;
            size_t n;
            memcpy(held + kept, in + at, take);
            kept += take;
            at += take;
            const size_t used = utf8_repair(pieces + pieces_bytes, &n, held, kept, take == 0);
            assert_true(is_utf8((const uint8_t *)pieces + pieces_bytes, n));
            assert_true(kept - used <= UTF8_INCOMPLETE_MAX);
            pieces_bytes += n;
            kept -= used;
            memmove(held, held + used, kept);
        }
        assert_int_equal(pieces_bytes, whole_bytes);
        assert_memory_equal(pieces, whole, whole_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_what_its_definition_says),
        cmocka_unit_test(the_first_and_the_last_of_each_length_are_characters),
        cmocka_unit_test(ill_formed_bytes_become_replacements),
        cmocka_unit_test(any_bytes_in_any_pieces_give_the_same_valid_text),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
