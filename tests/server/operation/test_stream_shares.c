/* test_stream_shares.c - who runs in a lane of streams: clients have even shares, their jobs too; a further sample
 * takes what nobody waits for and gives it back; all take turns; there is room for who comes next. The rules alone, on
 * places without an engine: what a move does to a stream is tests/http/test_shares.c's. */
#include "server/operation/stream_shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/models/hosted_model.h"
#include "server/operation/stream_slots.h"
#include "server/request/job.h"
#include "tests/support/random.h"

enum { SLOTS = 8, PARKED = 64, JOBS = SLOTS + PARKED, MOVES_MAX = 4 * JOBS, CLIENTS = 80, ENDLESS = 64, FLOOD = 6 };

static struct stream_slot array[SLOTS];
static uint32_t order[SLOTS], owner[SLOTS];
static uint64_t taken_ns[SLOTS];
static struct lane_job lane_jobs[JOBS];
static struct parked_sample parked[PARKED];
static uint32_t rooms[PARKED];
static struct hosted_model model;
static struct job jobs[JOBS];
static struct stream_slots slots;
static struct stream_shares shares;
static uint64_t now_ns;

static int begin(void **state)
{
    (void)state;
    memset(lane_jobs, 0, sizeof lane_jobs);
    memset(array, 0, sizeof array);
    slots = (struct stream_slots){.model = &model,
                                  .slots_max = SLOTS,
                                  .order = order,
                                  .slot = array,
                                  .owner = owner,
                                  .taken_ns = taken_ns,
                                  .jobs = lane_jobs,
                                  .jobs_max = JOBS,
                                  .parked = parked,
                                  .rooms = rooms,
                                  .parked_max = PARKED};
    for (uint32_t i = 0; i < SLOTS; i++)
        order[i] = i;
    now_ns = 1;
    return 0;
}

/* ---- places without streams ------------------------------------------------------------------------------------ */

static struct client_id client(uint32_t number)
{
    return (struct client_id){.kind = CLIENT_IPV4, .bytes = {10, 0, (uint8_t)(number >> 8), (uint8_t)number}};
}

static void take_slot(uint32_t job, uint32_t sample)
{
    const uint32_t slot = order[slots.running++];
    array[slot].job = lane_jobs[job].job;
    array[slot].sample = sample;
    owner[slot] = job;
    taken_ns[slot] = now_ns;
    lane_jobs[job].running++;
}

static void free_slot(uint32_t slot)
{
    uint32_t rank = 0;
    while (order[rank] != slot)
        rank++;
    slots.running--;
    memmove(order + rank, order + rank + 1, (slots.running - rank) * sizeof *order);
    order[slots.running] = slot;
    lane_jobs[owner[slot]].running--;
}

static void park(uint32_t slot)
{
    parked[slots.parked_count++] = (struct parked_sample){.owner = owner[slot], .slot = array[slot]};
    lane_jobs[owner[slot]].parked++;
    free_slot(slot);
}

static void move(const struct stream_move *m)
{
    if (m->slot != STREAM_NONE)
        park((uint32_t)m->slot);
    assert_true(slots.running < SLOTS);
    if (m->parked == STREAM_NONE) {
        take_slot(m->owner, lane_jobs[m->owner].begun);
        lane_jobs[m->owner].begun++;
        return;
    }
    const struct parked_sample x = parked[m->parked];
    assert_int_equal(x.owner, m->owner);
    slots.parked_count--;
    memmove(parked + m->parked, parked + m->parked + 1, (slots.parked_count - (uint32_t)m->parked) * sizeof *parked);
    lane_jobs[m->owner].parked--;
    take_slot(m->owner, x.slot.sample);
}

/* What every moment must hold. */
static void assert_sound(void)
{
    uint32_t running = 0, waiting = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        running += lane_jobs[i].running;
        waiting += lane_jobs[i].parked;
        assert_true(lane_jobs[i].running + lane_jobs[i].parked <= lane_jobs[i].begun);
    }
    assert_int_equal(running, slots.running);
    assert_int_equal(waiting, slots.parked_count);
    assert_true(slots.parked_count <= PARKED);
}

/* A job of a client comes from the queue, if it may; returns its index, or STREAM_NONE. */
static int come(uint32_t number, uint32_t samples)
{
    const struct client_id who = client(number);
    uint32_t at = 0;
    stream_shares_count(&shares, &slots, now_ns);
    if (stream_shares_load(&shares, &who) < 0)
        return STREAM_NONE;
    const int slot = slots.running < SLOTS ? STREAM_NONE : stream_shares_slot_for(&shares, &who);
    while (lane_jobs[at].job != NULL)
        at++;
    assert_true(at < JOBS);
    jobs[at].item.client = who;
    lane_jobs[at] = (struct lane_job){.job = &jobs[at], .samples = samples, .number = slots.numbers++};
    slots.job_count++;
    move(&(struct stream_move){.owner = at, .parked = STREAM_NONE, .slot = slot});
    assert_sound();
    return (int)at;
}

/* Move until all is as it should be; returns how many moves that took. */
static uint32_t settle(void)
{
    struct stream_move m;
    uint32_t moves = 0;
    for (stream_shares_count(&shares, &slots, now_ns); stream_shares_next(&shares, &m);
         stream_shares_count(&shares, &slots, now_ns)) {
        move(&m);
        assert_sound();
        assert_true(++moves < MOVES_MAX); /* it comes to an end */
    }
    return moves;
}

/* One sample takes the place of another in turn, if any's turn has come. */
static bool take_turn(void)
{
    struct stream_move m;
    stream_shares_count(&shares, &slots, now_ns);
    if (!stream_shares_turn(&shares, &m))
        return false;
    move(&m);
    assert_sound();
    return true;
}

/* It takes with it what it has, and nothing of others. */
static void leave(uint32_t job)
{
    const uint32_t ran = lane_jobs[job].running, waited = lane_jobs[job].parked;
    const uint32_t running = slots.running, waiting = slots.parked_count;
    stream_slots_leave_all(&slots, job);
    assert_int_equal(slots.running, running - ran);
    assert_int_equal(slots.parked_count, waiting - waited);
    for (uint32_t i = 0; i < slots.parked_count; i++)
        assert_int_not_equal(parked[i].owner, job);
    for (uint32_t rank = 0; rank < slots.running; rank++)
        assert_int_not_equal(owner[order[rank]], job);
    assert_sound();
}

static uint32_t running_of(uint32_t number)
{
    const struct client_id who = client(number);
    stream_shares_count(&shares, &slots, now_ns);
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
    assert_int_equal(slots.parked_count, 3);
    leave((uint32_t)other);
    (void)settle();
    assert_int_equal(running_of(1), SLOTS);
    assert_int_equal(slots.parked_count, 0); /* those that were parked come before new ones */
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
    assert_int_equal(lane_jobs[first].running, SLOTS / 2);
    assert_int_equal(lane_jobs[second].running, SLOTS / 2);
    (void)come(2, ENDLESS);
    (void)settle();
    assert_int_equal(running_of(2), SLOTS / 2);
    assert_int_equal(lane_jobs[first].running, SLOTS / 4);
    assert_int_equal(lane_jobs[second].running, SLOTS / 4);
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
    assert_int_equal(lane_jobs[first].running, SLOTS - 1);
    assert_int_equal(parked[0].owner, first);
    assert_int_equal(parked[0].slot.sample, SLOTS - 1); /* the last that came */
    free_slot(order[0]);                                /* a sample of the first ends */
    struct stream_move m;
    stream_shares_count(&shares, &slots, now_ns);
    assert_true(stream_shares_next(&shares, &m));
    assert_int_equal(m.owner, second);
    assert_int_equal(m.slot, STREAM_NONE);
    move(&m);
    const struct client_id other = client(2);
    stream_shares_count(&shares, &slots, now_ns);
    const int slot = stream_shares_slot_for(&shares, &other);
    assert_int_not_equal(slot, STREAM_NONE);
    assert_int_equal(owner[slot], first);
    assert_int_equal(array[slot].sample, SLOTS - 2);
}

static void the_stream_that_ran_longest_gives_way_in_turn(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < SLOTS; n++) {
        (void)come(n, 1);
        taken_ns[order[n]] = 100 - 10 * ((n + 3) % SLOTS); /* the fifth is the first of them */
    }
    now_ns += 1000 + STREAM_TURN_NS;
    const struct client_id other = client(SLOTS);
    stream_shares_count(&shares, &slots, now_ns);
    assert_int_equal(stream_shares_slot_for(&shares, &other), order[4]);
}

static void all_take_turns(void **state)
{
    (void)state;
    uint32_t ran[3 * SLOTS] = {0};
    for (uint32_t n = 0; n < 3 * SLOTS; n++) {
        assert_int_not_equal(come(n, 1), STREAM_NONE);
        now_ns += STREAM_TURN_NS; /* else the slots were taken just now */
    }
    assert_int_equal(slots.parked_count, 2 * SLOTS);
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
    print_message("  %u of %u rooms were taken by %d clients\n", slots.parked_count, PARKED, FLOOD);
    for (uint32_t n = FLOOD; n < CLIENTS; n++) {
        now_ns += STREAM_TURN_NS;
        const int at = come(n, ENDLESS);
        if (at == STREAM_NONE)
            break;
        (void)settle();
        came++;
    }
    print_message("  %u clients came beside them\n", came);
    assert_true(came >= SLOTS + PARKED / 4);
    assert_true(slots.parked_count < PARKED); /* turns are taken still */
    now_ns += STREAM_TURN_NS;
    assert_true(take_turn());
}

/* Who has more parked than there is room left for takes no slot from others for one more job. */
static void room_is_left_for_newcomers(void **state)
{
    (void)state;
    (void)come(2, ENDLESS);
    (void)settle();
    const int at = come(1, ENDLESS);
    assert_int_not_equal(at, STREAM_NONE);
    const struct client_id first = client(1), third = client(3);
    for (uint32_t taken = 1; taken < PARKED - 1; taken++) {
        while (slots.parked_count < taken) {
            parked[slots.parked_count++] = (struct parked_sample){.owner = (uint32_t)at};
            lane_jobs[at].parked++;
        }
        stream_shares_count(&shares, &slots, now_ns);
        const uint32_t theirs = 1 + lane_jobs[at].parked, left = PARKED - taken;
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
    for (int step = 0; step < 20000; step++) {
        const uint32_t what = random_below(&r, 8);
        const uint32_t at = random_below(&r, JOBS);
        if (what < 3)
            (void)come(random_below(&r, 6), 1 + random_below(&r, 12));
        else if (what < 5 && lane_jobs[at].job != NULL)
            leave(at);
        else if (what == 5)
            (void)take_turn();
        now_ns += random_below(&r, STREAM_TURN_NS / 2);
        (void)settle();
        assert_int_equal(settle(), 0);
        for (uint32_t i = 0; i < JOBS; i++) {
            if (lane_jobs[i].job == NULL || lane_jobs[i].parked == 0)
                continue;
            assert_int_equal(slots.running, SLOTS);
            const uint32_t mine = running_of((uint32_t)lane_jobs[i].job->item.client.bytes[3]);
            for (uint32_t n = 0; n < 6; n++)
                assert_true(running_of(n) < mine + 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_is_alone_has_all_slots, begin),
        cmocka_unit_test_setup(another_client_gets_half_at_once, begin),
        cmocka_unit_test_setup(many_clients_have_even_shares, begin),
        cmocka_unit_test_setup(jobs_of_a_client_share_what_it_has, begin),
        cmocka_unit_test_setup(single_streams_of_a_client_wait_in_the_queue, begin),
        cmocka_unit_test_setup(the_job_with_least_gets_and_the_job_with_most_gives, begin),
        cmocka_unit_test_setup(the_stream_that_ran_longest_gives_way_in_turn, begin),
        cmocka_unit_test_setup(all_take_turns, begin),
        cmocka_unit_test_setup(there_is_room_for_who_comes_next, begin),
        cmocka_unit_test_setup(room_is_left_for_newcomers, begin),
        cmocka_unit_test_setup(whatever_happens_shares_are_even, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
