/* test_requests.c - GET /admin/requests tells what runs, and DELETE /admin/requests/ID ends it: in the queue, in a
 * stream, in a whole answer, and while it is still being received. The real daemon, with clients over raw sockets. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "config/limits.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/generation.h"
#include "tests/support/halt.h"
#include "tests/support/keys.h"
#include "tests/support/pictures.h"
#include "tests/support/raw_socket.h"
#include "tests/support/running.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])
#define RUNNING "aftd_streams_running"
#define WAITING "aftd_queue_depth"

enum { LIMIT_S = 580, CROWD = REQUESTS_LISTED_MAX + 100 };

static struct daemon aftd;
static struct halt halt;
static struct raw_input in;
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
    halt_end(&halt);
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

static void start(const char *flag, const char *other)
{
    daemon_start(&aftd, (const char *const[]){"--admin-address=127.0.0.1", "--admin-port=0", "--queue-jobs-max=2000",
                                              flag, other, NULL});
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Works for as long as anyone wants it to. */
static int begin_text(const char *id, bool stream)
{
    char *body =
        generate_body(json_pack("{s:s, s:i, s:s, s:b, s:i, s:i}", "prompt", RUNNING_PROMPT, "max_tokens", 65536,
                                "context_overflow", "shift", "stream", (int)stream, "timeout_ms", 600000, "seed", 1));
    char header[256];
    (void)snprintf(header, sizeof header, "X-Request-Id: %s\r\n", id);
    char *text = raw_post("/generate", body, header);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    free(body);
    return fd;
}

/* The same, and it streams. */
static int begin_stream(const char *id)
{
    const int fd = begin_text(id, true);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    return fd;
}

/* A body of 100 bytes of which 10 arrive. */
static int begin_upload(const char *id)
{
    char text[512];
    (void)snprintf(
        text, sizeof text,
        "POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: %s\r\nContent-Length: 100\r\n\r\n0123456789", id);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    return fd;
}

/* Read what is left of an answer, to its end; `in` has its last bytes. */
static void read_to(int fd, const char *until)
{
    for (enum raw_end end = RAW_LIMIT; end == RAW_LIMIT;) {
        end = raw_receive(fd, &in, until, HANG_MS);
        if (end == RAW_LIMIT && in.size < sizeof in.bytes - 1)
            fail_msg("there is no %s: %s", until, in.bytes);
        if (end != RAW_LIMIT && end != RAW_FOUND)
            fail_msg("the connection ends before %s", until);
    }
}

/* ---- listing ---------------------------------------------------------------------------------------------------- */

static void what_runs_is_listed_by_age_with_its_state(void **state)
{
    (void)state;
    start("--streams-max=1", NULL);
    json_decref(running_await(&aftd, ""));
    const int streams = begin_stream("one");
    const int waits = begin_text("two", false);
    (void)client_await_metric(&aftd, WAITING, 1, HANG_MS);
    const int arrives = begin_upload("three");
    json_t *answer = running_await(&aftd, "one:streaming two:queued three:receiving"),
           *all = json_object_get(answer, "requests");
    const json_t *one = json_array_get(all, 0), *two = json_array_get(all, 1), *three = json_array_get(all, 2);
    assert_int_equal(json_integer_value(json_object_get(answer, "total")), 3);
    assert_string_equal(running_text(one, "endpoint"), "/generate");
    assert_string_equal(running_text(one, "model"), "enwik8-aft-local");
    assert_string_equal(running_text(one, "client"), "127.0.0.1");
    assert_string_equal(running_text(one, "key"), "null");
    assert_true(running_number(one, "generated") > 0);
    assert_true(running_number(one, "bytes_in") > (double)strlen(RUNNING_PROMPT));
    assert_true(running_number(one, "age_ms") > running_number(two, "age_ms"));
    assert_true(running_number(two, "age_ms") > running_number(three, "age_ms"));
    assert_in_range((long)running_number(one, "deadline_in_ms"), 500000, 600000);
    assert_true(running_number(one, "queue_ms") < running_number(one, "age_ms"));
    assert_true(running_number(two, "queue_ms") > 0.0);
    assert_true(running_number(two, "generated") == 0.0);
    assert_string_equal(running_text(three, "endpoint"), "/classify");
    assert_string_equal(running_text(three, "model"), "null");
    assert_true(json_is_null(json_object_get(three, "queue_ms")));
    assert_true(json_is_null(json_object_get(three, "deadline_in_ms")));
    json_decref(answer);
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(2)) { /* bytes count as they come */
        answer = running_list(&aftd);
        const double bytes = running_number(json_array_get(json_object_get(answer, "requests"), 2), "bytes_in");
        json_decref(answer);
        if (bytes == 10.0)
            break;
        assert_true(test_now_ms() < end);
    }
    raw_close(streams);
    json_decref(running_await(&aftd, "two:running three:receiving"));
    raw_close(waits);
    raw_close(arrives);
    json_decref(running_await(&aftd, ""));
    daemon_stop(&aftd);
}

static void the_key_is_named_and_only_an_administrator_may_ask(void **state)
{
    char file[PATH_MAX], flag[PATH_MAX + 32], alice[KEYS_TEXT_MAX], boss[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 64];
    const char *const headers[] = {header, NULL};
    struct reply r;
    (void)state;
    temp_path(file, dir, "keys.json");
    keys_add(file, "alice", NULL, alice);
    keys_add(file, "boss", (const char *const[]){"--apis", "admin", NULL}, boss);
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    start(flag, NULL);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", alice);
    char *text =
        raw_post("/generate", "{\"stream\": true, \"max_tokens\": 65536, \"context_overflow\": \"shift\"}", header);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", alice);
    const struct request ask = {.path = "/admin/requests", .port = aftd.admin_port, .headers = headers};
    client_call(&aftd, &ask, &r);
    reply_assert_error(&r, 403, "not_allowed", NULL, NULL);
    reply_clear(&r);
    (void)snprintf(header, sizeof header, "Authorization: Bearer %s", boss);
    client_call(&aftd, &ask, &r);
    assert_int_equal(r.status, 200);
    json_t *answer = reply_json(&r);
    const json_t *one = json_array_get(json_object_get(answer, "requests"), 0);
    assert_string_equal(running_text(one, "key"), "alice");
    json_decref(answer);
    reply_clear(&r);
    raw_close(fd);
    free(text);
    daemon_stop(&aftd);
}

static void clients_cannot_see_or_cancel_each_other(void **state)
{
    struct reply r;
    (void)state;
    start(NULL, NULL);
    const int fd = begin_stream("mine");
    client_get(&aftd, "/admin/requests", &r);
    reply_assert_error(&r, 404, "not_found", NULL, NULL);
    reply_clear(&r);
    client_call(&aftd, &(struct request){.method = "DELETE", .path = "/admin/requests/mine"}, &r);
    reply_assert_error(&r, 404, "not_found", NULL, NULL);
    reply_clear(&r);
    json_decref(running_await(&aftd, "mine:streaming"));
    raw_close(fd);
    daemon_stop(&aftd);
}

/* ---- cancelling ------------------------------------------------------------------------------------------------- */

static void a_cancelled_stream_frees_its_slot_and_ends_with_an_event(void **state)
{
    struct reply r;
    (void)state;
    start("--streams-max=1", NULL);
    for (int i = 0; i < 3; i++) {
        const int fd = begin_stream("long");
        running_cancel_well(&aftd, "long", "long:streaming");
        (void)client_await_metric(&aftd, RUNNING, 0, HANG_MS);
        read_to(fd, "\"finish_reason\":\"cancelled\"");
        raw_close(fd);
        json_decref(running_await(&aftd, ""));
        running_cancel(&aftd, "long", &r);
        reply_assert_error(&r, 404, "not_found", NULL, "\"long\"");
        reply_clear(&r);
    }
    assert_true(client_metric(&aftd, "aftd_requests_cancelled_total") == 3.0);
    daemon_stop(&aftd);
}

static void what_has_no_answer_yet_is_answered_499(void **state)
{
    static const struct {
        const char *id, *state;
    } cases[] = {{"queued-stream", "queued-stream:queued"}, {"queued", "queued:queued"}, {"whole", "whole:running"}};
    int fds[ARRAY_LEN(cases)];
    (void)state;
    start("--streams-max=1", NULL);
    fds[2] = begin_text("whole", false);
    (void)client_await_metric(&aftd, RUNNING, 1, HANG_MS); /* or another has the slot */
    json_decref(running_await(&aftd, "whole:running"));
    fds[1] = begin_text("queued", false);
    (void)client_await_metric(&aftd, WAITING, 1, HANG_MS);
    fds[0] = begin_text("queued-stream", true);
    (void)client_await_metric(&aftd, WAITING, 2, HANG_MS);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        running_cancel_well(&aftd, cases[i].id, cases[i].state);
        read_to(fds[i], "\"code\":\"cancelled\"");
        assert_int_equal(raw_status(&in), 499);
        assert_non_null(strstr(in.bytes, "an administrator cancelled the request"));
        raw_close(fds[i]);
    }
    json_decref(running_await(&aftd, ""));
    daemon_stop(&aftd);
}

static void an_upload_that_is_cancelled_is_cut(void **state)
{
    (void)state;
    start(NULL, NULL);
    const int fd = begin_upload("slow");
    json_decref(running_await(&aftd, "slow:receiving"));
    running_cancel_well(&aftd, "slow", "slow:receiving");
    const enum raw_end end = raw_receive(fd, &in, NULL, HANG_MS);
    assert_true(end == RAW_CLOSED || end == RAW_RESET);
    raw_close(fd);
    json_decref(running_await(&aftd, ""));
    daemon_stop(&aftd);
}

/* Four pictures that are too large for the thread that has the request. Free it. */
static char *large_request(const char *id, size_t *bytes)
{
    static const char part[] = "--x\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\n",
                      last[] = "\r\n--x--\r\n";
    enum { PICTURES = 4, SIDE = 1500, HEADER_MAX = 512 };
    const struct jpeg_recipe recipe = {
        .width = SIDE, .height = SIDE, .components = 1, .scans = 12, .pixels = calloc(SIDE, SIDE)};
    size_t size;
    assert_non_null(recipe.pixels);
    uint8_t *picture = jpeg_write(&recipe, &size);
    const size_t body = PICTURES * (strlen(part) + size + 2) - 2 + strlen(last);
    char *text = malloc(HEADER_MAX + body), *at = text;
    assert_non_null(text);
    at += snprintf(at, HEADER_MAX,
                   "POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: %s\r\nContent-Type: "
                   "multipart/form-data; boundary=x\r\nContent-Length: %zu\r\n\r\n",
                   id, body);
    for (int i = 0; i < PICTURES; i++) {
        at += snprintf(at, sizeof part + 2, "%s%s", i > 0 ? "\r\n" : "", part);
        memcpy(at, picture, size);
        at += size;
    }
    memcpy(at, last, strlen(last));
    *bytes = (size_t)(at - text) + strlen(last);
    free(picture);
    free(recipe.pixels);
    return text;
}

static bool is_queued(void)
{
    json_t *answer = running_list(&aftd);
    const bool is =
        strcmp(running_text(json_array_get(json_object_get(answer, "requests"), 0), "state"), "queued") == 0;
    json_decref(answer);
    return is;
}

/* Its pictures wait for their thread, which stands still. */
static void what_is_cancelled_before_its_pictures_are_decoded_is_answered_499(void **state)
{
    size_t bytes;
    struct reply r;
    (void)state;
    start("--picture-threads=1", NULL);
    char *text = large_request("big", &bytes);
    halt_begin(&halt, &aftd, "pictures");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send(fd, text, bytes, HANG_MS));
    for (const int64_t end = test_now_ms() + HANG_MS; !is_queued(); test_sleep_ms(2))
        assert_true(test_now_ms() < end);
    running_cancel(&aftd, "big", &r);
    reply_clear(&r);
    assert_int_equal(raw_receive(fd, &in, "\"code\":\"cancelled\"", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), 499);
    raw_close(fd);
    halt_end(&halt);
    free(text);
    daemon_stop(&aftd);
}

static void all_requests_of_an_id_are_cancelled_and_no_other(void **state)
{
    int twins[3];
    (void)state;
    start(NULL, NULL);
    const int other = begin_stream("twi");
    for (size_t i = 0; i < ARRAY_LEN(twins); i++)
        twins[i] = begin_stream("twin");
    running_cancel_well(&aftd, "twin", "twin:streaming twin:streaming twin:streaming");
    for (size_t i = 0; i < ARRAY_LEN(twins); i++) {
        read_to(twins[i], "\"finish_reason\":\"cancelled\"");
        raw_close(twins[i]);
    }
    json_decref(running_await(&aftd, "twi:streaming"));
    raw_close(other);
    daemon_stop(&aftd);
}

/* ---- many ------------------------------------------------------------------------------------------------------- */

static void a_crowd_is_counted_and_cancelled_whole_and_listed_in_part(void **state)
{
    static int fds[CROWD];
    struct rlimit limit;
    struct reply r;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < CROWD + 100) {
        print_message("skipped: this process may not open %d files\n", CROWD);
        skip();
    }
    start(NULL, NULL);
    for (size_t i = 0; i < CROWD; i++)
        fds[i] = begin_upload("many");
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        json_t *answer = running_list(&aftd);
        const json_int_t total = json_integer_value(json_object_get(answer, "total"));
        const size_t listed = json_array_size(json_object_get(answer, "requests"));
        json_decref(answer);
        assert_int_equal(listed, total < REQUESTS_LISTED_MAX ? total : REQUESTS_LISTED_MAX);
        if (total == CROWD)
            break;
        assert_true(test_now_ms() < end);
    }
    running_cancel(&aftd, "many", &r);
    assert_int_equal(r.status, 202);
    json_t *answer = reply_json(&r);
    assert_int_equal(json_integer_value(json_object_get(answer, "total")), CROWD);
    json_decref(answer);
    reply_clear(&r);
    json_decref(running_await(&aftd, ""));
    for (size_t i = 0; i < CROWD; i++)
        raw_close(fds[i]);
    daemon_stop(&aftd);
}

/* Those who ask and cancel meanwhile are answered as they should be. Those who are cancelled get an answer or lose
 * their connection, and nothing of them stays. */
static void lists_are_made_while_requests_come_and_go(void **state)
{
    enum { ROUNDS = 4, CALLS = 40, TEXTS = 60 };
    (void)state;
    start("--streams-max=4", NULL);
    char *text =
        raw_post("/generate", "{\"max_tokens\": 40, \"seed\": 1}", "X-Request-Id: same\r\nConnection: close\r\n");
    for (int round = 0; round < ROUNDS; round++) {
        struct request requests[CALLS];
        struct reply replies[CALLS];
        int fds[TEXTS];
        for (int i = 0; i < TEXTS; i++) {
            fds[i] = raw_connect(aftd.port);
            assert_true(raw_send_text(fds[i], text));
        }
        for (int i = 0; i < CALLS; i++)
            requests[i] = (struct request){.method = i % 8 == 7 ? "DELETE" : NULL,
                                           .path = i % 8 == 7 ? "/admin/requests/same" : "/admin/requests",
                                           .port = aftd.admin_port};
        client_call_all(&aftd, requests, replies, CALLS, NULL);
        for (int i = 0; i < CALLS; i++) {
            const long status = replies[i].status;
            if (requests[i].method == NULL ? status != 200 : status != 202 && status != 404)
                fail_msg("%s: %ld %s", requests[i].path, status, replies[i].body);
            reply_clear(&replies[i]);
        }
        for (int i = 0; i < TEXTS; i++) {
            assert_int_not_equal(raw_receive(fds[i], &in, NULL, HANG_MS), RAW_LIMIT);
            if (in.size > 0 && raw_status(&in) != 200 && raw_status(&in) != 499)
                fail_msg("%s", in.bytes);
            raw_close(fds[i]);
        }
    }
    free(text);
    json_decref(running_await(&aftd, ""));
    daemon_stop(&aftd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_runs_is_listed_by_age_with_its_state),
        TEST(the_key_is_named_and_only_an_administrator_may_ask),
        TEST(clients_cannot_see_or_cancel_each_other),
        TEST(a_cancelled_stream_frees_its_slot_and_ends_with_an_event),
        TEST(what_has_no_answer_yet_is_answered_499),
        TEST(what_is_cancelled_before_its_pictures_are_decoded_is_answered_499),
        TEST(an_upload_that_is_cancelled_is_cut),
        TEST(all_requests_of_an_id_are_cancelled_and_no_other),
        TEST(a_crowd_is_counted_and_cancelled_whole_and_listed_in_part),
        TEST(lists_are_made_while_requests_come_and_go),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
