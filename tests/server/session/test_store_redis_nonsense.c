/* test_store_redis_nonsense.c - options of the store that are wrong, and a server that answers anything but what a
 * Redis server would: each is told, within the time limit, and does no harm. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/session/store_redis.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define W "0123456789abcdef0123456789abcdef0000000000000001"

enum { LIMIT_S = 580, SHORT_MS = 200, MUTATED = 300 };

static const struct session_key key = {{1}};

static struct store_redis_options options_of(const char *url)
{
    return (struct store_redis_options){
        .url = url, .prefix = "aftd:", .name = "one", .lease_ms = 1000, .timeout_ms = HANG_MS, .ttl_s = 1000};
}

/* ---- options ---------------------------------------------------------------------------------------------------- */

static void wrong_urls_are_refused(void **state)
{
    static const struct {
        const char *url;
        enum status expected;
        const char *message;
    } cases[] = {
        {"redis://localhost", OK, ""},
        {"redis://localhost/", OK, ""},
        {"redis://localhost:6380/3", OK, ""},
        {"redis://10.0.0.1:6379", OK, ""},
        {"redis://[::1]", OK, ""},
        {"redis://[::1]:6379/0", OK, ""},
        {"redis://a-b.example.:1/65535", OK, ""},
        {"unix:/run/redis.sock", OK, ""},
        {"unix:/run/redis.sock?db=15", OK, ""},
        {"", ERR_CONFIG, "is \"\", expected redis://HOST:PORT/DB or unix:/PATH?db=DB"},
        {"localhost:6379", ERR_CONFIG, "expected redis://"},
        {"http://localhost", ERR_CONFIG, "expected redis://"},
        {"rediss://localhost", ERR_CONFIG, "TLS is not supported"},
        {"redis://", ERR_CONFIG, "HOST is a name"},
        {"redis:///1", ERR_CONFIG, "HOST is a name"},
        {"redis://:6379", ERR_CONFIG, "HOST is a name"},
        {"redis://::1", ERR_CONFIG, "HOST is a name"},
        {"redis://[::1", ERR_CONFIG, "HOST is a name"},
        {"redis://[]", ERR_CONFIG, "HOST is a name"},
        {"redis://[::1]6379", ERR_CONFIG, "HOST is a name"},
        {"redis://a b", ERR_CONFIG, "HOST is a name"},
        {"redis://host?db=1", ERR_CONFIG, "HOST is a name"},
        {"redis://host:", ERR_CONFIG, "a port from 1 to 65535"},
        {"redis://host:0", ERR_CONFIG, "a port from 1 to 65535"},
        {"redis://host:65536", ERR_CONFIG, "a port from 1 to 65535"},
        {"redis://host:+1", ERR_CONFIG, "a port from 1 to 65535"},
        {"redis://host:1x", ERR_CONFIG, "a port from 1 to 65535"},
        {"redis://host/x", ERR_CONFIG, "a database's number"},
        {"redis://host/-1", ERR_CONFIG, "a database's number"},
        {"redis://host/1/2", ERR_CONFIG, "a database's number"},
        {"redis://host/65536", ERR_CONFIG, "a database's number"},
        {"redis://host/4294967297", ERR_CONFIG, "a database's number"},
        {"redis://user:geheim@host", ERR_CONFIG, "holds a user or a password"},
        {"unix:redis.sock", ERR_CONFIG, "an absolute path of at most 107 bytes"},
        {"unix:/", ERR_CONFIG, "an absolute path"},
        {"unix:/run/redis.sock?db=", ERR_CONFIG, "a database's number"},
        {"unix:/run/redis.sock?x=1", ERR_CONFIG, "nothing but ?db=NUMBER"},
    };
    char file[200] = "unix:/";
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct store_redis_options o = options_of(cases[i].url);
        struct error err = {.message = ""};
        const enum status st = store_redis_check(&o, &err);
        if (st != cases[i].expected || strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s: %s; expected %s", cases[i].url, status_name(st), err.message, cases[i].message);
        assert_null(strstr(err.message, "geheim"));
    }
    memset(file + 6, 'a', 106);
    assert_int_equal(store_redis_check(&(struct store_redis_options){file, NULL, "", "n", 1, 1, 1}, NULL), OK);
    file[6 + 106] = 'a';
    assert_int_equal(store_redis_check(&(struct store_redis_options){file, NULL, "", "n", 1, 1, 1}, NULL), ERR_CONFIG);
}

static void wrong_options_are_refused(void **state)
{
    static const char long_text[] = "123456789a123456789b123456789c123456789d123456789e123456789f12345";
    static const struct {
        struct store_redis_options o;
        const char *message; /* NULL: it is fine */
    } cases[] = {
        {{"redis://h", NULL, "", "n", 1, 1, 1}, NULL},
        {{"redis://h", "", long_text + 1, long_text + 1, 1, 1, 1}, NULL},
        {{"redis://h", NULL, long_text, "n", 1, 1, 1}, "the prefix of the session store's keys"},
        {{"redis://h", NULL, "a b", "n", 1, 1, 1}, "the prefix of the session store's keys is \"a b\""},
        {{"redis://h", NULL, "", long_text, 1, 1, 1}, "the daemon's name"},
        {{"redis://h", NULL, "", "", 1, 1, 1}, "the daemon's name"},
        {{"redis://h", NULL, "", "\xc3\xa4", 1, 1, 1}, "the daemon's name"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct session_store *s = NULL;
        struct error err = {.message = ""};
        const enum status st = store_redis_check(&cases[i].o, &err);
        if ((cases[i].message == NULL) != (st == OK) || st != (st == OK ? OK : ERR_CONFIG) ||
            (st != OK && strstr(err.message, cases[i].message) == NULL))
            fail_msg("%zu: %s: %s; expected %s", i, status_name(st), err.message, cases[i].message);
        if (st != OK)
            assert_int_equal(store_redis_open(&s, &cases[i].o, &err), ERR_CONFIG);
    }
}

/* ---- a server of nonsense --------------------------------------------------------------------------------------- */

enum manner { AT_ONCE, SLOWLY, SLOWLY_WITHOUT_END, THEN_CLOSE, WITHOUT_END };

/* Answers the first command of each connection with `first`, the others with `later`, in that manner. If it closes, the
 * first command of all: the client that it leaves tries once more. */
struct nonsense {
    const char *first, *later;
    size_t later_size;
    enum manner manner;
    int listener;
    atomic_bool is_over;
    bool has_begun;
    char dir[PATH_MAX], url[128];
    pthread_t thread;
};

enum { CONNECTIONS_MAX = 16 };

struct guest {
    int fd;
    unsigned asked;
    size_t sent; /* of `later` */
};

/* False: it is to be closed. */
static bool answer(struct nonsense *n, struct guest *g)
{
    char command[65536];
    const ssize_t got = recv(g->fd, command, sizeof command, MSG_DONTWAIT);
    if (got == 0)
        return false;
    if (got > 0 && g->asked++ == 0 && !(n->manner == THEN_CLOSE && n->has_begun)) {
        n->has_begun = true;
        return send(g->fd, n->first, strlen(n->first), MSG_NOSIGNAL) >= 0;
    }
    if (g->asked < (n->manner == THEN_CLOSE ? 1 : 2))
        return true;
    if (n->manner == WITHOUT_END) {
        for (int i = 0; i < 100; i++)
            (void)send(g->fd, n->later, n->later_size, MSG_NOSIGNAL | MSG_DONTWAIT);
    } else if (n->manner == SLOWLY_WITHOUT_END || (n->manner == SLOWLY && g->sent < n->later_size)) {
        (void)send(g->fd, n->later + g->sent % n->later_size, 1, MSG_NOSIGNAL);
        g->sent++;
    } else if (got > 0 && n->manner != SLOWLY) {
        (void)send(g->fd, n->later, n->later_size, MSG_NOSIGNAL);
        return n->manner != THEN_CLOSE;
    }
    return true;
}

static void *talk(void *arg)
{
    struct nonsense *n = arg;
    struct guest guests[CONNECTIONS_MAX];
    size_t count = 0;
    while (!atomic_load(&n->is_over)) {
        struct pollfd fds[CONNECTIONS_MAX + 1] = {{.fd = n->listener, .events = POLLIN}};
        for (size_t i = 0; i < count; i++)
            fds[i + 1] = (struct pollfd){.fd = guests[i].fd, .events = POLLIN};
        (void)poll(fds, count + 1, 2);
        for (size_t i = count; i > 0; i--)
            if (!answer(n, &guests[i - 1])) {
                (void)close(guests[i - 1].fd);
                guests[i - 1] = guests[--count];
            }
        if ((fds[0].revents & POLLIN) != 0 && count < CONNECTIONS_MAX) {
            guests[count] = (struct guest){.fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC)};
            count += guests[count].fd >= 0;
        }
    }
    for (size_t i = 0; i < count; i++)
        (void)close(guests[i].fd);
    return NULL;
}

static void nonsense_begin(struct nonsense *n)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    temp_dir_create(n->dir);
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%.90s/socket", n->dir);
    (void)snprintf(n->url, sizeof n->url, "unix:%s", name.sun_path);
    n->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(n->listener >= 0);
    assert_int_equal(bind(n->listener, (const struct sockaddr *)(const void *)&name, sizeof name), 0);
    assert_int_equal(listen(n->listener, CONNECTIONS_MAX), 0);
    atomic_store(&n->is_over, false);
    assert_int_equal(pthread_create(&n->thread, NULL, talk, n), 0);
}

static void nonsense_end(struct nonsense *n)
{
    atomic_store(&n->is_over, true);
    assert_int_equal(pthread_join(n->thread, NULL), 0);
    (void)close(n->listener);
    temp_dir_remove(n->dir);
}

/* Opens a store with it, and looks for a session: the status of that and its message. */
static enum status look_there(struct nonsense *n, uint32_t timeout_ms, struct error *err)
{
    struct session_store *s;
    struct session_bytes got = {NULL, 0};
    nonsense_begin(n);
    struct store_redis_options o = options_of(n->url);
    o.timeout_ms = timeout_ms;
    if (store_redis_open(&s, &o, err) != OK)
        fail_msg("%s", err->message);
    err->message[0] = '\0';
    const enum status st = s->kind->get(s, &key, NULL, &got, err);
    free(got.bytes);
    s->kind->free(s);
    nonsense_end(n);
    return st;
}

static void a_server_that_answers_nonsense_is_told(void **state)
{
    static char endless[4096];
    static const struct {
        const char *later;
        enum manner manner;
        enum status expected;
        const char *message;
    } cases[] = {
        {"$1\r\nN\r\n", AT_ONCE, ERR_NOT_FOUND, "no such session"},
        {"+N\r\n", AT_ONCE, ERR_NOT_FOUND, "no such session"},
        {"$49\r\nR" W "\r\n", AT_ONCE, OK, ""},
        {"$51\r\nR" W "ab\r\n", SLOWLY, OK, ""},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"*1\r\n$1\r\nN\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"*2147483647\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"%1\r\n+a\r\n+b\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"$-1\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"$-2\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {":1\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {":9223372036854775808\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"$99999999999999999999999\r\n", AT_ONCE, ERR_STORE, "does not answer as a Redis server would"},
        {"$999999999999\r\nabc", AT_ONCE, ERR_STORE, "in time"},
        {"$1\r\nN\r\n$1\r\nN\r\n", AT_ONCE, ERR_STORE, "more than was asked for"},
        {"$1\r\nN\r\n$", AT_ONCE, ERR_STORE, "more than was asked for"},
        {"$0\r\n\r\n", AT_ONCE, ERR_STORE, "what was not expected"},
        {"$1\r\nZ\r\n", AT_ONCE, ERR_STORE, "what was not expected"},
        {"$1\r\nR\r\n", AT_ONCE, ERR_STORE, "what was not expected"},
        {"$49\r\nS" W "\r\n", AT_ONCE, ERR_STORE, "what was not expected"},
        {"-\r\n", AT_ONCE, ERR_STORE, "says: "},
        {"-ERR \x1b[31m red\r\n", AT_ONCE, ERR_STORE, "says: ERR ?[31m red"},
        {"-LOADING Redis is loading the dataset in memory\r\n", AT_ONCE, ERR_STORE, "says: LOADING"},
        {"-READONLY You can't write against a read only replica.\r\n", AT_ONCE, ERR_STORE, "says: READONLY"},
        {"-MOVED 1 127.0.0.1:7\r\n", AT_ONCE, ERR_STORE, "says: MOVED"},
        {"-NOSCRIPT No matching script.\r\n", AT_ONCE, ERR_STORE, "says: NOSCRIPT"},
        {"$1\r\n", AT_ONCE, ERR_STORE, "in time"},
        {"$", AT_ONCE, ERR_STORE, "in time"},
        {"$9000\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", SLOWLY_WITHOUT_END, ERR_STORE, "in time"},
        {"$4\r\nab", THEN_CLOSE, ERR_STORE, "closed the connection"},
        {"$67108864\r\naaaa", THEN_CLOSE, ERR_STORE, "closed the connection"},
        {endless, WITHOUT_END, ERR_STORE, ""},
    };
    (void)state;
    memset(endless, '+', sizeof endless - 1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct nonsense n = {.first = "+OK\r\n",
                             .later = cases[i].later,
                             .later_size = strlen(cases[i].later),
                             .manner = cases[i].manner};
        struct error err;
        const bool is_late = strcmp(cases[i].message, "in time") == 0 || cases[i].manner == WITHOUT_END;
        const enum status st = look_there(&n, is_late ? SHORT_MS : HANG_MS, &err);
        if (st != cases[i].expected || strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s: %s; expected %s", cases[i].later, status_name(st), err.message, cases[i].message);
    }
}

static void a_server_that_begins_with_nonsense_is_refused(void **state)
{
    static const struct {
        const char *first;
        enum status expected;
        const char *message;
    } cases[] = {
        {"+OK\r\n", OK, ""},
        {"$2\r\nOK\r\n", OK, ""},
        {"HTTP/1.1 400 Bad Request\r\n", ERR_STORE, "does not answer as a Redis server would"},
        {"220 mail.example ESMTP\r\n", ERR_STORE, "does not answer as a Redis server would"},
        {"$1\r\nX\r\n", ERR_STORE, "does not answer as a Redis server would"},
        {"-ERR unknown command 'EVAL'\r\n", ERR_STORE, "says: ERR unknown command"},
        {"-MOVED 1 127.0.0.1:7\r\n", ERR_STORE, "says: MOVED"},
        {"-DENIED Redis is running in protected mode\r\n", ERR_CONFIG, "says: DENIED"},
        {"-MISCONF Redis is configured to save\r\n", OK, ""}, /* it may come to itself */
        {"", OK, ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct nonsense n = {.first = cases[i].first, .later = "", .manner = AT_ONCE};
        struct session_store *s = NULL;
        struct error err = {.message = ""};
        nonsense_begin(&n);
        struct store_redis_options o = options_of(n.url);
        o.timeout_ms = cases[i].first[0] == '\0' ? SHORT_MS : HANG_MS;
        const enum status st = store_redis_open(&s, &o, &err);
        if (st != cases[i].expected || strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s: %s; expected %s", cases[i].first, status_name(st), err.message, cases[i].message);
        if (st == OK)
            s->kind->free(s);
        nonsense_end(&n);
    }
}

static void answers_with_wrong_bytes_do_no_harm(void **state)
{
    static const char good[] = "$60\r\nR" W "a record xx\r\n";
    struct random random = {.state = 7};
    unsigned counts[2] = {0};
    (void)state;
    for (int i = 0; i < test_work(MUTATED); i++) {
        char bytes[sizeof good];
        memcpy(bytes, good, sizeof good);
        for (uint64_t changes = 1 + random_next(&random) % 3; changes > 0; changes--)
            bytes[random_next(&random) % (i % 2 == 0 ? 8 : sizeof good - 1)] = (char)random_next(&random);
        struct nonsense n = {.first = "+OK\r\n", .later = bytes, .later_size = sizeof good - 1, .manner = THEN_CLOSE};
        struct error err;
        const enum status st = look_there(&n, HANG_MS, &err);
        assert_true(st == OK || st == ERR_STORE || st == ERR_NOT_FOUND || st == ERR_CONFLICT);
        counts[st == OK]++;
    }
    assert_true(counts[0] > 0 && counts[1] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_urls_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(a_server_that_answers_nonsense_is_told),
        cmocka_unit_test(a_server_that_begins_with_nonsense_is_refused),
        cmocka_unit_test(answers_with_wrong_bytes_do_no_harm),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("store_redis, nonsense", tests, NULL, NULL);
}
