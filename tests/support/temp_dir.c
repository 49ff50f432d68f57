/* temp_dir.c - see temp_dir.h. */
#include "tests/support/temp_dir.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FOLDERS_MAX = 64 };

static char folders[FOLDERS_MAX][PATH_MAX]; /* those that are there; "": none */

/* Put `path` in the place of the first that is `noted`. */
static bool note(const char *noted, const char *path)
{
    size_t at = 0;
    while (at < FOLDERS_MAX && strcmp(folders[at], noted) != 0)
        at++;
    if (at < FOLDERS_MAX)
        (void)snprintf(folders[at], PATH_MAX, "%s", path);
    return at < FOLDERS_MAX;
}

void temp_dir_create(char path[PATH_MAX])
{
    const char *parent = getenv("TMPDIR");

    temp_path(path, parent != NULL && parent[0] != '\0' ? parent : "/tmp", "aftd-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    assert_true(note("", path));
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void temp_dir_remove(const char *path)
{
    assert_int_equal(nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
    (void)note(path, ""); /* unless it lies in one of them */
}

int temp_dirs_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < FOLDERS_MAX; i++)
        if (folders[i][0] != '\0')
            temp_dir_remove(folders[i]);
    return 0;
}

void temp_path(char path[PATH_MAX], const char *dir, const char *name)
{
    const int n = snprintf(path, PATH_MAX, "%s/%s", dir, name);

    assert_in_range(n, 1, PATH_MAX - 1);
}

void temp_write(const char *path, const void *bytes, size_t size)
{
    (void)unlink(path); /* rewriting in place makes some file systems flush the old contents */
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    for (size_t at = 0; at < size;) {
        const ssize_t n = write(fd, (const char *)bytes + at, size - at);
        assert_true(n > 0);
        at += (size_t)n;
    }
    assert_int_equal(close(fd), 0);
}

char *temp_read(const char *path, size_t *size)
{
    struct stat info;
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &info), 0);
    *size = (size_t)info.st_size;
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    bytes[*size] = '\0';
    assert_int_equal(fclose(f), 0);
    return bytes;
}
