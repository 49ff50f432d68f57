/* linger.c - connections that are closed while their clients still send: those whose bodies nobody wants, which were
 * answered before they had arrived. Many clients send all of a body before they read; closing a socket with bytes
 * unread is a reset, which would take the answer from them. So the sending side is closed and what comes is read and
 * dropped until the client has closed too, within receive_timeout_ms and HTTP_LINGER_BYTES_MAX (RFC 9112, 9.6). Where
 * all places are taken the oldest is closed for the new one: it had the most time, and clients that stay keep nobody
 * out. Runs on the connection's loop; no locks. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/settings.h"
#include "server/core/clock.h"
#include "server/http/transport.h"

enum { READ_BYTES = 32768, READS_AT_A_TIME = 16 };

static void end(struct http_loop *l, size_t at)
{
    (void)close(l->lingers[at].fd);
    l->lingers[at].until_ns = 0;
    l->lingering--;
}

/* The socket outlasts the library's descriptor. */
void http_linger(struct http_loop *l, int fd)
{
    size_t at = 0; /* a free one, or the oldest */
    for (size_t i = 1; i < HTTP_LINGERS_MAX; i++)
        if (l->lingers[i].until_ns < l->lingers[at].until_ns)
            at = i;
    if (l->lingers[at].until_ns != 0)
        end(l, at);
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return;
    l->lingers[at].fd = own;
    if (shutdown(own, SHUT_WR) != 0 || !http_poll_lingering(l, at)) {
        (void)close(own);
        return;
    }
    l->lingers[at].until_ns = clock_now_ns() + l->http->settings->receive_timeout_ms * CLOCK_NS_PER_MS;
    l->lingers[at].bytes = HTTP_LINGER_BYTES_MAX;
    l->lingering++;
}

void http_read_lingering(struct http_loop *l, size_t at)
{
    char bytes[READ_BYTES];
    for (int i = 0; i < READS_AT_A_TIME; i++) {
        const ssize_t got = recv(l->lingers[at].fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0 || (uint64_t)got > l->lingers[at].bytes) {
            end(l, at);
            return;
        }
        l->lingers[at].bytes -= (uint64_t)got;
    }
}

void http_end_late_lingering(struct http_loop *l)
{
    if (l->lingering == 0)
        return;
    const uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < HTTP_LINGERS_MAX; i++)
        if (l->lingers[i].until_ns != 0 && now_ns >= l->lingers[i].until_ns)
            end(l, i);
}

void http_end_lingering(struct http_loop *l)
{
    for (size_t i = 0; i < HTTP_LINGERS_MAX; i++)
        if (l->lingers[i].until_ns != 0)
            end(l, i);
}
