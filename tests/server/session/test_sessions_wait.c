/* test_sessions_wait.c - what a client is told that gets no session: when one ends that makes room for it. The clock is
 * the test's. No daemon, no engine's pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions.h"
#include "tests/support/session_scene.h"

enum { TTL_S = 600 };

static const struct client_id alice = {CLIENT_KEY, "alice"}, bob = {CLIENT_KEY, "bob"};

static struct settings settings;
static struct watcher *watcher;
static struct sessions *sessions;
static struct hosted_model *hosted;
static atomic_int later_s;

/* Instead of libc's: the time stands still but for later_s. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    *ret = (struct timespec){.tv_sec = 1000 + atomic_load(&later_s)};
    return 0;
}

static int start(void **state)
{
    (void)state;
    if (session_scene_begin(&settings, &watcher, &hosted) != 0)
        return -1;
    settings.session_ttl_s = TTL_S;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return session_scene_end(watcher, hosted);
}

static void begin(uint32_t most, uint32_t of_client)
{
    settings.sessions_max = most;
    settings.sessions_per_key_max = of_client;
    atomic_store(&later_s, 0);
    assert_int_equal(sessions_create(&sessions, &settings, watcher, NULL), OK);
}

static void end(void)
{
    sessions_free(sessions);
}

/* At that time; 0: it is made, and its id is put into `id`, else it is refused with this wait. */
static void expect(const struct client_id *who, int at_s, unsigned want_s, char id[SESSION_ID_BYTES])
{
    struct stream_snapshot s;
    struct session_info made;
    struct error err = {.retry_after_s = 0};
    atomic_store(&later_s, at_s);
    assert_true(session_scene_state(&s, 0));
    const enum status st = sessions_add(sessions, who, NULL, hosted, &s, &made, &err);
    assert_int_equal(err.retry_after_s, want_s);
    if (st != OK) {
        assert_true(st == ERR_SESSIONS || st == ERR_RATE);
        stream_snapshot_clear(&s);
        return;
    }
    if (id != NULL)
        memcpy(id, made.head.id, sizeof made.head.id);
    session_info_clear(&made);
}

static void where_there_is_no_room_the_next_that_ends_is_waited_for(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES];
    struct session_info info;
    begin(3, 0);
    expect(&alice, 0, 0, id);
    expect(&bob, 100, 0, NULL);
    expect(&bob, 200, 0, NULL);
    expect(&alice, 250, TTL_S - 250, NULL);
    expect(&bob, 250, TTL_S - 250, NULL);
    assert_int_equal(sessions_find(sessions, &alice, id, &info, NULL), OK); /* used: now the second is the next */
    session_info_clear(&info);
    expect(&alice, 300, TTL_S - 200, NULL);
    expect(&alice, TTL_S + 99, 1, NULL);
    expect(&alice, TTL_S + 100, 0, NULL);
    end();
}

static void beyond_a_clients_number_its_own_next_is_waited_for(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES];
    struct session_info held;
    begin(10, 2);
    expect(&bob, 0, 0, NULL);
    expect(&alice, 100, 0, id);
    expect(&alice, 200, 0, NULL);
    expect(&alice, 300, TTL_S - 200, NULL);
    assert_int_equal(sessions_begin(sessions, &alice, id, &held, NULL), OK); /* in use: it has no end */
    expect(&alice, 300, TTL_S - 100, NULL);
    sessions_end(sessions, &held);
    end();
}

static void for_what_is_kept_back_any_that_makes_room_is_waited_for(void **state)
{
    (void)state;
    begin(8, 0); /* six for one client */
    expect(&bob, 0, 0, NULL);
    for (int i = 1; i <= 5; i++)
        expect(&alice, i * 10, 0, NULL);
    expect(&alice, 60, TTL_S - 60, NULL);
    expect(&alice, TTL_S, 0, NULL);
    end();
}

static void where_all_are_in_use_it_is_a_sessions_time(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES];
    struct session_info held;
    begin(1, 0);
    expect(&bob, 0, 0, id);
    assert_int_equal(sessions_begin(sessions, &bob, id, &held, NULL), OK);
    expect(&alice, 100, TTL_S, NULL);
    sessions_end(sessions, &held);
    expect(&alice, 150, TTL_S - 50, NULL);
    end();
    begin(0, 0);
    expect(&alice, 0, TTL_S, NULL);
    end();
}

/* Forks come all together or not at all. */
static void several_wait_for_as_many_ends(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES];
    struct session_info forks[3];
    struct error err;
    begin(3, 0);
    expect(&alice, 0, 0, NULL);
    expect(&alice, 10, 0, NULL);
    expect(&alice, 20, 0, id);
    struct session_info of;
    assert_int_equal(sessions_find(sessions, &alice, id, &of, NULL), OK);
    assert_int_equal(sessions_fork(sessions, &alice, &of, 2, forks, &err), ERR_SESSIONS);
    session_info_clear(&of);
    assert_int_equal(err.retry_after_s, TTL_S - 10);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_there_is_no_room_the_next_that_ends_is_waited_for),
        cmocka_unit_test(beyond_a_clients_number_its_own_next_is_waited_for),
        cmocka_unit_test(for_what_is_kept_back_any_that_makes_room_is_waited_for),
        cmocka_unit_test(where_all_are_in_use_it_is_a_sessions_time),
        cmocka_unit_test(several_wait_for_as_many_ends),
    };
    return cmocka_run_group_tests_name("sessions_wait", tests, start, stop);
}
