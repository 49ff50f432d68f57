/* transport.h - the library, and what its callbacks work with: the server, its threads, its connections. For the files
 * of http.h, and for those of server/request/ that speak to the library. */
#ifndef SERVER_HTTP_TRANSPORT_H
#define SERVER_HTTP_TRANSPORT_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "config/limits.h"
#include "server/core/watcher.h"
#include "server/http/http.h"
#include "server/http/listeners.h"
#include "server/http/proxies.h"
#include "server/http/quota.h"

struct settings;

/* From 1.0 on the library itself refuses a NUL, a bare line feed and blanks in odd places, once and in its own words,
 * and cuts blanks off values. What 0.9.75 refuses by itself it answers with the header sent twice, so that it is asked
 * to let pass what framing.h refuses. */
enum { HTTP_LIBRARY_IS_STRICT = MHD_VERSION >= 0x01000000 };

/* Then MHD_add_connection announces the connection before it returns; by default 1.0 does so in a later MHD_run, by
 * when http_forget_lost may have freed it. 0.9.75 knows of no such flag, and always does. */
#if MHD_VERSION >= 0x01000000
#define HTTP_ONE_THREAD MHD_USE_NO_THREAD_SAFETY
#else
#define HTTP_ONE_THREAD 0
#endif

/* An instance of the library serves connections that are all encrypted or all plain. */
enum { HTTP_PLAIN, HTTP_TLS, HTTP_LIBRARIES };

/* A thread that serves connections, with its own instances of the library: all that its connections do happens on this
 * thread. */
struct http_loop {
    struct http *http;
    struct MHD_Daemon *libraries[HTTP_LIBRARIES]; /* NULL: there are no such connections */
    uint32_t box;                                 /* among http.mailboxes */
    int poll_fd;                                  /* an epoll of all that wakes it */
    pthread_t thread;
    bool is_running;                /* it has a thread */
    bool listens;                   /* the listening sockets are polled */
    LIST_HEAD(, connection) all;    /* its connections */
    LIST_HEAD(, connection) coming; /* accepted, and not yet announced by the library */
    uint64_t refuses_ns;            /* when it has given up the listening sockets; 0: not yet */
    bool is_last;                   /* of all to do so */
    uint64_t accepts_again_ns;      /* the system had no descriptor left: not before this time; 0: at once */
    uint64_t accept_failed_ns;      /* when that was last so; 0: never */
    struct {
        LIST_HEAD(, connection) active; /* in handshakes that may go on */
        int fd;                         /* an epoll of the others, which wait for their clients; -1: there is no TLS */
    } shakes;
    struct {
        uint64_t until_ns; /* 0: a free place */
        uint64_t bytes;    /* that may still come */
        int fd;
    } lingers[HTTP_LINGERS_MAX];
    size_t lingering; /* of them */
};

/* A client's address, as the library keeps it for each connection; and behind it, where no address reaches, the
 * connection itself, because the library carries nothing else from the accept to http_on_connection. */
union http_peer {
    struct sockaddr any;
    struct sockaddr_storage storage;
    struct {
        char address[sizeof(struct sockaddr_storage) - sizeof(struct connection *)];
        struct connection *connection;
    } with;
};
_Static_assert(sizeof(union http_peer) == sizeof(struct sockaddr_storage), "no more than the library has room for");
_Static_assert(sizeof(struct sockaddr_un) <= sizeof(struct sockaddr_storage) - sizeof(void *), "room for both");

/* What is done with requests: the library's callbacks, whose cls is the loop. */
struct http_app {
    MHD_AccessHandlerCallback on_request;
    MHD_RequestCompletedCallback on_completed;
    void *arg;
};

struct http {
    const struct settings *settings;
    struct watcher *watcher;
    struct mailboxes *mailboxes;
    struct http_app app;
    struct proxies proxies;     /* whom to believe about a client's address */
    struct listeners listeners; /* every loop accepts from them; closed by the last that `refuses` */
    atomic_bool closes_after_answers;
    atomic_bool accepts, refuses, ends;       /* what the loops are told, and are then woken for */
    atomic_uint listening;                    /* loops that may still accept */
    atomic_bool has_all;                      /* none does, and what the last has accepted counts as open */
    atomic_uint open;                         /* connections */
    struct quota quotas[LISTENER_KIND_COUNT]; /* for connections, which a unit is */
    _Atomic uint64_t refusal_logged_ns;       /* when a connection was last logged as refused */
    _Atomic uint64_t freed_bytes;             /* of bodies, answers and connections, since memory was last given back */
    uint64_t trimmed_ns;                      /* when that was; this and the next two are the first loop's */
    uint64_t seen_freed_bytes, seen_ns;
    uint32_t loop_count;
    struct http_loop loops[]; /* [loop_count], settings.http_threads once started */
};

/* A client's connection: from the accept to the close, many requests. */
struct connection {
    struct http *http;
    struct http_loop *loop;
    LIST_ENTRY(connection) of_loop; /* among all, or those that are coming */
    int fd;
    struct watch watch;   /* the deadline of what is being received */
    atomic_bool has_left; /* the client will send nothing more */
    atomic_int cut;       /* enum status: why it was shut down to make room for others; OK: it was not */
    const char *target;   /* of the latest request line, in the library's memory */
    size_t target_bytes;
    struct quota_share share;    /* of the quota of its kind */
    _Atomic uint64_t request_ns; /* when the latest request line was read */
    _Atomic uint64_t idle_ns;    /* since when no request is under way; 0: one is, or it is yet to open */
    atomic_bool is_open;         /* announced by the library: may be shut down */
    enum listener_kind kind;     /* of the listener that it came through */
    bool is_local;               /* through a Unix socket: without an address */
    bool is_tls;
    bool target_has_space, path_has_nul; /* the path would end at the NUL, once decoded */
    bool lingers; /* it closes before its request was read whole, with an answer that the client is yet to read */
    struct {
        struct MHD_Connection *mhd; /* in its TLS handshake; NULL: there is none, or it is over */
        LIST_ENTRY(connection) active;
        bool waits;     /* suspended until its client says more */
        bool is_polled; /* by shakes.fd of its loop */
    } shake;
};

/* ---- connection.c ----------------------------------------------------------------------------------------------- */

void http_rooms_begin(struct http *h);
/* Admit a connection that was accepted on a listener, or tell the client that there is no room and close it: NULL. */
struct connection *http_admit(struct http_loop *l, size_t listener, int fd, const struct sockaddr *from);
/* The client of a request: its peer's address, or what trusted proxies say. */
struct client_id http_find_client(const struct http *h, struct MHD_Connection *mhd, struct proxies_address *ret);
/* Forget those admitted that the library has closed without announcing them. */
void http_forget_lost(struct http_loop *l);
/* Shut a connection down, so that the library closes it, for the reason `st`. Any thread, while it is open. */
void http_cut(struct connection *c, enum status st);
/* Something must arrive within wait_ms; if the client has left, the library is soon made to see the end. */
void http_expect_within(struct connection *c, uint64_t wait_ms);
/* Of a loop that accepts no more: shut down the connections that have idled for drain_idle_ms since. */
void http_cut_idle(const struct http_loop *l, uint64_t now_ns);
/* The library's callbacks; cls is the loop. */
void *http_on_request_line(void *cls, const char *target, struct MHD_Connection *mhd);
void http_on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                        enum MHD_ConnectionNotificationCode code);

/* ---- handshakes.c ----------------------------------------------------------------------------------------------- */

/* Of a loop with TLS. False: the system has no descriptor. */
bool http_shakes_begin(struct http_loop *l);
/* After its thread has ended, before its library is stopped: nothing is suspended any more. */
void http_shakes_end(struct http_loop *l);
/* The connection has opened, and begins with a handshake. */
void http_shake(struct connection *c, struct MHD_Connection *mhd);
/* It closes; a no-op unless it is in its handshake. */
void http_end_shake(struct connection *c);
/* After the library had its turn: those in a handshake wait for their clients. */
void tls_handshake_suspend(struct http_loop *l);
/* shakes.fd is readable: resume those whose clients have said more, or left. */
void http_take_shakes(struct http_loop *l);

/* ---- loop.c ----------------------------------------------------------------------------------------------------- */

/* Poll the descriptor of a place of l->lingers. */
bool http_poll_lingering(struct http_loop *l, size_t at);

/* ---- linger.c --------------------------------------------------------------------------------------------------- */

/* Its connection is about to be closed by the library: read on. */
void http_linger(struct http_loop *l, int fd);
void http_read_lingering(struct http_loop *l, size_t at); /* what has come there */
void http_end_late_lingering(struct http_loop *l);
void http_end_lingering(struct http_loop *l); /* all of it */

/* ---- trim.c ----------------------------------------------------------------------------------------------------- */

/* That many bytes of a body, an answer or a connection are freed. */
void http_note_freed(struct http *h, uint64_t bytes);
/* Is it this loop's to call http_give_memory_back soon? */
bool http_owes_memory(const struct http_loop *l);
/* Unless it is too soon, or much is still in use. */
void http_give_memory_back(struct http_loop *l);

#endif
