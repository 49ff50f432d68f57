/* test_body.c - a body while it arrives: what is kept, what all bodies take together, and what happens beyond a
 * bound. */
#include "server/request/body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"

/* Of 11.2 MiB 1.4 are for small bodies, 2.8 for what is being cut and 7 for the rest, of which a client gets 5.25. */
enum { MB = 1 << 20, MOST = 112 * MB / 10, SMALL = MOST / 8 / BODY_SMALL_BYTES };

static struct bodies all;
static const struct client_id somebody = {.kind = CLIENT_IPV4, .bytes = {1}},
                              other = {.kind = CLIENT_IPV4, .bytes = {2}};
static struct body *cut[8];
static unsigned cuts;

static void note_cut(struct body *b)
{
    cut[cuts++] = b;
}

static void begin(uint64_t most, size_t size_max)
{
    cuts = 0;
    bodies_init(&all, most, size_max, note_cut);
}

static void finish(void)
{
    assert_int_equal(all.small, 0);
    assert_int_equal(all.quota.used, 0);
    quota_clear(&all.quota);
}

static uint64_t total(void)
{
    return all.small + all.quota.used;
}

static void append(struct body *b, const char *text)
{
    body_append(b, text, strlen(text), &all, &somebody);
}

/* Add that many bytes. */
static void add(struct body *b, size_t size, const struct client_id *client)
{
    static const char bytes[MB];
    body_append(b, bytes, size, &all, client);
}

static void pieces_make_up_the_body(void **state)
{
    struct body b = {.bytes = NULL};
    (void)state;
    begin(MB, 100);
    append(&b, "ab");
    append(&b, "cde");
    assert_int_equal(b.status, OK);
    assert_int_equal(b.size, 5);
    assert_int_equal(b.received, 5);
    assert_memory_equal(b.bytes, "abcde", 5);
    assert_int_equal(total(), b.capacity);
    body_drop(&b, &all);
    assert_null(b.bytes);
    assert_int_equal(b.size, 0);
    assert_int_equal(b.received, 5); /* what was counted stays */
    assert_int_equal(total(), 0);
    body_drop(&b, &all); /* nothing more to give back */
    finish();
}

/* Room is made by doubling, for what has come and never for what a client has announced. */
static void room_grows_with_what_arrives(void **state)
{
    enum { PIECE = 1000 };
    struct body b = {.bytes = NULL};
    static char data[MB];
    unsigned growths = 0;
    (void)state;
    begin(MOST, MB);
    for (size_t i = 0; i < MB; i++)
        data[i] = (char)(i * 31 >> 3);
    for (size_t at = 0; at < MB; at += PIECE) {
        const size_t before = b.capacity, size = MB - at < PIECE ? MB - at : PIECE;
        body_append(&b, data + at, size, &all, &somebody);
        growths += b.capacity != before;
        assert_true(b.capacity >= b.size && b.capacity <= MB);
        assert_true(b.capacity <= 4096 || b.capacity <= 2 * b.size);
        assert_int_equal(total(), b.capacity);
        assert_int_equal(all.small, b.capacity <= BODY_SMALL_BYTES ? b.capacity : 0);
    }
    assert_int_equal(b.size, MB);
    assert_memory_equal(b.bytes, data, MB);
    assert_int_equal(growths, 9); /* 4 KiB to 1 MiB */
    body_drop(&b, &all);
    finish();
}

static void as_much_is_kept_as_is_allowed(void **state)
{
    struct body b = {.bytes = NULL};
    struct error err;
    (void)state;
    begin(MB, 10);
    append(&b, "12345678");
    append(&b, "9a");
    assert_int_equal(b.status, OK);
    assert_int_equal(b.capacity, 10); /* no more than could come */
    append(&b, "b");
    assert_int_equal(b.status, ERR_TOO_LARGE);
    assert_null(b.bytes);
    assert_int_equal(total(), 0);
    append(&b, "cde"); /* is counted alone */
    assert_null(b.bytes);
    assert_int_equal(b.received, 14);
    body_error(&b, 10, &err);
    assert_int_equal(err.status, ERR_TOO_LARGE);
    assert_string_equal(err.message, "the body has 14 bytes; at most 10 are allowed");
    finish();
}

static void a_client_has_no_more_than_its_share_of_large_bodies(void **state)
{
    struct body b[8] = {{.bytes = NULL}};
    struct error err;
    (void)state;
    begin(MOST, MB);
    for (size_t i = 0; i < 5; i++) {
        add(&b[i], MB, &somebody);
        assert_int_equal(b[i].status, OK);
    }
    add(&b[5], MB, &somebody);
    assert_int_equal(b[5].status, ERR_NOMEM);
    assert_null(b[5].bytes);
    assert_int_equal(total(), 5 * MB);
    body_error(&b[5], MB, &err);
    assert_int_equal(err.status, ERR_NOMEM);
    assert_string_equal(err.message, "out of memory for the body; try again later");
    add(&b[6], MB, &other);
    assert_int_equal(b[6].status, OK);
    assert_int_equal(cuts, 0);
    body_drop(&b[0], &all);
    add(&b[5], MB, &somebody); /* too late: a part of it is lost */
    assert_int_equal(b[5].status, ERR_NOMEM);
    assert_int_equal(b[5].received, 2 * MB);
    for (size_t i = 0; i < 8; i++)
        body_drop(&b[i], &all);
    finish();
}

static void small_bodies_have_room_of_their_own(void **state)
{
    struct body large[8] = {{.bytes = NULL}}, small[SMALL + 1] = {{.bytes = NULL}};
    (void)state;
    begin(MOST, MB);
    for (size_t i = 0; i < 7; i++) {
        add(&large[i], MB, i < 4 ? &somebody : &other);
        assert_int_equal(large[i].status, OK);
        body_complete(&large[i]); /* none of them can be cut */
    }
    for (size_t i = 0; i < SMALL; i++) {
        add(&small[i], BODY_SMALL_BYTES, &somebody);
        assert_int_equal(small[i].status, OK);
    }
    assert_int_equal(total(), 7 * MB + SMALL * BODY_SMALL_BYTES);
    add(&small[SMALL], BODY_SMALL_BYTES, &other);
    assert_int_equal(small[SMALL].status, ERR_NOMEM);
    assert_int_equal(total(), 7 * MB + SMALL * BODY_SMALL_BYTES);
    assert_int_equal(cuts, 0);
    add(&small[3], 1, &somebody); /* it would be large: there is no room for that */
    assert_int_equal(small[3].status, ERR_NOMEM);
    assert_int_equal(total(), 7 * MB + (SMALL - 1) * BODY_SMALL_BYTES);
    for (size_t i = 0; i < 8; i++)
        body_drop(&large[i], &all);
    for (size_t i = 0; i <= SMALL; i++)
        body_drop(&small[i], &all);
    finish();
}

static void the_slowest_upload_of_who_has_most_is_cut_first(void **state)
{
    struct body b[8] = {{.bytes = NULL}}, newcomer = {.bytes = NULL};
    (void)state;
    begin(MOST, MB);
    for (size_t i = 0; i < 7; i++) {
        add(&b[i], MB, i < 5 ? &somebody : &other);
        assert_int_equal(b[i].status, OK);
        b[i].begun_ns -= UINT64_C(1000000000) * (i == 3 ? 60 : 30); /* as if */
    }
    b[5].begun_ns -= UINT64_C(1000000000) * 600; /* slower still, but of a client that has less */
    body_complete(&b[0]);
    b[0].begun_ns = b[5].begun_ns; /* is no upload any more */
    const struct client_id third = {.kind = CLIENT_IPV6, .bytes = {1}};
    add(&newcomer, MB, &third);
    assert_int_equal(newcomer.status, OK);
    assert_int_equal(cuts, 1);
    assert_ptr_equal(cut[0], &b[3]);
    add(&b[3], 0, &somebody);
    for (size_t i = 0; i < 8; i++)
        body_drop(&b[i], &all);
    body_drop(&newcomer, &all);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_up_the_body),
        cmocka_unit_test(room_grows_with_what_arrives),
        cmocka_unit_test(as_much_is_kept_as_is_allowed),
        cmocka_unit_test(a_client_has_no_more_than_its_share_of_large_bodies),
        cmocka_unit_test(small_bodies_have_room_of_their_own),
        cmocka_unit_test(the_slowest_upload_of_who_has_most_is_cut_first),
    };
    return cmocka_run_group_tests_name("body", tests, NULL, NULL);
}
