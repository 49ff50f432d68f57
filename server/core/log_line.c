/* log_line.c - see log_line.h.
 * Every text goes through escape() or cut(), which know its budget; so a line always fits, whatever is sent, and a JSON
 * line is never cut in the middle. */
#include "server/core/log_line.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "config/utf8.h"
#include "server/core/text.h"

#define MS_END 1e15     /* a longer time is not plausible, and would need more digits than a line has room for */
#define MS_SHOWN 0.0005 /* a shorter one is 0.000 */

enum {
    TIME_MAX = 32,       /* "2026-01-02T03:04:05.678Z" and a NUL, with room for a clock gone astray */
    FIELD_OVERHEAD = 48, /* key, punctuation, and the value where it is a number */
    LINE_OVERHEAD = 128  /* priority, time, level, braces, newline */
};
_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "longer lines could be torn");
_Static_assert(LINE_OVERHEAD + LOG_MESSAGE_MAX <= LOG_LINE_MAX, "a message must fit");
_Static_assert(LINE_OVERHEAD + LOG_PATH_MAX + LOG_TEXTS_MAX * LOG_FIELD_MAX + LOG_FIELDS_MAX * FIELD_OVERHEAD <=
                   LOG_LINE_MAX,
               "a line of fields must fit");
_Static_assert(REQUEST_ID_MAX <= LOG_FIELD_MAX && MODEL_NAME_MAX <= LOG_FIELD_MAX, "names are not cut");

/* Set by log_line_init before other threads exist. */
static enum log_format line_format = LOG_FORMAT_TEXT;
static bool goes_to_journal;

void log_line_init(enum log_format format, bool to_journal)
{
    line_format = format;
    goes_to_journal = to_journal;
}

/* ---- text from outside ----------------------------------------------------------------------------------------- */

/* Write the first `budget` bytes of `in`, as valid UTF-8, to out [UTF8_GROWTH * budget + 1]. */
static void repair(char *out, size_t budget, const char *in)
{
    const size_t size = strnlen(in, budget);
    size_t repaired = 0;
    (void)utf8_repair(out, &repaired, (const uint8_t *)in, size, in[size] == '\0');
    out[repaired] = '\0';
}

/* For text lines: write repaired text to out, at most `budget` bytes and no NUL. Backslash and newline are written as
 * \\ and \n, other controls as \xHH (their code point), what is invisible as \u{HHHH}, the quote as \" if `quoted`.
 * Returns the size. */
static size_t escape(char *out, size_t budget, const char *in, bool quoted)
{
    size_t size = 0;
    while (*in != '\0') {
        char piece[16];
        const size_t length = utf8_length(in);
        size_t piece_size = length;
        memcpy(piece, in, length);
        if (*in == '\n' || *in == '\\' || (*in == '"' && quoted)) {
            piece_size = 2;
            piece[0] = '\\';
            piece[1] = (char)(*in == '\n' ? 'n' : *in);
        } else if (utf8_is_control(in)) {
            const unsigned char code = (unsigned char)in[length - 1]; /* of a C1 control: its second byte */
            piece_size = (size_t)snprintf(piece, sizeof piece, "\\x%02x", code);
        } else if (utf8_is_invisible(in)) {
            piece_size = (size_t)snprintf(piece, sizeof piece, "\\u{%04x}", (unsigned)utf8_code_point(in));
        }
        if (size + piece_size > budget)
            break;
        memcpy(out + size, piece, piece_size);
        size += piece_size;
        in += length;
    }
    return size;
}

/* For JSON lines: cut repaired text to what takes at most `budget` bytes once jansson has escaped it to ASCII. */
static void cut(char *text, size_t budget)
{
    size_t cost = 0;
    while (*text != '\0') {
        const size_t length = utf8_length(text);
        if (length == 4)
            cost += 12; /* two surrogates */
        else if (length > 1 || utf8_is_control(text))
            cost += 6;
        else
            cost += *text == '"' || *text == '\\' ? 2 : 1;
        if (cost > budget)
            break;
        text += length;
    }
    *text = '\0';
}

static size_t budget_of(const struct log_field *f)
{
    return strcmp(f->key, "path") == 0 ? LOG_PATH_MAX : LOG_FIELD_MAX;
}

static bool is_present(const struct log_field *f)
{
    switch (f->kind) {
    case LOG_FIELD_TEXT:
        return f->text != NULL;
    case LOG_FIELD_MS:
        return f->ms >= 0 && f->ms < MS_END;
    case LOG_FIELD_NUMBER:
        break;
    }
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

/* RFC 3339 with milliseconds, UTC. */
static void format_time(char out[TIME_MAX])
{
    struct timespec now;
    struct tm utc;
    char seconds[20];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    if (strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        seconds[0] = '\0';
    (void)snprintf(out, TIME_MAX, "%s.%03ldZ", seconds, (long)(now.tv_nsec / 1000000) % 1000);
}

static void append(struct log_line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Only for what we write ourselves: the asserts above make it fit. */
static void append(struct log_line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(l->bytes + l->size, sizeof l->bytes - l->size, format, args);
    va_end(args);
    assert(written >= 0 && (size_t)written < sizeof l->bytes - l->size);
    l->size += (size_t)written;
}

/* Write a value without quotes where a reader cannot mistake its end, else in quotes. */
static void append_value(struct log_line *l, const char *text, size_t budget)
{
    static const char bare[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-/:@%+,";
    char repaired[UTF8_GROWTH * LOG_PATH_MAX + 1];
    const bool quoted = text[0] == '\0' || text[strspn(text, bare)] != '\0';
    if (quoted)
        append(l, "\"");
    repair(repaired, budget, text);
    l->size += escape(l->bytes + l->size, budget, repaired, true);
    if (quoted)
        append(l, "\"");
}

/* What syslog calls the level; the journal reads it from the start of a line (sd-daemon(3)). */
static int priority_of(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_ERROR:
        return 3;
    case LOG_LEVEL_WARNING:
        return 4;
    case LOG_LEVEL_INFO:
        return 6;
    case LOG_LEVEL_DEBUG:
        break;
    }
    return 7;
}

static void append_field(struct log_line *l, const struct log_field *f)
{
    const bool is_shown = f->kind == LOG_FIELD_NUMBER ? f->number > 0 : f->kind != LOG_FIELD_MS || f->ms >= MS_SHOWN;
    if (!f->is_column && (!is_present(f) || !is_shown))
        return;
    if (l->bytes[l->size - 1] != ' ' && l->bytes[l->size - 1] != '>')
        append(l, " ");
    if (!f->is_column)
        append(l, "%s=", f->key);
    if (!is_present(f))
        append(l, "-");
    else if (f->kind == LOG_FIELD_TEXT)
        append_value(l, f->text, budget_of(f));
    else if (f->kind == LOG_FIELD_NUMBER)
        append(l, "%llu", (unsigned long long)f->number);
    else
        append(l, f->is_column ? "%.3f ms" : "%.3f", f->ms);
}

static void make_text(struct log_line *l, const char *now, enum log_level level, const char *message,
                      const struct log_field *fields, size_t n)
{
    char text[UTF8_GROWTH * LOG_MESSAGE_MAX + 1];
    if (!goes_to_journal)
        append(l, "%s %s ", now, log_level_word(level));
    for (size_t i = 0; i < n; i++)
        append_field(l, &fields[i]);
    if (n == 0) {
        repair(text, LOG_MESSAGE_MAX, message);
        l->size += escape(l->bytes + l->size, LOG_MESSAGE_MAX, text, false);
    }
}

static json_t *field_to_json(const struct log_field *f)
{
    char text[UTF8_GROWTH * LOG_PATH_MAX + 1];
    switch (f->kind) {
    case LOG_FIELD_TEXT:
        repair(text, budget_of(f), f->text);
        cut(text, budget_of(f));
        return json_string(text);
    case LOG_FIELD_NUMBER:
        return json_integer((json_int_t)f->number);
    case LOG_FIELD_MS:
        return json_real(round(f->ms * 1000) / 1000);
    }
    return NULL;
}

/* jansson leaves DEL as it is, which `cut` has counted as escaped. Returns the new size. */
static size_t escape_del(char *text, size_t size, size_t room)
{
    static const char escaped[] = "\\u007f";
    const size_t more = sizeof escaped - 2;
    size_t to = size;
    for (size_t i = 0; i < size; i++)
        to += text[i] == 0x7f ? more : 0;
    assert(to < room);
    const size_t whole = to;
    for (size_t i = size; i-- > 0 && to > i + 1;)
        if (text[i] == 0x7f)
            memcpy(text + (to -= more + 1), escaped, more + 1);
        else
            text[--to] = text[i];
    return whole;
}

static void make_json(struct log_line *l, const char *now, enum log_level level, const char *message,
                      const struct log_field *fields, size_t n)
{
    char text[UTF8_GROWTH * LOG_MESSAGE_MAX + 1];
    const size_t room = sizeof l->bytes - l->size;
    repair(text, LOG_MESSAGE_MAX, message);
    cut(text, LOG_MESSAGE_MAX);
    json_t *object = json_object();
    int failed = goes_to_journal ? 0 : json_object_set_new(object, "time", json_string(now));
    failed |= json_object_set_new(object, "level", json_string(log_level_word(level)));
    failed |= json_object_set_new(object, "message", json_string(text));
    for (size_t i = 0; i < n; i++) {
        if (is_present(&fields[i]))
            failed |= json_object_set_new(object, fields[i].key, field_to_json(&fields[i]));
    }
    const size_t size = failed == 0 ? json_dumpb(object, l->bytes + l->size, room,
                                                 JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15))
                                    : 0;
    json_decref(object);
    assert(size < room);
    l->size += escape_del(l->bytes + l->size, size, room);
    if (size == 0)
        append(l, "{\"level\":\"%s\",\"message\":\"out of memory for a log line\"}", log_level_word(level));
}

void log_line_make(struct log_line *l, enum log_level level, const char *message, const struct log_field *fields,
                   size_t n)
{
    char now[TIME_MAX];
    assert(n <= LOG_FIELDS_MAX);
    l->size = 0;
    format_time(now);
    if (goes_to_journal)
        append(l, "<%d>", priority_of(level));
    if (line_format == LOG_FORMAT_JSON)
        make_json(l, now, level, message, fields, n);
    else
        make_text(l, now, level, message, fields, n);
    append(l, "\n");
}
