/* log_writer.c - see log_writer.h.
 * Locks: `writer.lock`, a leaf, guards the ring and is never held while the thread writes. Before the thread starts and
 * after it has ended, whoever logs writes what the ring has, with the lock held.
 *
 * Several lines go into one write(2) of at most PIPE_BUF bytes, which Linux does not tear, whoever else writes into the
 * same pipe. Standard error stays as it is: O_NONBLOCK would be set for all processes that share it, so the thread may
 * stop in a write; log_writer_stop then leaves it behind.
 *
 * Lines are missing in at most two places: before those that wait in the ring, which standard error has not taken
 * (output.lost), and behind them, which found no room (writer.missing). Once one did not, none finds room until the
 * ring is empty, so that the second place stays where it is. */
#include "server/core/log_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/core/clock.h"
#include "server/core/log_line.h"
#include "server/core/metrics.h"

_Static_assert(LOG_RING_BYTES >= 2 * PIPE_BUF, "room to gather lines while others are written");

enum mode {
    MODE_DIRECT,   /* who logs writes */
    MODE_THREAD,   /* the thread writes */
    MODE_ABANDONED /* the thread was left behind in a write: nobody writes any more */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread: lines, or `ends`; after that for log_writer_stop: the mode */
    pthread_t thread;
    enum mode mode;
    bool ends;
    uint64_t missing; /* lines behind those in the ring */
    size_t first, used;
    char ring[LOG_RING_BYTES];
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* How standard error has been doing. The thread's, while there is one; otherwise under the lock. */
static struct {
    uint64_t lost; /* lines that it has not taken, and of which no line has told yet */
    bool is_torn;  /* the last byte that it took did not end a line */
    bool fails;    /* the last write */
} output;

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void count_dropped(uint64_t lines)
{
    metrics_counter_add(METRIC_LOG_DROPPED, 0, lines);
}

/* Returns how many bytes were written; fewer than `size` if that is not possible now. */
static size_t write_bytes(const char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t n = write(STDERR_FILENO, bytes + done, size - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n < 0 && errno == EAGAIN) { /* another process has made it non-blocking */
            struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
            (void)poll(&p, 1, -1);
        } else if (n == 0 || errno != EINTR) {
            break;
        }
    }
    return done;
}

static uint64_t count_lines(const char *bytes, size_t size)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < size; i++)
        lines += bytes[i] == '\n';
    return lines;
}

/* What is written at a time: whole lines, or the warning that lines are missing. */
struct chunk {
    char bytes[PIPE_BUF];
    size_t size;
    bool is_warning;
};

/* The warning begins on a line of its own, whatever became of the one before. */
static void make_warning(struct chunk *c)
{
    struct log_line l;
    char message[128];
    (void)snprintf(message, sizeof message, "log: %llu lines are missing here: standard error did not take them",
                   (unsigned long long)output.lost);
    log_line_make(&l, LOG_LEVEL_WARNING, message, NULL, 0);
    assert(l.size < sizeof c->bytes);
    c->is_warning = true;
    c->size = 0;
    if (output.is_torn)
        c->bytes[c->size++] = '\n';
    memcpy(c->bytes + c->size, l.bytes, l.size);
    c->size += l.size;
}

/* False if standard error has not taken all of it; then the lines are lost. */
static bool write_chunk(const struct chunk *c)
{
    const size_t done = write_bytes(c->bytes, c->size);
    if (done > 0)
        output.is_torn = c->bytes[done - 1] != '\n';
    output.fails = done < c->size;
    if (c->is_warning) {
        output.lost = output.fails ? output.lost : 0;
    } else {
        const uint64_t lost = count_lines(c->bytes + done, c->size - done);
        output.lost += lost;
        count_dropped(lost);
    }
    return !output.fails;
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

static void add_locked(const char *line, size_t size)
{
    if (writer.missing > 0 || size > sizeof writer.ring - writer.used) {
        writer.missing++;
        count_dropped(1);
        return;
    }
    const size_t at = (writer.first + writer.used) % sizeof writer.ring;
    const size_t behind = sizeof writer.ring - at; /* room before the ring begins anew */
    const size_t whole = size < behind ? size : behind;
    memcpy(writer.ring + at, line, whole);
    memcpy(writer.ring, line + whole, size - whole);
    writer.used += size;
}

/* As many whole lines as fit. */
static void take_lines_locked(struct chunk *c)
{
    const size_t size = writer.used < sizeof c->bytes ? writer.used : sizeof c->bytes;
    const size_t behind = sizeof writer.ring - writer.first;
    const size_t whole = size < behind ? size : behind;
    memcpy(c->bytes, writer.ring + writer.first, whole);
    memcpy(c->bytes + whole, writer.ring, size - whole);
    const char *last = size > 0 ? memrchr(c->bytes, '\n', size) : NULL;
    c->is_warning = false;
    c->size = last != NULL ? (size_t)(last - c->bytes) + 1 : 0;
    writer.first = (writer.first + c->size) % sizeof writer.ring;
    writer.used -= c->size;
}

/* False: nothing is left. */
static bool next_chunk_locked(struct chunk *c)
{
    if (writer.used == 0) { /* the place of the lines that found no room has come */
        output.lost += writer.missing;
        writer.missing = 0;
    }
    if (output.lost > 0)
        make_warning(c);
    else
        take_lines_locked(c);
    return c->size > 0;
}

/* Standard error takes nothing, and nobody will try again: give up what waits for it. */
static void drop_rest_locked(void)
{
    struct chunk c;
    for (take_lines_locked(&c); c.size > 0; take_lines_locked(&c)) {
        const uint64_t lines = count_lines(c.bytes, c.size);
        output.lost += lines;
        count_dropped(lines);
    }
    output.lost += writer.missing;
    writer.missing = 0;
}

static void write_locked(void)
{
    struct chunk c;
    while (next_chunk_locked(&c) && write_chunk(&c))
        ;
    drop_rest_locked();
}

void log_writer_put(const char *line, size_t size)
{
    const int saved = errno;
    assert(size > 0 && size <= LOG_LINE_MAX && line[size - 1] == '\n');
    (void)pthread_mutex_lock(&writer.lock);
    switch (writer.mode) {
    case MODE_DIRECT:
        add_locked(line, size);
        write_locked();
        break;
    case MODE_THREAD:
        add_locked(line, size);
        (void)pthread_cond_signal(&writer.changed);
        break;
    case MODE_ABANDONED:
        count_dropped(1);
        break;
    }
    (void)pthread_mutex_unlock(&writer.lock);
    errno = saved;
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static struct timespec in_ms(uint64_t ms)
{
    return clock_timespec(clock_now_ns() + ms * CLOCK_NS_PER_MS);
}

/* Until there is something to write, or the end, at which nothing may be left. After a failure, only the end cuts a
 * pause short. */
static void wait_locked(void)
{
    if (output.fails) {
        const struct timespec until = in_ms(LOG_RETRY_MS);
        while (!writer.ends && pthread_cond_clockwait(&writer.changed, &writer.lock, CLOCK_MONOTONIC, &until) == 0)
            ;
        return;
    }
    while (writer.used == 0 && writer.missing == 0 && !writer.ends)
        (void)pthread_cond_wait(&writer.changed, &writer.lock);
}

static void *write_all(void *arg)
{
    struct chunk c;
    bool fine;
    (void)arg;
    (void)pthread_mutex_lock(&writer.lock);
    do {
        wait_locked();
        if (!next_chunk_locked(&c))
            break;
        (void)pthread_mutex_unlock(&writer.lock);
        fine = write_chunk(&c);
        (void)pthread_mutex_lock(&writer.lock);
    } while (fine || !writer.ends);
    drop_rest_locked();
    if (writer.mode == MODE_THREAD)
        writer.mode = MODE_DIRECT;
    (void)pthread_cond_signal(&writer.changed);
    (void)pthread_mutex_unlock(&writer.lock);
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------------- */

/* Reading from /dev/null is harmless, and writing to it fails, so that a log that nobody gets is counted as lost. */
static void occupy_standard_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

enum status log_writer_start(struct error *err)
{
    assert(writer.mode == MODE_DIRECT);
    occupy_standard_descriptors();
    (void)pthread_mutex_lock(&writer.lock);
    writer.ends = false;
    if (pthread_create(&writer.thread, NULL, write_all, NULL) == 0)
        writer.mode = MODE_THREAD;
    const bool fine = writer.mode == MODE_THREAD;
    (void)pthread_mutex_unlock(&writer.lock);
    if (!fine)
        return error_set(err, ERR_NOMEM, "out of memory for the log's thread");
    (void)pthread_setname_np(writer.thread, "log");
    return OK;
}

void log_writer_stop(void)
{
    const struct timespec until = in_ms(LOG_STOP_MS);
    (void)pthread_mutex_lock(&writer.lock);
    const bool has_thread = writer.mode == MODE_THREAD;
    writer.ends = true;
    (void)pthread_cond_signal(&writer.changed);
    while (writer.mode == MODE_THREAD &&
           pthread_cond_clockwait(&writer.changed, &writer.lock, CLOCK_MONOTONIC, &until) == 0)
        ;
    const bool is_left = writer.mode == MODE_THREAD;
    if (is_left)
        writer.mode = MODE_ABANDONED;
    (void)pthread_mutex_unlock(&writer.lock);
    if (has_thread)
        (void)(is_left ? pthread_detach(writer.thread) : pthread_join(writer.thread, NULL));
}
