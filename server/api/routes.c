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

bool routes_serves(const char *path, enum api_kind api, bool is_admin)
{
    return route_is_served(&(struct route){.path = path, .api = api}, is_admin);
}

bool routes_at(size_t i, const struct settings *s, struct route_info *ret)
{
    if (i >= ROUTE_COUNT)
        return false;
    const struct route *r = &rows[i];
    *ret = (struct route_info){
        .method = r->method,
        .path = r->path,
        .api = r->api,
        .takes_body = r->body != NO_BODY,
        .needs_body = r->body == BODY,
        .needs_key = route_needs_key(r, s),
        .query = r->query->count > 0 ? r->query : NULL,
        .fields = r->fields->count > 0 ? r->fields : NULL,
        .query_name = r->query->count > 0 ? r->query_name : NULL,
    };
    return true;
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
