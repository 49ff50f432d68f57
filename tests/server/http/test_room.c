/* test_room.c - a room that clients share: who gets it while there is some, and who gives way when there is none. */
#include "server/http/room.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 12, PLACES = 64 };

struct owner {
    struct room_place place;
    struct room_look look;
    unsigned ended;
};

static struct room room;
static struct owner owners[PLACES];
static unsigned ends;

static struct owner *owner_of(const struct room_place *p)
{
    return (struct owner *)(void *)((char *)p - offsetof(struct owner, place));
}

static struct room_look look_at(const struct room_place *p, uint64_t now_ns)
{
    (void)now_ns;
    return owner_of(p)->look;
}

static void end(struct room_place *p)
{
    owner_of(p)->ended = ++ends;
}

static struct client_id client(unsigned number)
{
    struct client_id id = {.kind = CLIENT_IPV4};
    memcpy(id.bytes, &number, sizeof number);
    return id;
}

static enum room_answer take(size_t owner, unsigned of_client, uint64_t units)
{
    const struct client_id id = client(of_client);
    return room_take(&room, &owners[owner].place, &id, units);
}

static void be(size_t owner, enum room_ease ease, uint64_t order)
{
    owners[owner].look = (struct room_look){.ease = ease, .order = order};
}

/* Owners first .. first + count - 1 take one unit each. */
static void fill(size_t first, size_t count, unsigned of_client, enum room_ease ease)
{
    for (size_t i = first; i < first + count; i++) {
        be(i, ease, 1);
        assert_int_equal(take(i, of_client, 1), ROOM_FITS);
    }
}

static int begin(const struct room_rules *more)
{
    const struct room_rules rules = {.most = MOST,
                                     .most_of_client = more->most_of_client,
                                     .ending_most = more->ending_most,
                                     .look = look_at,
                                     .end = end};
    memset(owners, 0, sizeof owners);
    ends = 0;
    room_init(&room, &rules);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return begin(&(struct room_rules){.ending_most = MOST});
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++)
        room_leave(&room, &owners[i].place);
    assert_int_equal(room.used, 0);
    room_clear(&room);
    return 0;
}

static void one_client_gets_all_that_nobody_else_wants(void **state)
{
    (void)state;
    fill(0, MOST, 1, ROOM_BUSY);
    assert_int_equal(room.used, MOST);
    assert_int_equal(take(MOST, 1, 1), ROOM_FULL);
    assert_int_equal(ends, 0);
    room_leave(&room, &owners[3].place);
    assert_int_equal(take(MOST, 1, 1), ROOM_FITS);
}

static void a_newcomer_gets_room_from_who_holds_most(void **state)
{
    (void)state;
    fill(0, 8, 1, ROOM_BUSY);
    fill(8, 4, 2, ROOM_BUSY);
    be(5, ROOM_BUSY, 2);
    assert_int_equal(take(20, 3, 1), ROOM_FITS);
    assert_int_equal(owners[5].ended, 1); /* the largest order of the largest holder */
    assert_int_equal(room.used, MOST);
    room_leave(&room, &owners[5].place);
    assert_int_equal(room.used, MOST);
}

/* Until each has as much as the others: then work of nobody is ended. */
static void sharing_ends_where_all_hold_the_same(void **state)
{
    (void)state;
    fill(0, MOST, 1, ROOM_BUSY);
    for (size_t i = 0; i < MOST / 2; i++) {
        be(20 + i, ROOM_BUSY, 1);
        assert_int_equal(take(20 + i, 2, 1), ROOM_FITS);
    }
    assert_int_equal(ends, MOST / 2);
    assert_int_equal(take(40, 2, 1), ROOM_FULL);
    assert_int_equal(take(41, 1, 1), ROOM_FULL);
    assert_int_equal(ends, MOST / 2);
    assert_int_equal(take(42, 3, 1), ROOM_FITS); /* a third one has its share too */
}

static void what_is_idle_gives_way_before_what_is_at_work(void **state)
{
    (void)state;
    fill(0, 9, 1, ROOM_BUSY);
    fill(9, 3, 2, ROOM_IDLE);
    be(10, ROOM_IDLE, 7);
    assert_int_equal(take(20, 3, 1), ROOM_FITS);
    assert_int_equal(owners[10].ended, 1);
    be(20, ROOM_BUSY, 1);
    assert_int_equal(take(21, 1, 1), ROOM_FULL); /* who holds most does not take what is idle from who holds less */
    be(4, ROOM_IDLE, 1);
    assert_int_equal(take(21, 1, 1), ROOM_FITS); /* its own it may */
    assert_int_equal(owners[4].ended, 2);
}

static void what_must_stay_is_never_ended(void **state)
{
    (void)state;
    fill(0, MOST, 1, ROOM_STAYS);
    assert_int_equal(take(20, 2, 1), ROOM_FULL);
    assert_int_equal(ends, 0);
    assert_null(owners[20].place.holder);
}

static void several_end_for_one_that_is_large(void **state)
{
    (void)state;
    fill(0, MOST, 1, ROOM_BUSY);
    be(20, ROOM_BUSY, 1);
    assert_int_equal(take(20, 2, 4), ROOM_FITS);
    assert_int_equal(ends, 4);
    assert_int_equal(take(20, 2, 2), ROOM_FITS); /* one place grows */
    assert_int_equal(owners[20].place.units, 6);
    assert_int_equal(take(20, 2, 1), ROOM_FULL);
    assert_int_equal(owners[20].place.units, 6);
    assert_int_equal(take(20, 2, MOST - 5), ROOM_NEVER); /* more than there is: nobody ends for that */
    assert_int_equal(take(21, 3, MOST + 1), ROOM_NEVER);
    assert_int_equal(ends, 6);
}

/* What was told to end and is still there is bounded too. */
static void no_more_end_at_a_time_than_may(void **state)
{
    (void)state;
    assert_int_equal(begin(&(struct room_rules){.ending_most = 2}), 0);
    fill(0, MOST, 1, ROOM_BUSY);
    assert_int_equal(take(20, 2, 1), ROOM_FITS);
    assert_int_equal(take(21, 2, 1), ROOM_FITS);
    assert_int_equal(take(22, 2, 1), ROOM_FULL);
    for (size_t i = 0; i < MOST; i++)
        if (owners[i].ended == 1)
            room_leave(&room, &owners[i].place);
    assert_int_equal(take(22, 2, 1), ROOM_FITS);
    assert_int_equal(ends, 3);
}

static void what_ends_gets_no_more(void **state)
{
    (void)state;
    fill(0, MOST, 1, ROOM_BUSY);
    be(2, ROOM_BUSY, 5);
    assert_int_equal(take(20, 2, 1), ROOM_FITS);
    assert_int_equal(owners[2].ended, 1);
    room_leave(&room, &owners[7].place);
    assert_int_equal(take(2, 1, 1), ROOM_FULL);
    assert_int_equal(room.used, MOST - 1);
}

static void a_client_gets_no_more_than_it_may(void **state)
{
    const struct client_id local = {.kind = CLIENT_UNIX};
    (void)state;
    assert_int_equal(begin(&(struct room_rules){.ending_most = MOST, .most_of_client = 3}), 0);
    fill(0, 3, 1, ROOM_IDLE);
    assert_int_equal(take(20, 1, 1), ROOM_OF_CLIENT);
    assert_int_equal(take(21, 2, 4), ROOM_NEVER);
    assert_int_equal(take(22, 2, 3), ROOM_FITS);
    assert_int_equal(take(22, 2, 1), ROOM_NEVER); /* by itself it is all that the client may have */
    assert_int_equal(room_take(&room, &owners[23].place, &local, 4), ROOM_FITS);
}

static void what_has_moved_is_found_where_it_is(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= 3; count++) { /* alone in its client's ring, and not */
        fill(0, count, 1, ROOM_IDLE);
        assert_int_equal(take(0, 1, MOST - count), ROOM_FITS);
        room_move(&room, &owners[0].place, &owners[PLACES - 1].place);
        be(PLACES - 1, ROOM_IDLE, UINT64_MAX);
        assert_null(owners[0].place.holder);
        room_leave(&room, &owners[0].place); /* it holds nothing */
        assert_int_equal(room.used, MOST);
        assert_int_equal(take(count, 2, 1), ROOM_FITS);
        assert_true(owners[PLACES - 1].ended > 0);
        assert_int_equal(owners[0].ended, 0);
        owners[PLACES - 1].ended = 0;
        for (size_t i = 0; i < PLACES; i++)
            room_leave(&room, &owners[i].place);
        assert_int_equal(room.used, 0);
    }
}

/* However many there are, each is looked at in its turn. */
static void none_is_out_of_sight(void **state)
{
    enum { MANY = 3 * ROOM_LOOKS_MAX };
    static struct owner many[MANY], newcomers[8];
    const struct room_rules rules = {.most = MANY, .ending_most = MANY, .look = look_at, .end = end};
    unsigned got = 0;
    (void)state;
    room_clear(&room);
    ends = 0;
    room_init(&room, &rules);
    for (unsigned i = 0; i < MANY; i++) {
        const struct client_id id = client(i);
        many[i].look.ease = i == MANY / 2 ? ROOM_IDLE : ROOM_STAYS;
        assert_int_equal(room_take(&room, &many[i].place, &id, 1), ROOM_FITS);
    }
    for (unsigned i = 0; i < 8; i++) {
        const struct client_id id = client(MANY + 1);
        got += room_take(&room, &newcomers[i].place, &id, 1) == ROOM_FITS;
    }
    assert_int_equal(got, 1);
    assert_int_equal(many[MANY / 2].ended, 1);
    for (unsigned i = 0; i < MANY; i++)
        room_leave(&room, &many[i].place);
    for (unsigned i = 0; i < 8; i++)
        room_leave(&room, &newcomers[i].place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_client_gets_all_that_nobody_else_wants, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_newcomer_gets_room_from_who_holds_most, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sharing_ends_where_all_hold_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_idle_gives_way_before_what_is_at_work, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_must_stay_is_never_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(several_end_for_one_that_is_large, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_more_end_at_a_time_than_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_ends_gets_no_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_gets_no_more_than_it_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_moved_is_found_where_it_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(none_is_out_of_sight, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
