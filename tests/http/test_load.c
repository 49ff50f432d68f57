/* test_load.c - many clients at once: streams and pictures get, byte for byte, what they get alone; the engine
 * works for them in batches; a full queue is told at once. The real daemon. */
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
#include "tests/support/generation.h"
#include "tests/support/halt.h"
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/random.h"
#include "tests/support/raw_socket.h"

#define CIFAR_DIR "tests/data/cifar/"
#define TEXT_MODEL "model=\"enwik8-aft-local\""
#define PICTURE_MODEL "model=\"cifar10-aft-conv\""

enum {
    LIMIT_S = 580,
    STREAMS = 64,
    PICTURES = 200,
    ALL = STREAMS + PICTURES,
    TOKENS = 300,
    STARTS_WITHIN_MS = 400,
    CLASSES = 10,
    QUEUE_JOBS_MAX = 3
};

static struct daemon aftd;
static struct halt halt;

static int stop(void **state)
{
    (void)state;
    halt_end(&halt);
    daemon_clear(&aftd);
    return 0;
}

/* ---- the requests ---------------------------------------------------------------------------------------------- */

/* Prompts of all lengths, some beyond the context; every third shifts. */
static json_t *stream_fields(int i)
{
    static const char sentence[] = "== Early life ==\nThe [[Alabama River]] was named by '''Aristotle''' in [[1871]]. ";
    char prompt[800];
    const size_t size = (size_t)(i * 37 % 700);
    for (size_t at = 0; at < size; at++)
        prompt[at] = sentence[(at + (size_t)i) % (sizeof sentence - 1)];
    return json_pack("{s:s%, s:i, s:f, s:i, s:s, s:b}", "prompt", prompt, size, "max_tokens", test_work(TOKENS),
                     "temperature", 1.0, "seed", i * 1000 + 7, "context_overflow", i % 3 == 0 ? "shift" : "stop",
                     "stream", 1);
}

static struct request picture_request(int i, uint8_t *pictures[CLASSES], const size_t sizes[CLASSES])
{
    return (struct request){
        .path = "/classify?top_k=10", .type = "image/jpeg", .body = pictures[i % CLASSES], .size = sizes[i % CLASSES]};
}

static void read_pictures(uint8_t *pictures[CLASSES], size_t sizes[CLASSES])
{
    static const char *const files[CLASSES] = {
        CIFAR_DIR "airplane.jpg", CIFAR_DIR "automobile.jpg", CIFAR_DIR "bird.jpg", CIFAR_DIR "cat.jpg",
        CIFAR_DIR "deer.jpg",     CIFAR_DIR "dog.jpg",        CIFAR_DIR "frog.jpg", CIFAR_DIR "horse.jpg",
        CIFAR_DIR "ship.jpg",     CIFAR_DIR "truck.jpg"};
    for (size_t i = 0; i < CLASSES; i++)
        pictures[i] = picture_file_read(files[i], &sizes[i]);
}

/* ---- company changes nothing ----------------------------------------------------------------------------------- */

/* The mean of a histogram since it was `sum` and `count`. */
static double mean_since(const char *model, double sum, double count)
{
    char name[64];
    (void)snprintf(name, sizeof name, "aftd_batch_size_sum{%s}", model);
    sum = client_metric(&aftd, name) - sum;
    (void)snprintf(name, sizeof name, "aftd_batch_size_count{%s}", model);
    count = client_metric(&aftd, name) - count;
    assert_true(count > 0);
    return sum / count;
}

static void every_answer_is_what_it_is_alone(const char *const flags[])
{
    static struct request requests[ALL];
    static struct reply replies[ALL];
    static long starts_ms[ALL];
    static struct generation alone[STREAMS];
    struct reply picture_alone[CLASSES];
    uint8_t *pictures[CLASSES];
    size_t sizes[CLASSES];
    char *bodies[STREAMS];
    struct random random = {.state = 5};
    const int all = test_work(ALL), most_streams = (all + 3) / 4 < STREAMS ? (all + 3) / 4 : STREAMS;

    daemon_start(&aftd, flags);
    read_pictures(pictures, sizes);
    for (int i = 0; i < most_streams; i++) {
        generate(&aftd, stream_fields(i), &alone[i]);
        bodies[i] = generate_body(stream_fields(i));
    }
    for (int i = 0; i < CLASSES; i++) {
        const struct request r = picture_request(i, pictures, sizes);
        client_call(&aftd, &r, &picture_alone[i]);
        assert_int_equal(picture_alone[i].status, 200);
    }
    const double stream_sum = client_metric(&aftd, "aftd_batch_size_sum{" TEXT_MODEL);
    const double stream_count = client_metric(&aftd, "aftd_batch_size_count{" TEXT_MODEL);
    const double picture_sum = client_metric(&aftd, "aftd_batch_size_sum{" PICTURE_MODEL);
    const double picture_count = client_metric(&aftd, "aftd_batch_size_count{" PICTURE_MODEL);

    for (int i = 0; i < all; i++) { /* streams and pictures mixed, started one after the other */
        const int stream = i % 4 == 0 ? i / 4 : -1;
        const bool is_stream = stream >= 0 && stream < most_streams;
        requests[i] = is_stream ? generate_request(bodies[stream]) : picture_request(i, pictures, sizes);
        starts_ms[i] =
            (i > 0 ? starts_ms[i - 1] : 0) + (long)random_below(&random, 2 * STARTS_WITHIN_MS / (uint32_t)all + 1);
    }
    client_call_all(&aftd, requests, replies, (size_t)all, starts_ms);
    for (int i = 0; i < all; i++) {
        const int stream = i % 4 == 0 ? i / 4 : -1;
        if (stream >= 0 && stream < most_streams) {
            struct generation g;
            generation_read(&replies[i], &g);
            assert_same_text("alone and in company", alone[stream].text, alone[stream].bytes, g.text, g.bytes);
            assert_string_equal(g.finish, alone[stream].finish);
            generation_clear(&g);
        } else {
            assert_int_equal(replies[i].status, 200);
            assert_string_equal(replies[i].body, picture_alone[i % CLASSES].body);
        }
        reply_clear(&replies[i]);
    }
    const double streams = mean_since(TEXT_MODEL, stream_sum, stream_count);
    const double batch = mean_since(PICTURE_MODEL, picture_sum, picture_count);
    print_message("  a pass had %.1f streams, a batch %.1f pictures\n", streams, batch);
    assert_true(streams > 1 && batch > 1); /* there was company */

    for (int i = 0; i < most_streams; i++) {
        generation_clear(&alone[i]);
        free(bodies[i]);
    }
    for (int i = 0; i < CLASSES; i++) {
        reply_clear(&picture_alone[i]);
        free(pictures[i]);
    }
    (void)client_await_metric(&aftd, "aftd_streams_running", 0, HANG_MS);
    daemon_stop(&aftd);
}

static void streams_and_pictures_get_what_they_get_alone(void **state)
{
    (void)state;
    every_answer_is_what_it_is_alone(
        (const char *const[]){"--threads=2", "--streams-max=64", "--queue-jobs-max=512", NULL});
}

static void so_they_do_with_few_slots_and_small_batches(void **state)
{
    (void)state;
    every_answer_is_what_it_is_alone((const char *const[]){"--streams-max=13", "--pass-rows-max=7",
                                                           "--batch-images-max=3", "--http-threads=4",
                                                           "--queue-jobs-max=512", NULL});
}

/* ---- a full queue ---------------------------------------------------------------------------------------------- */

static void assert_refused(const struct request *request)
{
    struct reply r;
    char after[32] = "";
    client_call(&aftd, request, &r);
    reply_assert_error(&r, 503, "queue_full", NULL, "3");
    assert_true(reply_header(&r, "Retry-After", after, sizeof after));
    assert_int_equal(strspn(after, "0123456789"), strlen(after));
    assert_in_range(strtol(after, NULL, 10), 1, 60);
    reply_clear(&r);
}

static void a_full_queue_is_told_at_once(void **state)
{
    static struct raw_input in;
    uint8_t *pictures[CLASSES];
    size_t sizes[CLASSES];
    int fds[1 + QUEUE_JOBS_MAX];
    struct generation g;
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--streams-max=1", "--queue-jobs-max=3", NULL});
    char *body = generate_body(json_pack("{s:s, s:i, s:s, s:b, s:i}", "prompt", "x", "max_tokens", 65536,
                                         "context_overflow", "shift", "stream", 1, "timeout_ms", 300000));
    char *text = raw_post("/generate", body, "");
    for (int i = 0; i < 1 + QUEUE_JOBS_MAX; i++) {
        fds[i] = raw_connect(aftd.port);
        assert_true(raw_send_text(fds[i], text));
        if (i == 0)
            assert_int_equal(raw_receive(fds[0], &in, "data: ", HANG_MS), RAW_FOUND);
    }
    (void)client_await_metric(&aftd, "aftd_queue_depth{" TEXT_MODEL, QUEUE_JOBS_MAX, HANG_MS);
    read_pictures(pictures, sizes);
    const struct request picture = picture_request(0, pictures, sizes), more = generate_request(body);
    for (int i = 0; i < 5; i++) {
        assert_refused(&more);
        assert_refused(&picture);
    }
    (void)client_await_metric(&aftd, "aftd_requests_rejected_total{reason=\"queue_full\"}", 10, HANG_MS);
    for (int i = 0; i < 1 + QUEUE_JOBS_MAX; i++)
        raw_close(fds[i]);
    (void)client_await_metric(&aftd, "aftd_queue_depth", 0, HANG_MS);
    generate(&aftd, json_pack("{s:i}", "max_tokens", 5), &g); /* and takes work again */
    generation_clear(&g);
    for (int i = 0; i < CLASSES; i++)
        free(pictures[i]);
    free(body);
    free(text);
    daemon_stop(&aftd);
}

static void assert_answered(int fd, long status)
{
    static struct raw_input in;
    assert_true(raw_send_text(fd, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_int_equal(raw_receive(fd, &in, "}", HANG_MS), RAW_FOUND);
    assert_int_equal(raw_status(&in), status);
}

static void an_address_has_no_more_connections_than_it_may(void **state)
{
    enum { CONNECTIONS = 6, SURPLUS = 8 };
    static struct raw_input in;
    int fds[CONNECTIONS];
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--connections-per-address-max=6", NULL});
    for (int i = 0; i < CONNECTIONS; i++) { /* whichever threads serve them */
        fds[i] = raw_connect(aftd.port);
        assert_answered(fds[i], 200);
    }
    for (int i = 0; i < SURPLUS; i++) {
        const int fd = raw_connect(aftd.port);
        assert_true(raw_receive(fd, &in, NULL, HANG_MS) <= RAW_RESET);
        assert_int_equal(in.size, 0);
        raw_close(fd);
    }
    raw_close(fds[0]);
    bool answered = false; /* once the daemon has seen that one has left */
    for (const int64_t end_ms = test_now_ms() + HANG_MS; !answered && test_now_ms() < end_ms;) {
        fds[0] = raw_connect(aftd.port);
        (void)raw_send_text(fds[0], "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        answered = raw_receive(fds[0], &in, "}", HANG_MS) == RAW_FOUND;
        raw_close(fds[0]);
    }
    assert_true(answered);
    for (int i = 1; i < CONNECTIONS; i++) {
        assert_answered(fds[i], 200);
        raw_close(fds[i]);
    }
    daemon_stop(&aftd);
}

static void a_stream_with_nothing_to_say_is_pinged(void **state)
{
    static struct raw_input in;
    (void)state;
    daemon_start(&aftd, (const char *const[]){"--ping-ms=100", NULL});
    char *body = generate_body(json_pack("{s:s, s:i, s:s, s:b}", "prompt", "x", "max_tokens", 65536, "context_overflow",
                                         "shift", "stream", 1));
    char *text = raw_post("/generate", body, "");
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send_text(fd, text));
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    halt_begin(&halt, &aftd, "engine");
    do /* what it had said before */
        (void)raw_receive(fd, &in, ": ping\n\n", HANG_MS);
    while (in.end == RAW_LIMIT && in.size == sizeof in.bytes - 1);
    assert_int_equal(in.end, RAW_FOUND);
    halt_end(&halt);
    assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
    raw_close(fd);
    free(text);
    free(body);
    daemon_stop(&aftd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(streams_and_pictures_get_what_they_get_alone, stop),
        cmocka_unit_test_teardown(so_they_do_with_few_slots_and_small_batches, stop),
        cmocka_unit_test_teardown(a_full_queue_is_told_at_once, stop),
        cmocka_unit_test_teardown(an_address_has_no_more_connections_than_it_may, stop),
        cmocka_unit_test_teardown(a_stream_with_nothing_to_say_is_pinged, stop),
    };
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
