/* request.c - a request's life, from its headers to the end of its answer, as the library calls for it. See request.h.
 * phases.c says what is done with it, await.c waits for its job, answer.c answers; requests.h is what they share.
 *
 * Threads: a connection belongs to one loop's thread, which runs all of this.
 *
 * Invariants: a request is suspended only through job_await and what reads a job, and is resumed when that is done; so
 * once all jobs are done no connection stays suspended, and the library may be stopped. A request is watched from
 * request_await until its end, a connection as long as it lives; both end before the library closes the socket. */
#include "server/request/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/request/cors.h"
#include "server/request/framing.h"
#include "server/http/transport.h"
#include "server/models/hosted_model.h"
#include "server/request/phases.h"
#include "server/request/requests.h"
#include "server/request/service.h"

_Static_assert(REQUEST_CLIENT_BYTES >= INET6_ADDRSTRLEN, "any address fits");

/* ---- what came --------------------------------------------------------------------------------------------------- */

const char *request_header(const struct request *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
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

size_t request_headers(const struct request *x, const char *name, const char **ret)
{
    struct same_headers same = {.name = name};
    (void)MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, same_header_step, &same);
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

void request_each_parameter(struct request *x, bool (*each)(void *arg, const char *name, const char *value, size_t value_bytes),
                void *arg)
{
    struct query q = {each, arg};
    (void)MHD_get_connection_values_n(x->mhd, MHD_GET_ARGUMENT_KIND, query_step, &q);
}

void request_client(const struct request *x, char out[REQUEST_CLIENT_BYTES])
{
    proxies_print_address(&x->address, out);
}

static struct bodies *bodies_of(const struct request *x)
{
    return x->is_admin ? &x->all->admin_bodies : &x->all->bodies;
}

static void cut_upload(struct body *b)
{
    http_cut(((struct request *)(void *)((char *)b - offsetof(struct request, body)))->connection,
             ERR_NOMEM);
}

void request_drop_body(struct request *x)
{
    http_note_freed(x->http, x->body.capacity);
    body_drop(&x->body, bodies_of(x));
}

void request_count_as(struct request *x, const struct client_id *client)
{
    x->sharer = *client;
}

struct request_kept_body {
    struct body body;
    struct bodies *all;
    struct http *http;
};

struct request_kept_body *request_keep_body(struct request *x)
{
    struct request_kept_body *kept = calloc(1, sizeof *kept);
    if (kept == NULL)
        return NULL;
    kept->all = bodies_of(x);
    kept->http = x->http;
    body_move(&x->body, &kept->body);
    return kept;
}

void request_free_body(struct request_kept_body *kept)
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

enum status request_check_framing(struct request *x, struct error *err)
{
    const struct connection *c = x->connection;
    const struct settings *s = x->service->settings;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct framing f;
    framing_begin(&f, x->method, c->target, c->target_bytes, x->version,
                  info != NULL && !HTTP_LIBRARY_IS_STRICT ? info->header_size : 0);
    (void)MHD_get_connection_values_n(x->mhd, MHD_HEADER_KIND, framing_step, &f);
    const enum status st = framing_end(&f, err);
    if (st != OK)
        return st;
    x->has_body = f.has_length || f.is_chunked;
    x->body_bytes = f.length;
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

/* Without a trace to take part in none is begun: nothing here would report it, and X-Request-Id names the request. Of
 * several headers nobody knows which one is meant. */
static void begin_trace(struct request *x)
{
    const char *value = NULL;
    if (request_headers(x, "traceparent", &value) == 1 && traceparent_parse(&x->trace, value))
        traceparent_renew_span(&x->trace);
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
static void find_client(struct request *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct forwarded f = {.proxies = &x->http->proxies, .client = {.family = AF_UNSPEC}};
    proxies_address_of(&x->address, info != NULL ? info->client_addr : NULL);
    if (proxies_trust(f.proxies, &x->address))
        (void)MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, forwarded_step, &f);
    if (f.client.family != AF_UNSPEC)
        x->address = f.client;
    x->client = x->sharer = proxies_client_id(&x->address);
}

/* NULL: there is no memory for it, or was none for its connection. */
static struct request *create(const struct http_loop *l, struct MHD_Connection *mhd, const char *version,
                              const char *method, const char *target)
{
    struct requests *all = l->http->app.arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info != NULL ? info->socket_context : NULL;
    struct request *x = c != NULL ? calloc(1, sizeof *x) : NULL;
    if (x == NULL)
        return NULL;
    x->service = all->service;
    x->all = all;
    x->http = l->http;
    x->connection = c;
    x->mhd = x->mail.mhd = mhd;
    x->version = version;
    x->method = method;
    x->target = target;
    x->start_ns = atomic_load_explicit(&c->request_ns, memory_order_relaxed);
    x->is_admin = c->kind == LISTENER_ADMIN;
    x->is_metrics = c->kind == LISTENER_METRICS;
    x->is_local = c->is_local;
    atomic_store_explicit(&c->idle_ns, 0, memory_order_relaxed);
    find_client(x);
    begin_trace(x);
    framing_choose_id(x->id, request_header(x, "X-Request-Id"));
    (void)atomic_fetch_add(&all->count, 1);
    phases_begin(x);
    return x;
}

/* ---- the library's calls ----------------------------------------------------------------------------------------- */

static void take_end(struct request *x)
{
    x->is_received = true;
    body_complete(&x->body);
    if (x->status == 0)
        atomic_store_explicit(&x->stage, REQUEST_WORKING, memory_order_relaxed);
    x->received_ns = clock_now_ns();
    watcher_set_time(x->http->watcher, &x->connection->watch, 0);
}

/* Called with the headers, with each piece of the body, at its end, and after each resume. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *path, const char *method,
                                  const char *version, const char *data, size_t *data_bytes, void **context)
{
    const struct http_loop *l = cls;
    struct request *x = *context;
    if (x == NULL) {
        x = *context = create(l, mhd, version, method, path);
        if (x == NULL)
            return MHD_NO;
    } else if (*data_bytes > 0) {
        /* No answer can be given while a body arrives: the excess is discarded until its end or until the receive
         * deadline. */
        if (x->status == 0)
            body_append(&x->body, data, *data_bytes, bodies_of(x), &x->sharer);
        *data_bytes = 0;
        return MHD_YES;
    } else if (!x->is_received) {
        take_end(x);
    }
    if (x->status == 0)
        phases_run(x);
    return x->is_broken ? MHD_NO : MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_RequestTerminationCode code)
{
    const struct http_loop *l = cls;
    struct http *h = l->http;
    struct request *x = *context;
    (void)mhd;
    if (x == NULL)
        return;
    struct job *j = x->job;
    *context = NULL;
    active_leave(x);
    request_release_answer(x);
    watcher_remove(h->watcher, &x->watch);
    if (j != NULL)
        job_detach(j);
    mailbox_remove(h->mailboxes, l->box, &x->mail.item);
    if (j != NULL)
        job_cancel(j, ERR_CANCELLED); /* nobody will read what it still makes; no effect on a finished one */
    x->cut = (enum status)atomic_load_explicit(&x->connection->cut, memory_order_relaxed);
    x->connection->lingers = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !x->is_received;
    phases_end(x);
    /* The next request may begin after idling, and must then arrive in time. */
    atomic_store_explicit(&x->connection->idle_ns, clock_now_ns(), memory_order_relaxed);
    http_expect_within(x->connection, (uint64_t)h->settings->idle_timeout_ms + h->settings->receive_timeout_ms);
    if (x->state != NULL)
        x->state_free(x->state);
    job_release(j);
    hosted_model_release(x->hosted);
    json_decref(x->query);
    request_drop_body(x);
    free(x->piece);
    (void)atomic_fetch_sub(&x->all->count, 1);
    free(x);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

enum status requests_check(const struct settings *s, struct error *err)
{
    const enum status st = cors_check(s->cors_origins, err);
    return st == OK ? http_check(s, err) : st;
}

enum status requests_start(struct requests **ret, const struct service *service, struct listeners *listeners,
                           struct watcher *watcher, struct mailboxes *mailboxes, struct error *err)
{
    const struct settings *s = service->settings;
    struct requests *all = calloc(1, sizeof *all);
    if (all == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the HTTP server");
    all->service = service;
    answers_begin(all);
    bodies_init(&all->bodies, (uint64_t)s->bodies_memory_max_mb << 20, s->body_bytes_max, cut_upload);
    bodies_init(&all->admin_bodies, ADMIN_BODIES_BYTES_MAX, s->body_bytes_max, cut_upload);
    active_begin(all);
    const struct http_app app = {on_request, on_completed, all};
    const enum status st = http_start(&all->http, s, listeners, watcher, mailboxes, &app, err);
    if (st == OK)
        *ret = all;
    else
        requests_stop(all);
    return st;
}

void requests_stop(struct requests *all)
{
    if (all == NULL)
        return;
    http_stop(all->http);
    active_end(all);
    room_clear(&all->answers);
    bodies_clear(&all->bodies);
    bodies_clear(&all->admin_bodies);
    free(all);
}

struct http *requests_http(const struct requests *all)
{
    return all->http;
}

uint32_t requests_count(const struct requests *all)
{
    return atomic_load(&all->count);
}
