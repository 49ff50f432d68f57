/* test_stream_shares.c - who runs in a lane of streams: clients have even shares, their jobs too; a further sample
 * takes what nobody waits for and gives it back; all take turns; there is room for who comes next. Real slots, of jobs
 * that are fed nothing: what a move does to a stream's text is tests/http/test_shares.c's. */
#include "server/operation/stream_shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_kind.h"
#include "server/operation/stream_slots.h"
#include "tests/support/job_party.h"
#include "tests/support/random.h"

enum { SLOTS = 8, PARKING_MB = 1, JOBS_MAX = 512, ENDLESS = 64, FLOOD = 6, STEPS = 20000, RANDOM_JOBS = 72 };

static struct hosted_model *model;
static struct stream_slots *slots;
static struct stream_shares shares;
static struct job jobs[JOBS_MAX]; /* by where they are among the slots' */
static uint64_t now_ns;

/* ---- slots whose samples are fed nothing ------------------------------------------------------------------------ */

static void begin_sample(struct stream_slot *s)
{
    s->prompt = s->sample; /* none waits for another's */
}

static const struct stream_kind fed_nothing = {.begin = begin_sample};
static const struct job_kind kind = {.stream = &fed_nothing};

static int load_model(void **state)
{
    (void)state;
    model = party_text_model();
    return 0;
}

static int release_model(void **state)
{
    (void)state;
    hosted_model_release(model);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    struct settings settings;
    struct error err;
    settings_init(&settings);
    settings.streams_max = SLOTS;
    settings.parking_mb = PARKING_MB;
    settings.prefix_cache_mb = 0;
    if (stream_slots_create(&slots, model, &settings, &err) != OK)
        fail_msg("%s", err.message);
    assert_in_range(slots->jobs_max, RANDOM_JOBS, JOBS_MAX);
    now_ns = 1;
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < slots->jobs_max; i++)
        if (slots->jobs[i].job != NULL)
            stream_slots_leave_all(slots, i);
    stream_slots_free(slots);
    return 0;
}

static struct client_id client(uint32_t number)
{
    return (struct client_id){.kind = CLIENT_IPV4, .bytes = {10, 0, (uint8_t)(number >> 8), (uint8_t)number}};
}

static void move(const struct stream_move *m)
{
    if (m->slot != STREAM_NONE)
        stream_slots_park(slots, (uint32_t)m->slot);
    if (m->parked == STREAM_NONE) {
        stream_slots_begin(slots, m->owner, now_ns);
        return;
    }
    assert_int_equal(slots->parked[m->parked].owner, m->owner);
    stream_slots_return(slots, (uint32_t)m->parked, now_ns);
}

/* What every moment must hold. */
static void assert_sound(void)
{
    uint32_t running = 0, waiting = 0;
    for (uint32_t i = 0; i < slots->jobs_max; i++) {
        const struct lane_job *j = &slots->jobs[i];
        running += j->running;
        waiting += j->parked;
        assert_true(j->running + j->parked <= j->begun);
    }
    assert_int_equal(running, slots->running);
    assert_int_equal(waiting, slots->parked_count);
    assert_true(slots->parked_count <= slots->parked_max);
}

/* A job of a client comes from the queue, if it may; returns its index, or STREAM_NONE. */
static int come(uint32_t number, uint32_t samples)
{
    const struct client_id who = client(number);
    uint32_t at = 0;
    stream_shares_count(&shares, slots, now_ns);
    if (stream_shares_load(&shares, &who) < 0)
        return STREAM_NONE;
    const int slot = slots->running < SLOTS ? STREAM_NONE : stream_shares_slot_for(&shares, &who);
    while (slots->jobs[at].job != NULL)
        at++;
    jobs[at] = (struct job){.kind = &kind, .samples = samples, .item.client = who};
    assert_int_equal(stream_slots_enter(slots, &jobs[at]), at);
    move(&(struct stream_move){.owner = at, .parked = STREAM_NONE, .slot = slot});
    assert_sound();
    return (int)at;
}

/* Move until all is as it should be; returns how many moves that took. */
static uint32_t settle(void)
{
    struct stream_move m;
    uint32_t moves = 0;
    for (stream_shares_count(&shares, slots, now_ns); stream_shares_next(&shares, &m);
         stream_shares_count(&shares, slots, now_ns)) {
        move(&m);
        assert_sound();
        assert_true(++moves < 4 * slots->jobs_max); /* it comes to an end */
    }
    return moves;
}

/* One sample takes the place of another in turn, if any's turn has come. */
static bool take_turn(void)
{
    struct stream_move m;
    stream_shares_count(&shares, slots, now_ns);
    if (!stream_shares_turn(&shares, &m))
        return false;
    move(&m);
    assert_sound();
    return true;
}

/* It takes with it what it has, and nothing of others. */
static void leave(uint32_t job)
{
    const uint32_t ran = slots->jobs[job].running, waited = slots->jobs[job].parked;
    const uint32_t running = slots->running, waiting = slots->parked_count;
    stream_slots_leave_all(slots, job);
    assert_int_equal(slots->running, running - ran);
    assert_int_equal(slots->parked_count, waiting - waited);
    for (uint32_t i = 0; i < slots->parked_count; i++)
        assert_int_not_equal(slots->parked[i].owner, job);
    for (uint32_t rank = 0; rank < slots->running; rank++)
        assert_int_not_equal(slots->owner[slots->order[rank]], job);
    assert_sound();
}

static uint32_t running_of(uint32_t number)
{
    const struct client_id who = client(number);
    stream_shares_count(&shares, slots, now_ns);
    return stream_shares_running(&shares, &who);
}

/* ---- tests ----------------------------------------------------------------------------------------------------- */

static void who_is_alone_has_all_slots(void **state)
{
    (void)state;
    assert_int_equal(come(1, ENDLESS), 0);
    assert_int_equal(settle(), SLOTS - 1);
    assert_int_equal(running_of(1), SLOTS);
    assert_int_equal(settle(), 0);
    now_ns += 10 * STREAM_TURN_NS;
    assert_int_equal(settle(), 0);
    assert_false(take_turn()); /* nobody is parked; samples that have not begun have no claim */
}

static void another_client_gets_half_at_once(void **state)
{
    (void)state;
    (void)come(1, ENDLESS);
    (void)settle();
    const int other = come(2, 3);
    assert_int_not_equal(other, STREAM_NONE);
    (void)settle();
    assert_int_equal(running_of(1), SLOTS - 3); /* it asks for no more than three */
    assert_int_equal(running_of(2), 3);
    assert_int_equal(slots->parked_count, 3);
    leave((uint32_t)other);
    (void)settle();
    assert_int_equal(running_of(1), SLOTS);
    assert_int_equal(slots->parked_count, 0); /* those that were parked come before new ones */
    (void)come(2, ENDLESS);
    (void)settle();
    assert_int_equal(running_of(1), SLOTS / 2);
    assert_int_equal(running_of(2), SLOTS / 2);
}

static void many_clients_have_even_shares(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 2 * SLOTS; n++) {
        assert_int_not_equal(come(n, ENDLESS), STREAM_NONE);
        (void)settle();
        for (uint32_t k = 1; k <= n && n <= SLOTS; k++)
            assert_in_range(running_of(k), SLOTS / n, (SLOTS + n - 1) / n);
        now_ns += STREAM_TURN_NS;
    }
}

static void jobs_of_a_client_share_what_it_has(void **state)
{
    (void)state;
    const int first = come(1, ENDLESS);
    (void)settle();
    const int second = come(1, ENDLESS);
    assert_int_not_equal(second, STREAM_NONE); /* a job without a slot comes before further samples */
    (void)settle();
    assert_int_equal(slots->jobs[first].running, SLOTS / 2);
    assert_int_equal(slots->jobs[second].running, SLOTS / 2);
    (void)come(2, ENDLESS);
    (void)settle();
    assert_int_equal(running_of(2), SLOTS / 2);
    assert_int_equal(slots->jobs[first].running, SLOTS / 4);
    assert_int_equal(slots->jobs[second].running, SLOTS / 4);
}

/* Where each has one stream only, they are first come, first served: none is parked for others of the same client. */
static void single_streams_of_a_client_wait_in_the_queue(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_not_equal(come(1, 1), STREAM_NONE);
    now_ns += 10 * STREAM_TURN_NS;
    assert_int_equal(come(1, 1), STREAM_NONE);
    assert_int_not_equal(come(2, 1), STREAM_NONE);
    assert_int_equal(running_of(1), SLOTS - 1);
}

/* Who gets a slot that becomes free, and who gives one up. */
static void the_job_with_least_gets_and_the_job_with_most_gives(void **state)
{
    (void)state;
    const int first = come(1, ENDLESS);
    (void)settle();
    const int second = come(1, ENDLESS);
    assert_int_equal(slots->jobs[first].running, SLOTS - 1);
    assert_int_equal(slots->parked[0].owner, first);
    assert_int_equal(slots->parked[0].slot.sample, SLOTS - 1); /* the last that came */
    stream_slots_leave(slots, slots->order[0]);                /* a sample of the first ends */
    struct stream_move m;
    stream_shares_count(&shares, slots, now_ns);
    assert_true(stream_shares_next(&shares, &m));
    assert_int_equal(m.owner, second);
    assert_int_equal(m.slot, STREAM_NONE);
    move(&m);
    const struct client_id other = client(2);
    stream_shares_count(&shares, slots, now_ns);
    const int slot = stream_shares_slot_for(&shares, &other);
    assert_int_not_equal(slot, STREAM_NONE);
    assert_int_equal(slots->owner[slot], first);
    assert_int_equal(slots->slot[slot].sample, SLOTS - 2);
}

static void the_stream_that_ran_longest_gives_way_in_turn(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < SLOTS; n++) {
        (void)come(n, 1);
        slots->taken_ns[slots->order[n]] = 100 - 10 * ((n + 3) % SLOTS); /* the fifth is the first of them */
    }
    now_ns += 1000 + STREAM_TURN_NS;
    const struct client_id other = client(SLOTS);
    stream_shares_count(&shares, slots, now_ns);
    assert_int_equal(stream_shares_slot_for(&shares, &other), slots->order[4]);
}

static void all_take_turns(void **state)
{
    (void)state;
    uint32_t ran[3 * SLOTS] = {0};
    for (uint32_t n = 0; n < 3 * SLOTS; n++) {
        assert_int_not_equal(come(n, 1), STREAM_NONE);
        now_ns += STREAM_TURN_NS; /* else the slots were taken just now */
    }
    assert_int_equal(slots->parked_count, 2 * SLOTS);
    for (int round = 0; round < 30; round++) {
        now_ns += STREAM_TURN_NS / 2;
        while (take_turn())
            ;
        (void)settle();
        for (uint32_t n = 0; n < 3 * SLOTS; n++)
            ran[n] += running_of(n);
    }
    for (uint32_t n = 0; n < 3 * SLOTS; n++)
        assert_in_range(ran[n], 8, 12); /* of 30 rounds, in which a third runs at a time */
}

/* However many clients come and stay, there is room for one more, until the last of it is left for taking turns. */
static void there_is_room_for_who_comes_next(void **state)
{
    (void)state;
    uint32_t came = 0;
    for (uint32_t i = 0; i < FLOOD * ENDLESS; i++) { /* some with as many jobs as they like */
        now_ns += STREAM_TURN_NS;
        if (come(i % FLOOD, 1 + i % 3) != STREAM_NONE)
            (void)settle();
        (void)take_turn();
    }
    print_message("  %u of %u rooms were taken by %d clients\n", slots->parked_count, slots->parked_max, FLOOD);
    for (uint32_t n = FLOOD; n < FLOOD + slots->jobs_max; n++) {
        now_ns += STREAM_TURN_NS;
        const int at = come(n, ENDLESS);
        if (at == STREAM_NONE)
            break;
        (void)settle();
        came++;
    }
    print_message("  %u clients came beside them\n", came);
    assert_true(came >= SLOTS + slots->parked_max / 4);
    assert_true(slots->parked_count < slots->parked_max); /* turns are taken still */
    now_ns += STREAM_TURN_NS;
    assert_true(take_turn());
}

/* Who has more parked than there is room left for takes no slot from others for one more job. */
static void room_is_left_for_newcomers(void **state)
{
    (void)state;
    (void)come(2, ENDLESS);
    (void)settle();
    const int at = come(1, slots->jobs_max);
    assert_int_not_equal(at, STREAM_NONE);
    const struct client_id first = client(1), third = client(3);
    for (uint32_t taken = slots->parked_count; taken < slots->parked_max - 1; taken++) {
        while (slots->parked_count < taken) {
            uint32_t rank = 0;
            while (slots->owner[slots->order[rank]] != (uint32_t)at)
                rank++;
            stream_slots_park(slots, slots->order[rank]);
            stream_slots_begin(slots, (uint32_t)at, now_ns);
        }
        stream_shares_count(&shares, slots, now_ns);
        const uint32_t theirs = 1 + slots->jobs[at].parked, left = slots->parked_max - taken;
        assert_int_equal(stream_shares_slot_for(&shares, &first) != STREAM_NONE, theirs < left);
        assert_int_not_equal(stream_shares_slot_for(&shares, &third), STREAM_NONE);
    }
}

/* Anything in any order: sound at every step, settled after few, and then nobody has two less than another while it
 * waits for one. */
static void whatever_happens_shares_are_even(void **state)
{
    (void)state;
    struct random r = {23};
    for (int step = 0; step < STEPS; step++) {
        const uint32_t what = random_below(&r, 8);
        const uint32_t at = random_below(&r, RANDOM_JOBS);
        if (what < 3)
            (void)come(random_below(&r, 6), 1 + random_below(&r, 12));
        else if (what < 5 && slots->jobs[at].job != NULL)
            leave(at);
        else if (what == 5)
            (void)take_turn();
        now_ns += random_below(&r, STREAM_TURN_NS / 2);
        (void)settle();
        assert_int_equal(settle(), 0);
        for (uint32_t i = 0; i < slots->jobs_max; i++) {
            if (slots->jobs[i].job == NULL || slots->jobs[i].parked == 0)
                continue;
            assert_int_equal(slots->running, SLOTS);
            const uint32_t mine = running_of((uint32_t)slots->jobs[i].job->item.client.bytes[3]);
            for (uint32_t n = 0; n < 6; n++)
                assert_true(running_of(n) < mine + 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_is_alone_has_all_slots, begin, end),
        cmocka_unit_test_setup_teardown(another_client_gets_half_at_once, begin, end),
        cmocka_unit_test_setup_teardown(many_clients_have_even_shares, begin, end),
        cmocka_unit_test_setup_teardown(jobs_of_a_client_share_what_it_has, begin, end),
        cmocka_unit_test_setup_teardown(single_streams_of_a_client_wait_in_the_queue, begin, end),
        cmocka_unit_test_setup_teardown(the_job_with_least_gets_and_the_job_with_most_gives, begin, end),
        cmocka_unit_test_setup_teardown(the_stream_that_ran_longest_gives_way_in_turn, begin, end),
        cmocka_unit_test_setup_teardown(all_take_turns, begin, end),
        cmocka_unit_test_setup_teardown(there_is_room_for_who_comes_next, begin, end),
        cmocka_unit_test_setup_teardown(room_is_left_for_newcomers, begin, end),
        cmocka_unit_test_setup_teardown(whatever_happens_shares_are_even, begin, end),
    };
    return cmocka_run_group_tests(tests, load_model, release_model);
}
