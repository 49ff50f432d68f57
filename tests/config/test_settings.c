/* test_settings.c - the table of settings: every row's limits, words and names, one value at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static const struct setting *find(const char *name)
{
    return setting_find(name, strlen(name));
}

static void defaults_are_what_the_table_says(void **state)
{
    (void)state;
    struct settings s;
    settings_init(&s);
    assert_string_equal(s.listen_address, "127.0.0.1");
    assert_int_equal(s.listen_port, 8080);
    assert_int_equal(s.threads, 0);
    assert_int_equal(s.batch_wait_us, 2000);
    assert_int_equal(s.body_bytes_max, 16777216);
    assert_int_equal(s.log_level, LOG_LEVEL_INFO);
    assert_int_equal(s.log_format, LOG_FORMAT_TEXT);
    assert_true(s.log_requests);
}

static void every_row_is_found_by_its_name(void **state)
{
    (void)state;
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        assert_ptr_equal(find(s->name), s);
        assert_string_equal(setting_nearest(s->name, strlen(s->name)), s->name);
        assert_true(strlen(s->help) > 0);
    }
    assert_ptr_equal(find("listen-port"), find("listen_port"));
    assert_null(find("listen_por"));
    assert_null(find("listen_portx"));
    assert_null(find(""));
    assert_ptr_equal(setting_find("threads=4", 7), find("threads"));
}

/* Parse a number just inside and just outside of each end. */
static void every_number_keeps_its_range(void **state)
{
    (void)state;
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        const struct setting *s = setting_at(id);
        struct settings to;
        char text[32];
        if (s->kind != SETTING_NUMBER)
            continue;
        settings_init(&to);
        const int64_t values[] = {s->min, s->max, (int64_t)s->min - 1, (int64_t)s->max + 1};
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
            (void)snprintf(text, sizeof text, "%lld", (long long)values[i]);
            assert_int_equal(setting_parse(s, text, &to), i < 2);
            assert_int_equal(setting_number(s, &to), i == 0 ? s->min : s->max); /* a refused value stores nothing */
        }
    }
}

static void only_plain_digits_are_numbers(void **state)
{
    static const char *const wrong[] = {
        "", " 1", "1 ", "+1", "-1", "1.0", "0x10", "1e3", "ten", "1,0", "1_0", "4294967296", "18446744073709551617"};
    (void)state;
    struct settings to;
    settings_init(&to);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(setting_parse(find("timeout_ms"), wrong[i], &to));
    assert_int_equal(to.timeout_ms, 60000);
    assert_true(setting_parse(find("timeout_ms"), "0007", &to));
    assert_int_equal(to.timeout_ms, 7);
}

static void switches_have_many_words(void **state)
{
    static const struct {
        const char *text;
        int want; /* -1: refused */
    } cases[] = {
        {"true", 1}, {"1", 1},   {"yes", 1}, {"on", 1}, {"TRUE", 1}, {"false", 0}, {"0", 0},
        {"no", 0},   {"off", 0}, {"Off", 0}, {"", -1},  {"2", -1},   {"t", -1},    {"truely", -1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct settings to;
        settings_init(&to);
        to.log_requests = cases[i].want != 1;
        assert_int_equal(setting_parse(find("log_requests"), cases[i].text, &to), cases[i].want >= 0);
        assert_int_equal(to.log_requests, cases[i].want == 0 ? 0 : 1);
    }
}

static void choices_take_their_words_only(void **state)
{
    (void)state;
    struct settings to;
    settings_init(&to);
    assert_true(setting_parse(find("log_level"), "debug", &to));
    assert_int_equal(to.log_level, LOG_LEVEL_DEBUG);
    assert_false(setting_parse(find("log_level"), "DEBUG", &to));
    assert_false(setting_parse(find("log_level"), "", &to));
    assert_false(setting_parse(find("log_level"), "3", &to));
    assert_string_equal(log_level_word(LOG_LEVEL_WARNING), "warning");
}

static void texts_are_bounded_and_printable(void **state)
{
    char longest[SETTING_TEXT_MAX + 2];
    (void)state;
    struct settings to;
    const struct setting *s = find("models_dir");
    settings_init(&to);
    memset(longest, 'a', sizeof longest);
    longest[SETTING_TEXT_MAX + 1] = '\0';
    assert_false(setting_parse(s, longest, &to));
    longest[SETTING_TEXT_MAX] = '\0';
    assert_true(setting_parse(s, longest, &to));
    assert_string_equal(setting_text(s, &to), longest);
    assert_true(setting_parse(s, "/srv/\xc3\xa9t\xc3\xa9/models dir", &to));
    assert_false(setting_parse(s, "", &to));
    assert_false(setting_parse(s, "a\nb", &to));
    assert_false(setting_parse(s, "a\x7f", &to));
    assert_false(setting_parse(s, "latin1 \xe9", &to));
    assert_string_equal(to.models_dir, "/srv/\xc3\xa9t\xc3\xa9/models dir");
}

static void descriptions_say_what_is_expected(void **state)
{
    char text[256];
    (void)state;
    setting_describe(find("listen_port"), text, sizeof text);
    assert_string_equal(text, "a whole number from 0 to 65535");
    setting_describe(find("log_level"), text, sizeof text);
    assert_string_equal(text, "one of error, warning, info, debug");
    setting_describe(find("log_level"), text, 12); /* too short: cut, not overrun */
    assert_string_equal(text, "one of erro");
    setting_describe(find("log_requests"), text, sizeof text);
    assert_string_equal(text, "true or false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_what_the_table_says), cmocka_unit_test(every_row_is_found_by_its_name),
        cmocka_unit_test(every_number_keeps_its_range),     cmocka_unit_test(only_plain_digits_are_numbers),
        cmocka_unit_test(switches_have_many_words),         cmocka_unit_test(choices_take_their_words_only),
        cmocka_unit_test(texts_are_bounded_and_printable),  cmocka_unit_test(descriptions_say_what_is_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
