/* log.c - which lines are logged, and what they say. log_line.c makes them, log_writer.c writes them. */
#include "server/core/log.h"

#include <limits.h>
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

static void write_line(enum log_level level, const char *message, const struct log_field *fields, size_t n)
{
    struct log_line l;
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
    write_line(level, message, NULL, 0);
}

void log_request(const struct log_request *r)
{
    char path[LOG_PATH_MAX + 1];
    const enum log_level level = r->is_routine ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    if (!log_enabled(level))
        return;
    if (r->path != NULL) /* a query may contain secrets */
        (void)snprintf(path, sizeof path, "%.*s", (int)(strcspn(r->path, "?") & INT_MAX), r->path);
    const struct log_field fields[] = {
        {.key = "method", .kind = LOG_FIELD_TEXT, .is_column = true, .text = r->method},
        {.key = "path", .kind = LOG_FIELD_TEXT, .is_column = true, .text = r->path != NULL ? path : NULL},
        {.key = "status", .kind = LOG_FIELD_NUMBER, .is_column = true, .number = r->status},
        {.key = "outcome", .kind = LOG_FIELD_TEXT, .is_column = true, .text = r->outcome},
        {.key = "total_ms", .kind = LOG_FIELD_MS, .is_column = true, .ms = r->total_ms},
        {.key = "model", .kind = LOG_FIELD_TEXT, .text = r->model},
        {.key = "error", .kind = LOG_FIELD_TEXT, .text = r->error},
        {.key = "prompt_tokens", .kind = LOG_FIELD_NUMBER, .number = r->prompt_tokens},
        {.key = "tokens", .kind = LOG_FIELD_NUMBER, .number = r->tokens},
        {.key = "queue_ms", .kind = LOG_FIELD_MS, .ms = r->queue_ms},
        {.key = "compute_ms", .kind = LOG_FIELD_MS, .ms = r->compute_ms},
        {.key = "first_byte_ms", .kind = LOG_FIELD_MS, .ms = r->first_byte_ms},
        {.key = "bytes_in", .kind = LOG_FIELD_NUMBER, .number = r->bytes_in},
        {.key = "bytes_out", .kind = LOG_FIELD_NUMBER, .number = r->bytes_out},
        {.key = "client", .kind = LOG_FIELD_TEXT, .text = r->client},
        {.key = "key", .kind = LOG_FIELD_TEXT, .text = r->key},
        {.key = "id", .kind = LOG_FIELD_TEXT, .text = r->id},
        {.key = "trace", .kind = LOG_FIELD_TEXT, .text = r->trace},
        {.key = "span", .kind = LOG_FIELD_TEXT, .text = r->span},
    };
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    _Static_assert(FIELDS <= LOG_FIELDS_MAX, "a line's bound counts them");
    write_line(level, "request", fields, FIELDS);
}
