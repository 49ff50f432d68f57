/* request_client.c - see request_client.h. */
#include "server/api/request_client.h"

#include "server/access/auth.h"
#include "server/api/api_request.h"
#include "server/http/http.h"

struct client_id request_client(const struct exchange *x)
{
    struct client_id id = auth_client_id(&x->api->grant);
    return id.kind != CLIENT_UNKNOWN ? id : http_client_id(x);
}
