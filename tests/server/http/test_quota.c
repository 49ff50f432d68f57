/* test_quota.c - a room that clients share: who gets it while there is some, and who gives way when there is none. */
#include "server/http/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 12, PLACES = 64 };

struct owner {
    struct quota_share share;
    struct quota_view view;
    unsigned ended;
};

static struct quota quota;
static struct owner owners[PLACES];
static unsigned ends;

static struct owner *owner_of(const struct quota_share *p)
{
    return (struct owner *)(void *)((char *)p - offsetof(struct owner, share));
}

static struct quota_view look_at(const struct quota_share *p, uint64_t now_ns)
{
    (void)now_ns;
    return owner_of(p)->view;
}

static void end(struct quota_share *p)
{
    owner_of(p)->ended = ++ends;
}

static struct client_id client(unsigned number)
{
    struct client_id id = {.kind = CLIENT_IPV4};
    memcpy(id.bytes, &number, sizeof number);
    return id;
}

static enum quota_answer take(size_t owner, unsigned of_client, uint64_t units)
{
    const struct client_id id = client(of_client);
    return quota_take(&quota, &owners[owner].share, &id, units);
}

static void be(size_t owner, enum quota_ease ease, uint64_t order)
{
    owners[owner].view = (struct quota_view){.ease = ease, .order = order};
}

/* Owners first .. first + count - 1 take one unit each. */
static void fill(size_t first, size_t count, unsigned of_client, enum quota_ease ease)
{
    for (size_t i = first; i < first + count; i++) {
        be(i, ease, 1);
        assert_int_equal(take(i, of_client, 1), QUOTA_FITS);
    }
}

static int begin(const struct quota_rules *more)
{
    const struct quota_rules rules = {.most = MOST,
                                      .most_of_client = more->most_of_client,
                                      .ending_most = more->ending_most,
                                      .view = look_at,
                                      .end = end};
    memset(owners, 0, sizeof owners);
    ends = 0;
    quota_init(&quota, &rules);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return begin(&(struct quota_rules){.ending_most = MOST});
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++)
        quota_release(&quota, &owners[i].share);
    assert_int_equal(quota.used, 0);
    quota_clear(&quota);
    return 0;
}

static void one_client_gets_all_that_nobody_else_wants(void **state)
{
    (void)state;
    fill(0, MOST, 1, QUOTA_BUSY);
    assert_int_equal(quota.used, MOST);
    assert_int_equal(take(MOST, 1, 1), QUOTA_FULL);
    assert_int_equal(ends, 0);
    quota_release(&quota, &owners[3].share);
    assert_int_equal(take(MOST, 1, 1), QUOTA_FITS);
}

static void a_newcomer_gets_room_from_who_holds_most(void **state)
{
    (void)state;
    fill(0, 8, 1, QUOTA_BUSY);
    fill(8, 4, 2, QUOTA_BUSY);
    be(5, QUOTA_BUSY, 2);
    assert_int_equal(take(20, 3, 1), QUOTA_FITS);
    assert_int_equal(owners[5].ended, 1); /* the largest order of the largest owner */
    assert_int_equal(quota.used, MOST);
    quota_release(&quota, &owners[5].share);
    assert_int_equal(quota.used, MOST);
}

/* Until each has as much as the others: then work of nobody is ended. */
static void sharing_ends_where_all_hold_the_same(void **state)
{
    (void)state;
    fill(0, MOST, 1, QUOTA_BUSY);
    for (size_t i = 0; i < MOST / 2; i++) {
        be(20 + i, QUOTA_BUSY, 1);
        assert_int_equal(take(20 + i, 2, 1), QUOTA_FITS);
    }
    assert_int_equal(ends, MOST / 2);
    assert_int_equal(take(40, 2, 1), QUOTA_FULL);
    assert_int_equal(take(41, 1, 1), QUOTA_FULL);
    assert_int_equal(ends, MOST / 2);
    assert_int_equal(take(42, 3, 1), QUOTA_FITS); /* a third one has its share too */
}

static void what_is_idle_gives_way_before_what_is_at_work(void **state)
{
    (void)state;
    fill(0, 9, 1, QUOTA_BUSY);
    fill(9, 3, 2, QUOTA_IDLE);
    be(10, QUOTA_IDLE, 7);
    assert_int_equal(take(20, 3, 1), QUOTA_FITS);
    assert_int_equal(owners[10].ended, 1);
    be(20, QUOTA_BUSY, 1);
    assert_int_equal(take(21, 1, 1), QUOTA_FULL); /* who holds most does not take what is idle from who holds less */
    be(4, QUOTA_IDLE, 1);
    assert_int_equal(take(21, 1, 1), QUOTA_FITS); /* its own it may */
    assert_int_equal(owners[4].ended, 2);
}

static void what_must_stay_is_never_ended(void **state)
{
    (void)state;
    fill(0, MOST, 1, QUOTA_STAYS);
    assert_int_equal(take(20, 2, 1), QUOTA_FULL);
    assert_int_equal(ends, 0);
    assert_null(owners[20].share.owner);
}

static void several_end_for_one_that_is_large(void **state)
{
    (void)state;
    fill(0, MOST, 1, QUOTA_BUSY);
    be(20, QUOTA_BUSY, 1);
    assert_int_equal(take(20, 2, 4), QUOTA_FITS);
    assert_int_equal(ends, 4);
    assert_int_equal(take(20, 2, 2), QUOTA_FITS); /* one place grows */
    assert_int_equal(owners[20].share.units, 6);
    assert_int_equal(take(20, 2, 1), QUOTA_FULL);
    assert_int_equal(owners[20].share.units, 6);
    assert_int_equal(take(20, 2, MOST - 5), QUOTA_NEVER); /* more than there is: nobody ends for that */
    assert_int_equal(take(21, 3, MOST + 1), QUOTA_NEVER);
    assert_int_equal(ends, 6);
}

/* What was told to end and is still there is bounded too. */
static void no_more_end_at_a_time_than_may(void **state)
{
    (void)state;
    assert_int_equal(begin(&(struct quota_rules){.ending_most = 2}), 0);
    fill(0, MOST, 1, QUOTA_BUSY);
    assert_int_equal(take(20, 2, 1), QUOTA_FITS);
    assert_int_equal(take(21, 2, 1), QUOTA_FITS);
    assert_int_equal(take(22, 2, 1), QUOTA_FULL);
    for (size_t i = 0; i < MOST; i++)
        if (owners[i].ended == 1)
            quota_release(&quota, &owners[i].share);
    assert_int_equal(take(22, 2, 1), QUOTA_FITS);
    assert_int_equal(ends, 3);
}

static void what_ends_gets_no_more(void **state)
{
    (void)state;
    fill(0, MOST, 1, QUOTA_BUSY);
    be(2, QUOTA_BUSY, 5);
    assert_int_equal(take(20, 2, 1), QUOTA_FITS);
    assert_int_equal(owners[2].ended, 1);
    quota_release(&quota, &owners[7].share);
    assert_int_equal(take(2, 1, 1), QUOTA_FULL);
    assert_int_equal(quota.used, MOST - 1);
}

static void a_client_gets_no_more_than_it_may(void **state)
{
    const struct client_id local = {.kind = CLIENT_UNIX};
    (void)state;
    assert_int_equal(begin(&(struct quota_rules){.ending_most = MOST, .most_of_client = 3}), 0);
    fill(0, 3, 1, QUOTA_IDLE);
    assert_int_equal(take(20, 1, 1), QUOTA_OF_CLIENT);
    assert_int_equal(take(21, 2, 4), QUOTA_NEVER);
    assert_int_equal(take(22, 2, 3), QUOTA_FITS);
    assert_int_equal(take(22, 2, 1), QUOTA_NEVER); /* by itself it is all that the client may have */
    assert_int_equal(quota_take(&quota, &owners[23].share, &local, 4), QUOTA_FITS);
}

/* However many there are, each is looked at in its turn. */
static void none_is_out_of_sight(void **state)
{
    enum { MANY = 3 * QUOTA_LOOKS_MAX };
    static struct owner many[MANY], newcomers[8];
    const struct quota_rules rules = {.most = MANY, .ending_most = MANY, .view = look_at, .end = end};
    unsigned got = 0;
    (void)state;
    quota_clear(&quota);
    ends = 0;
    quota_init(&quota, &rules);
    for (unsigned i = 0; i < MANY; i++) {
        const struct client_id id = client(i);
        many[i].view.ease = i == MANY / 2 ? QUOTA_IDLE : QUOTA_STAYS;
        assert_int_equal(quota_take(&quota, &many[i].share, &id, 1), QUOTA_FITS);
    }
    for (unsigned i = 0; i < 8; i++) {
        const struct client_id id = client(MANY + 1);
        got += quota_take(&quota, &newcomers[i].share, &id, 1) == QUOTA_FITS;
    }
    assert_int_equal(got, 1);
    assert_int_equal(many[MANY / 2].ended, 1);
    for (unsigned i = 0; i < MANY; i++)
        quota_release(&quota, &many[i].share);
    for (unsigned i = 0; i < 8; i++)
        quota_release(&quota, &newcomers[i].share);
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
        cmocka_unit_test_setup_teardown(none_is_out_of_sight, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
