/* test_sessions.c - the store of sessions alone, with eight threads that do everything at once: ids are used once,
 * bounds hold at every moment, one at a time has a session, and all memory comes back. No daemon, no engine's pass. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions.h"
#include "tests/support/random.h"
#include "tests/support/session_scene.h"

enum { THREADS = 8, STEPS = 1500, SHARED = 6, MOST = 40, FOR_ONE = MOST - MOST / 4 };

static const struct client_id alice = {CLIENT_KEY, "alice"}, bob = {CLIENT_KEY, "bob"},
                              anybody = {CLIENT_IPV4, {127, 0, 0, 1}}, neighbour = {CLIENT_IPV4, {127, 0, 0, 2}};

static struct settings settings;
static struct watcher *watcher;
static struct sessions *sessions;
static struct hosted_model *hosted;

static int start(void **state)
{
    (void)state;
    if (session_scene_begin(&settings, &watcher, &hosted) != 0)
        return -1;
    settings.sessions_max = MOST;
    settings.session_ttl_s = 600;
    return sessions_create(&sessions, &settings, watcher, NULL) == OK ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    sessions_free(sessions);
    return session_scene_end(watcher, hosted);
}

static enum status add(const struct client_id *who, struct stream_snapshot *s, struct session_info *ret)
{
    return sessions_add(sessions, who, NULL, hosted, s, ret, NULL);
}

static enum status fork_of(const struct client_id *who, const char *id, size_t count, struct session_info ret[])
{
    struct session_info of;
    enum status st = sessions_find(sessions, who, id, &of, NULL);
    if (st != OK)
        return st;
    st = sessions_fork(sessions, who, &of, count, ret, NULL);
    session_info_clear(&of);
    return st;
}

/* ---- one thread ------------------------------------------------------------------------------------------------- */

static void a_state_that_was_given_stays(void **state)
{
    (void)state;
    struct session_info made, held, fork[2];
    struct stream_snapshot s;
    assert_true(session_scene_state(&s, 7));
    assert_int_equal(add(&anybody, &s, &made), OK);
    assert_int_equal(fork_of(&anybody, made.head.id, 2, fork), OK);
    assert_int_equal(made.snapshot.sampler.options.sample, 0);
    assert_int_equal(fork[0].snapshot.sampler.options.sample + fork[1].snapshot.sampler.options.sample, 1 + 2);
    assert_int_equal(sessions_begin(sessions, &anybody, made.head.id, &held, NULL), OK);
    assert_true(session_scene_state(&s, 8));
    assert_int_equal(sessions_write(sessions, &held, &s, NULL), OK);
    sessions_end(sessions, &held);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sessions_remove(sessions, &anybody, fork[i].head.id, NULL), OK);
    assert_int_equal(sessions_remove(sessions, &anybody, made.head.id, NULL), OK);
    assert_int_equal(sessions_remove(sessions, &anybody, made.head.id, NULL), ERR_NOT_FOUND);
    assert_true(session_scene_is_at(&made.snapshot, 7));
    assert_true(session_scene_is_at(&fork[1].snapshot, 7));
    session_info_clear(&made);
    session_info_clear(&fork[0]);
    session_info_clear(&fork[1]);
}

static void one_that_was_removed_while_it_is_held_ends_with_that(void **state)
{
    (void)state;
    struct session_info made, held, none;
    struct stream_snapshot s;
    assert_true(session_scene_state(&s, 1));
    assert_int_equal(add(&alice, &s, &made), OK);
    assert_int_equal(sessions_begin(sessions, &alice, made.head.id, &held, NULL), OK);
    assert_int_equal(sessions_begin(sessions, &alice, made.head.id, &none, NULL), ERR_CONFLICT);
    assert_int_equal(sessions_begin(sessions, &bob, made.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_int_equal(sessions_begin(sessions, &anybody, made.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_int_equal(sessions_remove(sessions, &alice, made.head.id, NULL), OK);
    assert_int_equal(sessions_find(sessions, &alice, made.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_true(session_scene_state(&s, 2));
    assert_int_equal(sessions_write(sessions, &held, &s, NULL), OK);
    sessions_end(sessions, &held);
    assert_int_equal(sessions_find(sessions, &alice, made.head.id, &none, NULL), ERR_NOT_FOUND);
    session_info_clear(&made);
}

/* Without keys a session is there for everybody who knows its id, so what it costs is counted by who made it. */
static void forks_count_for_who_forks(void **state)
{
    (void)state;
    static struct session_info made, forks[MOST], more;
    struct stream_snapshot s;
    assert_true(session_scene_state(&s, 1));
    assert_int_equal(add(&anybody, &s, &made), OK);
    assert_int_equal(fork_of(&neighbour, made.head.id, FOR_ONE, forks), ERR_SESSIONS); /* one more than is for him */
    assert_int_equal(fork_of(&neighbour, made.head.id, FOR_ONE - 1, forks), OK);
    assert_int_equal(fork_of(&neighbour, made.head.id, 1, &more), ERR_SESSIONS);
    assert_int_equal(fork_of(&bob, made.head.id, 1, &more), ERR_NOT_FOUND);
    assert_true(session_scene_state(&s, 1));
    assert_int_equal(add(&bob, &s, &more), OK); /* his first */
    assert_int_equal(sessions_remove(sessions, &bob, more.head.id, NULL), OK);
    session_info_clear(&more);
    for (size_t i = 0; i < FOR_ONE - 1; i++) {
        assert_int_equal(sessions_remove(sessions, &anybody, forks[i].head.id, NULL), OK);
        session_info_clear(&forks[i]);
    }
    assert_int_equal(sessions_remove(sessions, &neighbour, made.head.id, NULL), OK);
    session_info_clear(&made);
}

static bool is_not_alice(void *arg, const struct client_id *client)
{
    unsigned *asked = arg;
    (*asked)++;
    return !client_id_is_same(client, &alice);
}

/* Those idle at once, one that is in use when its holder is through; and others stay. */
static void sessions_of_a_client_that_does_not_stay_go(void **state)
{
    (void)state;
    struct session_info idle, busy, held, bobs, none;
    struct stream_snapshot s;
    unsigned asked = 0;
    assert_true(session_scene_state(&s, 1));
    assert_int_equal(add(&alice, &s, &idle), OK);
    assert_int_equal(fork_of(&alice, idle.head.id, 1, &busy), OK);
    assert_int_equal(sessions_begin(sessions, &alice, busy.head.id, &held, NULL), OK);
    assert_true(session_scene_state(&s, 1));
    assert_int_equal(add(&bob, &s, &bobs), OK);
    sessions_keep(sessions, is_not_alice, &asked);
    assert_int_equal(asked, 2);
    assert_int_equal(sessions_find(sessions, &alice, idle.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_int_equal(sessions_find(sessions, &alice, busy.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_true(session_scene_state(&s, 2));
    assert_int_equal(sessions_write(sessions, &held, &s, NULL), OK);
    sessions_end(sessions, &held);
    assert_int_equal(sessions_find(sessions, &alice, busy.head.id, &none, NULL), ERR_NOT_FOUND);
    assert_int_equal(sessions_remove(sessions, &bob, bobs.head.id, NULL), OK);
    session_info_clear(&idle);
    session_info_clear(&busy);
    session_info_clear(&bobs);
}

/* ---- many threads ----------------------------------------------------------------------------------------------- */

/* What the threads have in common, and what they count. */
static struct {
    char ids[SHARED][SESSION_ID_BYTES];
    atomic_int holders[SHARED];
    _Atomic uint64_t moves[SHARED];
    atomic_uint faults;
} party;

static void fault(const char *what)
{
    (void)fprintf(stderr, "%s\n", what);
    (void)atomic_fetch_add(&party.faults, 1);
}

/* One of the shared ones is moved on by one, or left where it is. */
static void move(size_t i, bool moves)
{
    struct session_info held;
    struct stream_snapshot s;
    const enum status st = sessions_begin(sessions, &anybody, party.ids[i], &held, NULL);
    if (st != OK) {
        if (st != ERR_CONFLICT)
            fault("a shared session is gone");
        return;
    }
    if (atomic_fetch_add(&party.holders[i], 1) != 0)
        fault("two have a session");
    if (!session_scene_is_at(&held.snapshot, atomic_load(&party.moves[i])))
        fault("a session is not where it was left");
    const bool made = moves && session_scene_state(&s, held.snapshot.sampler.draws + 1);
    if (made)
        (void)atomic_fetch_add(&party.moves[i], 1);
    (void)atomic_fetch_sub(&party.holders[i], 1);
    if (made && sessions_write(sessions, &held, &s, NULL) != OK)
        fault("there is no memory");
    sessions_end(sessions, &held);
}

/* Forks of a shared one, of which none stays. */
static void fork_and_drop(size_t i, size_t count)
{
    struct session_info forks[4];
    const enum status st = fork_of(&anybody, party.ids[i], count, forks);
    if (st != OK) {
        if (st != ERR_SESSIONS)
            fault("a shared session cannot be forked");
        return;
    }
    for (size_t k = 0; k < count; k++) {
        if (!session_scene_is_at(&forks[k].snapshot, forks[k].snapshot.sampler.draws))
            fault("a fork is not whole");
        if (sessions_remove(sessions, &anybody, forks[k].head.id, NULL) != OK)
            fault("a fork is gone");
        session_info_clear(&forks[k]);
    }
}

/* One of a key's own. */
static void add_and_drop(const struct client_id *owner)
{
    struct session_info made, found;
    struct stream_snapshot s;
    if (!session_scene_state(&s, 3))
        return;
    const enum status st = add(owner, &s, &made);
    if (st != OK) {
        if (st != ERR_SESSIONS && st != ERR_RATE)
            fault("a session cannot be made");
        stream_snapshot_clear(&s);
        return;
    }
    if (sessions_find(sessions, &anybody, made.head.id, &found, NULL) != ERR_NOT_FOUND)
        fault("another has found a key's session");
    if (sessions_find(sessions, owner, made.head.id, &found, NULL) != OK)
        fault("a key's session is gone");
    else
        session_info_clear(&found);
    if (sessions_remove(sessions, owner, made.head.id, NULL) != OK)
        fault("a key's session is gone");
    session_info_clear(&made);
}

/* All of a client's, page by page: the newest first, and no more than there can be. */
static void list_all(const struct client_id *who)
{
    struct session_info page[3];
    uint64_t next = 0, total, listed = 0, before = UINT64_MAX;
    do {
        const size_t count = sessions_list(sessions, who, next, 3, page, &next, &total);
        listed += count;
        if (count > 3 || total > MOST || (next != 0 && (count != 3 || next >= before)))
            fault("a page of sessions is not what it may be");
        before = next;
        for (size_t i = 0; i < count; i++) {
            if (!session_scene_is_at(&page[i].snapshot, page[i].snapshot.sampler.draws) || page[i].expires_in_s == 0)
                fault("a session that is listed is none");
            session_info_clear(&page[i]);
        }
    } while (next != 0);
    if (listed > MOST)
        fault("more sessions are listed than there can be");
}

static void *run(void *arg)
{
    const size_t *number = arg;
    struct random rng = {(uint32_t)*number + 1};
    const struct client_id *owner = *number % 2 == 0 ? &alice : &bob;
    for (int step = 0; step < STEPS; step++) {
        const size_t i = random_below(&rng, SHARED);
        switch (random_below(&rng, 5)) {
        case 0:
            fork_and_drop(i, 1 + random_below(&rng, 4));
            break;
        case 1:
            add_and_drop(owner);
            break;
        case 2:
            list_all(i % 2 == 0 ? owner : &anybody);
            break;
        default:
            move(i, random_below(&rng, 4) > 0);
        }
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    size_t numbers[THREADS];
    uint64_t moves = 0;
    for (size_t i = 0; i < SHARED; i++) {
        struct session_info made;
        struct stream_snapshot s;
        assert_true(session_scene_state(&s, 0));
        assert_int_equal(add(&anybody, &s, &made), OK);
        memcpy(party.ids[i], made.head.id, sizeof made.head.id);
        session_info_clear(&made);
    }
    for (size_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &numbers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&party.faults), 0);
    for (size_t i = 0; i < SHARED; i++) {
        struct session_info found;
        assert_int_equal(sessions_find(sessions, &anybody, party.ids[i], &found, NULL), OK);
        assert_false(found.is_busy);
        assert_int_equal(found.snapshot.sampler.draws, atomic_load(&party.moves[i]));
        moves += found.snapshot.sampler.draws;
        session_info_clear(&found);
        assert_int_equal(sessions_remove(sessions, &anybody, party.ids[i], NULL), OK);
    }
    assert_true(moves > 0);
    /* all that there was is gone: there is room for as many as may be, of clients that have one each, and no more */
    struct session_info made;
    for (int i = 0; i <= MOST; i++) {
        const struct client_id who = {CLIENT_IPV4, {127, 0, 1, (uint8_t)i}};
        struct stream_snapshot s;
        assert_true(session_scene_state(&s, 0));
        assert_int_equal(add(&who, &s, &made), i < MOST ? OK : ERR_SESSIONS);
        if (i < MOST)
            session_info_clear(&made);
        else
            stream_snapshot_clear(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_was_given_stays),
        cmocka_unit_test(one_that_was_removed_while_it_is_held_ends_with_that),
        cmocka_unit_test(forks_count_for_who_forks),
        cmocka_unit_test(sessions_of_a_client_that_does_not_stay_go),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests_name("sessions", tests, start, stop);
}
