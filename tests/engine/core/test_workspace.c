/* test_workspace.c - an engine's memory: every buffer has its size, begins a cache line, is zeroed and nobody else's;
 * and what is more than there can be is refused. */
#include "engine/core/workspace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BUFFERS = 200, LINE = 64 };

/* More of them than are first made room for. */
static void buffers_are_zeroed_and_apart(void **state)
{
    struct workspace w;
    uint8_t *buffers[BUFFERS];
    (void)state;
    workspace_init(&w);
    for (size_t i = 0; i < BUFFERS; i++)
        workspace_note(&w, &buffers[i], i + 1, 1 + i % 4);
    assert_int_equal(workspace_take(&w, NULL), OK);
    for (size_t i = 0; i < BUFFERS; i++) {
        const size_t size = (i + 1) * (1 + i % 4);
        assert_int_equal((uintptr_t)buffers[i] % LINE, 0);
        for (size_t k = 0; k < size; k++)
            assert_int_equal(buffers[i][k], 0);
        memset(buffers[i], 0xff, size);
    }
    workspace_clear(&w);
}

/* From large pages on, where an allocation is aligned by hand: also in memory that was somebody's before. */
static void large_ones_begin_a_large_page_and_are_zeroed(void **state)
{
    enum { BYTES = 3 << 20, LARGE_PAGE = 2 << 20 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct workspace w;
        uint8_t *small, *large;
        workspace_init(&w);
        workspace_note(&w, &small, 1, 1);
        workspace_note(&w, &large, BYTES, 1);
        assert_int_equal(workspace_take(&w, NULL), OK);
        assert_int_equal((uintptr_t)small % LARGE_PAGE, 0);
        assert_ptr_equal(large, small + LINE);
        for (size_t k = 0; k < BYTES; k++)
            if (large[k] != 0)
                fail_msg("byte %zu is %u", k, large[k]);
        memset(large, 0xff, BYTES);
        workspace_clear(&w);
    }
}

/* Wherever among the buffers it is asked for. */
static void more_bytes_than_can_be_counted_are_refused(void **state)
{
    static const struct {
        uint64_t count;
        size_t size;
    } cases[] = {{UINT64_MAX, 1}, {UINT64_MAX / 2, 4}, {UINT64_C(1) << 62, 4}, {UINT64_C(1) << 40, (size_t)1 << 40}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int place = 0; place < 3; place++) {
            struct workspace w;
            struct error err;
            void *buffers[3];
            workspace_init(&w);
            for (int k = 0; k < 3; k++)
                workspace_note(&w, &buffers[k], k == place ? cases[i].count : 10, k == place ? cases[i].size : 1);
            assert_int_equal(workspace_take(&w, &err), ERR_NOMEM);
            assert_non_null(strstr(err.message, "not enough memory"));
            workspace_clear(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_zeroed_and_apart),
        cmocka_unit_test(large_ones_begin_a_large_page_and_are_zeroed),
        cmocka_unit_test(more_bytes_than_can_be_counted_are_refused),
    };
    return cmocka_run_group_tests_name("workspace", tests, NULL, NULL);
}
