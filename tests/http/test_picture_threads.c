/* test_picture_threads.c - pictures that take long: small files of many pixels, large drawings. They wait for threads
 * of their own, in turn with other clients', hold up nothing else, and leave when their client or their time does. The
 * real daemon, which has one thread for connections. */
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
#include "tests/support/pictures.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/sanitized.h"
#include "tests/support/temp_dir.h"

#define RUNNING "aftd_picture_jobs_running"
#define WAITING "aftd_picture_jobs_waiting"
#define BYTES "aftd_picture_bytes "
#define REFUSED "aftd_requests_rejected_total{reason=\"queue_full\"}"
#define ONE_LOOP "--http-threads=1"
#define MODEL "cifar10-aft-conv"
#define CLASSIFY "/classify?model=" MODEL
#define DRAWING "/explain?side=2048&model=" MODEL /* a tenth of a second each, or more */

enum {
    LIMIT_S = 580,
    SIDE = 4096, /* a tenth of a second or more, however fast the machine is */
    SCANS = 12,
    MANY = 6,
    BEGINNING_MAX = 512,
};

static struct daemon aftd;
static struct daemon_usage before;
static struct raw_input in;
static uint8_t *large; /* a file of some kilobytes that takes long */
static size_t large_bytes;

static int make_picture(void **state)
{
    (void)state;
    uint8_t *pixels = calloc(SIDE, SIDE);
    assert_non_null(pixels);
    const struct jpeg_recipe recipe = {
        .width = SIDE, .height = SIDE, .components = 1, .scans = SCANS, .arithmetic = true, .pixels = pixels};
    large = jpeg_write(&recipe, &large_bytes);
    free(pixels);
    return 0;
}

static int free_picture(void **state)
{
    (void)state;
    free(large);
    return 0;
}

static void begin(const char *const flags[])
{
    daemon_start(&aftd, flags);
    before = daemon_usage(&aftd);
}

static int clear(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

/* Post the large picture on a connection of its own, whose answer is read later; `header` with CR LF, or "". */
static int post_to(const char *path, const char *header)
{
    char text[BEGINNING_MAX];
    const int length = snprintf(text, sizeof text,
                                "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: "
                                "image/jpeg\r\n%sContent-Length: %zu\r\n\r\n",
                                path, header, large_bytes);
    assert_in_range(length, 1, sizeof text - 1);
    const int fd = raw_connect(aftd.port);
    assert_true(raw_send(fd, text, (size_t)length, HANG_MS));
    assert_true(raw_send(fd, large, large_bytes, HANG_MS));
    return fd;
}

static long answer_of(int fd)
{
    (void)raw_receive(fd, &in, NULL, HANG_MS);
    raw_close(fd);
    return raw_status(&in);
}

/* Until a picture waits, behind others that take thousands of times as long as a look. */
static void await_waiting(void)
{
    for (const int64_t end = test_now_ms() + HANG_MS; client_metric(&aftd, WAITING) < 0.5; test_sleep_ms(1))
        assert_true(test_now_ms() < end);
}

static void assert_healthy(void)
{
    struct reply r;
    client_get(&aftd, "/healthz", &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
}

/* A request of the usual kind, by the client that the header tells of. */
static void post_small(const char *header, struct reply *ret)
{
    const char *const headers[] = {header, NULL};
    size_t size;
    uint8_t *small = picture_file_read(PICTURES_DIR "landscape.jpg", &size);
    client_call(&aftd, &(struct request){.path = CLASSIFY, .body = small, .size = size, .headers = headers}, ret);
    free(small);
}

/* ---- nothing else is held up ------------------------------------------------------------------------------------ */

/* Jobs that keep two threads busy and others waiting: /metrics could not tell of that if one of them held the only
 * loop. `models`: a further flag, or NULL. */
static void pictures_leave_the_loop_free(const char *path, const char *models)
{
    int fds[MANY];
    begin((const char *const[]){ONE_LOOP, "--picture-threads=2", "--trusted-proxies=127.0.0.1", "--timeout-ms=600000",
                                models, NULL});
    for (int i = 0; i < MANY; i++)
        fds[i] = post_to(path, i % 2 == 0 ? "X-Forwarded-For: 192.0.2.1\r\n" : "X-Forwarded-For: 192.0.2.2\r\n");
    await_waiting();
    assert_healthy();
    assert_true(client_metric(&aftd, WAITING) > 0.5);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(answer_of(fds[i]), 200);
    (void)client_await_metric(&aftd, BYTES, 0, HANG_MS);
    daemon_stop(&aftd);
}

static void a_large_picture_does_not_hold_an_event_loop(void **state)
{
    (void)state;
    pictures_leave_the_loop_free(CLASSIFY, NULL);
}

static void a_large_drawing_does_not_hold_an_event_loop(void **state)
{
    (void)state;
    pictures_leave_the_loop_free(DRAWING, NULL);
}

static void a_picture_to_score_does_not_hold_an_event_loop(void **state)
{
    (void)state;
    pictures_leave_the_loop_free("/score?model=cifar10-pixels-16", "--models-dir=weights/models");
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static void one_clients_pictures_do_not_keep_anothers_waiting(void **state)
{
    (void)state;
    int fds[MANY];
    struct reply r;
    begin((const char *const[]){ONE_LOOP, "--picture-threads=2", "--trusted-proxies=127.0.0.1", NULL});
    for (int i = 0; i < MANY; i++) /* which take far longer than a small one, whatever else the machine does */
        fds[i] = post_to(DRAWING, "X-Forwarded-For: 192.0.2.1\r\n");
    await_waiting(); /* one thread is left for others */
    post_small("X-Forwarded-For: 192.0.2.2", &r);
    assert_int_equal(r.status, 200);
    assert_true(client_metric(&aftd, WAITING) > 0.5);
    reply_clear(&r);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(answer_of(fds[i]), 200);
    daemon_stop(&aftd);
}

static void a_full_queue_of_pictures_has_room_for_another_client(void **state)
{
    (void)state;
    enum { QUEUE = 3, FIT = QUEUE + 1 }; /* and the one that is being decoded */
    int fds[MANY];
    struct reply r;
    unsigned answered = 0;
    begin((const char *const[]){ONE_LOOP, "--picture-threads=2", "--queue-jobs-max=3", "--trusted-proxies=127.0.0.1",
                                NULL});
    fds[0] = post_to(DRAWING, "X-Forwarded-For: 192.0.2.1\r\n");
    (void)client_await_metric(&aftd, RUNNING, 1, HANG_MS);
    for (int i = 1; i < MANY; i++)
        fds[i] = post_to(DRAWING, "X-Forwarded-For: 192.0.2.1\r\n");
    (void)client_await_metric(&aftd, REFUSED, MANY - FIT, HANG_MS);
    post_small("X-Forwarded-For: 192.0.2.2", &r); /* the newest of the others gives way, and a thread is free */
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    assert_true(client_metric(&aftd, WAITING) > 0.5);
    for (int i = 0; i < MANY; i++) {
        const long status = answer_of(fds[i]);
        answered += status == 200 ? 1 : 0;
        if (status != 200) {
            assert_int_equal(status, 503);
            assert_non_null(strstr(in.bytes, "queue_full"));
            assert_non_null(strstr(in.bytes, "\r\nRetry-After: "));
        }
    }
    assert_int_equal(answered, FIT - 1);
    daemon_stop(&aftd);
}

/* ---- what is no longer wanted ----------------------------------------------------------------------------------- */

static void pictures_of_a_client_that_leaves_are_forgotten(void **state)
{
    (void)state;
    int fds[MANY];
    begin((const char *const[]){ONE_LOOP, "--picture-threads=1", NULL});
    for (int i = 0; i < MANY; i++)
        fds[i] = post_to(CLASSIFY, "");
    await_waiting();
    for (int i = 0; i < MANY; i++)
        raw_close(fds[i]);
    (void)client_await_metric(&aftd, WAITING, 0, HANG_MS);
    (void)client_await_metric(&aftd, RUNNING, 0, HANG_MS); /* in the middle of a file */
    (void)client_await_metric(&aftd, BYTES, 0, HANG_MS);
    daemon_assert_usage(&aftd, &before, HANG_MS);
    daemon_stop(&aftd);
}

static void pictures_end_at_their_deadline(void **state)
{
    (void)state;
    int fds[MANY];
    unsigned late = 0;
    begin((const char *const[]){ONE_LOOP, "--picture-threads=1", "--timeout-ms=100", NULL});
    for (int i = 0; i < MANY; i++)
        fds[i] = post_to(CLASSIFY, "");
    for (int i = 0; i < MANY; i++) {
        const long status = answer_of(fds[i]);
        late += status == 408 ? 1 : 0;
        assert_true(status == 408 || status == 200);
    }
    assert_true(late > 0);
    (void)client_await_metric(&aftd, BYTES, 0, HANG_MS);
    daemon_stop(&aftd);
}

static void the_daemon_ends_beside_pictures_that_wait(void **state)
{
    (void)state;
    int fds[MANY];
    begin((const char *const[]){ONE_LOOP, "--picture-threads=1", "--drain-timeout-ms=1", NULL});
    for (int i = 0; i < MANY; i++)
        fds[i] = post_to(CLASSIFY, "");
    await_waiting();
    daemon_stop(&aftd);
    for (int i = 0; i < MANY; i++)
        raw_close(fds[i]);
}

/* ---- memory and rates ------------------------------------------------------------------------------------------- */

static void pixels_of_all_requests_have_one_budget(void **state)
{
    (void)state;
    int fds[MANY];
    double most = 0.0;
    begin((const char *const[]){ONE_LOOP, "--picture-threads=4", "--pictures-memory-max-mb=60", NULL});
    for (int i = 0; i < MANY; i++)
        fds[i] = post_to(CLASSIFY, "");
    (void)client_await_metric(&aftd, RUNNING, 1, HANG_MS);
    for (int i = 0; i < MANY; i++) { /* 35 MB of coefficients each */
        const double held = client_metric(&aftd, BYTES);
        most = held > most ? held : most;
        assert_int_equal(answer_of(fds[i]), 200);
    }
    assert_true(most > 0.5 && most <= 60.0 * 1048576.0);
    (void)client_await_metric(&aftd, BYTES, 0, HANG_MS);
    daemon_stop(&aftd);
}

static double resident_mb(void)
{
    return client_metric(&aftd, "process_resident_memory_bytes ") / 1e6;
}

/* Each thread draws pictures of megabytes, several times: what it needed for one may not stay with it. */
static void threads_keep_no_memory_of_pictures(void **state)
{
    enum { ROUNDS = 3, MB_MOST = 5 };
    (void)state;
    int fds[MANY];
    const int64_t end_ms = test_now_ms() + HANG_MS;
    if (IS_SANITIZED)
        skip();
    begin((const char *const[]){ONE_LOOP, "--picture-threads=4", "--timeout-ms=600000", NULL});
    assert_int_equal(answer_of(post_to(CLASSIFY, "")), 200);
    const double before_mb = resident_mb();
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < MANY; i++)
            fds[i] = post_to("/explain?side=1024&model=" MODEL, "");
        for (int i = 0; i < MANY; i++)
            assert_int_equal(answer_of(fds[i]), 200);
    }
    double mb = resident_mb();
    while (mb > before_mb + MB_MOST) {
        assert_true(test_now_ms() < end_ms);
        test_sleep_ms(50);
        mb = resident_mb();
    }
    print_message("  from %.1f to %.1f MB\n", before_mb, mb);
    daemon_stop(&aftd);
}

static void a_picture_beyond_the_whole_budget_is_refused(void **state)
{
    (void)state;
    struct reply r;
    begin((const char *const[]){ONE_LOOP, "--pictures-memory-max-mb=20", NULL});
    client_call(&aftd, &(struct request){.path = CLASSIFY, .body = large, .size = large_bytes}, &r);
    reply_assert_error(&r, 422, "undecodable_picture", NULL, "expected at most 20971520 for all pictures together");
    reply_clear(&r);
    daemon_stop(&aftd);
}

static void pixels_count_towards_a_keys_rate(void **state)
{
    (void)state;
    char dir[PATH_MAX], file[PATH_MAX], flag[PATH_MAX + 16], key[KEYS_TEXT_MAX], header[KEYS_TEXT_MAX + 16];
    const char *const headers[] = {header, NULL};
    struct reply r;
    temp_dir_create(dir);
    temp_path(file, dir, "keys.json");
    (void)snprintf(flag, sizeof flag, "--keys-file=%s", file);
    keys_add(file, "painter", (const char *const[]){"--bytes-rate", "20000/s", NULL}, key);
    (void)snprintf(header, sizeof header, "X-API-Key: %s", key);
    begin((const char *const[]){ONE_LOOP, flag, NULL});
    const struct request request = {.path = CLASSIFY, .body = large, .size = large_bytes, .headers = headers};
    assert_true(large_bytes < 10000); /* that alone would not exhaust the rate */
    client_call(&aftd, &request, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    client_call(&aftd, &request, &r);
    reply_assert_error(&r, 429, "rate_limit_exceeded", NULL, "retry in");
    reply_clear(&r);
    daemon_stop(&aftd);
    temp_dir_remove(dir);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_teardown(test, clear)
    const struct CMUnitTest tests[] = {
        EACH(a_large_picture_does_not_hold_an_event_loop),
        EACH(a_large_drawing_does_not_hold_an_event_loop),
        EACH(a_picture_to_score_does_not_hold_an_event_loop),
        EACH(one_clients_pictures_do_not_keep_anothers_waiting),
        EACH(a_full_queue_of_pictures_has_room_for_another_client),
        EACH(pictures_of_a_client_that_leaves_are_forgotten),
        EACH(pictures_end_at_their_deadline),
        EACH(the_daemon_ends_beside_pictures_that_wait),
        EACH(pixels_of_all_requests_have_one_budget),
        EACH(threads_keep_no_memory_of_pictures),
        EACH(a_picture_beyond_the_whole_budget_is_refused),
        EACH(pixels_count_towards_a_keys_rate),
    };
#undef EACH
    test_limit_s(LIMIT_S);
    return cmocka_run_group_tests(tests, make_picture, free_picture);
}
