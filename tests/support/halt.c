/* halt.c - see halt.h. */
#include "tests/support/halt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The name that a thread has given itself; "" once it has ended. */
static void thread_name(char name[32], pid_t process, pid_t thread)
{
    char path[64];
    name[0] = '\0';
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)process, (int)thread);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return;
    if (fgets(name, 32, f) != NULL)
        name[strcspn(name, "\n")] = '\0';
    (void)fclose(f);
}

static pid_t find_thread(pid_t process, const char *name)
{
    char path[64], found[32];
    pid_t first = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        const pid_t thread = (pid_t)strtol(e->d_name, NULL, 10);
        thread_name(found, process, thread);
        if (strcmp(found, name) == 0 && (first == 0 || thread < first))
            first = thread;
    }
    (void)closedir(dir);
    if (first == 0)
        fail_msg("the daemon has no thread \"%s\"", name);
    return first;
}

void halt_begin(struct halt *h, const struct daemon *d, const char *name)
{
    const pid_t thread = find_thread(d->pid, name);
    int status = 0;
    if (ptrace(PTRACE_SEIZE, thread, NULL, PTRACE_O_TRACESYSGOOD) != 0) {
        assert_true(errno == EPERM || errno == EACCES || errno == ENOSYS);
        print_message("skipped: a process may not trace another here: %s\n", strerror(errno));
        skip();
    }
    h->thread = thread;
    assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    assert_int_equal(waitpid(thread, &status, __WALL), thread);
    assert_true(WIFSTOPPED(status));
}

/* Does the thread, which stands at the beginning of a system call, open such a file there? */
static bool opens(pid_t thread, const struct __ptrace_syscall_info *call, const char *path_end)
{
    char memory[64], path[PATH_MAX] = "";
    const size_t end = strlen(path_end);
    if (call->op != PTRACE_SYSCALL_INFO_ENTRY || call->entry.nr != SYS_openat)
        return false;
    (void)snprintf(memory, sizeof memory, "/proc/%d/mem", (int)thread);
    const int fd = open(memory, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(pread(fd, path, sizeof path - 1, (off_t)call->entry.args[1]) > 0);
    (void)close(fd);
    const size_t size = strlen(path);
    return size >= end && strcmp(path + size - end, path_end) == 0;
}

void halt_at_open(const struct halt *h, const char *path_end)
{
    for (int status = 0;;) {
        struct __ptrace_syscall_info call = {.op = PTRACE_SYSCALL_INFO_NONE};
        assert_int_equal(ptrace(PTRACE_SYSCALL, h->thread, NULL, NULL), 0);
        assert_int_equal(waitpid(h->thread, &status, __WALL), h->thread);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) != (SIGTRAP | 0x80))
            continue;
        if (syscall(SYS_ptrace, PTRACE_GET_SYSCALL_INFO, h->thread, sizeof call, &call) < 0) {
            print_message("skipped: what another process asks of the system cannot be seen here: %s\n",
                          strerror(errno));
            skip();
        }
        if (opens(h->thread, &call, path_end))
            return;
    }
}

void halt_end(struct halt *h)
{
    if (h->thread != 0)
        (void)ptrace(PTRACE_DETACH, h->thread, NULL, NULL);
    h->thread = 0;
}
