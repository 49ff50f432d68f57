/* http.h - connections and their limits, requests, answers, suspending and resuming. The HTTP library is seen behind
 * http_inner.h only; what an API does is one or more functions of a struct exchange, run on an HTTP thread:
 *
 *     headers are in -> app.begin: http_set_handler, or an answer at once (the body is not read then)
 *     body is in     -> the handler: an answer, or http_await
 *     the awaited job has news -> the function given to http_await: an answer
 *     answer sent, or the connection broke -> app.end
 *
 * An answer is one http_reply or http_reply_stream. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/limits.h"
#include "config/settings.h"
#include "config/status.h"
#include "server/http/body.h"

struct api_request;
struct exchange;
struct http;
struct job;
struct mailboxes;
struct watcher;

typedef void http_handler(struct exchange *x);

struct http_app {
    void *arg;
    size_t request_bytes; /* of exchange.api */
    http_handler *begin;
    http_handler *end; /* what exchange.api holds on to is let go */
    /* A whole answer is about to be given: http_add_header what every one has. Not before a stream. */
    http_handler *add_headers;
    /* Answer with an error that was found here: a malformed request, a body that is too large. */
    void (*refuse)(struct exchange *x, const struct error *err);
};

/* What a stream's reader has: a piece of text, nothing before the job's next news, its end; or it cannot go on, and the
 * connection is cut. */
enum http_piece { HTTP_PIECE, HTTP_LATER, HTTP_END, HTTP_BROKEN };
/* *piece is malloc'd and taken on HTTP_PIECE. */
typedef enum http_piece http_reader(struct exchange *x, char **piece, size_t *bytes);

enum { HTTP_ID_BYTES = REQUEST_ID_MAX + 1 };

/* One request and its answer. Its connection's HTTP thread alone touches it. http_inner.h has the rest of it, which is
 * http's own. */
struct exchange {
    /* the request */
    void *app;               /* http_app.arg */
    struct api_request *api; /* the app's own, http_app.request_bytes; zeroed at first, of the exchange's memory */
    const char *method, *path;
    char id[HTTP_ID_BYTES];
    struct body body;     /* complete in the handler, until http_drop_body */
    uint64_t start_ns;    /* its first line was read */
    uint64_t received_ns; /* its last byte was read */
    bool has_body;        /* a length or an encoding was given */
    bool is_admin;        /* it came by the admin listener */

    /* the answer */
    struct job *job; /* awaited, from http_await on; the exchange's reference */
    unsigned status; /* HTTP; 0: none was given yet */
    uint64_t bytes_out;
};

/* ---- the server, main thread ----------------------------------------------------------------------------------- */

/* Listen and serve; a thread's box among `mailboxes` has its own number, 0 .. http_threads - 1. All that is given is
 * borrowed until http_stop. *ret is set only on OK, when what is listened on has been logged.
 * Errors: ERR_CONFIG, ERR_IO, ERR_NOMEM. */
enum status http_start(struct http **ret, const struct settings *s, struct watcher *w, struct mailboxes *mailboxes,
                       const struct http_app *app, struct error *err);
/* From now on connections are closed after their answer. */
void http_close_after_answers(struct http *h);
/* Refuse new connections. */
void http_refuse_connections(struct http *h);
/* Requests that are being received, worked on or answered. Any thread. */
uint32_t http_exchanges(const struct http *h);
/* Join the threads, close all connections, free. No job that an exchange awaits may be unfinished. NULL is a no-op. */
void http_stop(struct http *h);

/* ---- one exchange, its HTTP thread ----------------------------------------------------------------------------- */

void http_set_handler(struct exchange *x, http_handler *handler);
/* NULL where there is none. */
const char *http_header(const struct exchange *x, const char *name);
/* How many headers of that name there are; *ret is the last, where there is one. */
size_t http_headers(const struct exchange *x, const char *name, const char **ret);
/* Call `each` with every query parameter, decoded; a value may be NULL, and a name with a NUL is none that there could
 * be. Stops when it returns false. */
void http_query(struct exchange *x, bool (*each)(void *arg, const char *name, const char *value, size_t value_bytes),
                void *arg);
/* The client's address as text. */
void http_client(const struct exchange *x, char *out, size_t size);
/* The body is not needed any more. */
void http_drop_body(struct exchange *x);

/* A header of the answer to come; `name` is a literal. */
void http_add_header(struct exchange *x, const char *name, const char *value);
/* Answer; `body` is malloc'd and taken. Without a type there is no body. */
void http_reply(struct exchange *x, unsigned status, const char *type, char *body, size_t bytes);
/* Answer 200 with what the reader gives, piece by piece. It is called first from within MHD's sending, and again after
 * each HTTP_LATER once the job has news. After ping_ms of silence the awaited job gets job_ping. */
void http_reply_stream(struct exchange *x, const char *type, http_reader *reader);

/* Suspend the exchange until job_await says so, then call `next`, perhaps at once. The job was submitted; a reference
 * is taken. If the client leaves or the job's deadline passes, it is cancelled. Once in an exchange. */
void http_await(struct exchange *x, struct job *job, http_handler *next);

#endif
