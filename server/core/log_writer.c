/* log_writer.c - see log_writer.h.
 * Locks: `writer.lock`, a leaf, guards the ring and is never held while the thread writes. Before the thread starts and
 * after it has ended, whoever logs writes what the ring has, with the lock held.
 *
 * Several lines go into one write(2) of at most PIPE_BUF bytes, which Linux does not tear, whoever else writes into the
 * same pipe. Standard error stays as it is: O_NONBLOCK would be set for all processes that share it, so the thread may
 * stop in a write; log_writer_stop then leaves it behind.
 *
 * Lines are missing in one place at a time, before those that wait in the ring: standard error has not taken them, or
 * they were the older half when a new one needed room. */
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
    bool is_torn;  /* the last byte that standard error took did not end a line */
    bool fails;    /* it has not taken all of the last write */
    uint64_t lost; /* lines missing before those in the ring, of which no line has told yet */
    size_t first, used;
    char ring[LOG_RING_BYTES];
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- writing --------------------------------------------------------------------------------------------------- */

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

/* What is written at a time: whole lines, or the warning that lines are missing. */
struct chunk {
    char bytes[PIPE_BUF];
    size_t size;
    uint64_t reported; /* by the warning: how many are missing; 0: it is none */
};

/* The warning begins on a line of its own, whatever became of the one before. */
static void make_warning_locked(struct chunk *c)
{
    struct log_line l;
    char message[128];
    (void)snprintf(message, sizeof message, "log: %llu lines are missing here: standard error did not take them",
                   (unsigned long long)writer.lost);
    log_line_make(&l, LOG_LEVEL_WARNING, message, NULL, 0);
    assert(l.size < sizeof c->bytes);
    c->reported = writer.lost;
    c->size = 0;
    if (writer.is_torn)
        c->bytes[c->size++] = '\n';
    memcpy(c->bytes + c->size, l.bytes, l.size);
    c->size += l.size;
}

static void lose_locked(uint64_t lines)
{
    writer.lost += lines;
    metrics_counter_add(METRIC_LOG_DROPPED, 0, lines);
}

/* So many bytes of it were taken. False: not all; then its lines are lost. */
static bool note_written_locked(const struct chunk *c, size_t done)
{
    uint64_t lost = 0;
    for (size_t i = done; i < c->size; i++)
        lost += c->bytes[i] == '\n';
    if (done > 0)
        writer.is_torn = c->bytes[done - 1] != '\n';
    writer.fails = done < c->size;
    if (c->reported == 0)
        lose_locked(lost);
    else if (!writer.fails)
        writer.lost -= c->reported;
    return !writer.fails;
}

/* ---- the ring -------------------------------------------------------------------------------------------------- */

/* The oldest lines, until at most so many bytes are left. */
static void drop_locked(size_t left)
{
    uint64_t lines = 0;
    for (char last = '\n'; writer.used > left || last != '\n'; writer.used--) {
        last = writer.ring[writer.first];
        writer.first = (writer.first + 1) % sizeof writer.ring;
        lines += last == '\n';
    }
    lose_locked(lines);
}

/* Half of what waits is dropped at a time, so that a reader who is too slow has many lines in a row between gaps. */
static void add_locked(const char *line, size_t size)
{
    if (size > sizeof writer.ring - writer.used)
        drop_locked(sizeof writer.ring / 2);
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
    c->reported = 0;
    c->size = last != NULL ? (size_t)(last - c->bytes) + 1 : 0;
    writer.first = (writer.first + c->size) % sizeof writer.ring;
    writer.used -= c->size;
}

/* False: nothing is left. */
static bool next_chunk_locked(struct chunk *c)
{
    if (writer.lost > 0)
        make_warning_locked(c);
    else
        take_lines_locked(c);
    return c->size > 0;
}

static void write_locked(void)
{
    struct chunk c;
    while (next_chunk_locked(&c) && note_written_locked(&c, write_bytes(c.bytes, c.size)))
        ;
    drop_locked(0); /* standard error takes nothing, and nobody will try again */
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
        metrics_counter_add(METRIC_LOG_DROPPED, 0, 1);
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
    if (writer.fails) {
        const struct timespec until = in_ms(LOG_RETRY_MS);
        while (!writer.ends && pthread_cond_clockwait(&writer.changed, &writer.lock, CLOCK_MONOTONIC, &until) == 0)
            ;
        return;
    }
    while (writer.used == 0 && !writer.ends)
        (void)pthread_cond_wait(&writer.changed, &writer.lock);
}

static void *write_all(void *arg)
{
    struct chunk c;
    size_t done;
    (void)arg;
    (void)pthread_mutex_lock(&writer.lock);
    do {
        wait_locked();
        if (!next_chunk_locked(&c))
            break;
        (void)pthread_mutex_unlock(&writer.lock);
        done = write_bytes(c.bytes, c.size);
        (void)pthread_mutex_lock(&writer.lock);
    } while (note_written_locked(&c, done) || !writer.ends);
    drop_locked(0);
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
