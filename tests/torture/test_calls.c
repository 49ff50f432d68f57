/* test_calls.c - system calls that fail: each of those that the daemon makes while it starts, answers, changes its
 * models and stops, with what the manual pages say that it may fail with, once and from then on for a while; reads and
 * writes of files that do a part; and calls that are interrupted every millisecond. Whatever fails, the client is
 * answered or its connection cut, or the daemon ends at its start with a message; once nothing fails any more it is
 * well, and it never tries the same thing in a loop. `make torture-calls` goes through all calls, `make test` through
 * some. The real daemon and small models. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/raw_socket.h"
#include "tests/support/scarcity.h"
#include "tests/support/scene.h"
#include "tests/support/temp_dir.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof(a)[0])

enum {
    LIMIT_S = 580,
    LONG_LIMIT_S = 3600,
    FAILING_MS = 100, /* what lasts is over after so long, if the answer has not come before */
    STARTS_MAX = 2,   /* tries of each failure, in the short form */
    VISITED_MAX = 2,
    TRIES_MAX = 2000, /* failures in FAILING_MS: whoever tries again at once has more */
};

static struct failing_calls *failing;

static const struct failure {
    const char *name;
    int call, error;
} failures[] = {
#define FAILURE(call, error)                \
    {                                       \
#call " " #error, SYS_##call, error \
    }
    FAILURE(openat, EMFILE),
    FAILURE(openat, ENOMEM),
    FAILURE(openat, EIO),
    FAILURE(newfstatat, ENOMEM),
    FAILURE(newfstatat, EIO),
    FAILURE(fstat, ENOMEM),
    FAILURE(access, EIO),
    FAILURE(readlink, EIO),
    FAILURE(getdents64, EIO),
    FAILURE(lseek, EIO),
    FAILURE(read, EIO),
    FAILURE(read, EINTR),
    FAILURE(read, FAILING_SHORT),
    FAILURE(write, EIO),
    FAILURE(write, ENOSPC),
    FAILURE(write, EINTR),
    FAILURE(write, FAILING_SHORT),
    FAILURE(close, EIO),
    FAILURE(close, EINTR),
    FAILURE(fcntl, EINVAL),
    FAILURE(flock, ENOLCK),
    FAILURE(poll, ENOMEM),
    FAILURE(poll, EINTR),
    FAILURE(socket, EMFILE),
    FAILURE(socket, ENOBUFS),
    FAILURE(bind, EADDRINUSE),
    FAILURE(listen, EADDRINUSE),
    FAILURE(getsockname, ENOBUFS),
    FAILURE(setsockopt, ENOMEM),
    FAILURE(getsockopt, ENOBUFS),
    FAILURE(accept4, EMFILE),
    FAILURE(accept4, ENFILE),
    FAILURE(accept4, ENOMEM),
    FAILURE(accept4, ENOBUFS),
    FAILURE(accept4, EINTR),
    FAILURE(accept4, ECONNABORTED),
    FAILURE(accept4, EPERM),
    FAILURE(accept4, EPROTO),
    FAILURE(recvfrom, EINTR),
    FAILURE(recvfrom, ENOMEM),
    FAILURE(recvfrom, ECONNRESET),
    FAILURE(recvfrom, ETIMEDOUT),
    FAILURE(sendto, EINTR),
    FAILURE(sendto, ENOMEM),
    FAILURE(sendto, ENOBUFS),
    FAILURE(sendto, EPIPE),
    FAILURE(sendto, ECONNRESET),
    FAILURE(sendmsg, ENOMEM),
    FAILURE(sendmsg, EINTR),
    FAILURE(writev, ENOMEM),
    FAILURE(shutdown, ENOTCONN),
    FAILURE(epoll_create1, EMFILE),
    FAILURE(epoll_create1, ENOMEM),
    FAILURE(epoll_ctl, ENOMEM),
    FAILURE(epoll_ctl, ENOSPC),
    FAILURE(epoll_wait, EINTR),
    FAILURE(eventfd2, EMFILE),
    FAILURE(eventfd2, ENOMEM),
    FAILURE(timerfd_create, EMFILE),
    FAILURE(timerfd_create, ENOMEM),
    FAILURE(timerfd_settime, EINVAL),
    FAILURE(rt_sigtimedwait, EINTR),
    FAILURE(getrandom, EINTR),
    {"pthread_create EAGAIN", FAILING_PTHREAD_CREATE, EAGAIN},
#undef FAILURE
};

/* No call is interrupted each time, nor does each client leave that is about to be accepted: trying again at once is
 * right. */
static bool may_last(const struct failure *f)
{
    return f->error != EINTR && f->error != ECONNABORTED;
}

static int tear_down(void **state)
{
    scene_tell();
    failing_calls_end(failing);
    failing = NULL;
    scene_end();
    return administration_tear_down(state);
}

/* `is_untold`: the log may lose the lines that tell the ports. */
static int try_start(bool is_untold)
{
    char models[PATH_MAX + 16], path[PATH_MAX], listen[PATH_MAX + 16];
    (void)snprintf(models, sizeof models, "--models-dir=%s", models_folder);
    temp_path(path, models_folder, ".socket");
    (void)snprintf(listen, sizeof listen, "--listen-unix=%s", path);
    (void)unlink(path);
    failing_calls_enter();
    const char *const flags[] = {models,
                                 listen,
                                 "--admin-address=127.0.0.1",
                                 "--admin-port=0",
                                 "--streams-max=8",
                                 "--picture-tokens-max=64",
                                 "--drain-timeout-ms=0",
                                 "--http-threads=2",
                                 NULL};
    const int code =
        is_untold ? daemon_try_start_untold(&administered, path, flags) : daemon_try_start(&administered, flags);
    failing_calls_leave();
    return code;
}

static void prepare(void)
{
    failing = failing_calls_begin(models_folder);
    scene_put_models();
    assert_int_equal(try_start(false), 0);
    if (atomic_load(&failing->made[SYS_read]) == 0) {
        print_message("skipped: no seccomp filter can be had here\n");
        skip();
    }
    scene_begin();
}

/* ---- a failure -------------------------------------------------------------------------------------------------- */

static void end_failing(void)
{
    atomic_store(&failing->until, 0);
}

static void begin_failing(const struct failure *f, long n, bool lasts)
{
    end_failing();
    atomic_store(&failing->call, f->call);
    atomic_store(&failing->error, f->error);
    atomic_store(&failing->lasts, lasts);
    atomic_store(&failing->failed, 0);
    atomic_store(&failing->until, n);
}

static void *end_later(void *arg)
{
    (void)arg;
    for (const int64_t end = test_now_ms() + FAILING_MS; test_now_ms() < end && atomic_load(&failing->until) > 0;)
        test_sleep_ms(1);
    end_failing();
    return NULL;
}

static void assert_no_spin(const char *what)
{
    const long failed = atomic_load(&failing->failed);
    if (failed > TRIES_MAX && atomic_load(&failing->error) != FAILING_SHORT)
        fail_msg("%s: tried %ld times in %d ms", what, failed, (int)FAILING_MS);
}

static void show_log(void)
{
    char *log = daemon_log(&administered);
    print_message("%s\n", log);
    free(log);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* How often the visit makes each call. */
static void count_calls(size_t visit, long made[FAILING_CALLS])
{
    end_failing();
    for (size_t i = 0; i < FAILING_CALLS; i++)
        made[i] = -atomic_load(&failing->made[i]);
    (void)scene_visit(visit);
    test_sleep_ms(2);
    for (size_t i = 0; i < FAILING_CALLS; i++)
        made[i] += atomic_load(&failing->made[i]);
}

static void visit_failing(size_t visit, const struct failure *f, long n, bool lasts, unsigned tally[3])
{
    pthread_t ends;
    char what[128];
    (void)snprintf(what, sizeof what, "%s: %s, %s %ld", scene_visit_name(visit), f->name, lasts ? "from" : "number", n);
    begin_failing(f, n, lasts);
    assert_int_equal(pthread_create(&ends, NULL, end_later, NULL), 0);
    const long status = scene_visit(visit);
    end_failing();
    assert_int_equal(pthread_join(ends, NULL), 0);
    tally[status == 0 ? 0 : status / 100 == 2 ? 1 : 2]++;
    assert_no_spin(what);
    if (visit >= scene_client_request_count)
        scene_restore();
    scene_assert_serves(what);
}

static void go_through(bool lasts)
{
    static long made[FAILING_CALLS];
    unsigned tally[3] = {0}, tried = 0;
    prepare();
    scene_learn();
    for (size_t i = 0; i < SCENE_VISITS; i++) {
        count_calls(i, made);
        for (size_t k = 0; k < ARRAY_LEN(failures); k++) {
            const struct failure *f = &failures[k];
            if ((!scene_is_long() && (i + k) % 4 != 0) || (lasts && !may_last(f)))
                continue;
            const long count = made[f->call], step = scene_step(count, VISITED_MAX);
            for (long n = 1 + (long)(i + k) % step; n <= count; n += step, tried++)
                visit_failing(i, f, n, lasts, tally);
        }
        if (scene_is_long() || i % 4 == 0)
            scene_assert_well(scene_visit_name(i));
    }
    scene_assert_well("all of it");
    print_message("  %u failures: %u answered, %u refused, %u cut\n", tried, tally[1], tally[2], tally[0]);
    assert_true(tally[1] > 0 && tally[0] + tally[2] > 0);
    daemon_stop(&administered);
}

static void a_system_call_may_fail(void **state)
{
    (void)state;
    go_through(false);
}

static void system_calls_may_fail_for_a_while(void **state)
{
    (void)state;
    go_through(true);
}

/* ---- interruptions ---------------------------------------------------------------------------------------------- */

static atomic_bool storms;

/* A signal to every thread, every millisecond. */
static void *send_signals(void *arg)
{
    char path[64];
    (void)arg;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)administered.pid);
    while (atomic_load(&storms)) {
        DIR *tasks = opendir(path);
        for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;)
            if (task->d_name[0] != '.')
                (void)syscall(SYS_tgkill, administered.pid, (pid_t)strtol(task->d_name, NULL, 10), SIGURG);
        if (tasks != NULL)
            (void)closedir(tasks);
        test_sleep_ms(1);
    }
    return NULL;
}

static void interruptions_change_nothing(void **state)
{
    pthread_t sender;
    (void)state;
    prepare();
    scene_learn();
    atomic_store(&storms, true);
    assert_int_equal(pthread_create(&sender, NULL, send_signals, NULL), 0);
    for (int round = 0; round < (scene_is_long() ? 100 : 3); round++)
        for (size_t i = 0; i < SCENE_VISITS; i++)
            if (scene_visit(i) / 100 != 2)
                fail_msg("%s goes wrong when it is interrupted", scene_visit_name(i));
    daemon_signal(&administered, SIGHUP);
    daemon_await_log(&administered, "reload");
    atomic_store(&storms, false);
    assert_int_equal(pthread_join(sender, NULL), 0);
    scene_assert_well("a storm of signals");
    daemon_stop(&administered);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

static void allow_descriptors(rlim_t most, rlim_t *before)
{
    struct rlimit limit, old;
    assert_int_equal(prlimit(administered.pid, RLIMIT_NOFILE, NULL, &old), 0);
    limit = (struct rlimit){.rlim_cur = most, .rlim_max = old.rlim_max};
    assert_int_equal(prlimit(administered.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    if (before != NULL)
        *before = old.rlim_cur;
}

static void *allow_all_again(void *arg)
{
    test_sleep_ms(FAILING_MS);
    allow_descriptors(*(rlim_t *)arg, NULL);
    return NULL;
}

static void clients_wait_while_there_are_no_descriptors(void **state)
{
    rlim_t before;
    (void)state;
    prepare();
    scene_learn();
    const unsigned held = daemon_usage(&administered).fds;
    for (unsigned more = 0; more < 4; more++)
        for (size_t i = 0; i < SCENE_VISITS; i += scene_is_long() ? 1 : 5) {
            pthread_t allows;
            allow_descriptors(held + more, &before);
            assert_int_equal(pthread_create(&allows, NULL, allow_all_again, &before), 0);
            (void)scene_visit(i);
            assert_int_equal(pthread_join(allows, NULL), 0);
            scene_restore();
            scene_assert_serves("descriptors were short");
        }
    scene_assert_well("descriptors were short");
    daemon_stop(&administered);
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

/* False: it ended otherwise than it may. */
static bool start_failing(const struct failure *f, long n, bool lasts, unsigned *began, unsigned *ended)
{
    bool fine = true;
    begin_failing(f, n, lasts);
    const int code = try_start(f->call == SYS_write);
    end_failing();
    char *log = daemon_log(&administered);
    if (code == 0) {
        (*began)++;
        daemon_signal(&administered, SIGTERM);
        fine = daemon_wait(&administered, HANG_MS) == 0;
    } else {
        const bool may_say = f->call != SYS_write || !lasts;
        (*ended)++;
        fine = (code == 1 || code == 2) && (!may_say || strlen(log) > 0);
    }
    if (!fine)
        print_message("%s, %s %ld: the start ends with %d: %s\n", f->name, lasts ? "from" : "number", n, code, log);
    free(log);
    daemon_clear(&administered);
    return fine;
}

static void a_start_may_fail_anywhere(void **state)
{
    static long made[FAILING_CALLS];
    unsigned began = 0, ended = 0, wrong = 0;
    (void)state;
    prepare();
    for (size_t i = 0; i < FAILING_CALLS; i++)
        made[i] = atomic_load(&failing->made[i]);
    daemon_stop(&administered);
    for (size_t k = 0; k < ARRAY_LEN(failures); k++) {
        const struct failure *f = &failures[k];
        const long count = made[f->call], step = scene_step(count, test_work(STARTS_MAX));
        for (long n = 1 + (long)(k * 7) % step; n <= count; n += step) {
            wrong += !start_failing(f, n, false, &began, &ended);
            wrong += may_last(f) && f->call != SYS_poll && /* which has nothing else to wait with */
                     !start_failing(f, n, true, &began, &ended);
        }
    }
    print_message("  it ended %u times and began %u times\n", ended, began);
    assert_int_equal(wrong, 0);
    assert_true(ended > 10 && began > 10);
}

static void an_end_may_fail_anywhere(void **state)
{
    static struct raw_input in;
    static const char endless[] = "{\"model\": \"text\", \"prompt\": \"x\", \"max_tokens\": 65536, \"seed\": 1, "
                                  "\"context_overflow\": \"shift\", \"stream\": true}";
    (void)state;
    prepare();
    daemon_stop(&administered);
    for (size_t k = 0; k < ARRAY_LEN(failures); k += scene_is_long() ? 1 : 4) {
        assert_int_equal(try_start(false), 0);
        char *text = raw_post("/generate", endless, "");
        const int fd = raw_connect(administered.port);
        assert_true(raw_send_text(fd, text));
        free(text);
        assert_int_equal(raw_receive(fd, &in, "data: ", HANG_MS), RAW_FOUND);
        begin_failing(&failures[k], 1 + (long)k % 3, k % 2 == 0);
        daemon_signal(&administered, SIGTERM);
        const int code = daemon_wait(&administered, HANG_MS);
        end_failing();
        raw_close(fd);
        if (code != 0) {
            show_log();
            fail_msg("%s: the daemon stops with %d", failures[k].name, code);
        }
        daemon_clear(&administered);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, administration_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_system_call_may_fail),       TEST(system_calls_may_fail_for_a_while),
        TEST(interruptions_change_nothing), TEST(clients_wait_while_there_are_no_descriptors),
        TEST(a_start_may_fail_anywhere),    TEST(an_end_may_fail_anywhere),
    };
    test_limit_s(scene_is_long() ? LONG_LIMIT_S : LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
