/* test_store_redis.c - sessions in a real Redis server: what each function does, and that of several stores, which
 * stand for as many daemons, one has a session at a time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/session/store_redis.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/redis_server.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LEASE_MS = 4500, LONG_MS = 20000, TIMEOUT_MS = HANG_MS, TTL_S = 1000, TRIES = 10000, ASIDE = 20 };

static struct redis_server server;
static struct session_store *one, *other; /* of two daemons */
static const struct session_key key = {{0xab, 1}};
#define HEX "ab010000000000000000000000000000"

static struct session_store *open_store(const char *name, uint32_t lease_ms, uint32_t threads)
{
    struct session_store *s = NULL;
    struct error err;
    const struct store_redis_options o = {.url = server.url,
                                          .prefix = "aftd:",
                                          .name = name,
                                          .lease_ms = lease_ms,
                                          .timeout_ms = TIMEOUT_MS,
                                          .ttl_s = TTL_S,
                                          .threads = threads};
    if (store_redis_open(&s, &o, &err) != OK)
        fail_msg("%s", err.message);
    assert_true(s->kind->is_shared);
    return s;
}

static void begin(void **state)
{
    (void)state;
    redis_server_begin(&server, false, false);
    one = open_store("one", LEASE_MS, 4);
    other = open_store("other", LEASE_MS, 4);
}

/* Where a lease that is lost, as the machine has other work to do, would be an error. */
static void begin_long(void **state)
{
    (void)state;
    redis_server_begin(&server, false, false);
    one = open_store("one", LONG_MS, 4);
    other = open_store("other", LONG_MS, 4);
}

static int end(void **state)
{
    (void)state;
    if (one != NULL)
        one->kind->free(one);
    if (other != NULL)
        other->kind->free(other);
    one = other = NULL;
    redis_server_end(&server);
    return 0;
}

/* ---- short forms ------------------------------------------------------------------------------------------------- */

static struct session_bytes text(const char *bytes)
{
    return (struct session_bytes){(uint8_t *)bytes, strlen(bytes)};
}

/* Of a whole call: expected is what it returns, and a piece of the message. */
static void check(enum status st, const struct error *err, enum status expected, const char *message)
{
    if (st != expected || (st != OK && strstr(err->message, message) == NULL))
        fail_msg("%s (%s), expected %s (%s)", status_name(st), st == OK ? "" : err->message, status_name(expected),
                 message);
}

static void add(struct session_store *s, uint64_t turn, const char *record, enum status expected, const char *message)
{
    struct error err;
    const struct session_bytes bytes = text(record);
    check(s->kind->add(s, &key, turn, &bytes, &err), &err, expected, message);
}

static void give(struct session_store *s, uint64_t turn, const char *record, enum status expected, const char *message)
{
    struct error err;
    const struct session_bytes bytes = text(record != NULL ? record : "");
    check(s->kind->give(s, &key, turn, record != NULL ? &bytes : NULL, &err), &err, expected, message);
}

typedef enum status (*getter)(struct session_store *s, const struct session_key *of, uint64_t turn,
                              struct session_bytes *ret, struct error *err);

/* `record` is what it must return: NULL: nothing. */
static void get(getter f, struct session_store *s, uint64_t turn, const char *record)
{
    struct error err;
    struct session_bytes got;
    check(f(s, &key, turn, &got, &err), &err, OK, "");
    if (record == NULL)
        assert_null(got.bytes);
    else if (got.bytes == NULL || got.size != strlen(record) || memcmp(got.bytes, record, got.size) != 0)
        fail_msg("not the record \"%s\"", record);
    free(got.bytes);
}

static void get_none(getter f, struct session_store *s, enum status expected, const char *message)
{
    struct error err;
    struct session_bytes got = {(uint8_t *)&err, 7};
    check(f(s, &key, 0, &got, &err), &err, expected, message);
    assert_true(got.bytes == (uint8_t *)&err && got.size == 7); /* set only on OK */
}

static void take(struct session_store *s, uint64_t turn, const char *record)
{
    get(s->kind->take, s, turn, record);
}
static void take_none(struct session_store *s, enum status expected, const char *message)
{
    get_none(s->kind->take, s, expected, message);
}

static void await_number(const char *command, long least, long most)
{
    for (const int64_t until = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        const long n = redis_server_number(&server, command);
        if (n >= least && n <= most)
            return;
        if (test_now_ms() > until)
            fail_msg("%s: %ld, expected %ld to %ld", command, n, least, most);
    }
}

static void assert_fresh(void)
{
    const long ms = redis_server_number(&server, "PTTL aftd:" HEX);
    assert_in_range(ms, TTL_S * 1000L - HANG_MS, TTL_S * 1000L);
}

/* ---- each function ----------------------------------------------------------------------------------------------- */

static void a_session_is_kept_taken_and_given_back(void **state)
{
    begin_long(state);
    take_none(one, ERR_NOT_FOUND, "no such session");
    get_none(one->kind->look, one, ERR_NOT_FOUND, "no such session");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX ":lease"), 0); /* none is left behind */
    add(one, 1, "first", OK, "");
    assert_fresh();
    add(other, 1, "another", ERR_CONFLICT, "already");
    get(other->kind->look, other, 0, "first");
    get(other->kind->look, other, 1, NULL); /* it has that turn */
    take(other, 7, "first");
    take_none(one, ERR_CONFLICT, "\"other\"");
    get(one->kind->look, one, 0, "first"); /* as it was before */
    give(other, UINT64_MAX - 1, "second", OK, "");
    assert_fresh();
    take(one, UINT64_MAX - 1, NULL); /* turns are compared exactly */
    give(one, UINT64_MAX, NULL, OK, "");
    take(other, UINT64_MAX, "second"); /* unchanged, with its turn */
    give(other, UINT64_MAX, "", OK, "");
    take(one, 0, ""); /* empty is not none */
    give(one, 0, NULL, OK, "");
    give(one, 0, NULL, ERR_CONFLICT, "given back meanwhile"); /* twice */
    give(other, 9, "never taken", ERR_CONFLICT, "never taken");
    get(one->kind->look, one, 0, "");
}

static void what_is_removed_is_gone_also_for_who_has_it(void **state)
{
    begin_long(state);
    struct error err;
    check(one->kind->remove(one, &key, &err), &err, OK, ""); /* it need not be there */
    add(one, 1, "first", OK, "");
    take(one, 0, "first");
    check(other->kind->remove(other, &key, &err), &err, OK, "");
    give(one, 2, "second", ERR_CONFLICT, "removed meanwhile");
    take_none(one, ERR_NOT_FOUND, "");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX " aftd:" HEX ":lease"), 0);
    add(one, 1, "anew", OK, "");
    take(one, 0, "anew");
    check(one->kind->remove(one, &key, &err), &err, OK, "");
    give(one, 2, "second", ERR_CONFLICT, "removed");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX " aftd:" HEX ":lease"), 0);
}

static void a_session_expires_unless_it_is_touched(void **state)
{
    begin_long(state);
    one->kind->touch(one, &key, 1); /* none: nothing happens */
    add(one, 1, "first", OK, "");
    one->kind->touch(one, &key, 3 * TTL_S);
    assert_in_range(redis_server_number(&server, "PTTL aftd:" HEX), TTL_S * 2000, TTL_S * 3000);
    one->kind->touch(one, &key, 1);
    assert_in_range(redis_server_number(&server, "PTTL aftd:" HEX), 1, 1000);
    take(one, 0, "first");
    assert_fresh(); /* taking is a use */
    give(one, 1, NULL, OK, "");
    one->kind->touch(one, &key, 0);
    take_none(one, ERR_NOT_FOUND, "");
}

static void what_is_of_no_use_is_set_aside_within_bounds(void **state)
{
    begin_long(state);
    struct error err;
    one->kind->set_aside(one, &key); /* none: nothing happens */
    for (int i = 0; i < ASIDE; i++) {
        add(one, 1, "broken", OK, "");
        take(one, 0, "broken");
        other->kind->set_aside(other, &key); /* not what somebody else has */
        get(one->kind->look, one, 0, "broken");
        one->kind->set_aside(one, &key);
        take_none(other, ERR_NOT_FOUND, "");
        give(one, 2, "late", ERR_CONFLICT, "");
    }
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX ":lease"), 0);
    assert_int_equal(redis_server_number(&server, "DBSIZE") - redis_server_number(&server, "EXISTS aftd:probe"), 17);
    assert_non_null(strstr(redis_server_ask(&server, "HGET aftd:aside:3 k"), HEX));
    assert_non_null(strstr(redis_server_ask(&server, "HGET aftd:aside:3 r"), "broken"));
    assert_in_range(redis_server_number(&server, "TTL aftd:aside:3"), 86000, 86400);
    check(one->kind->remove(one, &key, &err), &err, OK, "");
}

static void the_largest_record_fits_and_no_larger_one(void **state)
{
    begin_long(state);
    struct error err;
    struct session_bytes large = {malloc(STORE_RECORD_BYTES_MAX + 1), STORE_RECORD_BYTES_MAX}, got;
    assert_non_null(large.bytes);
    for (size_t i = 0; i <= large.size; i++)
        large.bytes[i] = (uint8_t)(i * 7 + i / 251);
    check(one->kind->add(one, &key, 1, &large, &err), &err, OK, "");
    check(other->kind->take(other, &key, 0, &got, &err), &err, OK, "");
    assert_int_equal(got.size, large.size);
    assert_memory_equal(got.bytes, large.bytes, large.size);
    free(got.bytes);
    large.size++;
    check(other->kind->give(other, &key, 2, &large, &err), &err, ERR_STORE, "at most 67108864");
    take(one, 1, NULL); /* given back, unchanged */
    give(one, 2, "small", OK, "");
    check(one->kind->remove(one, &key, &err), &err, OK, "");
    check(one->kind->add(one, &key, 1, &large, &err), &err, ERR_STORE, "at most 67108864");
    take_none(one, ERR_NOT_FOUND, "");
    free(large.bytes);
}

static void scripts_are_sent_again_to_a_server_that_has_lost_them(void **state)
{
    begin_long(state);
    add(one, 1, "first", OK, "");
    assert_string_equal(redis_server_ask(&server, "SCRIPT FLUSH"), "+OK\r\n");
    take(one, 0, "first");
    assert_string_equal(redis_server_ask(&server, "SCRIPT FLUSH"), "+OK\r\n");
    give(one, 2, "second", OK, "");
    get(one->kind->look, one, 0, "second");
}

/* ---- several daemons --------------------------------------------------------------------------------------------- */

struct rival {
    struct session_store *store;
    struct session_key key;
    atomic_int *holders, *tries;
    int taken, refused, wrong;
    pthread_t thread;
};

static void *compete(void *arg)
{
    struct rival *r = arg;
    while (atomic_fetch_sub(r->tries, 1) > 0) {
        struct error err;
        struct session_bytes got;
        char counted[32];
        const enum status st = r->store->kind->take(r->store, &r->key, 0, &got, &err);
        r->refused += st == ERR_CONFLICT;
        if (st != OK) {
            r->wrong += st != ERR_CONFLICT;
            continue;
        }
        r->wrong += atomic_fetch_add(r->holders, 1) != 0;
        (void)snprintf(counted, sizeof counted, "%.*s", (int)got.size, (const char *)got.bytes);
        free(got.bytes);
        const unsigned long next = strtoul(counted, NULL, 10) + 1;
        (void)snprintf(counted, sizeof counted, "%lu", next);
        atomic_fetch_sub(r->holders, 1); /* what follows is what lets others have it */
        const struct session_bytes record = text(counted);
        r->wrong += r->store->kind->give(r->store, &r->key, next + 1, &record, &err) != OK;
        r->taken++;
    }
    return NULL;
}

static void of_two_daemons_one_has_it_at_a_time(void **state)
{
    begin_long(state);
    atomic_int holders = 0, tries = test_work(TRIES);
    struct rival rivals[] = {{.store = one, .key = key}, {.store = other, .key = key}};
    char counted[32];
    add(one, 1, "0", OK, "");
    for (size_t i = 0; i < 2; i++) {
        rivals[i].holders = &holders;
        rivals[i].tries = &tries;
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, compete, &rivals[i]), 0);
    }
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
    print_message("  taken %d and %d times, refused %d and %d times\n", rivals[0].taken, rivals[1].taken,
                  rivals[0].refused, rivals[1].refused);
    assert_int_equal(rivals[0].wrong + rivals[1].wrong, 0);
    assert_true(rivals[0].taken > 0 && rivals[1].taken > 0 && rivals[0].refused + rivals[1].refused > 0);
    (void)snprintf(counted, sizeof counted, "%d", rivals[0].taken + rivals[1].taken);
    get(one->kind->look, one, 0, counted); /* none went on from what another had changed */
}

static void a_lease_is_renewed_and_ends_with_its_daemon(void **state)
{
    begin(state);
    struct session_store *third = open_store("third", LEASE_MS, 1);
    add(one, 1, "first", OK, "");
    take(third, 0, "first");
    test_sleep_ms(LEASE_MS + 100);
    take_none(one, ERR_CONFLICT, "\"third\"");
    third->kind->free(third); /* it dies: whatever it has is not given back */
    take_none(one, ERR_CONFLICT, "\"third\"");
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(one, 0, "first");
    give(one, 2, "second", OK, "");
}

static void many_leases_are_renewed_together(void **state)
{
    begin(state);
    enum { MANY = 150 }; /* more than are renewed at a time */
    struct session_key keys[MANY] = {{{0}}};
    struct error err;
    struct session_bytes got, record = text("a record");
    char exists[64];
    for (int i = 0; i < MANY; i++) {
        keys[i].bytes[0] = (uint8_t)i;
        check(one->kind->add(one, &keys[i], 1, &record, &err), &err, OK, "");
        check(one->kind->take(one, &keys[i], 1, &got, &err), &err, OK, "");
    }
    test_sleep_ms(LEASE_MS + 100);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(exists, sizeof exists, "EXISTS aftd:%02x%030d:lease", (unsigned)i, 0);
        assert_int_equal(redis_server_number(&server, exists), 1);
        check(one->kind->give(one, &keys[i], 2, i % 2 == 0 ? &record : NULL, &err), &err, OK, "");
        assert_int_equal(redis_server_number(&server, exists), 0);
    }
    test_sleep_ms(LEASE_MS / 2); /* what was given back is not taken again */
    assert_int_equal(redis_server_number(&server, "DBSIZE") - redis_server_number(&server, "EXISTS aftd:probe"), MANY);
}

static void a_lease_that_expired_is_kept_unless_another_daemon_went_on(void **state)
{
    begin(state);
    add(one, 1, "first", OK, "");
    take(one, 0, "first");
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    await_number("EXISTS aftd:" HEX ":lease", 1, 1); /* renewed */
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    give(one, 2, "second", OK, "");
    take(one, 2, NULL);
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    take(other, 2, NULL); /* before it was renewed: a third of its time is long */
    test_sleep_ms(LEASE_MS / 2);
    give(one, 3, "third", ERR_CONFLICT, "another daemon");
    take_none(one, ERR_CONFLICT, "\"other\"");
    give(other, 3, "of the other", OK, "");
    take(one, 0, "of the other");
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    take(other, 3, NULL);
    give(other, 4, "once more", OK, "");
    give(one, 4, "fourth", ERR_CONFLICT, "another daemon");
    get(one->kind->look, one, 0, "once more");
}

static size_t count_connections(void)
{
    size_t count = 0;
    for (const char *at = redis_server_ask(&server, "CLIENT LIST"); (at = strstr(at, " fd=")) != NULL; at++)
        count++;
    return count - 1; /* the one that asked */
}

static void threads_share_few_connections(void **state)
{
    begin(state);
    enum { RIVALS = 8, CONNECTIONS = 2 };
    atomic_int holders = 0, tries = test_work(2000);
    const size_t before = count_connections();
    struct session_store *narrow = open_store("narrow", LEASE_MS, CONNECTIONS);
    struct rival rivals[RIVALS];
    int wrong = 0;
    for (size_t i = 0; i < RIVALS; i++) {
        rivals[i] = (struct rival){.store = narrow, .key = {{0xcd, (uint8_t)i}}, .holders = &holders, .tries = &tries};
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, compete, &rivals[i]), 0);
    }
    for (size_t i = 0; i < RIVALS; i++) {
        assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
        wrong += rivals[i].wrong;
    }
    assert_int_equal(wrong, test_work(2000)); /* as there is no such session */
    assert_in_range(count_connections() - before, 1, CONNECTIONS);
    narrow->kind->free(narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_session_is_kept_taken_and_given_back, end),
        cmocka_unit_test_teardown(what_is_removed_is_gone_also_for_who_has_it, end),
        cmocka_unit_test_teardown(a_session_expires_unless_it_is_touched, end),
        cmocka_unit_test_teardown(what_is_of_no_use_is_set_aside_within_bounds, end),
        cmocka_unit_test_teardown(the_largest_record_fits_and_no_larger_one, end),
        cmocka_unit_test_teardown(scripts_are_sent_again_to_a_server_that_has_lost_them, end),
        cmocka_unit_test_teardown(of_two_daemons_one_has_it_at_a_time, end),
        cmocka_unit_test_teardown(a_lease_is_renewed_and_ends_with_its_daemon, end),
        cmocka_unit_test_teardown(many_leases_are_renewed_together, end),
        cmocka_unit_test_teardown(a_lease_that_expired_is_kept_unless_another_daemon_went_on, end),
        cmocka_unit_test_teardown(threads_share_few_connections, end),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("store_redis", tests, NULL, NULL);
}
