/* test_text.c - stop strings and UTF-8: what comes out, whatever the pieces are that it goes in by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/core/text.h"
#include "tests/support/random.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
enum { TEXT_MAX = 4096 };

/* ---- stop strings ---------------------------------------------------------------------------------------------- */

static struct stop_set set_of(const char *const *stops)
{
    struct stop_set s = {0};
    for (; *stops != NULL; stops++)
        assert_true(stop_set_add(&s, *stops, strlen(*stops)));
    return s;
}

static const struct {
    const char *name;
    const char *stops[4];
    const char *input; /* fed until a stop string ends, then flushed */
    const char *text;
    const char *held; /* withheld when the input ends */
    bool stopped;
} stop_cases[] = {
    {"no stop strings", {NULL}, "abc", "abc", "", false},
    {"one byte", {"c", NULL}, "abcd", "ab", "", true},
    {"at the start", {"ab", NULL}, "abc", "", "", true},
    {"a prefix is withheld", {"xyz", NULL}, "abxy", "abxy", "xy", false},
    {"a prefix that goes on otherwise", {"xyz", NULL}, "abxyabc", "abxyabc", "", false},
    {"the prefix begins again", {"aab", NULL}, "aaab", "a", "", true},
    {"overlapping itself", {"abab1", NULL}, "ababab1x", "ab", "", true},
    {"only the longest possible suffix", {"abcabd", NULL}, "zabcabc", "zabcabc", "abc", false},
    {"two that share a prefix", {"foobar", "fooz", NULL}, "afooz", "a", "", true},
    {"the first to end counts", {"bcd", "c", NULL}, "abcd", "ab", "", true},
    {"of two that end together the longer", {"c", "abc", NULL}, "xabcd", "x", "", true},
    {"the same in the other order", {"abc", "c", NULL}, "xabcd", "x", "", true},
    {"one inside what another waits for", {"abcde", "cd", NULL}, "abcd", "ab", "", true},
    {"bytes that are not UTF-8", {"\xff\xfe", NULL}, "a\xff\xff\xfe", "a\xff", "", true},
};

static void stop_strings_never_leak(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stop_cases); i++) {
        const struct stop_set s = set_of(stop_cases[i].stops);
        struct stop_matcher m;
        uint8_t text[TEXT_MAX];
        size_t size = 0, n;
        bool stopped = false;
        stop_matcher_init(&m, &s);
        for (const char *c = stop_cases[i].input; *c != '\0' && !stopped; c++) {
            stopped = stop_matcher_feed(&m, (uint8_t)*c, text + size, &n);
            size += n;
        }
        n = stop_matcher_flush(&m, text + size);
        if (stopped != stop_cases[i].stopped || n != strlen(stop_cases[i].held) ||
            size + n != strlen(stop_cases[i].text) || memcmp(text, stop_cases[i].text, size + n) != 0)
            fail_msg("%s: \"%.*s\", %zu withheld, %s", stop_cases[i].name, (int)(size + n), (char *)text, n,
                     stopped ? "stopped" : "went on");
    }
}

/* The earliest end of a stop string in `text`, by looking at all of them everywhere; the longest of that end. */
static bool search(const struct stop_set *s, const uint8_t *text, size_t size, size_t *begin)
{
    for (size_t end = 1; end <= size; end++) {
        bool found = false;
        for (uint32_t i = 0; i < s->count; i++) {
            const size_t length = s->lengths[i];
            if (length <= end && memcmp(text + end - length, s->bytes[i], length) == 0 &&
                (!found || end - length < *begin)) {
                *begin = end - length;
                found = true;
            }
        }
        if (found)
            return true;
    }
    return false;
}

static void random_texts_stop_where_a_plain_search_says(void **state)
{
    (void)state;
    struct random r = {7};
    for (unsigned round = 0; round < 20000; round++) {
        struct stop_set s = {0};
        struct stop_matcher m;
        uint8_t input[40], text[sizeof input + GENERATE_STOP_BYTES_MAX];
        size_t size = 0, begin = 0, n;
        bool stopped = false;
        for (uint32_t stops = random_below(&r, GENERATE_STOPS_MAX + 1); s.count < stops;) {
            uint8_t stop[5];
            for (size_t i = 0; i < sizeof stop; i++)
                stop[i] = (uint8_t)('a' + random_below(&r, 2));
            assert_true(stop_set_add(&s, stop, 1 + random_below(&r, sizeof stop)));
        }
        for (size_t i = 0; i < sizeof input; i++)
            input[i] = (uint8_t)('a' + random_below(&r, 3));
        stop_matcher_init(&m, &s);
        for (size_t i = 0; i < sizeof input && !stopped; i++) {
            stopped = stop_matcher_feed(&m, input[i], text + size, &n);
            size += n;
        }
        size += stop_matcher_flush(&m, text + size);
        assert_int_equal(search(&s, input, sizeof input, &begin), stopped);
        assert_int_equal(size, stopped ? begin : sizeof input);
        assert_memory_equal(text, input, size);
    }
}

static void sets_have_bounds(void **state)
{
    (void)state;
    struct stop_set s = {0};
    const uint8_t long_one[GENERATE_STOP_BYTES_MAX + 1] = {0};
    assert_false(stop_set_add(&s, "", 0));
    assert_false(stop_set_add(&s, long_one, sizeof long_one));
    for (unsigned i = 0; i < GENERATE_STOPS_MAX; i++)
        assert_true(stop_set_add(&s, long_one, GENERATE_STOP_BYTES_MAX));
    assert_false(stop_set_add(&s, "a", 1));
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

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
        char out[TEXT_MAX];
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
        cmocka_unit_test(stop_strings_never_leak),
        cmocka_unit_test(random_texts_stop_where_a_plain_search_says),
        cmocka_unit_test(sets_have_bounds),
        cmocka_unit_test(ill_formed_bytes_become_replacements),
        cmocka_unit_test(any_bytes_in_any_pieces_give_the_same_valid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
