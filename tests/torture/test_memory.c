/* test_memory.c - memory that is short and stays short: every thread of the daemon is refused each allocation from one
 * on, while it starts, answers, changes its models and stops; and each single allocation, whoever makes it. What each
 * thread does with one that fails, http/test_memory and http/test_memory_models look at more closely. `make
 * torture-memory` goes through all allocations, `make test` through some. The real daemon and small models. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/daemon.h"
#include "tests/support/raw_socket.h"
#include "tests/support/scarcity.h"
#include "tests/support/scene.h"

enum {
    LIMIT_S = 580,
    LONG_LIMIT_S = 3600,
    SHORTAGE_MS = 100, /* a lasting one is over after so long, if the answer has not come before */
    VISITED_MAX = 8,   /* of a request's allocations, in the short form */
    STARTS_MAX = 40,
    STOPS_MAX = 12,
    ALLOCATIONS_MAX = 100000,
    SPINS_MAX = 20000 /* refusals in one shortage: whoever tries again at once has more */
};

static struct scarce_memory *scarce;

static int tear_down(void **state)
{
    scene_tell();
    scarcity_end(scarce);
    scarce = NULL;
    scene_end();
    return administration_tear_down(state);
}

static int try_start(void)
{
    char models[PATH_MAX + 16];
    (void)snprintf(models, sizeof models, "--models-dir=%s", models_folder);
    scarcity_enter();
    const int code =
        daemon_try_start(&administered, (const char *const[]){models, "--admin-address=127.0.0.1", "--admin-port=0",
                                                              "--streams-max=8", "--picture-tokens-max=64",
                                                              "--drain-timeout-ms=0", "--http-threads=1", NULL});
    scarcity_leave();
    return code;
}

static void start(void)
{
    scarce = scarcity_begin(models_folder, "");
    scene_put_models();
    assert_int_equal(try_start(), 0);
    scene_begin();
    scene_learn();
}

/* ---- a shortage ------------------------------------------------------------------------------------------------- */

static void *end_shortage(void *arg)
{
    (void)arg;
    for (const int64_t end = test_now_ms() + SHORTAGE_MS; test_now_ms() < end && atomic_load(&scarce->until) > 0;)
        test_sleep_ms(1);
    atomic_store(&scarce->until, 0);
    return NULL;
}

static void begin_shortage(long n, bool lasts)
{
    atomic_store(&scarce->lasts, lasts);
    atomic_store(&scarce->refused, 0);
    atomic_store(&scarce->until, n);
}

/* How many allocations a visit takes. */
static long count_allocations(size_t visit)
{
    begin_shortage(ALLOCATIONS_MAX, false);
    (void)scene_visit(visit);
    return ALLOCATIONS_MAX - atomic_exchange(&scarce->until, 0);
}

/* The visit's status while allocation n, and if `lasts` what comes after it, is refused. */
static long visit_short(size_t visit, long n, bool lasts)
{
    pthread_t ends;
    begin_shortage(n, lasts);
    if (lasts)
        assert_int_equal(pthread_create(&ends, NULL, end_shortage, NULL), 0);
    const long status = scene_visit(visit);
    atomic_store(&scarce->until, 0);
    if (lasts)
        assert_int_equal(pthread_join(ends, NULL), 0);
    if (atomic_load(&scarce->refused) > SPINS_MAX)
        fail_msg("%s from allocation %ld on: %ld were asked for in vain", scene_visit_name(visit), n,
                 atomic_load(&scarce->refused));
    return status;
}

/* In the short form the steps become longer, as most of many allocations are alike. */
static long next_step(long n, long step)
{
    return scene_is_long() ? step : step + n / 100;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void go_through(bool lasts)
{
    unsigned answered = 0, refused = 0, cut = 0;
    for (size_t i = 0; i < SCENE_VISITS; i++) {
        const long count = count_allocations(i), step = scene_step(count, VISITED_MAX);
        char after[128];
        for (long n = 1 + (long)i % step; n <= count; n += next_step(n, step)) {
            const long status = visit_short(i, n, lasts);
            answered += status / 100 == 2;
            refused += status >= 300;
            cut += status == 0;
            (void)snprintf(after, sizeof after, "%s %s allocation %ld", scene_visit_name(i), lasts ? "from" : "without",
                           n);
            if (i >= scene_client_request_count)
                scene_restore();
            scene_assert_serves(after);
        }
        (void)snprintf(after, sizeof after, "%s %s allocations", scene_visit_name(i), lasts ? "without" : "one of its");
        if (scene_is_long() || i % 4 == 0)
            scene_assert_well(after);
    }
    scene_assert_well("all of it");
    print_message("  %u answered, %u refused, %u cut\n", answered, refused, cut);
    assert_true(cut > 0 && (lasts || (answered > 0 && refused > 0)));
}

static void any_thread_may_lack_one_allocation(void **state)
{
    (void)state;
    start();
    go_through(false);
    daemon_stop(&administered);
}

static void a_daemon_without_memory_recovers_once_there_is_some(void **state)
{
    (void)state;
    start();
    go_through(true);
    daemon_stop(&administered);
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

static void a_start_without_memory_ends_with_a_message(void **state)
{
    unsigned began = 0, ended = 0, wrong = 0;
    (void)state;
    scarce = scarcity_begin(models_folder, "");
    scene_put_models();
    begin_shortage(ALLOCATIONS_MAX, false);
    assert_int_equal(try_start(), 0);
    const long count = ALLOCATIONS_MAX - atomic_exchange(&scarce->until, 0), step = scene_step(count, STARTS_MAX);
    daemon_stop(&administered);
    for (long n = 1; n <= count; n += next_step(n, step)) {
        begin_shortage(n, true);
        const int code = try_start();
        atomic_store(&scarce->until, 0);
        char *log = daemon_log(&administered);
        began += code == 0;
        ended += code == 1;
        if (code != 0 && (code != 1 || strstr(log, "memory") == NULL)) {
            wrong++;
            print_message("from allocation %ld on: expected 1 and a message, got %d: %s\n", n, code, log);
        }
        free(log);
        if (code == 0)
            daemon_stop(&administered);
        else
            daemon_clear(&administered);
    }
    print_message("  a start: %ld allocations; it ended %u times and began %u times\n", count, ended, began);
    assert_int_equal(wrong, 0);
    assert_true(ended > 10);
}

static void a_daemon_without_memory_stops(void **state)
{
    static struct raw_input in;
    static const char endless[] = "{\"model\": \"text\", \"prompt\": \"x\", \"max_tokens\": 65536, \"seed\": 1, "
                                  "\"context_overflow\": \"shift\", \"stream\": true}";
    const long most = scene_is_long() ? 200 : STOPS_MAX;
    (void)state;
    scarce = scarcity_begin(models_folder, "");
    scene_put_models();
    for (long n = 1; n <= most; n++) {
        begin_shortage(0, false);
        assert_int_equal(try_start(), 0);
        char *text = raw_post("/generate", endless, "");
        const int fd = raw_connect(administered.port);
        assert_true(raw_send_text(fd, text));
        free(text);
        assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
        begin_shortage(n, n % 2 == 0);
        daemon_signal(&administered, SIGTERM);
        const int code = daemon_wait(&administered, HANG_MS);
        if (code != 0) {
            char *log = daemon_log(&administered);
            print_message("%s\n", log);
            free(log);
            fail_msg("without allocation %ld the daemon stops with %d", n, code);
        }
        raw_close(fd);
        daemon_clear(&administered);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(any_thread_may_lack_one_allocation),
        TEST(a_daemon_without_memory_recovers_once_there_is_some),
        TEST(a_start_without_memory_ends_with_a_message),
        TEST(a_daemon_without_memory_stops),
    };
    test_limit_s(scene_is_long() ? LONG_LIMIT_S : LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
