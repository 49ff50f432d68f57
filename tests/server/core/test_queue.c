/* test_queue.c - bounded FIFOs: order, the common bound, taking out of turn, closing, many threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "server/core/clock.h"
#include "server/core/queue.h"

enum { LANES = 2, ITEMS_MAX = 4 };

static struct queue *make(void)
{
    struct queue *q = NULL;
    assert_int_equal(queue_create(&q, LANES, ITEMS_MAX), OK);
    return q;
}

static void each_lane_is_first_in_first_out(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[4] = {0};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(queue_push(q, i % LANES, &items[i]), OK);
    assert_ptr_equal(queue_pop(q, 1), &items[1]);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_ptr_equal(queue_pop(q, 0), &items[2]);
    assert_null(queue_pop(q, 0));
    assert_ptr_equal(queue_pop(q, 1), &items[3]);
    assert_null(queue_pop(q, 1));
    queue_free(q);
}

static void those_of_a_kind_overtake_the_others(void **state)
{
    (void)state;
    static const uint64_t kinds[ITEMS_MAX] = {7, 9, 7, UINT64_C(7) << 32};
    struct queue *q = make();
    struct queue_item items[ITEMS_MAX] = {0};
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        items[i].kind = kinds[i];
        assert_int_equal(queue_push(q, 0, &items[i]), OK);
    }
    assert_null(queue_pop_kind(q, 0, 8));
    assert_null(queue_pop_kind(q, 1, 7));
    assert_ptr_equal(queue_pop_kind(q, 0, 9), &items[1]);
    assert_null(queue_pop_kind(q, 0, 9));
    assert_int_equal(queue_lane_count(q, 0), 3);
    assert_ptr_equal(queue_pop_kind(q, 0, kinds[3]), &items[3]);
    assert_ptr_equal(queue_pop(q, 0), &items[0]); /* the others kept their order */
    assert_false(queue_remove(q, &items[1]));
    assert_ptr_equal(queue_pop_kind(q, 0, 7), &items[2]);
    assert_int_equal(queue_count(q), 0);
    queue_free(q);
}

static void the_bound_is_of_all_lanes_together(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[ITEMS_MAX + 1] = {0};
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        assert_int_equal(queue_push(q, i == 0, &items[i]), OK);
    assert_int_equal(queue_count(q), ITEMS_MAX);
    assert_int_equal(queue_push(q, 1, &items[ITEMS_MAX]), ERR_FULL);
    assert_int_equal(queue_lane_count(q, 1), 1);
    assert_ptr_equal(queue_pop(q, 0), &items[1]);
    assert_int_equal(queue_push(q, 1, &items[ITEMS_MAX]), OK);
    for (uint32_t lane = 0; lane < LANES; lane++)
        while (queue_pop(q, lane) != NULL)
            ;
    assert_int_equal(queue_count(q), 0);
    queue_free(q);
}

static void an_item_is_removed_from_anywhere_once(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < 3; victim++) {
        struct queue *q = make();
        struct queue_item items[3] = {0};
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(queue_push(q, 0, &items[i]), OK);
        assert_true(queue_remove(q, &items[victim]));
        assert_false(queue_remove(q, &items[victim]));
        for (uint32_t i = 0; i < 3; i++)
            if (i != victim)
                assert_ptr_equal(queue_pop(q, 0), &items[i]);
        assert_null(queue_pop(q, 0));
        assert_int_equal(queue_push(q, 1, &items[victim]), OK); /* it may come again */
        assert_ptr_equal(queue_pop(q, 1), &items[victim]);
        assert_false(queue_remove(q, &items[victim]));
        queue_free(q);
    }
}

static void it_tells_how_long_items_wait(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[2] = {0};
    const struct timespec pause = {.tv_nsec = 2000000};
    assert_int_equal(queue_waiting_since_ns(q), 0);
    assert_int_equal(queue_lane_oldest_ns(q, 0), 0);
    const uint64_t before_ns = clock_now_ns();
    assert_int_equal(queue_push(q, 0, &items[0]), OK);
    const uint64_t after_ns = clock_now_ns();
    (void)nanosleep(&pause, NULL);
    assert_int_equal(queue_push(q, 0, &items[1]), OK);
    const uint64_t oldest_ns = queue_lane_oldest_ns(q, 0);
    assert_in_range(oldest_ns, before_ns, after_ns);
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_true(queue_lane_oldest_ns(q, 0) > oldest_ns);
    assert_int_equal(queue_waiting_since_ns(q), oldest_ns); /* something has waited all the time */
    assert_ptr_equal(queue_pop(q, 0), &items[1]);
    assert_int_equal(queue_waiting_since_ns(q), 0);
    queue_free(q);
}

static void a_closed_queue_gives_what_it_has_and_takes_no_more(void **state)
{
    (void)state;
    struct queue *q = make();
    struct queue_item items[2] = {0};
    assert_int_equal(queue_push(q, 0, &items[0]), OK);
    queue_close(q);
    assert_int_equal(queue_push(q, 0, &items[1]), ERR_UNAVAILABLE);
    assert_true(queue_wait(q));
    assert_ptr_equal(queue_pop(q, 0), &items[0]);
    assert_false(queue_wait(q));
    queue_free(q);
}

/* ---- threads --------------------------------------------------------------------------------------------------- */

enum { PUSHERS = 3, PUSHES = 3000 };

struct pusher {
    struct queue *queue;
    struct queue_item items[PUSHES];
    uint32_t pushed, removed;
};

/* Push all, spinning while the queue is full, and take every seventh back where the other side was not faster. */
static void *push_all(void *arg)
{
    struct pusher *p = arg;
    for (uint32_t i = 0; i < PUSHES; i++) {
        while (queue_push(p->queue, i % LANES, &p->items[i]) == ERR_FULL)
            ;
        p->pushed++;
        p->removed += i % 7 == 0 && queue_remove(p->queue, &p->items[i]);
    }
    return NULL;
}

struct popper {
    struct queue *queue;
    uint32_t popped;
};

static void *pop_all(void *arg)
{
    struct popper *p = arg;
    while (queue_wait(p->queue))
        for (uint32_t lane = 0; lane < LANES; lane++)
            while (queue_pop(p->queue, lane) != NULL)
                p->popped++;
    return NULL;
}

static void every_item_is_popped_or_removed_once(void **state)
{
    (void)state;
    static struct pusher pushers[PUSHERS];
    pthread_t threads[PUSHERS], popper;
    uint32_t pushed = 0, removed = 0;
    struct queue *q = make();
    struct popper pops = {.queue = q};
    assert_int_equal(pthread_create(&popper, NULL, pop_all, &pops), 0);
    for (int i = 0; i < PUSHERS; i++) {
        pushers[i].queue = q;
        assert_int_equal(pthread_create(&threads[i], NULL, push_all, &pushers[i]), 0);
    }
    for (int i = 0; i < PUSHERS; i++) {
        (void)pthread_join(threads[i], NULL);
        pushed += pushers[i].pushed;
        removed += pushers[i].removed;
    }
    queue_close(q);
    (void)pthread_join(popper, NULL);
    assert_int_equal(pushed, PUSHERS * PUSHES);
    assert_int_equal(pops.popped + removed, pushed);
    queue_free(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lane_is_first_in_first_out),
        cmocka_unit_test(those_of_a_kind_overtake_the_others),
        cmocka_unit_test(the_bound_is_of_all_lanes_together),
        cmocka_unit_test(an_item_is_removed_from_anywhere_once),
        cmocka_unit_test(it_tells_how_long_items_wait),
        cmocka_unit_test(a_closed_queue_gives_what_it_has_and_takes_no_more),
        cmocka_unit_test(every_item_is_popped_or_removed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
