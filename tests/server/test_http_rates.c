/* test_http_rates.c - what a key may ask for in a second holds; and keys change while requests run. */
#include <fcntl.h>
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
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/keys.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

static struct daemon aftd;
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
        reply_assert_error(&reply, 429, "rate_limit_exceeded", NULL, "may ask for no more now");
        assert_true(reply_header(&reply, "Retry-After", seconds, sizeof seconds));
        assert_in_range(strtol(seconds, NULL, 10), 1, 60);
    } else if (status != 200) {
        fail_msg("%ld: %s", status, reply.body);
    }
    reply_clear(&reply);
    return status;
}

/* A rate that a slow build reaches, too: "40/s" of 40, less where time limits are stretched. Static memory. */
static const char *rate_flag(double *rate)
{
    static char text[32];
    *rate /= program_slowness();
    (void)snprintf(text, sizeof text, "%g/s", *rate);
    return text;
}

/* As many as are answered, from one refusal to another some seconds later; what was saved up is gone by the first. */
static void measure(const struct request *r, double cost, double rate)
{
    enum { SECONDS = 4 };
    unsigned answered = 0;
    const int64_t end = test_now_ms() + test_ms(10000);
    while (ask(r) == 200)
        if (test_now_ms() > end)
            fail_msg("the daemon does not come to %.1f a second", rate);
    const int64_t start = test_now_ms();
    int64_t now = start;
    for (bool refused = false; now < start + (int64_t)SECONDS * 1000 || !refused; now = test_now_ms()) {
        refused = ask(r) == 429;
        answered += refused ? 0 : 1;
        if (refused)
            test_sleep_ms(1);
    }
    const double expected = rate * (double)(now - start) / 1000.0;
    print_message("%.1f a second, of %.1f\n", answered * cost / (double)(now - start) * 1000.0, rate);
    /* one more or less than a whole number of them fits into any time */
    assert_true(answered * cost > expected * 0.95 - cost && answered * cost < expected * 1.05 + cost);
}

static void requests_a_second_hold(void **state)
{
    double rate = 40.0;
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--rate", rate_flag(&rate), NULL}),
                                   NULL};
    const char *const others[] = {header_of_new("other", NULL), NULL};
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    measure(&(struct request){.path = "/v1/models", .headers = headers}, 1.0, rate);
    for (int i = 0; i < 60; i++)
        assert_int_equal(ask(&(struct request){.path = "/v1/models", .headers = others}), 200);
    assert_true(client_metric(&aftd, "aftd_key_limited_total{key=\"slow\"}") > 0);
    assert_true(client_metric(&aftd, "aftd_key_limited_total{key=\"other\"}") < 0.5);
    daemon_stop(&aftd);
}

static void bytes_a_second_hold(void **state)
{
    static const char body[] = "{\"prompt\": \"The \", \"max_tokens\": 60, \"temperature\": 0}";
    const double cost = 60.0 + (double)strlen(body);
    double rate = 3000.0;
    (void)state;
    const char *const headers[] = {header_of_new("slow", (const char *const[]){"--bytes-rate", rate_flag(&rate), NULL}),
                                   NULL};
    daemon_start(&aftd, (const char *const[]){flag, NULL});
    measure(&(struct request){.path = "/generate", .body = body, .size = strlen(body), .headers = headers}, cost, rate);
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
    enum { ROUNDS = 40, AT_A_TIME = 16 };
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
    for (int round = 0; round < ROUNDS; round++) {
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
    assert_int_equal(answered, ROUNDS * AT_A_TIME);
    assert_true(r.turns > 10);
    for (int i = 0; i < 3; i++)
        free(r.files[i]);
    daemon_stop(&aftd);
}

static void await_status(const struct request *r, long status)
{
    for (const int64_t end = test_now_ms() + test_ms(5000);; test_sleep_ms(5)) {
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
    assert_int_equal(raw_receive(fd, &in, "data: ", test_ms(5000)), RAW_FOUND);
    keys_remove(file, "gone");
    daemon_signal(&aftd, SIGHUP);
    await_status(&r, 401);
    while (strstr(in.bytes, "finish_reason") == NULL) /* the stream goes on to its end */
        if (raw_receive(fd, &in, "finish_reason", test_ms(20000)) == RAW_CLOSED && in.size == 0)
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
    test_limit_s(120);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_a_second_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_a_second_hold, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rotating_keys_under_load_fails_no_valid_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_that_is_taken_back_ends_with_its_requests, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
