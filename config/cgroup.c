/* cgroup.c - see cgroup.h.
 *
 * /proc/self/cgroup names the process's group; each folder from there up to the root may hold a limit, and the lowest
 * one counts. In a container the path is often "/", or one of the host that does not exist in here: the root of the
 * mount is then the container's own group. */
#include "config/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 64, PATH_BYTES = PATH_MAX + 256 };

/* Version 1 writes "no limit" as the largest multiple of a page. */
#define MEMORY_END (UINT64_C(1) << 60)

static void lower(uint64_t *limit, uint64_t value)
{
    if (value > 0 && (*limit == 0 || value < *limit))
        *limit = value;
}

/* The first line of dir/name; false: there is none. */
static bool read_line(const char *dir, const char *name, char out[LINE_MAX_BYTES])
{
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (f == NULL)
        return false;
    const bool fine = fgets(out, LINE_MAX_BYTES, f) != NULL;
    (void)fclose(f);
    return fine;
}

/* A number; 0 for a word such as "max", for a negative one and for what is not there. */
static uint64_t read_number(const char *dir, const char *name)
{
    char line[LINE_MAX_BYTES];
    uint64_t value = 0;
    /* NOLINTNEXTLINE(cert-err34-c): the kernel writes the file */
    if (!read_line(dir, name, line) || line[0] == '-' || sscanf(line, "%" SCNu64, &value) != 1)
        return 0;
    return value;
}

static void add_quota(struct cgroup_limits *l, uint64_t allowed, uint64_t period)
{
    uint64_t processors = l->processors;
    if (allowed == 0 || period == 0)
        return;
    lower(&processors, allowed / period + (allowed % period != 0));
    l->processors = processors < UINT32_MAX ? (uint32_t)processors : UINT32_MAX;
}

/* A folder has the files of its version, and in version 1 of its controllers; others are not there. */
static void cgroup_look_at(struct cgroup_limits *l, const char *dir)
{
    char line[LINE_MAX_BYTES];
    uint64_t allowed, period;
    const uint64_t bytes = read_number(dir, "memory.limit_in_bytes");
    lower(&l->memory, read_number(dir, "memory.max"));
    lower(&l->memory, bytes < MEMORY_END ? bytes : 0);
    /* "max 100000" or "150000 100000": microseconds of processor time in each period.
     * NOLINTNEXTLINE(cert-err34-c): the kernel writes the file */
    if (read_line(dir, "cpu.max", line) && sscanf(line, "%" SCNu64 " %" SCNu64, &allowed, &period) == 2)
        add_quota(l, allowed, period);
    add_quota(l, read_number(dir, "cpu.cfs_quota_us"), read_number(dir, "cpu.cfs_period_us"));
}

/* Look at the group `path`, "/a/b", and at all above it: root/a/b, root/a, root. */
static void look_upwards(struct cgroup_limits *l, const char *root, const char *path)
{
    char dir[PATH_BYTES];
    const size_t root_size = strlen(root);
    const int n = snprintf(dir, sizeof dir, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof dir)
        return;
    for (;;) {
        cgroup_look_at(l, dir);
        char *slash = strrchr(dir + root_size, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

struct cgroup_limits cgroup_limits_at(const char *self, const char *mount)
{
    struct cgroup_limits l = {.memory = 0};
    char line[PATH_MAX], root[PATH_MAX];
    FILE *f = fopen(self, "re");
    if (f == NULL)
        return l;
    while (fgets(line, sizeof line, f) != NULL) { /* "0::/path", or "4:cpu,cpuacct:/path" in version 1 */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(++controllers, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        if (snprintf(root, sizeof root, "%s/%s", mount, controllers) < (int)sizeof root)
            look_upwards(&l, root, path);
    }
    (void)fclose(f);
    return l;
}

struct cgroup_limits cgroup_limits(void)
{
    return cgroup_limits_at("/proc/self/cgroup", "/sys/fs/cgroup");
}
