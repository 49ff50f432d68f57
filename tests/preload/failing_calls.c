/* failing_calls.c - for LD_PRELOAD: system calls that fail where a test wants it, whoever makes them, the C library
 * itself too. A seccomp filter has the kernel send SIGSYS for each call that is listed, and the handler carries it out,
 * or does not. Linux on x86-64. Who preloads it sets GOMP_SPINCOUNT, so that the daemon does not run itself again: the
 * filter would stay, but not the handler. Any thread; what is shared is atomic. */
#include "tests/preload/failing_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the handler knows the registers of x86-64 alone"
#endif

/* Not what the C library does with all signals blocked, around the birth and the end of threads. */
static const int trapped[] = {
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_access,
    SYS_poll,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_accept4,
    SYS_socket,
    SYS_bind,
    SYS_listen,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_connect,
    SYS_flock,
    SYS_fcntl,
    SYS_getdents64,
    SYS_getsockname,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_eventfd2,
    SYS_fsync,
    SYS_epoll_wait,
    SYS_rename,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_openat,
    SYS_readlink,
    SYS_sendfile,
    SYS_epoll_pwait,
    SYS_unlink,
    SYS_fchmod,
    SYS_rt_sigtimedwait,
    SYS_getrandom,
    SYS_shutdown,
    SYS_uname,
    SYS_sysinfo,
    SYS_socketpair,
};

static struct failing_calls *shared;

/* The one place from which a trapped call reaches the kernel. */
extern const char failing_calls_done[];
__asm__(".text\n"
        "failing_calls_enter:\n" /* (number, six arguments): as syscall(2), but -errno for a failure */
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        "failing_calls_done:\n"
        "    ret\n");
extern long failing_calls_enter(long number, long a, long b, long c, long d, long e, long f);

/* Descriptors that only the process itself writes to and reads from, or its timers: nothing there can fail. */
static atomic_bool is_own[1024];

static void note_descriptor(int call, long argument, long result)
{
    const long fd = call == SYS_close ? argument : result;
    if (fd >= 0 && fd < (long)(sizeof is_own / sizeof is_own[0]))
        atomic_store(&is_own[fd], call == SYS_eventfd2 || call == SYS_timerfd_create);
}

/* Can it fail at all, on descriptors that are right? */
static bool can_fail(int call, long first, long second)
{
    if (call == SYS_epoll_ctl)
        return second == EPOLL_CTL_ADD; /* the others take nothing */
    return (call != SYS_read && call != SYS_write) || first < 0 || first >= (long)(sizeof is_own / sizeof is_own[0]) ||
           !atomic_load(&is_own[first]);
}

/* Does this call, with its first arguments, fail? Counts it. */
static bool fails(int call, long first, long second)
{
    char name[16] = "";
    if (shared == NULL || !can_fail(call, first, second))
        return false;
    if (shared->thread[0] != '\0' &&
        (failing_calls_enter(SYS_prctl, PR_GET_NAME, (long)name, 0, 0, 0, 0) != 0 || strcmp(name, shared->thread) != 0))
        return false;
    (void)atomic_fetch_add(&shared->made[call], 1);
    if (call != atomic_load(&shared->call))
        return false;
    const bool lasts = atomic_load(&shared->lasts);
    long left = atomic_load(&shared->until);
    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak(&shared->until, &left, lasts && left == 1 ? 1 : left - 1));
    if (left == 1)
        (void)atomic_fetch_add(&shared->failed, 1);
    return left == 1;
}

static void on_call(int number, siginfo_t *info, void *context)
{
    greg_t *const r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const int call = (int)r[REG_RAX];
    (void)number;
    (void)info;
    if (call >= 0 && call < FAILING_CALLS && fails(call, (long)r[REG_RDI], (long)r[REG_RSI])) {
        const int error = atomic_load(&shared->error);
        if (error != FAILING_SHORT && call == SYS_close) /* what it closes is closed */
            (void)failing_calls_enter(call, r[REG_RDI], 0, 0, 0, 0, 0);
        if (error != FAILING_SHORT) {
            r[REG_RAX] = -error;
            return;
        }
        if ((call == SYS_read || call == SYS_write) && r[REG_RDX] > 1)
            r[REG_RDX] = 1;
    }
    const long argument = (long)r[REG_RDI];
    if (call == SYS_close)
        note_descriptor(call, argument, 0);
    r[REG_RAX] =
        (greg_t)failing_calls_enter(call, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
    if (call == SYS_eventfd2 || call == SYS_timerfd_create)
        note_descriptor(call, argument, (long)r[REG_RAX]);
}

int pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return fails(FAILING_PTHREAD_CREATE, 0, 0) ? atomic_load(&shared->error) : real(ret, attributes, run, arg);
}

/* What a test sends often, so that calls are interrupted. */
static void on_interruption(int number)
{
    (void)number;
}

static void install(void)
{
    const struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    const struct sigaction interruption = {.sa_handler = on_interruption};
    const uint64_t done = (uint64_t)(uintptr_t)failing_calls_done;
    struct sock_filter filter[sizeof trapped / sizeof trapped[0] + 16];
    unsigned short n = 0;
#define LOAD(field, more) \
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + (more))
#define RETURN(what) filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what)
    LOAD(arch, 0);
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    RETURN(SECCOMP_RET_ALLOW);
    LOAD(instruction_pointer, 0);
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)done, 0, 3);
    LOAD(instruction_pointer, 4);
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(done >> 32), 0, 1);
    RETURN(SECCOMP_RET_ALLOW);
    LOAD(nr, 0);
    for (size_t i = 0; i < sizeof trapped / sizeof trapped[0]; i++) {
        const unsigned char past = (unsigned char)(sizeof trapped / sizeof trapped[0] - i);
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)trapped[i], past, 0);
    }
    RETURN(SECCOMP_RET_ALLOW);
    RETURN(SECCOMP_RET_TRAP);
    const struct sock_fprog program = {.len = n, .filter = filter};
    if (sigaction(SIGSYS, &action, NULL) != 0 || sigaction(SIGURG, &interruption, NULL) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        shared = NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv(FAILING_CALLS_VARIABLE);
    const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = fd >= 0 ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        (void)close(fd);
    shared = mapped != MAP_FAILED ? mapped : NULL;
    if (shared != NULL)
        install();
}
