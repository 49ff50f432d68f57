/* requests.c - see requests.h: a request's life, from its headers to the end of its answer, as the library calls for
 * it. phases.c says what is done with it, await.c waits for its job, answer.c answers; request_inner.h is what they
 * share.
 *
 * Threads: a connection belongs to one loop's thread, which runs all of this.
 *
 * Invariants: a request is suspended only through job_ready_or_suspend and what reads a job, and is resumed when that
 * is done; so once all jobs are done no connection stays suspended, and the library may be stopped. A request is
 * watched from request_watch_job until its end, a connection as long as it lives; both end before the library closes
 * the socket. */
#include "server/request/requests.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/http/transport.h"
#include "server/models/hosted_model.h"
#include "server/request/cors.h"
#include "server/request/framing.h"
#include "server/request/phases.h"
#include "server/request/request_inner.h"
#include "server/request/service.h"

/* ---- one -------------------------------------------------------------------------------------------------------- */

/* Without a trace to take part in none is begun: nothing here would report it, and X-Request-Id names the request. Of
 * several headers nobody knows which one is meant. */
static void begin_trace(struct request *x)
{
    const char *value = NULL;
    if (request_headers(x, "traceparent", &value) == 1 && traceparent_parse(&x->trace, value))
        traceparent_renew_span(&x->trace);
}

/* Nobody has it any more. */
static void let_go(void *arg)
{
    struct request *x = arg;
    json_decref(x->query);
    request_drop_body(x);
    free(x->piece);
}

/* NULL: there is no memory for it, or was none for its connection. */
static struct request *create(const struct http_loop *l, struct MHD_Connection *mhd, const char *version,
                              const char *method, const char *target)
{
    struct requests *all = l->http->app.arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info != NULL ? info->socket_context : NULL;
    struct request *x = c != NULL ? job_create(sizeof *x) : NULL;
    struct error none;
    if (x == NULL)
        return NULL;
    if (job_defer(&x->job, let_go, x, &none) != OK) {
        job_release(&x->job);
        return NULL;
    }
    x->created = x->job.memory;
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
    /* Now, because other threads, which may ask for it later, must not read headers: a body can bring more of them. */
    x->client = x->quota_owner = http_find_client(l->http, mhd, &x->address);
    begin_trace(x);
    framing_choose_id(x->id, request_header(x, "X-Request-Id"));
    (void)atomic_fetch_add(&all->count, 1);
    phases_begin(x);
    return x;
}

/* ---- the library's calls ---------------------------------------------------------------------------------------- */

static void take_end(struct request *x)
{
    x->is_received = true;
    body_complete(&x->body);
    if (x->http_status == 0)
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
        if (x->http_status == 0)
            body_append(&x->body, data, *data_bytes, request_bodies(x), &x->quota_owner);
        *data_bytes = 0;
        return MHD_YES;
    } else if (!x->is_received) {
        take_end(x);
    }
    if (x->http_status == 0)
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
    struct job *j = &x->job;
    *context = NULL;
    active_leave(x);
    request_release_answer(x);
    watcher_remove(h->watcher, &x->watch);
    job_detach(j);
    mailbox_remove(h->mailboxes, l->box, &x->mail.item);
    job_cancel(j, ERR_CLIENT_GONE); /* nobody will read what it still makes; no effect on a finished one */
    x->cut = (enum status)atomic_load_explicit(&x->connection->cut, memory_order_relaxed);
    x->connection->lingers = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && !x->is_received;
    phases_end(x);
    /* The next request may begin after idling, and must then arrive in time. */
    atomic_store_explicit(&x->connection->idle_ns, clock_now_ns(), memory_order_relaxed);
    http_expect_within(x->connection, (uint64_t)h->settings->idle_timeout_ms + h->settings->receive_timeout_ms);
    if (!x->keeps_body)
        request_drop_body(x);
    (void)atomic_fetch_sub(&x->all->count, 1);
    job_release(j);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static void cut_upload(struct body *b)
{
    http_cut(((struct request *)(void *)((char *)b - offsetof(struct request, body)))->connection, ERR_NOMEM);
}

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
    (void)pthread_mutex_init(&all->active.lock, NULL);
    TAILQ_INIT(&all->active.list);
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
    assert(TAILQ_EMPTY(&all->active.list));
    (void)pthread_mutex_destroy(&all->active.lock);
    quota_clear(&all->answers);
    quota_clear(&all->bodies.quota);
    quota_clear(&all->admin_bodies.quota);
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
