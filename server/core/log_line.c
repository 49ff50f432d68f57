/* log_line.c - see log_line.h.
 * Every text goes through append_text(), which knows its budget; so a line always fits, whatever is sent, and a JSON
 * line is never cut in the middle. */
#include "server/core/log_line.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "config/utf8.h"

#define MS_END 1e15     /* a longer time is not plausible, and would need more digits than a line has room for */
#define MS_SHOWN 0.0005 /* a shorter one is 0.000 */

enum {
    PIECE_MAX = 16,      /* what stands for a character */
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

static bool is_json(void)
{
    return line_format == LOG_FORMAT_JSON;
}

void log_line_init(enum log_format format, bool to_journal)
{
    line_format = format;
    goes_to_journal = to_journal;
}

/* ---- what we write ourselves ----------------------------------------------------------------------------------- */

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

/* ---- text from outside ----------------------------------------------------------------------------------------- */

/* What stands for a character in the line; returns its size. Backslash and newline are \\ and \n, the quote is \" if
 * `quoted`. In text, other controls are \xHH (their code point) and what is invisible is \u{HHHH}; in JSON all but
 * ASCII is \uHHHH, beyond 16 bits as two surrogates. */
static size_t escape(char out[PIECE_MAX], const char *c, bool quoted)
{
    const uint32_t code = utf8_code_point(c);
    const size_t length = utf8_length(c);
    const bool is_control = utf8_is_control(c);
    if (*c == '\n' || *c == '\\' || (*c == '"' && quoted))
        return (size_t)snprintf(out, PIECE_MAX, "\\%c", *c == '\n' ? 'n' : *c);
    if (is_json() && code > 0xffff)
        return (size_t)snprintf(out, PIECE_MAX, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((code - 0x10000) >> 10),
                                0xdc00 + (code & 0x3ff));
    if (is_json() && (length > 1 || is_control))
        return (size_t)snprintf(out, PIECE_MAX, "\\u%04" PRIx32, code);
    if (is_control)
        return (size_t)snprintf(out, PIECE_MAX, "\\x%02" PRIx32, code);
    if (utf8_is_invisible(c))
        return (size_t)snprintf(out, PIECE_MAX, "\\u{%04" PRIx32 "}", code);
    memcpy(out, c, length);
    return length;
}

/* At most `budget` bytes (up to LOG_MESSAGE_MAX), of valid UTF-8. */
static void append_text(struct log_line *l, const char *in, size_t budget, bool quoted)
{
    char text[UTF8_GROWTH * LOG_MESSAGE_MAX + 1], piece[PIECE_MAX];
    const size_t size = strnlen(in, budget);
    size_t repaired = 0, piece_size;
    (void)utf8_repair(text, &repaired, (const uint8_t *)in, size, in[size] == '\0');
    text[repaired] = '\0';
    for (const char *c = text; *c != '\0'; c += utf8_length(c)) {
        piece_size = escape(piece, c, quoted);
        if (piece_size > budget)
            break;
        memcpy(l->bytes + l->size, piece, piece_size);
        l->size += piece_size;
        budget -= piece_size;
    }
}

/* In text without quotes where a reader cannot mistake its end. */
static void append_value(struct log_line *l, const char *text, size_t budget)
{
    static const char bare[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-/:@%+,";
    const bool quoted = is_json() || text[0] == '\0' || text[strspn(text, bare)] != '\0';
    if (quoted)
        append(l, "\"");
    append_text(l, text, budget, quoted);
    if (quoted)
        append(l, "\"");
}

/* ---- lines ----------------------------------------------------------------------------------------------------- */

/* What syslog calls the levels; the journal reads that from the start of a line (sd-daemon(3)). */
static const int priorities[] = {
    [LOG_LEVEL_ERROR] = 3, [LOG_LEVEL_WARNING] = 4, [LOG_LEVEL_INFO] = 6, [LOG_LEVEL_DEBUG] = 7};

static size_t budget_of(const struct log_field *f)
{
    return strcmp(f->key, "path") == 0 ? LOG_PATH_MAX : LOG_FIELD_MAX;
}

static bool is_present(const struct log_field *f)
{
    if (f->kind == LOG_FIELD_TEXT)
        return f->text != NULL;
    return f->kind == LOG_FIELD_NUMBER || (f->ms >= 0 && f->ms < MS_END);
}

/* `,"key":` of what is present; or a column, or key= of what is not 0. False: there is nothing to append. */
static bool append_key(struct log_line *l, const struct log_field *f)
{
    const bool is_shown = f->kind == LOG_FIELD_NUMBER ? f->number > 0 : f->kind != LOG_FIELD_MS || f->ms >= MS_SHOWN;
    if (is_json()) {
        if (is_present(f))
            append(l, ",\"%s\":", f->key);
        return is_present(f);
    }
    if (!f->is_column && (!is_present(f) || !is_shown))
        return false;
    if (l->bytes[l->size - 1] != ' ' && l->bytes[l->size - 1] != '>')
        append(l, " ");
    if (!f->is_column)
        append(l, "%s=", f->key);
    if (!is_present(f))
        append(l, "-");
    return is_present(f);
}

static void append_field(struct log_line *l, const struct log_field *f)
{
    if (!append_key(l, f))
        return;
    if (f->kind == LOG_FIELD_TEXT)
        append_value(l, f->text, budget_of(f));
    else if (f->kind == LOG_FIELD_NUMBER)
        append(l, "%" PRIu64, f->number);
    else
        append(l, f->is_column && !is_json() ? "%.3f ms" : "%.3f", f->ms);
}

/* What comes before the fields, which in text stand in place of the message. */
static void append_head(struct log_line *l, enum log_level level, const char *message, bool has_fields)
{
    char now[TIME_MAX];
    format_time(now);
    if (goes_to_journal)
        append(l, "<%d>", priorities[level]);
    if (is_json()) {
        append(l, "{");
        if (!goes_to_journal)
            append(l, "\"time\":\"%s\",", now);
        append(l, "\"level\":\"%s\",\"message\":", log_level_word(level));
        append_value(l, message, LOG_MESSAGE_MAX);
        return;
    }
    if (!goes_to_journal)
        append(l, "%s %s ", now, log_level_word(level));
    if (!has_fields)
        append_text(l, message, LOG_MESSAGE_MAX, false);
}

void log_line_make(struct log_line *l, enum log_level level, const char *message, const struct log_field *fields,
                   size_t n)
{
    assert(n <= LOG_FIELDS_MAX);
    l->size = 0;
    append_head(l, level, message, n > 0);
    for (size_t i = 0; i < n; i++)
        append_field(l, &fields[i]);
    append(l, is_json() ? "}\n" : "\n");
}
