/* file.h - read a regular file of bounded size, and notice when it changes meanwhile; replace one as a whole. A model
 * directory may hold anything under the name that we expect: a folder, a FIFO that never answers, a file that somebody
 * is copying.
 * One struct file belongs to one thread, but for file_read_at. The only global state is that nothing is read any
 * more. */
#ifndef CONFIG_FILE_H
#define CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "config/status.h"

struct file {
    const char *path; /* borrowed from the caller of file_open */
    int fd;
    uint64_t size, at; /* at: what file_read reads next */
    struct timespec modified;
};

/* Open `path` for reading from its start; never waits. *ret is set only on OK; end with file_close.
 * Errors: ERR_IO (cannot be opened), ERR_FORMAT (not a regular file, more than size_max bytes). */
enum status file_open(struct file *ret, const char *path, uint64_t size_max, struct error *err);
void file_close(struct file *f);

/* The next n bytes into out [n]. Errors: ERR_IO, also when the file ends before that; ERR_UNAVAILABLE after
 * file_stop_reading. */
enum status file_read(struct file *f, void *out, size_t n, struct error *err);
/* The same from byte `from` of the file on, of which many threads may read at once. */
enum status file_read_at(const struct file *f, uint64_t from, void *out, size_t n, struct error *err);
/* The process ends: files that are being read, by any thread, are given up within a mebibyte, and none is read any
 * more. */
void file_stop_reading(void);

/* ERR_IO when the file is no longer as file_open found it: what was read may be a mixture. */
enum status file_check_unchanged(const struct file *f, struct error *err);

/* The whole of `path`, *size bytes, in *ret (free it), followed by a NUL. Errors: as above, and ERR_NOMEM. */
enum status file_read_all(char **ret, size_t *size, const char *path, uint64_t size_max, struct error *err);

/* All of bytes [size], in as many pieces as it takes. False: errno says why not. */
bool file_write_all(int fd, const void *bytes, size_t size);
/* Write a new file beside `path`, of mode 0600, which `prepare` gives its owner and mode; it takes the name once it is
 * on the disk, the name itself not yet. False, and nothing is changed: errno says why not. */
bool file_replace(const char *path, const void *bytes, size_t size, bool (*prepare)(int fd, const void *arg),
                  const void *arg);

#endif
