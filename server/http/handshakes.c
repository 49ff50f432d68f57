/* handshakes.c - TLS handshakes that wait for the client. Runs on the connection's loop; no locks.
 *
 * libmicrohttpd asks for every event once, and forgets that there is nothing to read only where it reads itself. During
 * a handshake GnuTLS reads; so the library would try again at once and for ever, a whole processor for a client that
 * says three bytes and no more. Therefore a connection whose handshake has done what it can is suspended until its
 * socket has something more, an end included: its watch, which keeps the time, and whoever else cuts it, shut the
 * socket down. Where it cannot be waited for, for want of memory, it is left as it is.
 *
 * Nothing that was read is left behind: GnuTLS takes from a socket no more than the message that it wants. */
#include <sys/epoll.h>
#include <unistd.h>

#include "server/http/tls.h"
#include "server/http/transport.h"

enum { EVENTS_AT_A_TIME = 64 };

bool http_shakes_begin(struct http_loop *l)
{
    l->shakes.fd = epoll_create1(EPOLL_CLOEXEC);
    return l->shakes.fd >= 0;
}

static void *session_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info != NULL ? info->tls_session : NULL;
}

void http_shake(struct connection *c, struct MHD_Connection *mhd)
{
    void *session = session_of(mhd);
    if (session == NULL)
        return;
    tls_await_client(session);
    c->shake.mhd = mhd;
    LIST_INSERT_HEAD(&c->loop->shakes.active, c, shake.active);
}

void http_end_shake(struct connection *c)
{
    if (c->shake.mhd == NULL)
        return;
    if (!c->shake.waits)
        LIST_REMOVE(c, shake.active);
    if (c->shake.is_polled)
        (void)epoll_ctl(c->loop->shakes.fd, EPOLL_CTL_DEL, c->fd, NULL);
    c->shake.mhd = NULL;
}

static void wait_for_client(struct http_loop *l, struct connection *c)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = c};
    if (epoll_ctl(l->shakes.fd, c->shake.is_polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event) != 0)
        return;
    c->shake.is_polled = c->shake.waits = true;
    MHD_suspend_connection(c->shake.mhd);
}

void tls_handshake_suspend(struct http_loop *l)
{
    for (struct connection *c = LIST_FIRST(&l->shakes.active), *next; c != NULL; c = next) {
        next = LIST_NEXT(c, shake.active);
        if (tls_is_shaken(session_of(c->shake.mhd))) {
            http_end_shake(c);
        } else {
            wait_for_client(l, c);
            if (c->shake.waits)
                LIST_REMOVE(c, shake.active);
        }
    }
}

static void go_on(struct http_loop *l, struct connection *c)
{
    c->shake.waits = false;
    LIST_INSERT_HEAD(&l->shakes.active, c, shake.active);
    MHD_resume_connection(c->shake.mhd);
}

void http_take_shakes(struct http_loop *l)
{
    struct epoll_event events[EVENTS_AT_A_TIME];
    const int count = epoll_wait(l->shakes.fd, events, EVENTS_AT_A_TIME, 0);
    for (int i = 0; i < count; i++)
        go_on(l, events[i].data.ptr);
}

void http_shakes_end(struct http_loop *l)
{
    struct connection *c;
    LIST_FOREACH(c, &l->all, of_loop)
    if (c->shake.waits)
        go_on(l, c);
    if (l->shakes.fd >= 0)
        (void)close(l->shakes.fd);
    l->shakes.fd = -1;
}
