/* test_body.c - a body while it arrives: what is kept, what all bodies take together, and what happens beyond a
 * bound. */
#include "server/http/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"

static void append(struct body *b, const char *text, size_t size_max, _Atomic uint64_t *total)
{
    body_append(b, text, strlen(text), size_max, total);
}

static void pieces_make_up_the_body(void **state)
{
    struct body b = {.bytes = NULL};
    _Atomic uint64_t total = 0;
    (void)state;
    append(&b, "ab", 100, &total);
    append(&b, "cde", 100, &total);
    assert_int_equal(b.status, OK);
    assert_int_equal(b.size, 5);
    assert_int_equal(b.received, 5);
    assert_memory_equal(b.bytes, "abcde", 5);
    assert_int_equal(total, b.capacity);
    body_drop(&b, &total);
    assert_null(b.bytes);
    assert_int_equal(b.size, 0);
    assert_int_equal(b.received, 5); /* what was counted stays */
    assert_int_equal(total, 0);
    body_drop(&b, &total); /* nothing more to give back */
    assert_int_equal(total, 0);
}

/* Room is made by doubling, for what has come and never for what a client has announced. */
static void room_grows_with_what_arrives(void **state)
{
    enum { SIZE = 1 << 20, PIECE = 1000 };
    struct body b = {.bytes = NULL};
    _Atomic uint64_t total = 0;
    static char data[SIZE];
    unsigned growths = 0;
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 31 >> 3);
    for (size_t at = 0; at < SIZE; at += PIECE) {
        const size_t before = b.capacity, size = SIZE - at < PIECE ? SIZE - at : PIECE;
        body_append(&b, data + at, size, SIZE, &total);
        growths += b.capacity != before;
        assert_true(b.capacity >= b.size && b.capacity <= SIZE);
        assert_true(b.capacity <= 4096 || b.capacity <= 2 * b.size);
        assert_int_equal(total, b.capacity);
    }
    assert_int_equal(b.size, SIZE);
    assert_memory_equal(b.bytes, data, SIZE);
    assert_int_equal(growths, 9); /* 4 KiB to 1 MiB */
    body_drop(&b, &total);
}

static void as_much_is_kept_as_is_allowed(void **state)
{
    struct body b = {.bytes = NULL};
    struct error err;
    _Atomic uint64_t total = 0;
    (void)state;
    append(&b, "12345678", 10, &total);
    append(&b, "9a", 10, &total);
    assert_int_equal(b.status, OK);
    assert_int_equal(b.capacity, 10); /* no more than could come */
    append(&b, "b", 10, &total);
    assert_int_equal(b.status, ERR_TOO_LARGE);
    assert_null(b.bytes);
    assert_int_equal(total, 0);
    append(&b, "cde", 10, &total); /* is counted alone */
    assert_null(b.bytes);
    assert_int_equal(b.received, 14);
    body_error(&b, 10, &err);
    assert_int_equal(err.status, ERR_TOO_LARGE);
    assert_string_equal(err.message, "the body has 14 bytes; at most 10 are allowed");
}

static void all_bodies_together_are_bounded(void **state)
{
    struct body b = {.bytes = NULL}, other = {.bytes = NULL};
    struct error err;
    _Atomic uint64_t total = HTTP_BODIES_BYTES_MAX - 4096; /* of others */
    (void)state;
    append(&b, "fits", 1 << 20, &total);
    assert_int_equal(b.status, OK);
    assert_int_equal(total, HTTP_BODIES_BYTES_MAX);
    append(&other, "x", 1 << 20, &total);
    assert_int_equal(other.status, ERR_NOMEM);
    assert_null(other.bytes);
    assert_int_equal(total, HTTP_BODIES_BYTES_MAX); /* as before */
    body_error(&other, 1 << 20, &err);
    assert_int_equal(err.status, ERR_NOMEM);
    assert_string_equal(err.message, "out of memory for the body; try again later");
    body_drop(&b, &total);
    append(&other, "x", 1 << 20, &total); /* too late: a part of it is lost */
    assert_int_equal(other.status, ERR_NOMEM);
    assert_null(other.bytes);
    assert_int_equal(other.received, 2);
    assert_int_equal(total, HTTP_BODIES_BYTES_MAX - 4096);
}

/* What it has is given back when it may not grow. */
static void a_body_that_may_not_grow_is_dropped(void **state)
{
    struct body b = {.bytes = NULL};
    _Atomic uint64_t total = HTTP_BODIES_BYTES_MAX - 5000;
    static char more[5000];
    (void)state;
    append(&b, "x", 1 << 20, &total);
    body_append(&b, more, sizeof more, 1 << 20, &total);
    assert_int_equal(b.status, ERR_NOMEM);
    assert_null(b.bytes);
    assert_int_equal(total, HTTP_BODIES_BYTES_MAX - 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_up_the_body),
        cmocka_unit_test(room_grows_with_what_arrives),
        cmocka_unit_test(as_much_is_kept_as_is_allowed),
        cmocka_unit_test(all_bodies_together_are_bounded),
        cmocka_unit_test(a_body_that_may_not_grow_is_dropped),
    };
    return cmocka_run_group_tests_name("body", tests, NULL, NULL);
}
