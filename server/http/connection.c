/* connection.c - connections: which are admitted, and what keeps one from being held open unused. See http.h. Runs on
 * the connection's loop, except watch_connection (the watcher's thread), and connection_look_at and end_connection (any
 * loop, under the lock of a quota, which a connection leaves before its descriptor is closed).
 *
 * Each kind of listeners has a quota: those of administrators and of monitors are not shut out however many public
 * connections there are. Connections of one client share it with those of others as quota.h says.
 *
 * Time limits: a connection that idles is closed by the library; one that sends too slowly, which the library's
 * timeout never cuts because each byte restarts it, is shut down by its watch. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/http/transport.h"

#define LEFT_AGAIN_NS UINT64_C(100000000) /* until a connection whose client has left is shut down again */

#define REFUSALS_LOGGED_NS (10 * CLOCK_NS_PER_S) /* at least, between two lines that say that some are refused */

/* ---- times ------------------------------------------------------------------------------------------------------ */

void http_expect_within(struct connection *c, uint64_t wait_ms)
{
    const uint64_t now_ns = clock_now_ns();
    watcher_set_time(c->http->watcher, &c->watch, now_ns + wait_ms * CLOCK_NS_PER_MS);
    /* Checked after the time is set: if checked before, this time could replace watch_connection's. */
    if (atomic_load(&c->has_left))
        watcher_set_time(c->http->watcher, &c->watch, now_ns + LEFT_AGAIN_NS);
}

/* On a time: what should have arrived is late; the library sees an end of file and closes the connection.
 * When the client has left: the library does not notice if the end came together with the last bytes, because it never
 * asks for an event twice. Shutting the socket down for reading causes another event, while what has arrived can still
 * be read and answered; it is repeated, because an event before those bytes are read tells the library nothing new. */
static uint64_t watch_connection(void *arg, enum watch_event event, uint64_t now_ns)
{
    struct connection *c = arg;
    if (event == WATCH_CLIENT_LEFT)
        atomic_store(&c->has_left, true);
    (void)shutdown(c->fd, atomic_load(&c->has_left) ? SHUT_RD : SHUT_RDWR);
    return now_ns + LEFT_AGAIN_NS;
}

/* A request that has arrived is read and answered first. The library sees the end of the others and closes them. */
void http_cut_idle(const struct http_loop *l, uint64_t now_ns)
{
    const uint64_t idle_ns = l->http->settings->drain_idle_ms * CLOCK_NS_PER_MS;
    const struct connection *c;
    LIST_FOREACH(c, &l->all, of_loop)
    {
        const uint64_t idle_since_ns = atomic_load_explicit(&c->idle_ns, memory_order_relaxed);
        const uint64_t since_ns = idle_since_ns > l->refuses_ns ? idle_since_ns : l->refuses_ns;
        char byte;
        if (idle_since_ns != 0 && now_ns >= since_ns + idle_ns && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            (void)shutdown(c->fd, SHUT_RDWR);
    }
}

/* ---- quota ------------------------------------------------------------------------------------------------------ */

void http_cut(struct connection *c, enum status st)
{
    atomic_store_explicit(&c->cut, (int)st, memory_order_relaxed);
    (void)shutdown(c->fd, SHUT_RDWR);
}

static struct connection *connection_of(const struct quota_share *p)
{
    return (struct connection *)(void *)((char *)p - offsetof(struct connection, share));
}

/* The one that has idled longest goes first; of those at work the youngest, which has done least. */
static struct quota_view connection_look_at(const struct quota_share *p, uint64_t now_ns)
{
    const struct connection *c = connection_of(p);
    if (!atomic_load_explicit(&c->is_open, memory_order_acquire))
        return (struct quota_view){.ease = QUOTA_STAYS};
    const uint64_t idle_ns = atomic_load_explicit(&c->idle_ns, memory_order_relaxed);
    if (idle_ns != 0)
        return (struct quota_view){.ease = QUOTA_IDLE, .order = now_ns - idle_ns};
    return (struct quota_view){.ease = QUOTA_BUSY, .order = atomic_load_explicit(&c->request_ns, memory_order_relaxed)};
}

static void end_connection(struct quota_share *p)
{
    metrics_counter_add(METRIC_CONNECTIONS_CUT, 0, 1);
    http_cut(connection_of(p), ERR_UNAVAILABLE);
}

/* As many as are allowed and as the system has descriptors for, besides what else needs some. */
static uint64_t public_max(const struct settings *s)
{
    struct rlimit files;
    const uint64_t beside = HTTP_CONNECTIONS_BESIDE + HTTP_FILES_BESIDE + s->http_threads * HTTP_LINGERS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= s->connections_max + beside)
        return s->connections_max;
    const uint64_t possible = files.rlim_cur > beside + CONNECTIONS_MIN ? files.rlim_cur - beside : CONNECTIONS_MIN;
    log_warning("connections_max = %u, but the system allows %llu open files: at most %llu connections",
                s->connections_max, (unsigned long long)files.rlim_cur, (unsigned long long)possible);
    return possible;
}

void http_rooms_begin(struct http *h)
{
    struct quota_rules rules = {
        .ending_most = HTTP_CONNECTIONS_ENDING_MAX, .view = connection_look_at, .end = end_connection};
    for (size_t i = 0; i < LISTENER_KIND_COUNT; i++) {
        const bool is_public = i == LISTENER_PUBLIC;
        rules.most = is_public ? public_max(h->settings) : HTTP_CONNECTIONS_KEPT;
        rules.most_of_client = is_public ? h->settings->connections_per_address_max : 0;
        quota_init(&h->quotas[i], &rules);
    }
}

#define REFUSAL                                                                            \
    "{\"error\":{\"message\":\"there is no room or memory for this connection; try again " \
    "later\",\"type\":\"overloaded_error\","                                               \
    "\"param\":null,\"code\":\"unavailable\"}}"

/* Tell the client, as far as that costs nothing, and close. What it has sent is read first, or its end would be a reset
 * that takes the answer along. */
static void refuse_connection(struct http *h, int fd, bool is_told)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
                                 "Content-Type: application/json\r\nContent-Length: 147\r\n\r\n" REFUSAL;
    _Static_assert(sizeof REFUSAL - 1 == 147, "as Content-Length says");
    char request[2048];
    const uint64_t now_ns = clock_now_ns();
    metrics_counter_add(METRIC_CONNECTIONS_REFUSED, 0, 1);
    uint64_t logged_ns = atomic_load(&h->refusal_logged_ns);
    if ((logged_ns == 0 || now_ns - logged_ns > REFUSALS_LOGGED_NS) &&
        atomic_compare_exchange_strong(&h->refusal_logged_ns, &logged_ns, now_ns))
        log_warning("connections are refused: connections_max, or connections_per_address_max, is reached");
    if (is_told) {
        (void)recv(fd, request, sizeof request, MSG_DONTWAIT);
        (void)send(fd, answer, sizeof answer - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
    }
    (void)close(fd);
}

static struct client_id client_of(const struct sockaddr *from, bool is_local)
{
    struct proxies_address address;
    proxies_address_of(&address, from);
    if (is_local)
        address.family = AF_UNIX;
    return proxies_client_id(&address);
}

struct connection *http_admit(struct http_loop *l, size_t listener, int fd, const struct sockaddr *from)
{
    struct http *h = l->http;
    const struct listener *through = &h->listeners.all[listener];
    const struct client_id client = client_of(from, through->is_local);
    struct connection *c = calloc(1, sizeof *c);
    enum quota_answer answer = QUOTA_NO_MEMORY;
    if (c != NULL) {
        c->http = h;
        c->loop = l;
        c->fd = fd;
        c->kind = through->kind;
        c->is_local = through->is_local;
        c->is_tls = through->is_tls;
        answer = quota_take(&h->quotas[c->kind], &c->share, &client, 1);
    }
    if (answer != QUOTA_FITS) {
        free(c);
        refuse_connection(h, fd, !through->is_tls && answer == QUOTA_FULL);
        return NULL;
    }
    LIST_INSERT_HEAD(&l->coming, c, of_loop);
    return c;
}

static void forget(struct connection *c)
{
    LIST_REMOVE(c, of_loop);
    quota_release(&c->http->quotas[c->kind], &c->share);
    free(c);
}

void http_forget_lost(struct http_loop *l)
{
    struct connection *next;
    for (struct connection *c = LIST_FIRST(&l->coming); c != NULL; c = next) {
        next = LIST_NEXT(c, of_loop);
        forget(c);
    }
}

/* ---- coming and going ------------------------------------------------------------------------------------------- */

void *http_on_request_line(void *cls, const char *target, struct MHD_Connection *mhd)
{
    const struct http_loop *l = cls;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info != NULL ? info->socket_context : NULL;
    if (c == NULL)
        return NULL;
    atomic_store_explicit(&c->request_ns, clock_now_ns(), memory_order_relaxed);
    c->target = target;
    c->target_bytes = strlen(target);
    c->target_has_space = strchr(target, ' ') != NULL;
    const char *nul = strstr(target, "%00");
    c->path_has_nul = nul != NULL && nul < target + strcspn(target, "?");
    http_expect_within(c, l->http->settings->receive_timeout_ms);
    return NULL;
}

static struct connection *connection_open(struct http_loop *l, struct MHD_Connection *mhd)
{
    struct http *h = l->http;
    const union MHD_ConnectionInfo *from = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (from == NULL || from->client_addr == NULL)
        return NULL;
    struct connection *c = ((const union http_peer *)(const void *)from->client_addr)->with.connection;
    const uint64_t now_ns = clock_now_ns();
    c->watch = (struct watch){.notify = watch_connection,
                              .arg = c,
                              .fd = c->fd,
                              .due_ns = now_ns + h->settings->receive_timeout_ms * CLOCK_NS_PER_MS};
    if (watcher_add(h->watcher, &c->watch) != OK) {
        forget(c);
        return NULL;
    }
    LIST_REMOVE(c, of_loop);
    LIST_INSERT_HEAD(&l->all, c, of_loop);
    (void)atomic_fetch_add(&h->open, 1);
    if (c->is_tls)
        http_shake(c, mhd);
    metrics_gauge_add(METRIC_CONNECTIONS, 0, 1);
    atomic_store_explicit(&c->idle_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&c->is_open, true, memory_order_release);
    return c;
}

void http_on_connection(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http_loop *l = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = connection_open(l, mhd);
    } else if (*context != NULL) {
        struct connection *c = *context;
        if (c->lingers)
            http_linger(l, c->fd);
        http_end_shake(c);
        (void)atomic_fetch_sub(&l->http->open, 1);
        watcher_remove(l->http->watcher, &c->watch);
        forget(c);
        *context = NULL;
        metrics_gauge_add(METRIC_CONNECTIONS, 0, -1);
        http_note_freed(l->http,
                        sizeof *c + HTTP_CONNECTION_BYTES_MAX); /* the library's part, at the end of its turn */
    }
}

/* ---- clients ---------------------------------------------------------------------------------------------------- */

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

struct client_id http_find_client(const struct http *h, struct MHD_Connection *mhd, struct proxies_address *ret)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct forwarded f = {.proxies = &h->proxies, .client = {.family = AF_UNSPEC}};
    proxies_address_of(ret, info != NULL ? info->client_addr : NULL);
    if (proxies_trust(f.proxies, ret))
        (void)MHD_get_connection_values(mhd, MHD_HEADER_KIND, forwarded_step, &f);
    if (f.client.family != AF_UNSPEC)
        *ret = f.client;
    return proxies_client_id(ret);
}
