/* request_client.h - who is behind a request: its key or, without one, its address. HTTP threads. */
#ifndef SERVER_API_REQUEST_CLIENT_H
#define SERVER_API_REQUEST_CLIENT_H

#include "server/core/client_id.h"

struct exchange;

/* Once the request has been authorised. */
struct client_id request_client(const struct exchange *x);

#endif
