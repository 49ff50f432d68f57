/* test_sessions_memory.c - stored sessions while memory is short: each allocation of what begins, moves, reads, forks
 * and restores them is refused in its turn, alone and with all that follow. Then it has happened, or ERR_NOMEM, and all
 * that was stored before is there, as it was. The program's own functions refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions.h"
#include "tests/support/refused_memory.h"
#include "tests/support/session_scene.h"
#include "tests/support/temp_dir.h"

static const struct client_id alice = {CLIENT_KEY, "alice"};

static struct settings settings;
static struct watcher *watcher;
static struct sessions *sessions;
static struct hosted_model *hosted;
static char dir[PATH_MAX];

static void begin_again(void)
{
    struct error err = {.message = ""};
    sessions_free(sessions);
    sessions = NULL;
    if (sessions_create(&sessions, &settings, watcher, &err) != OK)
        fail_msg("%s", err.message);
}

static int start(void **state)
{
    (void)state;
    temp_dir_create(dir);
    if (session_scene_begin(&settings, &watcher, &hosted) != 0)
        return -1;
    assert_true(strlen(dir) < sizeof settings.sessions_dir);
    memcpy(settings.sessions_dir, dir, strlen(dir) + 1);
    begin_again();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sessions_free(sessions);
    temp_dir_remove(dir);
    return session_scene_end(watcher, hosted);
}

/* ---- what is done ----------------------------------------------------------------------------------------------- */

static enum status begin_one(const char *id, uint64_t draws)
{
    struct stream_snapshot s;
    struct session_info made;
    if (!session_scene_state(&s, draws))
        return ERR_NOMEM;
    enum status st = sessions_add(sessions, &alice, id, hosted, &s, &made, NULL);
    if (st != OK) {
        stream_snapshot_clear(&s);
        return st;
    }
    st = sessions_write_new(sessions, &made, 1, NULL);
    if (st == OK)
        sessions_end(sessions, &made);
    return st;
}

static enum status move_one(const char *id, uint64_t draws)
{
    struct session_info held;
    struct stream_snapshot s;
    enum status st = sessions_begin(sessions, &alice, id, &held, NULL);
    if (st != OK)
        return st;
    if (held.state == NULL)
        st = sessions_fetch(sessions, &held, NULL);
    if (st == OK && !session_scene_state(&s, draws))
        st = ERR_NOMEM;
    if (st == OK) {
        st = sessions_write(sessions, &held, &s, NULL);
        if (st != OK)
            stream_snapshot_clear(&s);
    }
    sessions_end(sessions, &held);
    return st;
}

static enum status fork_one(const char *id)
{
    struct session_info of, forks[2];
    enum status st = sessions_find(sessions, &alice, id, &of, NULL);
    if (st == OK && of.state == NULL)
        st = sessions_fetch(sessions, &of, NULL);
    if (st != OK) {
        session_info_clear(&of);
        return st;
    }
    st = sessions_fork(sessions, &alice, &of, 2, forks, NULL);
    session_info_clear(&of);
    if (st != OK)
        return st;
    st = sessions_write_new(sessions, forks, 2, NULL);
    for (size_t i = 0; i < 2; i++)
        if (forks[i].held != NULL) {
            char made[SESSION_ID_BYTES];
            memcpy(made, forks[i].head.id, sizeof made);
            sessions_end(sessions, &forks[i]);
            (void)sessions_remove(sessions, &alice, made, NULL);
        }
    return st;
}

static enum status restore(void)
{
    sessions_free(sessions);
    sessions = NULL;
    return sessions_create(&sessions, &settings, watcher, NULL);
}

/* Where it stands; UINT64_MAX: it is not there. */
static uint64_t place_of(const char *id)
{
    struct session_info i;
    enum status st = sessions_find(sessions, &alice, id, &i, NULL);
    if (st == OK && i.state == NULL)
        st = sessions_fetch(sessions, &i, NULL);
    const uint64_t at = st == OK ? i.snapshot.sampler.draws : UINT64_MAX;
    if (st == OK)
        session_info_clear(&i);
    return at;
}

/* ---- without each allocation ------------------------------------------------------------------------------------ */

enum what { BEGIN, MOVE, MOVE_UNREAD, FORK, RESTORE };

static enum status do_it(enum what what, long n)
{
    switch (what) {
    case BEGIN:
        return begin_one("new", 1);
    case MOVE:
    case MOVE_UNREAD:
        return move_one("old", (uint64_t)n);
    case FORK:
        return fork_one("old");
    case RESTORE:
        return restore();
    }
    return OK;
}

static unsigned without_each(enum what what, bool stays)
{
    unsigned refused = 0;
    for (long n = 1;; n++) {
        assert_true(n < ALLOCATIONS_MAX);
        if (what == MOVE_UNREAD || sessions == NULL)
            begin_again();
        const uint64_t before = place_of("old");
        if (what == MOVE_UNREAD)
            begin_again(); /* it was read */
        refuse_memory(n, stays);
        const enum status st = do_it(what, n);
        const bool reached = give_memory();
        if (st != OK && (!reached || st != ERR_NOMEM))
            fail_msg("%d without allocation %ld%s: status %d", (int)what, n, stays ? " and later ones" : "", (int)st);
        refused += st != OK;
        const bool is_moved = st == OK && (what == MOVE || what == MOVE_UNREAD);
        begin_again();
        assert_true(place_of("old") == (is_moved ? (uint64_t)n : before));
        assert_true(place_of("new") == (what == BEGIN && st == OK ? 1 : UINT64_MAX));
        if (what == BEGIN && st == OK)
            assert_int_equal(sessions_remove(sessions, &alice, "new", NULL), OK);
        if (!reached)
            return refused;
    }
}

static void nothing_that_is_stored_is_lost(void **state)
{
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    assert_int_equal(begin_one("old", 1000000), OK);
    for (enum what what = BEGIN; what <= RESTORE; what++)
        for (int stays = 0; stays < 2; stays++) {
            const unsigned refused = without_each(what, stays == 1);
            print_message("%d%s: %u refused\n", (int)what, stays == 1 ? " and later ones" : "", refused);
            assert_true(refused >= 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_is_stored_is_lost),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
