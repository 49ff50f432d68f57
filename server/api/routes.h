/* routes.h - the endpoints, as route_table.h lists them, for the phases of requests and for descriptions of the
 * interface. Constant. */
#ifndef SERVER_API_ROUTES_H
#define SERVER_API_ROUTES_H

#include <stddef.h>

#include "config/limits.h"

struct field_list;
struct routes;

/* The paths, each once, as labels of the metrics, in the order of struct request.endpoint; static texts. Returns how
 * many there are. */
size_t routes_paths(const char *out[METRICS_ENDPOINTS_MAX]);

/* The list of fields of that name, of a query or of a body; NULL: no route has one. */
const struct field_list *routes_fields(const char *name);

/* All rows, for struct service, /openapi.json and tests. */
extern const struct routes api_routes;

#endif
