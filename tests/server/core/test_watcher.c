/* test_watcher.c - times come in order, clients that leave are noticed however they leave, and nothing is told to a
 * watch that was removed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/core/clock.h"
#include "server/core/watcher.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"

static struct watcher *watcher;

static int start(void **state)
{
    (void)state;
    return watcher_start(&watcher, NULL) == OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    watcher_free(watcher);
    return 0;
}

/* Counts what it is told. */
struct witness {
    struct watch watch;
    atomic_uint times, lefts;
    _Atomic uint64_t told_ns; /* of the latest */
    uint64_t again_ns;        /* asks for another time so much later; 0: no more */
};

static uint64_t tell(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct witness *w = arg;
    atomic_store(&w->told_ns, now_ns);
    (void)atomic_fetch_add(event == WATCH_TIME ? &w->times : &w->lefts, 1);
    return w->again_ns != 0 ? now_ns + w->again_ns : 0;
}

static void add(struct witness *w, int fd, uint64_t due_ns)
{
    w->watch = (struct watch){.notify = tell, .arg = w, .fd = fd, .due_ns = due_ns};
    assert_int_equal(watcher_add(watcher, &w->watch), OK);
}

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}

static void await(atomic_uint *count, unsigned wanted)
{
    for (int i = 0; i < HANG_MS && atomic_load(count) < wanted; i++)
        sleep_ms(1);
    assert_true(atomic_load(count) >= wanted);
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

static void times_come_once_and_not_early(void **state)
{
    (void)state;
    enum { WITNESSES = 200 };
    static struct witness w[WITNESSES];
    uint64_t due_ns[WITNESSES];
    struct random r = {3};
    const uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < WITNESSES; i++) {
        due_ns[i] = now_ns + (i % 3 == 0 ? 3600 * CLOCK_NS_PER_S : random_below(&r, 100) * CLOCK_NS_PER_MS + 1);
        add(&w[i], -1, due_ns[i]);
    }
    for (size_t i = 0; i < WITNESSES; i += 3) { /* some earlier, some not at all */
        due_ns[i] = i % 2 == 0 ? now_ns + random_below(&r, 200) * CLOCK_NS_PER_MS + 1 : 0;
        watcher_set_time(watcher, &w[i].watch, due_ns[i]);
    }
    for (size_t i = 0; i < WITNESSES; i++)
        if (due_ns[i] != 0)
            await(&w[i].times, 1);
    for (size_t i = 0; i < WITNESSES; i++) {
        watcher_remove(watcher, &w[i].watch);
        assert_int_equal(atomic_load(&w[i].times), due_ns[i] != 0);
        assert_true(atomic_load(&w[i].told_ns) >= due_ns[i]);
    }
}

static void a_callback_may_ask_for_more_times(void **state)
{
    (void)state;
    struct witness w = {.again_ns = 2 * CLOCK_NS_PER_MS};
    add(&w, -1, clock_now_ns());
    await(&w.times, 5);
    watcher_remove(watcher, &w.watch);
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

static void a_client_that_leaves_is_noticed_once(void **state)
{
    (void)state;
    enum { CLOSES, HALF_CLOSES, SENDS_THEN_CLOSES, LEFT_BEFORE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        int pair[2];
        struct witness w = {0};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        if (way == LEFT_BEFORE)
            (void)close(pair[1]);
        add(&w, pair[0], 0);
        if (way == SENDS_THEN_CLOSES)
            assert_int_equal(write(pair[1], "x", 1), 1);
        if (way == HALF_CLOSES)
            (void)shutdown(pair[1], SHUT_WR);
        if (way == CLOSES || way == SENDS_THEN_CLOSES)
            (void)close(pair[1]);
        await(&w.lefts, 1);
        sleep_ms(20);
        assert_int_equal(atomic_load(&w.lefts), 1);
        watcher_remove(watcher, &w.watch);
        (void)close(pair[0]);
        if (way == HALF_CLOSES)
            (void)close(pair[1]);
    }
}

static void every_watch_of_a_socket_is_told(void **state)
{
    (void)state;
    int pair[2];
    struct witness early = {0}, gone = {0}, late = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    add(&early, pair[0], 0);
    add(&gone, pair[0], 0);
    watcher_remove(watcher, &gone.watch);
    (void)close(pair[1]);
    await(&early.lefts, 1);
    add(&late, pair[0], 0); /* the client has left before */
    await(&late.lefts, 1);
    sleep_ms(20);
    assert_int_equal(atomic_load(&early.lefts), 1);
    assert_int_equal(atomic_load(&gone.lefts), 0);
    watcher_remove(watcher, &early.watch);
    watcher_remove(watcher, &late.watch);
    (void)close(pair[0]);
}

static void one_that_only_sends_stays(void **state)
{
    (void)state;
    int pair[2];
    struct witness w = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    add(&w, pair[0], 0);
    assert_int_equal(write(pair[1], "x", 1), 1);
    sleep_ms(30);
    assert_int_equal(atomic_load(&w.lefts), 0);
    watcher_remove(watcher, &w.watch);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void sockets_come_and_go_while_clients_leave(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        int pair[2];
        struct witness w = {.again_ns = CLOCK_NS_PER_MS};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        add(&w, pair[0], clock_now_ns());
        (void)close(pair[1]);
        watcher_remove(watcher, &w.watch); /* in the middle of it, or before, or after */
        const unsigned told = atomic_load(&w.times) + atomic_load(&w.lefts);
        (void)close(pair[0]);
        if (round % 50 == 0)
            sleep_ms(3);
        assert_int_equal(atomic_load(&w.times) + atomic_load(&w.lefts), told);
    }
}

static uint64_t processor_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * CLOCK_NS_PER_S + (uint64_t)t.tv_nsec;
}

static void waiting_uses_no_processor(void **state)
{
    (void)state;
    int pair[2];
    struct witness w = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    add(&w, pair[0], clock_now_ns() + 3600 * CLOCK_NS_PER_S);
    assert_int_equal(write(pair[1], "x", 1), 1);
    (void)shutdown(pair[1], SHUT_WR);
    await(&w.lefts, 1); /* it stays left, and unread; that must not be told again and again */
    const uint64_t before_ns = processor_ns();
    sleep_ms(200);
    assert_true(processor_ns() - before_ns < 50 * CLOCK_NS_PER_MS);
    watcher_remove(watcher, &w.watch);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_come_once_and_not_early),
        cmocka_unit_test(a_callback_may_ask_for_more_times),
        cmocka_unit_test(a_client_that_leaves_is_noticed_once),
        cmocka_unit_test(every_watch_of_a_socket_is_told),
        cmocka_unit_test(one_that_only_sends_stays),
        cmocka_unit_test(sockets_come_and_go_while_clients_leave),
        cmocka_unit_test(waiting_uses_no_processor),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
