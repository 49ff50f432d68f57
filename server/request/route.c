/* route.c - see route.h. */
#include "server/request/route.h"

#include <string.h>

#include "config/settings.h"

bool route_needs_key(const struct route *r, const struct settings *s)
{
    return r->api != API_OPEN || (strcmp(r->path, "/metrics") == 0 && !s->metrics_open);
}

static bool is_of_page(const char *path)
{
    return strcmp(path, "/") == 0 || strncmp(path, "/page/", strlen("/page/")) == 0;
}

bool route_is_served(const struct route *r, bool is_admin)
{
    return r->api == API_OPEN ? !is_admin || !is_of_page(r->path) : (r->api == API_ADMIN) == is_admin;
}

bool route_begins_path(const struct routes *all, const struct route *r)
{
    return r == all->list || strcmp(r->path, r[-1].path) != 0;
}

static const char *const probed[] = {"/metrics", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"};
enum {
    MONITORED = 3,
    PROBED = sizeof probed / sizeof probed[0]
}; /* of these, the first are on the monitors' listener */

static bool is_among(const char *path, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(path, probed[i]) == 0)
            return true;
    return false;
}

bool route_is_monitored(const struct route *r)
{
    return is_among(r->path, MONITORED);
}

bool route_is_probed(const struct route *r)
{
    return is_among(r->path, PROBED);
}
