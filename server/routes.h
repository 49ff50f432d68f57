/* routes.h - the one table of endpoints: method, path, handler. Chooses who answers a request, and does what every
 * request's end asks for: metrics and the log's line. HTTP threads; the table is constant. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include <stddef.h>

#include "server/http.h"

struct service;

/* The paths, as the metrics' labels: static, in the order of exchange.endpoint. */
const char *const *routes_paths(size_t *count);

/* What http_start wants; `service` is borrowed as long as the server runs. */
struct http_app routes_app(struct service *service);

#endif
