/* http.c - see http.h: exchanges, from a request's headers to the end of its answer. connection.c opens and closes
 * connections, loop.c has the threads, the start and the end, await.c waits for jobs, roll.c shows exchanges to other
 * threads; http_inner.h is what they share.
 *
 * Threads: a connection belongs to one loop's thread, which runs all of this, except suspend_exchange and
 * resume_exchange (run by whoever holds the job's lock).
 *
 * Invariants: an exchange is suspended only through job_await and what reads a job, and is resumed when that is done;
 * so once all jobs are done no connection stays suspended, and the library may be stopped. An exchange is watched from
 * http_await until its end, a connection as long as it lives; both end before the library closes the socket. */
#include "server/http/http.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/http/cors.h"
#include "server/http/framing.h"
#include "server/http/http_inner.h"
#include "server/http/proxies.h"

_Static_assert(HTTP_CLIENT_BYTES >= INET6_ADDRSTRLEN, "any address fits");

#define STREAM_BLOCK_BYTES 16384 /* most that the library takes from a stream at a time */

/* ---- answers --------------------------------------------------------------------------------------------------- */

/* CORS headers, for browsers that show another site's page. */
static bool add_cors_headers(const struct http_exchange *x, struct MHD_Response *r)
{
    const char *origins = x->http->settings->cors_origins;
    const bool is_public = x->connection->kind == LISTENER_PUBLIC;
    const char *answer = is_public ? cors_answer(origins, http_header(&x->base, "Origin")) : NULL;
    bool fine = true;
    if (cors_varies(origins))
        fine = MHD_add_response_header(r, "Vary", "Origin") == MHD_YES;
    if (answer != NULL)
        fine = MHD_add_response_header(r, "Access-Control-Allow-Origin", answer) == MHD_YES &&
               MHD_add_response_header(r, "Access-Control-Expose-Headers", CORS_EXPOSED) == MHD_YES && fine;
    return fine;
}

static bool add_headers(const struct http_exchange *x, struct MHD_Response *r)
{
    char trace[TRACEPARENT_BYTES];
    bool fine = MHD_add_response_header(r, "X-Request-Id", x->base.id) == MHD_YES;
    if (x->base.trace.trace[0] != '\0') {
        traceparent_print(&x->base.trace, trace);
        fine = MHD_add_response_header(r, "traceparent", trace) == MHD_YES && fine;
    }
    for (size_t i = 0; i < x->header_count; i++)
        fine = MHD_add_response_header(r, x->headers[i].name, x->headers[i].value) == MHD_YES && fine;
    if (x->closes || atomic_load_explicit(&x->http->closes_after_answers, memory_order_relaxed))
        fine = MHD_add_response_header(r, "Connection", "close") == MHD_YES && fine;
    return add_cors_headers(x, r) && fine;
}

/* Takes `r`, which may be NULL if memory ran out. */
static void queue_response(struct http_exchange *x, unsigned status, const char *type, struct MHD_Response *r)
{
    assert(x->base.status == 0);
    x->base.status = status;
    atomic_store_explicit(&x->stage, HTTP_ANSWERING, memory_order_relaxed);
    if (r == NULL) {
        x->is_broken = true;
        return;
    }
    if (!add_headers(x, r) || (type != NULL && MHD_add_response_header(r, "Content-Type", type) != MHD_YES) ||
        MHD_queue_response(x->mhd, status, r) != MHD_YES)
        x->is_broken = true;
    MHD_destroy_response(r);
}

void http_add_header(struct exchange *base, const char *name, const char *value)
{
    struct http_exchange *x = http_exchange_of(base);
    assert(x->header_count < HTTP_REPLY_HEADERS_MAX);
    x->headers[x->header_count].name = name;
    (void)snprintf(x->headers[x->header_count].value, HTTP_HEADER_VALUE_MAX, "%s", value);
    x->header_count++;
}

void http_reply(struct exchange *base, unsigned status, const char *type, char *body, size_t bytes)
{
    struct http_exchange *x = http_exchange_of(base);
    struct error err;
    if (http_reserve_answer(base, bytes, &err) != OK) {
        free(body);
        x->header_count = 0;
        x->http->app.refuse(base, &err); /* a short one */
        return;
    }
    if (x->answer.holder != NULL)
        atomic_store_explicit(&x->sends_ns, clock_now_ns(), memory_order_relaxed);
    struct MHD_Response *r = MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (r == NULL)
        free(body);
    base->bytes_out = bytes;
    x->http->app.add_headers(base);
    queue_response(x, status, type, r);
}

static ssize_t read_stream(void *cls, uint64_t position, char *out, size_t size)
{
    struct http_exchange *x = cls;
    (void)position;
    if (x->piece_sent == x->piece_bytes) {
        free(x->piece);
        x->piece = NULL;
        x->piece_sent = x->piece_bytes = 0;
        atomic_store_explicit(&x->sends_ns, 0, memory_order_relaxed); /* before it may be suspended */
        switch (x->reader(&x->base, &x->piece, &x->piece_bytes)) {
        case HTTP_PIECE:
            if (http_reserve_answer(&x->base, x->piece_bytes, NULL) != OK)
                return MHD_CONTENT_READER_END_WITH_ERROR;
            break;
        case HTTP_LATER:
            return 0;  /* suspended, so the library does not ask again before the job has news */
        case HTTP_END: /* the last of it may still wait for the client */
            atomic_store_explicit(&x->sends_ns, clock_now_ns(), memory_order_relaxed);
            return MHD_CONTENT_READER_END_OF_STREAM;
        case HTTP_BROKEN:
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
    const size_t left = x->piece_bytes - x->piece_sent;
    const size_t n = left < size ? left : size;
    memcpy(out, x->piece + x->piece_sent, n);
    x->piece_sent += n;
    x->base.bytes_out += n;
    const uint64_t now_ns = clock_now_ns();
    atomic_store_explicit(&x->spoke_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&x->sends_ns, now_ns, memory_order_relaxed);
    return (ssize_t)n;
}

void http_reply_stream(struct exchange *base, const char *type, http_reader *reader)
{
    struct http_exchange *x = http_exchange_of(base);
    x->reader = reader;
    atomic_store_explicit(&x->spoke_ns, clock_now_ns(), memory_order_relaxed);
    http_watch_silence(x);
    queue_response(x, MHD_HTTP_OK, type,
                   MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, x, NULL));
}

static void refuse(struct http_exchange *x, const struct error *err)
{
    x->closes = true;
    x->http->app.refuse(&x->base, err);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

void http_set_handler(struct exchange *x, http_handler *handler)
{
    http_exchange_of(x)->handler = handler;
}

const char *http_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(http_exchange_of(x)->mhd, MHD_HEADER_KIND, name);
}

struct same_headers {
    const char *name, *last;
    size_t count;
};

static enum MHD_Result same_header_step(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct same_headers *s = cls;
    (void)kind;
    if (strcasecmp(name, s->name) == 0) {
        s->last = value != NULL ? value : "";
        s->count++;
    }
    return MHD_YES;
}

size_t http_headers(const struct exchange *x, const char *name, const char **ret)
{
    struct same_headers same = {.name = name};
    (void)MHD_get_connection_values(http_exchange_of(x)->mhd, MHD_HEADER_KIND, same_header_step, &same);
    if (same.count > 0)
        *ret = same.last;
    return same.count;
}

struct query {
    bool (*each)(void *arg, const char *name, const char *value, size_t value_bytes);
    void *arg;
};

static enum MHD_Result query_step(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_bytes,
                                  const char *value, size_t value_bytes)
{
    const struct query *q = cls;
    (void)kind;
    if (strlen(name) != name_bytes) /* or "top_k%00..." would be top_k */
        name = "(a name with a NUL)";
    return q->each(q->arg, name, value, value_bytes) ? MHD_YES : MHD_NO;
}

void http_query(struct exchange *x, bool (*each)(void *arg, const char *name, const char *value, size_t value_bytes),
                void *arg)
{
    struct query q = {each, arg};
    (void)MHD_get_connection_values_n(http_exchange_of(x)->mhd, MHD_GET_ARGUMENT_KIND, query_step, &q);
}

void http_client(const struct exchange *x, char out[HTTP_CLIENT_BYTES])
{
    proxies_print_address(&http_exchange_of(x)->client, out);
}

struct client_id http_client_id(const struct exchange *x)
{
    return proxies_client_id(&http_exchange_of(x)->client);
}

/* Administrators are not shut out by the bodies of others. */
static struct bodies *bodies_of(const struct http_exchange *x)
{
    return x->base.is_admin ? &x->http->admin_bodies : &x->http->bodies;
}

void http_cut_upload(struct body *b)
{
    http_cut(((struct http_exchange *)(void *)((char *)b - offsetof(struct http_exchange, base.body)))->connection,
             ERR_NOMEM);
}

void http_drop_body(struct exchange *x)
{
    http_note_freed(http_exchange_of(x)->http, x->body.capacity);
    body_drop(&x->body, bodies_of(http_exchange_of(x)));
}

void http_count_as(struct exchange *x, const struct client_id *client)
{
    http_exchange_of(x)->sharer = *client;
}

struct http_kept_body {
    struct body body;
    struct bodies *all;
    struct http *http;
};

struct http_kept_body *http_keep_body(struct exchange *x)
{
    struct http_kept_body *kept = calloc(1, sizeof *kept);
    if (kept == NULL)
        return NULL;
    kept->all = bodies_of(http_exchange_of(x));
    kept->http = http_exchange_of(x)->http;
    body_move(&x->body, &kept->body);
    return kept;
}

void http_free_body(struct http_kept_body *kept)
{
    if (kept == NULL)
        return;
    http_note_freed(kept->http, kept->body.capacity);
    body_drop(&kept->body, kept->all);
    free(kept);
}

static enum MHD_Result framing_step(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_bytes,
                                    const char *value, size_t value_bytes)
{
    (void)kind;
    framing_header(cls, name, name_bytes, value != NULL ? value : name + name_bytes, value != NULL ? value_bytes : 0);
    return MHD_YES;
}

static enum status check_request(struct http_exchange *x, const char *version, struct error *err)
{
    const struct connection *c = x->connection;
    const struct settings *s = x->http->settings;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct framing f;
    framing_begin(&f, x->base.method, c->target, c->target_bytes, version,
                  info != NULL && !HTTP_LIBRARY_IS_STRICT ? info->header_size : 0);
    (void)MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, framing_step, &f);
    const enum status st = framing_end(&f, err);
    if (st != OK)
        return st;
    x->base.has_body = f.has_length || f.is_chunked;
    x->base.body_bytes = f.length;
    x->closes = f.is_chunked; /* see framing.h */
    if (c->target_has_space)
        return error_set(err, ERR_ARGUMENT, "the URL has a space; expected %%20");
    if (c->path_has_nul)
        return error_set(err, ERR_NOT_FOUND, "there is nothing at a path with a NUL (%%00)");
    if (c->target_bytes > HTTP_URL_MAX)
        return error_set(err, ERR_URL, "the URL has %zu bytes; at most %d are allowed", c->target_bytes, HTTP_URL_MAX);
    if (f.has_length && f.length > s->body_bytes_max)
        return error_set(err, ERR_TOO_LARGE, "the body has %llu bytes; at most %u are allowed",
                         (unsigned long long)f.length, s->body_bytes_max);
    return OK;
}

static void suspend_exchange(void *arg)
{
    MHD_suspend_connection(((struct http_exchange *)arg)->mhd);
}

/* Its own thread will do it, once mailbox_notify wakes it. */
static void resume_exchange(void *arg)
{
    struct http_exchange *x = arg;
    mailbox_post(x->http->mailboxes, x->connection->loop->box, &x->mail);
}

/* Without a trace to take part in none is begun: nothing here would report it, and X-Request-Id names the request. Of
 * several headers nobody knows which one is meant. */
static void begin_trace(struct http_exchange *x)
{
    const char *value = NULL;
    if (http_headers(&x->base, "traceparent", &value) == 1 && traceparent_parse(&x->base.trace, value))
        traceparent_renew_span(&x->base.trace);
}

struct forwarded {
    const struct proxies *proxies;
    struct proxies_address client;
};

static enum MHD_Result forwarded_step(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct forwarded *f = cls;
    (void)kind;
    if (strcasecmp(name, "X-Forwarded-For") == 0)
        proxies_read_forwarded(f->proxies, &f->client, value != NULL ? value : "");
    return MHD_YES;
}

/* Now, because other threads, which may ask for it later, must not read headers: a body can bring more of them. */
static void find_client(struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct forwarded f = {.proxies = &x->http->proxies, .client = {.family = AF_UNSPEC}};
    proxies_address_of(&x->client, info != NULL ? info->client_addr : NULL);
    if (proxies_trust(f.proxies, &x->client))
        (void)MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, forwarded_step, &f);
    if (f.client.family != AF_UNSPEC)
        x->client = f.client;
}

static struct http_exchange *exchange_create(struct http *h, struct MHD_Connection *mhd, const char *method,
                                             const char *path)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL)
        return NULL; /* out of memory for the connection */
    struct connection *c = info->socket_context;
    struct http_exchange *x = calloc(1, sizeof *x + h->app.request_bytes);
    if (x == NULL)
        return NULL;
    x->http = h;
    x->connection = c;
    x->mhd = mhd;
    x->waiter = (struct job_waiter){suspend_exchange, resume_exchange, x};
    x->base.app = h->app.arg;
    x->base.api = (struct api_request *)(void *)x->app_part;
    x->base.method = method;
    x->base.path = path;
    x->base.start_ns = atomic_load_explicit(&c->request_ns, memory_order_relaxed);
    x->base.is_admin = c->kind == LISTENER_ADMIN;
    x->base.is_metrics = c->kind == LISTENER_METRICS;
    x->base.is_local = c->is_local;
    atomic_store_explicit(&c->idle_ns, 0, memory_order_relaxed);
    find_client(x);
    x->sharer = proxies_client_id(&x->client);
    begin_trace(x);
    framing_choose_id(x->base.id, http_header(&x->base, "X-Request-Id"));
    (void)atomic_fetch_add(&h->exchanges, 1);
    return x;
}

/* If a body follows, an answer here keeps it from being read, at the cost of the connection; if none does, nothing
 * would be saved, and handle_request calls app.begin. */
static void begin_exchange(struct http_exchange *x, const char *version)
{
    struct error err;
    if (check_request(x, version, &err) != OK)
        refuse(x, &err);
    else if (x->base.has_body)
        x->http->app.begin(&x->base);
}

static void handle_request(struct http_exchange *x)
{
    x->is_received = true;
    body_complete(&x->base.body);
    if (x->base.status == 0)
        atomic_store_explicit(&x->stage, HTTP_WORKING, memory_order_relaxed);
    x->base.received_ns = clock_now_ns();
    watcher_set_time(x->http->watcher, &x->connection->watch, 0);
    if (x->base.body.status != OK) {
        struct error err;
        body_error(&x->base.body, x->http->settings->body_bytes_max, &err);
        refuse(x, &err);
        return;
    }
    if (!x->base.has_body)
        x->http->app.begin(&x->base);
    if (x->base.status == 0)
        x->handler(&x->base);
}

enum MHD_Result http_on_request(void *cls, struct MHD_Connection *mhd, const char *path, const char *method,
                                const char *version, const char *data, size_t *data_bytes, void **context)
{
    const struct http_loop *l = cls;
    struct http_exchange *x = *context;
    if (x == NULL) {
        x = exchange_create(l->http, mhd, method, path);
        if (x == NULL)
            return MHD_NO;
        *context = x;
        begin_exchange(x, version);
    } else if (*data_bytes > 0) {
        /* No answer can be given while a body arrives: the excess is discarded until its end or until the receive
         * deadline. */
        if (x->base.status == 0)
            body_append(&x->base.body, data, *data_bytes, bodies_of(x), &x->sharer);
        *data_bytes = 0;
    } else if (!x->is_received) {
        handle_request(x);
    } else if (x->base.status == 0) {
        http_go_on(x); /* it was resumed */
    }
    return x->is_broken ? MHD_NO : MHD_YES;
}

void http_on_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    const struct http_loop *l = cls;
    struct http *h = l->http;
    struct http_exchange *x = *context;
    (void)mhd;
    if (x == NULL)
        return;
    struct job *j = x->base.job;
    *context = NULL;
    http_roll_leave(x);
    http_release_answer(x);
    watcher_remove(h->watcher, &x->watch);
    if (j != NULL)
        job_detach(j);
    mailbox_remove(h->mailboxes, l->box, &x->mail);
    if (j != NULL)
        job_cancel(j, ERR_CANCELLED); /* nobody will read what it still makes; no effect on a finished one */
    x->base.cut = (enum status)atomic_load_explicit(&x->connection->cut, memory_order_relaxed);
    x->connection->lingers = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !x->is_received;
    h->app.end(&x->base);
    /* The next request may begin after idling, and must then arrive in time. */
    atomic_store_explicit(&x->connection->idle_ns, clock_now_ns(), memory_order_relaxed);
    http_expect_within(x->connection, (uint64_t)h->settings->idle_timeout_ms + h->settings->receive_timeout_ms);
    job_release(j);
    http_drop_body(&x->base);
    free(x->piece);
    free(x);
    (void)atomic_fetch_sub(&h->exchanges, 1);
}
