/* client.h - an HTTP client of the daemon under test, by libcurl: one request and its answer, and many at a time.
 * One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_CLIENT_H
#define TESTS_SUPPORT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tests/support/daemon.h"

struct request {
    const char *method; /* NULL: POST with a body, GET without */
    const char *path;   /* including the query */
    const char *type;   /* Content-Type; NULL: none */
    const void *body;   /* NULL: none. Borrowed until the answer */
    size_t size;
    const char *const *headers; /* further ones, "Name: value", NULL at the end; NULL: none */
    uint16_t port;              /* 0: the daemon's first */
    const char *unix_path;      /* a Unix socket instead; NULL: none */
    const char *ca_file;        /* use TLS; the certificate must be this one or signed by it; NULL: plain */
};

struct reply {
    long status; /* 0: there was no answer */
    char *body;  /* NUL-terminated; never NULL after a call */
    size_t size;
    char *headers; /* as received */
    size_t header_bytes;
    double seconds; /* from the request to the answer's end */
};

/* Send and wait for the whole answer, which must come. reply_clear it. */
void client_call(const struct daemon *d, const struct request *r, struct reply *ret);
/* The same; false, and nothing to clear, if the connection was refused or cut. */
bool client_try(const struct daemon *d, const struct request *r, struct reply *ret);
void client_get(const struct daemon *d, const char *path, struct reply *ret);
void reply_clear(struct reply *r);

/* Many at a time, each on a connection of its own: run all, number i starting starts_ms[i] after the first (NULL: all
 * at once). Each must be answered. */
void client_call_all(const struct daemon *d, const struct request requests[], struct reply replies[], size_t count,
                     const long starts_ms[]);

/* The first header of that name, cut to size; false if there is none. */
bool reply_header(const struct reply *r, const char *name, char *out, size_t size);
/* The body, parsed as strict JSON; json_decref it. */
json_t *reply_json(const struct reply *r);
/* An error as the contract wants it: status, the four keys, code and (NULL: any) param. `says` (NULL: anything) is part
 * of its message. */
void reply_assert_error(const struct reply *r, long status, const char *code, const char *param, const char *says);
/* Whether the deadline of the request's fields fell before the first byte. Then the answer is cleared, and the fields
 * have twice the time: how long a first byte takes is the machine's affair. */
bool reply_is_late(struct reply *r, json_t *fields);

/* The sum of the series at /metrics whose text before the value begins with `series`; 0 if there is none. */
double client_metric(const struct daemon *d, const char *series);
/* Of each of several, at one moment. */
void client_metrics(const struct daemon *d, const char *const series[], double values[], size_t n);
/* Wait until that sum is `value`; the test fails after limit_ms. Returns how long that took. */
int64_t client_await_metric(const struct daemon *d, const char *series, double value, long limit_ms);

#endif
