/* routes.h - the endpoints, as route_table.h lists them, for the phases of requests and for descriptions of the
 * interface. Constant. */
#ifndef SERVER_API_ROUTES_H
#define SERVER_API_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

#include "config/limits.h"
#include "server/access/api_kind.h"

struct field_list;
struct routes;
struct settings;

/* The paths, each once, as labels of the metrics, in the order of api_request.endpoint; static texts. Returns how many
 * there are. */
size_t routes_paths(const char *out[METRICS_ENDPOINTS_MAX]);

/* One method of a path, for descriptions of the interface: /openapi.json, documents, tests. */
struct route_info {
    const char *method, *path; /* {} in place of each segment that is a name */
    enum api_kind api;
    bool takes_body, needs_body;
    bool needs_key;                  /* if the daemon requires keys */
    const struct field_list *query;  /* the parameters of its query; NULL: none */
    const struct field_list *fields; /* the fields of its body's JSON object; NULL: not read by a list */
    const char *query_name;          /* of the list, as openapi.json has it; NULL with `query` */
};
/* The i-th row of the table; false beyond the last. The methods of a path are neighbours. */
bool routes_at(size_t i, const struct settings *s, struct route_info *ret);
/* The list of fields of that name, of a query or of a body; NULL: no route has one. */
const struct field_list *routes_fields(const char *name);
/* Is a path of the table served by the admin listener (is_admin), or else by the public ones? What is open to everybody
 * is on both, but for the page, which asks for what is not there. */
bool routes_serves(const char *path, enum api_kind api, bool is_admin);

/* For struct service. */
extern const struct routes api_routes;

#endif
