/* log.h - the daemon's log: one line for each event on standard error, as text or as JSON (log_line.h). From
 * log_writer_start on nobody who logs waits for a reader (log_writer.h). Prompts, bodies and query strings are never
 * logged. Any thread, under any lock; log_init first. */
#ifndef SERVER_CORE_LOG_H
#define SERVER_CORE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "config/choices.h"

struct log_field;

/* Call before other threads exist. Without it: level info, format text. Where JOURNAL_STREAM names standard error,
 * lines are made for systemd's journal. */
void log_init(enum log_level level, enum log_format format);

/* Change the level. Any thread. */
void log_set_level(enum log_level level);

/* Would a message of this level be written? For messages that cost something to make. */
bool log_enabled(enum log_level level);

/* `2026-01-02T03:04:05.678Z info message`; cut to LOG_MESSAGE_MAX. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* A line with values (log_line.h; n <= LOG_FIELDS_MAX): `... info POST /generate 200 length 1.486 ms model=...`. Text
 * has them in place of the message: columns, then key=value of those that are not 0. */
void log_fields(enum log_level level, const char *message, const struct log_field *fields, size_t n);

#endif
