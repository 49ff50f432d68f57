/* loop.c - the threads that serve connections, and the server's start and end. See http.h.
 *
 * Each loop polls the listening sockets, its libraries' descriptors and its mailbox: it accepts connections and hands
 * them to its library, resumes all that have mail, and then lets the library do what it can. Resuming happens on the
 * connection's own thread, so that it never races with the connection's end, and all that one step of the engine has
 * for a loop costs one wake-up.
 *
 * A listening socket is only polled, accepted from and closed, never shut down: one that was passed by the service
 * manager is its as well, and what connects to it meanwhile waits for the next process.
 *
 * http_start, http_refuse_connections, http_close_idle and http_stop run on the main thread. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/settings.h"
#include "config/version.h"
#include "server/core/clock.h"
#include "server/core/log.h"
#include "server/core/mailbox.h"
#include "server/http/listen.h"
#include "server/http/listeners.h"
#include "server/http/tls.h"
#include "server/http/transport.h"

enum {
    ACCEPTS_AT_A_TIME = 4,
    TIDY_MS = 500,         /* until it is looked again whether memory can be given back */
    ACCEPT_PAUSE_MS = 100, /* when the system has no descriptors: until the next try */
};

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

/* ---- a loop ----------------------------------------------------------------------------------------------------- */

static void take_mail(const struct http_loop *l)
{
    for (struct mailbox_item *item = mailbox_take(l->http->mailboxes, l->box), *next; item != NULL; item = next) {
        next = TAILQ_NEXT(item, link);
        MHD_resume_connection(((struct http_mail *)(void *)item)->mhd);
    }
}

static void poll_no_listeners(struct http_loop *l)
{
    l->listens = false;
    for (size_t i = 0; i < l->http->listeners.count; i++)
        (void)epoll_ctl(l->poll_fd, EPOLL_CTL_DEL, l->http->listeners.all[i].fd, NULL);
}

/* No connection can be accepted, mostly for lack of descriptors or memory: a listening socket stays readable, and
 * polling it would spin. They are polled again when the pause is over, however late that is seen. */
static void pause_accepting(struct http_loop *l, int why)
{
    const uint64_t now_ns = clock_now_ns();
    if (l->accept_failed_ns == 0 || now_ns - l->accept_failed_ns > CLOCK_NS_PER_S) /* once for a row of failures */
        log_warning("cannot accept connections: %s", strerror(why));
    l->accept_failed_ns = now_ns;
    l->accepts_again_ns = now_ns + ACCEPT_PAUSE_MS * CLOCK_NS_PER_MS;
    poll_no_listeners(l);
}

/* A pause that is over is forgotten: if there is still no room, the next connection begins another. */
static bool may_accept(struct http_loop *l)
{
    if (l->accepts_again_ns != 0 && clock_now_ns() >= l->accepts_again_ns)
        l->accepts_again_ns = 0;
    return atomic_load(&l->http->accepts) && l->refuses_ns == 0 && l->accepts_again_ns == 0;
}

/* A few at a time, so that the other loops get their share of a burst. True: there may be more. */
static bool accept_from(struct http_loop *l, size_t listener)
{
    const struct listener *from = &l->http->listeners.all[listener];
    for (int i = 0; i < ACCEPTS_AT_A_TIME; i++) {
        union http_peer peer = {.with = {.connection = NULL}};
        socklen_t size = sizeof peer.with.address;
        const int fd = accept4(from->fd, &peer.any, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                pause_accepting(l, errno);
            return false; /* else another loop was faster, or the client has left */
        }
        if (from->is_local)
            listen_bound_sending(fd);
        peer.with.connection = http_admit(l, listener, fd, &peer.any);
        if (peer.with.connection != NULL)
            (void)MHD_add_connection(l->libraries[from->is_tls ? HTTP_TLS : HTTP_PLAIN], fd, &peer.any,
                                     sizeof peer); /* closes it if it cannot */
    }
    return true;
}

/* What a loop polls; the numbers are those of its events. */
enum {
    POLL_MAILBOX,
    POLL_LIBRARIES,
    POLL_SHAKES = POLL_LIBRARIES + HTTP_LIBRARIES,
    POLL_LISTENERS,
    POLL_LINGERS = POLL_LISTENERS + LISTENERS_MAX,
    POLL_MAX = POLL_LINGERS + HTTP_LINGERS_MAX
};

static bool poll_too(const struct http_loop *l, int fd, uint32_t number, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u32 = number};
    return epoll_ctl(l->poll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

bool http_poll_lingering(struct http_loop *l, size_t at)
{
    return poll_too(l, l->lingers[at].fd, (uint32_t)(POLL_LINGERS + at), EPOLLIN);
}

/* A new connection wakes one of the loops that sleep: the one that has waited longest, as each takes its place anew
 * when it has accepted. */
static void poll_listener(struct http_loop *l, size_t listener)
{
    const int fd = l->http->listeners.all[listener].fd;
    (void)epoll_ctl(l->poll_fd, EPOLL_CTL_DEL, fd, NULL);
    if (!poll_too(l, fd, (uint32_t)(POLL_LISTENERS + listener), EPOLLIN | EPOLLEXCLUSIVE))
        pause_accepting(l, errno);
}

static void poll_listeners(struct http_loop *l)
{
    l->listens = true;
    for (size_t i = 0; i < l->http->listeners.count && l->listens; i++)
        poll_listener(l, i);
}

/* Accept no more. The last loop to do so takes what has connected before, whose requests may be on their way and would
 * be lost with the sockets, and closes these, so that clients are refused rather than left in the backlog. What has
 * connected to a passed socket waits for the next process. */
static void give_up_listening(struct http_loop *l)
{
    struct http *h = l->http;
    if (l->refuses_ns != 0)
        return;
    l->refuses_ns = clock_now_ns();
    poll_no_listeners(l);
    if (atomic_fetch_sub(&h->listening, 1) != 1)
        return;
    for (size_t i = 0; i < h->listeners.count; i++)
        while (!h->listeners.all[i].is_passed && accept_from(l, i))
            ;
    listeners_close(&h->listeners);
    l->is_last = true;
}

/* How many milliseconds to sleep unless something happens; -1: forever. */
static int idle_ms(const struct http_loop *l)
{
    MHD_UNSIGNED_LONG_LONG ms;
    int wait_ms = -1;
    for (size_t i = 0; i < HTTP_LIBRARIES; i++)
        if (l->libraries[i] != NULL && MHD_get_timeout(l->libraries[i], &ms) == MHD_YES &&
            (wait_ms < 0 || ms < (MHD_UNSIGNED_LONG_LONG)wait_ms))
            wait_ms = ms < INT_MAX ? (int)ms : INT_MAX;
    if (l->accepts_again_ns != 0 && l->refuses_ns == 0 && (wait_ms < 0 || wait_ms > ACCEPT_PAUSE_MS))
        wait_ms = ACCEPT_PAUSE_MS;
    if ((http_owes_memory(l) || l->lingering > 0) && (wait_ms < 0 || wait_ms > TIDY_MS))
        wait_ms = TIDY_MS;
    return wait_ms;
}

static void take_event(struct http_loop *l, uint32_t number)
{
    if (number == POLL_MAILBOX)
        take_mail(l);
    else if (number == POLL_SHAKES)
        http_take_shakes(l);
    else if (number >= POLL_LINGERS)
        http_read_lingering(l, number - POLL_LINGERS);
    else if (number >= POLL_LISTENERS && l->listens) {
        (void)accept_from(l, number - POLL_LISTENERS);
        if (l->listens)
            poll_listener(l, number - POLL_LISTENERS);
    } /* the libraries look for themselves */
}

static void *serve(void *arg)
{
    struct http_loop *l = arg;
    struct http *h = l->http;
    struct epoll_event events[POLL_MAX];
    while (!atomic_load(&h->ends)) {
        if (!l->listens && may_accept(l))
            poll_listeners(l);
        const int count = epoll_wait(l->poll_fd, events, POLL_MAX, idle_ms(l));
        for (int i = 0; i < count; i++)
            take_event(l, events[i].data.u32);
        if (atomic_load(&h->refuses))
            give_up_listening(l);
        for (size_t i = 0; i < HTTP_LIBRARIES; i++)
            if (l->libraries[i] != NULL)
                (void)MHD_run(l->libraries[i]);
        if (l->is_last)
            atomic_store(&h->has_all, true);
        tls_handshake_suspend(l);
        http_forget_lost(l);
        http_end_late_lingering(l);
        if (http_owes_memory(l))
            http_give_memory_back(l);
        if (l->refuses_ns != 0)
            http_cut_idle(l, clock_now_ns());
    }
    return NULL;
}

/* ---- start ------------------------------------------------------------------------------------------------------ */

/* Only a loop's own thread uses its library. Nevertheless MHD_ALLOW_SUSPEND_RESUME brings a descriptor to wake it by,
 * which each resumption writes to, on the loop's own thread. */
static struct MHD_Daemon *start_library(struct http_loop *l, bool is_tls)
{
    const struct settings *s = l->http->settings;
    const unsigned flags =
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | HTTP_ONE_THREAD;
    static char priorities[] = TLS_PRIORITIES; /* the library wants a pointer that is not const, and only reads */
    struct MHD_OptionItem encryption[] = {{MHD_OPTION_HTTPS_PRIORITIES, 0, priorities},
                                          {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, tls_callback()},
                                          {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none = {MHD_OPTION_END, 0, NULL};
    return MHD_start_daemon(
        is_tls ? flags | MHD_USE_TLS : flags, 0, NULL, NULL, l->http->app.on_request, l, MHD_OPTION_EXTERNAL_LOGGER,
        log_library, NULL, MHD_OPTION_STRICT_FOR_CLIENT, (int)HTTP_LIBRARY_IS_STRICT, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->connections_max + HTTP_CONNECTIONS_BESIDE, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)((s->idle_timeout_ms + 999) / 1000), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HTTP_CONNECTION_BYTES_MAX, MHD_OPTION_URI_LOG_CALLBACK, http_on_request_line, l,
        MHD_OPTION_NOTIFY_COMPLETED, l->http->app.on_completed, l, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, l,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY, is_tls ? encryption : &none, MHD_OPTION_END);
}

static void knock_all(struct http *h)
{
    for (uint32_t i = 0; i < h->loop_count; i++)
        mailbox_wake(h->mailboxes, h->loops[i].box);
}

static void stop_libraries(struct http_loop *l)
{
    http_shakes_end(l);
    for (size_t i = 0; i < HTTP_LIBRARIES; i++)
        if (l->libraries[i] != NULL)
            MHD_stop_daemon(l->libraries[i]);
    http_end_lingering(l);
    if (l->poll_fd >= 0)
        (void)close(l->poll_fd);
}

static bool poll_library(const struct http_loop *l, uint32_t which)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(l->libraries[which], MHD_DAEMON_INFO_EPOLL_FD);
    return info != NULL && poll_too(l, info->epoll_fd, POLL_LIBRARIES + which, EPOLLIN);
}

/* False: out of memory or descriptors; what there is goes with stop_libraries. */
static bool start_libraries(struct http_loop *l)
{
    const bool has_tls = tls_is_on(l->http->settings);
    l->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->libraries[HTTP_PLAIN] = start_library(l, false);
    if (l->poll_fd < 0 || l->libraries[HTTP_PLAIN] == NULL || !poll_library(l, HTTP_PLAIN) ||
        !poll_too(l, mailbox_fd(l->http->mailboxes, l->box), POLL_MAILBOX, EPOLLIN))
        return false;
    if (!has_tls)
        return true;
    l->libraries[HTTP_TLS] = start_library(l, true);
    return l->libraries[HTTP_TLS] != NULL && poll_library(l, HTTP_TLS) && http_shakes_begin(l) &&
           poll_too(l, l->shakes.fd, POLL_SHAKES, EPOLLIN);
}

/* Nothing is accepted before all loops exist: a request that one had suspended could not be ended if the start of
 * another failed. */
static enum status start_loops(struct http *h, uint32_t count)
{
    for (h->loop_count = 0; h->loop_count < count; h->loop_count++) {
        struct http_loop *l = &h->loops[h->loop_count];
        *l = (struct http_loop){.http = h, .box = h->loop_count, .poll_fd = -1, .shakes.fd = -1};
        if (!start_libraries(l)) {
            stop_libraries(l);
            return ERR_IO;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct http_loop *l = &h->loops[i];
        if (pthread_create(&l->thread, NULL, serve, l) != 0)
            return ERR_IO;
        l->is_running = true;
        (void)pthread_setname_np(l->thread, "http");
    }
    atomic_store(&h->accepts, true);
    knock_all(h);
    return OK;
}

enum status http_check(const struct settings *s, struct error *err)
{
    struct proxies proxies;
    struct tls_identity *identity = NULL;
    enum status st = proxies_parse(&proxies, s->trusted_proxies, err);
    if (st == OK)
        st = tls_read(&identity, s, err);
    tls_free(identity);
    return st;
}

enum status http_start(struct http **ret, const struct settings *s, struct listeners *listeners, struct watcher *w,
                       struct mailboxes *mailboxes, const struct http_app *app, struct error *err)
{
    struct http *h = calloc(1, sizeof *h + s->http_threads * sizeof h->loops[0]);
    if (h == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the HTTP server");
    h->listeners = *listeners;
    listeners->count = 0;
    h->settings = s;
    h->watcher = w;
    h->mailboxes = mailboxes;
    h->app = *app;
    http_rooms_begin(h);
    struct tls_identity *identity = NULL;
    enum status st = proxies_parse(&h->proxies, s->trusted_proxies, err);
    if (st == OK)
        st = tls_read(&identity, s, err);
    tls_put(identity);
    if (st == OK)
        st = listeners_begin(&h->listeners, err);
    if (st != OK) {
        http_stop(h);
        return st;
    }
    atomic_store(&h->listening, s->http_threads);
    st = start_loops(h, s->http_threads);
    if (st != OK) {
        (void)error_set(err, st, "out of memory or file descriptors for the HTTP threads");
        http_stop(h);
        return st;
    }
    listeners_log(&h->listeners);
    *ret = h;
    return OK;
}

/* ---- end -------------------------------------------------------------------------------------------------------- */

void http_close_after_answers(struct http *h)
{
    atomic_store(&h->closes_after_answers, true);
}

void http_refuse_connections(struct http *h)
{
    atomic_store(&h->refuses, true);
    knock_all(h);
}

void http_close_idle(struct http *h)
{
    knock_all(h);
}

uint32_t http_connections(const struct http *h)
{
    const bool more_come = atomic_load(&h->refuses) && !atomic_load(&h->has_all);
    return atomic_load(&h->open) + (more_come ? 1 : 0);
}

static void join_all(struct http *h)
{
    for (uint32_t i = 0; i < h->loop_count; i++)
        if (h->loops[i].is_running)
            (void)pthread_join(h->loops[i].thread, NULL);
}

void http_stop(struct http *h)
{
    if (h == NULL)
        return;
    atomic_store(&h->ends, true);
    knock_all(h);
    join_all(h);
    listeners_close(&h->listeners);
    for (uint32_t i = 0; i < h->loop_count; i++) {
        struct http_loop *l = &h->loops[i];
        take_mail(l); /* the library must not be stopped with a connection suspended */
        stop_libraries(l);
    }
    tls_stop();
    for (size_t i = 0; i < LISTENER_KIND_COUNT; i++)
        quota_clear(&h->quotas[i]);
    free(h);
}

void http_print_versions(FILE *to)
{
    version_print_library("libmicrohttpd", MHD_get_version(), to);
    version_print_library("GnuTLS", tls_version(), to);
}
