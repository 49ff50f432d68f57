/* test_store_redis_away.c - a Redis server that is killed, stands still, is full, or does not let us in; and what is no
 * such server at all. No call takes longer than its time limit, and none returns a wrong record. */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/limits.h"
#include "server/core/metrics.h"
#include "server/session/store_redis.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, LEASE_MS = 1000, SHORT_MS = 2000 };

static struct redis_server server;
static const struct session_key key = {{0xab, 1}};
#define HEX "ab010000000000000000000000000000"

static struct store_redis_options options_of(const char *url)
{
    return (struct store_redis_options){
        .url = url, .prefix = "aftd:", .name = "one", .lease_ms = LEASE_MS, .timeout_ms = HANG_MS, .ttl_s = 1000};
}

static struct session_store *open_store_with(const struct store_redis_options *o)
{
    struct session_store *s = NULL;
    struct error err;
    if (store_redis_open(&s, o, &err) != OK)
        fail_msg("%s", err.message);
    return s;
}

static struct session_store *open_store(const char *url)
{
    const struct store_redis_options o = options_of(url);
    return open_store_with(&o);
}

static void refuse(const struct store_redis_options *o, enum status expected, const char *message)
{
    struct session_store *s = NULL;
    struct error err = {.message = ""};
    const enum status st = store_redis_open(&s, o, &err);
    if (st != expected || s != NULL || strstr(err.message, message) == NULL)
        fail_msg("%s: %s: %s; expected %s: %s", o->url, status_name(st), err.message, status_name(expected), message);
}

static void check(enum status st, const struct error *err, enum status expected, const char *message)
{
    if (st != expected || (st != OK && strstr(err->message, message) == NULL))
        fail_msg("%s (%s), expected %s (%s)", status_name(st), st == OK ? "" : err->message, status_name(expected),
                 message);
}

static const struct session_bytes first = {(uint8_t *)"first", 5}, second = {(uint8_t *)"second", 6};

static void look(struct session_store *s, enum status expected, const char *message)
{
    struct session_bytes got = {NULL, 0};
    struct error err;
    check(s->kind->get(s, &key, NULL, &got, &err), &err, expected, message);
    free(got.bytes);
}

static void await_back(struct session_store *s)
{
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(10)) {
        struct session_bytes got = {NULL, 0};
        struct error err;
        const enum status st = s->kind->get(s, &key, NULL, &got, &err);
        free(got.bytes);
        if (st != ERR_STORE)
            return;
        if (test_now_ms() > end)
            fail_msg("it does not come back: %s", err.message);
    }
}

static void assert_metric(const char *line)
{
    char *text;
    size_t size;
    assert_int_equal(metrics_render(&text, &size, NULL), OK);
    if (strstr(text, line) == NULL)
        fail_msg("the metrics do not say \"%s\"", line);
    free(text);
}

/* ---- threads that use a store ----------------------------------------------------------------------------------- */

enum { USERS = 3, KILLS = 4 };

struct user {
    struct session_store *store;
    struct session_key key;
    uint64_t turn;            /* the last that was acknowledged */
    atomic_uint done, failed; /* calls */
    int wrong;
    pthread_t thread;
};

static struct user users[USERS];
static unsigned using; /* threads that run */
static atomic_bool is_over;

static enum status counted(struct user *u, enum status st)
{
    u->wrong += st != OK && st != ERR_STORE && st != ERR_CONFLICT;
    u->failed += st != OK;
    return st;
}

/* Each record says which turn it is of. A turn that was acknowledged is never lost, and none comes that nobody gave. */
static void *use(void *arg)
{
    struct user *u = arg;
    uint64_t most = 1; /* that was ever given */
    while (!atomic_load(&is_over)) {
        struct session_claim claim;
        struct session_bytes got;
        struct error err;
        char record[32];
        if (counted(u, u->store->kind->get(u->store, &u->key, &claim, &got, &err)) != OK) {
            test_sleep_ms(1);
            continue;
        }
        (void)snprintf(record, sizeof record, "%.*s", (int)got.size, (const char *)got.bytes);
        free(got.bytes);
        const uint64_t turn = strtoull(record, NULL, 10);
        u->wrong += turn < u->turn || turn > most;
        (void)snprintf(record, sizeof record, "%llu", (unsigned long long)turn + 1);
        const struct session_bytes bytes = {(uint8_t *)record, strlen(record)};
        most = turn + 1 > most ? turn + 1 : most;
        if (counted(u, u->store->kind->put(u->store, &u->key, &claim, &bytes, &err)) == OK) {
            u->turn = turn + 1;
            u->done++;
        }
    }
    return NULL;
}

static void begin_using(void)
{
    static const struct session_bytes record = {(uint8_t *)"1", 1};
    struct error err;
    atomic_store(&is_over, false);
    for (; using < USERS; using ++) {
        struct user *u = &users[using];
        *u = (struct user){.store = open_store(server.url), .key = {{0xef, (uint8_t) using}}, .turn = 1};
        check(u->store->kind->put(u->store, &u->key, NULL, &record, &err), &err, OK, "");
        assert_int_equal(pthread_create(&u->thread, NULL, use, u), 0);
    }
}

/* Wait until each has done, or failed at, one more call. A call that hangs ends the test. */
static void await_more(bool failed)
{
    for (struct user *u = users; u < users + USERS; u++) {
        const unsigned before = failed ? u->failed : u->done;
        for (const int64_t end = test_now_ms() + HANG_MS; (failed ? u->failed : u->done) == before; test_sleep_ms(2))
            assert_true(test_now_ms() < end);
    }
}

static void stop_using(void)
{
    atomic_store(&is_over, true);
    for (; using > 0; using --) {
        (void)pthread_join(users[using - 1].thread, NULL);
        users[using - 1].store->kind->free(users[using - 1].store);
    }
}

/* ---- what it says of itself ------------------------------------------------------------------------------------- */

static int kept_stderr = -1;
static char log_file[64];

static void begin_listening(bool listens)
{
    metrics_init(NULL, 0);
    redis_server_begin(&server, true, listens);
    const int fd = memfd_create("log", MFD_CLOEXEC); /* who logs shall not wait for a disk */
    (void)snprintf(log_file, sizeof log_file, "/proc/self/fd/%d", STDERR_FILENO);
    kept_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    assert_true(fd >= 0 && kept_stderr >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    (void)close(fd);
}

static void begin(void **state)
{
    (void)state;
    begin_listening(false);
}

/* Also if the test has failed, when its threads still run. */
static int end(void **state)
{
    (void)state;
    stop_using();
    if (kept_stderr >= 0) {
        size_t size;
        char *log = temp_read(log_file, &size);
        (void)!write(kept_stderr, log, size);
        free(log);
        (void)dup2(kept_stderr, STDERR_FILENO);
        (void)close(kept_stderr);
    }
    kept_stderr = -1;
    redis_server_end(&server);
    return 0;
}

/* How often the log says that so far. */
static unsigned logged(const char *what)
{
    size_t size;
    unsigned count = 0;
    char *log = temp_read(log_file, &size);
    for (const char *at = log; (at = strstr(at, what)) != NULL; at++)
        count++;
    free(log);
    return count;
}

/* ---- a name ----------------------------------------------------------------------------------------------------- */

#define SLOW_NAME "slow.invalid"

static atomic_bool is_slow;
static atomic_uint looking; /* threads that look it up */

/* In the place of the C library's: nobody knows that name, which may take long to learn. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(name, SLOW_NAME) != 0)
        return real(name, service, hints, ret);
    looking++;
    for (const int64_t end = test_now_ms() + HANG_MS; is_slow && test_now_ms() < end;)
        test_sleep_ms(1);
    looking--;
    return EAI_NONAME;
}

static void *look_once(void *arg)
{
    look(arg, ERR_STORE, "not found by its name");
    return NULL;
}

/* ---- away ------------------------------------------------------------------------------------------------------- */

static void a_server_that_is_gone_is_told_at_once_and_comes_back(void **state)
{
    begin(state);
    struct session_store *s = open_store(server.url);
    struct error err;
    assert_metric("\naftd_session_store_up 1\n");
    check(s->kind->put(s, &key, NULL, &first, &err), &err, OK, "");
    redis_server_kill(&server);
    look(s, ERR_STORE, "the session store cannot be connected to");
    assert_metric("\naftd_session_store_up 0\n");
    for (int i = 0; i < 20; i++)
        look(s, ERR_STORE, "is away, as it cannot be connected to");
    assert_metric("\naftd_session_store_errors_total 21\n");
    assert_int_equal(logged(" warning session store: unix:"), 1);
    assert_int_equal(logged("is away: it cannot be connected to"), 1);
    redis_server_start(&server);
    await_back(s);
    look(s, OK, "");
    assert_int_equal(logged("is back after"), 1);
    assert_int_equal(logged("is away"), 1);
    assert_metric("\naftd_session_store_up 1\n");
    s->kind->free(s);
}

static void a_daemon_starts_while_the_server_is_away(void **state)
{
    begin(state);
    redis_server_kill(&server);
    struct session_store *s = open_store(server.url);
    look(s, ERR_STORE, "is away");
    assert_int_equal(logged("is away: it cannot be connected to"), 1);
    redis_server_start(&server);
    await_back(s);
    look(s, ERR_NOT_FOUND, "no such session");
    s->kind->free(s);
    struct session_store *lost = open_store("redis://no-such-host.invalid:6379");
    look(lost, ERR_STORE, "not found by its name");
    lost->kind->free(lost);
}

static void a_server_that_stands_still_holds_up_one_call_a_second(void **state)
{
    begin(state);
    struct store_redis_options o = options_of(server.url);
    o.timeout_ms = SHORT_MS;
    struct session_store *s = open_store_with(&o);
    struct session_claim claim;
    struct session_bytes got;
    struct error err;
    check(s->kind->put(s, &key, NULL, &first, &err), &err, OK, "");
    check(s->kind->get(s, &key, &claim, &got, &err), &err, OK, "");
    free(got.bytes);
    redis_server_halt(&server);
    for (int i = 0; i < 2; i++) {
        test_sleep_ms((long)i * STORE_AWAY_MS);
        const int64_t begin_ms = test_now_ms();
        check(s->kind->put(s, &key, &claim, &second, &err), &err, ERR_STORE, "does not answer in time");
        assert_true(test_now_ms() - begin_ms >= SHORT_MS - 5);
        look(s, ERR_STORE, "is away, as it does not answer in time");
    }
    const int64_t begin_ms = test_now_ms();
    s->kind->let_go(s, &key, &claim);
    assert_true(test_now_ms() - begin_ms < SHORT_MS);
    redis_server_go_on(&server);
    await_back(s);
    /* What the server has executed late is done, and whole. */
    check(s->kind->get(s, &key, &claim, &got, &err), &err, OK, "");
    assert_int_equal(got.size, second.size);
    assert_memory_equal(got.bytes, second.bytes, second.size);
    free(got.bytes);
    check(s->kind->put(s, &key, &claim, &first, &err), &err, OK, "");
    s->kind->free(s);
}

static void a_name_that_is_looked_up_slowly_holds_up_one_call(void **state)
{
    begin(state);
    struct store_redis_options o = options_of("redis://" SLOW_NAME);
    o.timeout_ms = 1;
    struct session_store *s = open_store_with(&o);
    pthread_t thread;
    test_sleep_ms(STORE_AWAY_MS);
    atomic_store(&is_slow, true);
    assert_int_equal(pthread_create(&thread, NULL, look_once, s), 0);
    while (looking == 0)
        test_sleep_ms(1);
    for (const int64_t end = test_now_ms() + 2L * STORE_AWAY_MS; test_now_ms() < end; test_sleep_ms(10))
        look(s, ERR_STORE, "is away, as it is not found");
    atomic_store(&is_slow, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    look(s, ERR_STORE, "is away, as it is not found");
    s->kind->free(s);
}

static void connections_that_the_server_closes_are_made_anew(void **state)
{
    begin(state);
    struct session_store *s = open_store(server.url);
    struct session_claim claim;
    struct session_bytes got;
    struct error err;
    check(s->kind->put(s, &key, NULL, &first, &err), &err, OK, "");
    for (int turn = 1; turn < 20; turn++) {
        assert_true(redis_server_number(&server, "CLIENT KILL TYPE normal") >= 1);
        check(s->kind->get(s, &key, &claim, &got, &err), &err, OK, "");
        free(got.bytes);
        assert_true(redis_server_number(&server, "CLIENT KILL TYPE normal") >= 1);
        check(s->kind->put(s, &key, &claim, &first, &err), &err, OK, "");
    }
    assert_int_equal(logged("is away"), 0);
    s->kind->free(s);
}

/* ---- killed under use ------------------------------------------------------------------------------------------- */

static void a_server_that_is_killed_under_use_loses_nothing_it_has_acknowledged(void **state)
{
    begin(state);
    begin_using();
    for (int i = 0; i < KILLS; i++) {
        await_more(false);
        redis_server_kill(&server);
        if (i % 2 != 0)
            await_more(true);
        redis_server_start(&server);
    }
    await_more(false);
    stop_using();
    for (const struct user *u = users; u < users + USERS; u++) {
        print_message("  %u turns, %u calls failed\n", u->done, u->failed);
        assert_int_equal(u->wrong, 0);
    }
}

/* ---- not let in ------------------------------------------------------------------------------------------------- */

static void a_server_that_is_full_is_not_away(void **state)
{
    begin(state);
    struct session_store *s = open_store(server.url);
    struct session_claim claim;
    struct session_bytes got;
    struct error err;
    check(s->kind->put(s, &key, NULL, &first, &err), &err, OK, "");
    check(s->kind->get(s, &key, &claim, &got, &err), &err, OK, "");
    free(got.bytes);
    assert_string_equal(redis_server_ask(&server, "CONFIG SET maxmemory 1"), "+OK\r\n");
    check(s->kind->put(s, &key, &claim, &second, &err), &err, ERR_STORE, "is full");
    look(s, OK, "");
    check(s->kind->put(s, &(struct session_key){{7}}, NULL, &first, &err), &err, ERR_STORE, "is full");
    check(s->kind->remove(s, &key, &err), &err, OK, "");
    look(s, ERR_NOT_FOUND, "");
    s->kind->free(s);
    s = open_store(server.url); /* also from the beginning */
    assert_int_equal(logged("is away"), 0);
    s->kind->free(s);
}

static void wrong_passwords_and_databases_are_refused(void **state)
{
    (void)state;
    begin_listening(true);
    struct store_redis_options o = options_of(server.url);
    char file[PATH_MAX], url[200];
    struct error err;
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u/15", (unsigned)server.port);
    o.url = url;
    struct session_store *s = open_store_with(&o);
    check(s->kind->put(s, &key, NULL, &first, &err), &err, OK, "");
    assert_int_equal(redis_server_number(&server, "EXISTS aftd:" HEX), 0); /* of database 0 */
    s->kind->free(s);
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u/16", (unsigned)server.port);
    refuse(&o, ERR_CONFIG, "refuses the database, and says: ERR DB index is out of range");
    temp_path(file, server.dir, "password");
    temp_write(file, "right\n", 6);
    o.url = server.url;
    o.password_file = file;
    refuse(&o, ERR_CONFIG, "refuses the user or the password");
    assert_string_equal(redis_server_ask(&server, "ACL SETUSER aftd on >of:aftd ~aftd:* +@all"), "+OK\r\n");
    assert_string_equal(redis_server_ask(&server, "ACL SETUSER weak on >weak ~other:* +@all"), "+OK\r\n");
    assert_string_equal(redis_server_ask(&server, "ACL SETUSER plain on >plain ~* +@all -eval"), "+OK\r\n");
    assert_string_equal(redis_server_ask(&server, "CONFIG SET requirepass right"), "+OK\r\n");
    static const struct {
        const char *text;
        enum status expected;
        const char *message;
    } cases[] = {
        {"right", OK, ""},
        {"right\r\n", OK, ""},
        {"default:right\n", OK, ""},
        {"aftd:of:aftd\n", OK, ""},
        {"wrong\n", ERR_CONFIG, "refuses the user or the password, and says: WRONGPASS"},
        {"weak:weak\n", ERR_CONFIG, "NOPERM"},
        {"plain:plain\n", ERR_CONFIG, "NOPERM"}, /* who may do all else */
        {"", ERR_FORMAT, "password: expected one line, PASSWORD or USER:PASSWORD"},
        {"user:\n", ERR_FORMAT, "expected one line"},
        {"right\nright\n", ERR_FORMAT, "expected one line"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        temp_write(file, cases[i].text, strlen(cases[i].text));
        if (cases[i].expected != OK) {
            refuse(&o, cases[i].expected, cases[i].message);
            continue;
        }
        s = open_store_with(&o);
        look(s, ERR_NOT_FOUND, "");
        s->kind->free(s);
    }
    o.password_file = NULL;
    refuse(&o, ERR_CONFIG, "NOAUTH");
    o.password_file = "no/such/file";
    refuse(&o, ERR_IO, "no/such/file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_server_that_is_gone_is_told_at_once_and_comes_back, end),
        cmocka_unit_test_teardown(a_daemon_starts_while_the_server_is_away, end),
        cmocka_unit_test_teardown(a_server_that_stands_still_holds_up_one_call_a_second, end),
        cmocka_unit_test_teardown(a_name_that_is_looked_up_slowly_holds_up_one_call, end),
        cmocka_unit_test_teardown(connections_that_the_server_closes_are_made_anew, end),
        cmocka_unit_test_teardown(a_server_that_is_killed_under_use_loses_nothing_it_has_acknowledged, end),
        cmocka_unit_test_teardown(a_server_that_is_full_is_not_away, end),
        cmocka_unit_test_teardown(wrong_passwords_and_databases_are_refused, end),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("store_redis, away", tests, NULL, NULL);
}
