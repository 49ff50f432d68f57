/* test_store_redis_memory.c - the store in a Redis server while memory is short: each allocation of each function
 * is refused in its turn, alone and with all that follow. That is told, makes no server away, and leaves nothing that
 * could not go on. The program's own functions refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/session/store_redis.h"
#include "tests/support/daemon.h"
#include "tests/support/redis_server.h"
#include "tests/support/refused_memory.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, RECORD_BYTES = 100000 };

static struct redis_server server;
static uint8_t record_bytes[RECORD_BYTES];
static const struct session_bytes record = {record_bytes, RECORD_BYTES};
static const struct session_key key = {{1}};

static struct store_redis_options options(const char *url, const char *password_file)
{
    return (struct store_redis_options){.url = url,
                                        .password_file = password_file,
                                        .prefix = "aftd:",
                                        .name = "one",
                                        .lease_ms = 60000,
                                        .timeout_ms = 20000,
                                        .ttl_s = 1000};
}

static void begin(void **state)
{
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    redis_server_begin(&server, false, true);
}

static int end(void **state)
{
    (void)state;
    redis_server_end(&server);
    return 0;
}

static void assert_told(enum status st, const struct error *err)
{
    if (st != ERR_NOMEM || strstr(err->message, "memory") == NULL)
        fail_msg("%s: %s", status_name(st), err->message);
}

/* Each returns what the function that it is about has returned while memory was short; the rest, which puts things
 * right again, must succeed. */

static void must(enum status st, const struct error *err)
{
    if (st != OK)
        fail_msg("%s: %s", status_name(st), err->message);
}

/* It need not be there. */
static void clear(struct session_store *s)
{
    struct error why;
    const enum status st = s->kind->remove(s, &key, &why);
    must(st == ERR_NOT_FOUND ? OK : st, &why);
}

static enum status short_add(struct session_store *s, long n, bool stays, bool *reached, struct error *err)
{
    refuse_memory(n, stays);
    const enum status st = s->kind->put(s, &key, NULL, &record, err);
    *reached = give_memory();
    clear(s);
    return st;
}

static enum status short_take(struct session_store *s, long n, bool stays, bool *reached, struct error *err)
{
    struct error why;
    struct session_claim claim;
    struct session_bytes got = {NULL, 0};
    must(s->kind->put(s, &key, NULL, &record, &why), &why);
    refuse_memory(n, stays);
    const enum status st = s->kind->get(s, &key, &claim, &got, err);
    *reached = give_memory();
    if (st != OK) { /* the daemon itself need not wait until the lease expires */
        assert_null(got.bytes);
        must(s->kind->get(s, &key, &claim, &got, &why), &why);
    }
    assert_int_equal(got.size, RECORD_BYTES);
    free(got.bytes);
    must(s->kind->put(s, &key, &claim, &record, &why), &why);
    clear(s);
    return st;
}

static enum status short_put(struct session_store *s, long n, bool stays, bool *reached, struct error *err)
{
    struct error why;
    struct session_claim claim;
    struct session_bytes got = {NULL, 0};
    must(s->kind->put(s, &key, NULL, &record, &why), &why);
    must(s->kind->get(s, &key, &claim, &got, &why), &why);
    free(got.bytes);
    refuse_memory(n, stays);
    const enum status st = s->kind->put(s, &key, &claim, &record, err);
    *reached = give_memory();
    must(s->kind->get(s, &key, &claim, &got, &why), &why);
    assert_int_equal(got.size, RECORD_BYTES);
    free(got.bytes);
    must(s->kind->put(s, &key, &claim, &record, &why), &why);
    clear(s);
    return st;
}

static enum status short_look(struct session_store *s, long n, bool stays, bool *reached, struct error *err)
{
    struct error why;
    struct session_bytes got = {NULL, 0};
    must(s->kind->put(s, &key, NULL, &record, &why), &why);
    refuse_memory(n, stays);
    const enum status st = s->kind->get(s, &key, NULL, &got, err);
    *reached = give_memory();
    assert_true((st == OK) == (got.bytes != NULL));
    free(got.bytes);
    clear(s);
    return st;
}

static enum status short_others(struct session_store *s, long n, bool stays, bool *reached, struct error *err)
{
    struct error why;
    must(s->kind->put(s, &key, NULL, &record, &why), &why);
    refuse_memory(n, stays);
    s->kind->let_go(s, &key, &(struct session_claim){.token = "x"});
    const enum status st = s->kind->remove(s, &key, err);
    *reached = give_memory();
    clear(s);
    return st;
}

typedef enum status (*short_function)(struct session_store *s, long n, bool stays, bool *reached, struct error *err);

static unsigned without_each(struct session_store *s, short_function f, bool stays, bool anew)
{
    unsigned refused = 0;
    for (long n = 1;; n++) {
        struct error err = {.message = ""};
        bool reached;
        assert_true(n < ALLOCATIONS_MAX);
        if (anew) /* so that connecting is part of it */
            (void)redis_server_ask(&server, "CLIENT KILL TYPE normal");
        const enum status st = f(s, n, stays, &reached, &err);
        if (st != OK)
            assert_told(st, &err);
        refused += st != OK;
        if (!reached)
            return refused;
    }
}

static void calls_that_find_no_memory_are_refused_and_go_on(void **state)
{
    begin(state);
    static const short_function functions[] = {short_add, short_take, short_put, short_look, short_others};
    const struct store_redis_options o = options(server.url, NULL);
    struct session_store *s;
    struct error err;
    must(store_redis_open(&s, &o, &err), &err);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        for (int way = 0; way < 4; way++) {
            const unsigned refused = without_each(s, functions[i], way % 2 == 1, way >= 2);
            print_message("  function %zu: refused %u times\n", i, refused);
            assert_true(refused >= 2);
        }
    s->kind->free(s);
}

static void opening_finds_no_memory(void **state)
{
    begin(state);
    char url[64], file[PATH_MAX];
    /* not a name: where memory is short, glibc 2.36 ends a process that looks one up for the first time */
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u/1", (unsigned)server.port);
    temp_path(file, server.dir, "password");
    temp_write(file, "default:right\n", 14);
    assert_string_equal(redis_server_ask(&server, "CONFIG SET requirepass right"), "+OK\r\n");
    const struct store_redis_options o = options(url, file);
    for (int stays = 0; stays < 2; stays++) {
        unsigned refused = 0;
        bool reached = true;
        for (long n = 1; reached; n++) {
            struct session_store *s = NULL;
            struct error err = {.message = ""};
            assert_true(n < ALLOCATIONS_MAX);
            refuse_memory(n, stays == 1);
            const enum status st = store_redis_open(&s, &o, &err);
            reached = give_memory();
            if (st == OK)
                s->kind->free(s);
            else
                assert_told(st, &err);
            refused += st != OK;
        }
        print_message("  opening: refused %u times\n", refused);
        assert_true(refused > 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(calls_that_find_no_memory_are_refused_and_go_on, end),
        cmocka_unit_test_teardown(opening_finds_no_memory, end),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("store_redis, memory", tests, NULL, NULL);
}
