/* process_stats.c - reads /proc/self/stat, /proc/self/fd and the limits; proc(5) numbers the fields.
 * Any thread; no state. */
#include "server/core/process_stats.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config/memory.h"

#define NS_PER_SECOND UINT64_C(1000000000)

enum { FIELD_THREADS = 20, FIELD_VIRTUAL = 23, FIELD_RESIDENT = 24 };

static uint64_t positive(long value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static void read_stat(struct process_stats *ret)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return;
    const size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    const char *at = strrchr(text, ')'); /* the name is field 2 and may hold spaces and parentheses */
    if (at == NULL)
        return;
    for (int field = 3; (at = strchr(at, ' ')) != NULL; field++) {
        at++;
        const uint64_t value = strtoull(at, NULL, 10);
        if (field == FIELD_THREADS)
            ret->threads = value;
        else if (field == FIELD_VIRTUAL)
            ret->virtual_bytes = value;
        else if (field == FIELD_RESIDENT)
            ret->resident_bytes = value * positive(sysconf(_SC_PAGESIZE));
    }
}

static uint64_t count_open_fds(void)
{
    uint64_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) /* dir is this thread's own */
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    return count > 0 ? count - 1 : 0; /* without the directory itself */
}

void process_stats_read(struct process_stats *ret)
{
    struct timespec cpu;
    struct rlimit files;
    memset(ret, 0, sizeof *ret);
    read_stat(ret);
    ret->open_fds = count_open_fds();
    ret->memory_limit = memory_there_is();
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        ret->max_fds = files.rlim_cur;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) /* finer than the ticks of /proc/self/stat */
        ret->cpu_ns = positive(cpu.tv_sec) * NS_PER_SECOND + positive(cpu.tv_nsec);
}
