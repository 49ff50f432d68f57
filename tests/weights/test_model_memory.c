/* test_model_memory.c - a model is loaded while memory is short: each allocation is refused in its turn, alone and with
 * all that follow. The program's own functions refuse them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "weights/model.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define HAS_OWN_MALLOC 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 0
#endif
#endif
#ifndef HAS_OWN_MALLOC
#define HAS_OWN_MALLOC 1
#endif

enum { ALLOCATIONS_MAX = 100000 };

static _Thread_local long until; /* the so-manyth allocation from now is refused; 0: none */
static _Thread_local bool lasts; /* those after it as well */
static _Thread_local unsigned refusals;

#if HAS_OWN_MALLOC
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *before, size_t size);

static bool is_refused(void)
{
    if (until > 1) {
        until--;
        return false;
    }
    const bool refused = until == 1;
    if (refused && !lasts)
        until = 0;
    refusals += refused;
    return refused;
}

void *malloc(size_t size)
{
    return is_refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *before, size_t size)
{
    return is_refused() ? NULL : __libc_realloc(before, size);
}
#endif

static unsigned load_without_each(const char *dir, bool stays)
{
    unsigned refused = 0;
    for (long n = 1;; n++) {
        struct model *m = NULL;
        struct error err = {.message = ""};
        assert_true(n < ALLOCATIONS_MAX);
        lasts = stays;
        until = n;
        const enum status st = model_load(&m, dir, NULL, NULL, &err);
        until = 0;
        const bool reached = refusals > 0;
        refusals = 0;
        if (st != OK && (!reached || st != ERR_NOMEM || strstr(err.message, "memory") == NULL || m != NULL))
            fail_msg("%s without allocation %ld: %d, %s", dir, n, (int)st, err.message);
        if (st == OK)
            model_free(m);
        if (!reached)
            return refused;
        refused += st != OK;
    }
}

static void a_model_that_finds_no_memory_is_refused(void **state)
{
    static const char *const models[] = {"tests/data/golden/lm-local-8", "tests/data/golden/conv-heads8-k5"};
    (void)state;
    if (!HAS_OWN_MALLOC) {
        print_message("skipped: sanitizers have their own malloc\n");
        skip();
    }
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (int stays = 0; stays < 2; stays++) {
            const unsigned refused = load_without_each(models[i], stays == 1);
            print_message("  %s: refused %u times\n", models[i], refused);
            assert_true(refused > 20);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_finds_no_memory_is_refused),
    };
    return cmocka_run_group_tests_name("model, memory", tests, NULL, NULL);
}
