/* status.c - the texts behind enum status, generated from the one list in status.h. */
#include "config/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

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

static void fill(struct error *err, enum status st, const char *param, const char *format, va_list args)
{
    err->status = st;
    (void)snprintf(err->param, sizeof err->param, "%s", param);
    (void)vsnprintf(err->message, sizeof err->message, format, args);
}

enum status error_set(struct error *err, enum status st, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        fill(err, st, "", format, args);
        va_end(args);
    }
    return st;
}

enum status error_set_param(struct error *err, enum status st, const char *param, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        fill(err, st, param, format, args);
        va_end(args);
    }
    return st;
}
