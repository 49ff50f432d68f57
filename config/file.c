/* file.c - regular files, read with pread(): a mapped file that somebody truncates would kill the process later.
 * Any thread. Invariant: between file_open and file_close, fd is open and `size` and `modified` are what
 * they were when it was opened. */
#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t read_chunk = (size_t)1 << 20; /* so that file_stop_reading is heeded soon, from slow disks too */

static atomic_bool stopped;

void file_stop_reading(void)
{
    atomic_store_explicit(&stopped, true, memory_order_relaxed);
}

static const char *kind_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a folder";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

enum status file_open(struct file *ret, const char *path, uint64_t size_max, struct error *err)
{
    enum status st = OK;
    struct stat info;

    /* Without O_NONBLOCK, a FIFO that nobody writes to would block us here forever. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, status_of_errno(errno), "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0) {
        st = error_set(err, status_of_errno(errno), "%s: %s", path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        st = error_set(err, ERR_FORMAT, "%s: is %s, expected a regular file", path, kind_of(info.st_mode));
        goto done;
    }
    if ((uint64_t)info.st_size > size_max) {
        st = error_set(err, ERR_FORMAT, "%s: has %" PRIu64 " bytes, expected at most %" PRIu64, path,
                       (uint64_t)info.st_size, size_max);
        goto done;
    }
    *ret = (struct file){.path = path, .fd = fd, .size = (uint64_t)info.st_size, .modified = info.st_mtim};
done:
    if (st != OK)
        (void)close(fd);
    return st;
}

void file_close(struct file *f)
{
    if (f == NULL || f->fd < 0)
        return;
    (void)close(f->fd);
    f->fd = -1;
}

enum status file_read(struct file *f, void *out, size_t n, struct error *err)
{
    const enum status st = file_read_at(f, f->at, out, n, err);
    f->at += n;
    return st;
}

enum status file_read_at(const struct file *f, uint64_t from, void *out, size_t n, struct error *err)
{
    size_t at = 0;

    while (at < n) {
        const size_t want = n - at < read_chunk ? n - at : read_chunk;
        if (atomic_load_explicit(&stopped, memory_order_relaxed))
            return error_set(err, ERR_UNAVAILABLE, "%s: was not read to its end: the program is stopping", f->path);
        const ssize_t got = pread(f->fd, (char *)out + at, want, (off_t)(from + at));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, ERR_IO, "%s: %s", f->path, strerror(errno));
        if (got == 0)
            return error_set(err, ERR_IO, "%s: ended %zu bytes early: it was truncated while being read", f->path,
                             n - at);
        at += (size_t)got;
    }
    return OK;
}

enum status file_check_unchanged(const struct file *f, struct error *err)
{
    struct stat now;

    if (fstat(f->fd, &now) != 0)
        return error_set(err, ERR_IO, "%s: %s", f->path, strerror(errno));
    if ((uint64_t)now.st_size != f->size)
        return error_set(err, ERR_IO, "%s: changed from %" PRIu64 " to %" PRIu64 " bytes while being read", f->path,
                         f->size, (uint64_t)now.st_size);
    if (now.st_mtim.tv_sec != f->modified.tv_sec || now.st_mtim.tv_nsec != f->modified.tv_nsec)
        return error_set(err, ERR_IO, "%s: was written to while being read", f->path);
    return OK;
}

enum status file_read_all(char **ret, size_t *size, const char *path, uint64_t size_max, struct error *err)
{
    enum status st;
    struct file f = {.fd = -1};
    char *bytes = NULL;

    st = file_open(&f, path, size_max, err);
    if (st != OK)
        goto done;
    bytes = malloc((size_t)f.size + 1);
    if (bytes == NULL) {
        st = error_set(err, ERR_NOMEM, "%s: not enough memory for %" PRIu64 " bytes", path, f.size);
        goto done;
    }
    st = file_read(&f, bytes, (size_t)f.size, err);
    if (st == OK)
        st = file_check_unchanged(&f, err);
    if (st != OK)
        goto done;
    bytes[f.size] = '\0';
    *ret = bytes;
    *size = (size_t)f.size;
    bytes = NULL; /* the caller's now */
done:
    file_close(&f);
    free(bytes);
    return st;
}

bool file_write_all(int fd, const void *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = write(fd, (const char *)bytes + at, size - at);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool file_replace(const char *path, const void *bytes, size_t size, bool (*prepare)(int fd, const void *arg),
                  const void *arg)
{
    char aside[PATH_MAX];
    errno = ENAMETOOLONG;
    const int length = snprintf(aside, sizeof aside, "%s.XXXXXX", path);
    const int fd = length > 0 && (size_t)length < sizeof aside ? mkostemp(aside, O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    /* prepared after it is written, which would take set-user-ID off the mode */
    const bool written = file_write_all(fd, bytes, size) && prepare(fd, arg) && fsync(fd) == 0;
    int why = errno;
    if (close(fd) == 0 && written && rename(aside, path) == 0)
        return true;
    why = written ? errno : why;
    (void)unlink(aside);
    errno = why;
    return false;
}
