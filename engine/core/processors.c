/* processors.c - see processors.h. Runs when an engine opens. */
#include "engine/core/processors.h"

#include <sched.h>

#include "config/cgroup.h"
#include "config/limits.h"

uint32_t processors_count(void)
{
    cpu_set_t set;
    uint32_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    const uint32_t most = cgroup_limits().processors;
    n = most == 0 || n < most ? n : most;
    n = n < ENGINE_THREADS_MAX ? n : ENGINE_THREADS_MAX;
    return n > 0 ? n : 1;
}
