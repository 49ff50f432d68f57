/* processors.h - how many threads of this process can run at once. */
#ifndef ENGINE_CORE_PROCESSORS_H
#define ENGINE_CORE_PROCESSORS_H

#include <stdint.h>

/* The processors that we may run on, or fewer where the quota of a container or a unit (config/cgroup.h) allows less.
 * 1 .. ENGINE_THREADS_MAX. */
uint32_t processors_count(void);

#endif
