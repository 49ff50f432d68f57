/* connection.c - connections: which are admitted, and what keeps one from being held open unused. See http.h.
 * Runs on the connection's loop, except watch_connection (the watcher's thread). The lock of the addresses is a leaf.
 *
 * Time limits: a connection that idles is closed by the library; one that sends too slowly, which the library's
 * timeout never cuts because each byte restarts it, is shut down by its watch. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "server/core/clock.h"
#include "server/core/metrics.h"
#include "server/http/http_inner.h"

#define LEFT_AGAIN_NS UINT64_C(100000000) /* until a connection whose client has left is shut down again */

/* ---- times ------------------------------------------------------------------------------------------------------- */

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
    for (const struct connection *c = l->all; c != NULL; c = c->next_of_loop) {
        const uint64_t since_ns = c->idle_ns > l->refuses_ns ? c->idle_ns : l->refuses_ns;
        char byte;
        if (c->idle_ns != 0 && now_ns >= since_ns + idle_ns && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
            (void)shutdown(c->fd, SHUT_RDWR);
    }
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static void read_address(struct connection *c, const struct sockaddr *from)
{
    if (from != NULL && from->sa_family == AF_INET)
        memcpy(c->address, &((const struct sockaddr_in *)(const void *)from)->sin_addr, sizeof(struct in_addr));
    else if (from != NULL && from->sa_family == AF_INET6)
        memcpy(c->address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof(struct in6_addr));
}

static struct connection **chain_of(const struct connection *c)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof c->address; i++)
        hash = (hash ^ c->address[i]) * 16777619u;
    return &c->http->addresses.chains[hash % HTTP_ADDRESS_CHAINS];
}

/* Add it to the connections of its address. False: the address has reached its limit, and it was not added. */
static bool enter_address(struct connection *c)
{
    struct http *h = c->http;
    struct connection **chain = chain_of(c);
    uint32_t same = 0;
    (void)pthread_mutex_lock(&h->addresses.lock);
    for (const struct connection *other = *chain; other != NULL; other = other->next)
        same += memcmp(other->address, c->address, sizeof c->address) == 0;
    const bool fits = same < h->settings->connections_per_address_max;
    if (fits) {
        c->next = *chain;
        if (c->next != NULL)
            c->next->previous = c;
        *chain = c;
    }
    c->is_entered = fits;
    (void)pthread_mutex_unlock(&h->addresses.lock);
    return fits;
}

static void leave_address(struct connection *c)
{
    if (!c->is_entered)
        return;
    (void)pthread_mutex_lock(&c->http->addresses.lock);
    if (c->previous != NULL)
        c->previous->next = c->next;
    else
        *chain_of(c) = c->next;
    if (c->next != NULL)
        c->next->previous = c->previous;
    (void)pthread_mutex_unlock(&c->http->addresses.lock);
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

void *http_on_request_line(void *cls, const char *target, struct MHD_Connection *mhd)
{
    const struct http_loop *l = cls;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *c = info != NULL ? info->socket_context : NULL;
    if (c == NULL)
        return NULL;
    c->request_ns = clock_now_ns();
    c->target = target;
    c->target_bytes = strlen(target);
    const char *nul = strstr(target, "%00");
    c->path_has_nul = nul != NULL && nul < target + strcspn(target, "?");
    http_expect_within(c, l->http->settings->receive_timeout_ms);
    return NULL;
}

/* A connection beyond its address's limit is refused before it counts towards connections_max, so that no client can
 * take them all. Connections to the admin listener and of monitors are few, and are admitted even when all others are
 * taken. */
static void let_in(struct connection *c, const struct sockaddr *from)
{
    struct http *h = c->http;
    metrics_gauge_add(METRIC_CONNECTIONS, 0, 1);
    if (h->settings->connections_per_address_max > 0 && !c->is_local) {
        read_address(c, from);
        if (!enter_address(c)) {
            (void)shutdown(c->fd, SHUT_RDWR); /* the library sees its end before it reads a request */
            return;
        }
    }
    c->is_counted = c->kind == LISTENER_PUBLIC;
    c->is_surplus = c->is_counted && atomic_fetch_add(&h->connections, 1) >= h->settings->connections_max;
}

static void enter_loop(struct connection *c)
{
    struct http_loop *l = c->loop;
    c->next_of_loop = l->all;
    if (l->all != NULL)
        l->all->previous_of_loop = c;
    l->all = c;
    (void)atomic_fetch_add(&l->http->open, 1);
}

static void leave_loop(struct connection *c)
{
    if (c->previous_of_loop != NULL)
        c->previous_of_loop->next_of_loop = c->next_of_loop;
    else
        c->loop->all = c->next_of_loop;
    if (c->next_of_loop != NULL)
        c->next_of_loop->previous_of_loop = c->previous_of_loop;
    (void)atomic_fetch_sub(&c->http->open, 1);
}

static struct connection *connection_open(struct http_loop *l, struct MHD_Connection *mhd)
{
    struct http *h = l->http;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *from = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct connection *c = info != NULL && from != NULL && from->client_addr != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL)
        return NULL;
    const union http_peer *peer = (const union http_peer *)(const void *)from->client_addr;
    c->http = h;
    c->loop = l;
    c->fd = info->connect_fd;
    c->idle_ns = clock_now_ns();
    c->kind = h->listeners.all[peer->with.listener].kind;
    c->is_local = h->listeners.all[peer->with.listener].is_local;
    c->watch = (struct watch){.notify = watch_connection,
                              .arg = c,
                              .fd = c->fd,
                              .due_ns = c->idle_ns + h->settings->receive_timeout_ms * CLOCK_NS_PER_MS};
    if (watcher_add(h->watcher, &c->watch) != OK) {
        free(c);
        return NULL;
    }
    enter_loop(c);
    let_in(c, from->client_addr);
    return c;
}

void http_on_connection(void *cls, struct MHD_Connection *mhd, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http_loop *l = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = connection_open(l, mhd);
    } else if (*context != NULL) {
        struct connection *c = *context;
        leave_loop(c);
        leave_address(c);
        watcher_remove(l->http->watcher, &c->watch);
        if (c->is_counted)
            (void)atomic_fetch_sub(&l->http->connections, 1);
        free(c);
        *context = NULL;
        metrics_gauge_add(METRIC_CONNECTIONS, 0, -1);
    }
}
