/* http.h - connections and their limits, requests, answers, suspending and resuming. Only the files behind http_inner.h
 * see the HTTP library; what an API does is one or more functions of a struct exchange, run on an HTTP thread:
 *
 *     headers are in -> app.begin: http_set_handler, or an answer at once (the body is dropped then)
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
#include <stdio.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/core/client_id.h"
#include "server/http/body.h"
#include "server/http/traceparent.h"

struct api_request;
struct exchange;
struct http;
struct http_kept_body;
struct job;
struct listeners;
struct mailboxes;
struct settings;
struct watcher;

typedef void http_handler(struct exchange *x);

struct http_app {
    void *arg;
    size_t request_bytes; /* of exchange.api */
    http_handler *begin;
    http_handler *end; /* releases what exchange.api holds */
    /* Called before a whole answer, to http_add_header what every answer has. Not called before a stream. */
    http_handler *add_headers;
    /* Answer with an error that was found here: a malformed request, a body that is too large. */
    void (*refuse)(struct exchange *x, const struct error *err);
};

/* What a stream's reader returns: a piece of text, nothing before the job's next news, or the end; or it cannot go on,
 * and the connection is cut. */
enum http_piece { HTTP_PIECE, HTTP_LATER, HTTP_END, HTTP_BROKEN };
/* On HTTP_PIECE, *piece is malloc'd and taken by the caller. */
typedef enum http_piece http_reader(struct exchange *x, char **piece, size_t *bytes);

enum { HTTP_ID_BYTES = REQUEST_ID_MAX + 1, HTTP_CLIENT_BYTES = 46 /* INET6_ADDRSTRLEN */ };

/* One request and its answer. Only its connection's HTTP thread touches it, except as http_see says. http_inner.h has
 * the rest of it, which is private to http. */
struct exchange {
    /* the request */
    void *app;               /* http_app.arg */
    struct api_request *api; /* the app's own, http_app.request_bytes; initially zero, part of the exchange's memory */
    const char *method, *path;
    char id[HTTP_ID_BYTES];
    struct traceparent trace; /* the caller's trace with a span of ours; without one trace.trace is empty */
    struct body body;         /* complete in the handler, until http_drop_body */
    uint64_t start_ns;        /* when its first line was read */
    uint64_t received_ns;     /* when its last byte was read */
    bool has_body;            /* a length or an encoding was given */
    uint64_t body_bytes;      /* as declared; 0: it was not */
    bool is_admin;            /* it came through the admin listener */
    bool is_metrics;          /* it came through the listener for monitors */
    bool is_local;            /* it came through a Unix socket */

    /* the answer */
    struct job *job; /* awaited, from http_await on; the exchange's reference */
    unsigned status; /* HTTP; 0: none was given yet */
    uint64_t bytes_out;
    enum status cut; /* in app.end: why the connection was cut to make room for other clients; OK: it was not */
};

/* ---- the server, main thread ----------------------------------------------------------------------------------- */

/* What can be wrong with the settings and the files that they name, but for addresses (listeners.h). Errors:
 * ERR_CONFIG, ERR_IO, ERR_NOMEM, naming the setting. */
enum status http_check(const struct settings *s, struct error *err);
/* Listen and serve; thread i, 0 .. http_threads - 1, has mailbox i of `mailboxes`. The listeners are taken over once
 * there is memory for it all, and are then empty; all other arguments are borrowed until http_stop. *ret is set only on
 * OK, after the addresses that are listened on have been logged. Errors: ERR_CONFIG, ERR_IO, ERR_NOMEM. */
enum status http_start(struct http **ret, const struct settings *s, struct listeners *listeners, struct watcher *w,
                       struct mailboxes *mailboxes, const struct http_app *app, struct error *err);
/* From now on connections are closed after their answer. */
void http_close_after_answers(struct http *h);
/* Refuse new connections; those to sockets that were passed wait there for the next process. */
void http_refuse_connections(struct http *h);
/* Once connections are refused: close those that have been idle for drain_idle_ms since then. To be called again until
 * there are none: a client may send its next request at the very moment in which its connection is closed, so it gets
 * the time to send one more, whose answer tells it that the connection ends. */
void http_close_idle(struct http *h);
/* Open connections; once they are refused, one more until those that had come before are accepted. Any thread. */
uint32_t http_connections(const struct http *h);
/* Requests that are being received, worked on or answered. Any thread. */
uint32_t http_exchanges(const struct http *h);
/* Join the threads, close all connections, free. All jobs that exchanges await must be finished. NULL is a no-op. */
void http_stop(struct http *h);

/* Lines for --version: libmicrohttpd, GnuTLS. */
void http_print_versions(FILE *to);

/* ---- one exchange, its HTTP thread ----------------------------------------------------------------------------- */

void http_set_handler(struct exchange *x, http_handler *handler);
/* NULL where there is none. */
const char *http_header(const struct exchange *x, const char *name);
/* How many headers of that name there are; *ret is the last, if there is one. */
size_t http_headers(const struct exchange *x, const char *name, const char **ret);
/* Call `each` with every query parameter, decoded; a value may be NULL, and a name with a NUL is replaced by one that
 * matches no parameter. Stops when it returns false. */
void http_query(struct exchange *x, bool (*each)(void *arg, const char *name, const char *value, size_t value_bytes),
                void *arg);
/* The client's address as text: the peer's, or what trusted proxies say (proxies.h). */
void http_client(const struct exchange *x, char out[HTTP_CLIENT_BYTES]);
/* The same address as a client among others. */
struct client_id http_client_id(const struct exchange *x);
/* From now on what the exchange takes counts as that client's: a key's, say. Before any of the body was read. */
void http_count_as(struct exchange *x, const struct client_id *client);
/* Free the body, which is no longer needed. */
void http_drop_body(struct exchange *x);
/* Take the body over: its bytes stay where they are, and count as a body, until http_free_body, which any thread may
 * call before http_stop, whether or not the exchange still lives. NULL: no memory, and nothing was taken. */
struct http_kept_body *http_keep_body(struct exchange *x);
void http_free_body(struct http_kept_body *kept); /* NULL is a no-op */

/* Reserve memory for the answer: that many bytes in all, which its job or its text takes until the client has read it.
 * Errors: ERR_ARGUMENT (more than one client may have), ERR_NOMEM (no room beside other answers); what was reserved
 * before stays. */
enum status http_reserve_answer(struct exchange *x, size_t bytes, struct error *err);

/* Add a header to the coming answer; `name` is a string literal. */
void http_add_header(struct exchange *x, const char *name, const char *value);
/* Answer; `body` is malloc'd and taken. Without a type there is no body. One for which there is no room is dropped, and
 * app.refuse answers. */
void http_reply(struct exchange *x, unsigned status, const char *type, char *body, size_t bytes);
/* Answer 200 with what the reader gives, piece by piece. The reader is called first while MHD sends, and after each
 * HTTP_LATER again once the job has news. After ping_ms of silence the awaited job gets job_ping. */
void http_reply_stream(struct exchange *x, const char *type, http_reader *reader);

/* Suspend the exchange until job_await says that the job is ready, then call `next`, perhaps at once. The job has been
 * submitted; a reference is taken. If the client leaves or the job's deadline passes, the job is cancelled. Again for
 * another job only once the one before is done, to which the exchange's reference then ends. */
void http_await(struct exchange *x, struct job *job, http_handler *next);

/* ---- all exchanges, an HTTP thread ------------------------------------------------------------------------------- */

/* From now until app.end, other exchanges may look at this one; what they read of x->api must not change any more. Once
 * per exchange. */
void http_show(struct exchange *x);

/* Sees an exchange, which cannot end meanwhile: to be brief, and to call no other function of http than those here. Of
 * the exchange it may read what is constant once it is shown, `job`, and how much of the body was received. */
typedef void http_see(void *arg, struct exchange *other);
/* See all that were shown before `asker` was, in that order. */
void http_see_before(struct exchange *asker, http_see *see, void *arg);
/* See all that are shown, from the main thread. */
void http_see_all(struct http *h, http_see *see, void *arg);

enum http_stage { HTTP_RECEIVING, HTTP_WORKING, HTTP_ANSWERING };
/* In http_see. */
enum http_stage http_stage(const struct exchange *x);
/* In http_see: end the exchange. A job that is not done, or yet to come, is cancelled for the reason `st`, and what
 * becomes of that is answered. The connection is cut where it only receives, or only sends what is done. */
void http_cancel(struct exchange *x, enum status st);

#endif
