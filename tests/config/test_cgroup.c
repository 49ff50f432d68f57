/* test_cgroup.c - limits of control groups, from files like the kernel's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "config/cgroup.h"
#include "tests/support/temp_dir.h"

/* dir/path with that text; the folders on the way are made. */
static void put(const char *dir, const char *path, const char *text)
{
    char at[PATH_MAX];
    temp_path(at, dir, path);
    for (char *slash = at + strlen(dir) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(at, 0755);
        *slash = '/';
    }
    temp_write(at, text, strlen(text));
}

static struct cgroup_limits limits(const char *dir)
{
    char self[PATH_MAX], mount[PATH_MAX];
    temp_path(self, dir, "self");
    temp_path(mount, dir, "fs");
    return cgroup_limits_at(self, mount);
}

static void without_limits_there_are_none(void **state)
{
    char dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    assert_int_equal(limits(dir).memory, 0); /* not even the files exist */
    put(dir, "self", "0::/\n");
    put(dir, "fs/memory.max", "max\n");
    put(dir, "fs/cpu.max", "max 100000\n");
    const struct cgroup_limits l = limits(dir);
    assert_int_equal(l.memory, 0);
    assert_int_equal(l.processors, 0);
    temp_dir_remove(dir);
}

static void a_container_finds_its_limits_at_the_root(void **state)
{
    char dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    put(dir, "self", "0::/\n");
    put(dir, "fs/memory.max", "536870912\n");
    put(dir, "fs/cpu.max", "150000 100000\n");
    const struct cgroup_limits l = limits(dir);
    assert_int_equal(l.memory, 536870912);
    assert_int_equal(l.processors, 2); /* one and a half */
    temp_dir_remove(dir);
}

static void the_lowest_limit_on_the_way_up_counts(void **state)
{
    char dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    put(dir, "self", "0::/system.slice/aftd.service\n");
    put(dir, "fs/system.slice/aftd.service/memory.max", "2000000000\n");
    put(dir, "fs/system.slice/aftd.service/cpu.max", "50000 100000\n");
    put(dir, "fs/system.slice/memory.max", "1000000000\n");
    put(dir, "fs/system.slice/cpu.max", "400000 100000\n");
    const struct cgroup_limits l = limits(dir);
    assert_int_equal(l.memory, 1000000000);
    assert_int_equal(l.processors, 1);
    temp_dir_remove(dir);
}

static void version_1_is_understood(void **state)
{
    char dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    put(dir, "self", "12:cpuset:/docker/1\n5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n0::/\n");
    put(dir, "fs/memory/docker/1/memory.limit_in_bytes", "268435456\n");
    put(dir, "fs/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put(dir, "fs/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "300000\n");
    put(dir, "fs/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
    put(dir, "fs/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"); /* none */
    put(dir, "fs/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    const struct cgroup_limits l = limits(dir);
    assert_int_equal(l.memory, 268435456);
    assert_int_equal(l.processors, 3);
    temp_dir_remove(dir);
}

static void a_group_of_the_host_that_is_not_mounted_leaves_the_root(void **state)
{
    char dir[PATH_MAX];
    (void)state;
    temp_dir_create(dir);
    put(dir, "self", "7:memory:/kubepods/pod1/abc\n");
    put(dir, "fs/memory/memory.limit_in_bytes", "134217728\n");
    assert_int_equal(limits(dir).memory, 134217728);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_limits_there_are_none),
        cmocka_unit_test(a_container_finds_its_limits_at_the_root),
        cmocka_unit_test(the_lowest_limit_on_the_way_up_counts),
        cmocka_unit_test(version_1_is_understood),
        cmocka_unit_test(a_group_of_the_host_that_is_not_mounted_leaves_the_root),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
