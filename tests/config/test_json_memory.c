/* test_json_memory.c - JSON while memory is short: each allocation of a scan is refused in its turn, alone and with all
 * that follow. The program's own malloc refuses them. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "config/json_memory.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define HAS_OWN_MALLOC 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 0
#endif
#endif
#ifndef HAS_OWN_MALLOC
#define HAS_OWN_MALLOC 1
#endif

enum { ALLOCATIONS_MAX = 10000, LENGTHS = 140 };

static atomic_long until; /* the so-manyth allocation from now is refused; 0: none */
static atomic_bool lasts; /* those after it as well */
static atomic_uint refusals;

#if HAS_OWN_MALLOC
extern void *__libc_malloc(size_t size);

/* Whoever reads behind what was written finds an escape that there is not, at which jansson aborts. */
void *malloc(size_t size)
{
    const long left = atomic_load(&until);
    if (left > 1)
        atomic_store(&until, left - 1);
    else if (left == 1 && !atomic_load(&lasts))
        atomic_store(&until, 0);
    if (left == 1)
        atomic_fetch_add(&refusals, 1);
    char *made = left == 1 ? NULL : __libc_malloc(size);
    for (size_t i = 0; left > 1 && i < malloc_usable_size(made); i++)
        made[i] = i % 2 == 0 ? '\\' : 'q';
    return made;
}
#endif

/* Scan it without each allocation in turn. */
static void scan_without(const char *text, bool stays)
{
    unsigned refused = 0;
    json_t *whole = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(whole);
    for (long n = 1; n < ALLOCATIONS_MAX; n++) {
        bool lacked = false;
        atomic_store(&lasts, stays);
        atomic_store(&until, n);
        json_t *value = json_scan(text, strlen(text), JSON_REJECT_DUPLICATES, NULL, &lacked);
        atomic_store(&until, 0);
        const bool reached = atomic_exchange(&refusals, 0) > 0;
        assert_int_equal(lacked, reached);
        assert_true(lacked ? value == NULL : json_equal(value, whole));
        json_decref(value);
        refused += reached;
        if (!reached)
            break;
    }
    assert_true(refused > 3);
    json_decref(whole);
}

static void a_scan_that_lacks_memory_reads_nothing_more(void **state)
{
    char text[2 * LENGTHS + 128];
    (void)state;
    if (!HAS_OWN_MALLOC) {
        print_message("skipped: sanitizers have an allocator of their own\n");
        skip();
    }
    for (int length = 1; length < LENGTHS; length++) { /* at some the buffer has to grow for the last quote */
        char filler[LENGTHS + 1];
        memset(filler, 'x', sizeof filler);
        filler[length] = '\0';
        (void)snprintf(text, sizeof text, "{\"%s\": [\"\\u00e4\\\\\\\"%s\", 1.5, true]}", filler, filler);
        scan_without(text, false);
        scan_without(text, true);
    }
}

static void all_kinds_of_text_are_read(void **state)
{
    static const char *const texts[] = {"{}", "[]",
                                        " {\"a\": \"\\\"\", \"b\\\\\": [\"\\\\\", \"\\\\\\\"\", \"{\\\"\"]} ",
                                        "[\"\\ud83d\\ude00\", -0.5e3]"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bool lacked;
        json_t *expected = json_loads(texts[i], 0, NULL),
               *found = json_scan(texts[i], strlen(texts[i]), 0, NULL, &lacked);
        assert_non_null(found);
        assert_true(json_equal(found, expected));
        json_decref(found);
        json_decref(expected);
    }
}

static void what_is_not_json_is_told_as_ever(void **state)
{
    static const char *const texts[] = {"",           "{",           "[\"a",       "[\"a\\",   "[\"\\q\"]", "[1,]",
                                        "[1]2",       "{\"a\":1,}",  "[\"\x80\"]", "[\"\\\"]", "\"a\"",     "[tru]",
                                        "[\"a\nb\"]", "[\"\\u12\"]", "{\"a\" 1}",  "\\\"[1]",  "[1]\"",     "[01]"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_error_t expected, found;
        bool lacked;
        assert_null(json_loadb(texts[i], strlen(texts[i]), 0, &expected));
        assert_null(json_scan(texts[i], strlen(texts[i]), 0, &found, &lacked));
        assert_false(lacked);
        assert_string_equal(found.text, expected.text);
        assert_int_equal(found.line, expected.line);
        assert_int_equal(found.column, expected.column);
    }
}

static void what_lacks_a_part_is_freed(void **state)
{
    (void)state;
    json_t *whole = json_array();
    assert_ptr_equal(json_unless(false, whole), whole);
    assert_null(json_unless(true, json_incref(whole)));
    assert_int_equal(whole->refcount, 1);
    assert_null(json_unless(true, NULL));
    assert_null(json_unless(false, NULL));
    json_decref(whole);
}

static void expect_printed(json_t *value, const char *expected)
{
    char *text = json_print(value, JSON_COMPACT);
    if (expected != NULL)
        assert_string_equal(text, expected);
    else
        assert_null(text);
    free(text);
    json_decref(value);
}

/* And what is printed after that has all its parts again. */
static void what_lacks_a_part_is_not_printed(void **state)
{
    (void)state;
    json_t *object = json_object(), *array = json_array();
    json_put(object, "a", json_integer(1));
    json_append(array, json_true());
    json_put(object, "list", array);
    expect_printed(json_incref(object), "{\"a\":1,\"list\":[true]}");
    json_put(object, "b", NULL);
    expect_printed(json_incref(object), NULL);
    json_append(array, NULL);
    expect_printed(json_incref(object), NULL);
    json_put(NULL, "c", json_integer(1));
    expect_printed(NULL, NULL);
    expect_printed(object, "{\"a\":1,\"list\":[true]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scan_that_lacks_memory_reads_nothing_more),
        cmocka_unit_test(all_kinds_of_text_are_read),
        cmocka_unit_test(what_is_not_json_is_told_as_ever),
        cmocka_unit_test(what_lacks_a_part_is_freed),
        cmocka_unit_test(what_lacks_a_part_is_not_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
