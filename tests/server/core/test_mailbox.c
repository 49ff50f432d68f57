/* test_mailbox.c - boxes of news: order, one wake-up for however much, taking out, and that nothing is missed. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/core/mailbox.h"

enum { BOXES = 2, WAIT_MS = 20000 };

static struct mailboxes *make(void)
{
    struct mailboxes *n = NULL;
    assert_int_equal(mailbox_create(&n, BOXES), OK);
    return n;
}

static bool is_knocked(const struct mailboxes *n, uint32_t box)
{
    struct pollfd fd = {.fd = mailbox_fd(n, box), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void a_ring_wakes_those_who_have_news_once(void **state)
{
    (void)state;
    struct mailboxes *n = make();
    struct mailbox_item items[3] = {0};
    for (int i = 0; i < 3; i++)
        mailbox_post(n, 1, &items[i]);
    mailbox_post(n, 1, &items[1]); /* is there */
    assert_false(is_knocked(n, 1));
    mailbox_notify(n);
    assert_true(is_knocked(n, 1));
    assert_false(is_knocked(n, 0));
    const struct mailbox_item *taken = mailbox_take(n, 1);
    for (int i = 0; i < 3; i++, taken = TAILQ_NEXT(taken, link))
        assert_ptr_equal(taken, &items[i]);
    assert_null(taken);
    mailbox_notify(n); /* there is nothing new */
    assert_false(is_knocked(n, 1));
    mailbox_free(n);
}

static void an_item_leaves_from_anywhere(void **state)
{
    (void)state;
    struct mailboxes *n = make();
    struct mailbox_item items[4] = {0};
    for (int i = 0; i < 4; i++)
        mailbox_post(n, 0, &items[i]);
    mailbox_remove(n, 0, &items[0]);
    mailbox_remove(n, 0, &items[2]);
    mailbox_remove(n, 0, &items[2]); /* has left */
    mailbox_remove(n, 0, &items[3]);
    mailbox_post(n, 0, &items[0]);
    struct mailbox_item *taken = mailbox_take(n, 0);
    assert_ptr_equal(taken, &items[1]);
    assert_ptr_equal(TAILQ_NEXT(taken, link), &items[0]);
    assert_null(TAILQ_NEXT(TAILQ_NEXT(taken, link), link));
    assert_null(mailbox_take(n, 0));
    mailbox_free(n);
}

static void a_knock_needs_no_news(void **state)
{
    (void)state;
    struct mailboxes *n = make();
    mailbox_wake(n, 0);
    assert_true(is_knocked(n, 0));
    assert_null(mailbox_take(n, 0));
    assert_false(is_knocked(n, 0));
    mailbox_free(n);
}

/* ---- many threads ----------------------------------------------------------------------------------------------- */

enum { PUTTERS = 3, ROUNDS = 2000 };

struct putter {
    struct mailboxes *mailboxes;
    struct mailbox_item item;
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
        mailbox_post(p->mailboxes, 0, &p->item);
        mailbox_notify(p->mailboxes);
    }
    return NULL;
}

static void no_news_is_missed(void **state)
{
    (void)state;
    struct mailboxes *n = make();
    struct putter putters[PUTTERS] = {0};
    struct pollfd fd = {.fd = mailbox_fd(n, 0), .events = POLLIN};
    for (int i = 0; i < PUTTERS; i++) {
        putters[i].mailboxes = n;
        atomic_init(&putters[i].is_back, true);
        assert_int_equal(pthread_create(&putters[i].thread, NULL, put_again_and_again, &putters[i]), 0);
    }
    for (int taken = 0; taken < PUTTERS * ROUNDS;) {
        assert_int_equal(poll(&fd, 1, WAIT_MS), 1);
        for (struct mailbox_item *item = mailbox_take(n, 0), *next; item != NULL; item = next, taken++) {
            next = TAILQ_NEXT(item, link);
            for (int i = 0; i < PUTTERS; i++)
                if (item == &putters[i].item)
                    atomic_store(&putters[i].is_back, true);
        }
    }
    for (int i = 0; i < PUTTERS; i++)
        (void)pthread_join(putters[i].thread, NULL);
    mailbox_free(n);
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
