/* test_memory.c - memory that is short: of one request after another each single allocation is refused, in its
 * turn (tests/preload/scarce_memory.c). Whatever it was for, the client is told 503, or its connection is cut where
 * there is no memory to say so; or the answer is whole. Nothing is lost, and the next request is served as ever. The
 * real daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/administration.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/scarcity.h"
#include "tests/support/scene.h"

enum { LIMIT_S = 580, LONG_LIMIT_S = 1800, ALLOCATIONS_MAX = 30000 };

static struct scarce_memory *scarce;
static unsigned wrong;

/* ---- a daemon with the allocator ------------------------------------------------------------------------------- */

static void start(void)
{
    scarce = scarcity_begin(models_folder, "http");
    scene_put_models();
    scarcity_enter();
    administration_start("--http-threads=1", "--log-requests=false");
    scarcity_leave();
    scene_begin();
    assert_true(atomic_load(&scarce->live) > 0);
}

static int tear_down(void **state)
{
    scarcity_end(scarce);
    scarce = NULL;
    scene_end();
    return administration_tear_down(state);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

/* How often the request was answered, refused, cut, or wrongly anything else. */
struct tally {
    unsigned answered, refused, cut, wrong;
};

static void check(const struct request *q, long n, const struct reply *r, const char *whole, struct tally *t)
{
    char *found = scene_essence(r);
    if (r->status == 200 && strcmp(found, whole) == 0) {
        t->answered++;
    } else if (r->status == 503 && strstr(r->body, "memory") != NULL) {
        t->refused++;
    } else {
        t->wrong++;
        (void)fprintf(stderr, "%s without allocation %ld: expected 200 or 503, got %ld: %s\n", q->path, n, r->status,
                      found);
    }
    free(found);
}

static void sweep(const struct request *q)
{
    struct tally t = {0};
    struct reply r;
    long n = 1, live = 0;
    char *whole = NULL;
    for (int i = 0; i < 3; i++) { /* once for what stays */
        client_call(&administered, q, &r);
        if (r.status != 200)
            fail_msg("%s: %ld: %s", q->path, r.status, r.body);
        free(whole);
        whole = scene_essence(&r);
        reply_clear(&r);
        test_sleep_ms(5);
        live = atomic_load(&scarce->live);
    }
    for (bool reached = true; reached; n += scene_is_long() ? 1 : 1 + n / 100) { /* of very many, some */
        atomic_store(&scarce->until, n);
        const bool fine = client_try(&administered, q, &r);
        reached = atomic_exchange(&scarce->until, 0) <= 0;
        if (fine) {
            check(q, n, &r, whole, &t);
            reply_clear(&r);
        } else {
            t.cut++;
        }
        assert_true(n < ALLOCATIONS_MAX);
    }
    scarcity_await(scarce, live, q->path);
    print_message("%-32s %4ld allocations: %u answered, %u refused, %u cut\n", q->path, n - 2, t.answered, t.refused,
                  t.cut);
    wrong += t.wrong;
    free(whole);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    start();
    for (size_t i = 0; i < scene_client_request_count; i++)
        sweep(&scene_requests[i]);
    daemon_stop(&administered);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_allocation_may_fail, administration_set_up, tear_down),
    };
    test_limit_s(scene_is_long() ? LONG_LIMIT_S : LIMIT_S);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
