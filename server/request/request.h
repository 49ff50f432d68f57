/* request.h - one request, from its headers to its line in the log: what a client sent, who that is, which model it is
 * for, the job that does its work, and its answer. phases.h has the order of things.
 *
 * Only its connection's HTTP thread touches it, except for what is said to be others', and as request_see says. */
#ifndef SERVER_REQUEST_REQUEST_H
#define SERVER_REQUEST_REQUEST_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config/limits.h"
#include "config/status.h"
#include "server/access/api_kind.h"
#include "server/access/auth.h"
#include "server/core/client_id.h"
#include "server/core/watcher.h"
#include "server/http/http.h"
#include "server/http/proxies.h"
#include "server/http/quota.h"
#include "server/request/body.h"
#include "server/request/job.h"
#include "server/request/traceparent.h"

struct connection;
struct hosted_model;
struct http;
struct request;
struct requests;
struct route;
struct service;
struct settings;

/* What a route does: it answers, or waits for a job and names the step that is next (request_watch_job,
 * request_job_made), or returns an error, which is then the answer. */
typedef enum status request_step(struct request *x, struct error *err);

/* What a stream's reader returns: a piece of text, nothing before the job's next news, or the end; or it cannot go on,
 * and the connection is cut. */
enum request_piece { REQUEST_PIECE, REQUEST_LATER, REQUEST_END, REQUEST_BROKEN };
/* On REQUEST_PIECE, *piece is malloc'd and taken by the caller. */
typedef enum request_piece request_reader(struct request *x, char **piece, size_t *bytes);

enum request_stage { REQUEST_RECEIVING, REQUEST_WORKING, REQUEST_ANSWERING };

enum { REQUEST_ID_BYTES = REQUEST_ID_MAX + 1, REQUEST_CLIENT_BYTES = 46 /* INET6_ADDRSTRLEN */ };

struct request {
    struct job job; /* what is done for it now; first, so that both are freed as one */

    /* what came */
    const struct service *service;
    struct requests *all;
    struct http *http; /* the server that it came through */
    struct connection *connection;
    struct MHD_Connection *mhd;
    const char *version, *method;
    const char *target; /* of the request line: the path, or the server too */
    const char *path;
    char id[REQUEST_ID_BYTES];
    struct traceparent trace; /* the caller's trace with a span of ours; without one trace.trace is empty */
    struct body body;         /* complete in the handler, until request_drop_body */
    uint64_t start_ns;        /* when its first line was read */
    uint64_t received_ns;     /* when its last byte was read */
    uint64_t body_bytes;      /* as declared; 0: it was not */
    bool has_body;            /* a length or an encoding was given */
    unsigned type;            /* of the body, as its route reads it (request_head.h); 0: it is not declared */
    bool is_received;         /* whole */
    bool is_admin;            /* it came through the admin listener */
    bool is_metrics;          /* it came through the listener for monitors */
    bool is_local;            /* it came through a Unix socket */

    /* phases.c's: how far it is, and which endpoint it is for */
    unsigned phase;
    enum api_kind kind;
    bool is_below_v2;          /* its path is: errors have the Open Inference Protocol's form, whatever the API */
    unsigned endpoint;         /* the path's metrics label */
    const struct route *route; /* of its path, and then of its method; NULL: none of them */
    char segments[HTTP_SEGMENTS_MAX][HTTP_SEGMENT_MAX]; /* what the path has in place of each {} */
    json_t *query;  /* the query's parameters, for fields_read; NULL where the route takes none */
    json_t *object; /* the body's, until the step that has read it returns */

    /* who asks */
    struct proxies_address address; /* constant: the peer's, or what trusted proxies say */
    struct client_id quota_owner;   /* as whose what it takes counts: that address, or what request_count_as says */
    struct auth_grant grant;        /* the key that let it in, if keys are required */
    struct client_id client;        /* who is behind it: that key or, where none is required, an address */

    unsigned model_label;   /* of the job's model, in the metrics */
    uint32_t timeout_ms;    /* that it asks for; 0: what the settings say */
    uint64_t picture_bytes; /* that its pictures count towards the key's rate, beyond those of the body */

    /* the work, await.c's */
    request_step *step;        /* the next: once its job is ready, if it waits for one */
    bool is_made;              /* by the step before: the job, which is to be submitted */
    bool keeps_body;           /* whoever works for it still reads the body, and drops it */
    struct watch watch;        /* the watcher's */
    struct http_mail mail;     /* posted when the job has news */
    struct job_block *created; /* what its job had when it began */
    atomic_int stage;          /* enum request_stage */
    TAILQ_ENTRY(request) link; /* among the active ones, whose lock guards it */
    bool is_shown;             /* it is among them */

    /* the answer */
    unsigned http_status; /* 0: none was given yet */
    uint64_t bytes_out;
    struct {
        const char *name;
        char value[HTTP_HEADER_VALUE_MAX];
    } headers[HTTP_REPLY_HEADERS_MAX];
    size_t header_count;
    request_reader *reader; /* of a stream, set with its job */
    char *piece;            /* of the stream, now being sent */
    size_t piece_bytes, piece_sent;
    bool is_broken;            /* the connection is to be cut */
    bool closes;               /* the connection is closed after the answer */
    struct quota_share answer; /* memory that is reserved for it */
    _Atomic uint64_t sends_ns; /* when the library was last given something to send; 0: it waits for nothing to go */
    _Atomic uint64_t spoke_ns; /* when a stream last sent something; 0: no stream yet */

    /* of the answer, for the log */
    enum status error; /* of an error answer; OK otherwise */
    enum status cut;   /* why the connection was cut to make room for other clients; OK: it was not */

    void *state; /* the endpoint's own */
};

/* ---- one of them, its HTTP thread ------------------------------------------------------------------------------- */

/* May it be read as HTTP, and may a body of that size come? Errors: ERR_ARGUMENT, ERR_NOT_FOUND, ERR_METHOD,
 * ERR_LENGTH, ERR_TOO_LARGE, ERR_URL. */
enum status request_check_framing(struct request *x, struct error *err);
/* NULL where there is none. */
const char *request_header(const struct request *x, const char *name);
/* How many headers of that name there are; *ret is the last, if there is one. */
size_t request_headers(const struct request *x, const char *name, const char **ret);
/* The client's address as text: the peer's, or what trusted proxies say (proxies.h). */
void request_client(const struct request *x, char out[REQUEST_CLIENT_BYTES]);
/* From now on what the request takes counts as that client's: a key's, say. Before any of the body was read. */
void request_count_as(struct request *x, const struct client_id *client);
/* Free the body, which is no longer needed. */
void request_drop_body(struct request *x);
/* Reserve memory for the answer: that many bytes in all, which its job or its text takes until the client has read it.
 * Errors: ERR_ARGUMENT (more than one client may have), ERR_NOMEM (no room beside other answers); what was reserved
 * before stays. */
enum status request_reserve_answer(struct request *x, size_t bytes, struct error *err);

/* Add a header to the coming answer; `name` is a string literal. */
void request_add_header(struct request *x, const char *name, const char *value);
/* Answer; `body` is malloc'd and taken. Without a type there is no body. One for which there is no room is dropped, and
 * answered with an error. A request is answered once. Returns OK, as a step does that has answered. */
enum status request_reply(struct request *x, unsigned status, const char *type, char *body, size_t bytes);
/* Answer 200 with what x->reader gives, piece by piece. The reader is called first while the library sends, and after
 * each REQUEST_LATER again once the job has news. After ping_ms of silence the awaited job gets job_ping. */
void request_reply_stream(struct request *x, const char *type);

/* The request goes on with `next` once its job is ready (job_ready_or_suspend), which has been submitted. If the client
 * leaves or the job's deadline passes, the job is cancelled. */
void request_watch_job(struct request *x, request_step *next);

/* ---- all that are active, an HTTP thread ------------------------------------------------------------------------ */

/* From now until its end, other requests may look at this one; what they read of it must not change any more. Once per
 * request. */
void request_show(struct request *x);

/* Sees a request, which cannot end meanwhile: to be brief, and to call no other function of this file than those here.
 * Of the request it may read what is constant once it is shown, how much of the body was received, and
 * job_look. */
typedef void request_see(void *arg, struct request *other);
/* See all that were shown before `asker` was, in that order. */
void requests_see_before(struct request *asker, request_see *see, void *arg);

/* In request_see. */
enum request_stage request_stage(const struct request *x);
/* In request_see: end the request. A job that is not done, or yet to come, is cancelled for the reason `st`, and what
 * becomes of that is answered. The connection is cut where it only receives, or only sends what is done. */
void request_cancel(struct request *x, enum status st);

#endif
