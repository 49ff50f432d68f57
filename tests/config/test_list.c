/* test_list.c - the items of a setting or header that is a list. */
#include "config/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static void items_come_in_order_without_the_spaces_around_them(void **state)
{
    static const struct {
        const char *list, *items[4];
    } cases[] = {
        {"a", {"a"}},    {"a,b", {"a", "b"}},           {" a , b b ,c", {"a", "b b", "c"}},
        {"", {""}},      {"a\t,\tb", {"a", "b"}},       {" \t ", {""}},
        {",", {"", ""}}, {"a,,b,", {"a", "", "b", ""}}, {"=,*=x", {"=", "*=x"}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *at = cases[i].list;
        struct list_item item;
        size_t count = 0;
        while (list_next(&at, &item)) {
            assert_true(count < ARRAY_LEN(cases[i].items) && cases[i].items[count] != NULL);
            if (!list_item_is(&item, cases[i].items[count]))
                fail_msg("\"%s\": item %zu is \"%.*s\"", cases[i].list, count, (int)item.size, item.text);
            count++;
        }
        assert_true(count == ARRAY_LEN(cases[i].items) || cases[i].items[count] == NULL);
        assert_null(at);
    }
}

static void an_item_is_one_text_and_no_other(void **state)
{
    const struct list_item item = {"abc,", 3};
    (void)state;
    assert_true(list_item_is(&item, "abc"));
    assert_false(list_item_is(&item, "ab"));
    assert_false(list_item_is(&item, "abc,"));
    assert_false(list_item_is(&item, "abd"));
    assert_false(list_item_is(&item, ""));
}

static void a_list_that_is_off_has_no_items(void **state)
{
    static const char *const on[] = {"", "a", "off,a", " off", "Off"};
    (void)state;
    assert_null(list_begin("off"));
    for (size_t i = 0; i < ARRAY_LEN(on); i++)
        assert_ptr_equal(list_begin(on[i]), on[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_in_order_without_the_spaces_around_them),
        cmocka_unit_test(an_item_is_one_text_and_no_other),
        cmocka_unit_test(a_list_that_is_off_has_no_items),
    };
    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
