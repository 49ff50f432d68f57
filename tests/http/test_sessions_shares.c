/* test_sessions_shares.c - clients that take all the sessions that they can get leave some for others: by key, and by
 * address where there are no keys; and they are told when to come again. Real daemons; a proxy that is believed says
 * who the clients are. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

enum { LIMIT_S = 580, HOSTILE = 8, MANY = 400, HEADER_MAX = KEYS_TEXT_MAX + 32, TTL_S = 2000 };

static struct daemon aftd;
static char dir[PATH_MAX];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

static void create(const char *header, struct reply *ret)
{
    const char *const headers[] = {header, NULL};
    const struct request r = {
        .path = "/v1/sessions", .type = "application/json", .body = "{}", .size = 2, .headers = headers};
    client_call(&aftd, &r, ret);
}

/* As many sessions as the client of that header gets; then it is refused with `status` and told when to come again. */
static unsigned take_all(const char *header, long status, const char *code, const char *says)
{
    char seconds[16];
    for (unsigned got = 0; got <= MANY; got++) {
        struct reply r;
        create(header, &r);
        const bool fine = r.status == 201;
        if (!fine) {
            reply_assert_error(&r, status, code, NULL, says);
            assert_true(reply_header(&r, "Retry-After", seconds, sizeof seconds));
            const char *first = strstr(r.headers, "Retry-After:");
            assert_null(strstr(first + 1, "Retry-After:"));                /* and nothing else */
            assert_in_range(strtoul(seconds, NULL, 10), TTL_S / 2, TTL_S); /* when the first ends, not the queue */
        }
        reply_clear(&r);
        if (!fine)
            return got;
    }
    fail_msg("%s: there is no end", header);
    return 0;
}

static const char *of_address(unsigned number)
{
    static char header[64];
    (void)snprintf(header, sizeof header, "X-Forwarded-For: 192.0.2.%u", number);
    return header;
}

static void clients_without_keys_are_told_apart_by_their_addresses(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--trusted-proxies=127.0.0.1", "--session-ttl-s=2000", NULL});
    for (unsigned i = 1; i <= HOSTILE; i++)
        assert_int_equal(take_all(of_address(i), 503, "sessions_full", "kept for clients"), i == 1 ? 192 : 4);
    for (unsigned i = 100; i < 109; i++)
        assert_int_equal(take_all(of_address(i), 503, "sessions_full", NULL), 4);
    assert_int_equal(take_all(of_address(200), 503, "sessions_full", "256 of at most 256 sessions"), 0);
    assert_true(client_metric(&aftd, "aftd_sessions ") == 256);
    daemon_stop(&aftd);
}

static void keys_are_told_apart_wherever_they_come_from(void **state)
{
    (void)state;
    char file[PATH_MAX], flag[PATH_MAX + 16], headers[3][HEADER_MAX];
    static const char *const names[] = {"greedy", "other", "third"};
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    for (size_t i = 0; i < 3; i++) {
        char key[KEYS_TEXT_MAX];
        keys_add(file, names[i], NULL, key);
        (void)snprintf(headers[i], sizeof headers[i], "X-API-Key: %s", key);
    }
    daemon_start(&aftd, (const char *const[]){flag, "--sessions-max=64", "--session-ttl-s=2000", NULL});
    assert_int_equal(take_all(headers[0], 503, "sessions_full", "the key has 48 of 48 sessions"), 48);
    assert_int_equal(take_all(headers[1], 503, "sessions_full", "the key has 1 of 49 sessions"), 1);
    assert_int_equal(take_all(headers[2], 503, "sessions_full", NULL), 1);
    daemon_stop(&aftd);
}

/* Who sets a number for each client means it: also as many as there are. */
static void a_number_for_each_client_is_what_each_gets(void **state)
{
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--trusted-proxies=127.0.0.1", "--session-ttl-s=2000",
                                              "--sessions-max=64", "--sessions-per-key-max=40", NULL});
    assert_int_equal(take_all(of_address(1), 429, "rate_limit_exceeded", "the client's address has 40 of at most 40"),
                     40);
    assert_int_equal(take_all(of_address(2), 503, "sessions_full", "64 of at most 64 sessions"), 24);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clients_without_keys_are_told_apart_by_their_addresses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_are_told_apart_wherever_they_come_from, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_number_for_each_client_is_what_each_gets, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_sessions_shares", tests, NULL, NULL);
}
