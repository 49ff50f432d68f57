/* route.h - one method of a path: who may call it, what it takes, and who handles it. The table is api/route_table.h's;
 * this is what the phases of a request (phases.h) and descriptions of the interface read of it. Constant. */
#ifndef SERVER_REQUEST_ROUTE_H
#define SERVER_REQUEST_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/status.h"
#include "server/access/api_kind.h"

struct field_list;
struct request;
struct settings;

enum route_body { NO_BODY, BODY, MAYBE_BODY };
enum route_use { TELLS, COMPUTES }; /* what computes makes jobs for the engine, for which there must be room */

struct route {
    const char *method, *path; /* {} in place of each segment that is a name */
    enum api_kind api;
    enum route_body body;
    unsigned types; /* that the body may be declared as (request_head.h) */
    size_t most;    /* bytes that the body may have */
    enum route_use use;
    enum status (*step)(struct request *x, struct error *err); /* a request_step (request.h) */
    const struct field_list *query;                            /* the parameters of its query; empty: none */
    const struct field_list *fields; /* of its body's JSON object; empty: there is none, or it is not read by a list */
    const char *query_name, *fields_name; /* of the lists, as openapi.json has them */
};

/* All of them; the methods of a path are neighbours. */
struct routes {
    const struct route *list;
    size_t count;
};

/* Does it need a key, if the daemon requires keys? */
bool route_needs_key(const struct route *r, const struct settings *s);
/* Is a path of the table served by the admin listener (is_admin), or else by the public ones? What is open to everybody
 * is on both, but for the page, which asks for what is not there. */
bool route_is_served(const struct route *r, bool is_admin);
/* Is it on the listener for monitors? */
bool route_is_monitored(const struct route *r);
/* Is it what balancers and monitors ask for all the time? */
bool route_is_probed(const struct route *r);
/* Is it the first of its path? */
bool route_begins_path(const struct routes *all, const struct route *r);

#endif
