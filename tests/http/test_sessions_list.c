/* test_sessions_list.c - GET /v1/sessions: whose sessions it lists, in which order, page by page, and that it is no
 * use of them. The real daemon. */
#include <jansson.h>
#include <limits.h>
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

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum { LIMIT_S = 580, MANY = 7, HEADER_MAX = KEYS_TEXT_MAX + 32 };

static struct daemon here;
static char dir[PATH_MAX];
static char alice[HEADER_MAX], bob[HEADER_MAX]; /* the headers with their keys */

static void add_key(const char *file, const char *name, char header[HEADER_MAX])
{
    char key[KEYS_TEXT_MAX];
    keys_add(file, name, NULL, key);
    (void)snprintf(header, HEADER_MAX, "Authorization: Bearer %s", key);
}

/* A daemon with two keys; `flag` may be NULL. */
static void start(const char *flag)
{
    char file[PATH_MAX], keys[PATH_MAX + 32];
    temp_path(file, dir, "keys.json");
    add_key(file, "alice", alice);
    add_key(file, "bob", bob);
    (void)snprintf(keys, sizeof keys, "--keys-file=%s", file);
    daemon_start(&here, (const char *const[]){keys, flag, NULL});
}

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&here);
    temp_dir_remove(dir);
    return 0;
}

/* A call to a session of alice's; NULL unless it answers with JSON. */
static json_t *call_hers(const char *method, const char *id, const char *what, const char *body, long status)
{
    const char *const headers[] = {alice, NULL};
    char path[128];
    struct reply r;
    (void)snprintf(path, sizeof path, "/v1/sessions/%s%s", id, what);
    client_call(
        &here,
        &(struct request){
            .method = method, .path = path, .body = body, .size = body != NULL ? strlen(body) : 0, .headers = headers},
        &r);
    if (r.status != status)
        fail_msg("%s %s: %ld %s", method, path, r.status, r.body);
    json_t *answer = status != 204 ? reply_json(&r) : NULL;
    reply_clear(&r);
    return answer;
}

static void delete_hers(const char *id)
{
    (void)call_hers("DELETE", id, "", NULL, 204);
}

/* As the client that `header` names; NULL: none. */
static json_t *list_as(const char *header, const char *query)
{
    char path[100];
    const char *const headers[] = {header, NULL};
    struct reply r;
    (void)snprintf(path, sizeof path, "/v1/sessions%s", query);
    client_call(&here, &(struct request){.path = path, .headers = headers}, &r);
    if (r.status != 200)
        fail_msg("%s: %s", path, r.body);
    json_t *page = reply_json(&r);
    reply_clear(&r);
    return page;
}

static void create_as(const char *header, char id[TEST_SESSION_ID_BYTES])
{
    const char *const headers[] = {header, NULL};
    struct reply r;
    client_call(&here, &(struct request){.path = "/v1/sessions", .body = "{}", .size = 2, .headers = headers}, &r);
    assert_int_equal(r.status, 201);
    json_t *session = reply_json(&r);
    (void)snprintf(id, TEST_SESSION_ID_BYTES, "%s", json_string_value(json_object_get(session, "id")));
    json_decref(session);
    reply_clear(&r);
}

static const char *id_at(const json_t *page, size_t i)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(page, "sessions"), i), "id"));
}

static void assert_page(const json_t *page, size_t count, json_int_t total)
{
    assert_int_equal(json_array_size(json_object_get(page, "sessions")), count);
    assert_int_equal(json_integer_value(json_object_get(page, "total")), total);
}

static void sessions_come_the_newest_first_with_what_each_tells(void **state)
{
    char ids[3][TEST_SESSION_ID_BYTES];
    (void)state;
    start(NULL);
    json_t *page = list_as(alice, "");
    assert_page(page, 0, 0);
    assert_true(json_is_null(json_object_get(page, "next")));
    json_decref(page);
    create_as(alice, ids[0]);
    create_as(alice, ids[1]);
    json_t *forks = call_hers("POST", ids[0], "/fork", "{\"n\": 1}", 201);
    (void)snprintf(ids[2], sizeof ids[2], "%s", id_at(forks, 0));
    json_decref(forks);
    json_decref(call_hers("GET", ids[0], "", NULL, 200)); /* a use makes it no newer */
    page = list_as(alice, "");
    assert_page(page, 3, 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *one = call_hers("GET", ids[2 - i], "", NULL, 200);
        assert_true(json_equal(json_array_get(json_object_get(page, "sessions"), i), one));
        json_decref(one);
    }
    json_decref(page);
    delete_hers(ids[1]);
    page = list_as(alice, "");
    assert_page(page, 2, 2);
    assert_string_equal(id_at(page, 0), ids[2]);
    assert_string_equal(id_at(page, 1), ids[0]);
    json_decref(page);
    daemon_stop(&here);
}

/* What is made or ended between two pages neither repeats a session nor hides one. */
static void pages_follow_each_other_whatever_happens_meanwhile(void **state)
{
    char ids[MANY][TEST_SESSION_ID_BYTES], more[TEST_SESSION_ID_BYTES], query[64];
    (void)state;
    start(NULL);
    for (size_t i = 0; i < MANY; i++)
        create_as(alice, ids[i]);
    json_t *page = list_as(alice, "?limit=3");
    assert_page(page, 3, MANY);
    assert_string_equal(id_at(page, 0), ids[6]);
    assert_string_equal(id_at(page, 2), ids[4]);
    create_as(alice, more);
    delete_hers(ids[4]); /* the last that was seen */
    delete_hers(ids[3]); /* the next */
    (void)snprintf(query, sizeof query, "?limit=3&before=%lld",
                   (long long)json_integer_value(json_object_get(page, "next")));
    json_decref(page);
    page = list_as(alice, query);
    assert_page(page, 3, MANY - 1);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(id_at(page, i), ids[2 - i]);
    assert_true(json_is_null(json_object_get(page, "next")));
    json_decref(page);
    page = list_as(alice, "?before=1");
    assert_page(page, 0, MANY - 1);
    json_decref(page);
    daemon_stop(&here);
}

static void wrong_pages_are_refused(void **state)
{
    static const struct {
        const char *query, *param, *says;
    } cases[] = {
        {"?limit=0", "limit", "from 1 to 100"},       {"?limit=101", "limit", "from 1 to 100"},
        {"?limit=x", "limit", "a whole number"},      {"?before=0", "before", "from 1"},
        {"?before=-1", "before", "from 1"},           {"?befor=1", "befor", "did you mean \"before\"?"},
        {"?limit=1&limit=2", "limit", "given twice"},
    };
    (void)state;
    start(NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const headers[] = {alice, NULL};
        char path[64];
        struct reply r;
        (void)snprintf(path, sizeof path, "/v1/sessions%s", cases[i].query);
        client_call(&here, &(struct request){.path = path, .headers = headers}, &r);
        reply_assert_error(&r, 400, "invalid_value", cases[i].param, cases[i].says);
        reply_clear(&r);
    }
    daemon_stop(&here);
}

/* Also where two keys come from one address. */
static void a_key_sees_its_own_sessions(void **state)
{
    char hers[TEST_SESSION_ID_BYTES], his[TEST_SESSION_ID_BYTES];
    struct reply r;
    (void)state;
    start(NULL);
    create_as(alice, hers);
    create_as(bob, his);
    json_t *page = list_as(alice, "");
    assert_page(page, 1, 1);
    assert_string_equal(id_at(page, 0), hers);
    json_decref(page);
    page = list_as(bob, "");
    assert_page(page, 1, 1);
    assert_string_equal(id_at(page, 0), his);
    json_decref(page);
    client_get(&here, "/v1/sessions", &r);
    reply_assert_error(&r, 401, "invalid_api_key", NULL, "a key is needed");
    reply_clear(&r);
    daemon_stop(&here);
}

/* Many may share an address, and an id is all that protects a session there. */
static void without_keys_nobody_is_told_of_sessions(void **state)
{
    char id[TEST_SESSION_ID_BYTES];
    struct reply r;
    (void)state;
    daemon_start(&here, NULL);
    create_as(NULL, id);
    client_get(&here, "/v1/sessions", &r);
    reply_assert_error(&r, 403, "not_allowed", NULL, "whoever shares an address");
    assert_null(strstr(r.body, id));
    reply_clear(&r);
    daemon_stop(&here);
}

/* A session that is only looked at in lists expires as if it were not. */
static void listing_is_no_use(void **state)
{
    char id[TEST_SESSION_ID_BYTES];
    (void)state;
    start("--session-ttl-s=3");
    create_as(alice, id);
    json_int_t left = 3;
    for (const int64_t end = test_now_ms() + HANG_MS; left > 0; test_sleep_ms(20)) {
        json_t *page = list_as(alice, ""), *one = json_array_get(json_object_get(page, "sessions"), 0);
        const json_int_t now = one != NULL ? json_integer_value(json_object_get(one, "expires_in_s")) : 0;
        assert_true(now <= left && test_now_ms() < end);
        assert_true(one == NULL || now >= 1);
        left = now;
        json_decref(page);
    }
    daemon_stop(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(sessions_come_the_newest_first_with_what_each_tells),
        TEST(pages_follow_each_other_whatever_happens_meanwhile),
        TEST(wrong_pages_are_refused),
        TEST(a_key_sees_its_own_sessions),
        TEST(without_keys_nobody_is_told_of_sessions),
        TEST(listing_is_no_use),
#undef TEST
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("GET /v1/sessions", tests, NULL, NULL);
}
