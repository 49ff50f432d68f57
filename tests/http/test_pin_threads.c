/* test_pin_threads.c - the daemon's compute threads keep to a processor each, its other threads do not, and with
 * pin_threads=false or fewer compute threads than processors nobody does. */
#include <dirent.h>
#include <sched.h>
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

enum { PROCESSORS_MAX = 2, LIMIT_S = 580 }; /* of two threads each takes some of 48 streams by itself */

static struct daemon aftd;
static cpu_set_t all;

static int tear_down(void **state)
{
    (void)state;
    daemon_clear(&aftd);
    return 0;
}

static bool is_compute_thread(const char *task)
{
    char path[PATH_MAX], name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)aftd.pid, task);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(name, sizeof name, f));
    (void)fclose(f);
    return strcmp(name, "engine\n") == 0;
}

/* Compute threads that keep to a processor. The test fails if two have the same, or if another thread keeps to one. */
static int count_kept(void)
{
    char path[PATH_MAX];
    cpu_set_t taken;
    int kept = 0;
    CPU_ZERO(&taken);
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)aftd.pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        cpu_set_t own, both;
        if (task->d_name[0] == '.')
            continue;
        assert_int_equal(sched_getaffinity((pid_t)strtol(task->d_name, NULL, 10), sizeof own, &own), 0);
        if (CPU_EQUAL(&own, &all))
            continue;
        assert_true(is_compute_thread(task->d_name));
        assert_int_equal(CPU_COUNT(&own), 1);
        CPU_AND(&both, &own, &taken);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&taken, &taken, &own);
        kept++;
    }
    (void)closedir(tasks);
    return kept;
}

/* Check that this many compute threads are pinned to a processor, once the daemon has fed 48 streams at a time. */
static void assert_kept(const char *threads, const char *pin_threads, int want)
{
    static const char body[] = "{\"prompt\": \"The \", \"n\": 48, \"max_tokens\": 8}";
    const struct request request = {
        .path = "/generate", .type = "application/json", .body = body, .size = sizeof body - 1};
    struct reply r;
    daemon_start(&aftd, (const char *const[]){threads, pin_threads, NULL});
    client_call(&aftd, &request, &r);
    assert_int_equal(r.status, 200);
    reply_clear(&r);
    assert_int_equal(count_kept(), want);
    daemon_stop(&aftd);
}

static void each_keeps_to_a_processor(void **state)
{
    const int processors = CPU_COUNT(&all);
    char as_many[32], fewer[32];
    (void)state;
    if (processors < 2) {
        print_message("skipped: with one processor nobody can be seen to keep to it\n");
        skip();
    }
    (void)snprintf(as_many, sizeof as_many, "--threads=%d", processors);
    (void)snprintf(fewer, sizeof fewer, "--threads=%d", processors - 1);
    assert_kept(as_many, "--pin-threads=true", processors);
    assert_kept(as_many, "--pin-threads=false", 0);
    assert_kept(fewer, "--pin-threads=true", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_keeps_to_a_processor, tear_down),
    };
    test_limit_s(LIMIT_S);
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return EXIT_FAILURE;
    /* The daemon inherits that. */
    for (int i = CPU_SETSIZE - 1; CPU_COUNT(&all) > PROCESSORS_MAX; i--)
        CPU_CLR((unsigned)i, &all);
    if (sched_setaffinity(0, sizeof all, &all) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
