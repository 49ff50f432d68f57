/* routes.h - the one table of endpoints: method, path, handler. Chooses who answers a request, and does what every
 * request's end asks for: metrics and the log's line. HTTP threads; the table is constant. */
#ifndef SERVER_API_ROUTES_H
#define SERVER_API_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

#include "config/settings.h"
#include "server/access/api_kind.h"
#include "server/http/http.h"

struct field_list;
struct service;

/* The paths, as the metrics' labels: static, in the order of api_request.endpoint. */
const char *const *routes_paths(size_t *count);

/* One method of a path, for /openapi.json. */
struct route_info {
    const char *method, *path;
    enum api_kind api;
    bool takes_body, needs_body;
    bool needs_key;                 /* where clients need keys */
    const struct field_list *query; /* the parameters of its query; NULL: none */
};
/* The i-th; false beyond the last. */
bool routes_at(size_t i, const struct settings *s, struct route_info *ret);
/* Does the admin listener serve what is of `api`, or do the others? What is for everybody is on both. */
bool routes_serves(enum api_kind api, bool is_admin);

/* What http_start wants; `service` is borrowed as long as the server runs. */
struct http_app routes_app(struct service *service);

#endif
