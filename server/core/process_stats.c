/* process_stats.c - what the kernel knows about this process, as Prometheus' process_* metrics want it: reads
 * /proc/self/stat, /proc/self/fd and the limits; proc(5) numbers the fields. What cannot be read stays as it was. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config/memory.h"
#include "server/core/clock.h"
#include "server/core/metrics_inner.h"

enum { FIELD_THREADS = 20, FIELD_VIRTUAL = 23, FIELD_RESIDENT = 24 };

static void read_stat(void)
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
            metrics_gauge_set(METRIC_THREADS, 0, value);
        else if (field == FIELD_VIRTUAL)
            metrics_gauge_set(METRIC_VIRTUAL, 0, value);
        else if (field == FIELD_RESIDENT)
            metrics_gauge_set(METRIC_RESIDENT, 0, value * (uint64_t)sysconf(_SC_PAGESIZE));
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

void metrics_update_process(void)
{
    struct timespec cpu;
    struct rlimit files;
    const uint64_t memory = memory_there_is();
    read_stat();
    metrics_gauge_set(METRIC_OPEN_FDS, 0, count_open_fds());
    if (memory > 0)
        metrics_gauge_set(METRIC_MEMORY_LIMIT, 0, memory);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        metrics_gauge_set(METRIC_MAX_FDS, 0, files.rlim_cur);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) == 0) /* finer than the ticks of /proc/self/stat; a total */
        atomic_store_explicit(&metrics_rows[METRIC_CPU].values[0],
                              (uint64_t)cpu.tv_sec * CLOCK_NS_PER_S + (uint64_t)cpu.tv_nsec, memory_order_relaxed);
}
