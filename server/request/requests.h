/* requests.h - all requests of the daemon: served through an HTTP server, seen and counted. Main thread, except where
 * said. */
#ifndef SERVER_REQUEST_REQUESTS_H
#define SERVER_REQUEST_REQUESTS_H

#include <stdint.h>

#include "config/status.h"
#include "server/request/request.h"

struct http;
struct listeners;
struct mailboxes;
struct requests;
struct service;
struct settings;
struct watcher;

/* http_check, and what can be wrong with the settings of requests. */
enum status requests_check(const struct settings *s, struct error *err);
/* Serve requests by `service` (http_start, with its errors). All arguments but the listeners are borrowed. *ret is set
 * only on OK. */
enum status requests_start(struct requests **ret, const struct service *service, struct listeners *listeners,
                           struct watcher *watcher, struct mailboxes *mailboxes, struct error *err);
/* http_stop, and free. NULL is a no-op. */
void requests_stop(struct requests *all);
/* The server that they come through. */
struct http *requests_http(const struct requests *all);
/* Requests that are being received, worked on or answered. Any thread. */
uint32_t requests_count(const struct requests *all);
/* See all that are shown, from the main thread. */
void requests_see_all(struct requests *all, request_see *see, void *arg);

#endif
