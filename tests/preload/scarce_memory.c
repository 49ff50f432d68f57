/* scarce_memory.c - for LD_PRELOAD: an allocator that refuses the one allocation that a test chooses, and counts those
 * that are not freed. Not with sanitizers, which have allocators of their own. Any thread; what is shared is atomic. */
#include "tests/preload/scarce_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The C library's own, under the names that it has for those who stand before it. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *old);

static struct scarce_memory *shared;

/* Where libgomp's code is. It ends the process when it lacks memory, and a team of one thread is allocated for each
 * parallel region: what the engine's thread has just given back, and finds again in an arena that nobody else uses. */
static uintptr_t gomp_begin, gomp_end;

static int find_gomp(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    if (strstr(info->dlpi_name, "libgomp") == NULL)
        return 0;
    gomp_begin = info->dlpi_addr;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD)
            gomp_end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    return 1;
}

__attribute__((constructor)) static void map(void)
{
    (void)dl_iterate_phdr(find_gomp, NULL);
    const char *path = getenv(SCARCE_MEMORY_VARIABLE);
    const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = fd >= 0 ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        (void)close(fd);
    shared = mapped != MAP_FAILED ? mapped : NULL;
}

static bool is_short(void)
{
    char name[16];
    return shared->thread[0] == '\0' || (prctl(PR_GET_NAME, name) == 0 && strcmp(name, shared->thread) == 0);
}

/* `caller`: where the allocator was called from. */
static bool is_refused(const void *caller)
{
    const uintptr_t from = (uintptr_t)caller;
    if (shared == NULL || atomic_load(&shared->until) <= 0 || (from >= gomp_begin && from < gomp_end) || !is_short())
        return false;
    const bool lasts = atomic_load(&shared->lasts);
    long left = atomic_load(&shared->until);
    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak(&shared->until, &left, lasts && left == 1 ? 1 : left - 1));
    if (left > 1)
        return false;
    (void)atomic_fetch_add(&shared->refused, 1);
    errno = ENOMEM;
    return true;
}

static void *counted(void *made)
{
    if (made != NULL && shared != NULL)
        (void)atomic_fetch_add(&shared->live, 1);
    return made;
}

void *malloc(size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : counted(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    if (is_refused(__builtin_return_address(0)))
        return NULL;
    void *made = __libc_realloc(old, size);
    return old == NULL ? counted(made) : made;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : counted(__libc_memalign(alignment, size));
}

void *memalign(size_t alignment, size_t size)
{
    return is_refused(__builtin_return_address(0)) ? NULL : counted(__libc_memalign(alignment, size));
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *made = is_refused(__builtin_return_address(0)) ? NULL : counted(__libc_memalign(alignment, size));
    if (made == NULL)
        return ENOMEM;
    *ret = made;
    return 0;
}

void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (!__builtin_mul_overflow(count, size, &bytes))
        return realloc(old, bytes);
    errno = ENOMEM;
    return NULL;
}

void free(void *old)
{
    if (old != NULL && shared != NULL)
        (void)atomic_fetch_sub(&shared->live, 1);
    __libc_free(old);
}
