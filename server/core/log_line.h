/* log_line.h - what a line of the log looks like, as text or as JSON. Control bytes, quotes and invalid UTF-8 are
 * escaped: nothing that a client sends can end a line, start one or reach a terminal. Any thread, no lock;
 * log_line_init first. */
#ifndef SERVER_CORE_LOG_LINE_H
#define SERVER_CORE_LOG_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/choices.h"
#include "config/limits.h"

/* One value of a line; in JSON, `key` names it. */
struct log_field {
    const char *key;
    enum { LOG_FIELD_TEXT, LOG_FIELD_NUMBER, LOG_FIELD_MS } kind;
    bool is_column;   /* in text its place tells what it is, so it is never left out; others are key=value */
    const char *text; /* NULL: there is none */
    uint64_t number;
    double ms; /* below 0, NaN: there is none */
};

struct log_line {
    char bytes[LOG_LINE_MAX];
    size_t size;
};

#define LOG_FIELDS_MAX 20 /* of a line */
#define LOG_TEXTS_MAX 9   /* among them, besides one path */

/* How lines are made from now on. The journal adds the time itself and takes a line's level from a prefix such as <6>.
 * Call before other threads exist. Without it: text, not to the journal. */
void log_line_init(enum log_format format, bool to_journal);

/* `2026-01-02T03:04:05.678Z info message`; cut to LOG_MESSAGE_MAX. With fields (n <= LOG_FIELDS_MAX), text has these in
 * place of the message: columns, then key=value of those that are not 0. *l is whole and ends in a newline. */
void log_line_make(struct log_line *l, enum log_level level, const char *message, const struct log_field *fields,
                   size_t n);

#endif
