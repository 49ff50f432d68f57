/* scarcity.c - see scarcity.h. */
#include "tests/support/scarcity.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/daemon.h"
#include "tests/support/program.h"
#include "tests/support/temp_dir.h"

enum { SETTLE_MS = 5000 };

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define CAN_PRELOAD 0
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAN_PRELOAD 0
#endif
#endif
#ifndef CAN_PRELOAD
#define CAN_PRELOAD 1
#endif

struct scarce_memory *scarcity_begin(const char *folder, const char *thread)
{
    char path[PATH_MAX];
    struct scarce_memory none = {.until = 0};
    if (!CAN_PRELOAD) {
        print_message("skipped: sanitizers have an allocator of their own\n");
        skip();
    }
    (void)snprintf(none.thread, sizeof none.thread, "%s", thread);
    temp_path(path, folder, ".scarce");
    temp_write(path, &none, sizeof none);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    struct scarce_memory *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(s != MAP_FAILED);
    (void)close(fd);
    assert_int_equal(setenv(SCARCE_MEMORY_VARIABLE, path, 1), 0);
    return s;
}

void scarcity_enter(void)
{
    char library[PATH_MAX];
    program_find(library, "tests/scarce_memory.so", "AFTD_TEST_SCARCE_MEMORY");
    if (access(library, R_OK) != 0)
        fail_msg("%s is not there", library);
    assert_int_equal(setenv("LD_PRELOAD", library, 1), 0);
}

void scarcity_leave(void)
{
    (void)unsetenv("LD_PRELOAD");
}

void scarcity_end(struct scarce_memory *s)
{
    scarcity_leave();
    if (s != NULL)
        (void)munmap(s, sizeof *s);
}

void scarcity_await(const struct scarce_memory *s, long most, const char *after)
{
    for (const int64_t end = test_now_ms() + test_ms(SETTLE_MS); atomic_load(&s->live) > most; test_sleep_ms(1))
        if (test_now_ms() > end)
            fail_msg("%s: %ld allocations are left, and %ld were there before", after, atomic_load(&s->live), most);
}
