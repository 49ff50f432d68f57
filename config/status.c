/* status.c - the texts behind enum status, generated from the one list in status.h; and messages, which are well-formed
 * UTF-8 whatever they quote and wherever they are cut, for they end in JSON and in logs. Any thread; no state. */
#include "config/status.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/utf8.h"

struct row {
    const char *name, *type, *code;
    unsigned http;
};

static const struct row rows[] = {
#define X(name, http, type, code) {#name, type, code, http},
    STATUSES(X)
#undef X
};

static const struct row *row_of(enum status st)
{
    assert((size_t)st < sizeof rows / sizeof rows[0]);
    return &rows[st];
}

const char *status_name(enum status st)
{
    return row_of(st)->name;
}

const char *status_type(enum status st)
{
    return row_of(st)->type;
}

const char *status_code(enum status st)
{
    return row_of(st)->code;
}

unsigned status_http(enum status st)
{
    return row_of(st)->http;
}

enum status status_of_errno(int error)
{
    return error == ENOMEM ? ERR_NOMEM : ERR_IO;
}

/* Drop the character at the end of `text` if only a part of it fitted. */
static void drop_broken_end(char *text)
{
    size_t start = strlen(text);

    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0u) == 0x80u)
        start--;
    if (start > 0 && ((unsigned char)text[start - 1] & 0xc0u) == 0xc0u && utf8_length(text + start - 1) == 0)
        text[start - 1] = '\0';
}

/* Broken bytes, and characters that would drive a terminal or deceive who reads, become '?'. */
static void make_harmless(char *text)
{
    char *to = text;
    while (*text != '\0') {
        const size_t length = utf8_length(text);
        if (length == 0 || utf8_is_control(text) || utf8_is_invisible(text)) {
            *to++ = '?';
            text += length == 0 ? 1 : length;
        } else {
            memmove(to, text, length);
            to += length;
            text += length;
        }
    }
    *to = '\0';
}

/* `length` is what snprintf returned for a buffer of `size` bytes. */
static void make_well_formed(char *text, size_t size, int length)
{
    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= size)
        drop_broken_end(text);
    make_harmless(text);
}

static void status_fill(struct error *err, enum status st, const char *param, const char *format, va_list args)
{
    err->status = st;
    err->retry_after_s = 0;
    make_well_formed(err->param, sizeof err->param, snprintf(err->param, sizeof err->param, "%s", param));
    make_well_formed(err->message, sizeof err->message, vsnprintf(err->message, sizeof err->message, format, args));
}

enum status error_set(struct error *err, enum status st, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        status_fill(err, st, "", format, args);
        va_end(args);
    }
    return st;
}

enum status error_set_param(struct error *err, enum status st, const char *param, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        status_fill(err, st, param, format, args);
        va_end(args);
    }
    return st;
}

void error_retry_after(struct error *err, unsigned seconds)
{
    if (err != NULL)
        err->retry_after_s = seconds;
}
