/* processors.c - see processors.h. Runs when an engine opens. */
#include "engine/core/processors.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>

#include "config/limits.h"

/* "max 100000" or "150000 100000": microseconds of processor time in each period. UINT32_MAX without a quota. */
static uint32_t quota(void)
{
    char line[64];
    uint64_t allowed, period;
    uint32_t most = UINT32_MAX;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (f == NULL)
        return most;
    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes the file */
    if (fgets(line, sizeof line, f) != NULL && sscanf(line, "%" SCNu64 " %" SCNu64, &allowed, &period) == 2 &&
        period > 0 && allowed / period < ENGINE_THREADS_MAX)
        most = (uint32_t)((allowed + period - 1) / period);
    (void)fclose(f);
    return most;
}

uint32_t processors_count(void)
{
    cpu_set_t set;
    uint32_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    const uint32_t most = quota();
    n = n < most ? n : most;
    n = n < ENGINE_THREADS_MAX ? n : ENGINE_THREADS_MAX;
    return n > 0 ? n : 1;
}
