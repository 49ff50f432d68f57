/* log.c - which lines are logged, and what they say. log_line.c makes them, log_writer.c writes them. */
#include "server/core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/core/log_line.h"
#include "server/core/log_writer.h"

static _Atomic enum log_level level_max = LOG_LEVEL_INFO;

/* systemd names in JOURNAL_STREAM the device and inode of what it connected to the journal (systemd.exec(5)). */
static bool is_journal(int fd)
{
    const char *named = getenv("JOURNAL_STREAM");
    struct stat s;
    char here[64];
    if (named == NULL || fstat(fd, &s) != 0)
        return false;
    (void)snprintf(here, sizeof here, "%llu:%llu", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
    return strcmp(named, here) == 0;
}

void log_init(enum log_level level, enum log_format format)
{
    log_set_level(level);
    log_line_init(format, is_journal(STDERR_FILENO));
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&level_max, level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return level <= atomic_load_explicit(&level_max, memory_order_relaxed);
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields, size_t n)
{
    struct log_line l;
    if (!log_enabled(level))
        return;
    log_line_make(&l, level, message, fields, n);
    log_writer_put(l.bytes, l.size);
}

void log_write(enum log_level level, const char *format, ...)
{
    char message[LOG_MESSAGE_MAX + 1] = "";
    va_list args;
    if (!log_enabled(level))
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log_fields(level, message, NULL, 0);
}
