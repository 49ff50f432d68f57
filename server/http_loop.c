/* http_loop.c - the threads that serve connections, and the server's start and end. See http.h.
 *
 * Each loop polls its library's descriptors and its box of news: it resumes all that have some, and then lets the
 * library do what it can. Resuming happens on the connection's own thread, so that it never meets its end, and all that
 * one step of the engine has for a loop costs one wake-up.
 *
 * http_start, http_refuse_connections and http_stop are the main thread's. */
#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/http_inner.h"
#include "server/listen.h"
#include "server/log.h"
#include "server/news.h"

#define CONNECTION_RESERVE 64 /* beyond connections_max: those that are told so */

static void log_library(void *cls, const char *format, va_list args)
{
    char message[256];
    (void)cls;
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    (void)vsnprintf(message, sizeof message, format, args);
    message[strcspn(message, "\r\n")] = '\0';
    log_debug("http: %s", message);
}

/* ---- a loop ------------------------------------------------------------------------------------------------------ */

static struct exchange *exchange_of(struct news_item *item)
{
    return (struct exchange *)(void *)((char *)item - offsetof(struct exchange, news));
}

static void take_news(const struct http_loop *l)
{
    for (struct news_item *item = news_take(l->http->news, l->box), *next; item != NULL; item = next) {
        next = item->next;
        MHD_resume_connection(exchange_of(item)->mhd);
    }
}

/* Accept no more. The last loop to do so closes the socket, so that clients are refused rather than left in the
 * backlog. */
static void give_up_listening(struct http_loop *l)
{
    struct http *h = l->http;
    if (l->refuses)
        return;
    l->refuses = true;
    (void)MHD_quiesce_daemon(l->library);
    if (atomic_fetch_sub(&h->listening, 1) == 1)
        (void)close(h->listen_fd);
}

/* How long nothing is to be done unless something happens; -1: for ever. */
static int idle_ms(const struct http_loop *l)
{
    MHD_UNSIGNED_LONG_LONG ms;
    if (MHD_get_timeout(l->library, &ms) != MHD_YES)
        return -1;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static void *serve(void *arg)
{
    struct http_loop *l = arg;
    struct http *h = l->http;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(l->library, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd fds[2] = {{.fd = info->epoll_fd, .events = POLLIN},
                            {.fd = news_fd(h->news, l->box), .events = POLLIN}};
    while (!atomic_load(&h->ends)) {
        (void)poll(fds, 2, idle_ms(l));
        if (fds[1].revents != 0)
            take_news(l);
        if (atomic_load(&h->refuses))
            give_up_listening(l);
        (void)MHD_run(l->library);
    }
    return NULL;
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

/* Nobody but a loop's thread uses its library. That one may suspend brings a descriptor to wake it by all the same,
 * which each resumption writes to, on the loop's own thread. */
static struct MHD_Daemon *start_library(struct http_loop *l)
{
    const struct settings *s = l->http->settings;
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                            http_on_request, l, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET,
                            l->http->listen_fd, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)s->connections_max + CONNECTION_RESERVE, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)((s->idle_timeout_ms + 999) / 1000), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HTTP_CONNECTION_BYTES_MAX, MHD_OPTION_URI_LOG_CALLBACK, http_on_request_line, l,
                            MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, l, MHD_OPTION_NOTIFY_CONNECTION,
                            http_on_connection, l, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
}

static enum status start_loop(struct http *h, struct http_loop *l, uint32_t box)
{
    l->http = h;
    l->box = box;
    l->library = start_library(l);
    if (l->library == NULL)
        return ERR_IO;
    if (pthread_create(&l->thread, NULL, serve, l) != 0) {
        (void)MHD_quiesce_daemon(l->library);
        MHD_stop_daemon(l->library);
        return ERR_IO;
    }
    (void)pthread_setname_np(l->thread, "http");
    return OK;
}

enum status http_start(struct http **ret, uint16_t *port, const struct settings *s, struct watcher *w,
                       struct news *news, const struct http_app *app, struct error *err)
{
    struct http *h = calloc(1, sizeof *h + s->http_threads * sizeof h->loops[0]);
    if (h == NULL)
        return error_set(err, ERR_NOMEM, "no memory for the HTTP server");
    h->settings = s;
    h->watcher = w;
    h->news = news;
    h->app = *app;
    (void)pthread_mutex_init(&h->addresses.lock, NULL);
    enum status st = listen_open(&h->listen_fd, port, s->listen_address, (uint16_t)s->listen_port, err);
    if (st != OK) {
        http_stop(h);
        return st;
    }
    atomic_store(&h->listening, s->http_threads);
    for (; h->loop_count < s->http_threads && st == OK; h->loop_count += st == OK)
        st = start_loop(h, &h->loops[h->loop_count], h->loop_count);
    if (st != OK) {
        (void)error_set(err, st, "the HTTP threads cannot be started");
        atomic_store(&h->listening, 1 + h->loop_count); /* no loop is the last: the socket is closed here */
        const int fd = h->listen_fd;
        http_stop(h);
        (void)close(fd);
        return st;
    }
    *ret = h;
    return OK;
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static void knock_all(struct http *h)
{
    for (uint32_t i = 0; i < h->loop_count; i++)
        news_knock(h->news, h->loops[i].box);
}

void http_close_after_answers(struct http *h)
{
    atomic_store(&h->closes_after_answers, true);
}

void http_refuse_connections(struct http *h)
{
    atomic_store(&h->refuses, true);
    knock_all(h);
}

uint32_t http_exchanges(const struct http *h)
{
    return atomic_load(&h->exchanges);
}

void http_stop(struct http *h)
{
    if (h == NULL)
        return;
    atomic_store(&h->ends, true);
    knock_all(h);
    for (uint32_t i = 0; i < h->loop_count; i++) {
        struct http_loop *l = &h->loops[i];
        (void)pthread_join(l->thread, NULL);
        give_up_listening(l);
        take_news(l); /* the library must not be stopped with a connection suspended */
        MHD_stop_daemon(l->library);
    }
    (void)pthread_mutex_destroy(&h->addresses.lock);
    free(h);
}
