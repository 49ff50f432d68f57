/* log.c - makes a line in a buffer of fixed size and writes it with one write(2).
 * Any thread, no lock: a line is made on the caller's stack, and Linux does not tear a write of at most PIPE_BUF bytes.
 * Every text goes through escape() or cut(), which know its budget; so a line always fits, whatever is sent, and a JSON
 * line is never cut in the middle. What cannot be written is dropped: there is nobody left to tell. */
#include "server/core/log.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "server/core/text.h"

/* One key and value of a line. */
struct field {
    const char *key;
    enum { FIELD_TEXT, FIELD_NUMBER, FIELD_MS } kind;
    const char *text; /* NULL: leave the field out */
    uint64_t number;
    double ms; /* below 0, NaN: leave the field out */
};

#define MS_END 1e15 /* a longer time is not plausible, and would need more digits than a line has room for */

struct line {
    char bytes[LOG_LINE_MAX];
    size_t size;
};

enum {
    REQUEST_FIELDS = 17,
    TIME_MAX = 32,       /* "2026-01-02T03:04:05.678Z" and a NUL, with room for a clock gone astray */
    FIELD_OVERHEAD = 48, /* key, punctuation, and the value where it is a number */
    LINE_OVERHEAD = 128  /* time, level, braces, newline */
};
_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "longer lines could be torn");
_Static_assert(LINE_OVERHEAD + LOG_MESSAGE_MAX <= LOG_LINE_MAX, "a message must fit");
_Static_assert(LINE_OVERHEAD + LOG_PATH_MAX + 8 * LOG_FIELD_MAX + REQUEST_FIELDS * FIELD_OVERHEAD <= LOG_LINE_MAX,
               "a request's line must fit: a path and at most 7 other texts");
_Static_assert(REQUEST_ID_MAX <= LOG_FIELD_MAX && MODEL_NAME_MAX <= LOG_FIELD_MAX, "names are not cut");

static _Atomic enum log_level level_max = LOG_LEVEL_INFO;
/* Set by log_init before other threads exist. */
static enum log_format line_format = LOG_FORMAT_TEXT;

void log_init(enum log_level level, enum log_format format)
{
    log_set_level(level);
    line_format = format;
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&level_max, level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return level <= atomic_load_explicit(&level_max, memory_order_relaxed);
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

/* Size in bytes of the character at the start of repaired text. */
static size_t character_length(const char *s)
{
    const unsigned char first = (unsigned char)s[0];
    if (first < 0x80)
        return 1;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* C0, DEL, and the C1 controls U+0080 to U+009F, which terminals obey as well. */
static bool is_control(const char *s)
{
    const unsigned char first = (unsigned char)s[0];
    return first < 0x20 || first == 0x7f || (first == 0xc2 && (unsigned char)s[1] < 0xa0);
}

/* For text lines: write repaired text to out, at most `budget` bytes and no NUL. Backslash and newline are written as
 * \\ and \n, other controls as \xHH (their code point), the quote as \" if `quoted`. Returns the size. */
static size_t escape(char *out, size_t budget, const char *in, bool quoted)
{
    size_t size = 0;
    while (*in != '\0') {
        char piece[8];
        const size_t length = character_length(in);
        size_t piece_size = length;
        memcpy(piece, in, length);
        if (*in == '\n' || *in == '\\' || (*in == '"' && quoted)) {
            piece_size = 2;
            piece[0] = '\\';
            piece[1] = (char)(*in == '\n' ? 'n' : *in);
        } else if (is_control(in)) {
            const unsigned char code = (unsigned char)in[length - 1]; /* of a C1 control: its second byte */
            piece_size = (size_t)snprintf(piece, sizeof piece, "\\x%02x", code);
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
        const size_t length = character_length(text);
        if (length == 4)
            cost += 12; /* two surrogates */
        else if (length > 1 || is_control(text))
            cost += 6;
        else
            cost += *text == '"' || *text == '\\' ? 2 : 1;
        if (cost > budget)
            break;
        text += length;
    }
    *text = '\0';
}

static size_t budget_of(const struct field *f)
{
    return strcmp(f->key, "path") == 0 ? LOG_PATH_MAX : LOG_FIELD_MAX;
}

static bool is_present(const struct field *f)
{
    switch (f->kind) {
    case FIELD_TEXT:
        return f->text != NULL;
    case FIELD_MS:
        return f->ms >= 0 && f->ms < MS_END;
    case FIELD_NUMBER:
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

static void append(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Only for what we write ourselves: the asserts above make it fit. */
static void append(struct line *l, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(l->bytes + l->size, sizeof l->bytes - l->size, format, args);
    va_end(args);
    assert(written >= 0 && (size_t)written < sizeof l->bytes - l->size);
    l->size += (size_t)written;
}

/* Write a value without quotes where a reader cannot mistake its end, else in quotes. */
static void append_value(struct line *l, const char *text, size_t budget)
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

static void make_text(struct line *l, enum log_level level, const char *message, const struct field *fields, size_t n)
{
    char now[TIME_MAX], text[UTF8_GROWTH * LOG_MESSAGE_MAX + 1];
    format_time(now);
    repair(text, LOG_MESSAGE_MAX, message);
    append(l, "%s %s ", now, log_level_word(level));
    l->size += escape(l->bytes + l->size, LOG_MESSAGE_MAX, text, false);
    for (size_t i = 0; i < n; i++) {
        if (!is_present(&fields[i]))
            continue;
        append(l, " %s=", fields[i].key);
        if (fields[i].kind == FIELD_TEXT)
            append_value(l, fields[i].text, budget_of(&fields[i]));
        else if (fields[i].kind == FIELD_NUMBER)
            append(l, "%llu", (unsigned long long)fields[i].number);
        else
            append(l, "%.3f", fields[i].ms);
    }
    append(l, "\n");
}

static json_t *field_to_json(const struct field *f)
{
    char text[UTF8_GROWTH * LOG_PATH_MAX + 1];
    switch (f->kind) {
    case FIELD_TEXT:
        repair(text, budget_of(f), f->text);
        cut(text, budget_of(f));
        return json_string(text);
    case FIELD_NUMBER:
        return json_integer((json_int_t)f->number);
    case FIELD_MS:
        return json_real(round(f->ms * 1000) / 1000);
    }
    return NULL;
}

static void make_json(struct line *l, enum log_level level, const char *message, const struct field *fields, size_t n)
{
    char now[TIME_MAX], text[UTF8_GROWTH * LOG_MESSAGE_MAX + 1];
    format_time(now);
    repair(text, LOG_MESSAGE_MAX, message);
    cut(text, LOG_MESSAGE_MAX);
    json_t *object = json_object();
    int failed = json_object_set_new(object, "time", json_string(now));
    failed |= json_object_set_new(object, "level", json_string(log_level_word(level)));
    failed |= json_object_set_new(object, "message", json_string(text));
    for (size_t i = 0; i < n; i++) {
        if (is_present(&fields[i]))
            failed |= json_object_set_new(object, fields[i].key, field_to_json(&fields[i]));
    }
    if (failed == 0)
        l->size =
            json_dumpb(object, l->bytes, sizeof l->bytes, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    json_decref(object);
    assert(l->size < sizeof l->bytes);
    if (failed != 0 || l->size == 0) {
        l->size = 0;
        append(l, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"out of memory for a log line\"}", now,
               log_level_word(level));
    }
    append(l, "\n");
}

static void write_line(enum log_level level, const char *message, const struct field *fields, size_t n)
{
    const int saved = errno; /* logging an error must not change it */
    struct line l;
    l.size = 0;
    if (line_format == LOG_FORMAT_JSON)
        make_json(&l, level, message, fields, n);
    else
        make_text(&l, level, message, fields, n);
    for (size_t done = 0; done < l.size;) {
        const ssize_t written = write(STDERR_FILENO, l.bytes + done, l.size - done);
        if (written <= 0 && !(written < 0 && errno == EINTR))
            break;
        done += written > 0 ? (size_t)written : 0;
    }
    errno = saved;
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
    if (!log_enabled(LOG_LEVEL_INFO))
        return;
    if (r->path != NULL) /* a query may contain secrets */
        (void)snprintf(path, sizeof path, "%.*s", (int)(strcspn(r->path, "?") & INT_MAX), r->path);
    const struct field fields[] = {
        {.key = "id", .kind = FIELD_TEXT, .text = r->id},
        {.key = "client", .kind = FIELD_TEXT, .text = r->client},
        {.key = "method", .kind = FIELD_TEXT, .text = r->method},
        {.key = "path", .kind = FIELD_TEXT, .text = r->path != NULL ? path : NULL},
        {.key = "status", .kind = FIELD_NUMBER, .number = r->status},
        {.key = "key", .kind = FIELD_TEXT, .text = r->key},
        {.key = "model", .kind = FIELD_TEXT, .text = r->model},
        {.key = "outcome", .kind = FIELD_TEXT, .text = r->outcome},
        {.key = "error", .kind = FIELD_TEXT, .text = r->error},
        {.key = "bytes_in", .kind = FIELD_NUMBER, .number = r->bytes_in},
        {.key = "bytes_out", .kind = FIELD_NUMBER, .number = r->bytes_out},
        {.key = "prompt_tokens", .kind = FIELD_NUMBER, .number = r->prompt_tokens},
        {.key = "tokens", .kind = FIELD_NUMBER, .number = r->tokens},
        {.key = "queue_ms", .kind = FIELD_MS, .ms = r->queue_ms},
        {.key = "compute_ms", .kind = FIELD_MS, .ms = r->compute_ms},
        {.key = "first_byte_ms", .kind = FIELD_MS, .ms = r->first_byte_ms},
        {.key = "total_ms", .kind = FIELD_MS, .ms = r->total_ms},
    };
    _Static_assert(sizeof fields / sizeof fields[0] == REQUEST_FIELDS, "the line's bound counts them");
    write_line(LOG_LEVEL_INFO, "request", fields, REQUEST_FIELDS);
}
