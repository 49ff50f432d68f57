/* test_news.c - boxes of news: order, one wake-up for however much, taking out, and that nothing is missed. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/news.h"

enum { BOXES = 2, WAIT_MS = 20000 };

static struct news *make(void)
{
    struct news *n = NULL;
    assert_int_equal(news_create(&n, BOXES), OK);
    return n;
}

static bool is_knocked(const struct news *n, uint32_t box)
{
    struct pollfd fd = {.fd = news_fd(n, box), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void a_ring_wakes_those_who_have_news_once(void **state)
{
    (void)state;
    struct news *n = make();
    struct news_item items[3] = {0};
    for (int i = 0; i < 3; i++)
        news_put(n, 1, &items[i]);
    news_put(n, 1, &items[1]); /* is there */
    assert_false(is_knocked(n, 1));
    news_ring(n);
    assert_true(is_knocked(n, 1));
    assert_false(is_knocked(n, 0));
    const struct news_item *taken = news_take(n, 1);
    for (int i = 0; i < 3; i++, taken = taken->next)
        assert_ptr_equal(taken, &items[i]);
    assert_null(taken);
    news_ring(n); /* there is nothing new */
    assert_false(is_knocked(n, 1));
    news_free(n);
}

static void an_item_leaves_from_anywhere(void **state)
{
    (void)state;
    struct news *n = make();
    struct news_item items[4] = {0};
    for (int i = 0; i < 4; i++)
        news_put(n, 0, &items[i]);
    news_remove(n, 0, &items[0]);
    news_remove(n, 0, &items[2]);
    news_remove(n, 0, &items[2]); /* has left */
    news_remove(n, 0, &items[3]);
    news_put(n, 0, &items[0]);
    struct news_item *taken = news_take(n, 0);
    assert_ptr_equal(taken, &items[1]);
    assert_ptr_equal(taken->next, &items[0]);
    assert_null(taken->next->next);
    assert_null(news_take(n, 0));
    news_free(n);
}

static void a_knock_needs_no_news(void **state)
{
    (void)state;
    struct news *n = make();
    news_knock(n, 0);
    assert_true(is_knocked(n, 0));
    assert_null(news_take(n, 0));
    assert_false(is_knocked(n, 0));
    news_free(n);
}

/* ---- many threads ------------------------------------------------------------------------------------------------ */

enum { PUTTERS = 3, ROUNDS = 2000 };

struct putter {
    struct news *news;
    struct news_item item;
    atomic_bool is_back; /* the owner has taken it */
    pthread_t thread;
};

static void *put_again_and_again(void *arg)
{
    struct putter *p = arg;
    for (int i = 0; i < ROUNDS; i++) {
        while (!atomic_load(&p->is_back))
            (void)sched_yield();
        atomic_store(&p->is_back, false);
        news_put(p->news, 0, &p->item);
        news_ring(p->news);
    }
    return NULL;
}

static void no_news_is_missed(void **state)
{
    (void)state;
    struct news *n = make();
    struct putter putters[PUTTERS] = {0};
    struct pollfd fd = {.fd = news_fd(n, 0), .events = POLLIN};
    for (int i = 0; i < PUTTERS; i++) {
        putters[i].news = n;
        atomic_init(&putters[i].is_back, true);
        assert_int_equal(pthread_create(&putters[i].thread, NULL, put_again_and_again, &putters[i]), 0);
    }
    for (int taken = 0; taken < PUTTERS * ROUNDS;) {
        assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
        for (struct news_item *item = news_take(n, 0), *next; item != NULL; item = next, taken++) {
            next = item->next;
            for (int i = 0; i < PUTTERS; i++)
                if (item == &putters[i].item)
                    atomic_store(&putters[i].is_back, true);
        }
    }
    for (int i = 0; i < PUTTERS; i++)
        (void)pthread_join(putters[i].thread, NULL);
    news_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_wakes_those_who_have_news_once),
        cmocka_unit_test(an_item_leaves_from_anywhere),
        cmocka_unit_test(a_knock_needs_no_news),
        cmocka_unit_test(no_news_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
