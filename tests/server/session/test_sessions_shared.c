/* test_sessions_shared.c - two daemons' sessions in one real Redis server: who removes, makes and reads one while a
 * request has it, what becomes of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/watcher.h"
#include "server/models/hosted_model.h"
#include "server/session/sessions.h"
#include "tests/support/daemon.h"
#include "tests/support/redis_server.h"
#include "tests/support/session_scene.h"

enum { TTL_S = 600, NAME_BYTES = 96, TRIES = 5000, LEASE_MS = 2000 };

static const struct client_id alice = {CLIENT_KEY, "alice"};

static struct redis_server server;
static struct settings settings;
static struct watcher *watcher;
static struct hosted_model *hosted;
static struct sessions *here, *there;

/* ---- scenes ----------------------------------------------------------------------------------------------------- */

static int start(void **state)
{
    (void)state;
    if (session_scene_begin(&settings, &watcher, &hosted) != 0)
        return -1;
    settings.session_ttl_s = TTL_S;
    settings.sessions_redis_timeout_ms = 600000;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return session_scene_end(watcher, hosted);
}

static struct sessions *open_sessions(const char *name)
{
    struct sessions *s = NULL;
    struct error err = {.message = ""};
    (void)snprintf(settings.replica, sizeof settings.replica, "%s", name);
    if (sessions_create(&s, &settings, watcher, &err) != OK)
        fail_msg("%s", err.message);
    return s;
}

static int set_up(void **state)
{
    (void)state;
    redis_server_begin(&server, false, false);
    settings.sessions_max = 8;
    settings.sessions_lease_ms = 10000;
    (void)snprintf(settings.sessions_redis, sizeof settings.sessions_redis, "%s", server.url);
    here = open_sessions("here");
    there = open_sessions("there");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sessions_free(here);
    sessions_free(there);
    here = there = NULL;
    redis_server_end(&server);
    return 0;
}

static struct stream_snapshot snapshot_of(uint64_t draws)
{
    struct stream_snapshot s;
    assert_true(session_scene_state(&s, draws));
    return s;
}

static void put(struct sessions *where, const char *id, uint64_t draws)
{
    struct stream_snapshot s = snapshot_of(draws);
    struct session_info made;
    struct error err = {.message = ""};
    if (sessions_add(where, &alice, id, hosted, &s, &made, &err) != OK ||
        sessions_write_new(where, &made, 1, &err) != OK)
        fail_msg("%s", err.message);
    sessions_end(where, &made);
}

static void begin(struct sessions *where, const char *id, struct session_info *ret)
{
    struct error err = {.message = ""};
    if (sessions_begin(where, &alice, id, ret, &err) != OK)
        fail_msg("%s", err.message);
}

/* What a request has let go is given back soon. */
static void fetch(struct sessions *where, struct session_info *i, uint64_t draws)
{
    struct error err = {.message = ""};
    enum status st;
    for (unsigned tries = 0; (st = sessions_fetch(where, i, &err)) == ERR_CONFLICT && tries < TRIES; tries++)
        test_sleep_ms(1);
    if (st != OK)
        fail_msg("%s", err.message);
    assert_true(i->snapshot.sampler.draws == draws);
}

static void assert_is_at(struct sessions *where, const char *id, uint64_t draws, bool is_busy)
{
    struct session_info i;
    assert_int_equal(sessions_find(where, &alice, id, &i, NULL), OK);
    fetch(where, &i, draws);
    assert_int_equal(i.is_busy, is_busy);
    session_info_clear(&i);
}

/* The key of the one record that there is, once no lease is there any more. */
static void name_of_record(char out[NAME_BYTES])
{
    size_t keys;
    for (unsigned tries = 0; tries < TRIES; tries++) {
        keys = 0;
        for (const char *at = redis_server_ask(&server, "KEYS aftd:*"); (at = strstr(at, "aftd:")) != NULL; at++)
            if (strncmp(at, "aftd:probe", 10) != 0) {
                (void)snprintf(out, NAME_BYTES, "%.*s", (int)strcspn(at, "\r\n"), at);
                keys++;
            }
        if (keys == 1)
            return;
        test_sleep_ms(1);
    }
    fail_msg("there are %zu keys, expected one", keys);
}

/* ---- removed while a request has it ----------------------------------------------------------------------------- */

static void one_that_is_removed_before_it_is_fetched_is_not_there(void **state)
{
    struct session_info held;
    struct error err;
    (void)state;
    put(here, "chat", 1);
    begin(here, "chat", &held);
    assert_int_equal(sessions_remove(here, &alice, "chat", NULL), OK);
    put(there, "chat", 2); /* another of that id, which is not what was asked for */
    assert_int_equal(sessions_fetch(here, &held, &err), ERR_NOT_FOUND);
    assert_string_equal(err.param, "session");
    sessions_end(here, &held);
    assert_is_at(here, "chat", 2, false);
    begin(there, "chat", &held); /* it was given back */
    fetch(there, &held, 2);
    sessions_end(there, &held);
}

static void one_that_is_removed_does_not_move_or_end_the_next_of_its_id(void **state)
{
    struct session_info held, other;
    struct stream_snapshot moved = snapshot_of(3), next = snapshot_of(4);
    struct error err;
    (void)state;
    put(here, "chat", 1);
    begin(here, "chat", &held);
    fetch(here, &held, 1);
    assert_int_equal(sessions_remove(here, &alice, "chat", NULL), OK);
    put(there, "chat", 2);
    assert_int_equal(sessions_begin(here, &alice, "chat", &other, &err), ERR_CONFLICT); /* not before that one's end */
    assert_non_null(strstr(err.message, "not yet over"));
    assert_int_equal(sessions_write(here, &held, &moved, &err), OK); /* there is nothing left to move */
    assert_is_at(there, "chat", 2, false);
    sessions_end(here, &held);
    assert_is_at(there, "chat", 2, false);
    begin(here, "chat", &other);
    fetch(here, &other, 2);
    assert_int_equal(sessions_write(here, &other, &next, &err), OK);
    sessions_end(here, &other);
    assert_is_at(there, "chat", 4, false);
}

/* Whatever the server does meanwhile: it is an engine's thread that lets go when a client has left. */
static void letting_go_waits_for_nobody(void **state)
{
    struct session_info held;
    (void)state;
    put(here, "chat", 1);
    begin(here, "chat", &held);
    fetch(here, &held, 1);
    redis_server_halt(&server);
    sessions_end(here, &held); /* or it would wait until the program's time is over */
    redis_server_go_on(&server);
    assert_is_at(there, "chat", 1, false);
    begin(there, "chat", &held);
    fetch(there, &held, 1);
    sessions_end(there, &held);
    sessions_free(there); /* what it has let go is given back all the same */
    there = NULL;
    begin(here, "chat", &held);
    fetch(here, &held, 1);
    sessions_end(here, &held);
}

/* ---- in use for long -------------------------------------------------------------------------------------------- */

static long count_leases(void)
{
    long count = 0;
    for (const char *at = redis_server_ask(&server, "KEYS *:lease"); (at = strstr(at, ":lease")) != NULL; at++)
        count++;
    return count;
}

/* More than what waits for the server in a socket has room for, while it loses connections, stands still and forgets
 * leases: no other daemon gets what a request has. */
static void many_leases_last_while_connections_are_lost(void **state)
{
    enum { MANY = 600, ROUNDS = 3 };
    struct session_info held[MANY], other;
    struct error err;
    char id[16];
    (void)state;
    sessions_free(here);
    settings.sessions_max = MANY;
    settings.sessions_lease_ms = LEASE_MS;
    here = open_sessions("here");
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(id, sizeof id, "chat-%d", i);
        put(there, id, 1);
        begin(here, id, &held[i]);
        fetch(here, &held[i], 1);
    }
    for (int round = 0; round < ROUNDS; round++) {
        assert_true(redis_server_number(&server, "CLIENT KILL TYPE normal") >= 1);
        test_sleep_ms(LEASE_MS / 2);
        redis_server_halt(&server);
        test_sleep_ms(LEASE_MS / 2);
        redis_server_go_on(&server);
    }
    for (const int64_t until = test_now_ms() + HANG_MS; count_leases() < MANY; test_sleep_ms(LEASE_MS / 10))
        assert_true(test_now_ms() < until);
    for (const int64_t until = test_now_ms() + 2L * LEASE_MS; test_now_ms() < until; test_sleep_ms(LEASE_MS / 10))
        assert_int_equal(count_leases(), MANY);
    for (int i = 0; i < MANY; i++) {
        begin(there, held[i].head.id, &other);
        assert_int_equal(sessions_fetch(there, &other, &err), ERR_CONFLICT);
        sessions_end(there, &other);
        struct stream_snapshot moved = snapshot_of(2);
        if (sessions_write(here, &held[i], &moved, &err) != OK)
            fail_msg("%s", err.message);
        sessions_end(here, &held[i]);
    }
    assert_int_equal(count_leases(), 0);
}

static bool nobody_stays(void *arg, const struct client_id *client)
{
    (void)arg;
    (void)client;
    return false;
}

/* What a request puts or has put while its session goes may be another daemon's by now: it takes nothing away. */
static void one_that_goes_with_its_key_while_it_is_written_takes_nothing_away(void **state)
{
    struct session_info held, made;
    struct stream_snapshot moved = snapshot_of(2), first = snapshot_of(3);
    struct error err;
    (void)state;
    put(here, "chat", 1);
    begin(here, "chat", &held);
    fetch(here, &held, 1);
    assert_int_equal(sessions_add(here, &alice, "new", hosted, &first, &made, &err), OK);
    sessions_keep(here, nobody_stays, NULL);
    assert_int_equal(sessions_write(here, &held, &moved, &err), OK);
    assert_int_equal(sessions_write_new(here, &made, 1, &err), OK);
    sessions_end(here, &held);
    sessions_end(here, &made);
    assert_is_at(there, "chat", 2, false);
    assert_is_at(there, "new", 3, false);
}

/* ---- looked at -------------------------------------------------------------------------------------------------- */

static void a_look_tells_whether_it_is_in_use_here_and_is_a_use(void **state)
{
    struct session_info held;
    char command[160], name[NAME_BYTES];
    (void)state;
    put(there, "chat", 1);
    assert_is_at(here, "chat", 1, false);
    begin(here, "chat", &held);
    fetch(here, &held, 1);
    assert_is_at(here, "chat", 1, true);
    sessions_end(here, &held);
    assert_is_at(here, "chat", 1, false);

    name_of_record(name);
    (void)snprintf(command, sizeof command, "EXPIRE %s 20", name);
    assert_int_equal(redis_server_number(&server, command), 1);
    assert_is_at(there, "chat", 1, false);
    (void)snprintf(command, sizeof command, "TTL %s", name);
    assert_true(redis_server_number(&server, command) > TTL_S - 10);
}

/* As while daemons are upgraded one after the other: neither takes away what the other can read. */
static void a_record_that_cannot_be_read_stays_for_those_that_can(void **state)
{
    static const char *const changes[] = {
        "HSET %s r aftdsess~~~~and-what-only-a-later-version-knows",
        "HSET %s r \"aftdsess\\x00\\x00\\x00\\x00and-what-only-an-earlier-version-knows\"",
        "EVAL \"local r = redis.call('HGET', KEYS[1], 'r') local at = r:find('aftdstat', 1, true) + 8 "
        "return redis.call('HSET', KEYS[1], 'r', r:sub(1, at - 1) .. string.char(r:byte(at) - 1) .. r:sub(at + 1))\" "
        "1 %s", /* of an earlier version's state */
        "HSET %s r no-record-at-all",
    };
    struct session_info held;
    struct error err;
    char command[400], name[NAME_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        put(here, "chat", 1);
        name_of_record(name);
        (void)snprintf(command, sizeof command, changes[i], name);
        assert_int_equal(redis_server_number(&server, command), 0);
        for (int tries = 0; tries < 3; tries++) {
            assert_int_equal(sessions_find(there, &alice, "chat", &held, NULL), OK);
            assert_int_equal(sessions_fetch(there, &held, &err), ERR_CONFLICT);
            session_info_clear(&held);
            assert_non_null(strstr(err.message, "cannot be read"));
            begin(there, "chat", &held);
            assert_int_equal(sessions_fetch(there, &held, &err), ERR_CONFLICT);
            assert_non_null(strstr(err.message, "cannot be read"));
            sessions_end(there, &held);
        }
        name_of_record(name); /* it is given back */
        begin(here, "chat", &held);
        assert_int_equal(sessions_fetch(here, &held, &err), ERR_CONFLICT);
        assert_non_null(strstr(err.message, "cannot be read"));
        sessions_end(here, &held);
        assert_int_equal(sessions_remove(here, &alice, "chat", NULL), OK);
    }
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EACH(one_that_is_removed_before_it_is_fetched_is_not_there),
        EACH(one_that_is_removed_does_not_move_or_end_the_next_of_its_id),
        EACH(one_that_goes_with_its_key_while_it_is_written_takes_nothing_away),
        EACH(letting_go_waits_for_nobody),
        EACH(many_leases_last_while_connections_are_lost),
        EACH(a_look_tells_whether_it_is_in_use_here_and_is_a_use),
        EACH(a_record_that_cannot_be_read_stays_for_those_that_can),
    };
    return cmocka_run_group_tests_name("sessions_shared", tests, start, stop);
}
