/* log.h - the daemon's log: one line for each event on standard error, as text or as JSON (log_line.h). From
 * log_writer_start on nobody who logs waits for a reader (log_writer.h). Prompts, bodies and query strings are never
 * logged. Any thread, under any lock; log_init first. */
#ifndef SERVER_CORE_LOG_H
#define SERVER_CORE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "config/choices.h"

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

/* What the log line of a request says. Texts are borrowed during the call; those that are NULL are left out, and so are
 * times below 0, which stand for what did not happen. */
struct log_request {
    const char *id;      /* X-Request-Id */
    const char *client;  /* address */
    const char *method;  /* GET */
    const char *path;    /* without the query; one that has it is cut at the '?' */
    const char *key;     /* its name; NULL: none */
    const char *model;   /* NULL: none */
    const char *outcome; /* ok, stop, length, timeout, cancelled, error, ... */
    const char *error;   /* status_code() of what failed */
    const char *trace;   /* the caller's trace id; NULL: none */
    const char *span;    /* our part of that trace */
    unsigned status;     /* HTTP */
    uint64_t bytes_in;   /* body received */
    uint64_t bytes_out;  /* body sent */
    uint64_t prompt_tokens;
    uint64_t tokens; /* generated */
    double queue_ms;
    double compute_ms;
    double first_byte_ms;
    double total_ms;
    bool is_routine; /* a probe or a scrape that went well: level debug */
};

/* The request's line, level info unless it is routine: `... info POST /generate 200 length 1.486 ms model=...`. */
void log_request(const struct log_request *r);

#endif
