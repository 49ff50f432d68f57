/* process_stats.h - what the kernel knows about this process, as Prometheus' process_* metrics want it.
 * Reads /proc. Any thread; no state. */
#ifndef SERVER_CORE_PROCESS_STATS_H
#define SERVER_CORE_PROCESS_STATS_H

#include <stdint.h>

struct process_stats {
    uint64_t cpu_ns;       /* user and system */
    uint64_t memory_limit; /* bytes: of its control groups, or of the machine */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_fds;
    uint64_t max_fds;
    uint64_t threads;
};

/* What cannot be read is 0. */
void process_stats_read(struct process_stats *ret);

#endif
