/* address_space.c - see address_space.h. */
#include "server/core/address_space.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define IS_SANITIZED 1
#elif defined __has_feature
#define IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_SANITIZED 0
#endif

#define MB (UINT64_C(1) << 20)
#define BUFFER_BYTES (128 * MB) /* what OpenBLAS reserves for a thread on x86-64, the most of all builds */
#define OTHER_BYTES (48 * MB)   /* what the libraries take besides until main runs: 32 MB were seen */

#if !IS_SANITIZED
/* As many threads as OpenBLAS prepares for: one for each processor that the system has, allowed or not, unless
 * OMP_NUM_THREADS says fewer. */
static uint64_t blas_threads(char *const envp[])
{
    static const char name[] = "OMP_NUM_THREADS=";
    const long processors = sysconf(_SC_NPROCESSORS_CONF);
    uint64_t threads = processors > 1 ? (uint64_t)processors : 1;
    for (; *envp != NULL; envp++) {
        const long asked = strncmp(*envp, name, strlen(name)) == 0 ? strtol(*envp + strlen(name), NULL, 10) : 0;
        if (asked > 0 && (uint64_t)asked < threads)
            threads = (uint64_t)asked;
    }
    return threads;
}
#endif

/* Not with sanitizers, which are not ready for calls this early and need far more themselves. */
void address_space_check(int argc, char *argv[], char *envp[])
{
#if !IS_SANITIZED
    struct rlimit limit;
    char message[320];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return;
    const uint64_t threads = blas_threads(envp), need = threads * BUFFER_BYTES + OTHER_BYTES;
    void *trial = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (trial != MAP_FAILED) {
        (void)munmap(trial, need);
        return;
    }
    const int size = snprintf(message, sizeof message,
                              "%s: the address space is limited to %llu MiB (ulimit -v, LimitAS=); expected room for "
                              "%llu MiB beside the program, 128 for each of %llu threads of OpenBLAS; raise the limit, "
                              "or lower OMP_NUM_THREADS\n",
                              argc > 0 ? argv[0] : "aftd", (unsigned long long)(limit.rlim_cur / MB),
                              (unsigned long long)(need / MB), (unsigned long long)threads);
    (void)!write(STDERR_FILENO, message, size < (int)sizeof message ? (size_t)size : sizeof message - 1);
    _exit(EXIT_FAILURE);
#else
    (void)argc;
    (void)argv;
    (void)envp;
#endif
}
