/* test_nearest.c - what is suggested for a name that is not known. */
#include "config/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static const char *const known[] = {"max_tokens", "temperature", "top_k",       "top_p", "stop",
                                    "prompt",     "threads",     "listen_port", "n",     "log_level"};

static const char *suggested(const char *written)
{
    struct nearest near = nearest_to(written, strlen(written));
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        nearest_offer(&near, known[i]);
    return near.name;
}

static void what_was_meant_is_suggested(void **state)
{
    static const struct {
        const char *written, *want;
    } cases[] = {
        {"max_token", "max_tokens"},
        {"max-tokens", "max_tokens"}, /* one name, however it is spelt */
        {"max-tokes", "max_tokens"},
        {"listn_port", "listen_port"},
        {"log-levle", "log_level"},
        {"treads", "threads"},
        {"temp", "temperature"}, /* it goes on from there */
        {"sto", "stop"},
        {"topk", "top_k"},
        {"n-predict", "max_tokens"}, /* other programs call it so */
        {"n_predict", "max_tokens"},
        {"input", "prompt"},
        {"port", "listen_port"},
        {"n_predictx", NULL},
        {"te", NULL}, /* many things begin so */
        {"m", NULL},  /* one letter for another */
        {"quux", NULL},
        {"x", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *got = suggested(cases[i].written);
        if (cases[i].want == NULL)
            assert_null(got);
        else
            assert_string_equal(got, cases[i].want);
    }
}

static void what_is_nearer_wins(void **state)
{
    (void)state;
    assert_string_equal(suggested("top_k"), "top_k");
    assert_string_equal(suggested("top_pp"), "top_p");
    assert_string_equal(suggested("top"), "top_k"); /* of two that are as near, the first */
}

static void a_part_of_a_text_is_looked_at(void **state)
{
    (void)state;
    struct nearest near = nearest_to("thread=4", 6);
    nearest_offer(&near, "threads");
    assert_string_equal(near.name, "threads");
}

static void what_is_long_resembles_none(void **state)
{
    (void)state;
    char longest[NEAREST_NAME_MAX + 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct nearest near = nearest_to(longest, NEAREST_NAME_MAX + 1);
    nearest_offer(&near, longest + 1);
    assert_null(near.name);
    near = nearest_to(longest, NEAREST_NAME_MAX);
    nearest_offer(&near, longest + 1);
    assert_ptr_equal(near.name, longest + 1);
    near = nearest_to(longest, NEAREST_NAME_MAX);
    nearest_offer(&near, longest); /* one letter more than is looked at */
    assert_null(near.name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_meant_is_suggested),
        cmocka_unit_test(what_is_nearer_wins),
        cmocka_unit_test(a_part_of_a_text_is_looked_at),
        cmocka_unit_test(what_is_long_resembles_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
