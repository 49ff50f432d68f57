/* test_stops.c - stop strings: what comes out, whatever the pieces are that it goes in by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/operation/stops.h"
#include "tests/support/random.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

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
    const char *input; /* fed until a stop string ends */
    const char *text;  /* with what is withheld */
    const char *held;  /* withheld when the input ends */
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
        struct stop_matcher m = {.stops = &s};
        const char *text = stop_cases[i].input;
        size_t size = 0, n;
        bool stopped = false;
        for (const char *c = text; *c != '\0' && !stopped; c++) {
            stopped = stop_matcher_feed(&m, (uint8_t)*c, &n);
            size += n;
        }
        n = m.held_bytes;
        if (stopped != stop_cases[i].stopped || n != strlen(stop_cases[i].held) ||
            memcmp(m.held, stop_cases[i].held, n) != 0 || size + n != strlen(stop_cases[i].text) ||
            memcmp(text, stop_cases[i].text, size + n) != 0)
            fail_msg("%s: \"%.*s\", %zu withheld, %s", stop_cases[i].name, (int)(size + n), text, n,
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
        struct stop_matcher m = {.stops = &s};
        uint8_t input[40];
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
        for (size_t i = 0; i < sizeof input && !stopped; i++) {
            stopped = stop_matcher_feed(&m, input[i], &n);
            size += n;
            assert_int_equal(size + m.held_bytes, stopped ? size : i + 1);
            assert_memory_equal(m.held, input + size, m.held_bytes);
        }
        assert_int_equal(search(&s, input, sizeof input, &begin), stopped);
        assert_int_equal(size + m.held_bytes, stopped ? begin : sizeof input);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_never_leak),
        cmocka_unit_test(random_texts_stop_where_a_plain_search_says),
        cmocka_unit_test(sets_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
