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

#include "config/limits.h"
#include "server/session/store_redis.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LEASE_MS = 1500, LONG_MS = 20000, TIMEOUT_MS = HANG_MS, TTL_S = 1000, TRIES = 10000 };

/* One of several daemons, and what it has taken. */
struct holder {
    struct session_store *store;
    struct session_claim claim;
};

static struct redis_server server;
static struct holder one, other;
static const struct session_key key = {{0xab, 1}};
#define HEX "ab010000000000000000000000000000"

static struct session_store *open_store(const char *name, uint32_t lease_ms)
{
    struct session_store *s = NULL;
    struct error err;
    const struct store_redis_options o = {.url = server.url,
                                          .prefix = "aftd:",
                                          .name = name,
                                          .lease_ms = lease_ms,
                                          .timeout_ms = TIMEOUT_MS,
                                          .ttl_s = TTL_S};
    if (store_redis_open(&s, &o, &err) != OK)
        fail_msg("%s", err.message);
    assert_true(s->kind->is_shared);
    return s;
}

static void begin_with(uint32_t lease_ms)
{
    redis_server_begin(&server, false, false);
    one = (struct holder){.store = open_store("one", lease_ms)};
    other = (struct holder){.store = open_store("other", lease_ms)};
}

static void begin(void **state)
{
    (void)state;
    begin_with(LEASE_MS);
}

/* Where a lease that is lost, as the machine has other work to do, would be an error. */
static void begin_long(void **state)
{
    (void)state;
    begin_with(LONG_MS);
}

static int end(void **state)
{
    (void)state;
    if (one.store != NULL)
        one.store->kind->free(one.store);
    if (other.store != NULL)
        other.store->kind->free(other.store);
    one = other = (struct holder){.store = NULL};
    redis_server_end(&server);
    return 0;
}

/* ---- short forms ------------------------------------------------------------------------------------------------ */

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

static void add(struct holder *h, const char *record, enum status expected, const char *message)
{
    struct error err;
    const struct session_bytes bytes = text(record);
    check(h->store->kind->put(h->store, &key, NULL, &bytes, &err), &err, expected, message);
}

static void put(struct holder *h, const char *record, enum status expected, const char *message)
{
    struct error err;
    const struct session_bytes bytes = text(record);
    check(h->store->kind->put(h->store, &key, &h->claim, &bytes, &err), &err, expected, message);
}

static void let_go(struct holder *h)
{
    assert_true(h->claim.token[0] != '\0');
    h->store->kind->let_go(h->store, &key, &h->claim);
    h->claim = (struct session_claim){.token = ""};
}

static void take_or_look(struct holder *h, bool takes, const char *record, enum status expected, const char *message)
{
    struct error err;
    const struct session_claim before = h->claim;
    struct session_bytes got = {(uint8_t *)&err, 7};
    const enum status st = h->store->kind->get(h->store, &key, takes ? &h->claim : NULL, &got, &err);
    check(st, &err, expected, message);
    if (st != OK) { /* set only on OK */
        assert_true(got.bytes == (uint8_t *)&err && got.size == 7);
        assert_memory_equal(&h->claim, &before, sizeof before);
        return;
    }
    if (got.size != strlen(record) || memcmp(got.bytes, record, got.size) != 0)
        fail_msg("not the record \"%s\"", record);
    free(got.bytes);
}

static void take(struct holder *h, const char *record)
{
    take_or_look(h, true, record, OK, "");
}
static void take_none(struct holder *h, enum status expected, const char *message)
{
    take_or_look(h, true, "", expected, message);
}
static void look(struct holder *h, const char *record)
{
    take_or_look(h, false, record, OK, "");
}
static void remove_it(struct holder *h, enum status expected)
{
    struct error err;
    check(h->store->kind->remove(h->store, &key, &err), &err, expected, "no such session");
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

/* ---- each function ---------------------------------------------------------------------------------------------- */

static void a_session_is_kept_taken_and_put_back(void **state)
{
    begin_long(state);
    take_none(&one, ERR_NOT_FOUND, "no such session");
    take_or_look(&one, false, "", ERR_NOT_FOUND, "no such session");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX ":lease"), 0); /* none is left behind */
    add(&one, "first", OK, "");
    assert_fresh();
    add(&other, "another", ERR_CONFLICT, "already");
    look(&other, "first");
    take(&other, "first");
    take_none(&one, ERR_CONFLICT, "\"other\"");
    look(&one, "first"); /* as it was before */
    put(&other, "second", OK, "");
    assert_fresh();
    take(&one, "second"); /* at once */
    put(&one, "", OK, "");
    take(&other, ""); /* empty is not none */
    put(&other, "third", OK, "");
    put(&other, "twice", ERR_CONFLICT, "another daemon has gone on");
    look(&one, "third");
}

static void what_is_let_go_can_be_taken_soon(void **state)
{
    begin_long(state);
    add(&one, "first", OK, "");
    for (int i = 0; i < 5; i++) {
        take(&one, "first");
        take_none(&other, ERR_CONFLICT, "\"one\"");
        let_go(&one);
        await_number("EXISTS aftd:" HEX ":lease", 0, 0);
        take(&other, "first");
        let_go(&other);
        await_number("EXISTS aftd:" HEX ":lease", 0, 0);
        /* connections that the server has closed are made anew */
        assert_true(redis_server_number(&server, "CLIENT KILL TYPE normal") >= 1);
    }
    take(&one, "first");
    const struct session_claim before = one.claim;
    take(&one, "first"); /* a daemon takes again what it had: what was of it is nothing any more */
    one.store->kind->let_go(one.store, &key, &before);
    test_sleep_ms(100);
    take_none(&other, ERR_CONFLICT, "\"one\"");
    put(&one, "second", OK, "");
    take(&other, "second");
    put(&other, "third", OK, "");
    /* One whose answer nobody awaited any more, and which the server does late, after the next. */
    char later[160];
    (void)snprintf(later, sizeof later, "SET aftd:" HEX ":lease %.32sffffffffffffffffone", before.token);
    assert_string_equal(redis_server_ask(&server, later), "+OK\r\n");
    take_none(&one, ERR_CONFLICT, "\"one\"");
}

static void what_is_removed_is_gone_also_for_who_has_it(void **state)
{
    begin_long(state);
    remove_it(&one, ERR_NOT_FOUND);
    add(&one, "first", OK, "");
    take(&one, "first");
    remove_it(&other, OK);
    put(&one, "second", ERR_CONFLICT, "removed meanwhile");
    take_none(&one, ERR_NOT_FOUND, "");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX " aftd:" HEX ":lease"), 0);
    add(&other, "anew", OK, "");
    put(&one, "second", ERR_CONFLICT, "another daemon has gone on"); /* that is another session */
    take(&other, "anew");
    let_go(&one);
    test_sleep_ms(100);
    take_none(&one, ERR_CONFLICT, "\"other\"");
    remove_it(&other, OK);
    put(&other, "second", ERR_CONFLICT, "removed");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX " aftd:" HEX ":lease"), 0);
}

static void a_session_expires_unless_it_is_used(void **state)
{
    begin_long(state);
    add(&one, "first", OK, "");
    assert_int_equal(redis_server_number(&server, "EXPIRE aftd:" HEX " 5"), 1);
    look(&other, "first");
    assert_fresh();
    assert_int_equal(redis_server_number(&server, "EXPIRE aftd:" HEX " 5"), 1);
    take(&one, "first");
    assert_fresh();
    assert_int_equal(redis_server_number(&server, "EXPIRE aftd:" HEX " 5"), 1);
    one.store->kind->touch(one.store, &key, &one.claim); /* or it would end under a request that takes long */
    await_number("PTTL aftd:" HEX, 5001, TTL_S * 1000L);
    assert_fresh();
    assert_int_equal(redis_server_number(&server, "EXPIRE aftd:" HEX " 5"), 1);
    let_go(&one);
    await_number("PTTL aftd:" HEX, 5001, TTL_S * 1000L);
    assert_fresh();
    assert_int_equal(redis_server_number(&server, "EXPIRE aftd:" HEX " 5"), 1);
    take(&one, "first");
    put(&one, "second", OK, "");
    assert_fresh();
    assert_int_equal(redis_server_number(&server, "PEXPIRE aftd:" HEX " 1"), 1);
    await_number("EXISTS aftd:" HEX, 0, 0);
    take_none(&one, ERR_NOT_FOUND, "");
}

static void the_largest_record_fits(void **state)
{
    begin_long(state);
    struct error err;
    struct session_bytes large = {malloc(STATE_BYTES_MAX), STATE_BYTES_MAX}, got;
    assert_non_null(large.bytes);
    for (size_t i = 0; i < large.size; i++)
        large.bytes[i] = (uint8_t)(i * 7 + i / 251);
    check(one.store->kind->put(one.store, &key, NULL, &large, &err), &err, OK, "");
    check(other.store->kind->get(other.store, &key, &other.claim, &got, &err), &err, OK, "");
    assert_int_equal(got.size, large.size);
    assert_memory_equal(got.bytes, large.bytes, large.size);
    free(got.bytes);
    large.bytes[0]++;
    check(other.store->kind->put(other.store, &key, &other.claim, &large, &err), &err, OK, "");
    check(one.store->kind->get(one.store, &key, NULL, &got, &err), &err, OK, "");
    assert_memory_equal(got.bytes, large.bytes, large.size);
    free(got.bytes);
    free(large.bytes);
}

/* ---- several daemons -------------------------------------------------------------------------------------------- */

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
        struct session_claim claim;
        const enum status st = r->store->kind->get(r->store, &r->key, &claim, &got, &err);
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
        r->wrong += r->store->kind->put(r->store, &r->key, &claim, &record, &err) != OK;
        r->taken++;
    }
    return NULL;
}

static void of_two_daemons_one_has_it_at_a_time(void **state)
{
    begin_long(state);
    atomic_int holders = 0, tries = test_work(TRIES);
    struct rival rivals[] = {{.store = one.store, .key = key}, {.store = other.store, .key = key}};
    char counted[32];
    add(&one, "0", OK, "");
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
    look(&one, counted); /* none went on from what another had changed */
}

static void a_lease_that_is_held_on_to_lasts(void **state)
{
    begin(state);
    add(&one, "first", OK, "");
    take(&one, "first");
    for (const int64_t until = test_now_ms() + 2L * LEASE_MS; test_now_ms() < until; test_sleep_ms(LEASE_MS / 10)) {
        one.store->kind->touch(one.store, &key, &one.claim);
        take_none(&other, ERR_CONFLICT, "\"one\"");
    }
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(&other, "first");
    assert_true(one.store->kind->touch(one.store, &key, &one.claim)); /* not what another has */
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
}

static void a_lease_that_expired_is_taken_again_unless_another_daemon_went_on(void **state)
{
    begin_long(state);
    add(&one, "first", OK, "");
    take(&one, "first");
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    assert_true(one.store->kind->touch(one.store, &key, &one.claim));
    await_number("PTTL aftd:" HEX ":lease", 1, LONG_MS);
    take_none(&other, ERR_CONFLICT, "\"one\"");
    put(&one, "second", OK, "");
    assert_true(one.store->kind->touch(one.store, &key, &one.claim)); /* that has ended */
    take(&one, "second");
    assert_int_equal(redis_server_number(&server, "DEL aftd:" HEX ":lease"), 1);
    take(&other, "second");
    assert_true(one.store->kind->touch(one.store, &key, &one.claim));
    test_sleep_ms(100);
    take_none(&one, ERR_CONFLICT, "\"other\"");
    put(&other, "of the other", OK, "");
    assert_true(one.store->kind->touch(one.store, &key, &one.claim));
    test_sleep_ms(100);
    take(&other, "of the other");
    remove_it(&other, OK);
    assert_true(other.store->kind->touch(other.store, &key, &other.claim));
    test_sleep_ms(100);
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX ":lease"), 0);
}

static long number_in(const char *database, const char *command)
{
    char commands[160];
    (void)snprintf(commands, sizeof commands, "SELECT %s\r\n%s", database, command);
    const char *said = strchr(redis_server_ask(&server, commands), ':');
    assert_non_null(said);
    return strtol(said + 1, NULL, 10);
}

/* On a Unix socket and on a port, where connecting takes time; with a user and a database, as these are told first. */
static void a_lease_is_renewed_also_after_connections_are_lost(void **state)
{
    (void)state;
    redis_server_begin(&server, false, true);
    static const char *const databases[] = {"3", "4"};
    char file[PATH_MAX], urls[2][160];
    temp_path(file, server.dir, "password");
    temp_write(file, "aftd:word", 9);
    assert_string_equal(redis_server_ask(&server, "ACL SETUSER aftd on >word ~aftd:* +@all"), "+OK\r\n");
    (void)snprintf(urls[0], sizeof urls[0], "%.120s?db=3", server.url);
    (void)snprintf(urls[1], sizeof urls[1], "redis://127.0.0.1:%u/4", (unsigned)server.port);
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        struct error err;
        const struct store_redis_options o = {.url = urls[i],
                                              .password_file = file,
                                              .prefix = "aftd:",
                                              .name = "one",
                                              .lease_ms = LONG_MS,
                                              .timeout_ms = TIMEOUT_MS,
                                              .ttl_s = TTL_S};
        check(store_redis_open(&one.store, &o, &err), &err, OK, "");
        add(&one, "first", OK, "");
        take(&one, "first");
        for (int times = 0; times < 3; times++) {
            assert_int_equal(number_in(databases[i], "PEXPIRE aftd:" HEX ":lease 9000"), 1);
            assert_true(redis_server_number(&server, "CLIENT KILL TYPE normal") >= 1);
            for (const int64_t until = test_now_ms() + HANG_MS; !one.store->kind->touch(one.store, &key, &one.claim);
                 test_sleep_ms(5))
                assert_true(test_now_ms() < until);
            for (const int64_t until = test_now_ms() + HANG_MS;
                 number_in(databases[i], "PTTL aftd:" HEX ":lease") <= 9000; test_sleep_ms(5))
                assert_true(test_now_ms() < until);
        }
        one.store->kind->free(one.store);
        one.store = NULL;
    }
}

static void a_lease_ends_with_its_daemon(void **state)
{
    begin(state);
    struct holder third = {.store = open_store("third", LEASE_MS)};
    add(&one, "first", OK, "");
    take(&third, "first");
    third.store->kind->free(third.store); /* it dies: whatever it has is not given back */
    take_none(&one, ERR_CONFLICT, "\"third\"");
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(&one, "first");
    put(&one, "second", OK, "");
}

static void after_a_lease_has_expired_the_first_to_put_it_back_wins(void **state)
{
    begin(state);
    add(&one, "first", OK, "");
    take(&one, "first");
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    put(&one, "second", OK, ""); /* nobody else wanted it */
    take(&one, "second");
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(&other, "second");
    put(&other, "of the other", OK, "");
    put(&one, "third", ERR_CONFLICT, "another daemon has gone on");
    look(&one, "of the other");
    take(&one, "of the other");
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(&other, "of the other");
    put(&one, "third", OK, "");
    put(&other, "once more", ERR_CONFLICT, "another daemon has gone on");
    let_go(&other);
    await_number("EXISTS aftd:" HEX ":lease", 0, 0);
    take(&one, "third");
}

static size_t count_connections(void)
{
    size_t count = 0;
    for (const char *at = redis_server_ask(&server, "CLIENT LIST"); (at = strstr(at, " fd=")) != NULL; at++)
        count++;
    return count - 1; /* the one that asked */
}

static void threads_leave_few_connections(void **state)
{
    begin(state);
    enum { RIVALS = 8 };
    atomic_int holders = 0, tries = test_work(2000);
    const size_t before = count_connections();
    struct session_store *narrow = open_store("narrow", LEASE_MS);
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
    assert_int_equal(wrong, test_work(2000));                                    /* as there is no such session */
    assert_in_range(count_connections() - before, 1, SESSION_STORE_THREADS + 1); /* one tells */
    narrow->kind->free(narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_session_is_kept_taken_and_put_back, end),
        cmocka_unit_test_teardown(what_is_let_go_can_be_taken_soon, end),
        cmocka_unit_test_teardown(what_is_removed_is_gone_also_for_who_has_it, end),
        cmocka_unit_test_teardown(a_session_expires_unless_it_is_used, end),
        cmocka_unit_test_teardown(the_largest_record_fits, end),
        cmocka_unit_test_teardown(of_two_daemons_one_has_it_at_a_time, end),
        cmocka_unit_test_teardown(a_lease_that_is_held_on_to_lasts, end),
        cmocka_unit_test_teardown(a_lease_that_expired_is_taken_again_unless_another_daemon_went_on, end),
        cmocka_unit_test_teardown(a_lease_is_renewed_also_after_connections_are_lost, end),
        cmocka_unit_test_teardown(a_lease_ends_with_its_daemon, end),
        cmocka_unit_test_teardown(after_a_lease_has_expired_the_first_to_put_it_back_wins, end),
        cmocka_unit_test_teardown(threads_leave_few_connections, end),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("store_redis", tests, NULL, NULL);
}
