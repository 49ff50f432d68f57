/* cgroup.h - what the control group of this process may use: that of a container, of a systemd unit, or none. Both
 * versions of Linux's interface. Reads files; no state, any thread. */
#ifndef CONFIG_CGROUP_H
#define CONFIG_CGROUP_H

#include <stdint.h>

/* 0: no limit, or none that can be read. */
struct cgroup_limits {
    uint64_t memory;     /* bytes */
    uint32_t processors; /* a quota of processor time in whole processors; a fraction of one counts as one */
};

/* The least of what this process's group and those above it allow. */
struct cgroup_limits cgroup_limits(void);

/* The same of other files: `self` has the form of /proc/self/cgroup, and `mount` that of /sys/fs/cgroup. */
struct cgroup_limits cgroup_limits_at(const char *self, const char *mount);

#endif
