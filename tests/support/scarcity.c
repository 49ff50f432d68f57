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

/* ---- what a library and the test share -------------------------------------------------------------------------- */

/* A file in FOLDER with these bytes, mapped; the environment names it to the library. */
static void *share(const char *folder, const char *name, const char *variable, const void *bytes, size_t size)
{
    char path[PATH_MAX];
    if (!CAN_PRELOAD) {
        print_message("skipped: sanitizers stand where the library would\n");
        skip();
    }
    temp_path(path, folder, name);
    temp_write(path, bytes, size);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(shared != MAP_FAILED);
    (void)close(fd);
    assert_int_equal(setenv(variable, path, 1), 0);
    return shared;
}

static void preload(const char *name, const char *variable)
{
    char library[PATH_MAX];
    program_find(library, name, variable);
    if (access(library, R_OK) != 0)
        fail_msg("%s is not there", library);
    assert_int_equal(setenv("LD_PRELOAD", library, 1), 0);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

struct scarce_memory *scarcity_begin(const char *folder, const char *thread)
{
    struct scarce_memory none = {.until = 0};
    (void)snprintf(none.thread, sizeof none.thread, "%s", thread);
    return share(folder, ".scarce", SCARCE_MEMORY_VARIABLE, &none, sizeof none);
}

void scarcity_enter(void)
{
    preload("tests/scarce_memory.so", "AFTD_TEST_SCARCE_MEMORY");
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
    for (const int64_t end = test_now_ms() + HANG_MS; atomic_load(&s->live) > most; test_sleep_ms(1))
        if (test_now_ms() > end)
            fail_msg("%s: %ld allocations are left, and %ld were there before", after, atomic_load(&s->live), most);
}

/* ---- system calls ----------------------------------------------------------------------------------------------- */

struct failing_calls *failing_calls_begin(const char *folder)
{
    static const struct failing_calls none;
#ifndef __x86_64__
    print_message("skipped: system calls fail on x86-64 alone\n");
    skip();
#endif
    return share(folder, ".calls", FAILING_CALLS_VARIABLE, &none, sizeof none);
}

void failing_calls_enter(void)
{
    preload("tests/failing_calls.so", "AFTD_TEST_FAILING_CALLS");
    assert_int_equal(setenv("GOMP_SPINCOUNT", "1000", 0), 0); /* or aftd would run itself again, with the filter */
}

void failing_calls_leave(void)
{
    (void)unsetenv("LD_PRELOAD");
}

void failing_calls_end(struct failing_calls *f)
{
    failing_calls_leave();
    if (f != NULL)
        (void)munmap(f, sizeof *f);
}
