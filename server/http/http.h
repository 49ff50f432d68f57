/* http.h - the HTTP server: sockets, connections and their limits, and the threads that serve them. What is done with
 * requests is server/request/'s, which the library calls; only files that include transport.h see the library. */
#ifndef SERVER_HTTP_HTTP_H
#define SERVER_HTTP_HTTP_H

#include <stdint.h>
#include <stdio.h>

#include "config/status.h"
#include "server/core/mailbox.h"

struct MHD_Connection;
struct http;
struct http_app;
struct listeners;
struct settings;
struct watcher;

/* Posted to the mailbox of a connection's thread, which then resumes the connection. */
struct http_mail {
    struct mailbox_item item;
    struct MHD_Connection *mhd;
};

/* All from the main thread. */

/* What can be wrong with the settings and the files that they name, but for addresses (listeners.h). Errors:
 * ERR_CONFIG, ERR_IO, ERR_NOMEM, naming the setting. */
enum status http_check(const struct settings *s, struct error *err);
/* Listen and serve; thread i, 0 .. http_threads - 1, has mailbox i of `mailboxes`. The listeners are taken over once
 * there is memory for it all, and are then empty; all other arguments are borrowed until http_stop. *ret is set only on
 * OK, after the addresses that are listened on have been logged. Errors: ERR_CONFIG, ERR_IO, ERR_NOMEM. */
enum status http_start(struct http **ret, const struct settings *s, struct listeners *listeners, struct watcher *w,
                       struct mailboxes *mailboxes, const struct http_app *app, struct error *err);
/* From now on connections are closed after their answer. */
void http_close_after_answers(struct http *h);
/* Refuse new connections; those to sockets that were passed wait there for the next process. */
void http_refuse_connections(struct http *h);
/* Once connections are refused: close those that have been idle for drain_idle_ms since then. To be called again until
 * there are none: a client may send its next request at the very moment in which its connection is closed, so it gets
 * the time to send one more, whose answer tells it that the connection ends. */
void http_close_idle(struct http *h);
/* Open connections; once they are refused, one more until those that had come before are accepted. Any thread. */
uint32_t http_connections(const struct http *h);
/* Join the threads, close all connections, free. All jobs that requests await must be finished. NULL is a no-op. */
void http_stop(struct http *h);

/* Lines for --version: libmicrohttpd, GnuTLS. */
void http_print_versions(FILE *to);

#endif
