/* test_capacity_sim.c - the simulation of aft capacity against what queueing theory says in closed form, and against
 * passes that can be counted by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/cli/capacity_sim.h"

#define CURVE(at, all)                               \
    {                                                \
        .points = 1, .count = {at}, .value = { all } \
    }

/* A classifier whose batches are of one picture and take a second each: a server of constant times. */
static struct capacity_plan one_server(double rate)
{
    return (struct capacity_plan){
        .costs = {.batch = CURVE(1, 1.0), .crowding = CURVE(1, 1.0)},
        .kinds = {{1, 1, 1.0}},
        .kind_count = 1,
        .rate = rate,
        .requests = 200000,
        .seed = 1,
        .cores = 1,
        .threads = 1,
        .per_machine = 1,
        .streams_max = 1,
        .pass_rows_max = 16,
        .rows_max = 80,
        .batch_max = 1,
        .queue_max = 65536,
    };
}

/* A model of text whose passes take `pass` seconds whatever is in them, in so many slots. */
static struct capacity_plan one_text(double rate, uint32_t streams, uint32_t prompt, uint32_t tokens)
{
    struct capacity_plan p = one_server(rate);
    p.costs = (struct capacity_costs){
        .generates = true, .step = CURVE(1, 0.01), .prompt = CURVE(1, 0.01), .crowding = CURVE(1, 1.0)};
    p.streams_max = streams;
    p.kinds[0] = (struct capacity_kind){prompt, tokens, 1.0};
    return p;
}

static struct capacity_row row_of(const struct capacity_plan *p, uint32_t replicas)
{
    struct capacity_row r;
    assert_true(capacity_simulate(&r, p, replicas));
    assert_int_equal(r.answered + r.refused, p->requests);
    return r;
}

static void expect_near(const char *what, double got, double expected, double share)
{
    if (!(fabs(got - expected) <= share * expected))
        fail_msg("%s is %g, expected %g within %g %%", what, got, expected, 100.0 * share);
}

static void one_server_of_constant_times_waits_as_pollaczek_and_khinchin_say(void **state)
{
    static const double loads[] = {0.3, 0.5, 0.7, 0.9};
    (void)state;
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        const struct capacity_plan p = one_server(loads[i]);
        const struct capacity_row r = row_of(&p, 1);
        expect_near("mean time", r.whole.mean, 1.0 + loads[i] / (2.0 * (1.0 - loads[i])), 0.03);
        expect_near("utilisation", r.engine_share, loads[i], 0.01);
        expect_near("cores that work", r.core_share, loads[i], 0.01);
        expect_near("throughput", r.per_second, loads[i], 0.01);
        assert_int_equal(r.refused, 0);
    }
}

/* M/G/1: W = rate E[S^2] / 2 (1 - load), of texts of 10 and of 40 passes, three to one. */
static void a_mix_of_lengths_waits_by_its_second_moment(void **state)
{
    struct capacity_plan p = one_text(4.0, 1, 1, 10);
    (void)state;
    p.kinds[0].weight = 3.0;
    p.kinds[1] = (struct capacity_kind){1, 40, 1.0};
    p.kind_count = 2;
    const double mean = 0.75 * 0.1 + 0.25 * 0.4, square = 0.75 * 0.01 + 0.25 * 0.16;
    const struct capacity_row r = row_of(&p, 1);
    expect_near("mean time", r.whole.mean, mean + 4.0 * square / (2.0 * (1.0 - 4.0 * mean)), 0.03);
    expect_near("utilisation", r.engine_share, 4.0 * mean, 0.01);
}

/* Cores that all share give every request the same share: two machines' worth of work on one of two cores is as fast
 * as on two machines, and on one core half as fast. */
static void replicas_share_the_cores_of_their_machine(void **state)
{
    struct capacity_plan p = one_server(0.0);
    (void)state;
    p.requests = 1000;
    p.clients = 8;
    p.cores = 2;
    p.per_machine = 4;
    expect_near("one", row_of(&p, 1).per_second, 1.0, 0.01);
    expect_near("two on two cores", row_of(&p, 2).per_second, 2.0, 0.01);
    expect_near("three on two cores", row_of(&p, 3).per_second, 2.0, 0.01);
    expect_near("six on two machines", row_of(&p, 6).per_second, 4.0, 0.02);
    p.costs.crowding.value[0] = 1.25;
    expect_near("one alone", row_of(&p, 1).per_second, 1.0, 0.01);
    expect_near("two that get in each other's way", row_of(&p, 2).per_second, 1.6, 0.01);
}

/* Of what is beside an engine, its cores are taken for the same time. */
static void work_outside_of_the_engine_takes_its_share(void **state)
{
    struct capacity_plan p = one_server(0.0);
    (void)state;
    p.requests = 2000;
    p.clients = 16;
    p.costs.request_s = 0.25;
    p.costs.beside_s = 0.15;
    expect_near("on one core", row_of(&p, 1).per_second, 1.0 / 1.4, 0.01);
    p.cores = 2;
    expect_near("on two", row_of(&p, 1).per_second, 1.0, 0.01);
    p.clients = 1;
    expect_near("for one client", row_of(&p, 1).per_second, 1.0 / 1.4, 0.01);
    p.costs.wake_s = 0.1; /* that a core is idle until it works, of however many that want it */
    for (p.clients = 1; p.clients <= 8; p.clients *= 2) {
        const struct capacity_row r = row_of(&p, 1);
        assert_true(p.clients > 1 || r.per_second < 1.0 / 1.5);
        expect_near("cores that work", p.cores * r.core_share, 1.4 * r.per_second, 0.01);
    }
}

/* Texts of 10 and of 40 passes, three to one, on servers that are 80 % busy. One after the other to each in turn would
 * wait as Kingman's formula says for Erlang's arrivals; one queue for all, which no balancer can do better than, as Lee
 * and Longton's does from Erlang's C. */
static void least_connections_waits_less_than_turns_and_more_than_one_queue(void **state)
{
    static const struct {
        uint32_t servers;
        double erlang_c; /* the probability to wait at 80 % */
    } cases[] = {{2, 0.7111}, {4, 0.5964}};
    const double mean = 0.75 * 0.1 + 0.25 * 0.4, square = 0.75 * 0.01 + 0.25 * 0.16;
    const double spread = square / (mean * mean) - 1.0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const double n = cases[i].servers;
        struct capacity_plan p = one_text(0.8 * n / mean, 1, 1, 10);
        p.kinds[0].weight = 3.0;
        p.kinds[1] = (struct capacity_kind){1, 40, 1.0};
        p.kind_count = 2;
        const double turns = 0.8 / 0.2 * mean * (1.0 / n + spread) / 2.0;
        const double one_queue = cases[i].erlang_c / (n * 0.2) * mean * (1.0 + spread) / 2.0;
        const double waits = row_of(&p, cases[i].servers).whole.mean - mean;
        if (!(waits < 0.8 * turns && waits > 0.9 * one_queue))
            fail_msg("%g servers: waits for %g s, expected less than %g and more than %g", n, waits, turns, one_queue);
    }
}

/* Passes of a second: those that share a core take turns of some milliseconds, and so end together. */
static void engines_that_share_cores_take_turns(void **state)
{
    struct capacity_plan p = one_server(0.0);
    (void)state;
    p.requests = 400;
    p.per_machine = 3;
    p.clients = 2;
    expect_near("two on one core", row_of(&p, 2).whole.p50, 2.0, 0.01);
    p.clients = 3;
    p.cores = 2;
    expect_near("three on two cores", row_of(&p, 3).whole.p50, 1.5, 0.02);
    p.clients = 2;
    p.threads = 2;
    expect_near("two of two threads on two cores", row_of(&p, 2).whole.p50, 2.0, 0.01);
    p.cores = 3;
    expect_near("two of two threads on three", row_of(&p, 2).whole.p50, 2.0, 0.01);
    p.cores = 4;
    expect_near("two of two threads on four", row_of(&p, 2).whole.p50, 1.0, 0.01);
}

/* Threads of an engine that other threads have torn apart find together again. */
static void engines_of_several_threads_go_on_beside_others(void **state)
{
    (void)state;
    for (uint32_t cores = 2; cores <= 4; cores++) {
        struct capacity_plan p = one_text(0.0, 4, 1, 50);
        p.threads = 2;
        p.cores = cores;
        p.per_machine = 2;
        p.costs.step.value[0] = p.costs.prompt.value[0] = 0.003;
        p.costs.request_s = p.costs.beside_s = 0.001;
        p.costs.event_s = p.costs.beside_event_s = 1e-4;
        p.requests = 2000;
        p.clients = 8;
        const struct capacity_row r = row_of(&p, 2);
        const double work_s = 50 * (0.003 * 2 / 4 + 2e-4) + 0.002; /* of a core, four texts in a pass of two threads */
        const double share = cores == 3 ? 0.6 : 0.9;               /* of three, one has to wait for the other's */
        if (r.per_second * work_s < share * cores)
            fail_msg("%u cores: %g requests/s", cores, r.per_second);
    }
}

/* A thread that slept takes the core of an engine at once, which goes on behind it: it waits for no pass. */
static void what_is_short_waits_for_no_pass(void **state)
{
    struct capacity_plan p = one_text(0.0, 2, 1, 50);
    (void)state;
    p.costs.step.value[0] = p.costs.prompt.value[0] = 0.003;
    p.costs.request_s = p.costs.beside_s = p.costs.event_s = p.costs.beside_event_s = 1e-5;
    p.requests = 100;
    p.clients = 1;
    const struct capacity_row r = row_of(&p, 1);
    expect_near("first byte", r.first.p50, 0.003, 0.03);
    expect_near("whole", r.whole.p50, 50 * 0.003, 0.02);
}

/* The engine has begun its next pass when its first byte is told. It has had more of its core than who wakes there, and
 * so leaves it; of several threads any does, which sleep at barriers. */
static void what_wakes_beside_an_engine_waits_for_no_pass(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct capacity_plan p = one_text(0.0, 4, 1, 50);
        p.threads = p.cores = threads;
        p.costs.step.value[0] = p.costs.prompt.value[0] = 0.0005;
        p.costs.request_s = p.costs.beside_s = p.costs.event_s = p.costs.beside_event_s = 1e-5;
        p.requests = 100;
        p.clients = 1;
        const struct capacity_row r = row_of(&p, 1);
        expect_near("first byte", r.first.p50, 0.0005 + 4e-5, 0.2); /* one that waits may be there already */
        p.cores = 2 * threads + 1;
        p.costs.wake_s = 2e-4;
        expect_near("first byte beside it", row_of(&p, 1).first.p50, 0.0005 + 4e-5 + 2 * 2e-4, 0.02); /* cores wake */
    }
}

/* Two engines on two cores, which are at work for a third of the time: who wakes on one that an engine has takes it. */
static void an_engine_that_has_had_more_leaves_its_core(void **state)
{
    struct capacity_plan p = one_text(300.0, 64, 1, 32);
    (void)state;
    p.costs.step.value[0] = p.costs.prompt.value[0] = 1.2e-4;
    p.costs.request_s = 1.4e-4;
    p.costs.beside_s = 2e-4;
    p.costs.event_s = p.costs.beside_event_s = 2e-5;
    p.costs.wake_s = 35e-6;
    p.per_machine = p.cores = 2;
    p.requests = 4000;
    const struct capacity_row r = row_of(&p, 2);
    if (r.first.p50 > 0.0012) /* a pass, 0.4 ms outside of it, and what it takes to wake */
        fail_msg("the first byte comes after %g s", r.first.p50);
}

/* Who sleeps has to be woken by the engine for each byte; who still tells of one that was before is not woken. */
static void an_engine_wakes_those_that_it_tells_of_bytes(void **state)
{
    struct capacity_plan p = one_text(0.0, 1, 1, 50);
    (void)state;
    p.requests = 100;
    p.clients = 1;
    p.cores = 8;
    p.costs.waker_s = 0.005;
    expect_near("who sleeps", row_of(&p, 1).whole.p50, 50 * 0.01 + 49 * 0.005, 0.01);
    p.costs.event_s = 0.1;
    expect_near("who takes ten passes for a byte", row_of(&p, 1).whole.p50, 50 * 0.01 + 5 * 0.005, 0.02);
    p.costs.event_s = 0.0;
    p.streams_max = p.clients = 8;
    p.requests = 400;
    expect_near("eight streams of four threads", row_of(&p, 1).per_second, 8 / (50 * (0.01 + 4 * 0.005)), 0.03);
}

/* As the engine is idle for most of the time, those that it wakes come to its core now and then, and wait for it; where
 * it is not they stay away. */
static void who_is_woken_comes_to_the_core_of_an_engine_that_is_idle_at_times(void **state)
{
    struct capacity_plan p = one_text(80.0, 4, 1, 10);
    (void)state;
    p.costs.step.value[0] = p.costs.prompt.value[0] = 0.0005;
    p.costs.event_s = p.costs.beside_event_s = p.costs.request_s = p.costs.beside_s = 1e-5;
    p.cores = 2;
    p.requests = 4000;
    const struct capacity_row idle = row_of(&p, 1);
    p.rate = 0.0;
    p.clients = 3;
    const struct capacity_row busy = row_of(&p, 1);
    if (!(idle.first.p99 > 0.002 && busy.first.p99 < 0.0015))
        fail_msg("99 of 100 first bytes within %g and %g s", idle.first.p99, busy.first.p99);
}

/* Where another core has something short, more of that waits for it and not for the engine's. */
static void an_engine_keeps_its_core_where_another_one_is_soon_free(void **state)
{
    struct capacity_plan p = one_text(0.0, 20, 1, 50);
    (void)state;
    p.costs.step.value[0] = p.costs.prompt.value[0] = 0.003;
    p.cores = 2;
    p.costs.event_s = p.costs.beside_event_s = 2e-5; /* 0.8 ms a pass, of two threads */
    p.requests = 2000;
    p.clients = 20;
    const struct capacity_row r = row_of(&p, 1);
    expect_near("the engine's share of a core", r.per_second * r.request_s, r.engine_share, 0.02);
}

static void a_text_takes_a_pass_for_its_prompt_and_one_for_each_further_byte(void **state)
{
    struct capacity_plan p = one_text(0.0, 4, 100, 20);
    (void)state;
    p.cores = 8; /* nothing waits for one */
    p.requests = 400;
    p.clients = 1;
    struct capacity_row r = row_of(&p, 1);
    expect_near("first byte", r.first.p50, 0.02, 0.01); /* 100 bytes in passes of 80 rows */
    expect_near("whole answer", r.whole.p50, 0.02 + 19 * 0.01, 0.01);
    p.whole = true;
    r = row_of(&p, 1);
    expect_near("first byte of a whole answer", r.first.p50, 0.02 + 19 * 0.01, 0.01);
    p.clients = 4; /* four at a time, and each as fast: prompts get 16 rows beside the others */
    r = row_of(&p, 1);
    expect_near("four in a batch", r.per_second, 4.0 / (0.01 * (7 + 19)), 0.05);
    expect_near("streams in a pass", r.pass_size, 4.0, 0.05);
    expect_near("a pass", r.pass_s, 0.01, 1e-6);
    p.clients = 8;
    expect_near("eight, of which four wait", row_of(&p, 1).per_second, r.per_second, 0.05);
}

/* After 170 elements 85 are fed again: of a text that was fed ahead, beside its own; of a prompt, in passes of 80 rows
 * at most; a start of the model's own is one more of both. */
static void a_full_context_begins_anew_with_half_of_it(void **state)
{
    struct capacity_plan p = one_text(0.0, 4, 1, 172);
    (void)state;
    p.requests = 400;
    p.clients = 1;
    p.cores = 8;
    p.costs.context = 170;
    expect_near("85 at once", row_of(&p, 1).whole.p50, 0.01 * (170 + 3), 0.003);
    p.costs.ahead = true;
    expect_near("172 bytes", row_of(&p, 1).whole.p50, 0.01 * (170 + 2), 0.003);
    p.kinds[0] = (struct capacity_kind){170, 1, 1.0};
    expect_near("a prompt that fits", row_of(&p, 1).whole.p50, 0.03, 0.01);
    p.kinds[0].prompt_bytes = 400;
    expect_near("one that does not", row_of(&p, 1).whole.p50, 0.02, 0.01);
    p.costs.starts = true;
    p.kinds[0].prompt_bytes = 170;
    expect_near("one that does not for the start", row_of(&p, 1).whole.p50, 0.02, 0.01);
    p.kinds[0].prompt_bytes = 80;
    expect_near("81 rows", row_of(&p, 1).whole.p50, 0.02, 0.01);
}

/* One request at a time, seconds apart: each pays for what was lost since the last one, over its first milliseconds. */
static void what_an_idle_time_costs_is_paid_once(void **state)
{
    struct capacity_plan p = one_text(0.1, 4, 1, 20);
    (void)state;
    p.requests = 400;
    p.cores = 8;
    p.costs.idle_s = 0.005;
    struct capacity_row r = row_of(&p, 1);
    expect_near("first byte", r.first.p50, 0.01 + 0.005 * (1.0 - exp(-0.01 / 0.0025)), 0.002);
    expect_near("whole", r.whole.p50, 0.205, 0.01);
    p.rate = 0.0;
    p.clients = 1; /* which takes 3 ms until it asks again */
    p.costs.beside_s = 0.003;
    expect_near("behind 3 ms", row_of(&p, 1).whole.mean, 0.203 + 0.0025, 0.0003);
    p.costs.beside_s = 0.0;
    p.clients = 2; /* there is always one */
    r = row_of(&p, 1);
    p.costs.idle_s = 0.0;
    expect_near("never idle", r.whole.mean, row_of(&p, 1).whole.mean, 0.001);
}

/* Fast for 100 s and slow for 100 s, in turn. */
static void a_machine_is_slower_at_times(void **state)
{
    struct capacity_plan p = one_server(0.0);
    (void)state;
    p.clients = 1;
    p.requests = 4000;
    p.costs.slowness = (struct capacity_slowness){.windows = 2, .window_s = 100.0, .times = {1.0F, 3.0F}};
    const struct capacity_row r = row_of(&p, 1);
    expect_near("throughput", r.per_second, (100.0 + 100.0 / 3.0) / 200.0, 0.01);
    expect_near("most of the answers", r.whole.p50, 1.0, 0.005);
    expect_near("the slowest", r.whole.p99, 3.0, 0.005);
}

/* At any time one is fast and one is slow, on one machine and on two. */
static void engines_are_not_slow_at_the_same_times(void **state)
{
    struct capacity_plan p = one_server(0.0);
    (void)state;
    p.clients = 2;
    p.requests = 60;
    p.costs.slowness = (struct capacity_slowness){.windows = 2, .window_s = 100.0, .times = {1.0F, 3.0F}};
    expect_near("on two machines", row_of(&p, 2).per_second, 1.0 + 1.0 / 3.0, 0.05);
    p.cores = p.per_machine = 2;
    expect_near("on one machine", row_of(&p, 2).per_second, 1.0 + 1.0 / 3.0, 0.05);
}

static void a_full_queue_refuses_and_the_rest_is_answered(void **state)
{
    struct capacity_plan p = one_server(3.0);
    (void)state;
    p.requests = 30000;
    p.queue_max = 5;
    const struct capacity_row r = row_of(&p, 1);
    expect_near("throughput", r.per_second, 1.0, 0.01);
    expect_near("refused", (double)r.refused, 20000.0, 0.03);
    assert_true(r.whole.p99 <= 6.05);
}

static void the_same_seed_gives_the_same_row_and_another_one_does_not(void **state)
{
    struct capacity_plan p = one_text(20.0, 8, 30, 40);
    (void)state;
    p.requests = 2000;
    p.costs.event_s = 1e-4;
    const struct capacity_row a = row_of(&p, 3), b = row_of(&p, 3);
    const size_t numbers = offsetof(struct capacity_row, answered); /* what stands before it is followed by a gap */
    assert_int_equal(a.replicas, b.replicas);
    assert_memory_equal((const char *)&a + numbers, (const char *)&b + numbers, sizeof a - numbers);
    p.seed = 2;
    assert_true(row_of(&p, 3).whole.mean != a.whole.mean);
}

static void a_curve_is_straight_between_its_points_and_beyond_them(void **state)
{
    const struct capacity_curve c = {.points = 3, .count = {1, 2, 4}, .value = {1.0, 1.5, 3.5}};
    (void)state;
    expect_near("at a point", capacity_curve_at(&c, 2), 1.5, 1e-12);
    expect_near("between two", capacity_curve_at(&c, 3), 2.5, 1e-12);
    expect_near("beyond the last", capacity_curve_at(&c, 6), 5.5, 1e-12);
    expect_near("before the first", capacity_curve_at(&c, 0), 1.0, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_server_of_constant_times_waits_as_pollaczek_and_khinchin_say),
        cmocka_unit_test(a_mix_of_lengths_waits_by_its_second_moment),
        cmocka_unit_test(replicas_share_the_cores_of_their_machine),
        cmocka_unit_test(work_outside_of_the_engine_takes_its_share),
        cmocka_unit_test(least_connections_waits_less_than_turns_and_more_than_one_queue),
        cmocka_unit_test(engines_that_share_cores_take_turns),
        cmocka_unit_test(engines_of_several_threads_go_on_beside_others),
        cmocka_unit_test(what_is_short_waits_for_no_pass),
        cmocka_unit_test(what_wakes_beside_an_engine_waits_for_no_pass),
        cmocka_unit_test(an_engine_that_has_had_more_leaves_its_core),
        cmocka_unit_test(an_engine_wakes_those_that_it_tells_of_bytes),
        cmocka_unit_test(who_is_woken_comes_to_the_core_of_an_engine_that_is_idle_at_times),
        cmocka_unit_test(an_engine_keeps_its_core_where_another_one_is_soon_free),
        cmocka_unit_test(a_text_takes_a_pass_for_its_prompt_and_one_for_each_further_byte),
        cmocka_unit_test(a_full_context_begins_anew_with_half_of_it),
        cmocka_unit_test(what_an_idle_time_costs_is_paid_once),
        cmocka_unit_test(a_machine_is_slower_at_times),
        cmocka_unit_test(engines_are_not_slow_at_the_same_times),
        cmocka_unit_test(a_full_queue_refuses_and_the_rest_is_answered),
        cmocka_unit_test(the_same_seed_gives_the_same_row_and_another_one_does_not),
        cmocka_unit_test(a_curve_is_straight_between_its_points_and_beyond_them),
    };
    return cmocka_run_group_tests_name("server_cli_capacity_sim", tests, NULL, NULL);
}
