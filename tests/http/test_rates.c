/* test_rates.c - what a key may ask for in a second holds; and keys change while requests run. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
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

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/halt.h"
#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
static struct halt halt;
static char dir[PATH_MAX], file[PATH_MAX], flag[PATH_MAX + 64];

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
    halt_end(&halt);
    daemon_clear(&aftd);
    temp_dir_remove(dir);
    return 0;
}

/* Make a key; the header that brings it, in static memory. */
static const char *header_of_new(const char *name, const char *const more[])
{
    static char headers[8][KEYS_TEXT_MAX + 32];
    static size_t next;
    char key[KEYS_TEXT_MAX], *header = headers[next++ % ARRAY_LEN(headers)];
    keys_add(file, name, more, key);
    (void)snprintf(header, sizeof headers[0], "Authorization: Bearer %s", key);
    return header;
}

static long ask(const struct request *r)
{
    struct reply reply;
    char seconds[16];
    client_call(&aftd, r, &reply);
    const long status = reply.status;
    if (status == 429) {
        reply_assert_error(&reply, 429, "rate_limit_exceeded", NULL, "has reached its rate limit");
        assert_true(reply_header(&reply, "Retry-After", seconds, sizeof seconds));
        assert_in_range(strtol(seconds, NULL, 10), 1, 60);
    } else if (status != 200) {
        fail_msg("%ld: %s", status, reply.body);
    }
    reply_clear(&reply);
    return status;
}

/* How rates are kept is shown in tests/server/access, with a clock; here, that keys have theirs. */
static void a_key_that_has_no_request_left_is_refused(void **state)
{
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--rate", "0.001/s", NULL}), NULL};
    const char *const others[] = {header_of_new("other", NULL), NULL};
    const struct request slow = {.path = "/v1/models", .headers = headers};
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    assert_int_equal(ask(&slow), 200);
    assert_int_equal(ask(&slow), 429);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask(&(struct request){.path = "/v1/models", .headers = others}), 200);
    assert_true(client_metric(&aftd, "aftd_key_limited_total{key=\"slow\"}") > 0);
    assert_true(client_metric(&aftd, "aftd_key_limited_total{key=\"other\"}") < 0.5);
    daemon_stop(&aftd);
}

static long ask_with(const char *const headers[], const char *body)
{
    return ask(&(struct request){.path = "/generate", .body = body, .size = strlen(body), .headers = headers});
}

static int begin_with(const char *header, const char *body)
{
    char line[KEYS_TEXT_MAX + 64];
    (void)snprintf(line, sizeof line, "%s\r\nConnection: close\r\n", header);
    char *text = raw_post("/generate", body, line);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    return fd;
}

static void await_at_least(const char *series, double value)
{
    for (const int64_t end = test_now_ms() + HANG_MS; client_metric(&aftd, series) < value; test_sleep_ms(2))
        if (test_now_ms() > end)
            fail_msg("%s does not come to %.0f", series, value);
}

/* Its other requests alone, 19 bytes in 50 ms, are within the rate. */
static void a_stream_counts_while_it_runs_and_its_debt_is_paid_off(void **state)
{
    enum { RATE = 500 };
    static struct raw_input in;
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--bytes-rate", "500/s", NULL}), NULL};
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    const int64_t start = test_now_ms();
    const int fd = begin_with(headers[0], "{\"prompt\": \"x\", \"max_tokens\": 60000, \"context_overflow\": \"shift\", "
                                          "\"stream\": true}");
    /* Behind a small one so large a request is refused. */
    (void)client_await_metric(&aftd, "aftd_streams_running", 1, HANG_MS);
    while (ask_with(headers, "{\"max_tokens\": 1}") == 200)
        test_sleep_ms(50);
    assert_int_equal(raw_receive(fd, &in, "finish_reason", 0), RAW_LIMIT); /* it goes on */
    raw_close(fd);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    const double used = client_metric(&aftd, "aftd_generated_bytes_total");
    int64_t now = start;
    for (long status = 429; status == 429; test_sleep_ms(50)) { /* asking more often would add to the debt */
        status = ask_with(headers, "{\"max_tokens\": 1}");
        now = test_now_ms();
    }
    print_message("%.0f bytes, let in again after %.2f s\n", used, (double)(now - start) / 1000.0);
    assert_true(RATE + (double)(now - start) * RATE / 1000.0 >= used); /* a second's worth was saved up */
    daemon_stop(&aftd);
}

/* While the engine stands still nothing is generated: what was received counts, and what is ahead. */
static void what_a_key_has_ahead_of_it_is_bounded(void **state)
{
    static const char large[] = "{\"max_tokens\": 50000, \"context_overflow\": \"shift\"}";
    static const char too_large[] = "{\"max_tokens\": 20000, \"context_overflow\": \"shift\"}";
    static const char small[] = "{\"max_tokens\": 5000, \"context_overflow\": \"shift\"}";
    struct reply r;
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--bytes-rate", "1000/s", NULL}), NULL};
    const char *const others[] = {header_of_new("other", (const char *const[]){"--bytes-rate", "1/s", NULL}), NULL};
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    halt_begin(&halt, &aftd, "engine");
    const int first = begin_with(headers[0], large);
    (void)client_await_metric(&aftd, "aftd_queue_depth", 1, HANG_MS);
    client_call(
        &aftd,
        &(struct request){.path = "/generate", .body = too_large, .size = sizeof too_large - 1, .headers = headers},
        &r);
    reply_assert_error(&r, 429, "rate_limit_exceeded", NULL, NULL); /* 50,000 and 20,000 are more than a minute's */
    reply_clear(&r);
    const int second = begin_with(headers[0], small);
    (void)client_await_metric(&aftd, "aftd_queue_depth", 2, HANG_MS);
    const int single = begin_with(others[0], large); /* the only one of its key may be as large as it likes */
    (void)client_await_metric(&aftd, "aftd_queue_depth", 3, HANG_MS);
    assert_int_equal(ask_with(others, "{}"), 429); /* its body was received */
    raw_close(first);
    raw_close(second);
    raw_close(single);
    (void)client_await_metric(&aftd, "aftd_queue_depth", 0, HANG_MS);
    const int again = begin_with(headers[0], too_large); /* those that have left are ahead of nobody */
    (void)client_await_metric(&aftd, "aftd_queue_depth", 1, HANG_MS);
    raw_close(again);
    halt_end(&halt);
    daemon_stop(&aftd);
}

/* What the client does not read stays in the daemon. */
static int connect_to_socket(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof to.sun_path);
    memcpy(to.sun_path, path, strlen(path) + 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A text that came to the model's end, of which not all is read yet, has nothing ahead of it, whatever it might have
 * come to. */
static void what_has_ended_is_ahead_of_nobody(void **state)
{
    char line[KEYS_TEXT_MAX + 64], path[PATH_MAX], listen_flag[PATH_MAX + 64];
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--bytes-rate", "800/s", NULL}), NULL};
    temp_path(path, dir, "socket");
    (void)snprintf(listen_flag, sizeof listen_flag, "--listen-unix=%s", path);
    daemon_start(&aftd, (const char *const[]){flag, listen_flag, NULL});
    (void)snprintf(line, sizeof line, "%s\r\n", headers[0]);
    char *text =
        raw_post("/generate",
                 "{\"max_tokens\": 12000, \"logprobs\": 20, \"stream\": true, \"context_overflow\": \"stop\"}", line);
    const int fd = connect_to_socket(path);
    assert_true(raw_send_text(fd, text));
    free(text);
    await_at_least("aftd_generated_bytes_total", 400);
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    /* With 12,000 more than a minute's, if it could come to that. */
    assert_int_equal(ask_with(headers, "{\"max_tokens\": 40000, \"context_overflow\": \"stop\"}"), 200);
    assert_true(client_metric(&aftd, "aftd_key_bytes_total{key=\"slow\"}") < 700); /* the first is not over */
    raw_close(fd);
    daemon_stop(&aftd);
}

/* An archive is as much work as the text in it. */
static void what_is_restored_counts_as_what_is_generated(void **state)
{
    static const char words[] = "The [[history]] of the [[Roman Empire]] is one of the most important of all. ";
    static char text[4000];
    struct reply small, again;
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--bytes-rate", "1/s", NULL}), NULL};
    const char *const others[] = {header_of_new("other", NULL), NULL};
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = words[i % (sizeof words - 1)];
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    client_call(&aftd, &(struct request){.path = "/v1/compress", .body = text, .size = sizeof text, .headers = others},
                &small);
    assert_int_equal(small.status, 200);
    assert_true(small.size < sizeof text / 2);
    const struct request restore = {
        .path = "/v1/decompress", .body = small.body, .size = small.size, .headers = headers};
    client_call(&aftd, &restore, &again);
    assert_int_equal(again.status, 200);
    assert_int_equal(again.size, sizeof text);
    (void)client_await_metric(&aftd, "aftd_key_bytes_total{key=\"slow\"}", (double)(small.size + sizeof text), HANG_MS);
    reply_clear(&again);
    client_call(&aftd, &restore, &again);
    reply_assert_error(&again, 429, "rate_limit_exceeded", NULL, "has reached its rate limit");
    reply_clear(&again);
    reply_clear(&small);
    daemon_stop(&aftd);
}

/* ---- keys that change ------------------------------------------------------------------------------------------ */

struct rotation {
    char *files[3]; /* two that are fine, one that is not */
    size_t sizes[3];
    char temporary[PATH_MAX];
    atomic_bool ends;
    unsigned turns;
};

/* A thread's: nothing of cmocka's here. */
static void *rotate(void *arg)
{
    struct rotation *r = arg;
    for (; !atomic_load(&r->ends); r->turns++) {
        const unsigned i = r->turns % 3;
        const int fd = open(r->temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const bool fine = fd >= 0 && write(fd, r->files[i], r->sizes[i]) == (ssize_t)r->sizes[i];
        (void)close(fd);
        if (fine && rename(r->temporary, file) == 0)
            (void)kill(aftd.pid, SIGHUP);
        (void)usleep(3000);
    }
    return NULL;
}

static void rotating_keys_under_load_fails_no_valid_request(void **state)
{
    enum { AT_A_TIME = 16 };
    const int rounds = test_work(40);
    static const char body[] = "{\"prompt\": \"The \", \"max_tokens\": 5}";
    struct rotation r = {.turns = 0};
    struct request requests[AT_A_TIME];
    struct reply replies[AT_A_TIME];
    pthread_t thread;
    (void)state;
    const char *const stays[] = {header_of_new("stays", NULL), NULL};
    r.files[0] = temp_read(file, &r.sizes[0]);
    (void)header_of_new("comes", NULL);
    r.files[1] = temp_read(file, &r.sizes[1]);
    r.files[2] = strdup("{\"keys\": [{\"name\": \"stays\"}]}");
    r.sizes[2] = strlen(r.files[2]);
    temp_path(r.temporary, dir, "keys.new");
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    assert_int_equal(pthread_create(&thread, NULL, rotate, &r), 0);
    unsigned answered = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < AT_A_TIME; i++)
            requests[i] = (struct request){.path = "/generate", .body = body, .size = strlen(body), .headers = stays};
        client_call_all(&aftd, requests, replies, AT_A_TIME, NULL);
        for (int i = 0; i < AT_A_TIME; i++) {
            answered += replies[i].status == 200;
            reply_clear(&replies[i]);
        }
    }
    atomic_store(&r.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("%u requests, %u changes of the keys\n", answered, r.turns);
    assert_int_equal(answered, rounds * AT_A_TIME);
    assert_true(r.turns > 10);
    for (int i = 0; i < 3; i++)
        free(r.files[i]);
    daemon_stop(&aftd);
}

static void await_status(const struct request *r, long status)
{
    for (const int64_t end = test_now_ms() + HANG_MS;; test_sleep_ms(5)) {
        struct reply reply;
        client_call(&aftd, r, &reply);
        const long got = reply.status;
        reply_clear(&reply);
        if (got == status)
            return;
        if (test_now_ms() > end)
            fail_msg("%s: %ld, expected %ld", r->path, got, status);
    }
}

static void a_key_that_is_taken_back_ends_with_its_requests(void **state)
{
    static struct raw_input in;
    char line[KEYS_TEXT_MAX + 64];
    (void)state;
    const char *const gone[] = {header_of_new("gone", NULL), NULL};
    (void)header_of_new("stays", NULL);
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    const struct request r = {.path = "/v1/models", .headers = gone};
    await_status(&r, 200);
    (void)snprintf(line, sizeof line, "%s\r\nConnection: close\r\n", gone[0]);
    char *text = raw_post("/generate",
                          "{\"prompt\": \"x\", \"max_tokens\": 3000, \"context_overflow\": \"shift\", "
                          "\"stream\": true}",
                          line);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    free(text);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    keys_remove(file, "gone");
    daemon_signal(&aftd, SIGHUP);
    await_status(&r, 401);
    while (strstr(in.bytes, "finish_reason") == NULL) /* the stream goes on to its end */
        if (raw_receive(fd, &in, "finish_reason", HANG_MS) == RAW_CLOSED && in.size == 0)
            fail_msg("the stream was cut");
    assert_non_null(strstr(in.bytes, "\"length\""));
    raw_close(fd);
    const char *const back[] = {header_of_new("back", NULL), NULL};
    daemon_signal(&aftd, SIGHUP);
    await_status(&(struct request){.path = "/v1/models", .headers = back}, 200);
    daemon_stop(&aftd);
}

int main(void)
{
    test_limit_s(580);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_key_that_has_no_request_left_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_counts_while_it_runs_and_its_debt_is_paid_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_key_has_ahead_of_it_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_ended_is_ahead_of_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_restored_counts_as_what_is_generated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rotating_keys_under_load_fails_no_valid_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_is_taken_back_ends_with_its_requests, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
