/* test_key_rights.c - a key is what its hash is: no entry of its file gets another's rights, and a key that
 * replaces another under its name inherits nothing of it; and which priorities it may ask for. Real daemons. */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
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
#include "tests/support/program.h"
#include "tests/support/sessions.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define SAME "the keys \"native\" and \"copy\" have the same sha256"

enum { LIMIT_S = 580, HEADER_MAX = KEYS_TEXT_MAX + 32 };

static struct daemon aftd;
static char dir[PATH_MAX], file[PATH_MAX], flag[PATH_MAX + 16];

static int set_up(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

static void add(const char *name, const char *const more[], char header[HEADER_MAX])
{
    char key[KEYS_TEXT_MAX];
    keys_add(file, name, more, key);
    (void)snprintf(header, HEADER_MAX, "Authorization: Bearer %s", key);
}

/* GET, or POST with a body. */
static void call(const char *path, const char *header, const char *body, struct reply *ret)
{
    const char *const headers[] = {header, NULL};
    client_call(&aftd,
                &(struct request){.path = path,
                                  .type = body != NULL ? "application/json" : NULL,
                                  .body = body,
                                  .size = body != NULL ? strlen(body) : 0,
                                  .headers = header != NULL ? headers : NULL},
                ret);
}

static void expect(const char *path, const char *header, const char *body, long status)
{
    struct reply r;
    call(path, header, body, &r);
    if (r.status != status)
        fail_msg("%s %s: expected %ld, got %ld: %s", path, body != NULL ? body : "", status, r.status, r.body);
    reply_clear(&r);
}

static void await_status(const char *path, const char *header, long status)
{
    for (int64_t end_ms = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        struct reply r;
        call(path, header, NULL, &r);
        const long got = r.status;
        reply_clear(&r);
        if (got == status)
            return;
        assert_true(test_now_ms() < end_ms);
    }
}

/* ---- one key under two names ------------------------------------------------------------------------------------ */

/* The start of the first entry's hash, as the file has it. */
static void read_hash(char hash[17])
{
    size_t size;
    char *text = temp_read(file, &size);
    const char *at = strstr(text, "\"sha256\": \"");
    assert_non_null(at);
    (void)snprintf(hash, 17, "%s", at + strlen("\"sha256\": \""));
    free(text);
}

static void assert_said(const char *log, const char *hash)
{
    assert_non_null(strstr(log, SAME));
    assert_null(strstr(log, hash));
}

/* The second and the third entry would make up the rights of the fourth, and the third and the fourth none at all. */
static void a_copied_entry_is_refused_at_start(void **state)
{
    (void)state;
    char header[HEADER_MAX], hash[17], program[PATH_MAX];
    add("native", (const char *const[]){"--apis", "native", NULL}, header);
    read_hash(hash);
    add("other", NULL, header);
    keys_copy(file, "native", "copy");
    assert_int_equal(daemon_try_start(&aftd, (const char *const[]){flag, NULL}), 2);
    char *log = daemon_log(&aftd);
    assert_said(log, hash);
    free(log);
    program_find(program, "aftd", "AFTD_TEST_DAEMON");
    struct program_run check = {.argv = {program, flag, "--check-config"}};
    program_run(&check);
    assert_int_equal(check.exit_code, 2);
    assert_said(check.err, hash);
    program_run_clear(&check);
}

static void a_copied_entry_is_refused_by_a_reload(void **state)
{
    (void)state;
    char native[HEADER_MAX], other[HEADER_MAX], openai[HEADER_MAX], hash[17];
    add("native", (const char *const[]){"--apis", "native", NULL}, native);
    read_hash(hash);
    add("other", (const char *const[]){"--apis", "native", NULL}, other);
    add("openai", (const char *const[]){"--apis", "openai", NULL}, openai);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    keys_copy(file, "native", "copy");
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, SAME);
    char *log = daemon_log(&aftd);
    assert_said(log, hash);
    assert_non_null(strstr(log, "nothing has changed"));
    free(log);
    expect("/generate", native, "{\"prompt\": \"x\", \"max_tokens\": 1}", 200);
    expect("/v1/models", native, NULL, 403); /* as before */
    expect("/v1/models", openai, NULL, 200);
    expect("/generate", other, "{\"prompt\": \"x\", \"max_tokens\": 1}", 200);
    daemon_stop(&aftd);
}

/* ---- one name for two keys -------------------------------------------------------------------------------------- */

static void create(const char *header, char path[128])
{
    struct reply r;
    call("/v1/sessions", header, "{}", &r);
    assert_int_equal(r.status, 201);
    json_t *session = reply_json(&r);
    (void)snprintf(path, 128, "/v1/sessions/%s", json_string_value(json_object_get(session, "id")));
    json_decref(session);
    reply_clear(&r);
}

static void a_key_that_is_taken_back_takes_its_sessions_along(void **state)
{
    (void)state;
    char alice[HEADER_MAX], bob[HEADER_MAX], again[HEADER_MAX], hers[128], his[128];
    add("alice", NULL, alice);
    add("bob", NULL, bob);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    create(alice, hers);
    create(bob, his);
    keys_set(file, "bob", "requests_per_s", json_integer(1000)); /* a key with other rights is the same key */
    keys_remove(file, "alice");
    daemon_signal(&aftd, SIGHUP);
    (void)client_await_metric(&aftd, "aftd_sessions ", 1, HANG_MS);
    expect(hers, alice, NULL, 401);
    expect(his, bob, NULL, 200);
    add("alice", NULL, again);
    daemon_signal(&aftd, SIGHUP);
    await_status("/v1/sessions/none", again, 404);
    expect(hers, again, NULL, 404);
    expect(his, again, NULL, 404);
    expect(his, bob, NULL, 200);
    daemon_stop(&aftd);
}

/* Both at once: there is no moment at which the name was not there. */
static void a_key_that_replaces_another_finds_none_of_its_sessions(void **state)
{
    (void)state;
    char alice[HEADER_MAX], again[HEADER_MAX], hers[128];
    add("alice", NULL, alice);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    create(alice, hers);
    expect(hers, alice, NULL, 200);
    keys_remove(file, "alice");
    add("alice", NULL, again);
    daemon_signal(&aftd, SIGHUP);
    await_status("/v1/sessions/none", again, 404);
    expect(hers, again, NULL, 404);
    (void)client_await_metric(&aftd, "aftd_sessions ", 0, HANG_MS);
    daemon_stop(&aftd);
}

static double hits(void)
{
    return client_metric(&aftd, "aftd_prefix_cache_hits_total");
}

static void a_key_that_replaces_another_finds_none_of_its_prompts(void **state)
{
    (void)state;
    char alice[HEADER_MAX], again[HEADER_MAX], body[512], prompt[401];
    memset(prompt, 'a', sizeof prompt - 1);
    prompt[sizeof prompt - 1] = '\0';
    (void)snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"max_tokens\": 1}", prompt);
    add("alice", NULL, alice);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    expect("/generate", alice, body, 200);
    assert_true(hits() == 0);
    expect("/generate", alice, body, 200);
    assert_true(hits() == 1);
    daemon_signal(&aftd, SIGHUP); /* the same key, read again */
    daemon_await_log(&aftd, "reload: {");
    expect("/generate", alice, body, 200);
    assert_true(hits() == 2);
    keys_remove(file, "alice");
    add("alice", NULL, again);
    daemon_signal(&aftd, SIGHUP);
    await_status("/v1/models", again, 200);
    expect("/generate", again, body, 200);
    assert_true(hits() == 2);
    expect("/generate", again, body, 200);
    assert_true(hits() == 3);
    daemon_stop(&aftd);
}

/* ---- priorities ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *path, *body; /* %s: the priority */
    long fine;
} ways[] = {
    {"/generate", "{\"prompt\": \"x\", \"max_tokens\": 1, \"priority\": %s}", 200},
    {"/generate", "{\"prompt\": \"x\", \"max_tokens\": 1, \"stream\": true, \"priority\": %s}", 200},
    {"/v1/sessions", "{\"prompt\": \"The \", \"priority\": %s}", 201},
    {"/v1/sessions", "{\"priority\": %s}", 201},
};

/* As the key of `header`, or without: all up to `most` are fine and what is above it is 403. */
static void expect_priorities(const char *header, int most, const char *says)
{
    const struct {
        const char *word;
        int priority;
    } asked[] = {{"\"low\"", -100}, {"-1", -1}, {"\"normal\"", 0}, {"0", 0},
                 {"1", 1},          {"50", 50}, {"51", 51},        {"\"high\"", 100}};
    for (size_t w = 0; w < ARRAY_LEN(ways); w++)
        for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
            char body[512];
            struct reply r;
            (void)snprintf(body, sizeof body, ways[w].body, asked[i].word);
            call(ways[w].path, header, body, &r);
            const bool fine = asked[i].priority <= most;
            if (r.status != (fine ? ways[w].fine : 403) || (!fine && strstr(r.body, says) == NULL))
                fail_msg("%s %s: %ld %s", ways[w].path, body, r.status, r.body);
            if (!fine)
                reply_assert_error(&r, 403, "not_allowed", "priority", says);
            reply_clear(&r);
        }
}

static void a_key_asks_for_no_higher_priority_than_it_may(void **state)
{
    (void)state;
    char usual[HEADER_MAX], half[HEADER_MAX], high[HEADER_MAX];
    add("usual", NULL, usual);
    add("half", (const char *const[]){"--priority-max", "50", NULL}, half);
    add("high", (const char *const[]){"--priority-max=high", NULL}, high);
    daemon_start(&aftd, (const char *const[]){flag, NULL}); /* the setting priority_max is not for keys */
    expect_priorities(usual, 0, "may ask for a priority of at most 0, not");
    expect_priorities(half, 50, "may ask for a priority of at most 50, not");
    expect_priorities(high, 100, "");
    struct reply r;
    call("/generate", half, "{\"prompt\": \"x\", \"priority\": \"high\"}", &r);
    reply_assert_error(&r, 403, "not_allowed", "priority",
                       "the key \"half\" may ask for a priority of at most 50, not 100");
    reply_clear(&r);
    /* Triton's clients, whose most urgent level is 1, know nothing of keys. */
    for (int level = 0; level <= 30; level++) {
        char body[300];
        (void)snprintf(
            body, sizeof body,
            "{\"inputs\": [{\"name\": \"prompt\", \"shape\": [1], \"datatype\": \"BYTES\", \"data\": [\"x\"]}], "
            "\"parameters\": {\"max_tokens\": 1, \"priority\": %d}}",
            level);
        expect("/v2/models/enwik8-aft-local/infer", level % 2 == 0 ? usual : half, body, 200);
    }
    keys_set(file, "usual", "priority_max", json_string("high"));
    daemon_signal(&aftd, SIGHUP);
    daemon_await_log(&aftd, "reload: {");
    expect("/generate", usual, "{\"prompt\": \"x\", \"max_tokens\": 1, \"priority\": \"high\"}", 200);
    daemon_stop(&aftd);
}

static void without_keys_a_setting_says_how_high_priorities_go(void **state)
{
    (void)state;
    daemon_start(&aftd, NULL);
    expect_priorities(NULL, 100, "");
    daemon_stop(&aftd);
    daemon_start(&aftd, (const char *const[]){"--priority-max=50", NULL});
    expect_priorities(NULL, 50, "a request without a key may ask for a priority of at most 50, not");
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copied_entry_is_refused_at_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copied_entry_is_refused_by_a_reload, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_is_taken_back_takes_its_sessions_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_replaces_another_finds_none_of_its_sessions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_replaces_another_finds_none_of_its_prompts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_asks_for_no_higher_priority_than_it_may, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_keys_a_setting_says_how_high_priorities_go, set_up, tear_down),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests_name("http_key_rights", tests, NULL, NULL);
}
