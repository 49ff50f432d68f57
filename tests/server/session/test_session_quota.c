/* test_session_quota.c - who gets how much of the room for sessions: one client alone, many that take all they can, and
 * what is left for others; in number and in memory. Numbers alone: no session is made. */
#include "server/session/session_quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 1000, LARGE = 20 * BYTES };

static struct session_quota *make(uint64_t count, uint64_t bytes, uint64_t of_client)
{
    struct session_quota *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->most = (struct session_use){count, bytes};
    r->most_of_client = of_client;
    return r;
}

static struct client_id client(uint8_t number)
{
    return (struct client_id){CLIENT_IPV4, {10, 0, 0, number}};
}

/* Takes sessions, `step` at a time, until it is refused; returns how many it got. */
static uint64_t take_all(struct session_quota *r, uint8_t number, uint64_t step, uint64_t bytes, enum status *why)
{
    const struct client_id who = client(number);
    struct error err;
    uint64_t got = 0;
    while ((*why = session_quota_check(r, &who, step, bytes, &err)) == OK) {
        assert_non_null(session_quota_take(r, &who, step, bytes));
        got += step;
    }
    return got;
}

static void clear(struct session_quota *r)
{
    for (size_t i = 0; i < SESSION_QUOTA_CHAINS; i++)
        while (r->chains[i] != NULL)
            session_quota_give(r, r->chains[i], r->chains[i]->has.bytes / r->chains[i]->has.count);
    assert_int_equal(r->used.count, 0);
    assert_int_equal(r->used.bytes, 0);
    free(r);
}

static void a_client_alone_has_three_quarters(void **state)
{
    static const struct {
        uint64_t count, want;
    } cases[] = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 3}, {8, 6}, {256, 192}, {65536, 49152}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum status why;
        struct session_quota *r = make(cases[i].count, UINT64_C(1) << 60, 0);
        assert_int_equal(take_all(r, 1, 1, BYTES, &why), cases[i].want);
        assert_int_equal(why, ERR_SESSIONS);
        clear(r);
        r = make(65536, cases[i].count * BYTES, 0); /* and of the memory */
        assert_int_equal(take_all(r, 1, 1, BYTES, &why), cases[i].want);
        assert_int_equal(why, ERR_SESSIONS);
        clear(r);
    }
}

static void eight_that_take_all_leave_room_for_nine_more(void **state)
{
    (void)state;
    enum status why;
    struct session_quota *r = make(256, UINT64_C(1) << 60, 0);
    for (uint8_t i = 0; i < 8; i++)
        assert_int_equal(take_all(r, i, 1, BYTES, &why), i == 0 ? 192 : 4);
    for (uint8_t i = 8; i < 17; i++) {
        assert_int_equal(take_all(r, i, 1, BYTES, &why), 4);
        assert_int_equal(why, ERR_SESSIONS);
    }
    assert_int_equal(take_all(r, 17, 1, BYTES, &why), 0);
    clear(r);
}

static void eight_that_fork_by_many_leave_room_too(void **state)
{
    (void)state;
    enum status why;
    struct session_quota *r = make(256, UINT64_C(256) * BYTES, 0);
    for (uint8_t i = 0; i < 8; i++) {
        (void)take_all(r, i, 64, BYTES, &why);
        (void)take_all(r, i, 3, BYTES, &why);
        (void)take_all(r, i, 1, BYTES, &why);
    }
    for (uint8_t i = 8; i < 17; i++)
        assert_int_equal(take_all(r, i, 4, BYTES, &why), 4);
    clear(r);
}

/* Little of the room is little of its memory too, whatever the sessions' sizes. */
static void small_sessions_do_not_make_large_ones_little(void **state)
{
    (void)state;
    enum status why;
    struct session_quota *r = make(65536, UINT64_C(256) * LARGE, 0);
    assert_int_equal(take_all(r, 1, 1, LARGE, &why), 192);
    assert_int_equal(take_all(r, 2, 1, LARGE, &why), 4);
    assert_int_equal(take_all(r, 2, 1, BYTES, &why), 0); /* has its part already */
    assert_int_equal(take_all(r, 3, 1, BYTES, &why), 4 * LARGE / BYTES);
    assert_int_equal(take_all(r, 4, 1, LARGE, &why), 4);
    clear(r);
}

static void a_number_for_each_client_takes_the_parts_place(void **state)
{
    (void)state;
    enum status why;
    struct session_quota *r = make(10, UINT64_C(1) << 60, 10); /* as before there were parts: one may have all */
    assert_int_equal(take_all(r, 1, 1, BYTES, &why), 10);
    assert_int_equal(why, ERR_RATE);
    assert_int_equal(take_all(r, 2, 1, BYTES, &why), 0);
    assert_int_equal(why, ERR_SESSIONS);
    clear(r);
    r = make(10, UINT64_C(1) << 60, 4);
    assert_int_equal(take_all(r, 1, 3, BYTES, &why), 3);
    assert_int_equal(why, ERR_RATE);
    assert_int_equal(take_all(r, 1, 1, BYTES, &why), 1);
    assert_int_equal(take_all(r, 2, 1, BYTES, &why), 4);
    assert_int_equal(take_all(r, 3, 1, BYTES, &why), 2);
    assert_int_equal(why, ERR_SESSIONS);
    clear(r);
}

static void what_is_given_back_can_be_taken_again(void **state)
{
    (void)state;
    enum status why;
    struct session_quota *r = make(8, UINT64_C(1) << 60, 0);
    const struct client_id one = client(1), other = client(2);
    assert_int_equal(take_all(r, 1, 1, BYTES, &why), 6);
    assert_int_equal(session_quota_use(r, &one).count, 6);
    assert_int_equal(session_quota_use(r, &one).bytes, 6 * BYTES);
    assert_int_equal(session_quota_use(r, &other).count, 0);
    struct session_holder *h = session_quota_take(r, &other, 2, BYTES);
    assert_non_null(h);
    session_quota_give(r, h, BYTES);
    session_quota_give(r, h, BYTES);
    assert_int_equal(session_quota_use(r, &other).count, 0);
    assert_int_equal(r->used.count, 6);
    clear(r);
}

static void a_refusal_says_who_has_what(void **state)
{
    (void)state;
    static const struct client_id key = {CLIENT_KEY, "key"}, address = {CLIENT_UNIX, ""};
    struct error err;
    struct session_quota *r = make(8, UINT64_C(1) << 60, 0);
    assert_non_null(session_quota_take(r, &key, 6, BYTES));
    assert_int_equal(session_quota_check(r, &key, 1, BYTES, &err), ERR_SESSIONS);
    assert_string_equal(err.message, "the key has 6 of 6 sessions and asks for 1 more; the last quarter of the room is "
                                     "kept for clients with at most a 64th of it");
    assert_int_equal(session_quota_check(r, &address, 1, BYTES, &err), OK);
    r->most_of_client = 7;
    assert_int_equal(session_quota_check(r, &key, 2, BYTES, &err), ERR_RATE);
    assert_string_equal(err.message, "the key has 6 of at most 7 sessions, and asks for 2 more");
    r->most_of_client = 1;
    assert_int_equal(session_quota_check(r, &address, 2, BYTES, &err), ERR_RATE);
    assert_string_equal(err.message, "the client's address has 0 of at most 1 sessions, and asks for 2 more");
    clear(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_alone_has_three_quarters),
        cmocka_unit_test(eight_that_take_all_leave_room_for_nine_more),
        cmocka_unit_test(eight_that_fork_by_many_leave_room_too),
        cmocka_unit_test(small_sessions_do_not_make_large_ones_little),
        cmocka_unit_test(a_number_for_each_client_takes_the_parts_place),
        cmocka_unit_test(what_is_given_back_can_be_taken_again),
        cmocka_unit_test(a_refusal_says_who_has_what),
    };
    return cmocka_run_group_tests_name("session_quota", tests, NULL, NULL);
}
