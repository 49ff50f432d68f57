/* routes.c - see routes.h. */
#include "server/api/routes.h"

#include <string.h>

#include "server/api/route_table.h"

static const struct route rows[] = {
#define X(method, path, api, body, types, most, use, handler, query, fields) \
    {method, path, api, body, types, most, use, handler, &(query), &(fields), #query, #fields},
    ROUTES(X)
#undef X
};
enum { ROUTE_COUNT = sizeof rows / sizeof rows[0] };
_Static_assert(ROUTE_COUNT <= METRICS_ENDPOINTS_MAX, "every path is a label of the metrics");

const struct routes api_routes = {rows, ROUTE_COUNT};
const struct field_list no_fields = {NULL, 0};

size_t routes_paths(const char *out[METRICS_ENDPOINTS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        if (route_begins_path(&api_routes, &rows[i]))
            out[count++] = rows[i].path;
    return count;
}

const struct field_list *routes_fields(const char *name)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (strcmp(rows[i].query_name, name) == 0)
            return rows[i].query;
        if (strcmp(rows[i].fields_name, name) == 0)
            return rows[i].fields;
    }
    return NULL;
}
