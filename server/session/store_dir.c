/* store_dir.c - see store_dir.h. A record is written beside its place, under a name of its own; then the one before is
 * removed, and it takes its place. So what is found with a record beside it was not answered yet, and what is found
 * without one is whole. (Were the one before replaced in one step, ext4 would send the new one to the disk at once, to
 * which most never have to go: the next one takes its place before that. That takes four times as long.) The file's
 * time is that of the session's last use. */
#include "server/session/store_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/file.h"
#include "server/core/log.h"
#include "server/core/metrics.h"

#define RECORD_END ".session"
#define WRITTEN_END ".new"

enum { NAME_BYTES = SESSION_KEY_TEXT + sizeof RECORD_END };

struct store_dir {
    struct session_store store; /* first */
    int fd;                     /* the folder */
    int lock;                   /* of it */
    bool syncs;
    pthread_mutex_t
        renames; /* while a record takes its place, and while one is opened: between the steps none is there */
    char path[]; /* for messages */
};

static struct store_dir *dir_of(struct session_store *s)
{
    return (struct store_dir *)(void *)s;
}

static void name_of(char out[NAME_BYTES], const struct session_key *key, const char *end)
{
    char text[SESSION_KEY_TEXT];
    session_key_print(key, text);
    (void)snprintf(out, NAME_BYTES, "%s%s", text, end);
}

static enum status fail(const struct store_dir *d, const char *doing, const char *name, struct error *err)
{
    const int why = errno;
    metrics_counter_add(METRIC_STORE_ERRORS, 0, 1);
    return error_set(err, why == ENOMEM ? ERR_NOMEM : ERR_STORE, "cannot %s %s/%s: %s", doing, d->path, name,
                     strerror(why));
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static bool write_file(const struct store_dir *d, const char *name, const struct session_bytes *record)
{
    const int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    const bool written = file_write_all(fd, record->bytes, record->size) && (!d->syncs || fdatasync(fd) == 0);
    const int why = errno;
    const bool closed = close(fd) == 0;
    errno = written ? errno : why;
    return written && closed;
}

static bool put_in_place(struct store_dir *d, const char *aside, const char *name)
{
    (void)pthread_mutex_lock(&d->renames);
    const bool fine = (unlinkat(d->fd, name, 0) == 0 || errno == ENOENT) && renameat(d->fd, aside, d->fd, name) == 0;
    const int why = errno;
    (void)pthread_mutex_unlock(&d->renames);
    errno = why;
    return fine;
}

/* Also over what could not be read, and is nobody's. */
static enum status put(struct session_store *s, const struct session_key *key, const struct session_claim *claim,
                       const struct session_bytes *record, struct error *err)
{
    struct store_dir *d = dir_of(s);
    char aside[NAME_BYTES], name[NAME_BYTES];
    (void)claim;
    name_of(aside, key, WRITTEN_END);
    name_of(name, key, RECORD_END);
    if (!write_file(d, aside, record)) {
        const enum status st = fail(d, "write", aside, err);
        (void)unlinkat(d->fd, aside, 0);
        return st;
    }
    if (!put_in_place(d, aside, name))
        return fail(d, "rename", aside, err); /* it stays, as it may be the only one by now: settle */
    if (d->syncs && fsync(d->fd) != 0)
        return fail(d, "write", "", err);
    return OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static enum status read_all(const struct store_dir *d, int fd, const char *name, size_t size, struct session_bytes *ret,
                            struct error *err)
{
    uint8_t *bytes = malloc(size + 1);
    size_t used = 0;
    if (bytes == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the record of a session; try again later");
    while (used < size) {
        const ssize_t n = read(fd, bytes + used, size - used);
        if (n == 0)
            break; /* what is missing is told by whoever reads the record */
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(bytes);
            return fail(d, "read", name, err);
        }
        used += (size_t)n;
    }
    *ret = (struct session_bytes){bytes, used};
    return OK;
}

static int open_record(struct store_dir *d, const char *name)
{
    (void)pthread_mutex_lock(&d->renames);
    const int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const int why = errno;
    (void)pthread_mutex_unlock(&d->renames);
    errno = why;
    return fd;
}

/* At most `most` bytes of a file. */
static enum status read_file(struct store_dir *d, const char *name, size_t most, struct stat *about,
                             struct session_bytes *ret, struct error *err)
{
    const int fd = open_record(d, name);
    if (fd < 0)
        return errno == ENOENT ? error_set(err, ERR_NOT_FOUND, "%s/%s is not there", d->path, name)
                               : fail(d, "open", name, err);
    enum status st = fstat(fd, about) == 0 ? OK : fail(d, "read", name, err);
    if (st == OK && !S_ISREG(about->st_mode))
        st = error_set(err, ERR_FORMAT, "it is no file");
    if (st == OK)
        st = read_all(d, fd, name, (size_t)about->st_size < most ? (size_t)about->st_size : most, ret, err);
    (void)close(fd);
    return st;
}

static enum status get(struct session_store *s, const struct session_key *key, struct session_claim *claim,
                       struct session_bytes *ret, struct error *err)
{
    char name[NAME_BYTES];
    struct stat about;
    (void)claim;
    name_of(name, key, RECORD_END);
    return read_file(dir_of(s), name, HTTP_BODY_MAX, &about, ret, err);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

static enum status remove_record(struct session_store *s, const struct session_key *key, struct error *err)
{
    const struct store_dir *d = dir_of(s);
    char name[NAME_BYTES];
    name_of(name, key, RECORD_END);
    if (unlinkat(d->fd, name, 0) == 0)
        return OK;
    return errno == ENOENT ? error_set(err, ERR_NOT_FOUND, "%s/%s is not there", d->path, name)
                           : fail(d, "remove", name, err);
}

static bool touch(struct session_store *s, const struct session_key *key, const struct session_claim *claim)
{
    char name[NAME_BYTES];
    (void)claim;
    name_of(name, key, RECORD_END);
    (void)utimensat(dir_of(s)->fd, name, NULL, AT_SYMLINK_NOFOLLOW);
    return true;
}

static void free_store(struct session_store *s)
{
    struct store_dir *d = dir_of(s);
    if (d->lock >= 0)
        (void)close(d->lock);
    if (d->fd >= 0)
        (void)close(d->fd);
    (void)pthread_mutex_destroy(&d->renames);
    free(d);
}

static const struct session_store_kind kind = {
    .get = get,
    .put = put,
    .remove = remove_record,
    .touch = touch,
    .free = free_store,
};

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static enum status refuse_path(const char *path, const char *why, struct error *err)
{
    return error_set_param(err, ERR_CONFIG, "sessions_dir", "sessions_dir: %s: %s", path, why);
}

/* `error` of making it. */
static const char *why_not_made(int error)
{
    return error == ENOENT ? "the folder that it is to be made in is not there; make that" : strerror(error);
}

/* It would be made: can it be? */
static enum status check_parent(const char *path, struct error *err)
{
    char parent[SETTING_TEXT_MAX + 1];
    struct stat about;
    (void)snprintf(parent, sizeof parent, "%s", path);
    const char *folder = dirname(parent);
    if (stat(folder, &about) != 0 || faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        return refuse_path(path, why_not_made(errno), err);
    return S_ISDIR(about.st_mode) ? OK : refuse_path(path, strerror(ENOTDIR), err);
}

enum status store_dir_check(const char *path, struct error *err)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return errno == ENOENT ? check_parent(path, err) : refuse_path(path, strerror(errno), err);
    if (!S_ISDIR(about.st_mode))
        return refuse_path(path, strerror(ENOTDIR), err);
    return faccessat(AT_FDCWD, path, R_OK | W_OK | X_OK, AT_EACCESS) == 0 ? OK
                                                                          : refuse_path(path, strerror(errno), err);
}

static enum status enter(struct store_dir *d, struct error *err)
{
    struct stat about;
    if (mkdir(d->path, 0700) != 0 && errno != EEXIST)
        return refuse_path(d->path, why_not_made(errno), err);
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0 || fstat(d->fd, &about) != 0 || faccessat(d->fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) != 0)
        return refuse_path(d->path, strerror(errno), err);
    if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        log_warning("sessions_dir: others than its owner may write in %s, and could so forge sessions", d->path);
    d->lock = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock < 0)
        return refuse_path(d->path, strerror(errno), err);
    if (flock(d->lock, LOCK_EX | LOCK_NB) != 0)
        return refuse_path(
            d->path, errno == EWOULDBLOCK ? "another daemon has it; each needs a folder of its own" : strerror(errno),
            err);
    return OK;
}

enum status store_dir_open(struct session_store **ret, const struct store_dir_options *o, struct error *err)
{
    const size_t length = strlen(o->path);
    struct store_dir *d = calloc(1, sizeof *d + length + 1);
    if (d == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the store of sessions");
    d->store.kind = &kind;
    d->syncs = o->syncs;
    (void)pthread_mutex_init(&d->renames, NULL);
    d->fd = d->lock = -1;
    memcpy(d->path, o->path, length + 1);
    const enum status st = enter(d, err);
    if (st == OK)
        *ret = &d->store;
    else
        free_store(&d->store);
    return st;
}

/* ---- what is there ---------------------------------------------------------------------------------------------- */

/* "0123...ef.session" */
static bool read_name(struct session_key *ret, const char *name, const char *end)
{
    static const char digits[] = "0123456789abcdef";
    if (strspn(name, digits) != SESSION_KEY_TEXT - 1 || strcmp(name + SESSION_KEY_TEXT - 1, end) != 0)
        return false;
    for (size_t i = 0; i < sizeof ret->bytes; i++)
        ret->bytes[i] =
            (uint8_t)((strchr(digits, name[2 * i]) - digits) << 4 | (strchr(digits, name[2 * i + 1]) - digits));
    return true;
}

/* Only the head is read; the state is when it is asked for. */
static enum status store_dir_look_at(struct store_dir *d, struct store_dir_found *ret, const char *name,
                                     struct error *err)
{
    struct session_bytes beginning = {.bytes = NULL};
    struct stat about = {.st_mtime = 0};
    size_t blob_at;
    enum status st = read_file(d, name, SESSION_RECORD_HEAD_MAX, &about, &beginning, err);
    ret->used_s = about.st_mtime;
    if (st == OK)
        st = session_record_head(&ret->head, &blob_at, beginning.bytes, beginning.size, &ret->key, err);
    free(beginning.bytes);
    if (st == OK)
        ret->head.blob_bytes = (uint64_t)about.st_size - blob_at;
    return st;
}

/* What was being written when a daemon ended: it takes its place, `name`, if nothing else has it, and it is whole. */
static bool settle(struct store_dir *d, const char *aside, char name[NAME_BYTES])
{
    struct session_key key;
    struct session_head head;
    struct session_bytes record = {.bytes = NULL};
    struct stream_snapshot snapshot = {.memory = NULL};
    struct stat about;
    if (!read_name(&key, aside, WRITTEN_END))
        return false;
    name_of(name, &key, RECORD_END);
    enum status st = faccessat(d->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? ERR_CONFLICT : OK;
    if (st == OK)
        st = read_file(d, aside, HTTP_BODY_MAX, &about, &record, NULL);
    if (st == OK)
        st = session_record_read(&head, &snapshot, &record, &key, NULL);
    if (st == ERR_FORMAT && session_record_is_of_another_version(record.bytes, record.size))
        st = OK; /* to be refused there, and kept */
    stream_snapshot_clear(&snapshot);
    free(record.bytes);
    if (st == ERR_FORMAT)
        log_info("sessions: %s/%s was not written to its end, and is removed", d->path, aside);
    if (st == ERR_CONFLICT || st == ERR_FORMAT)
        (void)unlinkat(d->fd, aside, 0);
    return st == OK && renameat(d->fd, aside, d->fd, name) == 0;
}

/* One file of the folder. *is_session: it is to be listed, if only to be removed one day. Errors: ERR_NOMEM. */
static enum status take_in(struct store_dir *d, const char *name, struct store_dir_found *ret, bool *is_session,
                           struct error *err)
{
    char settled[NAME_BYTES];
    struct error why;
    if (settle(d, name, settled))
        name = settled;
    *ret = (struct store_dir_found){.used_s = 0};
    *is_session = false;
    if (!read_name(&ret->key, name, RECORD_END))
        return OK;
    const enum status st = store_dir_look_at(d, ret, name, &why);
    if (st == ERR_NOMEM)
        return error_set(err, st, "%s", why.message);
    if (st != OK)
        log_warning("the session in %s/%s is refused: %s", d->path, name, why.message);
    *is_session = st == OK || st == ERR_FORMAT;
    return OK;
}

enum status store_dir_list(struct session_store *s, struct store_dir_found **ret, size_t *count, struct error *err)
{
    struct store_dir *d = dir_of(s);
    struct dirent **names;
    const int n = scandirat(d->fd, ".", &names, NULL, NULL);
    if (n < 0)
        return fail(d, "list", "", err);
    enum status st = OK;
    struct store_dir_found *all = calloc((size_t)n + 1, sizeof *all);
    if (all == NULL)
        st = error_set(err, ERR_NOMEM, "out of memory for the sessions that are kept");
    size_t found = 0;
    bool is_session = false;
    for (int i = 0; i < n; free(names[i++])) {
        if (st == OK)
            st = take_in(d, names[i]->d_name, &all[found], &is_session, err);
        found += st == OK && is_session;
    }
    free((void *)names);
    if (st != OK) {
        free(all);
        return st;
    }
    *ret = all;
    *count = found;
    return OK;
}
